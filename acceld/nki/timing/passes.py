"""Choose the implementation of the passes over all executions: the compiled one if it was built, else the one in Python.

Both give the same results, to the last bit. A compiled one that was built before its source changed is not used.
"""

import hashlib
from pathlib import Path

from acceld.nki.timing import list_schedule, sbuf_allocation, value_numbering

SOURCE = Path(__file__).with_name("native.pyx")
"""Source of the compiled passes. A wheel does not have it."""


def is_of_this_source(built_from: str) -> bool:
    """Return True if compiled passes with this digest belong to the source beside them, or there is no source."""
    return not SOURCE.is_file() or hashlib.sha256(SOURCE.read_bytes()).hexdigest() == built_from


try:
    from acceld.nki.timing import native
except ImportError:
    COMPILED = STALE = False
else:
    COMPILED = is_of_this_source(getattr(native, "BUILT_FROM", ""))
    """True if the compiled passes run."""
    STALE = not COMPILED
    """True if there are compiled passes of an earlier source."""

if COMPILED:
    expand, plan, schedule = native.expand, native.plan, native.schedule
else:
    expand, plan, schedule = value_numbering.expand, sbuf_allocation.plan, list_schedule.schedule
