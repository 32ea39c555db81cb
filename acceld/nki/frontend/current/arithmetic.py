"""Emit element-wise instructions, some with a fold along the free axes."""

from __future__ import annotations

from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.names import activation_function, alu_op, engine_of
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.operands import Number, emit, fold, matched, reduced, scalar, word_of
from acceld.nki.ir.operations import UNARY_ALU_OPS
from acceld.nki.ir.program import Attr, Engine, Pattern


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
    """dst = op(data * scale + bias), optionally folded along the free axes (``engine`` is of NKI 0.7)."""
    target, tile = matched(dst, "activation", data=data)
    if activation_function(op) == "prelu":
        refuse("activation_function", "prelu in 'activation', which has no slope", "use nisa.activate2 with relu_param")
    srcs: list[Tensor | Number | Pattern] = [
        tile,
        scalar(0.0 if bias is None else bias, "bias", "activation", tile),
        scalar(scale, "scale", "activation", tile),
    ]
    attrs: dict[str, Attr] = {"func": activation_function(op)}
    if reduce_res is not None or (reduce_op is not None and word_of(reduce_cmd) not in (None, "idle")):
        attrs |= {"reduce_op": "add" if reduce_op is None else fold(reduce_op), "reduce_cmd": word_of(reduce_cmd)}
    chosen = _activating(engine)
    emit("activation", chosen, [target, *reduced(reduce_res, "activation")], srcs, pattern=None, **attrs)


def _activating(engine: object) -> Engine:
    """Return the engine of an activation, by default the scalar engine."""
    chosen = engine_of(engine)
    if chosen is Engine.GPSIMD:
        unsupported("an activation on GpSimd (NKI 0.7, trn3): its cost is not published", "leave engine out")
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
    """dst = an activation, whose values are also folded along the free axes."""
    activation(dst, op, data, bias, scale, reduce_op, reduce_res, "reset_reduce")


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
    """dst = op((data op0 imm0) op1 imm1) (trn3; ``engine`` is of NKI 0.7)."""
    target, tile = matched(dst, "activate2", data=data)
    func = activation_function(op)
    srcs = [tile, scalar(imm0, "imm0", "activate2", tile), scalar(imm1, "imm1", "activate2", tile)]
    if func == "prelu":
        srcs.append(scalar(relu_param, "relu_param", "activate2", tile))
    emit(
        "activate2",
        _activating(engine),
        [target, *reduced(reduce_res, "activate2")],
        srcs,
        func=func,
        op0=alu_op(op0),
        op1=alu_op(op1),
        reverse0=bool(reverse0),
        reverse1=bool(reverse1),
        reduce_op=None if reduce_op is None else fold(reduce_op),
        reduce_cmd=word_of(reduce_cmd),
    )


def tensor_tensor(
    dst: object, data1: object, data2: object, op: object, engine: object = None, name: str | None = None
) -> None:
    """dst = data1 op data2."""
    target, first, second = matched(dst, "tensor_tensor", data1=data1, data2=data2)
    word = alu_op(op)
    chosen = engine_of(engine)
    if chosen is Engine.UNKNOWN:
        chosen = Engine.GPSIMD if word == "power" else Engine.VECTOR
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
    """dst = (data op0 operand0) op1 operand1, operands numbers or (P, 1) tiles; none for a function of one value."""
    target, tile = matched(dst, "tensor_scalar", data=data)
    attrs: dict[str, Attr] = {"op0": alu_op(op0), "reverse0": bool(reverse0)}
    srcs: list[Tensor | Number | Pattern] = [tile, _second(attrs["op0"], operand0, "operand0", tile)]
    if op1 is not None:
        attrs |= {"op1": alu_op(op1), "reverse1": bool(reverse1)}
        srcs.append(_second(attrs["op1"], operand1, "operand1", tile))
    emit("tensor_scalar", engine_of(engine), [target], srcs, pattern=None, **attrs)


