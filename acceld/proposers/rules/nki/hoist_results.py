"""Compute tiles once before a loop if all its iterations compute the same tiles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from math import prod

from acceld.model import Profile
from acceld.nki.source.building import changed, written
from acceld.nki.source.effects import understood
from acceld.nki.source.nests import around, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Loop, Statement, names_in
from acceld.proposers.rules.nki.hoist_loads import LARGEST_BYTES, Repeated, kept, kept_bytes, plain_reads
from acceld.proposers.rules.records import Place, Rule, Variant

_PURE = frozenset("activation tensor_copy tensor_scalar tensor_tensor scalar_tensor_tensor reciprocal".split())
"""Instructions whose result depends on their operands alone, if they do not reduce."""
_WITH_STATE = frozenset("reduce_op reduce_res reduce_cmd mask name".split())
"""Arguments with which an instruction does more than write its result."""


class HoistResults(Rule):
    """Move an element-wise instruction before a loop on which its operands do not depend. The results stay in SBUF."""

    name = "hoist_results"
    reason = (
        "An instruction in a nest of loops runs again for each iteration of a loop that changes none of its operands. "
        "Nobody merges these runs: what the kernel writes is what the engine does."
    )
    source = "NKI migration guide: loops are unrolled as written; AWS NKI performance guide: data reuse"
    apis = frozenset({"nki"})
    only = "Legacy calls return new tiles instead of writing tiles that the kernel declares."
    change_class = "loop_order"
    relieves = ("vector", "scalar", "gpsimd")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every instruction that each iteration of a loop repeats and that can move before the loop."""
        for statement in kernel.statements:
            repeated = _repeated(kernel, statement)
            if repeated is None:
                continue
            tiles = prod(loop.trips or 1 for loop in repeated.indices)
            name, outer = statement.made.name, repeated.loop.variable
            yield self.found(
                statement.line,
                partial(_hoisted, kernel, repeated),
                Variant("keep"),
                precondition=f"the loop over {outer} writes no operand of {name}, binds no name that the instruction uses, and the "
                f"{tiles} tiles fit into three quarters of SBUF",
                plan=f"Every iteration of {outer} computes {name} again. Compute its {tiles} tiles once before the loop and "
                f"keep them: {repeated.repeats - 1} of {repeated.repeats} runs disappear.",
                benefit=0.2,
                gain_percent=(0.0, 30.0),
            )


def _repeated(kernel: KernelModule, statement: Statement) -> Repeated | None:
    """Return the instruction with the outermost loop that repeats it. Return None if no loop repeats it, or if it can
    not move before that loop.
    """
    if statement.kind != "op" or statement.op not in _PURE or statement.augmented or statement.second is not None:
        return None
    target = statement.target
    if target is None or _WITH_STATE & statement.args.keys() or kernel.ambiguous & {target.name}:
        return None
    name, declaration = target.name, kernel.declaration(target.name)
    if declaration is None or not _is_own(kernel, statement, declaration):
        return None
    shape = kernel.buffers[name].shape
    reads = plain_reads(kernel, name, 2)
    readers = [reader for reader in kernel.readers(name) if reader is not statement]
    if len(reads) != sum(a.name == name for reader in readers for a in reader.mentions) or not readers:
        return None
    used = {one.id for one in names_in(statement.node)} - {name}
    best: Repeated | None = None
    loops = around(statement)
    for number, loop in enumerate(loops):
        inner = loops[:number]
        if loop.variable in used:
            continue
        if loop.trips is None or loop.trips < 2 or any(one.trips is None for one in inner):
            break
        indices = tuple(reversed([one for one in inner if one.variable in used]))
        if not _stays_same(kernel, statement, declaration, loop, indices):
            break
        here = set(
            loops[: number + 1]
        )  # each reader must run after the instruction, in the same iteration of these loops
        if not all(one.kind == "op" and one.start > statement.start and here <= set(around(one)) for one in readers):
            break
        if kept_bytes(indices, shape) > LARGEST_BYTES:
            break
        repeats = prod(one.trips or 1 for one in (loop, *inner) if one.variable not in used)
        whole = tuple(extent or 0 for extent in shape)
        best = Repeated(statement, declaration, loop, indices, whole, reads, repeats)
    return best


def _is_own(kernel: KernelModule, statement: Statement, declaration: Statement) -> bool:
    """Tell whether the tile belongs to the instruction: no other instruction writes the tile, this one writes all of
    it, and the tile is declared earlier in the same loop body.
    """
    name, target = statement.made.name, statement.made
    buffer = kernel.buffers[name]
    if buffer.space != "sbuf" or len(buffer.shape) != 2 or None in buffer.shape or buffer.partition_axis != 0:
        return False
    if declaration.op not in ("", "ndarray") or not buffer.is_written_out or "address" in declaration.args:
        return False
    dims = target.dims
    whole = dims is None or (
        len(dims) == 2 and all(dim.covers(extent) for dim, extent in zip(dims, buffer.shape, strict=True))
    )
    before = declaration.parent is statement.parent and declaration.start < statement.start
    return whole and before and kernel.writers(name) == [statement] and statement not in kernel.readers(name)


def _stays_same(
    kernel: KernelModule, statement: Statement, declaration: Statement, loop: Loop, indices: tuple[Loop, ...]
) -> bool:
    """Tell whether an instruction gives the same results at any time in ``loop``, except for the variables of ``indices``.

    Its operands are tiles on chip that are declared before the loop, and that nothing in the loop writes. All other names
    that it uses keep their values in the loop.
    """
    if understood([loop], names=True):
        return False
    changes = written([loop])
    for access in statement.mentions:
        buffer = kernel.buffers.get(access.name)
        if buffer is None or buffer.space not in ("sbuf", "psum") or inside(buffer.declaration, loop):
            return False
        if access.name in changes or access.name in kernel.ambiguous or access.variables is None:
            return False
    variables = {one.variable for one in indices}
    nodes = [statement.node, declaration.node, *(one.node.iter for one in indices)]
    used = {one.id for node in nodes for one in names_in(node)}
    bound = {
        one.id for one in ast.walk(loop.node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
    } - {statement.made.name}
    ranges = {one.id for index in indices for one in names_in(index.node.iter)}
    return not (used & bound) - variables and not ranges & variables and _are_own(kernel, loop, indices)


def _are_own(kernel: KernelModule, loop: Loop, indices: tuple[Loop, ...]) -> bool:
    """Tell whether copies of the loops ``indices`` before ``loop`` would leave every other value unchanged.

    That is so if only loops over the variables of ``indices`` bind or use these variables, and if none of these loops
    is around ``loop`` or inside another loop over the same variable.
    """
    variables = {one.variable for one in indices}
    if len(variables) < len(indices):
        return False
    over = [one for one in kernel.loops if one.variable in variables]
    if any(one is loop or inside(loop, one) for one in over):
        return False
    if any(inside(one, other) and one.variable == other.variable for one in over for other in over):
        return False
    inner = {node for one in over for node in ast.walk(one.node) if isinstance(node, ast.Name)}
    names = [one for one in ast.walk(kernel.function) if isinstance(one, ast.Name) and one.id in variables]
    bound = [one for one in names if not isinstance(one.ctx, ast.Load)]
    return len(bound) == len(over) and all(one in inner for one in names)


def _hoisted(kernel: KernelModule, repeated: Repeated, _: Variant) -> str:
    """Return the source in which the tiles are computed once before the loop and kept, and the loop reads the kept tiles."""
    return kept(
        kernel,
        repeated,
        lambda place: changed(kernel, repeated.made.node, {repeated.made.made.node: place}),
    )


RULE = HoistResults()
