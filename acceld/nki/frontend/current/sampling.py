"""Trace some iterations of a long loop instead of all.

A range of this API returns plain integers, so Python runs every iteration. A kernel of tens of thousands of
instructions is traced with samples: each loop runs its first iterations, its last ones and some between them. Then
:mod:`acceld.nki.frontend.current.loop_rerolling` makes one loop of the samples, but only if each sample equals the
first one advanced by equal steps.

A kernel may add, subtract and multiply the index of a sampled iteration. Any other use in Python (a comparison, a list
index, a remainder, a size) needs all iterations, so the kernel is traced again with that loop in full. The same happens
if the samples of a loop differ, or if Python values around the loop change during it
(:mod:`acceld.nki.frontend.current.snapshots`). After any other error the whole kernel is traced in full.
"""

from __future__ import annotations

from typing import Any, NoReturn

from acceld.nki.frontend.core.context import Retrace
from acceld.nki.frontend.core.index import Expr
from acceld.nki.frontend.session import Site
from acceld.nki.ir.program import Affine

LEAST = 8
"""Number of iterations below which a loop is traced in full."""


def positions(count: int) -> tuple[int, ...]:
    """Return the numbers of the iterations to trace of a loop of ``count`` iterations."""
    return tuple(sorted({0, 1, 2, count // 3, count // 2, 2 * count // 3 + 1, count - 2, count - 1}))


def _needs_all(self: SampledIndex, *others: object) -> NoReturn:
    """Raise Retrace, because this use of a sampled index needs all iterations of its loops."""
    raise Retrace(unroll=self.sites)


class SampledIndex(Expr):
    """Represent the index of a sampled iteration, or a sum or product of such indices and numbers."""

    __slots__ = ("sites",)

    sites: frozenset[Site]
    """The loops, by their place in the source, whose indices are in this value."""

    def __init__(self, value: int, sites: frozenset[Site]) -> None:
        super().__init__(Affine(value))
        object.__setattr__(self, "sites", sites)

    def _combined(self, other: object, value: int) -> SampledIndex:
        """Return ``value`` as an index that depends on the loops of both operands."""
        sites = self.sites | other.sites if isinstance(other, SampledIndex) else self.sites
        return SampledIndex(value, sites)

    def _number(self, other: object) -> int:
        """Return the other operand as a number. Raises Retrace if it is neither an index nor an integer."""
        if isinstance(other, SampledIndex):
            return other.base.const
        if isinstance(other, int) and not isinstance(other, bool):
            return other
        _needs_all(self)

    def __add__(self, other: object) -> SampledIndex:
        return self._combined(other, self.base.const + self._number(other))

    __radd__ = __add__

    def __sub__(self, other: object) -> SampledIndex:
        return self._combined(other, self.base.const - self._number(other))

    def __rsub__(self, other: object) -> SampledIndex:
        return self._combined(other, self._number(other) - self.base.const)

    def __mul__(self, other: object) -> SampledIndex:
        if isinstance(other, SampledIndex):
            _needs_all(self)
        return self._combined(other, self.base.const * self._number(other))

    __rmul__ = __mul__

    def __neg__(self) -> SampledIndex:
        return SampledIndex(-self.base.const, self.sites)

    def scale(self, factor: int) -> SampledIndex:
        """Return the index times ``factor``."""
        return SampledIndex(self.base.const * factor, self.sites)

    __truediv__: Any = _needs_all
    __floordiv__: Any = _needs_all
    __rfloordiv__: Any = _needs_all
    __rtruediv__: Any = _needs_all
    __mod__: Any = _needs_all
    __rmod__: Any = _needs_all
    __divmod__: Any = _needs_all
    __pow__: Any = _needs_all
    __rpow__: Any = _needs_all
    __and__: Any = _needs_all
    __or__: Any = _needs_all
    __xor__: Any = _needs_all
    __lshift__: Any = _needs_all
    __rshift__: Any = _needs_all
    __lt__: Any = _needs_all
    __le__: Any = _needs_all
    __gt__: Any = _needs_all
    __ge__: Any = _needs_all
    __eq__: Any = _needs_all
    __ne__: Any = _needs_all
    __bool__: Any = _needs_all
    __index__: Any = _needs_all
    __int__: Any = _needs_all
    __float__: Any = _needs_all
    __round__: Any = _needs_all
    __abs__: Any = _needs_all
    __hash__: Any = _needs_all
    __getitem__: Any = _needs_all
    __str__: Any = _needs_all
    __repr__: Any = _needs_all
    __format__: Any = _needs_all
