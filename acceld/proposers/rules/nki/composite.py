"""Replace several instructions that spell out an activation function by that function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

from acceld.model import Profile
from acceld.nki.source.building import operation, prefix, replaced
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Statement
from acceld.proposers.rules.records import Finding, Rule, Variant


@dataclass(frozen=True)
class _Match:
    function: str
    data: Access
    gone: tuple[Statement, ...]
    last: Statement
    scale: str = ""
    bias: str = ""


class CompositeActivation(Rule):
    """Replace silu, sigmoid, rsqrt and scaled squares that are spelled out in exp, add, sqrt, reciprocal and multiply."""

    name = "composite_activation"
    reason = (
        "The scalar engine evaluates any of its activation functions at one element a lane and cycle, with scale and "
        "bias for free; computing one from simpler instructions costs a pass over the tile for each step, on both engines."
    )
    source = "nki.isa.activation: cost max(MIN_II, N); list of supported activation functions"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "fusion"
    relieves = ("vector", "scalar")
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every such sequence, except a sigmoid that is part of a silu."""
        matches = [match for statement in kernel.statements if (match := _match(kernel, statement)) is not None]
        before_silu = {match.last.line - 1 for match in matches if match.function == "silu"}
        for match in matches:
            first, last, function = match.gone[-1].line, match.last.line, match.function
            if function == "sigmoid" and last in before_silu:
                continue
            yield self.found(
                last,
                partial(_replaced, kernel, match),
                Variant(function),
                precondition=f"the {len(match.gone)} instructions before it have no other reader, and their input does "
                "not change in between",
                plan=f"Lines {first}-{last} compute {function}({kernel.text(match.data.node)}) step by step. Replace them "
                f"by one activation instruction with op={function}: the scalar engine does it in one pass and "
                f"{len(match.gone)} passes over the tile disappear.",
                benefit=0.5 if function == "silu" else 0.3,
                gain_percent=(5.0, 40.0),
                key=function,
            )


def _replaced(kernel: KernelModule, match: _Match, _: Variant) -> str:
    """Return the source with one activation in place of the last step."""
    arguments = {
        "op": f"{prefix(kernel, 'language')}.{match.function}",
        "data": kernel.text(match.data.node),
        "scale": match.scale,
        "bias": match.bias,
    }
    return replaced(kernel, match.gone, {match.last: operation(kernel, match.last, "activation", arguments)})


def _match(kernel: KernelModule, last: Statement) -> _Match | None:
    if last.kind != "op" or last.augmented or last.second is not None:
        return None
    return _silu(kernel, last) or _sigmoid(kernel, last) or _rsqrt(kernel, last) or _square(kernel, last)


def _silu(kernel: KernelModule, last: Statement) -> _Match | None:
    """Match x * sigmoid(x), x / (1 + exp(-x)), or x * reciprocal(1 + exp(-x))."""
    if last.op == "divide":
        x, divisor = last.reads.get("x"), last.reads.get("y")
        if x is None or divisor is None:
            return None
        chain = _one_plus_exp(kernel, last, divisor)
        return _close(kernel, "silu", last, chain, x)
    pair = _product(kernel, last)
    if pair is None:
        return None
    for x, factor in (pair, pair[::-1]):
        producer = kernel.producer(last, factor)
        if producer is None or not kernel.only_reader(producer, last):
            continue
        if kernel.opname(producer.args.get("op")) == "sigmoid" and producer.op == "activation":
            data = producer.reads.get("data")
            plain = kernel.number(producer.args.get("scale")) in (None, 1.0) and kernel.is_zero(
                producer.args.get("bias")
            )
            if data is not None and plain and data.same_as(x) and _agree(kernel, last, (producer,), x):
                return _Match("silu", x, (producer,), last)
        chain = _inverse_chain(kernel, producer)
        if chain is not None:
            match = _close(kernel, "silu", last, (producer, *chain), x)
            if match is not None:
                return match
    return None


def _sigmoid(kernel: KernelModule, last: Statement) -> _Match | None:
    """Match reciprocal(1 + exp(-x))."""
    chain = _inverse_chain(kernel, last)
    if chain is None:
        return None
    data = chain[-1].reads["data"]
    return _close(kernel, "sigmoid", last, chain, data)


