"""Translate data types as kernels write them, such as ``nl.bfloat16`` or ``np.float32``, to their names in
Programs, such as ``bfloat16``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from acceld.nki.frontend.core.context import current, refuse
from acceld.nki.ir.operations import DTYPE_BYTES, FLOAT_DTYPES


class NamedType:
    """A data type of NKI that numpy does not have."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name = name
        self.itemsize = itemsize

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.name

    def __hash__(self) -> int:
        return hash(self.name)


TF32 = NamedType("tfloat32", 4)

NAMED: dict[str, Any] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "tfloat32": TF32,
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "bool": np.dtype(np.bool_),
}
"""Data types of both API generations, by their name in programs."""

CURRENT: dict[str, Any] = {
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float8_e5m2_x4": NamedType("float8_e5m2_x4", 4),
    "float8_e4m3fn_x4": NamedType("float8_e4m3fn_x4", 4),
    "float4_e2m1fn_x4": NamedType("float4_e2m1fn_x4", 2),
    "int64": np.dtype(np.int64),
}
"""Data types that only the current API has, by their name in programs."""

EVERY = NAMED | CURRENT


def dtype_name(value: object) -> str:
    """Return the name of a data type in Programs, such as ``float32``. Raise LegalityError for a type that the
    kernel's API lacks.
    """
    if isinstance(value, NamedType):
        return value.name
    legacy = current().session.api == "nki_legacy"
    known = NAMED if legacy else EVERY
    if isinstance(value, str) and value in known:
        return value
    try:
        name = _numpy_name(np.dtype(cast("Any", value)))
    except (TypeError, ValueError):  # ValueError: numpy reads ``value.dtype``, which may be no dtype
        name = str(value)
    name = {"bool_": "bool"}.get(name, name)
    if legacy and name == "float8_e4m3fn":  # the legacy API calls its only e4m3 format float8_e4m3
        name = "float8_e4m3"
    if name not in known:
        refuse("dtype", f"dtype {name} is not supported by NKI", f"use one of {', '.join(known)}")
    return name


@lru_cache
def _numpy_name(dtype: np.dtype[Any]) -> str:
    """Return numpy's name of a data type. Results are cached."""
    return str(dtype.name)


@lru_cache(maxsize=1024)
def promote(*names: str) -> str:
    """Return the result type of an operation on operands of the types ``names``.

    The result is the widest float; if two different floats are the widest, the result is float32. If all operands
    are integers, the result is the widest integer.
    """
    floats = [name for name in names if name in FLOAT_DTYPES]
    if floats:
        width = max(DTYPE_BYTES[name] for name in floats)
        widest = [name for name in floats if DTYPE_BYTES[name] == width]
        if len(set(widest)) > 1:
            return "float32"
        return widest[0]
    integers = [name for name in names if name != "bool"]
    if not integers:
        return "bool"
    if len(set(integers)) == 1:
        return integers[0]
    return str(np.result_type(*integers)) if str(np.result_type(*integers)) in NAMED else "int32"


def result_name(dtype: object, *operands: str) -> str:
    """Return the name of ``dtype`` in Programs. If ``dtype`` is None, return the promoted type of ``operands``
    instead.
    """
    return promote(*operands) if dtype is None else dtype_name(dtype)


def sizeinbytes(dtype: object) -> int:
    """Return the number of bytes of an element of a data type."""
    return DTYPE_BYTES[dtype_name(dtype)]
