"""Find the range of a graph value: the least and the greatest number that it can have. Keep integers in narrow types."""

from __future__ import annotations

import math

import numpy as np

from acceld.lowering.graph import INDEX, Node, NotLowered, Operand, View, elementwise, whole
from acceld.lowering.instructions import BITWISE

Range = tuple[float, float]
NARROW_INTEGERS = frozenset({"int8", "uint8", "int16", "uint16"})
"""Integer types of 8 and 16 bits, whose results wrap around as in numpy. Wider integers do not wrap around."""
GREATEST = 3.4028235e38
"""The greatest float32 value."""
MOST_EXACT = 2**24
"""Magnitude up to which the engines represent every integer exactly, because they compute in float32."""
DEPTH = 12
"""Greatest number of nodes in a chain of operands that the search for a range follows."""
_ANY: Range = (-math.inf, math.inf)
_TRUTH = frozenset({"eq", "ge", "gt", "le", "lt", "ne", "not"})


def bounds(value: Operand, depth: int = DEPTH) -> Range:
    """Return the least and the greatest number that an operand can have, by the functions that compute the operand.

    ``depth`` is how many nodes the search goes back. Ends of the range that are not known are infinite.
    """
    if not isinstance(value, View):
        return (value, value)
    if value.node is INDEX:
        ends = [(extent - 1) * step for extent, step in zip(value.shape, value.strides, strict=True)]
        return value.offset + sum(min(0, end) for end in ends), value.offset + sum(max(0, end) for end in ends)
    node = value.node
    low, high = _made(node, depth - 1) if depth else _ANY
    least, greatest = (0.0, 1.0) if node.dtype == "bool" else _limits(node.dtype) if "int" in node.dtype else _ANY
    return max(low, least), min(high, greatest)


def _limits(dtype: str) -> Range:
    """Return the least and the greatest number of an integer type."""
    limits = np.iinfo(dtype)
    return float(limits.min), float(limits.max)


def _made(node: Node, depth: int) -> Range:
    """Return the range of a node's result, from the ranges of its operands. ``depth`` is that of :func:`bounds`."""
    each = [bounds(arg, depth) for arg in node.args]
    if node.kind == "elementwise":
        return _computed(node.name, each)
    if node.kind == "buffer" and each:
        return min(low for low, _ in each), max(high for _, high in each)
    if node.kind == "gather":
        return each[1]
    if node.kind == "reduce" and node.name in ("add", "max", "min"):
        terms = math.prod(node.views[0].shape[len(node.shape) :]) if node.name == "add" else 1
        return each[0][0] * terms, each[0][1] * terms
    if node.kind == "dot":
        terms = math.prod(node.views[0].shape[len(node.views[0].shape) - node.folded :])
        ends = [_product(a, b) for a, b in zip(each[::2], each[1::2], strict=True)]
        return terms * sum(low for low, _ in ends), terms * sum(high for _, high in ends)
    if node.kind == "scan" and node.name == "order":
        return 0.0, float(node.shape[-1] - 1)
    if node.kind == "scan" and node.name == "sum":
        terms = node.shape[-1]
        return min(0.0, each[1][0] * terms), max(0.0, each[1][1] * terms)
    return _ANY


def _computed(name: str, each: list[Range]) -> Range:
    """Return the range of an element-wise function, from the ranges of its operands."""
    low, high = each[0]
    if name in _TRUTH:
        return 0.0, 1.0
    if name in ("fill", "copy"):
        return (math.floor(low), math.ceil(high)) if name == "copy" and math.isfinite(low + high) else (low, high)
    if name in ("abs", "square"):
        far = max(abs(low), abs(high))
        near = max(0.0, low, -high)
        return (near, far) if name == "abs" else (near * near, far * far)
    if name == "neg":
        return -high, -low
    if name == "where":
        return min(each[1][0], each[2][0]), max(each[1][1], each[2][1])
    if name == "sign":
        return -1.0, 1.0
    if name in ("exp", "sqrt", "rsqrt"):
        return 0.0, math.inf
    if len(each) != 2:
        return _ANY
    least, greatest = each[1]
    if name in ("max", "min"):
        pick = max if name == "max" else min
        return pick(low, least), pick(high, greatest)
    if name in ("add", "sub"):
        return (low + least, high + greatest) if name == "add" else (low - greatest, high - least)
    if name == "mul":
        return _product(each[0], each[1])
    return _of_bits(name, each[0], each[1]) if name in BITWISE else _ANY


def _product(one: Range, other: Range) -> Range:
    """Return the range of the products of numbers in two ranges. Zero times infinity counts as zero."""
    ends = [a * b if a and b else 0.0 for a in one for b in other]
    return min(ends), max(ends)


def _of_bits(name: str, one: Range, other: Range) -> Range:
    """Return the range of the bitwise function ``name`` of integers in two ranges."""
    far = max(abs(end) for end in (*one, *other))
    if not math.isfinite(far):
        return _ANY
    if name == "right_shift":
        return min(one[0], 0.0), max(one[1], 0.0)
    if name == "left_shift":
        return _product(one, (1.0, 2.0 ** max(0.0, other[1]))) if other[1] < 64 else _ANY
    positive = [high for low, high in (one, other) if low >= 0]
    if name == "and" and positive:
        return 0.0, min(positive)
    power = 2.0 ** int(far).bit_length()
    return (0.0, power - 1) if len(positive) == 2 else (-power, power - 1)


def in_type(view: View, dtype: str, line: int, *, computed: bool = False) -> View:
    """Return integers converted to a narrow dtype as numpy converts them: a number that the dtype can not represent
    wraps around.

    If ``computed`` is True, the numbers are results of arithmetic in this type. Raise NotLowered if these results may be
    too great to be exact.
    """
    least, greatest = _limits(dtype)
    low, high = bounds(view)
    if least <= low and high <= greatest:
        return view if view.dtype == dtype else whole(elementwise("copy", [view], dtype, line))
    if computed and view.node.name not in BITWISE and max(-low, high) > MOST_EXACT:
        raise NotLowered(
            f"arithmetic in {dtype} that may pass 2**24 is not lowered; cast to float32 or int32 first", line
        )
    number = view if view.dtype == "int32" else whole(elementwise("copy", [view], "int32", line))
    kept = whole(elementwise("and", [number, greatest - least], "int32", line))
    if not least:
        return whole(elementwise("copy", [kept], dtype, line))
    turned = whole(elementwise("xor", [kept, greatest + 1], "int32", line))
    return whole(elementwise("sub", [turned, greatest + 1], dtype, line))
