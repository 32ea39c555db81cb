"""What an evaluator asks of a backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from acceld.model import Kernel, Source


@dataclass(frozen=True, slots=True)
class Device:
    """One core, GPU or simulator slot."""

    backend: str
    index: int
    chip: str
    name: str
    timing_group: str = ""
    """Devices of one group must not be timed at the same time (shared HBM, say)."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel, frozen before any data is drawn.

    ``sha256`` identifies the bytes in ``payload`` (an encoded Program, a NEFF, a shared object).
    """

    backend: str
    sha256: str
    payload: bytes = field(repr=False)
    metadata: dict[str, Any] = field(default_factory=dict)


class Backend(Protocol):
    """Compiles from shapes, runs on data, times. Implementations live beside this module."""

    name: str
    source: Source
    apis: frozenset[str]

    def devices(self) -> tuple[Device, ...]:
        """What it can use now. DeviceError where its tools are missing, with what to install."""
        ...

    async def compile(self, kernel: Kernel, arguments: tuple[Any, ...], chip: str) -> Artifact:
        """Compile from shapes, in the jail. KernelFailure where the kernel is at fault."""
        ...
