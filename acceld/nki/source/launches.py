"""Hold what is known of a kernel's launch: its API, its arguments and the number of its programs."""

from __future__ import annotations

from dataclasses import dataclass

from acceld.model import Kernel

Shapes = tuple[tuple[int, ...] | int | None, ...]
Dtypes = tuple[str, ...]
ON_CHIP = ("sbuf", "psum")
"""Memories of a core."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The known facts of a kernel's launch. With fewer facts rules can prove less, and find fewer places."""

    api: str
    shapes: Shapes = ()
    """One entry for each argument that the launch passes, in order: the shape of an array, the value of a whole number
    or a truth value, None for any other argument. A parameter behind these has its default value."""
    dtypes: Dtypes = ()
    """The dtypes of the arguments, in the same order; "" for a scalar."""
    entry: str = ""
    """The kernel's function; "" for the function of the file that a person would launch."""
    memories: tuple[str, ...] = ()
    """The memory of each array among the arguments, ``hbm``, ``sbuf`` or ``psum``; empty if all arrays are in HBM."""
    programs: tuple[int, ...] | None = None
    """Number of programs along each axis, () for one program; None if it is not known."""


def launch_of(kernel: Kernel, shapes: Shapes = (), dtypes: Dtypes = ()) -> Launch:
    """Return the launch of ``kernel`` with arguments of these shapes and dtypes."""
    return Launch(kernel.api, shapes, dtypes, kernel.entry, programs=kernel.programs)
