"""Replace a sequence of instructions that computes an activation function by that function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import sqrt

from acceld.model import Profile
from acceld.nki.source.building import replaced
from acceld.nki.source.matching import last_writer, maker, one_name, only_reader, same_mask, unchanged
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import operation, prefix
from acceld.nki.source.syntax import Access, Statement
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Match:
    function: str
    data: Access
    gone: tuple[Statement, ...]
    last: Statement
    scale: str = ""
    bias: str = ""


class CompositeActivation(Rule):
    """Replace exp, add, sqrt, reciprocal and multiply that together compute silu, sigmoid, rsqrt or a scaled square by
    one activation.
    """

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

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield each sequence that computes an activation function, except a sigmoid that is part of a silu."""
        matches = [match for statement in kernel.statements if (match := _match(kernel, statement)) is not None]
        before_silu = {match.last.line - 1 for match in matches if match.function == "silu"}
        for match in matches:
            first, last, function = match.gone[-1].line, match.last.line, match.function
            if function == "sigmoid" and last in before_silu:
                continue
            yield self.answer(
                last,
                _obstacle(kernel, match),
                f"Replace lines {first}-{last} by one activation with op={function}",
                partial(_replaced, kernel, match),
                Variant(function),
                precondition=f"no other statement reads the results of the {len(match.gone)} instructions before it, and their "
                "input does not change in between",
                plan=f"Lines {first}-{last} compute {function}({kernel.text(match.data.node)}) step by step. Replace them "
                f"by one activation instruction with op={function}: the scalar engine does it in one pass and "
                f"{len(match.gone)} passes over the tile disappear.",
                benefit=0.5 if function == "silu" else 0.3,
                gain_percent=(5.0, 40.0),
                key=function,
            )


def _replaced(kernel: KernelModule, match: _Match, _: Variant) -> str:
    """Return the source with one activation in place of the whole sequence."""
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
    """Return the match of x * sigmoid(x), x / (1 + exp(-x)), or x * reciprocal(1 + exp(-x)) that ends with ``last``;
    None if no such sequence ends there.
    """
    if last.op == "divide":
        x, divisor = last.reads.get("x"), last.reads.get("y")
        if x is None or divisor is None:
            return None
        chain = _one_plus_exp(kernel, last, divisor)
        return _close(kernel, "silu", last, chain, x)
    pair = kernel.factors(last)
    if pair is None:
        return None
    for x, factor in (pair, pair[::-1]):
        producer = last_writer(kernel, last, factor)
        if producer is None:
            continue
        if kernel.opname(producer.args.get("op")) == "sigmoid" and producer.op == "activation":
            data = producer.reads.get("data")
            plain = kernel.number(producer.args.get("scale")) in (None, 1.0) and kernel.is_zero(
                producer.args.get("bias")
            )
            if data is not None and plain and data.same_as(x):
                return _Match("silu", x, (producer,), last)
        chain = _inverse_chain(kernel, producer)
        if chain is not None:
            match = _close(kernel, "silu", last, (producer, *chain), x)
            if match is not None:
                return match
    return None


def _sigmoid(kernel: KernelModule, last: Statement) -> _Match | None:
    """Return the match of reciprocal(1 + exp(-x)) that ends with ``last``; None if no such sequence ends there."""
    chain = _inverse_chain(kernel, last)
    if chain is None:
        return None
    data = chain[-1].reads["data"]
    return _close(kernel, "sigmoid", last, chain, data)


def _rsqrt(kernel: KernelModule, last: Statement) -> _Match | None:
    """Return the match of reciprocal(sqrt(x * scale + bias)) that ends with ``last``; None if no such sequence ends
    there.
    """
    operand = last.reads.get("data") or last.reads.get("x")
    if last.op != "reciprocal" or operand is None:
        return None
    root = last_writer(kernel, last, operand)
    if root is None or root.op != "activation":
        return None
    data = root.reads.get("data")
    if kernel.opname(root.args.get("op")) != "sqrt" or data is None:
        return None
    scale, bias = root.args.get("scale"), root.args.get("bias")
    return _Match("rsqrt", data, (root,), last, kernel.text(scale) if scale else "", kernel.text(bias) if bias else "")


def _square(kernel: KernelModule, last: Statement) -> _Match | None:
    """Return the match of (x * number) * x that ends with ``last``; None if no such sequence ends there.

    The result equals (x * root) * (x * root), where root is the square root of the number. The root becomes the
    activation's scale.
    """
    pair = kernel.factors(last)
    if pair is None:
        return None
    for x, scaled in (pair, pair[::-1]):
        first = last_writer(kernel, last, scaled)
        if first is None or first.augmented:
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
        if data is not None and number is not None and number > 0 and data.same_as(x):
            return _Match("square", x, (first,), last, repr(sqrt(number)))
    return None


def _inverse_chain(kernel: KernelModule, inverse: Statement) -> tuple[Statement, ...] | None:
    """Return the statements (1 + exp(-x), exp(-x)) that make the operand of a reciprocal; None for other operands."""
    operand = inverse.reads.get("data") or inverse.reads.get("x")
    if inverse.op != "reciprocal" or operand is None:
        return None
    return _one_plus_exp(kernel, inverse, operand)


def _one_plus_exp(kernel: KernelModule, reader: Statement, operand: Access) -> tuple[Statement, ...] | None:
    total = last_writer(kernel, reader, operand)
    if total is None:
        return None
    if total.op == "tensor_scalar" and kernel.opname(total.args.get("op0")) == "add" and "op1" not in total.args:
        one, inner = kernel.number(total.args.get("operand0")), total.reads.get("data")
    elif total.op == "add":
        one, inner = kernel.number(total.args.get("y")), total.reads.get("x")
    else:
        return None
    power = last_writer(kernel, total, inner) if inner is not None and one == 1 else None
    if power is None or power.op != "activation":
        return None
    negative = kernel.number(power.args.get("scale")) == -1
    if kernel.opname(power.args.get("op")) != "exp" or not negative or not kernel.is_zero(power.args.get("bias")):
        return None
    return (total, power) if "data" in power.reads and "reduce_op" not in power.args else None


def _close(
    kernel: KernelModule, function: str, last: Statement, chain: tuple[Statement, ...] | None, x: Access
) -> _Match | None:
    if chain is None or not chain[-1].reads["data"].same_as(x):
        return None
    return _Match(function, x, chain, last)


def _obstacle(kernel: KernelModule, match: _Match) -> str:
    """Return the reason why the sequence can not become one instruction; empty if it can."""
    steps = [match.last, *match.gone]
    first = min(match.gone, key=lambda one: one.start)
    made = {access.name for one in steps for access in one.results}
    used = {match.data.name, *(access.name for one in steps for access in one.mentions)} - made
    for reader, step in pairwise(steps):
        reads = [access for access in reader.mentions if access.name == step.made.name]
        found = maker(kernel, reader, reads[0])
        problem = found if isinstance(found, str) else only_reader(kernel, step, reader)
        problem = problem or same_mask(kernel, step, match.last)
        if problem:
            return problem
    return one_name(kernel, used) or unchanged(kernel, used, first, match.last)


RULE = CompositeActivation()
