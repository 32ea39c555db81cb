"""Small kernels and what tests do with them: apply a rule, trace, verify and execute before and after."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from acceld.model import Profile
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.ir.program import Program
from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from acceld.nki.verify.verifier import verify
from acceld.proposers.rules import rule_named
from acceld.proposers.rules.records import Parsed, Rule, Site, Variant

Array = npt.NDArray[np.float32]

LEGACY = """import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel({parameters}):
{body}
"""
CURRENT = LEGACY.replace("neuronxcc.nki as nki", "nki").replace("neuronxcc.", "")


def legacy(parameters: str, body: str) -> str:
    """Return a kernel for the legacy API with ``body`` (indented as given)."""
    return LEGACY.format(parameters=parameters, body=body.strip("\n"))


def current(parameters: str, body: str) -> str:
    """Return a kernel for the current API."""
    return CURRENT.format(parameters=parameters, body=body.strip("\n"))


def sites(rule: str, source: str, shapes: Sequence[tuple[int, ...]], profile: Profile | None = None) -> list[Site]:
    """Return the places where ``rule`` applies in ``source``."""
    return places_offered(rule_named(rule), KernelModule(source, Launch(api_of(source), tuple(shapes))), profile)


def places_offered(rule: Rule, kernel: Parsed, profile: Profile | None = None) -> list[Site]:
    """Return the places in ``kernel`` where the rule applies."""
    return [one.site for one in rule.find(kernel, profile) if one.rewrite is not None]


def places_refused(rule: Rule, kernel: Parsed) -> list[Site]:
    """Return the places in ``kernel`` at which the rule refuses."""
    return [one.site for one in rule.find(kernel, None) if one.rewrite is None]


def applied(rule: str, source: str, shapes: Sequence[tuple[int, ...]], site: int = 0, variant: int = 0) -> str:
    """Return ``source`` after one variant of one site."""
    found = sites(rule, source, shapes)
    kernel = KernelModule(source, Launch(api_of(source), tuple(shapes)))
    chosen = found[site]
    return rule_named(rule).apply(kernel, chosen, chosen.variants[variant])


def apply_at(
    rule: str,
    source: str,
    line: int,
    variant: Variant,
    key: str = "",
    shapes: Sequence[tuple[int, ...]] = (),
) -> str:
    """Apply a rule at a place that it does not offer; raises RuleRefused."""
    return rule_named(rule).apply(
        KernelModule(source, Launch(api_of(source), tuple(shapes))),
        Site(rule, line, "", "", (variant,), key=key),
        variant,
    )


def line_of(source: str, text: str) -> int:
    """Return the first line that contains ``text``, from 1."""
    return 1 + source[: source.index(text)].count("\n")


def api_of(source: str) -> str:
    return "nki_legacy" if "neuronxcc" in source else "nki"


@lru_cache(maxsize=4)
def legal(source: str, specs: tuple[TensorSpec, ...], chip: str) -> Program:
    """Return the kernel's program; fail if the kernel is not legal. Callers run the newest programs more than once."""
    program = trace(source, specs, api=api_of(source), chip=chip)
    assert verify(program) == ()
    return program


def run(source: str, *inputs: Array, shuffle: int | None = None, chip: str = "") -> Array:
    """Return the kernel's first output; fail if the kernel is not legal. Without ``chip``, run on the API's first
    chip.
    """
    specs = tuple(TensorSpec(array.shape, array.dtype.name) for array in inputs)
    program = legal(source, specs, chip or ("trn1" if api_of(source) == "nki_legacy" else "trn2"))
    return execute(program, inputs, ExecuteOptions(shuffle_affine=shuffle))[0]


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[Array]:
    """Return normal float32 arrays."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def assert_same(before: str, after: str, *inputs: Array) -> None:
    """Check that both kernels give the same values, also with parallel loops in another order."""
    assert before != after
    expected = run(before, *inputs)
    for shuffle in (None, 3):
        np.testing.assert_allclose(run(after, *inputs, shuffle=shuffle), expected, rtol=2e-5, atol=2e-6)
