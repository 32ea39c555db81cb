"""Read views that repeat or space out the elements of a tensor: access patterns and broadcasts."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from acceld.nki.source.affine import Affine
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access


@dataclass(frozen=True, slots=True)
class Pattern:
    """The last axis of an access pattern such as ``b.ap(pattern=[[0, 128], [1, 512]], offset=512 * c)``: 512 elements
    with stride 1 from 512 * c on.
    """

    stride: int
    count: int
    start: Affine
    count_node: ast.expr
    start_node: ast.expr | None
    """The offset in the source; None where it is left out, and is 0."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A view ``nl.broadcast_to(tile, (128, 512))`` of ``access``, whose last axis has ``count`` elements."""

    access: Access
    count: int
    count_node: ast.expr


def pattern_of(kernel: KernelModule, access: Access) -> Pattern | None:
    """Return the access pattern ``x.ap(...)`` of an access; None if the access has none, or if the pattern is not
    understood.
    """
    given = kernel.given_pattern(access)
    if given is None:
        return None
    (*others, (step, number)), offset = given
    stride, count = kernel.constant(step), kernel.constant(number)
    start = Affine() if offset is None else kernel.affine(offset)
    fixed = [kernel.affine(one) for pair in others for one in pair]
    if stride is None or count is None or start is None or any(one is None or one.terms for one in fixed):
        return None
    return Pattern(stride, count, start, number, offset)


def repeated(kernel: KernelModule, node: ast.expr) -> Repeated | None:
    """Return the view ``nl.broadcast_to(tile, shape)`` that an operand is; None for any other operand, or if the
    shape is not written out as numbers.
    """
    if not isinstance(node, ast.Call) or kernel.callee(node) != "broadcast_to" or not node.args:
        return None
    given = dict(zip(("src", "shape"), node.args, strict=False)) | {one.arg: one.value for one in node.keywords}
    access = kernel.access(given["src"])
    match given.get("shape"):
        case ast.List(elts=extents) | ast.Tuple(elts=extents) if extents and access is not None and len(given) == 2:
            count = kernel.constant(extents[-1])
            return None if count is None else Repeated(access, count, extents[-1])
    return None
