"""Draw the arguments of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Made = tuple[Sequence[object], Sequence[Array]]
"""Arguments of a kernel, and its expected results."""
Maker = Callable[[np.random.Generator], Made]
BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = np.dtype(ml_dtypes.float8_e4m3)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    """Return standard normal values."""
    return rng.standard_normal(shape).astype(dtype)


def uniform(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    """Return uniform values in [-1, 1)."""
    return (2 * rng.random(shape) - 1).astype(dtype)
