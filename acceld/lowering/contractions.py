"""Lower numpy's products of arrays: ``np.einsum``, and the functions that can be written with einsum or a matrix
product.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from acceld.lowering.arrays import Traced, array_of, kind_of, line_now, lowers, refused, wrapped
from acceld.lowering.bounds import NARROW_INTEGERS, in_type
from acceld.lowering.graph import View, contraction, whole


@lowers("einsum")
def einsum(
    subscripts: Any,
    *operands: Any,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Traced:
    """Lower ``np.einsum`` to matrix products of views or to element-wise products, two arrays at a time."""
    if not isinstance(subscripts, str):  # the other form of np.einsum: arrays, each followed by a list of numbers
        given = [subscripts, *operands]
        lists, operands = [*given[1::2], *given[2 * (len(given) // 2) :: 2]], tuple(given[: len(given) // 2 * 2 : 2])
        texts = ["".join("..." if one is Ellipsis else ascii_letters[one] for one in numbers) for numbers in lists]
        subscripts = ",".join(texts[: len(operands)]) + "".join(f"->{text}" for text in texts[len(operands) :])
    if any(kind_of(one) == "b" for one in operands):
        refused("np.einsum of truth values", "convert them first by .astype(np.float32)")
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    names = inputs.split(",")
    arrays = [Traced(array_of(one if dtype is None else wrapped(one).astype(dtype)), kind_of(one)) for one in operands]
    if "." in subscripts:
        spare = [one for one in "ZYXWVUTSRQ" if one not in subscripts]
        extra = [
            spare[: a.ndim - len(part) + 3][::-1] if "." in part else [] for a, part in zip(arrays, names, strict=True)
        ]
        longest = max(("".join(own) for own in extra), key=len)
        names = [
            part.replace("...", longest[len(longest) - len(own) :]) for part, own in zip(names, extra, strict=True)
        ]
        output = output.replace("...", longest) if arrow else longest + output
    if not arrow:
        letters = "".join(names)
        output += "".join(sorted(one for one in set(letters) - set(output) if letters.count(one) == 1))
    parts = [_diagonals(array, name) for array, name in zip(arrays, names, strict=True)]
    while len(parts) > 1:
        (first, a), (second, b) = parts[:2]
        needed = set(output).union(*(name for _, name in parts[2:]))
        if len(parts) == 2 and output and output[-1] in set(a) - set(b) and needed & (set(b) - set(a)):
            # swap the operands, so that the last axis of the result comes from the right operand, whose axes are
            # columns
            first, a, second, b = second, b, first, a
        parts[:2] = [_paired(first, a, second, b, needed)]
    array, name = parts[0]
    gone = tuple(at for at, one in enumerate(name) if one not in output)
    if gone:
        array, name = array.sum(gone), "".join(one for one in name if one in output)
    found: Traced = array.transpose([name.index(one) for one in output])
    held = np.result_type(*(one.dtype for one in arrays)).name
    return Traced(in_type(found.view, held, line_now(), computed=True), "i") if held in NARROW_INTEGERS else found


def _diagonals(array: Traced, name: str) -> tuple[Traced, str]:
    """Return an array and its letters (one for each axis), with every two axes of the same letter replaced by their
    diagonal.
    """
    for letter in dict.fromkeys(name):
        while name.count(letter) > 1:
            first = name.index(letter)
            second = name.index(letter, first + 1)
            array = array.diagonal(0, first, second)
            name = name[:first] + name[first + 1 : second] + name[second + 1 :] + letter
    return array, name


def _paired(first: Traced, a: str, second: Traced, b: str, needed: set[str]) -> tuple[Traced, str]:
    """Multiply two arrays of an einsum, and return the product with its letters.

    ``a`` and ``b`` are the letters of the arrays' axes. The product is summed over letters that are not in ``needed``.
    """
    for alone, other in ((0, b), (1, a)):
        name = (a, b)[alone]
        gone = tuple(at for at, one in enumerate(name) if one not in other and one not in needed)
        if gone:
            array = (first, second)[alone].sum(gone)
            name = "".join(one for at, one in enumerate(name) if at not in gone)
            first, a, second, b = (array, name, second, b) if not alone else (first, a, array, name)
    batch = [one for one in a if one in b and one in needed]
    folded = [one for one in a if one in b and one not in needed]
    rows = [one for one in a if one not in b]
    columns = [one for one in b if one not in a]

    def turned(array: Traced, name: str, order: Sequence[str]) -> Traced:
        """Return ``array`` with its axes, named by the letters of ``name``, in ``order``. A letter that is not in
        ``name`` becomes an axis of one element.
        """
        found = array.transpose([name.index(one) for one in order if one in name])
        made: Traced = found[tuple(slice(None) if one in name else None for one in order)]
        return made

    if not folded:
        order = [*batch, *rows, *columns]
        return turned(first, a, order) * turned(second, b, order), "".join(order)
    left, right = turned(first, a, batch + rows + folded).view, turned(second, b, batch + columns + folded).view
    lined: tuple[View, View] = (left, right)
    node = contraction(*lined, len(batch), len(folded), line=line_now())
    kind = "f" if "f" in (first.kind, second.kind) else "i"
    return Traced(whole(node), kind), "".join(batch + rows + columns)  # type: ignore[arg-type]  # kind is 'f' or 'i'


@lowers("tensordot")
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Lower ``np.tensordot``: a product summed over the given axes."""
    left, right = axes if not isinstance(axes, int) else (range(a.ndim - axes, a.ndim), range(axes))
    firsts, seconds = (
        [int(axis) % one.ndim for axis in (side if not isinstance(side, int) else (side,))]
        for one, side in ((a, left), (b, right))
    )
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = list(letters[: a.ndim])
    others = list(letters[a.ndim : a.ndim + b.ndim])
    for first, second in zip(firsts, seconds, strict=True):
        others[second] = names[first]
    kept = [one for one in (*names, *others) if (one in names) != (one in others)]
    return einsum(f"{''.join(names)},{''.join(others)}->{''.join(kept)}", a, b)


