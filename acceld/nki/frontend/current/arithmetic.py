"""Emit the element-wise instructions of ``nki.isa``, some of which also reduce their result along the free axes."""

from __future__ import annotations

from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.elementwise import on_gpsimd
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.names import engine_of
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import conform, expand
from acceld.nki.frontend.current.lifetimes import FOLD_WITHOUT_RESULT, LATE_SCALAR_OPS
from acceld.nki.frontend.current.names import ReduceCommand
from acceld.nki.frontend.current.operands import (
    Number,
    activation_function,
    alu_op,
    command_of,
    emit,
    fold,
    matched,
    reduced,
    scalar,
)
from acceld.nki.ir.operations import ACTIVATE2_PAIRS, BITS, FLOAT_DTYPES, INTEGER_DTYPES, LATE_ALU_OPS, UNARY_ALU_OPS
from acceld.nki.ir.program import Attr, Engine, Pattern

RESETTING = frozenset({"reset_reduce", "reduce", "load_reduce"})
"""Values of ``reduce_cmd`` for instructions that always reduce."""
ACTIVATE2_COMMANDS = frozenset({"idle", "reset", "reduce", "reset_reduce"})
FOLDS_OF_ACTIVATE2 = frozenset({"add", "max", "min", "abs_max", "abs_min"})
"""Operations with which activate2 may reduce (page of nisa.activate2, 0.6)."""


def activation(
    dst: object,
    op: object,
    data: object,
    bias: object = None,
    scale: object = 1.0,
    reduce_op: object = None,
    reduce_res: object = None,
    reduce_cmd: object = None,
    engine: object = None,
    name: str | None = None,
) -> None:
    """Set dst to op(data * scale + bias). With ``reduce_cmd``, also fold the result along the free axes into
    reduce_res.

    ``engine`` is an argument of NKI 0.7.
    """
    target, tile = matched(dst, "activation", data=data)
    if activation_function(op) == "prelu":
        refuse(
            "activation_function",
            "'activation' can not compute prelu, because it has no argument for the slope",
            "use nisa.activate2 with relu_param",
        )
    command = command_of(reduce_cmd, "activation", RESETTING | {"idle", "reset"})
    if command == "load_reduce":
        refuse(
            "reduce_cmd",
            "'activation' can not take reduce_cmd.load_reduce",
            "use reset_reduce: the registers of the scalar engine can only start from 0",
        )
    if (reduce_op is not None or reduce_res is not None) and command in (None, "idle"):
        refuse(
            "reduce_cmd",
            "'activation' got reduce_op or reduce_res, but no reduce_cmd",
            "pass reduce_cmd=nisa.reduce_cmd.reset_reduce, or use nisa.activation_reduce",
        )
    if reduce_op is None and command not in (None, "idle", "reset"):
        current().notice(
            "activation with reduce_cmd and without reduce_op: the page of nisa.activation asks for nl.add"
        )
    srcs: list[Tensor | Number | Pattern] = [
        tile,
        scalar(0.0 if bias is None else bias, "bias", "activation", tile),
        scalar(scale, "scale", "activation", tile),
    ]
    attrs: dict[str, Attr] = {"func": activation_function(op)}
    if reduce_res is not None or command not in (None, "idle"):
        attrs |= {"reduce_op": "add" if reduce_op is None else fold(reduce_op), "reduce_cmd": command}
    chosen = _activating(engine)
    if chosen is Engine.GPSIMD and "reduce_op" in attrs:
        refuse("engine", "'activation' can not reduce on GpSimd, which has no accumulators", "leave engine out")
    emit("activation", chosen, [target, *reduced(reduce_res, "activation")], srcs, pattern=None, **attrs)


