"""Describe hardware that candidates run on. Each package in ``acceld/devices`` holds one record as ``DEVICE``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from acceld.model import Source

HOST = "host"
"""The chip of the machine the daemon runs on: its CPU."""


@dataclass(frozen=True, slots=True)
class Target:
    """One backend: the APIs of its kernels, the chips of each, and what its latencies are."""

    backend: str
    chips: Mapping[str, tuple[str, ...]]
    """By API; the first chip is the one meant where nobody says."""
    source: Source = Source.MEASURED

    @property
    def apis(self) -> tuple[str, ...]:
        """APIs it takes; the first is the one meant where nobody says."""
        return tuple(self.chips)


@dataclass(frozen=True, slots=True)
class Device:
    """Hardware that candidates run on. What is heavy is named as ``module:function`` and imported when it is used."""

    name: str
    targets: tuple[Target, ...]
    """Its backends."""
    evaluator: str
    """Function that takes a :class:`acceld.evaluate.interface.Workplace` and a backend's name, and returns the evaluator, not started."""
    doctor: str = ""
    """Function that takes a :class:`acceld.config.Config` and the state folder, and returns :class:`Finding` records. Measures nothing."""
    interference: str = ""
    """Function that takes a backend, a configuration and the state folder, and learns which cores disturb each other."""
    host_timed: bool = False
    """Kernels run with data in a process of this machine and are timed from outside of it."""
    cancellable_timing: bool = False
    """A timing that nobody waits for any more is given up, since it holds a scarce core."""
    rules: str = ""
    """A package with ``MODULES``, each of which holds a rewrite rule as ``RULE``."""
    readers: Mapping[str, str] = field(default_factory=dict)
    """By API: from source, API and argument shapes to the kernel as the rules read it."""
    figures: str = ""
    """Function that takes a chip and returns lines on its sizes, rates and vector instructions."""
    attacks: str = ""
    """Folder of its own self-test, below that of the simulator."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``acceld doctor``. Only ``fail`` keeps acceld from its main job."""

    name: str
    state: Literal["ok", "note", "fail"]
    text: str
    todo: str = ""