def _second(op: Attr, operand: object, name: str, tile: Tensor) -> Tensor | Number | Pattern:
    """Return the second operand of an ALU function; 0 if it takes none."""
    return 0 if operand is None and op in UNARY_ALU_OPS else scalar(operand, name, "tensor_scalar", tile)


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
    """dst = data op0 operand0, folded along the free axes into reduce_res."""
    target, tile = matched(dst, "tensor_scalar_reduce", data=data)
    emit(
        "tensor_scalar",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "tensor_scalar_reduce")],
        [tile, scalar(operand0, "operand0", "tensor_scalar_reduce", tile)],
        op0=alu_op(op0),
        reverse0=bool(reverse0),
        reduce_op=fold(reduce_op),
        reduce_cmd=word_of(reduce_cmd) or "reset_reduce",
        reduce_init=_loaded(reduce_init, reduce_cmd, "tensor_scalar_reduce"),
        negate=bool(reduce_res_negate),
    )


def _loaded(value: object, command: object, call: str) -> float | None:
    """Return the ``reduce_init`` of a fold. It has an effect only with ``load_reduce``."""
    loads = word_of(command) == "load_reduce"
    start = as_number(value)
    if isinstance(value, Tensor):
        unsupported(f"a tile as reduce_init of {call}", "pass a number")
    if (value is not None and not loads) or (value is not None and start is None):
        refuse(
            "reduce_init",
            f"reduce_init of '{call}' must be a number, beside reduce_cmd.load_reduce",
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
    """dst = a running fold with op1 along the free axis of src op0 imm0."""
    target, tile = matched(dst, "tensor_scalar_cumulative", src=src)
    srcs: list[Tensor | Number | Pattern] = [tile, scalar(imm0, "imm0", "tensor_scalar_cumulative", tile)]
    if (imm1 is not None) is not (word_of(reduce_cmd) == "load_reduce"):
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
        reduce_cmd=word_of(reduce_cmd),
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
    """dst = (data op0 operand0) op1 operand1, operand0 a number or (P, 1) tile, operand1 a tile."""
    if reduce_op is not None or reduce_res is not None:
        unsupported("scalar_tensor_tensor that also reduces (NKI 0.7)", "reduce with nisa.tensor_reduce")
    target, tile, other = matched(dst, "scalar_tensor_tensor", data=data, operand1=operand1)
    emit(
        "scalar_tensor_tensor",
        Engine.VECTOR,
        [target],
        [tile, scalar(operand0, "operand0", "scalar_tensor_tensor", tile), other],
        op0=alu_op(op0),
        op1=alu_op(op1),
        reverse0=bool(reverse0),
        reverse1=bool(reverse1),
    )


def reciprocal(dst: object, data: object, name: str | None = None) -> None:
    """dst = 1 / data."""
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
    """dst = exp(src - max_value), optionally summed (trn3)."""
    target, tile = matched(dst, "exponential", src=src)
    emit(
        "exponential",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "exponential")],
        [tile, scalar(max_value, "max_value", "exponential", tile)],
        reduce_cmd=word_of(reduce_cmd),
        reduce_init=_loaded(None if reduce_init == 0 else reduce_init, reduce_cmd, "exponential"),
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
    """dst = on_true where the predicate holds, else on_false."""
    number = as_number(on_false)
    tiles = {"predicate": predicate, "on_true": on_true} | ({} if number is not None else {"on_false": on_false})
    target, *sources = matched(dst, "select_reduce", **tiles)
    emit(
        "select",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "select_reduce")],
        [*sources, *([] if number is None else [number])],
        reverse=bool(reverse_pred),
        reduce_op=("max" if reduce_op is None else fold(reduce_op)) if reduce_res is not None else None,
        reduce_cmd=word_of(reduce_cmd),
    )


def dropout(dst: object, data: object, prob: object, name: str | None = None) -> None:
    """dst = data with random elements set to zero."""
    target, tile = matched(dst, "dropout", data=data)
    emit("dropout", Engine.VECTOR, [target], [tile, scalar(prob, "prob", "dropout", tile)])
