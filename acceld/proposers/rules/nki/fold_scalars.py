"""Fold scales, offsets and multiplications into a neighboring instruction that does them at no extra cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from acceld.model import Profile
from acceld.nki.source.building import replaced
from acceld.nki.source.matching import keeps_float32, last_writer, maker, one_name, only_reader, same_mask, unchanged
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import operation, prefix
from acceld.nki.source.syntax import Access, Statement
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Place, Rule, Variant

_COMMUTATIVE = ("add", "multiply", "maximum", "max", "minimum", "min")


@dataclass(frozen=True)
class _Fold:
    """Two instructions that become one: ``first`` is left out, and ``second`` becomes the instruction ``op`` with
    ``arguments``.
    """

    name: str
    first: Statement
    second: Statement
    op: str
    arguments: dict[str, str]
    what: str
    benefit: float
    obstacle: str = ""


class FoldScalars(Rule):
    """Fold an instruction into its reader: a tensor_scalar into a tensor_scalar or a tensor_tensor, a scale into an
    activation, a reciprocal into a product.
    """

    name = "fold_scalars"
    reason = (
        "tensor_scalar does two operations in one pass at the cost of one, activation multiplies by its scale and adds "
        "its bias for free, and scalar_tensor_tensor costs what tensor_tensor costs."
    )
    source = "nki.isa: costs of tensor_scalar, activation and scalar_tensor_tensor"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "fusion"
    relieves = ("vector", "scalar")
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every pair of instructions that may become one, where the second instruction reads the result of the
        first. If the two can not be joined, the place has the reason.
        """
        # A tensor_scalar may run on the scalar engine too, but a scalar_tensor_tensor only on the vector engine.
        vector_bound = busy_share(profile, "vector") > busy_share(profile, "scalar")
        for statement in kernel.statements:
            for fold in _folds(kernel, statement):
                lessened = vector_bound and fold.op == "scalar_tensor_tensor"
                yield self.answer(
                    fold.second.line,
                    fold.obstacle,
                    f"Lines {fold.first.line} and {fold.second.line}: {fold.what}",
                    partial(_folded, kernel, fold),
                    Variant(fold.name),
                    precondition=f"no other statement reads the result of line {fold.first.line}, and both lines have the same mask",
                    plan=f"Lines {fold.first.line} and {fold.second.line}: {fold.what}. One pass over the tile "
                    "disappears.",
                    benefit=0.3 * fold.benefit if lessened else fold.benefit,
                    gain_percent=(0.0, 12.0),
                    key=f"{fold.first.line}",
                )


def _folded(kernel: KernelModule, fold: _Fold, _: Variant) -> str:
    """Return the source with one instruction in place of two."""
    return replaced(kernel, [fold.first], {fold.second: operation(kernel, fold.second, fold.op, fold.arguments)})


def _folds(kernel: KernelModule, second: Statement) -> list[_Fold]:
    if second.kind != "op" or second.augmented or second.second is not None:
        return []
    found: list[_Fold] = []
    for name, access in second.reads.items():
        first = last_writer(kernel, second, access)
        if first is None:
            continue
        scalar = _scalar(kernel, first)
        folds = [_into_quotient(kernel, first, second, name)]
        if scalar is not None:
            makers = (_two_scalars, _into_activation, _into_tensor_tensor)
            folds += [make(kernel, first, second, scalar, name) for make in makers]
        problem = _obstacle(kernel, first, second, access) if any(folds) else ""
        found += [replace(fold, obstacle=problem) for fold in folds if fold is not None]
    return found


def _obstacle(kernel: KernelModule, first: Statement, second: Statement, access: Access) -> str:
    """Return the reason why ``first`` can not be folded into ``second``; empty if it can. The folded instruction may
    leave out a rounding between the two instructions.
    """
    made = maker(kernel, second, access)
    if isinstance(made, str):
        return made
    operands = {one.name for one in first.mentions}
    return (
        only_reader(kernel, first, second)
        or same_mask(kernel, first, second)
        or one_name(kernel, operands)
        or unchanged(kernel, operands, first, second)
        or keeps_float32(kernel, first)
    )


@dataclass(frozen=True)
class _Scalar:
    """The operation ``data op operand``; with ``reverse``, ``operand op data``."""

    data: str
    op: str
    operand: str
    reverse: bool

    def before(self, language: str, op: str, operand: str, *, reverse: bool) -> dict[str, str]:
        """Return the arguments of an instruction that does this operation first, and then ``op`` with ``operand``."""
        return {
            "data": self.data,
            "op0": f"{language}.{self.op}",
            "operand0": self.operand,
            "reverse0": "True" if self.reverse else "",
            "op1": f"{language}.{op}",
            "operand1": operand,
            "reverse1": "True" if reverse else "",
        }


