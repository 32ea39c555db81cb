"""Translate data types between kernels (numpy types, ``nl.bfloat16``, names) and programs (names)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from acceld.nki.frontend.core.context import current, refuse
from acceld.nki.ir.operations import DTYPE_BYTES, FLOAT_DTYPES


class NamedType:
    """A type that numpy has no name for."""

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
"""Types of both API generations, by name in programs."""

CURRENT: dict[str, Any] = {
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float8_e5m2_x4": NamedType("float8_e5m2_x4", 4),
    "float8_e4m3fn_x4": NamedType("float8_e4m3fn_x4", 4),
    "float4_e2m1fn_x4": NamedType("float4_e2m1fn_x4", 2),
    "int64": np.dtype(np.int64),
}
"""Further types of the current API."""

EVERY = NAMED | CURRENT


def dtype_name(value: object) -> str:
    """Return the program's name of a kernel's type. LegalityError for a type that NKI does not have."""
    if isinstance(value, NamedType):
        return value.name
    legacy = current().session.api == "nki_legacy"
    known = NAMED if legacy else EVERY
    if isinstance(value, str) and value in known:
        return value
    try:
        name = _numpy_name(np.dtype(cast("Any", value)))
    except TypeError:
        name = str(value)
    name = {"bool_": "bool"}.get(name, name)
    if legacy and name == "float8_e4m3fn":  # numpy's name; the legacy API has one such format
        name = "float8_e4m3"
    if name not in known:
        refuse("dtype", f"dtype {name} is not supported by NKI", f"use one of {', '.join(known)}")
    return name


@lru_cache
def _numpy_name(dtype: np.dtype[Any]) -> str:
    return str(dtype.name)


@lru_cache(maxsize=1024)
def promote(*names: str) -> str:
    """Return the type of a result of operands of these types: the widest float, else the widest integer."""
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


def sizeinbytes(dtype: object) -> int:
    """Return the bytes of an element of a type."""
    return DTYPE_BYTES[dtype_name(dtype)]
