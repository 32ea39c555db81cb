"""Let each program compute several rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.devices.cuda.rules.reading import (
    FunctionNode,
    Launch,
    TritonModule,
    accesses,
    called,
    depending,
    mask,
    names,
    program_number,
    walk,
    whole,
)
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_FOLDS = ("tl.sum", "tl.max", "tl.min")


@dataclass(frozen=True)
class _Rows:
    """A kernel in which each program computes one row. ``name`` is the variable that holds the number of the row, which
    is the program's number.
    """

    launch: Launch
    row: ast.Assign
    name: str


class RowsPerProgram(Rule):
    """Let each program compute several rows instead of one. The row number becomes a column of row numbers."""

    name = "rows_per_program"
    reason = (
        "A short row leaves most threads of a program without 16 bytes to load, and starting the program costs "
        "more than its work. Several rows fill the vector loads, and share values that are the same for all rows."
    )
    source = "CUDA C++ best practices: coalesced access, 16-byte loads; Triton documentation: tl.arange, broadcasting"
    apis = frozenset({"triton"})
    change_class = "tile_width"

    def find(self, kernel: TritonModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each kernel whose programs compute one row each, on a one-dimensional grid, with
        one-dimensional arrays.
        """
        for name, function in kernel.kernels.items():
            rows = _rows(kernel, name, function)
            if rows is not None:
                yield self.found(
                    rows.row.lineno,
                    partial(_several, kernel, function, rows),
                    *(Variant(f"{count} rows", {"rows": count}) for count in (4, 16, 8, 32, 2)),
                    precondition="rows are independent: the row number is used only in the addresses of accesses, and "
                    "reductions run along the row",
                    plan=f"Each program of {name} works on one row. Give it several rows as a second axis, masked at the "
                    "end.",
                    benefit=0.6,
                    gain_percent=(0.0, 70.0),
                    key=name,
                )


def _several(kernel: TritonModule, function: FunctionNode, rows: _Rows, variant: Variant) -> str:
    """Return the source with arrays of two axes in place of one, a mask for the rows, and a smaller grid."""
    count, constant, tile = (kernel.fresh(wish) for wish in ("row_count", "ROWS", "row_tile"))
    edits = Edits(kernel.source)
    number = f"{tile} = {kernel.text(rows.row.value)}\n{kernel.indent(rows.row)}"
    whole_rows = f"{rows.name} = ({tile} * {constant} + tl.arange(0, {constant}))[:, None]"
    edits.replace(*kernel.span(rows.row), number + whole_rows)
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            _add_axis(kernel, edits, node, constant)
    placed = depending(function, {rows.name})
    for access in accesses(function):
        if names(access.args[0]) & placed:
            _limit(kernel, edits, access, f"{rows.name} < {count}")
    edits.insert(kernel.span(function.args.args[-1])[1], f", {count}, {constant}: tl.constexpr")
    extent, together = rows.launch.grid[0], variant.parameters["rows"]
    passed = f", {count}={kernel.text(extent)}, {constant}={together}"
    edits.insert(kernel.arguments_end(rows.launch.call), passed)
    edits.replace(*kernel.span(extent), f"triton.cdiv({kernel.text(extent)}, {together})")
    return edits.apply()


def _add_axis(kernel: TritonModule, edits: Edits, call: ast.Call, rows: str) -> None:
    """Record the edits that add a first axis of ``rows`` rows to the array that ``call`` returns."""
    if called(call) == "tl.arange":
        edits.insert(kernel.span(call)[1], "[None, :]")
    elif called(call) in ("tl.zeros", "tl.full"):
        shape = call.args[0]
        assert isinstance(shape, ast.Tuple | ast.List)
        edits.insert(kernel.span(shape.elts[0])[0], f"{rows}, ")
    elif called(call) in _FOLDS:
        axis = _axis(call)
        assert axis is not None
        edits.replace(*kernel.span(axis), "1")
        edits.insert(kernel.span(axis)[1], ", keep_dims=True")


def _limit(kernel: TritonModule, edits: Edits, access: ast.Call, limit: str) -> None:
    given = mask(access)
    if given is not None:
        edits.replace(*kernel.span(given), f"({kernel.text(given)}) & ({limit})")
        return
    edits.insert(
        kernel.arguments_end(access), f", mask={limit}" + (", other=0.0" if called(access) == "tl.load" else "")
    )


def _rows(kernel: TritonModule, name: str, function: FunctionNode) -> _Rows | None:
    launch = kernel.single_launch(name)
    if launch is None or len(launch.grid) != 1 or launch.call.keywords == []:
        return None
    assigned = [
        one
        for one in function.body
        if isinstance(one, ast.Assign) and program_number(one.value) == 0 and isinstance(one.targets[0], ast.Name)
    ]
    text = kernel.text(function)
    if len(assigned) != 1 or text.count("program_id(") != 1 or "num_programs(" in text:
        return None
    row = assigned[0]
    assert isinstance(row.targets[0], ast.Name)
    placed = depending(function, {row.targets[0].id})
    for statement in walk(function.body):
        if isinstance(statement, ast.If | ast.While | ast.Return):
            return None
        if isinstance(statement, ast.For) and names(statement.iter) & placed:
            return None
    if any(not _one_axis(node) for node in ast.walk(function)):
        return None
    for access in accesses(function):
        on_row = bool(names(access.args[0]) & placed)
        if called(access) == "tl.store" and not on_row:
            return None
        if called(access) == "tl.load" and on_row and mask(access) is None and access.keywords:
            return None
    return _Rows(launch, row, row.targets[0].id)


def _one_axis(node: ast.AST) -> bool:
    """Tell whether a node means the same for every row once arrays have an additional first axis, the rows."""
    if isinstance(node, ast.Subscript):
        return False
    if not isinstance(node, ast.Call):
        return True
    what = called(node)
    if what in ("tl.zeros", "tl.full"):
        return bool(node.args) and isinstance(node.args[0], ast.Tuple | ast.List) and len(node.args[0].elts) == 1
    if what in _FOLDS:
        axis = _axis(node)
        return axis is not None and whole(axis) == 0 and not any(one.arg == "keep_dims" for one in node.keywords)
    known = "tl.load tl.store tl.arange tl.sqrt tl.rsqrt tl.exp tl.exp2 tl.log tl.log2 tl.abs tl.maximum tl.minimum tl.where "
    return what in (known + "tl.program_id tl.sigmoid tl.constexpr range triton.jit").split() or what.endswith(".to")


def _axis(node: ast.Call) -> ast.expr | None:
    if len(node.args) > 1:
        return node.args[1]
    return next((one.value for one in node.keywords if one.arg == "axis"), None)


RULE = RowsPerProgram()
