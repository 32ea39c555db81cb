"""Transpose the two bfloat16 parts of a tile on the tensor engine, instead of the float32 tile.

Before, and after::

    nisa.nc_transpose(dst=turned, data=tile)                  nisa.tensor_copy(dst=tile_hi, src=tile)
    nisa.tensor_copy(dst=hi, src=turned)                      nisa.tensor_tensor(dst=tile_lo, data1=tile, data2=tile_hi, ...)
    nisa.tensor_tensor(dst=lo, data1=turned, data2=hi, ...)   nisa.nc_transpose(dst=turned_hi, data=tile_hi)
                                                              nisa.nc_transpose(dst=turned_lo, data=tile_lo)
                                                              nisa.tensor_copy(dst=hi, src=turned_hi)
                                                              nisa.tensor_copy(dst=lo, src=turned_lo)

:mod:`acceld.proposers.rules.nki.split_products` makes such parts of a transposed tile.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.building import changed, without_unused_buffers
from acceld.nki.source.matching import one_name, same_body, unchanged
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import COPIES, Access, Statement
from acceld.proposers.rules.nki.split_products import Parts, declare_parts, last_writers, make_parts, no_parts
from acceld.proposers.rules.profiles import line_share
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Turned:
    """A float32 tile that is transposed into PSUM, where bfloat16 parts of the transposed tile are made."""

    tile: str
    name: str
    """Name of the transposed tile in PSUM."""
    turns: tuple[Statement, ...]
    parts: tuple[tuple[Statement, Statement], ...]
    """Pairs of statements: the copy that makes a high part, and the subtraction that makes the low part."""
    other: Statement | None
    """A statement that reads the transposed tile and makes no part; None if there is none."""


class TurnParts(Rule):
    """Make the bfloat16 parts of a tile before a transpose of the tile, and transpose these parts."""

    name = "turn_parts"
    reason = (
        "The tensor engine transposes a float32 tile in three passes, and each bfloat16 part in one. The vector engine copies "
        "bfloat16 out of PSUM at twice the rate of float32, and engines that do not reach PSUM can make the parts in SBUF."
    )
    source = "nki.isa.nc_transpose: passes by dtype; nki.isa.tensor_copy: performance modes for 16-bit types"
    apis = frozenset({"nki"})
    only = "Legacy kernels leave most transposes to nl.matmul, whose operands have no transposed tile in PSUM."
    change_class = "mixed"
    relieves = ("tensor", "vector")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every transposed float32 tile of which bfloat16 parts are made, with the reason if the parts can not be
        made before the transpose.
        """
        for turn in kernel.statements:
            found = _turned(kernel, turn)
            if found is None:
                continue
            yield self.answer(
                turn.line,
                _obstacle(kernel, found),
                f"Transpose bfloat16 parts of {found.tile}",
                partial(_with_parts, kernel, found),
                Variant("two parts"),
                precondition=f"all that reads {found.name} makes its bfloat16 parts, and a transpose keeps each value",
                plan=f"Line {turn.line} transposes {found.tile} in float32, and parts in bfloat16 are made of the result. Make the "
                f"parts where {found.tile} is written, and transpose them: two passes of the tensor engine in place of three.",
                benefit=_benefit(found, profile),
                gain_percent=(-5.0, 15.0),
            )


def _benefit(found: _Turned, profile: Profile | None) -> float:
    """Return the share of the latency (0 to 1) that the rewrite may save.

    It is a third of the tensor engine's time for the transposes, and a third of the vector engine's time for the
    parts, which the vector engine then copies in bfloat16.
    """
    if profile is None:
        return 0.1
    turns, parts = {one.line for one in found.turns}, {one.line for pair in found.parts for one in pair}
    return max(0.01, (line_share(profile, turns, "tensor") + line_share(profile, parts, "vector")) / 3)


def _turned(kernel: KernelModule, turn: Statement) -> _Turned | None:
    """Return the transposed tile that a statement is the first to write; None if the statement transposes no float32 tile
    into PSUM, or if no bfloat16 parts are made of the result.
    """
    data = turn.reads.get("data")
    if turn.kind != "op" or turn.op != "nc_transpose" or data is None or turn.target is None:
        return None
    name, buffer = turn.made.name, kernel.buffers.get(turn.made.name)
    if buffer is None or buffer.space != "psum" or kernel.space_of(data.name) != "sbuf":
        return None
    if kernel.dtype_of(data.name) != "float32" or kernel.dtype_of(name) != "float32":
        return None
    turns = kernel.writers(name)
    if turn is not turns[0]:
        return None
    readers = kernel.readers(name)
    pairs = [
        (copy, rest)
        for copy in readers
        for rest in readers
        if _is_high(kernel, copy, name) and _is_low(kernel, rest, copy, name)
    ]
    paired = {id(one) for pair in pairs for one in pair}
    if not pairs:
        return None
    other = next((one for one in readers if id(one) not in paired), None)
    return _Turned(data.name, name, tuple(turns), tuple(pairs), other)


