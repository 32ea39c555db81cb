"""Copies and element-wise work move from the busier of two engines to the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.model import Profile
from acceld.proposers.rules.nki.source.building import operation, prefix, replaced
from acceld.proposers.rules.nki.source.reading import KernelModule
from acceld.proposers.rules.nki.source.syntax import Statement
from acceld.proposers.rules.profiles import busy_share
from acceld.proposers.rules.records import Finding, Rule, Variant


class PlaceEngine(Rule):
    """Copies out of PSUM on the vector engine or on the scalar engine, by what is busier."""

    name = "place_engine"
    reason = (
        "Vector and scalar engine run side by side. A copy costs one cycle an element on either (1.12 and 1.4 GHz on "
        "trn1), so it belongs on the one that has time."
    )
    source = "nki.isa.tensor_copy: cost max(MIN_II, N) on Vector, Scalar or GpSimd; GpSimd can not reach PSUM"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "engine"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """All copies whose engine is open, where both engines are used."""
        copies = _copies(kernel)
        if not copies:
            return
        vector, scalar = busy_share(profile, "vector"), busy_share(profile, "scalar")
        idle, busy = ("scalar", "vector") if vector > scalar else ("vector", "scalar")
        yield self.found(
            copies[0].line,
            partial(_placed, kernel, copies),
            Variant(idle),
            Variant(busy),
            precondition="a copy gives the same bits on either engine, and the tiles are where both can reach them",
            plan=f"{len(copies)} copies leave their engine to the compiler. Put them on the {idle} engine, which is the "
            "less busy one.",
            benefit=0.15 * min(1.0, abs(vector - scalar)) + 0.02,
            gain_percent=(0.0, 10.0),
        )


def _placed(kernel: KernelModule, copies: Sequence[Statement], variant: Variant) -> str:
    isa = prefix(kernel, "isa")
    engine = f"{isa}.engine.{variant.name}" if kernel.api == "nki" else f"{isa}.{variant.name}_engine"
    changed = {
        copy: operation(kernel, copy, "tensor_copy", {"src": kernel.text(copy.args["src"]), "engine": engine})
        for copy in copies
    }
    return replaced(kernel, [], changed)


def _copies(kernel: KernelModule) -> list[Statement]:
    return [
        statement
        for statement in kernel.statements
        if statement.kind == "op"
        and statement.op in ("copy", "tensor_copy")
        and not statement.augmented
        and "engine" not in statement.args
        and "src" in statement.reads
        and kernel.space_of(statement.reads["src"].name) in ("psum", "sbuf")
    ]


RULE = PlaceEngine()