def _activating(engine: object) -> Engine:
    """Return the engine of an activation, by default the scalar engine. Raise LegalityError for GpSimd on a chip whose
    GpSimd has no activation.
    """
    chosen, trace = engine_of(engine), current()
    if chosen is Engine.GPSIMD and trace.chip.generation < 4:
        refuse(
            "chip",
            f"GpSimd of {trace.chip.name} has no activation; NeuronCore-v4 is the first that has it",
            "leave engine out",
        )
    if chosen is Engine.GPSIMD:
        trace.notice(
            "an activation on GpSimd is of NKI 0.7; its cost is not published: an element a cycle is assumed",
        )
    return Engine.SCALAR if chosen is Engine.UNKNOWN else chosen


def activation_reduce(
    dst: object,
    op: object,
    data: object,
    reduce_op: object,
    reduce_res: object,
    bias: object = None,
    scale: object = 1.0,
    name: str | None = None,
) -> None:
    """Set dst to op(data * scale + bias), and reduce_res to dst folded with reduce_op along the free axes."""
    if activation_function(op) == "square":
        current().notice("activation_reduce with square: one older compiler refused it in its last check (NCC_IXCG864)")
    activation(dst, op, data, bias, scale, reduce_op, reduce_res, ReduceCommand.reset_reduce)


def activate2(
    dst: object,
    op: object,
    data: object,
    imm0: object,
    imm1: object,
    op0: object,
    op1: object,
    relu_param: object = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: object = None,
    reduce_res: object = None,
    reduce_cmd: object = None,
    engine: object = None,
    name: str | None = None,
) -> None:
    """Set dst to op((data op0 imm0) op1 imm1) (trn3). ``engine`` is an argument of NKI 0.7."""
    target, tile = matched(dst, "activate2", data=data)
    _without_command(command_of(reduce_cmd, "activate2", ACTIVATE2_COMMANDS), reduce_res, "activate2")
    func, pair = activation_function(op), (alu_op(op0), alu_op(op1))
    if pair not in ACTIVATE2_PAIRS:
        listed = ", ".join(f"({one}, {two})" for one, two in sorted(ACTIVATE2_PAIRS))
        refuse(
            "alu_op",
            f"activate2 does not have the operations ({pair[0]}, {pair[1]})",
            f"use one of its pairs: {listed}",
        )
    if isinstance(imm0, Tensor) and isinstance(imm1, Tensor) and imm0.dtype_name != imm1.dtype_name:
        refuse(
            "dtype",
            f"imm0 of 'activate2' has {imm0.dtype_name}, and imm1 {imm1.dtype_name}",
            "give both tiles one type, such as nl.float32",
        )
    folds = None if reduce_op is None else alu_op(reduce_op)
    if folds is not None and folds not in FOLDS_OF_ACTIVATE2:
        refuse(
            "alu_op",
            f"activate2 has no reduce_op={folds} (nisa.activate2, 0.6)",
            f"activate2 reduces with {', '.join(sorted(FOLDS_OF_ACTIVATE2))}",
        )
    if folds in ("abs_max", "abs_min"):
        unsupported(
            f"activate2 with reduce_op={folds} is not simulated", "reduce nl.abs of dst with nisa.tensor_reduce"
        )
    srcs = [tile, scalar(imm0, "imm0", "activate2", tile), scalar(imm1, "imm1", "activate2", tile)]
    if func == "prelu":
        srcs.append(scalar(relu_param, "relu_param", "activate2", tile))
    emit(
        "activate2",
        _activating(engine),
        [target, *reduced(reduce_res, "activate2")],
        srcs,
        func=func,
        op0=pair[0],
        op1=pair[1],
        reverse0=bool(reverse0),
        reverse1=bool(reverse1),
        reduce_op=folds,
        reduce_cmd=command_of(reduce_cmd, "activate2", ACTIVATE2_COMMANDS),
    )


def tensor_tensor(
    dst: object, data1: object, data2: object, op: object, engine: object = None, name: str | None = None
) -> None:
    """Set dst to data1 op data2, element by element.

    Without ``engine``, arithmetic on tiles of 32-bit integers runs on GpSimd, which computes it exactly, unless a tile
    is in PSUM.
    """
    target, first, second = matched(dst, "tensor_tensor", data1=data1, data2=data2)
    word = alu_op(op)
    chosen = engine_of(engine)
    if chosen is Engine.UNKNOWN:
        whole = word not in BITS and all(on_gpsimd(tile) for tile in (target, first, second))
        chosen = Engine.GPSIMD if word == "power" or whole else Engine.VECTOR
    emit("tensor_tensor", chosen, [target], [first, second], op=word)


