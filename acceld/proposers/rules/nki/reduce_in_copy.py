"""Let a copy, or a tensor_scalar of one operation, also reduce the tile that it writes.

Before, and after::

    nisa.tensor_copy(dst=tile, src=product)                     nisa.tensor_scalar_reduce(dst=tile, data=product,
    nisa.tensor_reduce(dst=peak, op=nl.maximum,                     op0=nl.multiply, operand0=1.0,
        data=tile, axis=1)                                          reduce_op=nl.maximum, reduce_res=peak)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.model import Profile
from acceld.nki.source.matching import keeps_float32
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import COPIES, Statement
from acceld.proposers.rules.nki.reductions import joined, made_before, obstacle, reduced
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Place, Rule, Variant

_OPERATORS = ("add", "maximum", "minimum")
_FLOATS = ("float32", "bfloat16", "float16")
_PLAIN = frozenset({"dst", "data", "op0", "operand0", "engine", "mask", "dtype"})
"""Arguments that a tensor_scalar may have if it applies one operation and does not reverse the operands."""


class ReduceInCopy(Rule):
    """Join a copy, or a tensor_scalar, and the reduction of its result into one tensor_scalar_reduce."""

    name = "reduce_in_copy"
    reason = (
        "The vector engine can reduce what it copies or scales in registers for about 64 cycles extra; a separate reduction "
        "reads the whole tile again. If the scalar engine copied, it then has time for other work."
    )
    source = "nki.isa.tensor_scalar_reduce: cost max(MIN_II, N) + MIN_II; nki.isa.tensor_reduce: cost N"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "fusion"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every copy and tensor_scalar whose result is reduced over its free axis, with the reason if it and the
        reduction can not be one instruction.
        """
        for whole in kernel.statements:
            data, op = reduced(kernel, whole) or (None, "")
            made = made_before(kernel, whole, data) if data is not None and op in _OPERATORS else None
            if made is None or data is None or not _arguments(kernel, made):
                continue
            yield self.answer(
                whole.line,
                obstacle(kernel, made, whole, data) or _rounded(kernel, made),
                f"Let line {made.line} reduce what it writes, and drop line {whole.line}",
                partial(_joined, kernel, made, whole, op),
                Variant("tensor_scalar_reduce"),
                precondition=f"the reduction covers exactly what line {made.line} writes in float32, over its last axis, and "
                "nothing changes it in between",
                plan=f"Line {made.line} writes a tile that line {whole.line} reduces on the vector engine. Use "
                "tensor_scalar_reduce, which reduces while it writes, so that the tile is not read again.",
                benefit=_benefit(profile),
                gain_percent=(-5.0, 25.0),
            )


def _benefit(profile: Profile | None) -> float:
    """Return the share of the latency (0 to 1) that the rewrite may save. The share is greater if the vector or the
    scalar engine is busy.
    """
    if profile is None or not profile.latency_us:
        return 0.1
    return 0.2 * min(1.0, max(busy_share(profile, "vector"), busy_share(profile, "scalar")))


def _arguments(kernel: KernelModule, made: Statement) -> dict[str, str]:
    """Return the arguments of the tensor_scalar_reduce that writes what ``made`` writes; {} if there is none."""
    if made.op in COPIES and "src" in made.reads:
        multiply = f"{prefix(kernel, 'language')}.multiply"
        return {"data": kernel.text(made.reads["src"].node), "op0": multiply, "operand0": "1.0"}
    if made.op != "tensor_scalar" or not {"data", "op0", "operand0"} <= made.args.keys() <= _PLAIN:
        return {}
    return {name: kernel.text(made.args[name]) for name in ("data", "op0", "operand0")}


def _rounded(kernel: KernelModule, made: Statement) -> str:
    """Return the reason why the rewrite could change results; empty if it could not.

    Two changes are possible: multiplying in float32 changes the values that ``made`` writes, or reducing these values
    gives another result.
    """
    source = made.reads.get("src") or made.reads["data"]
    dtype, in_psum = kernel.dtype_of(source.name), kernel.space_of(source.name) == "psum"
    if dtype not in _FLOATS and not (in_psum and not dtype):  # a product is float32 if no type is declared
        return f"line {made.line} reads {source.name}, which may not be of a floating-point type: declare its type"
    return keeps_float32(kernel, made)


def _joined(kernel: KernelModule, made: Statement, whole: Statement, op: str, _: Variant) -> str:
    """Return the source with one tensor_scalar_reduce in place of both statements."""
    return joined(kernel, made, whole, "tensor_scalar_reduce", _arguments(kernel, made), op)


RULE = ReduceInCopy()