@lowers("dot")
def dot(a: Any, b: Any) -> Any:
    """Lower ``np.dot``. Unlike ``np.matmul``, it multiplies each matrix of ``a`` by each matrix of ``b``."""
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    if np.ndim(b) == 1 or np.ndim(a) <= 2 >= np.ndim(b):
        return np.matmul(a, b)
    return tensordot(wrapped(a), wrapped(b), (-1, -2))


@lowers("matvec")
def matvec(x1: Any, x2: Any) -> Any:
    """Lower ``np.matvec``: products of matrices and vectors."""
    return np.matmul(x1, x2[..., None])[..., 0]


@lowers("outer")
def outer(a: Any, b: Any) -> Any:
    """Lower ``np.outer``: the product of each element of ``a`` with each element of ``b``."""
    return np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1))


@lowers("inner")
def inner(a: Any, b: Any) -> Any:
    """Lower ``np.inner``: a product summed over the last axes."""
    return tensordot(a, b, (-1, -1))


@lowers("vdot")
def vdot(a: Any, b: Any) -> Any:
    """Lower ``np.vdot``: the sum of the products of all elements."""
    return (np.ravel(a) * np.ravel(b)).sum()


@lowers("vecdot")
def vecdot(x1: Any, x2: Any, axis: int = -1) -> Any:
    """Lower ``np.vecdot``: the sum of products along an axis."""
    return (x1 * x2).sum(axis)


@lowers("multi_dot")
def multi_dot(arrays: Sequence[Any]) -> Any:
    """Lower ``np.linalg.multi_dot``: a chain of matrix products, from left to right."""
    return functools.reduce(lambda a, b: a @ b, arrays)
