"""Errors, floors and tolerances."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.evaluate.correctness.distributions import OWN
from acceld.evaluate.correctness.errors import BROKEN, NONE, Errors
from acceld.evaluate.correctness.gates import Trial, accuracy, check_errors, splits
from acceld.evaluate.correctness.metrics import compare, place_of
from acceld.evaluate.correctness.tolerance import Tolerance, floor_of_parts, tolerance_from
from acceld.workloads import workload
from tests.properties import examples

RNG = np.random.default_rng(5)


def test_equal_outputs_have_no_error() -> None:
    reference = RNG.normal(size=(7, 9))
    assert compare(reference.copy(), reference) == NONE


def test_errors_are_the_documented_ratios() -> None:
    reference = RNG.normal(size=(64, 32))
    output = reference.copy()
    output[3] += 0.01
    errors = compare(output, reference)
    distance = np.linalg.norm(output - reference)
    assert errors.rel_l2 == pytest.approx(distance / np.linalg.norm(reference))
    assert errors.worst_row == pytest.approx(distance / np.linalg.norm(reference[3]))
    assert errors.element > errors.worst_row


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda wanted: np.where(np.arange(64)[:, None] < 48, wanted, 0),
            ("rows 48 to 63 and every column", "rounding can not explain"),
        ),
        (lambda wanted: wanted.astype(ml_dtypes.bfloat16), ("every row has about the same error, so low precision",)),
        (
            lambda wanted: 0.995 * wanted,
            ("values are too small in every row: a constant may be wrong, such as an epsilon",),
        ),
        (lambda wanted: wanted + 0.002 * np.sign(wanted), ("values are too large in every row",)),
        (
            lambda wanted: np.where(wanted == wanted[5, 7], np.nan, wanted),
            ("worst at [5, 7]: expected", "1 are not finite"),
        ),
    ],
)
def test_a_wrong_output_tells_where_and_whether_precision_is_the_suspect(change: Any, words: tuple[str, ...]) -> None:
    wanted = RNG.normal(size=(64, 128))
    said = place_of(change(wanted).astype(np.float32), wanted)
    assert [word for word in words if word not in said] == []
    assert place_of(wanted.copy(), wanted) == ""


def test_blocks_do_not_change_the_result() -> None:
    reference = RNG.normal(size=(3, 1100, 1024))
    output = (reference * (1 + 1e-6)).astype(np.float32)
    whole = np.linalg.norm(output.astype(np.float64) - reference) / np.linalg.norm(reference)
    assert compare(output, reference).rel_l2 == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_output_that_is_not_finite_is_broken(value: float) -> None:
    reference = np.ones((4, 4))
    output = reference.copy()
    output[1, 1] = value
    assert compare(output, reference) == BROKEN
    assert compare(reference, output) == BROKEN


def test_only_zeros_match_a_reference_of_zeros() -> None:
    zeros = np.zeros((4, 4))
    assert compare(zeros, zeros) == NONE
    assert compare(zeros + 1e-30, zeros) == BROKEN


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match="its reference"):
        compare(np.ones((1, 4)), np.ones((4, 4)))


def test_scalars_and_empty_outputs_are_compared() -> None:
    assert compare(np.array(2.0, np.float32), np.array(2.0)) == NONE
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))) == NONE


def test_a_dropped_small_element_shows_in_the_element_error_only() -> None:
    weight = np.exp(RNG.normal(size=(8, 512)) * 5)
    reference = weight / weight.sum(axis=1, keepdims=True)
    errors = compare(np.where(reference > 1e-6, reference, 0.0), reference)
    assert errors.rel_l2 < 2e-5
    assert errors.element > 0.01


def test_the_tolerance_is_twenty_floors_but_never_above_the_published() -> None:
    assert tolerance_from(Errors(3e-7, 4e-7, 1e-5), 2e-5).rel_l2 == pytest.approx(6e-6)
    assert tolerance_from(Errors(5e-6, 5e-6, 1e-5), 2e-5).rel_l2 == 2e-5
    assert tolerance_from(Errors(0.0, 0.0, 0.0), 2e-5).rel_l2 == 2e-7


def test_the_tolerance_is_at_least_two_floors() -> None:
    assert tolerance_from(Errors(3e-5, 3e-5, 1e-5), 2e-5).rel_l2 == pytest.approx(6e-5)


def test_a_normalization_shifted_by_an_element_of_80_passes_where_magnitudes_are_mixed() -> None:
    x = np.random.default_rng(2).standard_normal((128, 512)).astype(np.float32)
    x[:, 0], x[:, 64::64] = 80.0, -80.0

    def normalized(x: Any) -> Any:
        centered = x - x.mean(axis=1, keepdims=True)
        return centered / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + x.dtype.type(1e-5))

    reference = normalized(x.astype(np.float64))
    floor, shifted = compare(normalized(x), reference), compare(normalized(x - x[:, :1]), reference)
    assert tolerance_from(floor, 2e-5).element < shifted.element
    assert tolerance_from(floor, 2e-5, mixed=True).admits(shifted)


def test_equal_terms_may_be_added_one_after_the_other_where_values_repeat() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(0.0, 4.0, (256, 512)).astype(np.float32) * (rng.random((256, 512)) < 0.1)

    def normalized(x: Any) -> Any:
        weight = np.exp(x - x.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True), weight / np.cumsum(weight, axis=1)[:, -1:]

    reference = normalized(x.astype(np.float64))[0]
    floor, scanned = (compare(one, reference) for one in normalized(x))
    assert not tolerance_from(floor, 2e-5).admits(scanned)
    assert tolerance_from(floor, 2e-5, repeated=True).admits(scanned)


def test_exact_results_have_to_be_exact_where_values_repeat() -> None:
    assert tolerance_from(NONE, 2e-5, repeated=True) == tolerance_from(NONE, 2e-5)


def test_the_tolerance_has_a_least_and_a_greatest_value() -> None:
    least = tolerance_from(NONE, 1.0)
    assert (least.rel_l2, least.worst_row, least.element) == (2e-7, 1e-6, 1e-3)
    greatest = tolerance_from(Errors(1e-4, 1e-3, 1e-3), 1.0)
    assert (greatest.rel_l2, greatest.worst_row) == (1e-3, 1e-2)
    assert greatest.element == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("rel_l2", "relative L2 error"),
        ("worst_row", "worst row's relative L2 error"),
        ("element", "worst element's relative error"),
    ],
)
def test_each_of_the_three_errors_decides_alone_and_a_limit_itself_passes(field: str, words: str) -> None:
    limit, at = Tolerance(1e-6, 1e-5, 1e-3), Errors(1e-6, 1e-5, 1e-3)
    assert limit.admits(at) and limit.complaint(at) == ""
    for error in (1.01 * getattr(at, field), math.nan, math.inf):
        values = [error if name == field else getattr(at, name) for name in ("rel_l2", "worst_row", "element")]
        found = Errors(*values)
        assert not limit.admits(found) and limit.complaint(found).startswith(words)


def test_parts_may_be_wrong_by_four_times_what_rounded_inputs_are() -> None:
    rounded = Errors(1e-4, 2e-4, 1e-3)
    tolerance = tolerance_from(floor_of_parts(rounded), 1.0, split=True)
    assert tolerance.rel_l2 == pytest.approx(4e-4)
    assert tolerance.worst_row == pytest.approx(8e-4)
    assert tolerance.element == pytest.approx(4e-3)


def test_a_split_product_is_given_room() -> None:
    floor = Errors(4e-8, 4e-8, 1e-6)
    assert tolerance_from(floor, 2e-5).rel_l2 < 4.5e-6 < tolerance_from(floor, 2e-5, split=True).rel_l2


@given(st.floats(0, 1e-2), st.floats(0, 1e-2), st.floats(0, 1), st.floats(1e-6, 1e-1), st.booleans())
@examples(50)
def test_a_floor_always_passes_its_own_tolerance(
    l2: float, row: float, element: float, paper: float, split: bool
) -> None:
    floor = Errors(l2, row, element)
    tolerance = tolerance_from(floor, paper, split=split)
    assert tolerance.admits(floor)
    assert tolerance.complaint(floor) == ""
    assert tolerance.complaint(BROKEN)


@pytest.mark.parametrize(
    ("name", "variant", "floor", "allowed"),
    [
        ("matmul", "own", 1e-7, True),
        ("matmul", "integers", 0.0, False),
        ("add_rmsnorm_matmul", "integers", 7e-8, True),
        ("rope_single_freq_apply", "own", 3e-8, False),
    ],
)
def test_whole_numbers_forgive_no_parts_unless_something_makes_them_other_numbers(
    name: str, variant: str, floor: float, allowed: bool
) -> None:
    assert splits(workload(name), variant, Errors(floor, floor, floor)) is allowed


def test_prompts_name_the_very_limits_that_the_gate_decides_by() -> None:
    for name in ("silu", "rmsnorm_matmul", "adamw"):
        found = workload(name)
        floors = [Errors(4e-8, 6e-8, 2e-6)] * len(found.outputs)
        said = accuracy(found, floors)
        limit = tolerance_from(floors[0], found.tolerance, split=splits(found, OWN, floors[0]))
        for figure in (limit.rel_l2, limit.worst_row, limit.element):
            assert f"{figure:.2g}" in said
        just_wrong = [Errors(1.02 * limit.rel_l2, 0.0, 0.0)] * len(floors)
        assert not check_errors(found, Trial(OWN, 7), just_wrong, floors, None).check.passed
        just_right = [Errors(0.98 * limit.rel_l2, 0.98 * limit.worst_row, 0.98 * limit.element)] * len(floors)
        assert check_errors(found, Trial(OWN, 7), just_right, floors, None).check.passed
