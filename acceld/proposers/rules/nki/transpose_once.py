"""Make transposes once, before the loop that repeats them: those inside a matrix product, or those of loaded blocks.

In the current API loaded rows are transposed block by block for a product. The transposed rows are kept in HBM. Before,
and after::

    for n in nl.affine_range(24):                         for row in nl.affine_range(32):
        for row in nl.affine_range(32):                       load(x_tile, x[row])
            load(x_tile, x[row])                              for k in nl.affine_range(40):
            for k in nl.affine_range(40):                         turn(x_t_made[0:128, k, 0:128], x_tile[0:128, k, 0:128])
                turn(x_t, x_tile[0:128, k, 0:128])            store(x_t_once[row], x_t_made)
                product(x_t, w_tile[0:128, k, 0:512])     for n in nl.affine_range(24):
                                                              for row in nl.affine_range(32):
                                                                  load(x_t_kept, x_t_once[row])
                                                                  for k in nl.affine_range(40):
                                                                      product(x_t_kept[0:128, k, 0:128], ...)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.building import STEP, emitted, filled_before, named_inside
from acceld.nki.source.nests import all_accesses, around, first_line, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import Access, Loop, Statement
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Hidden:
    statement: Statement
    operand: Access
    argument: ast.expr
    outermost: Loop
    """The outermost loop that repeats the same transposes."""
    indices: tuple[Loop, ...]
    """Loops inside ``outermost`` on which the operand depends."""
    rows: int
    depth: int
    repeats: int


class TransposeOnce(Rule):
    """Transpose an operand once before a loop, if products in every iteration use the same operand."""

    name = "transpose_once"
    reason = (
        "The tensor engine needs the contraction axis in the partitions; nl.matmul(x, y) without transpose_x inserts a "
        "transpose on the same engine and a copy out of PSUM for every call, even if x does not change. In the current "
        "API the kernel itself contains the transpose and the copy. A transposed tile is as large as the original, and "
        "is loaded as fast."
    )
    source = "nki.language.matmul and AWS NKI performance guide: an inserted PE transpose of x when transpose_x=False"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"
    relieves = ("tensor", "vector", "scalar")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every product that repeats a transpose, and in the current API every repeated transpose of loaded
        blocks, with the reason if the transpose has to stay.
        """
        for turn in kernel.statements if kernel.api == "nki" else ():
            found = _turned(kernel, turn)
            if found is None:
                continue
            name = kernel.text(turn.reads["data"].node)
            if isinstance(found, str):
                yield self.refused(
                    turn.line, found, f"Transpose {name} once, before the loop that transposes it in every iteration"
                )
                continue
            repeats = found.outermost.variable
            yield self.found(
                turn.line,
                partial(_turned_once, kernel, found),
                Variant("once"),
                precondition=f"what line {found.load.line} loads does not depend on {repeats}, nothing writes it, and only "
                f"products of loop {found.blocks.variable} read the transposed blocks",
                plan=f"Every iteration of {repeats} loads and transposes {name} again. Transpose it once before the loop, keep the "
                f"result in HBM, and load that: transposes and their PSUM copies disappear from {repeats}.",
                benefit=0.5,
                gain_percent=(5.0, 40.0),
            )
        for statement in kernel.statements if kernel.api != "nki" else ():
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
    for loop in loops:  # loops are listed from the innermost outwards
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
    if operand.name in local or repeats < 2 or named_inside(statement.args["x"], outermost):
        return None
    return _Hidden(statement, operand, statement.args["x"], outermost, indices, shape[0], shape[1], repeats)


def _hoisted(kernel: KernelModule, hidden: _Hidden, _: Variant) -> str:
    """Return the source with a transposed copy of the operand before the loop, and ``transpose_x=True`` in the product."""
    language, isa = prefix(kernel, "language"), prefix(kernel, "isa")
    name = kernel.fresh(f"{hidden.operand.name}_t")
    trips = "".join(f"{kernel.count(loop)}, " for loop in hidden.indices)
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
        raise RuleRefused(
            f"line {statement.line}: the product is part of a larger expression: assign it to a name in a statement of its own"
        )
    return value


@dataclass(frozen=True)
class _Turned:
    """Blocks of a loaded tile that are transposed one by one, each for the products of its iteration."""

    load: Statement
    turn: Statement
    copy: Statement
    blocks: Loop
    """The loop over blocks."""
    outermost: Loop
    """The outermost loop that repeats load, transposes and copies."""
    indices: tuple[Loop, ...]
    """Loops inside ``outermost`` on which the loaded tile depends."""


def _turned(kernel: KernelModule, turn: Statement) -> _Turned | str | None:
    """Return the blocks that ``turn`` transposes, one in each iteration.

    Return the reason, as text, if the blocks can not be transposed before the loop. Return None if ``turn`` transposes
    no loaded tile, or if no loop repeats its work.
    """
    blocks, data, writers = turn.parent, turn.reads.get("data"), []
    if turn.kind == "op" and turn.op == "nc_transpose" and data is not None and blocks is not None:
        writers = kernel.writers(data.name)
    if len(writers) != 1 or writers[0].op != "dma_copy" or writers[0].parent is not (blocks.parent if blocks else None):
        return None
    assert blocks is not None
    load, copies = writers[0], kernel.readers(turn.made.name)
    source = load.reads.get("src")
    names = source.variables if source is not None and kernel.is_tensor(source.name) else None
    loops = [blocks, *around(blocks)]
    repeats = [loop for loop in loops if names is not None and loop.variable not in {*names, blocks.variable}]
    if names is None or not repeats:
        return None
    outermost = repeats[-1]
    within = loops[1 : loops.index(outermost) + 1]
    if any(loop.kind != "affine_range" or loop.trips is None for loop in (blocks, *within)):
        return (
            f"line {outermost.line}: a loop is not parallel, or its length is not known: use affine_range with a number"
        )
    copied = len(copies) == 1 and copies[0].op == "tensor_copy" and copies[0].parent is blocks
    if not copied or copies[0].made.dims is not None:
        return f"line {turn.line}: the transposed block in PSUM is used by more than one copy: copy it once, and use the copy"
    indices = tuple(reversed([one for one in within if one.variable in names]))
    found = _Turned(load, turn, copies[0], blocks, outermost, indices)
    return _obstacle(kernel, found) or found