def tensor_scalar(
    dst: object,
    data: object,
    op0: object,
    operand0: object = None,
    reverse0: bool = False,
    op1: object = None,
    operand1: object = None,
    reverse1: bool = False,
    engine: object = None,
    name: str | None = None,
) -> None:
    """Set dst to (data op0 operand0) op1 operand1. Each operand is a number or a (P, 1) tile.

    An operation of one value, such as nl.rsqrt, takes no operand.
    """
    target, tile = matched(dst, "tensor_scalar", data=data)
    first, operand = _stage(op0, operand0, "operand0", tile)
    attrs: dict[str, Attr] = {"op0": first, "reverse0": bool(reverse0)}
    srcs: list[Tensor | Number | Pattern] = [tile, operand]
    if op1 is not None:
        attrs["op1"], operand = _stage(op1, operand1, "operand1", tile)
        attrs["reverse1"] = bool(reverse1)
        srcs.append(operand)
        if attrs["op1"] in LATE_ALU_OPS:
            current().notice(f"tensor_scalar with {attrs['op1']} as op1: release notes of 0.4 name it as op0 only")
    elif operand1 is not None:
        refuse("signature", "'tensor_scalar' got operand1, but no op1", "pass op1, or leave operand1 out")
    chosen = engine_of(engine)
    if chosen is Engine.GPSIMD and first not in ("rsqrt", "power"):
        current().notice(
            f"tensor_scalar with {first} on GpSimd: AWS's page (nisa.tensor_scalar, 0.6 and 0.7) both lists GpSimd for arithmetic "
            "and allows only rsqrt; keep it if it compiles on your SDK, else leave engine out, which the vector engine runs"
        )
    emit("tensor_scalar", chosen, [target], srcs, pattern=None, **attrs)


def _stage(op: object, operand: object, name: str, tile: Tensor) -> tuple[str, Tensor | Number | Pattern]:
    """Return the name and the operand of one operation of a tensor_scalar. If the operation takes a single value, the
    operand is 0.

    ``name`` is the name of the operand's argument for messages.
    """
    invert = getattr(op, "__name__", op) == "invert"
    word = "bitwise_xor" if invert else alu_op(op)
    if word in LATE_ALU_OPS and word in UNARY_ALU_OPS:
        current().session.need(f"tensor_scalar with nl.{word}", LATE_SCALAR_OPS)
    if not invert and word not in UNARY_ALU_OPS:
        if word in BITS and isinstance(as_number(operand), float):
            refuse(
                "operand_type",
                f"{name} of 'tensor_scalar' is {operand}, but {word} works on the bits of integers",
                "pass an int, or a tile of integers",
            )
        return word, scalar(operand, name, "tensor_scalar", tile)
    if operand is not None and as_number(operand) != 0:
        shown = "a tile" if isinstance(operand, Tensor) else operand
        refuse(
            "operand_type",
            f"{name} of 'tensor_scalar' is {shown}, but {'invert' if invert else word} takes one value",
            f"pass {name}=None or 0",
        )
    return word, -1 if invert else 0


