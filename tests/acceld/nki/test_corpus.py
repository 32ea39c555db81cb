"""Every kernel of the legality corpus: legal ones pass, others are refused by the named rule at the marked line."""

from __future__ import annotations

import pytest

from tests.acceld.nki.corpus import CURRENT, LEGACY, outcomes


@pytest.mark.parametrize("api", ["nki_legacy", "nki"])
def test_the_corpus_has_the_expected_outcomes(api: str) -> None:
    wrong = [
        f"{'legal' if one.legal else one.pair.rule}: found {one.found or 'nothing'} at line {one.line}, "
        f"wanted {one.wanted_line}: {one.pair.legal if one.legal else one.pair.refused} ({one.message})"
        for one in outcomes(api)
        if not one.right
    ]
    assert wrong == []


def test_the_corpus_is_large_and_covers_many_rules() -> None:
    for pairs in (LEGACY, CURRENT):
        assert len({pair.legal for pair in pairs}) >= 45
        assert len({pair.refused for pair in pairs}) >= 50
        assert len({pair.rule for pair in pairs}) >= 25
