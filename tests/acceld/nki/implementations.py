"""Both implementations of the performance model's passes, for tests that run with each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest

from acceld.nki.timing import list_schedule, passes, sbuf_allocation, value_numbering
from acceld.nki.timing.list_schedule import Schedule
from acceld.nki.timing.sbuf_allocation import Machine
from acceld.nki.timing.value_numbering import Stream


@dataclass(frozen=True)
class Passes:
    """One implementation of the passes."""

    expand: Callable[..., Stream]
    plan: Callable[..., Machine]
    schedule: Callable[..., Schedule]

    def used_in(self, names: MutableMapping[str, Any]) -> Iterator[None]:
        """Let a module, given by its globals, use this implementation until the generator ends."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("expand", "plan", "schedule"):
                if name in names:
                    patch.setitem(names, name, getattr(self, name))
            yield


PYTHON = Passes(value_numbering.expand, sbuf_allocation.plan, list_schedule.schedule)
COMPILED = Passes(passes.expand, passes.plan, passes.schedule)
compiled = pytest.mark.skipif(not passes.COMPILED, reason="the compiled passes were not built")
BOTH = [pytest.param(PYTHON, id="python"), pytest.param(COMPILED, id="compiled", marks=compiled)]
