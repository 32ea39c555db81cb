"""Choose the implementation of the passes over all executions: the compiled one if it was built, else the one in Python.

Both give the same results, to the last bit.
"""

from acceld.nki.timing import list_schedule, sbuf_allocation, value_numbering

try:
    from acceld.nki.timing import native
except ImportError:
    COMPILED = False
    """True if the compiled passes run."""
    expand, plan, schedule = value_numbering.expand, sbuf_allocation.plan, list_schedule.schedule
else:
    COMPILED = True
    expand, plan, schedule = native.expand, native.plan, native.schedule
