"""A rule that does not change a place it knows says which line keeps it, in words of the kernel."""

from __future__ import annotations

import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import api_of
from tests.acceld.proposers.rules.test_rules import (
    FOLDS,
    FROM_PSUM,
    FROM_PSUM_SHAPES,
    QUOTIENT,
    SILU,
    SUM,
    TILE,
)

CASES = [
    (
        "consume_psum",
        FROM_PSUM,
        "nl.multiply(copied, y_tile)",
        "nl.multiply(copied, product)",
        "reads product, which is",
    ),
    ("consume_psum", FROM_PSUM, "copy(product)", "copy(product, dtype=nl.bfloat16)", "rounds to nl.bfloat16"),
    ("consume_psum", FROM_PSUM, "copied, y_tile)", "copied, y_tile, mask=f < 100)", "different masks: give both the"),
    ("consume_psum", FROM_PSUM, "    result =", "    view = copied\n    result =", ""),  # no reader is understood
    ("reduce_in_activation", SUM, "data=power, axis=[1]", "data=power, axis=[1], mask=p < 100", "different masks"),
    (
        *("reduce_in_activation", SUM, "    total =", "    power[p, f] = nl.add(power, 1.0)\n    total ="),
        "",
    ),  # what is added up is no activation any more
    ("reduce_in_activation", SUM, "    total =", "    other = power\n    total =", "may give power another name"),
    ("fold_scalars", QUOTIENT, "nl.multiply(x_tile, inverse)", "nl.multiply(x_tile, inverse, mask=f < 9)", "different"),
    (
        *("fold_scalars", QUOTIENT, "    result =", "    power[p, f] = nl.add(power, 1.0)\n    result ="),
        "changes power before line",
    ),
    ("fold_scalars", FOLDS, "nl.subtract(more, small)", "nl.subtract(more, twice)", "reads twice too"),
    ("fold_scalars", FOLDS, "operand0=2.0)", "operand0=2.0, dtype=nl.bfloat16)", "rounds to nl.bfloat16"),
    (
        *("composite_activation", SILU, "    y_tile =", "    other = nl.add(total, 1.0)\n    y_tile ="),
        "reads total too",
    ),
    (
        *("composite_activation", SILU, "    sigmoid =", "    x_tile[p, f] = nl.add(x_tile, 1.0)\n    sigmoid ="),
        "changes x_tile before line",
    ),
]


@pytest.mark.parametrize(
    ("rule", "source", "old", "new", "reason"), CASES, ids=[f"{rule} {new}" for rule, _, _, new, _ in CASES]
)
def test_a_place_that_is_not_changed_has_its_reason(rule: str, source: str, old: str, new: str, reason: str) -> None:
    changed = source.replace(old, new, 1)
    assert changed != source
    shapes = FROM_PSUM_SHAPES if source is FROM_PSUM else [TILE, TILE]
    before = rule_named(rule).refusals(KernelModule(source, api_of(source), shapes))
    found = rule_named(rule).refusals(KernelModule(changed, api_of(changed), shapes))
    said = [one.precondition for one in found if one.precondition not in {site.precondition for site in before}]
    assert any(reason in one for one in said) if reason else not said, said
    for site in found:
        assert "What keeps it: " in site.plan and "line" in site.precondition
