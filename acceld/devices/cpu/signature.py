"""Derive the C signature of a kernel from its workload's arguments.

``void kernel(const float *a, const float *b, float *out)``: arrays in C order as pointers (inputs const), numbers by
value, outputs last. Arrays do not overlap, so ``restrict`` is valid.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from acceld.evaluate.hosted.driver import BuildRefused

ENTRY = "kernel"
"""Default name of the kernel's function."""
_TYPES: Mapping[str, str] = {
    "float32": "float",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint32": "uint32_t",
    "uint16": "uint16_t",
    "uint8": "uint8_t",
    "bool": "uint8_t",
}


def prototype(arguments: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]], entry: str = ENTRY) -> str:
    """Return the C declaration of the kernel that a job needs.

    Raise BuildRefused if the dtype of an argument or output has no C type, or if a number does not fit its type.
    """
    parameters = [
        f"{_number(one)} {one['name']}" if "value" in one else f"const {_type(one)} *{one['name']}" for one in arguments
    ]
    parameters += [f"{_type(one)} *{one['name']}" for one in outputs]
    return f"void {entry or ENTRY}({', '.join(parameters)});"


def _type(array: Mapping[str, Any]) -> str:
    found = _TYPES.get(array["dtype"])
    if found is None:
        raise BuildRefused(
            f"C kernels have no type for {array['name']}, which is {array['dtype']}",
            rule="dtype",
            hint="use another dtype in workload.toml: float32, bool and integers of up to 32 bits have a C type",
        )
    return found


def _number(scalar: Mapping[str, Any]) -> str:
    """Return the C type of a number. Raise BuildRefused for a whole number that does not fit C's int."""
    value = scalar["value"]
    if isinstance(value, float):
        return "float"
    if not -(1 << 31) <= value < 1 << 31:
        raise BuildRefused(f"{scalar['name']} = {value} does not fit an int of C", rule="dtype")
    return "int"


def converted(value: float | bool) -> Any:
    """Return a number as the ctypes value that a C kernel takes: a float for a Python float, an int for an int
    or a bool.
    """
    return ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)
