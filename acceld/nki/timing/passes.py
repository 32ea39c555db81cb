"""Choose between compiled code and Python for the three passes over all executions: numbering of values, allocation of
SBUF, and scheduling.

Both give the same results to the last bit. Compiled code runs if it was built from the present version of its source;
else Python runs.
"""

import hashlib
from pathlib import Path

from acceld.nki.timing import list_schedule, sbuf_allocation, value_numbering

SOURCE = Path(__file__).with_name("native.pyx")
"""Source file of the compiled passes. A wheel does not contain this file."""


def is_of_this_source(built_from: str) -> bool:
    """Tell whether ``built_from`` is the digest of the source from which the compiled passes should be built. The
    answer is also True if the source is not installed.
    """
    return not SOURCE.is_file() or hashlib.sha256(SOURCE.read_bytes()).hexdigest() == built_from


try:
    from acceld.nki.timing import native
except ImportError:
    COMPILED = STALE = False
else:
    COMPILED = is_of_this_source(getattr(native, "BUILT_FROM", ""))
    """True if the compiled passes run."""
    STALE = not COMPILED
    """True if compiled passes exist but were built from another version of their source."""

if COMPILED:
    expand, plan, schedule = native.expand, native.plan, native.schedule
else:
    expand, plan, schedule = value_numbering.expand, sbuf_allocation.plan, list_schedule.schedule
