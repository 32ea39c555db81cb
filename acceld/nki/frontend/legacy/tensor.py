"""Define tensors of the legacy API, with operators and with methods that the current API does not have."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from acceld.nki.frontend.core import elementwise, methods, tensor, views
from acceld.nki.frontend.core.context import refuse


def _operators(
    name: str,
) -> tuple[Callable[[LegacyTensor, object], tensor.Tensor], Callable[[LegacyTensor, object], tensor.Tensor]]:
    """Return two methods for a binary operator of tensors: for a tensor on the left, and for a tensor on the
    right.
    """

    def forward(self: LegacyTensor, other: object) -> tensor.Tensor:
        return self._binary(name, other)

    def reflected(self: LegacyTensor, other: object) -> tensor.Tensor:
        return self._binary(name, other, reverse=True)

    return forward, reflected


def _update(name: str) -> Callable[[LegacyTensor, object], tensor.Tensor]:
    """Return the method for an in-place operator of tensors, such as ``+=``."""

    def update(self: LegacyTensor, other: object) -> tensor.Tensor:
        return elementwise.update(name, self, other)

    return update


REFLECTED = frozenset(
    "add subtract multiply divide power mod less less_equal greater greater_equal equal not_equal".split()
)
"""Operators that work with a numpy number on the left and a tensor on the right."""
METHODS = {
    "T": "nl.transpose(tile)",
    "copy": "nl.copy(tile)",
    "item": "nl functions: a tile's value is not known while tracing",
    "numpy": "nl functions: a tile has no data while tracing",
    **{name: f"nl.{name}(tile, axis)" for name in ("sum", "mean", "max", "min", "prod", "var", "all")},
    **{name: f"nl.{name}(tile)" for name in ("transpose", "exp", "sqrt", "abs", "square", "tanh", "sigmoid")},
    "to": "tile.astype(dtype)",
    "squeeze": "tile.reshape(shape)",
    "flatten": "tile.reshape(shape)",
    "unsqueeze": "tile.expand_dims(axis)",
}
"""Advice for a method of numpy or torch: what to write in the legacy API, by method."""


class LegacyTensor(methods.Tensor):
    """A tensor or tile as a kernel of the legacy API sees it."""

    __slots__ = ()

    def broadcast_to(self, *shape: Any) -> tensor.Tensor:
        """Return a view in which axes of one element are repeated. If the tile has a single partition, an instruction
        repeats the partition.
        """
        return elementwise.broadcast_to(
            self, shape=shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        )

    def reshape(self, *args: Any, shape: Any = None) -> Self:
        """Return a view of the same elements, in C order, in another shape."""
        wanted = shape if shape is not None else args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        return views.reshape(self, tuple(operator.index(n) for n in wanted))

    def expand_dims(self, axis: int) -> Self:
        """Return a view with a new axis of one element at ``axis``."""
        return views.with_axis(self, axis)

    def astype(self, dtype: object) -> tensor.Tensor:
        """Return a copy of the tile with the dtype ``dtype``."""
        return elementwise.copy(self, dtype=dtype)

    def _binary(self, name: str, other: object, *, reverse: bool = False) -> tensor.Tensor:
        """Return this tensor and ``other`` combined by ``nl.NAME``. With ``reverse`` this tensor is the right operand."""
        return elementwise.binary(name, other, self) if reverse else elementwise.binary(name, self, other)

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")
    __pow__, __rpow__ = _operators("power")
    __mod__, __rmod__ = _operators("mod")
    __and__, __rand__ = _operators("bitwise_and")
    __or__, __ror__ = _operators("bitwise_or")
    __xor__, __rxor__ = _operators("bitwise_xor")
    __lshift__, __rlshift__ = _operators("left_shift")
    __rshift__, __rrshift__ = _operators("right_shift")
    __lt__, _ = _operators("less")
    __le__, _ = _operators("less_equal")
    __gt__, _ = _operators("greater")
    __ge__, _ = _operators("greater_equal")
    __iadd__ = _update("add")
    __isub__ = _update("subtract")
    __imul__ = _update("multiply")
    __itruediv__ = _update("divide")

    def __eq__(self, other: object) -> Any:
        return self._binary("equal", other) if isinstance(other, tensor.Tensor | int | float) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self._binary("not_equal", other) if isinstance(other, tensor.Tensor | int | float) else NotImplemented

    __hash__ = object.__hash__

    def __neg__(self) -> tensor.Tensor:
        return self._binary("multiply", -1.0)

    def __abs__(self) -> tensor.Tensor:
        return self._refuse("abs()", "nl.abs(tile)")

    def __matmul__(self, other: object) -> tensor.Tensor:
        return self._refuse(
            "@", "nl.matmul(x, y), or nl.matmul(x, y, transpose_x=True) for x with rows on the free axis"
        )

    __rmatmul__ = __matmul__

    def __floordiv__(self, other: object) -> tensor.Tensor:
        return self._refuse("//", "nl.floor(nl.divide(x, y)), or nl.right_shift(x, n) for integers")

    __rfloordiv__ = __floordiv__

    def _refuse(self, what: str, instead: str) -> tensor.Tensor:
        """Raise LegalityError for the operator ``what``, which tiles do not have."""
        refuse("tile_operator", f"{what} is not defined for tiles ({self.label})", f"use {instead}")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> tensor.Tensor:
        """Return the result of an operator whose left operand is a numpy number. Raise LegalityError for any
        other numpy function.
        """
        name = {"remainder": "mod", "true_divide": "divide"}.get(ufunc.__name__, ufunc.__name__)
        number = isinstance(inputs[0], np.generic | np.ndarray) and np.size(inputs[0]) == 1
        if method == "__call__" and name in REFLECTED and number and not kwargs:
            return self._binary(name, inputs[0], reverse=True)
        return self._numpy({"add": "sum", "multiply": "prod"}.get(name, name) if method == "reduce" else name)

    def __getattr__(self, name: str) -> Any:
        instead = METHODS.get(name)
        hint = f"use {instead}" if instead else "tiles have shape, dtype, ndim, astype, broadcast_to, reshape and view"
        raise AttributeError(name if name.startswith("__") else f"a tile has no attribute {name!r}: {hint}")

    def __invert__(self) -> tensor.Tensor:
        return elementwise.unary("invert", self)