def _scalar(kernel: KernelModule, statement: Statement) -> _Scalar | None:
    """Return the operation of a statement that combines a tile with a number, or with one number for each partition;
    None if the statement does anything else, or more than that.
    """
    if statement.op == "tensor_scalar" and "op1" not in statement.args and "data" in statement.reads:
        operand = statement.args.get("operand0")
        if operand is None:
            return None
        access = kernel.access(operand)
        if access is not None and not _column(kernel, statement, "operand0"):
            return None
        reverse = kernel.text_of(statement, "reverse0") == "True"
        op = kernel.opname(statement.args.get("op0"))
        return _Scalar(
            kernel.text(statement.args["data"]), op, kernel.text(operand), reverse and op not in _COMMUTATIVE
        )
    if statement.op in ("multiply", "add", "subtract") and "x" in statement.reads and "y" in statement.args:
        scalar = kernel.number(statement.args["y"]) is not None or _column(kernel, statement, "y")
        if scalar and not _column(kernel, statement, "x"):
            return _Scalar(kernel.text(statement.args["x"]), statement.op, kernel.text(statement.args["y"]), False)
    return None


def _column(kernel: KernelModule, statement: Statement, argument: str) -> bool:
    access = statement.reads.get(argument)
    if access is None or not kernel.is_column(access):
        return False
    shape = kernel.extents(access)
    return shape is None or len(shape) == 2


def _two_scalars(kernel: KernelModule, first: Statement, second: Statement, scalar: _Scalar, name: str) -> _Fold | None:
    after = _scalar(kernel, second)
    if after is None or name not in ("data", "x"):
        return None
    arguments = scalar.before(prefix(kernel, "language"), after.op, after.operand, reverse=after.reverse)
    what = f"do {scalar.op} and {after.op} as the two operations of one tensor_scalar"
    return _Fold("tensor_scalar", first, second, "tensor_scalar", arguments, what, 0.12)


def _into_activation(
    kernel: KernelModule, first: Statement, second: Statement, scalar: _Scalar, name: str
) -> _Fold | None:
    if second.op not in ("activation", "activation_reduce") or name != "data" or scalar.op != "multiply":
        return None
    if kernel.number(second.args.get("scale")) not in (None, 1.0):
        return None
    arguments = {key: kernel.text(value) for key, value in second.args.items() if key not in ("mask", "dtype")}
    arguments |= {"data": scalar.data, "scale": scalar.operand}
    what = "multiply as the scale of the activation"
    return _Fold("activation_scale", first, second, second.op, arguments, what, 0.15)


def _into_tensor_tensor(
    kernel: KernelModule, first: Statement, second: Statement, scalar: _Scalar, name: str
) -> _Fold | None:
    pair = kernel.binary(second)
    beside = pair.other(name) if pair is not None else None
    other = second.args.get(beside) if beside is not None else None
    if pair is None or beside is None or other is None or kernel.access(other) is None:
        return None
    if pair.op not in ("add", "subtract", "multiply", "maximum") or _column(kernel, second, beside):
        return None
    from_right = pair.op == "subtract" and name == pair.right
    arguments = scalar.before(prefix(kernel, "language"), pair.op, kernel.text(other), reverse=from_right)
    what = f"do {scalar.op} and {pair.op} in one scalar_tensor_tensor"
    return _Fold("scalar_tensor_tensor", first, second, "scalar_tensor_tensor", arguments, what, 0.2)


def _into_quotient(kernel: KernelModule, first: Statement, second: Statement, name: str) -> _Fold | None:
    """Return the fold of a reciprocal and a product into a division; None if they can not be folded.

    In the API ``nki`` the result is always None, because no engine divides there.
    """
    if kernel.api == "nki":
        return None
    operand = first.args.get("data") or first.args.get("x")
    if first.op != "reciprocal" or operand is None or kernel.access(operand) is None:
        return None
    pair = kernel.binary(second)
    beside = pair.other(name) if pair is not None and pair.op == "multiply" else None
    other = second.args.get(beside) if beside is not None else None
    if beside is None or other is None or kernel.access(other) is None:
        return None
    if _column(kernel, second, name) or _column(kernel, second, beside):
        return None
    arguments = {
        "data1": kernel.text(other),
        "data2": kernel.text(operand),
        "op": f"{prefix(kernel, 'language')}.divide",
    }
    return _Fold(
        "divide", first, second, "tensor_tensor", arguments, "divide instead of multiplying by a reciprocal", 0.2
    )


RULE = FoldScalars()
