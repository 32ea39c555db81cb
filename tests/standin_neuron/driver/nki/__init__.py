"""Stand-in for nki 0.4: the compiler is a frontend and a driver."""

import os

if os.environ.get("ACCELD_STANDIN") != "1":
    raise ImportError("a stand-in of the tests must not be used outside them")


def jit(func=None, **_):
    """Marks a kernel."""
    return func