def _rsqrt(kernel: KernelModule, last: Statement) -> _Match | None:
    """Match reciprocal(sqrt(x * scale + bias))."""
    operand = last.reads.get("data") or last.reads.get("x")
    if last.op != "reciprocal" or operand is None:
        return None
    root = kernel.producer(last, operand)
    if root is None or not kernel.only_reader(root, last) or root.op != "activation":
        return None
    data = root.reads.get("data")
    if kernel.opname(root.args.get("op")) != "sqrt" or data is None or not _agree(kernel, last, (root,), data):
        return None
    scale, bias = root.args.get("scale"), root.args.get("bias")
    return _Match("rsqrt", data, (root,), last, kernel.text(scale) if scale else "", kernel.text(bias) if bias else "")


def _square(kernel: KernelModule, last: Statement) -> _Match | None:
    """Match (x * number) * x: the square of x times the number's root, which becomes the activation's scale."""
    pair = _product(kernel, last)
    if pair is None:
        return None
    for x, scaled in (pair, pair[::-1]):
        first = kernel.producer(last, scaled)
        if first is None or not kernel.only_reader(first, last) or first.augmented:
            continue
        if (
            first.op == "tensor_scalar"
            and kernel.opname(first.args.get("op0")) == "multiply"
            and "op1" not in first.args
        ):
            data, number = first.reads.get("data"), kernel.number(first.args.get("operand0"))
        elif first.op == "multiply":
            data, number = first.reads.get("x"), kernel.number(first.args.get("y"))
        else:
            continue
        if (
            data is not None
            and number is not None
            and number > 0
            and data.same_as(x)
            and _agree(kernel, last, (first,), x)
        ):
            return _Match("square", x, (first,), last, repr(sqrt(number)))
    return None


def _product(kernel: KernelModule, statement: Statement) -> tuple[Access, Access] | None:
    pair = kernel.binary(statement)
    if pair is None or pair.op != "multiply":
        return None
    left, right = statement.reads.get(pair.left), statement.reads.get(pair.right)
    return None if left is None or right is None else (left, right)


def _inverse_chain(kernel: KernelModule, inverse: Statement) -> tuple[Statement, ...] | None:
    """Return the steps (1 + exp(-x), exp(-x)) before a reciprocal; None if there are others."""
    operand = inverse.reads.get("data") or inverse.reads.get("x")
    if inverse.op != "reciprocal" or operand is None:
        return None
    return _one_plus_exp(kernel, inverse, operand)


def _one_plus_exp(kernel: KernelModule, reader: Statement, operand: Access) -> tuple[Statement, ...] | None:
    total = kernel.producer(reader, operand)
    if total is None or not kernel.only_reader(total, reader):
        return None
    if total.op == "tensor_scalar" and kernel.opname(total.args.get("op0")) == "add" and "op1" not in total.args:
        one, inner = kernel.number(total.args.get("operand0")), total.reads.get("data")
    elif total.op == "add":
        one, inner = kernel.number(total.args.get("y")), total.reads.get("x")
    else:
        return None
    power = kernel.producer(total, inner) if inner is not None and one == 1 else None
    if power is None or not kernel.only_reader(power, total) or power.op != "activation":
        return None
    negative = kernel.number(power.args.get("scale")) == -1
    if kernel.opname(power.args.get("op")) != "exp" or not negative or not kernel.is_zero(power.args.get("bias")):
        return None
    return (total, power) if "data" in power.reads and "reduce_op" not in power.args else None


def _close(
    kernel: KernelModule, function: str, last: Statement, chain: tuple[Statement, ...] | None, x: Access
) -> _Match | None:
    if chain is None or not chain[-1].reads["data"].same_as(x) or not _agree(kernel, last, chain, x):
        return None
    return _Match(function, x, chain, last)


def _agree(kernel: KernelModule, last: Statement, chain: Sequence[Statement], x: Access) -> bool:
    """Return True if all steps have the same mask, and neither ``x`` nor another operand of the steps is written between
    the first and the last.
    """
    first = min(statement.start for statement in chain)
    made = {access.name for statement in chain for access in statement.results}
    used = {x.name, *(access.name for statement in chain for access in statement.mentions)} - made
    if used & kernel.ambiguous or any(kernel.mask(statement) != kernel.mask(last) for statement in chain):
        return False
    return not any(first < writer.start < last.start for name in used for writer in kernel.writers(name))


RULE = CompositeActivation()
