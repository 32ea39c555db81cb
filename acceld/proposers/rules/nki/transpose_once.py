"""Make transposes that a matrix product hides explicit, once, before the loop that repeats them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.building import filled_before, named_inside
from acceld.nki.source.nests import around, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import Access, Loop, Statement
from acceld.proposers.rules.records import Finding, Rule, Variant


@dataclass(frozen=True)
class _Hidden:
    statement: Statement
    operand: Access
    argument: ast.expr
    outermost: Loop
    """The outermost loop that repeats the same transposes."""
    indices: tuple[Loop, ...]
    """Loops inside it on which the operand depends."""
    rows: int
    depth: int
    repeats: int


class TransposeOnce(Rule):
    """Transpose ``x`` before the loop, for ``nl.matmul(x, y)`` with ``x`` the same in every iteration."""

    name = "transpose_once"
    reason = (
        "The tensor engine wants the contraction axis in the partitions; nl.matmul(x, y) without transpose_x inserts a "
        "transpose on the same engine and a copy out of PSUM for every call, also where x does not change."
    )
    source = "nki.language.matmul and AWS NKI performance guide: an inserted PE transpose of x when transpose_x=False"
    apis = frozenset({"nki_legacy"})
    change_class = "loop_order"
    relieves = ("tensor", "vector", "scalar")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every such product."""
        for statement in kernel.statements:
            hidden = _hidden(kernel, statement)
            if hidden is not None:
                operand, outer = kernel.text(hidden.argument), hidden.outermost.variable
                yield self.found(
                    statement.line,
                    partial(_hoisted, kernel, hidden),
                    Variant("hoist"),
                    precondition=f"{operand} does not depend on {outer} and is complete before its loop",
                    plan=f"Every iteration of {outer} transposes {operand} again inside nl.matmul. Transpose it once before "
                    f"the loop into SBUF and pass transpose_x=True: {hidden.repeats - 1} of {hidden.repeats} transposes "
                    "and their PSUM copies disappear.",
                    benefit=0.6,
                    gain_percent=(5.0, 30.0),
                )


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
    local = {result.name for s in outermost.statements() for result in s.results}
    used = {access.name for access in _operand_names(kernel, statement.args["x"])}
    if used & local or repeats < 2 or named_inside(statement.args["x"], outermost):
        return None
    return _Hidden(statement, operand, statement.args["x"], outermost, indices, shape[0], shape[1], repeats)


def _operand_names(kernel: KernelModule, node: ast.expr) -> list[Access]:
    access = kernel.access(node)
    return [] if access is None else [access]


def _hoisted(kernel: KernelModule, hidden: _Hidden, _: Variant) -> str:
    """Return the source with a transposed copy before the loop, and transpose_x=True in it."""
    language, isa = prefix(kernel, "language"), prefix(kernel, "isa")
    name = kernel.fresh(f"{hidden.operand.name}_t")
    trips = "".join(f"{loop.trips}, " for loop in hidden.indices)
    variables = "".join(f"{loop.variable}, " for loop in hidden.indices)
    rows, columns = f"{language}.arange({hidden.depth})[:, None]", f"{language}.arange({hidden.rows})[None, :]"
    place = f"{name}[{variables}{rows}, {columns}]"
    shape = f"({trips}{language}.par_dim({hidden.depth}), {hidden.rows})"
    dtype = f"{hidden.operand.name}.dtype"
    declaration = f"{name} = {language}.ndarray({shape}, dtype={dtype}, buffer={language}.sbuf)"
    transposed = f"{place} = {language}.copy({isa}.nc_transpose({kernel.text(hidden.argument)}))"
    edits = filled_before(kernel, hidden.outermost, hidden.indices, declaration, transposed)
    first, last = kernel.span(hidden.argument)
    edits.replace(first, last, place)
    flag = hidden.statement.args.get("transpose_x")
    if flag is not None:
        edits.replace(*kernel.span(flag), "True")
    else:
        edits.insert(kernel.span(_call(hidden.statement))[1] - 1, ", transpose_x=True")
    return edits.apply()


def _call(statement: Statement) -> ast.Call:
    node = statement.node
    value = node.value if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) else None
    if not isinstance(value, ast.Call):
        raise RuleRefused(f"line {statement.line}: this is not a call")
    return value


RULE = TransposeOnce()
