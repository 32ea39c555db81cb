"""A rewrite rule for beads: adding a number to itself is a shift."""

from acceld.proposers.rules.records import Rule, Variant


class DoubleByShift(Rule):
    """``x + x`` becomes ``x << 1``."""

    name = "double_by_shift"
    reason = "A shift moves every bead of a rod at once, where an addition moves them one after the other."
    source = "any handbook of the abacus"
    apis = frozenset({"beads"})
    change_class = "mixed"

    def find(self, kernel, profile):
        """Find the first sum of a number with itself."""
        if "x + x" in kernel:
            yield self.found(
                1 + kernel[: kernel.index("x + x")].count("\n"),
                lambda variant: kernel.replace("x + x", "x << 1", 1),
                Variant("shift"),
                precondition="both operands are the same name",
                plan="Shift instead of adding",
                benefit=0.5,
                gain_percent=(1.0, 5.0),
            )


RULE = DoubleByShift()
