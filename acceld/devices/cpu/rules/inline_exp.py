"""Replace expf and tanhf by inline polynomials, so that the compiler can vectorize the loop that calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.devices.cpu.rules.reading import CModule
from acceld.devices.cpu.rules.syntax import expressions
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_EXP = """\
/* exp(x) in float32 to about 1e-7: 2^n times a polynomial of the rest, after Cody and Waite. */
static inline float acceld_expf(float x)
{
    const float bounded = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float n = (bounded * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.98756912e-4f;
    p = p * r + 1.39819994e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 5.0e-1f;
    p = p * r * r + r + 1.0f;
    const int bits = ((int)n + 127) << 23;
    float scale;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : p * scale;
}
"""
_TANH = """\
/* tanh(x) by exp(-2|x|), and by its series where that would cancel. */
static inline float acceld_tanhf(float x)
{
    const float size = x < 0.0f ? -x : x;
    const float e = acceld_expf(-2.0f * size);
    const float far = (1.0f - e) / (1.0f + e);
    const float y = x * x;
    const float near = size * (1.0f + y * (-3.33333313e-1f + y * (1.33314028e-1f + y * (-5.37397154e-2f + y * (2.06390887e-2f - y * 5.70498872e-3f)))));
    const float found = size < 0.625f ? near : far;
    return x < 0.0f ? -found : found;
}
"""
_HELPERS = {"expf": _EXP, "tanhf": _TANH}


class InlineExp(Rule):
    """Replace calls of expf and tanhf by functions that the compiler can inline."""

    name = "inline_exp"
    reason = (
        "A call of the C library computes one element and keeps its loop from being vectorized; the same function as "
        "arithmetic on registers computes a vector."
    )
    source = "Cody and Waite, Software Manual for the Elementary Functions; Moshier, Cephes (expf, tanhf)"
    apis = frozenset({"c"})
    change_class = "mixed"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield one place for all calls of expf and tanhf inside of loops."""
        called = _called(kernel)
        if called:
            yield self.found(
                kernel.loops[0].line,
                partial(_inlined, kernel, called),
                Variant("polynomial"),
                precondition="the polynomials are within a few units in the last place wherever exp is a normal float32",
                plan=f"Replace {' and '.join(called)} by inline arithmetic.",
                benefit=0.85,
                gain_percent=(20.0, 85.0),
            )


def _inlined(kernel: CModule, called: Sequence[str], _: Variant) -> str:
    """Return the source in which the calls of ``called`` are calls of inline functions.

    The inline functions are written before the first function of the source.
    """
    edits = Edits(kernel.source)
    for one in kernel.identifiers:
        name = kernel.source[one.start_byte : one.end_byte]
        if name in called and one.parent is not None and one.parent.type == "call_expression":
            edits.replace(one.start_byte, one.end_byte, f"acceld_{name}")
    wanted = ["expf", *(name for name in called if name != "expf")]
    helpers = [_HELPERS[name] for name in wanted if f"acceld_{name}(float" not in kernel.source]
    edits.insert(kernel.functions[0].start, "\n".join(helpers) + "\n")
    return edits.apply()


def _called(kernel: CModule) -> list[str]:
    found = {
        part.op
        for function in kernel.functions
        if not function.name.startswith("acceld_")
        for expr in expressions(function.body)
        for part in expr.walk()
        if part.kind == "call" and part.op in _HELPERS
    }
    return sorted(found) if kernel.loops else []


RULE = InlineExp()
