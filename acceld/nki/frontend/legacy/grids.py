"""Provide index expressions for the positions of a tile: ``nl.arange`` and ``nl.mgrid``."""

from __future__ import annotations

import operator
from typing import Any, cast

from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.index import Expr
from acceld.nki.ir.program import Affine


def arange(*args: object) -> Expr:
    """Return the positions along one axis of a tile: ``nl.arange(stop)``, ``(start, stop)`` or ``(start, stop, step)``."""
    numbers = [operator.index(cast("Any", arg)) for arg in args if not isinstance(arg, Expr) or arg.is_constant]
    if len(numbers) != len(args) or not 1 <= len(args) <= 3:
        refuse(
            "symbolic_index",
            "the bounds of nl.arange depend on a loop variable",
            "use constant bounds, and add the variable to the result",
        )
    start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    count = len(range(start, stop, step))
    return Expr(Affine(start), (count,), (step if count > 1 else 0,))


class Grid(tuple[Expr, ...]):
    """The result of ``nl.mgrid[...]``: one index expression for each axis. ``p``, ``x``, ``y``, ``z``, ``w`` name the
    axes.
    """

    __slots__ = ()

    @property
    def p(self) -> Expr:
        return self[0]

    @property
    def x(self) -> Expr:
        return self[1]

    @property
    def y(self) -> Expr:
        return self[2]

    @property
    def z(self) -> Expr:
        return self[3]

    @property
    def w(self) -> Expr:
        return self[4]


class MeshGrid:
    """The object ``nl.mgrid``: ``nl.mgrid[0:128, 0:512]`` returns the row and the column index of a 128 x 512
    tile.
    """

    def __getitem__(self, key: object) -> Grid:
        keys = key if isinstance(key, tuple) else (key,)
        ranges = []
        for one in keys:
            if not isinstance(one, slice) or one.stop is None:
                refuse(
                    "index_shape",
                    "nl.mgrid got an index that is not a slice with an end",
                    "write slices, such as nl.mgrid[0:128, 0:512]",
                )
            ranges.append(
                range(operator.index(one.start or 0), operator.index(one.stop), operator.index(one.step or 1))
            )
        shape = tuple(len(r) for r in ranges)
        out = []
        for axis, r in enumerate(ranges):
            coefs = tuple(r.step if k == axis and len(r) > 1 else 0 for k in range(len(shape)))
            out.append(Expr(Affine(r.start), shape, coefs))
        return Grid(out)
