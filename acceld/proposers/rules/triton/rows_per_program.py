"""Several rows a program instead of one."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from acceld.model import Profile
from acceld.proposers.rules.editing import Edits
from acceld.proposers.rules.records import RuleRefused, Site, Variant
from acceld.proposers.rules.triton.reading import (
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

_FOLDS = ("tl.sum", "tl.max", "tl.min")


@dataclass(frozen=True)
class _Rows:
    launch: Launch
    row: ast.Assign
    name: str


class RowsPerProgram:
    """A program for each row becomes a program for a few rows: the row number a column, everything else as it was."""

    name = "rows_per_program"
    reason = (
        "A short row leaves most of a program's threads without 16 bytes to load, and starting a program costs "
        "more than its work. Several rows fill the vector loads and share what rows have in common."
    )
    source = "CUDA C++ best practices: coalesced access, 16-byte loads; Triton documentation: tl.arange, broadcasting"
    apis = frozenset({"triton"})
    change_class = "tile_width"

    def sites(self, kernel: TritonModule, profile: Profile | None) -> Sequence[Site]:
        """Kernels on a grid of one axis whose program number is a row and whose arrays have one axis."""
        found = []
        for name, function in kernel.kernels.items():
            rows = _rows(kernel, name, function)
            if rows is not None:
                found.append(
                    Site(
                        self.name,
                        rows.row.lineno,
                        "rows do not meet: the row number only places accesses, and folds run along the row",
                        f"Each program of {name} works on one row. Give it several rows as a second axis, masked at the end.",
                        tuple(Variant(f"{count} rows", {"rows": count}) for count in (4, 16, 8, 32, 2)),
                        0.6,
                        (0.0, 70.0),
                        name,
                    )
                )
        return found

    def apply(self, kernel: TritonModule, site: Site, variant: Variant) -> str:
        """Two axes instead of one, a mask over rows, a smaller grid."""
        function = kernel.kernels.get(site.key)
        rows = _rows(kernel, site.key, function) if function is not None else None
        if rows is None or function is None:
            raise RuleRefused(f"{site.key} does not work on one row a program")
        count, constant = kernel.free_name("row_count"), kernel.free_name("ROWS")
        edits = Edits(kernel.source)
        tile = kernel.free_name("row_tile")
        number = f"{tile} = {kernel.text(rows.row.value)}\n{kernel.indent(rows.row)}"
        whole_rows = f"{rows.name} = ({tile} * {constant} + tl.arange(0, {constant}))[:, None]"
        edits.replace(*kernel.span(rows.row), number + whole_rows)
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            if called(node) == "tl.arange":
                edits.insert(kernel.span(node)[1], "[None, :]")
            elif called(node) in ("tl.zeros", "tl.full"):
                shape = node.args[0]
                assert isinstance(shape, ast.Tuple | ast.List)
                edits.insert(kernel.span(shape.elts[0])[0], f"{constant}, ")
            elif called(node) in _FOLDS:
                axis = _axis(node)
                assert axis is not None
                edits.replace(*kernel.span(axis), "1")
                edits.insert(kernel.span(axis)[1], ", keep_dims=True")
        placed = depending(function, {rows.name})
        for access in accesses(function):
            if names(access.args[0]) & placed:
                _limit(kernel, edits, access, f"{rows.name} < {count}")
        last = function.args.args[-1]
        edits.insert(kernel.span(last)[1], f", {count}, {constant}: tl.constexpr")
        extent, together = rows.launch.grid[0], variant.parameters["rows"]
        ends = [kernel.span(one)[1] for one in [*rows.launch.call.args, *rows.launch.call.keywords]]
        edits.insert(max(ends), f", {count}={kernel.text(extent)}, {constant}={together}")
        edits.replace(*kernel.span(extent), f"triton.cdiv({kernel.text(extent)}, {together})")
        return edits.apply()


def _limit(kernel: TritonModule, edits: Edits, access: ast.Call, limit: str) -> None:
    given = mask(access)
    if given is not None:
        edits.replace(*kernel.span(given), f"({kernel.text(given)}) & ({limit})")
        return
    end = max(kernel.span(one)[1] for one in [*access.args, *access.keywords])
    edits.insert(end, f", mask={limit}" + (", other=0.0" if called(access) == "tl.load" else ""))


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
    """Whether a node still means the same, row by row, when arrays get rows as a first axis."""
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
