"""Transposes that a matrix product hides are made explicit, once, before the loop that repeats them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from acceld.model import Profile
from acceld.proposers.rules.building import STEP, fresh, header, named_inside, prefix
from acceld.proposers.rules.editing import Edits
from acceld.proposers.rules.nests import around, inside
from acceld.proposers.rules.reading import KernelModule
from acceld.proposers.rules.records import RuleRefused, Site, Variant
from acceld.proposers.rules.syntax import Access, Loop, Statement


@dataclass(frozen=True)
class _Hidden:
    statement: Statement
    operand: Access
    argument: cst.BaseExpression
    outermost: Loop
    """The outermost loop that repeats the same transposes."""
    indices: tuple[Loop, ...]
    """Loops inside it that the operand depends on."""
    rows: int
    depth: int
    repeats: int


class TransposeOnce:
    """``nl.matmul(x, y)`` with ``x`` the same in every iteration of a loop: transpose ``x`` before the loop."""

    name = "transpose_once"
    reason = (
        "The tensor engine wants the contraction axis in the partitions; nl.matmul(x, y) without transpose_x inserts a "
        "transpose on the same engine and a copy out of PSUM for every call, also where x does not change."
    )
    source = "nki.language.matmul and AWS NKI performance guide: an inserted PE transpose of x when transpose_x=False"
    apis = frozenset({"nki_legacy"})
    change_class = "loop_order"

    def sites(self, kernel: KernelModule, profile: Profile | None) -> Sequence[Site]:
        """One site for each such product."""
        found = []
        for statement in kernel.statements:
            hidden = _hidden(kernel, statement)
            if hidden is None:
                continue
            operand = kernel.text(hidden.argument)
            found.append(
                Site(
                    self.name,
                    statement.line,
                    f"{operand} does not depend on {hidden.outermost.variable} and is complete before its loop",
                    f"Every iteration of {hidden.outermost.variable} transposes {operand} again inside nl.matmul. "
                    f"Transpose it once before the loop into SBUF and pass transpose_x=True: {hidden.repeats - 1} of "
                    f"{hidden.repeats} transposes and their PSUM copies disappear.",
                    (Variant("hoist"),),
                    0.6,
                    (5.0, 30.0),
                )
            )
        return found

    def apply(self, kernel: KernelModule, site: Site, variant: Variant) -> str:
        """A transposed copy before the loop, and transpose_x=True in it."""
        for statement in kernel.statements:
            hidden = _hidden(kernel, statement) if statement.line == site.line else None
            if hidden is not None:
                return _apply(kernel, hidden)
        raise RuleRefused(f"line {site.line}: no repeated hidden transpose")


def _hidden(kernel: KernelModule, statement: Statement) -> _Hidden | None:
    if statement.kind != "op" or statement.op != "matmul" or kernel.mask(statement):
        return None
    if kernel.text_of(statement, "transpose_x") not in ("", "False") or "x" not in statement.reads:
        return None
    operand = statement.reads["x"]
    shape = kernel.extents(operand)
    names = operand.variables
    if shape is None or len(shape) != 2 or max(shape) > 128 or names is None:
        return None
    loops = around(statement)
    writers = kernel.writers(operand.name)
    outermost: Loop | None = None
    for loop in loops:  # innermost first
        if any(inside(writer, loop) for writer in writers):
            break
        if loop.variable not in names and loop.kind == "affine_range" and loop.trips:
            outermost = loop
    if outermost is None or not writers or any(writer.start > outermost.start for writer in writers):
        return None
    if operand.name in kernel.ambiguous or any(writer.kind != "op" for writer in writers):
        return None
    inner = loops[: loops.index(outermost)]
    indices = tuple(reversed([loop for loop in inner if loop.variable in names]))
    repeats = outermost.trips or 1
    for loop in inner:
        if loop.variable not in names:
            repeats *= loop.trips or 1
    if any(loop.trips is None or loop.kind not in ("affine_range", "sequential_range") for loop in indices):
        return None
    local = {s.target.name for s in outermost.statements() if s.target is not None}
    used = {access.name for access in _operand_names(kernel, statement.args["x"])}
    if used & local or repeats < 2 or named_inside(statement.args["x"], outermost):
        return None
    return _Hidden(statement, operand, statement.args["x"], outermost, indices, shape[0], shape[1], repeats)


def _operand_names(kernel: KernelModule, node: cst.BaseExpression) -> list[Access]:
    access = kernel.access(node)
    return [] if access is None else [access]


def _apply(kernel: KernelModule, hidden: _Hidden) -> str:
    language, isa = prefix(kernel, "language"), prefix(kernel, "isa")
    name = fresh(kernel, f"{hidden.operand.name}_t")
    trips = "".join(f"{loop.trips}, " for loop in hidden.indices)
    variables = "".join(f"{loop.variable}, " for loop in hidden.indices)
    rows, columns = f"{language}.arange({hidden.depth})[:, None]", f"{language}.arange({hidden.rows})[None, :]"
    place = f"{name}[{variables}{rows}, {columns}]"
    indent = hidden.outermost.indent
    shape = f"({trips}{language}.par_dim({hidden.depth}), {hidden.rows})"
    dtype = f"{hidden.operand.name}.dtype"
    lines = [f"{indent}{name} = {language}.ndarray({shape}, dtype={dtype}, buffer={language}.sbuf)"]
    deeper = indent
    for loop in hidden.indices:
        lines.append(f"{deeper}{header(kernel, loop)}")
        deeper += STEP
    lines.append(f"{deeper}{place} = {language}.copy({isa}.nc_transpose({kernel.text(hidden.argument)}))")
    edits = Edits(kernel.source)
    start = kernel.source.rfind("\n", 0, hidden.outermost.start) + 1
    edits.insert(start, "\n".join(lines) + "\n")
    first, last = kernel.span(hidden.argument)
    edits.replace(first, last, place)
    _, end = kernel.span(_call(hidden.statement))
    flag = hidden.statement.args.get("transpose_x")
    if flag is not None:
        edits.replace(*kernel.span(flag), "True")
    else:
        edits.insert(end - 1, ", transpose_x=True")
    return edits.apply()


def _call(statement: Statement) -> cst.Call:
    small = statement.small
    value = small.value if isinstance(small, cst.Assign | cst.AugAssign | cst.Expr) else None
    if not isinstance(value, cst.Call):
        raise RuleRefused(f"line {statement.line}: this is no call")
    return value


RULE = TransposeOnce()
