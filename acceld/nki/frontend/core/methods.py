"""Define the methods that tensors of both APIs have: views, and refusals of numpy functions and of conversions to
values.

A tensor has no values while a kernel is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from acceld.nki.frontend.core import dtypes, elementwise, language, placement, tensor, views
from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.state import current
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Space

SHAPE_FUNCTIONS: dict[Any, Callable[[Tensor], Any]] = {
    np.shape: lambda tile: tile.shape,
    np.ndim: lambda tile: tile.ndim,
    np.size: lambda tile: tile.size,
}


class Tensor(tensor.Tensor):
    """A kernel's tensor, with the methods that both APIs have."""

    __slots__ = ()

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[object]:
        refuse("tile_value", f"{self.label} can not be iterated over", "index it in a loop")

    def __bool__(self) -> bool:
        """Return True for a tensor in HBM, because kernels test arguments for None in this way. Raise LegalityError for
        a tile on chip.
        """
        if self.space is Space.HBM:
            return self._given()
        return refuse(
            "control_flow",
            "control flow depending on a tensor's value is not supported",
            "use masks, nl.where or a predicated copy",
        )

    def _given(self) -> bool:
        """Return True, and add a notice to the program: a tensor as a condition only says that the tensor is not None."""
        current().notice(f"{self.label} is true because it is given: the values in it are not tested")
        return True

    def __getitem__(self, key: object) -> tensor.Tensor:
        return views.select(self, key)

    def __setitem__(self, key: object, value: object) -> None:
        placement.assign(self[key], value)

    def view(self, dtype: object) -> tensor.Tensor:
        """Return a view of the same bits, read as ``dtype``. If ``dtype`` has another width, the view may be
        read-only.
        """
        name = dtypes.dtype_name(dtype)
        if DTYPE_BYTES[name] != DTYPE_BYTES[self.dtype_name]:
            return elementwise.bitcast(self, name)
        return self.like(replace(self.access, dtype=name))

    def assert_shape(self, shape: Sequence[int]) -> tensor.Tensor:
        """Return the tensor. Raise LegalityError if its shape is not ``shape``."""
        if tuple(shape) != self.shape:
            refuse(
                "shape",
                f"{self.label} has shape {self.shape}, and assert_shape asks for {tuple(shape)}",
                "make both equal",
            )
        return self

    def __float__(self) -> float:
        refuse(
            "tile_value",
            f"the value of {self.label} is not known while tracing",
            "compute with nl or nisa functions, which take tiles",
        )

    __int__ = __float__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> tensor.Tensor:
        """Raise LegalityError, because numpy's functions do not apply to a tile."""
        name = {"remainder": "mod", "true_divide": "divide"}.get(ufunc.__name__, ufunc.__name__)
        return self._numpy({"add": "sum", "multiply": "prod"}.get(name, name) if method == "reduce" else name)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return the shape, rank or size for ``np.shape``, ``np.ndim`` or ``np.size``. Raise LegalityError for any
        other numpy function.
        """
        if func in SHAPE_FUNCTIONS:
            return SHAPE_FUNCTIONS[func](self)
        return self._numpy(func.__name__)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._numpy("array")

    def _numpy(self, name: str) -> tensor.Tensor:
        """Raise LegalityError for numpy's function ``name``. The hint names the function of ``nl`` to use
        instead.
        """
        near = f"use nl.{name}" if name in language.names() else "use functions of nl and nisa, which take tiles"
        refuse(
            "numpy_on_tile",
            f"np.{name} can not be applied to a tile ({self.label}): tiles have no data while tracing",
            near,
        )