def tensor_scalar_reduce(
    dst: object,
    data: object,
    op0: object,
    operand0: object,
    reduce_op: object,
    reduce_res: object = None,
    reverse0: bool = False,
    reduce_cmd: object = None,
    reduce_init: object = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> None:
    """Set dst to data op0 operand0, and reduce_res to dst folded with reduce_op along the free axes."""
    target, tile = matched(dst, "tensor_scalar_reduce", data=data)
    if reduce_res is None:
        current().session.need("tensor_scalar_reduce without reduce_res", FOLD_WITHOUT_RESULT)
    if reverse0:
        refuse(
            "signature",
            "'tensor_scalar_reduce' can not take reverse0",
            "use nisa.tensor_scalar, then nisa.tensor_reduce",
        )
    command = command_of(reduce_cmd, "tensor_scalar_reduce", RESETTING) or "reset_reduce"
    if command == "load_reduce" and reduce_init is None:
        refuse(
            "reduce_init",
            "'tensor_scalar_reduce' with reduce_cmd.load_reduce needs a reduce_init to start from",
            "pass reduce_init=0.0, or another number",
        )
    if tile.ndim > 4:
        current().notice(f"tensor_scalar_reduce of {tile.ndim - 1} free axes: its page of NKI 0.7 allows 3")
    emit(
        "tensor_scalar",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "tensor_scalar_reduce")],
        [tile, scalar(operand0, "operand0", "tensor_scalar_reduce", tile)],
        op0=alu_op(op0),
        reverse0=False,
        reduce_op=fold(reduce_op),
        reduce_cmd=command,
        reduce_init=_loaded(reduce_init, command, "tensor_scalar_reduce"),
        negate=bool(reduce_res_negate),
    )


def _loaded(value: object, command: str | None, call: str) -> float | None:
    """Return the ``reduce_init=`` argument; None unless the command is ``load_reduce``, the only command that reads the
    argument.
    """
    loads = command == "load_reduce"
    start = as_number(value)
    if isinstance(value, Tensor):
        unsupported(f"a tile as reduce_init of {call} is not simulated", "pass a number")
    if (value is not None and not loads) or (value is not None and start is None):
        refuse(
            "reduce_init",
            f"reduce_init of '{call}' needs a number, and reduce_cmd.load_reduce, which reads it",
            "pass reduce_cmd=nisa.reduce_cmd.load_reduce, or leave reduce_init out",
        )
    return float(start or 0) if loads else None


def tensor_scalar_cumulative(
    dst: object,
    src: object,
    op0: object,
    op1: object,
    imm0: object,
    imm1: object = None,
    reduce_cmd: object = None,
    name: str | None = None,
) -> None:
    """Set dst to the running fold of (src op0 imm0) with op1, along the free axis."""
    target, tile = matched(dst, "tensor_scalar_cumulative", src=src)
    srcs: list[Tensor | Number | Pattern] = [tile, scalar(imm0, "imm0", "tensor_scalar_cumulative", tile)]
    command = command_of(reduce_cmd, "tensor_scalar_cumulative", RESETTING)
    if (imm1 is not None) is not (command == "load_reduce"):
        refuse(
            "reduce_init",
            "imm1 of 'tensor_scalar_cumulative' may only be used with reduce_cmd.load_reduce, which starts from it",
            "pass both, or neither",
        )
    if imm1 is not None:
        srcs.append(scalar(imm1, "imm1", "tensor_scalar_cumulative", tile))
    emit(
        "tensor_scalar_cumulative",
        Engine.VECTOR,
        [target],
        srcs,
        op0=alu_op(op0),
        op1=alu_op(op1),
        reduce_cmd=command,
    )


def scalar_tensor_tensor(
    dst: object,
    data: object,
    op0: object,
    operand0: object,
    op1: object,
    operand1: object,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_cmd: object = None,
    reduce_op: object = None,
    reduce_res: object = None,
    name: str | None = None,
) -> None:
    """Set dst to (data op0 operand0) op1 operand1. operand0 is a number or a (P, 1) tile. operand1 is a tile of
    the shape of data.
    """
    target, tile, other = matched(dst, "scalar_tensor_tensor", data=data, operand1=operand1)
    if isinstance(operand0, Tensor) and operand0.dtype_name != "float32":
        current().notice(
            f"operand0 of scalar_tensor_tensor is {operand0.dtype_name}: compilers refuse that type for tensor_scalar, "
            "but AWS's own library uses it for scalar_tensor_tensor; float32 is always accepted",
        )
    folds = reduce_op is not None or reduce_res is not None
    emit(
        "scalar_tensor_tensor",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "scalar_tensor_tensor")],
        [tile, scalar(operand0, "operand0", "scalar_tensor_tensor", tile), other],
        op0=alu_op(op0),
        op1=alu_op(op1),
        reverse0=bool(reverse0),
        reverse1=bool(reverse1),
        reduce_op=("add" if reduce_op is None else fold(reduce_op)) if folds else None,
        reduce_cmd=(command_of(reduce_cmd, "scalar_tensor_tensor", RESETTING) or "reset_reduce") if folds else None,
    )


