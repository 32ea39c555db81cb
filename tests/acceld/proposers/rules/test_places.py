"""Each rule keeps the results at its places, and leaves a kernel alone where it can not prove that."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import normalized
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import all_rules, rule_named
from acceld.proposers.rules.records import Rule, Site
from tests.acceld.proposers.rules.kernels import api_of, arrays, places_offered, places_refused, run
from tests.acceld.proposers.rules.places import PLACES, Example

_ALLOWED = 3e-5
"""Relative error in the L2 norm: that of products of bfloat16 parts."""
_NKI = frozenset({"nki", "nki_legacy"})
_IDS = [f"{one.rule} {number}" for number, one in enumerate(PLACES)]
_RUN = {name: one for name, one in zip(_IDS, PLACES, strict=True) if one.runs}
_FIRST = {(one.rule, api_of(one.source)): name for name, one in reversed(_RUN.items())}
"""An example of each rule in each API. Their kernels run in the suite, those of all examples under `make test-all`."""


def is_meant(place: Example, site: Site) -> bool:
    variants = " ".join(variant.name for variant in site.variants)
    return re.search(place.what, f"{site.line} {site.key} {variants} {site.plan}") is not None


def read(place: Example, change: Sequence[str] = ()) -> KernelModule:
    """Return an example's kernel after a change: replacements of texts, or other dtypes of the arguments."""
    source, dtypes = place.source, ["float32"] * len(place.shapes)
    if change in place.other_dtypes:
        dtypes = [*change]
    else:
        for old, new in zip(change[::2], change[1::2], strict=True):
            assert old in source, old
            source = source.replace(old, new)
    return KernelModule(source, Launch(api_of(place.source), tuple(place.shapes), tuple(dtypes)))


@pytest.mark.parametrize(
    "place",
    [
        one if name in _FIRST.values() else pytest.param(one, marks=pytest.mark.slow, id=name)
        for name, one in _RUN.items()
    ],
    ids=_RUN,
)
def test_every_variant_keeps_the_results(place: Example) -> None:
    kernel = KernelModule(normalized(place.source), read(place).launch)
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
    "place",
    [one for one in PLACES if one.stays or one.other_dtypes],
    ids=[i for i, p in zip(_IDS, PLACES, strict=True) if p.stays or p.other_dtypes],
)
def test_a_rule_leaves_alone_what_it_can_not_prove_and_says_why(place: Example) -> None:
    rule = rule_named(place.rule)
    assert any(is_meant(place, site) for site in places_offered(rule, read(place)))
    for change in (*place.stays, *place.other_dtypes):
        kernel = read(place, change)
        assert not [site for site in places_offered(rule, kernel) if is_meant(place, site)], change
        for site in places_refused(rule, kernel):
            assert says_what_to_change(site.obstacle), (
                f"{site.obstacle!r}: name the line, then say after a colon what to change, such as "
                "'line 20 also reads first: give that line a tile of its own'"
            )


def says_what_to_change(reason: str) -> bool:
    """Return True if a reason names a line, says what keeps it as it is, and after a colon the change that would let it."""
    start = re.match(r"lines? \d[\d, and]*:? ?", reason)
    rest = reason[start.end() if start else 0 :]
    named = (start is not None or re.search(r"\blines? \d+", rest) is not None) and not rest.startswith("line")
    return named and re.search(r"\w: \w+ \w", rest) is not None


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.apis & _NKI], ids=lambda rule: rule.name)
def test_every_rule_has_an_example_in_each_of_its_apis(rule: Rule) -> None:
    shown = {api_of(one.source) for one in PLACES if one.rule == rule.name}
    assert shown == rule.apis & _NKI, f"PLACES in places.py needs an Example({rule.name!r}, ...) for each API, no other"


@pytest.mark.parametrize("rule", [rule for rule in all_rules() if rule.apis & _NKI], ids=lambda rule: rule.name)
def test_a_rule_is_for_both_apis_or_says_why_not(rule: Rule) -> None:
    assert (rule.apis >= _NKI) != bool(rule.only), f'{rule.name}: only = "..." says why a rule is for one API alone'


def test_every_example_is_of_a_rule() -> None:
    unknown = {one.rule for one in PLACES} - {rule.name for rule in all_rules()}
    assert not unknown, f"add the modules of {unknown} to MODULES in acceld/proposers/rules/__init__.py"
