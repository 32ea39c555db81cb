"""Each rule keeps the results at its places, and leaves a kernel alone where it can not prove that."""

from __future__ import annotations

import re

import numpy as np
import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import all_rules, rule_named
from acceld.proposers.rules.records import Site
from tests.acceld.proposers.rules.kernels import api_of, arrays, places_offered, places_refused, run
from tests.acceld.proposers.rules.places import PLACES, Example

_ALLOWED = 3e-5
"""Relative error in the L2 norm: that of products of bfloat16 parts."""
_IDS = [f"{one.rule} {number}" for number, one in enumerate(PLACES)]


def is_meant(place: Example, site: Site) -> bool:
    variants = " ".join(variant.name for variant in site.variants)
    return re.search(place.what, f"{site.line} {site.key} {variants} {site.plan}") is not None


@pytest.mark.parametrize(
    "place", [one for one in PLACES if one.runs], ids=[i for i, p in zip(_IDS, PLACES, strict=True) if p.runs]
)
def test_every_variant_keeps_the_results(place: Example) -> None:
    kernel = KernelModule(place.source, api_of(place.source), place.shapes)
    inputs = [one * np.float32(place.scale) for one in arrays(*place.shapes)]
    inputs = [np.abs(one) + np.float32(0.1) for one in inputs] if place.positive else inputs
    expected = run(place.source, *inputs)
    found = [one for one in rule_named(place.rule).find(kernel, None) if one.rewrite and is_meant(place, one.site)]
    assert found
    for one in found:
        for variant in one.site.variants:
            text = one.rewrite(variant) if one.rewrite else ""
            for shuffle in (None, 3):
                distance = np.linalg.norm(run(text, *inputs, shuffle=shuffle) - expected)
                assert text != place.source and distance < _ALLOWED * np.linalg.norm(expected), variant


@pytest.mark.parametrize(
    "place", [one for one in PLACES if one.stays], ids=[i for i, p in zip(_IDS, PLACES, strict=True) if p.stays]
)
def test_a_rule_leaves_alone_what_it_can_not_prove_and_says_why(place: Example) -> None:
    rule, api = rule_named(place.rule), api_of(place.source)
    assert any(is_meant(place, site) for site in places_offered(rule, KernelModule(place.source, api, place.shapes)))
    for replacements in place.stays:
        changed = place.source
        for old, new in zip(replacements[::2], replacements[1::2], strict=True):
            assert old in changed, old
            changed = changed.replace(old, new)
        kernel = KernelModule(changed, api, place.shapes)
        assert not [site for site in places_offered(rule, kernel) if is_meant(place, site)], replacements
        for site in places_refused(rule, kernel):
            assert says_what_to_change(site.precondition), site.precondition


def says_what_to_change(reason: str) -> bool:
    """Return True if a reason names a line, says what keeps it as it is, and after a colon the change that would let it."""
    start = re.match(r"lines? \d[\d, and]*:? ?", reason)
    rest = reason[start.end() if start else 0 :]
    named = (start is not None or re.search(r"\blines? \d+", rest) is not None) and not rest.startswith("line")
    return named and re.search(r"\w: \w+ \w", rest) is not None


def test_every_rule_has_an_example_in_each_of_its_apis() -> None:
    both = {"nki", "nki_legacy"}
    rules = {(rule.name, api) for rule in all_rules() for api in rule.apis & both}
    assert rules == {(one.rule, api_of(one.source)) for one in PLACES}


def test_a_rule_is_for_both_apis_or_says_why_not() -> None:
    both = {"nki", "nki_legacy"}
    for rule in (one for one in all_rules() if one.apis & both):
        assert (rule.apis >= both) != bool(rule.only), rule.name