def _obstacle(kernel: KernelModule, found: _Turned) -> str:
    """Return the reason why load, transposes and copies can not move before the outermost loop; empty if they can."""
    load, turn, copy, blocks, outermost = found.load, found.turn, found.copy, found.blocks, found.outermost
    data, tile, where = turn.reads["data"], copy.made.name, f"line {turn.line}:"
    declared = {name: kernel.declaration(name) for name in (data.name, tile, turn.made.name)}
    moving = [load, turn, copy, *(one for one in declared.values() if one is not None)]
    if load.start > blocks.start:
        return (
            f"line {load.line} loads after loop {blocks.variable}, which uses {data.name}: "
            f"move the load before loop {blocks.variable}"
        )
    if any(named_inside(one.node, outermost) for one in moving):
        return (
            f"{where} an index uses a name that is assigned inside loop {outermost.variable}: "
            "write the expression in place of the name"
        )
    shape = kernel.extents(data)
    turned = shape is not None and len(shape) == 2 and kernel.extents(copy.made) == shape[::-1]
    if not turned or blocks.variable not in (data.variables or ()):
        return (
            f"{where} {data.name} is not transposed in blocks, one block in each iteration of {blocks.variable}: "
            "transpose block by block"
        )
    for name, declaration in declared.items():
        known = all_accesses(kernel, name) is not None and name not in kernel.ambiguous
        if declaration is None or not inside(declaration, outermost) or not known:
            return f"{where} {name} is declared outside of loop {outermost.variable}, or has another name: declare it inside"
    others = [one.line for one in kernel.readers(data.name) if one is not turn]
    others += [one.line for one in kernel.readers(tile) if not inside(one, blocks)]
    alone = kernel.writers(tile) == [copy] and kernel.writers(turn.made.name) == [turn]
    if others or not alone or kernel.writers(load.reads["src"].name):
        return f"line {[*others, turn.line][0]}: {data.name} or {tile} is also used here: load it again for this use"
    return ""


def _turned_once(kernel: KernelModule, found: _Turned, _: Variant) -> str:
    """Return the source in which blocks are transposed before the outermost loop and loaded, transposed, inside it."""
    language, tile = prefix(kernel, "language"), found.copy.made.name
    made, once, kept = (kernel.fresh(f"{tile}_{word}") for word in ("made", "once", "kept"))
    rows, columns = kernel.extents(found.copy.made) or (0, 0)
    count, dtype = kernel.count(found.blocks), kernel.declared_dtype(tile)
    extents = f"{rows}, {count}, {columns}"
    places = [loop.variable for loop in found.indices]
    stored = f"{once}[{', '.join([*places, f'0:{rows}', f'0:{count}', f'0:{columns}'])}]"
    block = f"[0:{rows}, {found.blocks.variable}, 0:{columns}]"
    declared = [kernel.buffers[one.made.name].declaration for one in (found.load, found.turn)]
    moving = {*declared, found.load, found.turn, found.copy}
    flat = {loop.variable for loop in (found.outermost, *around(found.load)) if loop not in found.indices}
    whole = "".join(f"{kernel.count(loop)}, " for loop in found.indices)
    indent = found.outermost.indent
    body = indent + STEP * len(found.indices)
    texts: dict[ast.AST, str] = {found.copy.made.node: made + block}
    work = emitted(kernel, [found.outermost], indent, keep=moving, flat=flat, texts=texts)
    first = f"{body}{made} = {language}.ndarray(({extents}), dtype={dtype}, buffer={language}.sbuf)\n"
    store = f"{body}{prefix(kernel, 'isa')}.dma_copy(dst={stored}, src={made})\n"
    edits = Edits(kernel.source)
    edits.insert(
        first_line(kernel, found.outermost),
        f"{indent}{once} = {language}.ndarray(({whole}{extents}), dtype={dtype}, buffer={language}.private_hbm)\n"
        + work.replace(f"\n{body}" if found.indices else body, f"\n{first}{body}" if found.indices else first + body, 1)
        + store,
    )
    for one in (*declared, found.turn, found.copy, kernel.buffers[tile].declaration):
        edits.delete_lines(one.start, one.end)
    load = f"{kept} = {language}.ndarray(({extents}), dtype={dtype}, buffer={language}.sbuf)\n{found.load.indent}"
    edits.replace(found.load.start, found.load.end, f"{load}{prefix(kernel, 'isa')}.dma_copy(dst={kept}, src={stored})")
    for one in kernel.readers(tile):
        for access in one.mentions:
            if access.name == tile:
                edits.replace(*kernel.span(access.node), kept + block)
    return edits.apply()


RULE = TransposeOnce()
