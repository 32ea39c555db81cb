"""Load a row once and keep it in registers, in kernels that load the same row twice, piece by piece."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.devices.cuda.rules.block_sizes import masked_by
from acceld.devices.cuda.rules.reading import (
    FunctionNode,
    Launch,
    TritonModule,
    accesses,
    called,
    calls,
    constants,
    names,
    parameters,
    walk,
    whole,
)
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Row:
    """The loops of a kernel that all run over the same row, piece by piece."""

    launch: Launch
    loops: tuple[ast.For, ...]
    constant: str
    extent: str
    """Length of the row, as the expression that the launch passes."""


class KeepRow(Rule):
    """Make a single piece as long as the row. This removes the loops over pieces, and the repeated loads."""

    name = "keep_row"
    reason = (
        "A row of a few thousand elements fits into the registers of one program: read once, it costs half the "
        "bytes of a second pass, and every load is in flight at the same time."
    )
    source = "Triton tutorial 02, fused softmax: rows that fit into on-chip memory"
    apis = frozenset({"triton"})
    change_class = "fusion"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each kernel whose loops all run over the same row, divided into the same pieces."""
        for name, function in kernel.kernels.items():
            row = _row(kernel, name, function)
            if row is None:
                continue
            lines = ", ".join(str(loop.lineno) for loop in row.loops)
            repeated = sum(len(_prefix(row.loops[0], loop)) for loop in row.loops[1:])
            yield self.found(
                row.loops[0].lineno,
                partial(_kept, kernel, row),
                *(Variant(f"{warps} warps", {"num_warps": warps}) for warps in (8, 4, 16, 2)),
                precondition="every access in the loops is masked by the row's length, so one piece that holds the row is "
                "right",
                plan=f"The loops in lines {lines} walk over one row in pieces of {row.constant}. Make the piece as long as "
                f"the row: the loops disappear, and {repeated} statements that repeat earlier statements disappear with them.",
                benefit=0.8 if repeated else 0.3,
                gain_percent=(10.0, 50.0) if repeated else (0.0, 20.0),
                key=name,
            )


def _kept(kernel: TritonModule, row: _Row, variant: Variant) -> str:
    """Return the source in which each loop is replaced by its body, and the launch passes the new length of a piece."""
    edits = Edits(kernel.source)
    for number, loop in enumerate(row.loops):
        indent = kernel.indent(loop)
        body = loop.body if number == 0 else loop.body[len(_prefix(row.loops[0], loop)) :]
        text = textwrap.indent(textwrap.dedent(kernel.block(body)), indent) if body else ""
        assert isinstance(loop.target, ast.Name)
        start = f"{indent}{loop.target.id} = 0\n" if number == 0 else ""
        edits.replace(*kernel.lines_span([loop]), start + text)
    given = row.launch.keyword(row.constant)
    assert given is not None
    edits.replace(*kernel.span(given.value), f"triton.next_power_of_2({row.extent})")
    warps = row.launch.keyword("num_warps")
    if warps is not None:
        edits.replace(*kernel.span(warps.value), str(variant.parameters["num_warps"]))
    return edits.apply()


def _row(kernel: TritonModule, name: str, function: FunctionNode) -> _Row | None:
    launch = kernel.single_launch(name)
    loops = [one for one in walk(function.body) if isinstance(one, ast.For)]
    if launch is None or not loops or any(loop not in function.body for loop in loops):
        return None
    first = loops[0]
    header = first.iter
    if not (isinstance(header, ast.Call) and called(header) == "range" and len(header.args) == 3):
        return None
    start, stop, step = header.args
    if whole(start) != 0 or not isinstance(stop, ast.Name) or not isinstance(step, ast.Name):
        return None
    headers = {(kernel.text(loop.target), kernel.text(loop.iter)) for loop in loops}
    if len(headers) != 1 or not isinstance(first.target, ast.Name) or step.id not in constants(function):
        return None
    if not masked_by(function, step.id) or calls(function, "tl.dot"):
        return None
    given, place = launch.keyword(step.id), parameters(function).index(stop.id)
    if given is None or whole(given.value) is None or place >= len(launch.call.args):
        return None
    if _aliased(function, launch):
        return None
    return _Row(launch, tuple(loops), step.id, kernel.text(launch.call.args[place]))


def _aliased(function: FunctionNode, launch: Launch) -> bool:
    """Tell whether the kernel may load from an array to which it also stores."""
    given = {name: ast.dump(value) for name, value in zip(parameters(function), launch.call.args, strict=False)}
    stored: set[str] = set()
    loaded: set[str] = set()
    for access in accesses(function):
        array = _array(access.args[0])
        (stored if called(access) == "tl.store" else loaded).add(given.get(array, array))
    return bool(stored & loaded)


def _array(pointer: ast.expr) -> str:
    """Return the name to which a pointer expression adds its offsets, such as ``x_ptr`` for ``x_ptr + row * n``; empty
    if there is no such name.
    """
    while isinstance(pointer, ast.BinOp):
        pointer = pointer.left
    return pointer.id if isinstance(pointer, ast.Name) else ""


def _prefix(first: ast.For, later: ast.For) -> list[ast.stmt]:
    """Return the first statements that ``first`` and ``later`` have in common, so that ``later`` need not repeat
    them.

    A statement is left out if ``first`` changes one of its names afterwards.
    """
    same = 0
    for one, other in zip(first.body, later.body, strict=False):
        if ast.dump(one) != ast.dump(other):
            break
        same += 1
    while same:
        made = {name for statement in first.body[:same] for name in _targets(statement)}
        changed = {name for statement in first.body[same:] for name in _targets(statement)}
        if not made & changed:
            break
        same -= 1
    return later.body[:same]


def _targets(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Assign):
        return {name for target in statement.targets for name in names(target)}
    return names(statement.target) if isinstance(statement, ast.AugAssign | ast.AnnAssign) else set()


RULE = KeepRow()
