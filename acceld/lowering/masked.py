"""Record operations of a reference on the elements that a mask selects, for operations whose result does not depend on
the number of these elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acceld.lowering.bounds import GREATEST
from acceld.lowering.graph import NotLowered, View

_FOLDS: dict[str, Callable[..., Any]] = {
    "sum": lambda array, mask, axis: np.sum(array, axis=axis, where=mask),
    "mean": lambda array, mask, axis: np.mean(array, axis=axis, where=mask),
    "max": lambda array, mask, axis: np.max(np.where(mask, array, -GREATEST), axis=axis),
    "min": lambda array, mask, axis: np.min(np.where(mask, array, GREATEST), axis=axis),
}
"""Reductions of the selected elements, computed from the whole array and the mask, by the name of the reduction."""
_OF_ROWS = frozenset({"sum", "mean", "max", "min", "var", "std", "argmax", "argmin", "prod"})
"""Reductions that can be computed for each selected row separately, if the reduced axis is not an axis of the mask."""


class Positions:
    """The positions at which a mask of one axis is True, in a traced reference. The number of positions depends on
    values.

    They can only be used as an index.
    """

    def __init__(self, mask: Any, line: int) -> None:
        self.mask, self._line = mask, line

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal()

    def refusal(self) -> NotLowered:
        """Return the error to raise if an operation needs the positions themselves, or their number."""
        return NotLowered(
            "the positions that a mask selects are lowered as an index only; leave out branches on their number",
            self._line,
        )

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise self.refusal()

    __getitem__ = __len__ = __iter__ = __bool__ = __array__ = __add__ = __mul__ = _refused
    __array_ufunc__ = __array_function__ = _refused


class Masked(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements or rows of an array at which a mask is True, in a traced reference.

    The mask has the first axes of the array. The number of selected elements depends on values, so they have no known
    shape. Element-wise functions, functions of each row alone, a few reductions, and a store to the elements of the
    same mask are recorded. All other uses raise NotLowered with the line of the index.
    """

    __array_priority__ = 2000

    def __init__(self, array: Any, mask: Any, line: int) -> None:
        self._array, self._mask, self._line = array, mask, line

    @property
    def _rest(self) -> int:
        """Return the number of axes of a selected row."""
        return int(self._array.ndim - self._mask.ndim)

    def _spread(self) -> Any:
        """Return the mask with one axis of one element appended for each axis of a selected row."""
        return self._mask.reshape((*self._mask.shape, *(1,) * self._rest))

    def _rows(self, array: Any) -> Masked:
        """Return the rows of ``array`` that the same mask selects."""
        return Masked(array, self._mask, self._line)

    def stored_by(self, mask: Any) -> Any:
        """Return the whole array, in order to store the selected elements to the elements at ``mask`` of another array.

        Raise NotLowered if ``mask`` is not the mask that selected the elements.
        """
        if not _alike(self._mask.view, mask.view):
            raise self.refusal()
        return self._array

    def refusal(self) -> NotLowered:
        """Return the error to raise if an operation needs the number of the selected elements."""
        return NotLowered("indexing by a mask is not lowered: its shape depends on values; use np.where", self._line)

    def _folded(self, name: str, axis: Any = None, **further: Any) -> Any:
        """Return a reduction of the selected elements.

        With ``axis`` None, all elements are reduced to one; with axis 0, the selected rows are reduced to one row;
        with another axis, each row is reduced by itself.
        """
        if axis is None and not further and name in _FOLDS:
            return _FOLDS[name](self._array, self._spread(), None)
        if axis == 0 and not further and name in _FOLDS:
            return _FOLDS[name](self._array, self._spread(), tuple(range(self._mask.ndim)))
        return self._rows(getattr(np, name)(self._array, axis=self._behind(axis), **further))

    def _behind(self, axis: Any) -> int:
        """Translate an axis of the selected rows to an axis of the whole array, counted from the end.

        Raise NotLowered for axis 0, which counts the selected rows.
        """
        if not isinstance(axis, int) or not (-self._rest <= axis < 0 or 0 < axis <= self._rest):
            raise self.refusal()
        return axis if axis < 0 else axis - 1 - self._rest

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ROWS:
            return lambda axis=None, **further: self._folded(name, axis, **further)
        if name in ("astype", "clip", "round"):
            return lambda *args, **further: self._rows(getattr(self._array, name)(*args, **further))
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal()

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        every = slice(None)
        if not isinstance(keys[0], slice) or keys[0] != every or Ellipsis in keys:
            if not (keys[0] is Ellipsis and all(isinstance(one, slice | int) or one is None for one in keys[1:])):
                raise self.refusal()
            if sum(one is not None for one in keys[1:]) > self._rest:
                raise self.refusal()
            return self._rows(self._array[keys])
        if not all(isinstance(one, slice | int) or one is None for one in keys):
            raise self.refusal()
        return self._rows(self._array[(*(every,) * self._mask.ndim, *keys[1:])])

    def _refused(self, *_: Any) -> Any:
        raise self.refusal()

    __setitem__ = __len__ = __iter__ = __bool__ = __float__ = __int__ = __array__ = _refused

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, out: Any = None, **further: Any) -> Any:
        others = [one.stored_by(self._mask) if isinstance(one, Masked) else one for one in args]
        if method != "__call__" or further:
            raise self.refusal()
        if ufunc is np.matmul:
            if (
                not isinstance(args[0], Masked)
                or isinstance(args[1], Masked)
                or np.ndim(args[1]) > 2
                or self._rest != 1
            ):
                raise self.refusal()
            return self._rows(np.matmul(*others))
        rests = [one._rest for one in args if isinstance(one, Masked)]
        if len(set(rests)) > 1 or any(np.ndim(one) > rests[0] for one in args if not isinstance(one, Masked)):
            raise self.refusal()
        return self._rows(ufunc(*others))

    def __array_function__(self, function: Any, types: Any, args: Any, further: Any) -> Any:
        name = function.__name__
        if name in _OF_ROWS and isinstance(args[0], Masked):
            return args[0]._folded(name, *args[1:], **further)
        if name in ("clip", "round", "around") and not any(isinstance(one, Masked) for one in args[1:]):
            return self._rows(function(self._array, *args[1:], **further))
        if name in ("split", "array_split") and isinstance(args[0], Masked):
            axis = self._behind(args[2] if len(args) > 2 else further.get("axis", 0))
            return [self._rows(one) for one in function(self._array, args[1], axis=axis)]
        if name == "concatenate" and all(isinstance(one, Masked) for one in args[0]):
            axis = self._behind(args[1] if len(args) > 1 else further.get("axis", 0))
            return self._rows(np.concatenate([one.stored_by(self._mask) for one in args[0]], axis=axis))
        raise self.refusal()


def _alike(one: View, other: View) -> bool:
    """Tell whether two masks are the same value, or are computed by the same function of the same operands."""
    a, b = one.node, other.node
    same = a is b or (a.kind == b.kind == "elementwise" and (a.name, a.args) == (b.name, b.args))
    return same and (one.shape, one.strides, one.offset) == (other.shape, other.strides, other.offset)
