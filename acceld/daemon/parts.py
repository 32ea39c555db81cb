"""Define what a daemon consists of besides store and server."""

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
    """Do nothing. Parts that need no action at reload or at the end use this function."""


async def _anything(spec: RunSpec) -> None:
    """Accept every run specification: raise no error."""


class FleetControl(Protocol):
    """Interface by which the daemon controls the hosts of a fleet. Methods raise UsageError for an unknown host."""

    async def drain(self, name: str) -> None:
        """Give a host no new work; its running work is finished."""
        ...

    async def undrain(self, name: str) -> None:
        """Give work again to a host that was drained or set aside."""
        ...

    async def doctor(self, name: str) -> list[Finding]:
        """Return what ``acceld doctor`` finds on a host's devices."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that do a daemon's work: evaluator, builder of searches, and what is called at reload and at the end."""

    evaluator: Evaluator
    make_search: SearchMaker
    close: Callable[[], Awaitable[None]] = _nothing
    """Closes connections to models."""
    check: Callable[[RunSpec], Awaitable[None]] = _anything
    """Checks a run before the run is accepted. Raises AcceldError if the run could not begin."""
    reload: Callable[[settings.Validation], None] | None = None
    """Takes changed settings that are valid."""
    fleet: FleetControl | None = None
    """The hosts behind the evaluator; None without a fleet."""
    set_budget: Callable[[int, float | None], None] | None = None
    """Changes a run's cap in USD."""


PartsMaker = Callable[[Config, Home, Store, Mapping[str, str]], Awaitable[Parts]]
"""Builds the parts of a daemon; the mapping holds the models' keys by environment variable."""
