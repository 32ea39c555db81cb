"""Let an activation also compute the sum of the tile that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.model import Profile
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import UNARY, Statement
from acceld.proposers.rules.nki.reductions import joined, made_before, obstacle, reduced
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Place, Rule, Variant


class ReduceInActivation(Rule):
    """Join an activation and the sum of its result into one activation_reduce."""

    name = "reduce_in_activation"
    reason = (
        "The scalar engine can add up what it writes in registers for about 64 cycles extra; a separate reduction "
        "reads the whole tile again on the vector engine."
    )
    source = "nki.isa.activation_reduce: cost max(MIN_II, N) + MIN_II; nki.isa.tensor_reduce: cost N"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "fusion"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every activation whose result is summed over its free axis, with the reason if activation and sum can
        not be one instruction.
        """
        busy = 0.5 if profile is None or not profile.latency_us else min(1.0, busy_share(profile, "vector"))
        for total in kernel.statements:
            data, op = reduced(kernel, total) or (None, "")
            made = made_before(kernel, total, data) if data is not None and op == "add" else None
            arguments = _activation(kernel, made) if made is not None else {}
            if made is not None and data is not None and arguments:
                yield self.answer(
                    total.line,
                    obstacle(kernel, made, total, data),
                    f"Let line {made.line} add up what it writes, and drop line {total.line}",
                    partial(_joined, kernel, made, total),
                    Variant("activation_reduce"),
                    precondition="the sum covers exactly what the activation writes, over its last axis, and nothing "
                    "changes it in between",
                    plan=f"Line {made.line} writes a tile that line {total.line} adds up on the vector engine. Use "
                    "activation_reduce, which adds up while it writes; the vector engine's pass disappears.",
                    benefit=0.35 * busy,
                    gain_percent=(2.0, 25.0),
                )


def _joined(kernel: KernelModule, made: Statement, total: Statement, _: Variant) -> str:
    """Return the source with one activation_reduce in place of activation and sum."""
    return joined(kernel, made, total, "activation_reduce", _activation(kernel, made), "add")


def _activation(kernel: KernelModule, made: Statement) -> dict[str, str]:
    if made.op == "activation":
        names = ("op", "data", "bias", "scale")
        return {name: kernel.text(made.args[name]) for name in names if name in made.args}
    factors = kernel.factors(made)
    if factors is not None and factors[0].same_as(factors[1]):
        return {"op": f"{prefix(kernel, 'language')}.square", "data": kernel.text(factors[0].node)}
    if made.op not in UNARY or made.op == "reciprocal" or "x" not in made.args:
        return {}
    return {"op": f"{prefix(kernel, 'language')}.{made.op}", "data": kernel.text(made.args["x"])}


RULE = ReduceInActivation()
