"""Change the index expressions of a program's nodes, and the numbers of their loops and buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from acceld.nki.ir.program import Access, Affine, Attr, Instruction, Loop, Node, Operand, Pattern


def mapped(
    node: Node,
    affine: Callable[[Affine], Affine],
    *,
    loop: Callable[[int], int] | None = None,
    buffer: Callable[[int], int] | None = None,
) -> Node:
    """Return ``node`` with ``affine`` applied to each index expression in it.

    ``loop`` and ``buffer`` give the new ids of loops and buffers; without them the ids stay. ``loop`` is not applied to
    index expressions: ``affine`` has to replace the loop ids in them.

    Expressions come in this order: destinations, sources, masks, the pattern. Within an access its run-time
    indices come first.
    """

    def access(one: Access) -> Access:
        indirect = one.indirect
        if indirect:
            indirect = tuple(i if i.index is None else replace(i, index=access(i.index)) for i in indirect)
        start = tuple([affine(start) for start in one.start])
        return Access(one.buffer if buffer is None else buffer(one.buffer), start, one.dims, indirect, one.dtype)

    def pattern(one: Pattern) -> Pattern:
        return Pattern(affine(one.base), one.coefs)

    def operand(one: Operand) -> Operand:
        return access(one) if isinstance(one, Access) else pattern(one) if isinstance(one, Pattern) else one

    def attribute(name: str, value: Attr) -> Attr:
        """Return an attribute's value, with new ids if it lists loops."""
        if loop is None or name != "loops" or not isinstance(value, tuple):
            return value
        return tuple(loop(one) for one in value if isinstance(one, int))

    def changed(node: Node) -> Node:
        if isinstance(node, Loop):
            body = tuple([changed(child) for child in node.body])
            return replace(node, id=node.id if loop is None else loop(node.id), body=body)
        return Instruction(
            node.op,
            node.engine,
            tuple([access(dst) for dst in node.dsts]),
            tuple([operand(src) for src in node.srcs]),
            node.attrs if loop is None else tuple([(name, attribute(name, value)) for name, value in node.attrs]),
            tuple([pattern(one) for one in node.mask]) if node.mask else (),
            None if node.pattern is None else pattern(node.pattern),
            node.line,
            node.place,
        )

    return changed(node)
