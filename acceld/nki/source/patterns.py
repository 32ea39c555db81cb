"""Read views that repeat or space out the elements of a tensor: access patterns and broadcasts."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from acceld.nki.source.affine import Affine
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, elements


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
    """Return the access pattern that an access consists of, ``x.ap(...)``; None if it is none, or is not understood."""
    match access.node:
        case ast.Call(func=ast.Attribute(attr="ap"), args=args, keywords=named):
            given = dict(zip(("pattern", "offset"), args, strict=False)) | {one.arg: one.value for one in named}
        case _:
            return None
    match given.get("pattern"):
        case ast.List(elts=pairs) | ast.Tuple(elts=pairs) if pairs and len(args) <= 2:
            last = pairs[-1]
        case _:
            return None
    if given.keys() - {"pattern", "offset"} or not isinstance(last, ast.List | ast.Tuple) or len(last.elts) != 2:
        return None
    stride, count = (kernel.constant(one) for one in last.elts)
    start = kernel.affine(given["offset"]) if "offset" in given else Affine()
    others = [kernel.affine(one) for pair in pairs[:-1] for one in elements(pair)]
    if stride is None or count is None or start is None or any(one is None or one.terms for one in others):
        return None
    return Pattern(stride, count, start, last.elts[1], given.get("offset"))


def repeated(kernel: KernelModule, node: ast.expr) -> Repeated | None:
    """Return the view ``nl.broadcast_to(tile, shape)`` that an operand consists of; None if it is none, or its shape is
    not written out as numbers.
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
