"""Let an activation compute the sum over the tile that it makes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.building import operation, prefix
from acceld.nki.source.nests import accesses
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import UNARY, Access, Statement
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Finding, Rule, Variant


class ReduceInActivation(Rule):
    """Join an activation and a sum of its result to one activation_reduce."""

    name = "reduce_in_activation"
    reason = (
        "The scalar engine can add up what it writes in registers for about 64 cycles extra; a separate reduction "
        "reads the whole tile again on the vector engine."
    )
    source = "nki.isa.activation_reduce: cost max(MIN_II, N) + MIN_II; nki.isa.tensor_reduce: cost N"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "fusion"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every activation whose result is summed over its free axis right after."""
        busy = 0.5 if profile is None or not profile.latency_us else min(1.0, busy_share(profile, "vector"))
        for total in kernel.statements:
            made = _pair(kernel, total)
            if made is not None:
                yield self.found(
                    total.line,
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
    """Return one activation_reduce in place of both."""
    assert total.target is not None
    edits = Edits(kernel.source)
    language, result, declaration = prefix(kernel, "language"), kernel.text(total.target.node), ""
    if total.target.dims is None and total.target.name not in kernel.buffers:
        declaration = (
            f"{result} = {language}.ndarray(({language}.par_dim({_partitions(kernel, made)}), 1), "
            f"dtype={language}.float32, buffer={language}.sbuf)\n{made.indent}"
        )
    arguments = _activation(kernel, made) | {"reduce_op": f"{language}.add", "reduce_res": result}
    edits.replace(made.start, made.end, declaration + operation(kernel, made, "activation_reduce", arguments))
    edits.delete_lines(total.start, total.end)
    return edits.apply()


def _pair(kernel: KernelModule, total: Statement) -> Statement | None:
    if total.kind != "op" or total.augmented or total.target is None:
        return None
    if total.op == "tensor_reduce":
        data = total.reads.get("data")
        if kernel.opname(total.args.get("op")) != "add" or kernel.text_of(total, "negate") not in ("", "False"):
            return None
    elif total.op == "sum":
        data = total.reads.get("x")
    else:
        return None
    if data is None or kernel.text_of(total, "axis").strip("[](), ") not in ("1", "-1"):
        return None
    if len(kernel.extents(data) or ()) > 2:
        return None
    made = kernel.producer(total, data)
    if made is None or "reduce_op" in made.args or "reduce_res" in made.args:
        return None
    if _unary(made) and kernel.api != "nki_legacy":
        return None
    if total.target.name in kernel.ambiguous:
        return None
    if kernel.mask(made) != kernel.mask(total) or not _activation(kernel, made):
        return None
    if total.target.name in kernel.buffers:
        declared = kernel.buffers[total.target.name].declaration
        if declared.start > made.start:
            return None
    elif _partitions(kernel, made) is None or kernel.api == "nki":
        return None
    between = [s for s in kernel.statements if made.start < s.start < total.start]
    names = {total.target.name}
    if any(access.name in names for s in between for access in accesses(s)):
        return None
    return made


def _unary(made: Statement) -> bool:
    return made.op in UNARY and made.op != "reciprocal"


def _squared(kernel: KernelModule, made: Statement) -> Access | None:
    """Return the tile that a statement multiplies with itself."""
    pair = kernel.binary(made)
    if pair is None or pair.op != "multiply":
        return None
    one, other = made.reads.get(pair.left), made.reads.get(pair.right)
    return one if one is not None and other is not None and one.same_as(other) else None


def _activation(kernel: KernelModule, made: Statement) -> dict[str, str]:
    if made.op == "activation":
        names = ("op", "data", "bias", "scale")
        return {name: kernel.text(made.args[name]) for name in names if name in made.args}
    squared = _squared(kernel, made)
    if squared is not None:
        return {"op": f"{prefix(kernel, 'language')}.square", "data": kernel.text(squared.node)}
    if not _unary(made) or "x" not in made.args:
        return {}
    return {"op": f"{prefix(kernel, 'language')}.{made.op}", "data": kernel.text(made.args["x"])}


def _partitions(kernel: KernelModule, made: Statement) -> int | None:
    shape = kernel.tile_shape(made)
    return shape[0] if shape else None


RULE = ReduceInActivation()
