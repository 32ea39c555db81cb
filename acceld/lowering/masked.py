"""Record operations of a reference on elements that a mask selects, if the result does not depend on their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acceld.lowering.bounds import GREATEST
from acceld.lowering.graph import NotLowered, View

_FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda array, mask: np.sum(array, where=mask),
    "mean": lambda array, mask: np.mean(array, where=mask),
    "max": lambda array, mask: np.max(np.where(mask, array, -GREATEST)),
    "min": lambda array, mask: np.min(np.where(mask, array, GREATEST)),
}
"""Reductions of selected elements, written for the whole array and the mask, by the name of the reduction."""


class Masked(np.lib.mixins.NDArrayOperatorsMixin):
    """Stand in for the elements of an array at which a mask is True.

    The number of these elements depends on values, so they have no known shape. Element-wise functions, a few
    reductions, and a store to the elements of the same mask are recorded. All other uses raise NotLowered with the line
    of the index.
    """

    __array_priority__ = 2000

    def __init__(self, array: Any, mask: Any, line: int) -> None:
        self._array, self._mask, self._line = array, mask, line

    def stored_by(self, mask: Any) -> Any:
        """Return the whole array, for a store of the selected elements to the elements at ``mask`` of another array.

        Raise NotLowered if ``mask`` is not the mask that selected the elements.
        """
        if not _alike(self._mask.view, mask.view):
            raise self.refusal()
        return self._array

    def refusal(self) -> NotLowered:
        """Return the error for an operation that needs the number of the selected elements."""
        return NotLowered("indexing by a mask is not lowered: its shape depends on values; use np.where", self._line)

    def __getattr__(self, name: str) -> Any:
        if name in _FOLDS:
            return lambda: _FOLDS[name](self._array, self._mask)
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal()

    def _refused(self, *_: Any) -> Any:
        raise self.refusal()

    __getitem__ = __setitem__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = __array__ = _refused

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, out: Any = None, **further: Any) -> Any:
        others = [one.stored_by(self._mask) if isinstance(one, Masked) else one for one in args]
        if method != "__call__" or further or any(np.ndim(one) for one in args if not isinstance(one, Masked)):
            raise self.refusal()
        return Masked(ufunc(*others), self._mask, self._line)

    def __array_function__(self, function: Any, types: Any, args: Any, further: Any) -> Any:
        if function.__name__ not in _FOLDS or args[1:] or further:
            raise self.refusal()
        return getattr(self, function.__name__)()


def _alike(one: View, other: View) -> bool:
    """Return True if two masks are the same value, or are computed by the same function of the same operands."""
    a, b = one.node, other.node
    same = a is b or (a.kind == b.kind == "elementwise" and (a.name, a.args) == (b.name, b.args))
    return same and (one.shape, one.strides, one.offset) == (other.shape, other.strides, other.offset)