def reciprocal(dst: object, data: object, name: str | None = None) -> None:
    """Set dst to 1 / data."""
    target, tile = matched(dst, "reciprocal", data=data)
    emit("reciprocal", Engine.VECTOR, [target], [tile])


def exponential(
    dst: object,
    src: object,
    max_value: object = 0.0,
    reduce_res: object = None,
    reduce_cmd: object = None,
    reduce_init: object = 0.0,
    name: str | None = None,
) -> None:
    """Set dst to exp(src - max_value) (trn3). If reduce_res is given, set it to the sum of dst along the free
    axes.
    """
    target, tile = matched(dst, "exponential", src=src)
    command = command_of(reduce_cmd, "exponential", RESETTING | {"idle"})
    _without_command(command, reduce_res, "exponential")
    if tile.ndim > 4:
        current().notice(f"exponential of a tile of {tile.ndim} axes: its page of NKI 0.6 allows 4")
    emit(
        "exponential",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "exponential")],
        [tile, scalar(max_value, "max_value", "exponential", tile)],
        reduce_cmd=command,
        reduce_init=_loaded(None if reduce_init == 0 else reduce_init, command, "exponential"),
    )


def _without_command(command: str | None, result: object, call: str) -> None:
    """Add a notice to the program if an instruction has a tile for the result of a reduction, but its command makes no
    reduction.
    """
    if result is not None and command in (None, "idle"):
        current().notice(
            f"reduce_res of {call} without reduce_cmd: by its page of NKI 0.6 nothing is reduced, and the tile gets an "
            "undefined value; pass reduce_cmd=nisa.reduce_cmd.reset_reduce"
        )


def select_reduce(
    dst: object,
    predicate: object,
    on_true: object,
    on_false: object,
    reduce_res: object = None,
    reduce_cmd: object = None,
    reduce_op: object = None,
    reverse_pred: bool = False,
    name: str | None = None,
) -> None:
    """Set dst to on_true where predicate is non-zero, elsewhere to on_false. If reduce_res is given, also fold
    dst along the free axes into it.
    """
    target, *sources = matched(dst, "select_reduce", predicate=predicate, on_true=on_true)
    command = command_of(reduce_cmd, "select_reduce", frozenset({"idle", "reduce", "reset_reduce"}))
    _without_command(command, reduce_res, "select_reduce")
    other = scalar(on_false, "on_false", "select_reduce", target)
    if isinstance(other, Tensor):
        column = conform(other, (target.shape[0], *(1 for _ in target.shape[1:])))
        wide = None if column is None else expand(column, target.shape)
        assert wide is not None
        other = wide
    emit(
        "select",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "select_reduce")],
        [*sources, other],
        reverse=bool(reverse_pred),
        reduce_op=("max" if reduce_op is None else fold(reduce_op)) if reduce_res is not None else None,
        reduce_cmd=command,
    )


def dropout(dst: object, data: object, prob: object, name: str | None = None) -> None:
    """Set dst to data, in which each element is set to zero with probability prob."""
    target, tile = matched(dst, "dropout", data=data)
    chance = scalar(prob, "prob", "dropout", tile)
    if isinstance(chance, Tensor):
        known = {"float32"} if tile.dtype_name in INTEGER_DTYPES else FLOAT_DTYPES
        if chance.dtype_name not in known:
            refuse(
                "dtype",
                f"prob of 'dropout' is {chance.dtype_name}, and data is {tile.dtype_name} (nisa.dropout, 0.6)",
                "copy prob to a float32 tile with nisa.tensor_copy",
            )
    emit("dropout", Engine.VECTOR, [target], [tile, chance])
