"""Join an instruction and the reduction of the tile that the instruction writes: conditions, reasons, new text."""

from __future__ import annotations

from collections.abc import Mapping

from acceld.editing import Edits
from acceld.nki.source.matching import maker, one_name, same_mask, unchanged
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import operation, prefix
from acceld.nki.source.syntax import Access, Statement, accesses

_OPERATORS = {"max": "maximum", "min": "minimum", "sum": "add"}
"""Name of an operator in arguments of ``nisa``, by the operator's name as a function of ``nl``."""


def reduced(kernel: KernelModule, whole: Statement) -> tuple[Access, str] | None:
    """Return the tile whose columns a statement reduces to one, and the name of the operator, such as ``maximum``; None
    for other statements.
    """
    if whole.kind != "op" or whole.augmented or whole.target is None or not kernel.folds_columns(whole):
        return None
    if whole.op == "tensor_reduce":
        data, op = whole.reads.get("data"), kernel.opname(whole.args.get("op"))
        if kernel.text_of(whole, "negate") not in ("", "False"):
            return None
    elif whole.op in ("sum", "max"):
        data, op = whole.reads.get("x"), whole.op
    else:
        return None
    if data is None or len(kernel.extents(data) or ()) > 2:
        return None
    buffer = kernel.buffers.get(data.name)
    if buffer is not None and data.dims is None and len(buffer.shape) != 2 and kernel.api == "nki":
        return None  # the number of its axes is not 2, or not known
    return data, _OPERATORS.get(op, op)


def made_before(kernel: KernelModule, whole: Statement, data: Access) -> Statement | None:
    """Return the instruction that last writes the tile ``data`` before the reduction ``whole``.

    Return None if no instruction writes the tile before, or if the last one adds to the tile or computes a reduction
    already.
    """
    before = [one for one in kernel.writers(data.name) if one.start < whole.start]
    made = max(before, key=lambda one: one.start, default=None)
    if made is None or made.kind != "op" or made.augmented or {"reduce_op", "reduce_res"} & made.args.keys():
        return None
    return made


def obstacle(kernel: KernelModule, made: Statement, whole: Statement, data: Access) -> str:
    """Return the reason why the instruction ``made`` can not reduce the tile ``data`` that it writes, in place of
    ``whole``; empty if it can.
    """
    found = maker(kernel, whole, data)
    if isinstance(found, str):
        return found
    name = whole.made.name
    reasons = [one_name(kernel, [name]), same_mask(kernel, made, whole), unchanged(kernel, [], made, whole)]
    if name in kernel.buffers:
        declared = kernel.buffers[name].declaration
        if declared.start > made.start and declared.parent is not made.parent:
            reasons.append(f"line {declared.line} declares {name} after line {made.line}: declare it before")
    elif _partitions(kernel, made) is None:
        reasons.append(f"line {whole.line}: the shape of {data.name} is not known: declare it by numbers")
    if name in {access.name for access in made.mentions}:
        reasons.append(f"line {made.line} reads {name}: reduce into a tile of its own")
    between = [one for one in kernel.statements if made.start < one.start < whole.start and one.kind != "declaration"]
    users = [one for one in between if any(access.name == name for access in accesses(one))]
    if users:
        reasons.append(
            f"line {users[0].line} uses {name} between lines {made.line} and {whole.line}: use another tile there"
        )
    return next(filter(None, reasons), "")


def joined(
    kernel: KernelModule, made: Statement, whole: Statement, name: str, arguments: Mapping[str, str], op: str
) -> str:
    """Return the source with one instruction in place of two statements.

    The instruction, ``name`` of ``nisa`` with ``arguments``, writes what ``made`` writes, and reduces it by the
    operator ``op``, as ``whole`` does.
    """
    edits = Edits(kernel.source)
    language, result, declaration = prefix(kernel, "language"), kernel.text(whole.made.node), ""
    if whole.made.dims is None and whole.made.name not in kernel.buffers:
        declaration = (
            f"{result} = {language}.ndarray(({language}.par_dim({_partitions(kernel, made)}), 1), "
            f"dtype={language}.float32, buffer={language}.sbuf)\n{made.indent}"
        )
    declared = kernel.declaration(whole.made.name)
    if declared is not None and declared.start > made.start:
        declaration = f"{kernel.source[declared.start : declared.end]}\n{made.indent}"
        edits.delete_lines(declared.start, declared.end)
    given = {**arguments, "reduce_op": f"{language}.{op}", "reduce_res": result}
    edits.replace(made.start, made.end, declaration + operation(kernel, made, name, given))
    edits.delete_lines(whole.start, whole.end)
    return edits.apply()


def _partitions(kernel: KernelModule, made: Statement) -> int | None:
    shape = kernel.tile_shape(made)
    return shape[0] if shape else None
