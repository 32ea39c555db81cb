"""Parts of a daemon besides the store and the server, and the factory of the real ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from acceld.config import Config
from acceld.daemon.runs import SearchMaker
from acceld.device import Finding
from acceld.evaluate.interface import Evaluator
from acceld.home import Home
from acceld.model import RunSpec
from acceld.store.database import Store
from acceld.watch import settings


async def _nothing() -> None:
    """Nothing to close."""


async def _anything(spec: RunSpec) -> None:
    """Every specification will do."""


class FleetControl(Protocol):
    """Commands for the hosts of a fleet. Raise UsageError for an unknown host."""

    async def drain(self, name: str) -> None:
        """Give a host nothing more."""
        ...

    async def undrain(self, name: str) -> None:
        """Give a host work again."""
        ...

    async def doctor(self, name: str) -> list[Finding]:
        """Ask a host what it lacks; return its answer."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that do the work."""

    evaluator: Evaluator
    make_search: SearchMaker
    close: Callable[[], Awaitable[None]] = _nothing
    """Close connections to models."""
    check: Callable[[RunSpec], Awaitable[None]] = _anything
    """Asked before a run is accepted. AcceldError where it could not begin."""
    reload: Callable[[settings.Finding], None] | None = None
    """Take over what was saved to the settings and is valid."""
    fleet: FleetControl | None = None
    """The hosts behind the evaluator, where there is a fleet."""
    set_budget: Callable[[int, float | None], None] | None = None
    """Change a run's cap in USD."""


PartsMaker = Callable[[Config, Home, Store, Mapping[str, str]], Awaitable[Parts]]
"""Builds the parts of a daemon; the mapping holds the models' keys by environment variable."""
