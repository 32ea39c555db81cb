"""Describe hardware that kernels run on. Each package in ``acceld/devices`` holds one record as ``DEVICE``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from acceld.model import Source

HOST = "host"
"""Name of the chip that stands for the processor of the daemon's machine."""


@dataclass(frozen=True, slots=True)
class Target:
    """A backend that evaluates kernels: the APIs it takes, the chips of each API, and whether its latencies are
    simulated or measured.
    """

    backend: str
    chips: Mapping[str, tuple[str, ...]]
    """Chips by API; the first one is the default."""
    source: Source = Source.MEASURED

    @property
    def apis(self) -> tuple[str, ...]:
        """Return the APIs of the kernels that the backend takes. The first API is the default."""
        return tuple(self.chips)


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of hardware with its backends. Parts that are slow to import are named as ``module:function`` and
    imported when they are used.
    """

    name: str
    targets: tuple[Target, ...]
    """The device's backends."""
    evaluator: str
    """Function that takes a :class:`acceld.evaluate.interface.Workplace` and a backend's name, and returns the
    evaluator, not started.
    """
    doctor: str = ""
    """Function that takes a :class:`acceld.config.Config` and the state folder, and returns :class:`Finding` records.
    Measures nothing.
    """
    nki_version: str = ""
    """Function that returns the version of the package ``nki`` on this machine, such as ``0.6``; empty without the
    package.
    """
    judge: str = ""
    """Function that takes an EvaluateConfig, the state folder and a SandboxReport, and returns a
    :class:`acceld.evaluate.opinion.Judge`, not started; None if the machine has no judge."""
    interference: str = ""
    """Function that takes a backend, a configuration and the state folder, and finds out which cores disturb each
    other.
    """
    host_timed: bool = False
    """True if kernels run with data in a process of this machine and are timed from outside of it."""
    cancellable_timing: bool = False
    """True if a timing is cancelled when its caller is gone, because the timing occupies a core that others wait for.
    """
    rules: str = ""
    """A package with ``MODULES``, each of which holds a rewrite rule as ``RULE``."""
    readers: Mapping[str, str] = field(default_factory=dict)
    """By API, the function that takes source, API and argument shapes and returns the parsed kernel for the rewrite
    rules.
    """
    figures: str = ""
    """Function that takes a chip and returns lines on its sizes, rates and vector instructions."""
    calls: str = ""
    """Function that takes an API and returns lines on its calls and their arguments."""
    attacks: str = ""
    """Folder of the device's own attacks, below the simulator's self-test."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``acceld doctor``. Kernels can not be optimized here if a finding has the state ``fail``."""

    name: str
    state: Literal["ok", "note", "fail"]
    text: str
    todo: str = ""
