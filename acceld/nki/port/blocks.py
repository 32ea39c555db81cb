"""Replace block dimensions of on-chip tensors, which the current API lacks.

A *block dimension* stands before the partition dimension. If the variable of one loop always indexes a block dimension,
the tensor is declared inside that loop instead. Other block dimensions move to the free axis in SBUF. In PSUM the
tensor becomes a list of tiles, each in a bank of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from acceld.nki.port.facts import Facts
from acceld.nki.port.names import Names
from acceld.nki.source.syntax import elements
from acceld.parsing import parse_expression

DECLARING = ("nl.ndarray", "nl.zeros", "nl.full", "nl.ones")


@dataclass
class BlockTensor:
    """A tensor with block dimensions, and what its declaration becomes in the new kernel."""

    name: str
    declaration: ast.Assign | None
    blocks: list[ast.expr]
    partitions: ast.expr
    free: list[ast.expr]
    psum: bool
    inside: ast.For | None = None
    """The loop into whose body the declaration moves; None if the declaration does not move."""
    dropped: frozenset[int] = field(default_factory=frozenset)
    """Numbers of the block dimensions that the new tensor lacks, because the declaration moves into the loops over
    them.
    """
    escapes: bool = False
    """True if the tensor is also used without an index for each block dimension, for example as an argument of a
    function. Then no block dimension is dropped.
    """

    @property
    def shape(self) -> ast.expr:
        """Return an expression for the original shape, written with the shape of the new tensor."""
        places = [
            *range(1, len(self.blocks) + 1),
            0,
            *range(len(self.blocks) + 1, len(self.blocks) + 1 + len(self.free)),
        ]
        sizes = [parse_expression(f"{self.name}.shape[{place}]") for place in places]
        return ast.Tuple(sizes, ast.Load())

    @property
    def kept(self) -> list[int]:
        """Return the numbers of the block dimensions that the new tensor still has."""
        return [at for at in range(len(self.blocks)) if at not in self.dropped]

    def indexed(self, items: Sequence[ast.expr]) -> tuple[ast.expr, list[ast.expr]]:
        """Translate an index of the original tensor to the new tensor.

        Return the expression to index (the new tensor, or one tile if the new tensor is a list of tiles), and the
        indices that remain.
        """
        base: ast.expr = ast.Name(self.name, ast.Load())
        blocks, rest = list(items[: len(self.blocks)]), list(items[len(self.blocks) :])
        kept = [blocks[at] for at in self.kept if at < len(blocks)]
        if self.psum:
            for one in kept:
                base = ast.Subscript(base, one, ast.Load())
            return base, rest
        if not kept:
            return base, rest
        if not rest:
            return base, [ast.Slice(), *kept]
        return base, [rest[0], *kept, *rest[1:]]


def block_tensors(function: ast.FunctionDef, names: Names, facts: Facts) -> dict[str, BlockTensor]:
    """Return the tensors of a function that have block dimensions, as a dict by name."""
    found: dict[str, BlockTensor] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        value = node.value
        if not isinstance(value, ast.Call) or names.of(value.func) not in DECLARING:
            continue
        fact = facts.of(value)
        shape = value.args[0] if value.args else next((k.value for k in value.keywords if k.arg == "shape"), None)
        sizes = None if shape is None else _sizes(shape)
        if fact is None or fact.partition_axis < 1 or sizes is None:
            continue
        axis = fact.partition_axis
        found[node.targets[0].id] = BlockTensor(
            node.targets[0].id, node, sizes[:axis], sizes[axis], sizes[axis + 1 :], fact.space == "psum"
        )
    for tensor in found.values():
        _sink(tensor, function)
    return found | _handed(function, facts)


def _sizes(shape: ast.expr) -> list[ast.expr] | None:
    """Return the expressions of the sizes in a shape (a tuple, a list, or a sum of these); None for any other
    expression.
    """
    if isinstance(shape, ast.Tuple | ast.List):
        return shape.elts
    if isinstance(shape, ast.BinOp) and isinstance(shape.op, ast.Add):
        left, right = _sizes(shape.left), _sizes(shape.right)
        return None if left is None or right is None else [*left, *right]
    return None


def _handed(function: ast.FunctionDef, facts: Facts) -> dict[str, BlockTensor]:
    """Return the parameters of a function to which callers pass tensors with block dimensions, as a dict by name."""
    found = {}
    parameters = {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id not in parameters or node.id in found:
            continue
        fact = facts.of(node)
        if (
            fact is None
            or not fact.whole
            or fact.partition_axis < 1
            or any(one.partition_axis != fact.partition_axis for one in facts.visits(node))
        ):
            continue
        rank = len(facts.visits(node)[0].shape)
        size = [parse_expression(f"{node.id}.shape[{at}]") for at in range(rank)]
        axis = fact.partition_axis
        found[node.id] = BlockTensor(
            node.id, None, size[1 : axis + 1], size[0], size[axis + 1 :], fact.space == "psum", escapes=True
        )
    return found


def _sink(tensor: BlockTensor, function: ast.FunctionDef) -> None:
    """Record in ``tensor`` the innermost loop into whose body the tensor's declaration can move.

    In every use of the tensor, the variable of this loop, and of each loop between it and the present declaration,
    must be the index of one block dimension.
    """
    home, uses = _uses(tensor, function)
    tensor.escapes = any(len(use.blocks) < len(tensor.blocks) for use in uses)
    if not uses or tensor.escapes:
        return
    around = list(uses[0].loops)
    for use in uses[1:]:
        same = takewhile(lambda pair: pair[0] is pair[1], zip(around, use.loops, strict=False))
        around = [loop for loop, _ in same]
    dropped: dict[int, ast.For] = {}
    for loop in around[len(home) :]:
        place = next((at for at in range(len(tensor.blocks)) if at not in dropped and _is_index(loop, at, uses)), None)
        if place is None:
            break
        dropped[place] = loop
        tensor.inside = loop
    tensor.dropped = frozenset(dropped)


@dataclass(frozen=True)
class _Use:
    """One use of a tensor in a function."""

    loops: Sequence[ast.For]
    """The loops around the use, outermost first."""
    blocks: Sequence[ast.expr]
    """The indices of the block dimensions. There are fewer, or none, if the use does not index every block dimension.
    """


def _is_index(loop: ast.For, place: int, uses: Sequence[_Use]) -> bool:
    """Tell whether the variable of ``loop`` is the index of block dimension ``place`` in every use."""
    indices = (use.blocks[place] for use in uses)
    return isinstance(loop.target, ast.Name) and all(ast.unparse(one) == loop.target.id for one in indices)


def _uses(tensor: BlockTensor, function: ast.FunctionDef) -> tuple[list[ast.For], list[_Use]]:
    """Return (loops around the declaration of a tensor, uses of the tensor in the function)."""
    uses: list[_Use] = []
    home: list[ast.For] = []

    def walk(body: Sequence[ast.stmt], loops: list[ast.For]) -> None:
        for one in body:
            if one is tensor.declaration:
                home.extend(loops)
                continue
            inner = [*loops, one] if isinstance(one, ast.For) else loops
            for key, value in ast.iter_fields(one):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    walk(value, inner if key == "body" else loops)
                else:
                    for part in value if isinstance(value, list) else [value]:
                        if isinstance(part, ast.AST):
                            note(part, loops)

    def note(part: ast.AST, loops: list[ast.For]) -> None:
        indexed = set()
        for node in ast.walk(part):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == tensor.name:
                indexed.add(id(node.value))
                uses.append(_Use(loops, elements(node)[: len(tensor.blocks)]))
        names = (node for node in ast.walk(part) if isinstance(node, ast.Name) and node.id == tensor.name)
        uses.extend(_Use(loops, ()) for node in names if id(node) not in indexed)

    walk(function.body, [])
    return home, uses
