"""Sums of affine expressions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acceld.nki.ir.program import Affine

TERMS = st.dictionaries(st.integers(0, 5), st.integers(-9, 9).filter(bool), max_size=4)
AFFINES = st.builds(lambda const, terms: Affine(const, tuple(sorted(terms.items()))), st.integers(-99, 99), TERMS)
VALUES = st.lists(st.integers(-5, 5), min_size=6, max_size=6)


@given(AFFINES, AFFINES, VALUES)
def test_a_sum_has_the_sum_of_both_values_in_sorted_terms_without_zeros(
    one: Affine, two: Affine, env: list[int]
) -> None:
    total = one + two
    values = dict(enumerate(env))
    assert total.at(values) == one.at(values) + two.at(values)
    assert list(total.terms) == sorted((loop, coef) for loop, coef in total.terms if coef)
