"""Check the operands of ``nki.isa``, fit their shapes to each other, and emit instructions.

``name`` and ``call`` name the operand and the NKI function in messages.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from math import prod
from types import BuiltinFunctionType
from typing import Any, cast

import numpy as np

from acceld.nki.errors import UnsupportedCall
from acceld.nki.frontend.core import memory, names
from acceld.nki.frontend.core.context import Retrace, refuse
from acceld.nki.frontend.core.elementwise import INDIRECT, operand, scalar_operand
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import conform, reshape
from acceld.nki.frontend.current.names import ReduceCommand
from acceld.nki.frontend.versions import Lifetime
from acceld.nki.ir.operations import INDIRECT_OPERANDS, OPS
from acceld.nki.ir.program import Attr, Engine, Pattern, Space, TileDim

Number = float | int


def check_options(call: str, late: Mapping[str, Lifetime], given: Mapping[str, object]) -> None:
    """Raise LegalityError for an option of a call that the trace's version of ``nki`` lacks. ``late`` has the versions
    of the function's later options, by option.
    """
    for option in late.keys() & given.keys() if late else ():
        current().session.need(f"{option} of {call}", late[option])


def destination(value: object, call: str) -> Tensor:
    """Return ``value``, the destination of an instruction. Raise LegalityError if it is not a tile on chip."""
    return operand(value, "dst", call)


def matched(dst: object, call: str, /, **sources: object) -> tuple[Tensor, ...]:
    """Return the destination and the sources as tiles of one shape, in the order given.

    Axes of one element are added or dropped. Engines only count elements: if all tiles have the same
    number of elements in each partition but different axes, all are split into common, finer axes. No axis is repeated, because
    AWS's compiler refuses tiles with different numbers of elements.
    """
    target = destination(dst, call)
    tiles = {name: operand(value, name, call) for name, value in sources.items()}
    views = {name: conform(tile, target.shape) for name, tile in tiles.items()}
    found = tuple(view for view in views.values() if view is not None)
    if len(found) == len(views):
        return (target, *found)
    axes = _common_axes((target, *tiles.values()))
    if axes is None:
        name = next(name for name, view in views.items() if view is None)
        refuse(
            "shape",
            f"operand '{name}' of '{call}' has shape {list(tiles[name].shape)}, and dst has {list(target.shape)}",
            _repeating(tiles[name], target, alone=len(tiles) == 1),
        )
    return tuple(split(tile, axes) for tile in (target, *tiles.values()))


def _repeating(tile: Tensor, target: Tensor, *, alone: bool = False) -> str:
    """Return the hint for two tiles of different sizes: how to repeat the partitions or elements of ``tile``. ``alone``
    tells that ``tile`` is the instruction's only source.
    """
    if tile.shape[0] == 1 < target.shape[0]:
        return "no engine repeats a partition: make a tile with nl.broadcast_to, or load one with src.broadcast(0, n) or a step of 0 in src.ap()"
    if prod(tile.shape[1:]) == 1 and not alone:
        return (
            "both need the same number of elements in each partition: to combine a tile with one element in each partition, "
            "use nisa.tensor_scalar; to repeat an axis, use tile.broadcast(dim, n) or a step of 0 in .ap()"
        )
    return "both need the same number of partitions, and of elements in each partition; to repeat an axis, use tile.broadcast(dim, n) or a step of 0 in .ap()"


def same_sizes(call: str, *named: tuple[str, Tensor]) -> None:
    """Raise LegalityError if the named tiles differ in the number of partitions, or in the number of elements in each
    partition.
    """
    (first, one), *rest = named
    for name, tile in rest:
        if (tile.shape[0], prod(tile.shape)) != (one.shape[0], prod(one.shape)):
            refuse(
                "shape",
                f"operands of '{call}' differ in size: {first}{list(one.shape)}, {name}{list(tile.shape)}",
                _repeating(tile, one) if prod(tile.shape) < prod(one.shape) else _repeating(one, tile),
            )


def _common_axes(tiles: Sequence[Tensor]) -> tuple[int, ...] | None:
    """Return free axes into which the free axes of all tiles can be split; None if the tiles differ in size or no such
    axes exist.
    """
    if len({(tile.shape[0], tile.access.elements) for tile in tiles}) != 1 or any(t.access.indirect for t in tiles):
        return None
    return common_axes([tile.shape[1:] for tile in tiles])


def common_axes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the coarsest shape into which all ``shapes`` can be split: (6, 4) and (3, 8) give (3, 2, 4). Return None
    if there is no such shape. All shapes must have the same number of elements.
    """
    cuts = sorted({prod(shape[at:]) for shape in shapes for at in range(len(shape) + 1)})
    if any(outer % inner for inner, outer in pairwise(cuts)):
        return None
    return tuple(reversed([outer // inner for inner, outer in pairwise(cuts)]))


def split(tile: Tensor, axes: tuple[int, ...], *, whole: bool = False) -> Tensor:
    """Return ``tile`` with its free axes split into axes of the extents ``axes``. With ``whole``, the partition axis
    is split too.
    """
    left = list(axes)
    dims: list[TileDim] = []
    for dim in reversed(tile.access.dims[not whole :]):
        inner = 1
        while inner < dim.count:
            count = left.pop()
            dims.append(TileDim(count, tuple(step * inner for step in dim.steps)))
            inner *= count
    return tile.like(replace(tile.access, dims=(*tile.access.dims[: not whole], *reversed(dims))))


def emit(
    operation: str,
    engine: Engine,
    dsts: Sequence[Tensor],
    srcs: Sequence[Tensor | Number | Pattern] = (),
    /,
    *,
    pattern: Pattern | None = None,
    **attrs: Attr,
) -> None:
    """Append an instruction to the program. ``attrs`` are its attributes."""
    _check_indirect(operation, engine, dsts, srcs)
    current().emit(operation, engine, list(dsts), list(srcs), attrs=attrs, pattern=pattern, accumulates=True)


def _check_indirect(
    operation: str, engine: Engine, dsts: Sequence[Tensor], srcs: Sequence[Tensor | Number | Pattern]
) -> None:
    """Raise LegalityError for a view by ``.indirect()`` as an operand through which the chip does not gather or
    scatter.
    """
    views = current().read_only
    if not views:
        return
    known = INDIRECT_OPERANDS.get(operation, frozenset())
    spec = OPS[operation]
    for places, operands in ((spec.dsts, dsts), (spec.srcs, srcs)):
        for number, tile in enumerate(operands):
            if not isinstance(tile, Tensor) or views.get(tile.access.buffer) != INDIRECT:
                continue
            name = places[min(number, len(places) - 1)].name
            if name not in known:
                refuse(
                    "indirect_operand",
                    f"operand '{name}' of {operation} can not be {INDIRECT} (NkiTensor.indirect, 0.6)",
                    "gather with nisa.tensor_copy(dst=tile, src=view) first, and pass that tile",
                )
            if operation == "copy" and engine is Engine.GPSIMD:
                refuse(
                    "engine",
                    f"tensor_copy of {INDIRECT} does not run on GpSimd (nisa.tensor_copy, 0.6)",
                    "leave engine out, or use the vector or scalar engine",
                )


def reduced(value: object, call: str) -> list[Tensor]:
    """Return a list with the ``reduce_res`` tile of an instruction; an empty list if ``value`` is None."""
    return [] if value is None else [operand(value, "reduce_res", call)]


def scalar(value: object, name: str, call: str, tile: Tensor) -> Tensor | Number | Pattern:
    """Return the scalar operand of an instruction on ``tile``: a number or a (P, 1) tile."""
    return scalar_operand(value, name, call, tile.shape[0])


def number(value: object, name: str, call: str) -> Number:
    """Return ``value`` as a Python number. Raise LegalityError if it is not a number."""
    number = as_number(value)
    if number is None:
        refuse("operand_type", f"'{name}' of '{call}' is {type(value).__name__}: pass a number")
    return number


def word_of(value: object) -> str | None:
    """Return the name of an enumeration's member; any other ``value`` as text; None for None."""
    return None if value is None else str(getattr(value, "name", value))


def whole(value: object, what: str) -> int:
    """Return ``value`` as an integer. Raise LegalityError if ``value`` is not a whole number. ``what`` names the
    value in the message.
    """
    try:
        return operator.index(cast("Any", value))
    except TypeError:
        shown = repr(value) if isinstance(value, str | float) else type(value).__name__
        refuse("index_type", f"{what} is {shown}, no whole number", "pass an int; // divides without a fraction")


def whole_numbers(values: object, what: str) -> tuple[int, ...]:
    """Return ``values`` as integers. Raise LegalityError if ``values`` is not a sequence of whole numbers. ``what``
    names the values in the message.
    """
    if isinstance(values, str | Tensor) or not isinstance(values, Iterable):
        refuse(
            "index_type",
            f"{what} is {type(values).__name__}, no tuple of whole numbers",
            "pass a tuple such as (0, 2, 1)",
        )
    return tuple(whole(value, f"an element of {what}") for value in values)


def integers(value: object, what: str = "the argument") -> tuple[int, ...] | None:
    """Return ``value`` as a tuple of integers; None if ``value`` is empty or None. ``what`` names the value in a
    message.
    """
    return whole_numbers(value, what) or None if value else None


def tensor(value: object, name: str, call: str) -> Tensor:
    """Return ``value``, a tensor in any memory. Raise LegalityError if it is not a tensor."""
    if isinstance(value, Tensor):
        return value
    refuse("operand_type", f"operand '{name}' of '{call}' is {type(value).__name__}: pass a tensor")


def same(source: Tensor, target: Tensor, call: str) -> Tensor:
    """Return a view of ``source`` in the shape of ``target``. Raise LegalityError if the two tensors differ in the
    number of elements.

    No axis is broadcast, because a DMA does not repeat elements.
    """
    if source.shape == target.shape:
        return source
    view = conform(source, target.shape)
    if view is None and source.access.elements == target.access.elements:
        view = reshape(source, target.shape)
    if view is None:
        refuse(
            "shape",
            f"'{call}' in/out shape must match: dst {list(target.shape)}, src {list(source.shape)}",
            "give both the same shape, by slices or in their declarations. To repeat a row or column of a tensor in HBM, use src.broadcast(dim, n) on an axis of one element (src.expand_dim(dim) adds such an axis), or a step of 0 in src.ap()",
        )
    return view


def paired(target: Tensor, source: Tensor, call: str) -> tuple[Tensor, Tensor]:
    """Return the target and the source of a copy as views of one shape.

    If one tensor is on chip and the other in HBM, the shape is that of the tile on chip. Otherwise it is the shape
    of the target. If the source has no view in that shape, both views have the shape of the source.
    """
    if target.space is Space.HBM and source.space is not Space.HBM and target.shape != source.shape:
        view = conform(target, source.shape)
        if view is None and target.access.elements == source.access.elements:
            view = reshape(target, source.shape)
        if view is not None:
            return view, source
    try:
        return target, same(source, target, call)
    except (UnsupportedCall, Retrace) as failure:
        axes = common_axes([target.shape, source.shape])
        if axes is not None and target.space is source.space is Space.SBUF:
            return split(target, axes, whole=True), split(source, axes, whole=True)
        try:
            return same(target, source, call), source
        except UnsupportedCall:
            raise failure from None


def last_axes(call: str, axes: tuple[int, ...], tile: Tensor) -> None:
    """Raise LegalityError if ``axes`` are not the last axes of the tile: an engine reduces only the last axes. Axes of
    one element do not count.
    """
    wide = [k for k, n in enumerate(tile.shape) if k and (n != 1 or k in axes)]
    if wide[len(wide) - len(axes) :] != list(axes):
        refuse(
            "reduce_axis",
            f"'{call}' can not reduce axes {list(axes)} of a tile of shape {list(tile.shape)}: an engine reduces the last axes only",
            "reorder the axes with tile.permute(dims), so that the reduced axes come last",
        )


TEXTS = frozenset({"bypass", "average", "prelu"})
"""Operations that ``nl`` has as constants and not as functions."""
NUMPY_NAMES = {
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "fmax": "maximum",
    "fmin": "minimum",
    "sum": "add",
    "prod": "multiply",
    "absolute": "abs",
    "float_power": "power",
}
"""The name in ``nl`` of a function that numpy calls by another name, by numpy's name."""


FOLDS_OF_TILES = {"sum": "add", "prod": "multiply", "all": "logical_and", "any": "logical_or"}
"""Functions of ``nl`` that fold a whole tile, each with the operation of ``nl`` that an instruction folds with."""


def _of_nl(op: object) -> object:
    """Return ``op``, the operation of an instruction. Raise LegalityError for a text or a function of numpy: the parser
    of NKI accepts only operations of ``nl``, and AWS's pages name no others.
    """
    text = isinstance(op, str) and op not in TEXTS
    word = getattr(op, "__name__", "")
    if isinstance(op, BuiltinFunctionType) or word in FOLDS_OF_TILES:
        refuse(
            "alu_op",
            f"Python's {word} is no operation of nki"
            if isinstance(op, BuiltinFunctionType)
            else f"nl.{word} folds a whole tile, and is no operation of an instruction",
            f"write nl.{FOLDS_OF_TILES.get(word) or NUMPY_NAMES.get(word, word)}",
        )
    if text or isinstance(op, np.ufunc) or str(getattr(op, "__module__", "")).partition(".")[0] == "numpy":
        name = str(op if text else getattr(op, "__name__", op))
        refuse(
            "alu_op",
            f"{op!r} is no operation of nki" if text else f"np.{name} is a function of numpy, and no operation of nki",
            names.without(name) or f"write nl.{NUMPY_NAMES.get(name, name)}",
        )
    return op


def alu_op(op: object) -> str:
    """Return the name of an ALU operation in Programs, such as ``add`` for ``nl.add``. Raise LegalityError if ``op`` is
    not an operation of ``nl``, or if no engine has it.
    """
    return names.alu_op(_of_nl(op))


def activation_function(op: object) -> str:
    """Return the name of an activation function in Programs, such as ``exp`` for ``nl.exp``. Raise LegalityError if
    ``op`` is not a function of ``nl``, or if the scalar engine lacks it.
    """
    return names.activation_function(_of_nl(op))


def fold(op: object) -> str:
    """Return the name of a reduction in Programs, such as ``add`` for ``nl.add``. Raise LegalityError if ``op`` is not
    a reduction.
    """
    return names.reduce_op(_of_nl(op))


def member(value: object, kind: type[Enum], name: str, call: str, enumeration: str = "") -> None:
    """Raise LegalityError for an argument that is not a member of the enumeration ``kind``. A plain number is accepted
    with a notice. ``enumeration`` is the name of ``kind`` in ``nisa`` if it differs from the argument's name.

    Measured kernels of NKI before 0.3 pass numbers.
    """
    if value is None or isinstance(value, kind):
        return
    words = ", ".join(one.name for one in kind)
    if not isinstance(value, int) or isinstance(value, Enum):
        refuse(
            "operand_type",
            f"'{call}' can not take {name}={value!r}",
            f"pass a member of nisa.{enumeration or name}: {words}",
        )
    current().notice(
        f"{name}={value} of {call}: NKI 0.3 and later take members of nisa.{enumeration or name} only ({words})"
    )


def command_of(value: object, call: str, known: Container[str]) -> str | None:
    """Return the name of a ``reduce_cmd=`` argument; None for None. Raise LegalityError for a command that the
    instruction lacks. ``known`` has the commands that AWS's reference of nki.isa documents for the instruction.
    """
    member(value, ReduceCommand, "reduce_cmd", call)
    word = None if value is None else ReduceCommand(value).name if isinstance(value, int) else word_of(value)
    if word is not None and word not in known:
        refuse(
            "reduce_cmd",
            f"'{call}' can not take reduce_cmd.{word} (nisa.{call}, 0.6)",
            f"pass one of {', '.join(one.name for one in ReduceCommand if one.name in known)}",
        )
    return word


def check_priority(priority: object, call: str) -> None:
    """Raise LegalityError for a ``priority=`` argument that the chip does not take."""
    if priority is None:
        return
    trace = current()
    if trace.chip.generation < 4:
        refuse(
            "chip",
            f"{trace.chip.name} has no priority for '{call}'; NeuronCore-v4 is the first that has it",
            "leave priority out",
        )
    if not isinstance(priority, int) or not 0 <= priority <= 3:
        refuse(
            "operand_type",
            f"'{call}' can not take priority={priority!r} (nisa.{call}, 0.6)",
            "pass 0 (first) to 3, or leave priority out",
        )


def int32(value: object, what: str, call: str, unsigned: bool = False) -> int:
    """Return ``value`` as a signed integer of 32 bits; with ``unsigned``, also as an unsigned one. Raise LegalityError
    for any other value. ``what`` names the value in the message.
    """
    number = whole(value, f"{what} of {call}")
    if not -(2**31) <= number < 2 ** (32 if unsigned else 31):
        refuse("index_type", f"{what} of '{call}' is {number}, which has more than 32 bits", "keep it below 2**31")
    return number


def not_in_psum(tile: Tensor, word: str, call: str, why: str) -> None:
    """Raise LegalityError for an operand in PSUM. ``why`` names the engine that reads the operand."""
    if tile.space is Space.PSUM:
        refuse(
            "address_space",
            f"operand '{word}' of '{call}' is in PSUM: {why} and can not read PSUM",
            "copy it to SBUF with nisa.tensor_copy first",
        )


def stored(dst: object, value: object, call: str) -> None:
    """Write a tile in SBUF to a tensor in HBM. ``call`` names the kernel's call for messages."""
    if not isinstance(value, Tensor):
        refuse(
            "operand_type",
            f"operand 'value' of '{call}' is {type(value).__name__}, not a tile",
            "fill a tile first, with nl.full or nisa.memset",
        )
    not_in_psum(value, "value", call, "the DMA engines store it")
    memory.store(dst, value)