def _is_high(kernel: KernelModule, copy: Statement, name: str) -> bool:
    """Return True if a statement copies a part of the tile ``name`` to a bfloat16 tile."""
    source = copy.reads.get("src")
    if copy.kind != "op" or copy.op not in COPIES or source is None or source.name != name:
        return False
    return kernel.dtype_of(copy.made.name) == "bfloat16"


def _is_low(kernel: KernelModule, rest: Statement, copy: Statement, name: str) -> bool:
    """Return True if a statement subtracts the result of ``copy`` from the tile ``name``, and writes a bfloat16 tile."""
    first, second = rest.reads.get("data1"), rest.reads.get("data2")
    if rest.kind != "op" or rest.op != "tensor_tensor" or kernel.opname(rest.args.get("op")) != "subtract":
        return False
    if first is None or second is None or first.name != name or kernel.dtype_of(rest.made.name) != "bfloat16":
        return False
    return first.same_as(copy.reads["src"]) and second.same_as(copy.made)


def _obstacle(kernel: KernelModule, found: _Turned) -> str:
    """Return the reason why the parts can not be made before the transpose; empty if they can."""
    where = f"line {found.turns[0].line}"
    problem = one_name(kernel, [found.tile, found.name])
    if problem:
        return problem
    if found.other is not None:
        return f"line {found.other.line} also reads {found.name}: transpose the tile again for that line"
    for turn in found.turns:
        data = turn.reads.get("data")
        if turn.op != "nc_transpose" or data is None or data.name != found.tile or turn.args.keys() - {"dst", "data"}:
            return f"line {turn.line} also writes {found.name}, or transposes with an option: give that line a tile of its own"
    for copy, rest in found.parts:
        made = [copy.made.name, found.name]
        problem = same_body(copy, rest) or unchanged(kernel, made, copy, rest) or one_name(kernel, made)
        if problem:
            return problem
    problem = no_parts(kernel, found.turns[0], found.tile)
    if problem or found.tile in kernel.buffers:
        return problem
    return f"{where}: {found.tile} is not declared: declare it in SBUF"


def _with_parts(kernel: KernelModule, found: _Turned, _: Variant) -> str:
    """Return the source in which both parts of the tile are made where the tile is written, and are then transposed."""
    edits, language, isa = Edits(kernel.source), prefix(kernel, "language"), prefix(kernel, "isa")
    taken: set[str] = set()
    parts: dict[str, Parts] = {}
    for name in (found.tile, found.name):
        parts[name] = Parts(kernel.fresh(f"{name}_hi", taken), kernel.fresh(f"{name}_lo", taken))
        taken |= {parts[name].hi, parts[name].lo}
        declare_parts(kernel, name, parts[name], language, edits, "")
    for turn in found.turns:
        both = [turn.reads["data"], turn.made]
        lines = [
            changed(kernel, turn.node, {_name(one): parts[one.name].of(part) for one in both}) for part in ("hi", "lo")
        ]
        edits.replace(turn.start, turn.end, f"\n{turn.indent}".join(lines))
    for copy, rest in found.parts:
        source = copy.reads["src"]
        edits.replace(*kernel.span(_name(source)), parts[found.name].hi)
        low = changed(kernel, source.node, {_name(source): parts[found.name].lo})
        edits.replace(rest.start, rest.end, f"{isa}.tensor_copy(dst={kernel.text(rest.made.node)}, src={low})")
    only_turns = all(one in found.turns for one in kernel.readers(found.tile))
    for writer in last_writers(kernel, found.tile, found.turns):
        make_parts(kernel, writer, parts[found.tile], language, edits, "", moved=only_turns)
    return without_unused_buffers(edits.apply(), kernel)


def _name(access: Access) -> ast.expr:
    """Return the node of a tile's name in an access."""
    return access.node.value if isinstance(access.node, ast.Subscript) else access.node


RULE = TurnParts()
