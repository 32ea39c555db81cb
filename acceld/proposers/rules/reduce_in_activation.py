"""The sum over a tile that an activation just made comes out of the activation itself."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.model import Profile
from acceld.proposers.rules.building import operation, prefix
from acceld.proposers.rules.editing import Edits
from acceld.proposers.rules.reading import KernelModule
from acceld.proposers.rules.records import RuleRefused, Site, Variant
from acceld.proposers.rules.syntax import UNARY, Statement


class ReduceInActivation:
    """activation followed by a sum of its result: one activation_reduce."""

    name = "reduce_in_activation"
    reason = (
        "The scalar engine can add up what it writes in registers for about 64 cycles extra; a separate reduction "
        "reads the whole tile again on the vector engine."
    )
    source = "nki.isa.activation_reduce: cost max(MIN_II, N) + MIN_II; nki.isa.tensor_reduce: cost N"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "fusion"

    def sites(self, kernel: KernelModule, profile: Profile | None) -> Sequence[Site]:
        """One site for each activation whose result is summed over its free axis right after."""
        found = []
        busy = _vector_share(profile)
        for total in kernel.statements:
            made = _pair(kernel, total)
            if made is None:
                continue
            found.append(
                Site(
                    self.name,
                    total.line,
                    "the sum covers exactly what the activation writes, over its last axis, and nothing changes it in "
                    "between",
                    f"Line {made.line} writes a tile that line {total.line} adds up on the vector engine. Use "
                    "activation_reduce, which adds up while it writes; the vector engine's pass disappears.",
                    (Variant("activation_reduce"),),
                    0.35 * busy,
                    (2.0, 25.0),
                )
            )
        return found

    def apply(self, kernel: KernelModule, site: Site, variant: Variant) -> str:
        """One activation_reduce in place of both."""
        for total in kernel.statements:
            made = _pair(kernel, total) if total.line == site.line else None
            if made is None:
                continue
            assert total.target is not None
            edits = Edits(kernel.source)
            result = kernel.text(total.target.node)
            declaration = ""
            if total.target.dims is None and total.target.name not in kernel.buffers:
                language = prefix(kernel, "language")
                declaration = (
                    f"{result} = {language}.ndarray(({language}.par_dim({_partitions(kernel, made)}), 1), "
                    f"dtype={language}.float32, buffer={language}.sbuf)\n{made.indent}"
                )
            arguments = _activation(kernel, made)
            arguments |= {"reduce_op": f"{prefix(kernel, 'language')}.add", "reduce_res": result}
            edits.replace(made.start, made.end, declaration + operation(kernel, made, "activation_reduce", arguments))
            edits.delete_lines(total.start, total.end)
            return edits.apply()
        raise RuleRefused(f"line {site.line}: it does not add up what an activation wrote")


def _vector_share(profile: Profile | None) -> float:
    if profile is None or not profile.latency_us:
        return 0.5
    busy = [us for engine, us in profile.engines_us.items() if "vector" in engine.lower()]
    return min(1.0, sum(busy) / profile.latency_us)


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
    made = kernel.producer(total, data)
    if made is None or "reduce_op" in made.args or "reduce_res" in made.args:
        return None
    if made.op != "activation" and not _squares(made) and not (_unary(made) and kernel.api == "nki_legacy"):
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
    if any(s.target is not None and s.target.name in names for s in between if s.kind != "declaration"):
        return None
    if any(access.name in names for s in between for access in s.mentions):
        return None
    return made


def _unary(made: Statement) -> bool:
    return made.op in UNARY and made.op != "reciprocal"


def _squares(made: Statement) -> bool:
    """Whether a statement multiplies a tile with itself."""
    names = ("data1", "data2") if made.op == "tensor_tensor" else ("x", "y")
    one, other = made.reads.get(names[0]), made.reads.get(names[1])
    return made.op in ("multiply", "tensor_tensor") and one is not None and other is not None and one.same_as(other)


def _activation(kernel: KernelModule, made: Statement) -> dict[str, str]:
    if made.op == "activation":
        names = ("op", "data", "bias", "scale")
        return {name: kernel.text(made.args[name]) for name in names if name in made.args}
    if _squares(made):
        if made.op == "tensor_tensor" and kernel.opname(made.args.get("op")) != "multiply":
            return {}
        operand = made.args["data1" if made.op == "tensor_tensor" else "x"]
        return {"op": f"{prefix(kernel, 'language')}.square", "data": kernel.text(operand)}
    if "x" not in made.args:
        return {}
    return {"op": f"{prefix(kernel, 'language')}.{made.op}", "data": kernel.text(made.args["x"])}


def _partitions(kernel: KernelModule, made: Statement) -> int | None:
    shape = kernel.tile_shape(made)
    return shape[0] if shape else None


RULE = ReduceInActivation()
