"""Let an activation also compute the sum of the tile that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.matching import maker, one_name, same_mask
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import operation, prefix
from acceld.nki.source.syntax import UNARY, Access, Statement, accesses
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
            made = _made_before(kernel, total)
            if made is not None:
                yield self.answer(
                    total.line,
                    _obstacle(kernel, made, total),
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
    edits = Edits(kernel.source)
    language, result, declaration = prefix(kernel, "language"), kernel.text(total.made.node), ""
    if total.made.dims is None and total.made.name not in kernel.buffers:
        declaration = (
            f"{result} = {language}.ndarray(({language}.par_dim({_partitions(kernel, made)}), 1), "
            f"dtype={language}.float32, buffer={language}.sbuf)\n{made.indent}"
        )
    declared = kernel.declaration(total.made.name)
    if declared is not None and declared.start > made.start:
        declaration = f"{kernel.source[declared.start : declared.end]}\n{made.indent}"
        edits.delete_lines(declared.start, declared.end)
    arguments = _activation(kernel, made) | {"reduce_op": f"{language}.add", "reduce_res": result}
    edits.replace(made.start, made.end, declaration + operation(kernel, made, "activation_reduce", arguments))
    edits.delete_lines(total.start, total.end)
    return edits.apply()


def _summed(kernel: KernelModule, total: Statement) -> Access | None:
    """Return the tile whose columns a statement adds up; None for other statements."""
    if total.kind != "op" or total.augmented or total.target is None:
        return None
    if total.op == "tensor_reduce":
        plain = kernel.text_of(total, "negate") in ("", "False")
        data = total.reads.get("data") if kernel.opname(total.args.get("op")) == "add" and plain else None
    else:
        data = total.reads.get("x") if total.op == "sum" else None
    if data is None or not kernel.folds_columns(total):
        return None
    return None if len(kernel.extents(data) or ()) > 2 else data


def _made_before(kernel: KernelModule, total: Statement) -> Statement | None:
    """Return the activation whose result the statement ``total`` adds up; None for other statements."""
    data = _summed(kernel, total)
    writers = kernel.writers(data.name) if data is not None else []
    made = max((one for one in writers if one.start < total.start), key=lambda one: one.start, default=None)
    if made is None or made.kind != "op" or made.augmented or {"reduce_op", "reduce_res"} & made.args.keys():
        return None
    return made if _activation(kernel, made) else None


def _obstacle(kernel: KernelModule, made: Statement, total: Statement) -> str:
    """Return the reason why the activation can not compute the sum; empty if it can."""
    data = _summed(kernel, total)
    assert data is not None and total.target is not None
    found = maker(kernel, total, data)
    if isinstance(found, str):
        return found
    name = total.target.name
    reasons = [one_name(kernel, [name]), same_mask(kernel, made, total)]
    if name in kernel.buffers:
        declared = kernel.buffers[name].declaration
        if declared.start > made.start and declared.parent is not made.parent:
            reasons.append(f"line {declared.line} declares {name} after line {made.line}: declare it before")
    elif _partitions(kernel, made) is None:
        reasons.append(f"line {total.line}: the shape of {data.name} is not known: declare it by numbers")
    between = [one for one in kernel.statements if made.start < one.start < total.start and one.kind != "declaration"]
    users = [one for one in between if any(access.name == name for access in accesses(one))]
    if users:
        reasons.append(
            f"line {users[0].line} uses {name} between lines {made.line} and {total.line}: use another tile there"
        )
    return next(filter(None, reasons), "")


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


def _partitions(kernel: KernelModule, made: Statement) -> int | None:
    shape = kernel.tile_shape(made)
    return shape[0] if shape else None


RULE = ReduceInActivation()
