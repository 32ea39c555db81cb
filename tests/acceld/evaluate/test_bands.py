"""Bands of hard inputs: their positions, their values, and those that decide nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from acceld.evaluate.correctness.bands import Piece, banded_inputs, banded_variants, is_banded, pieces_of
from acceld.evaluate.correctness.distributions import OWN, inputs_of
from acceld.evaluate.correctness.errors import BROKEN, NONE, Errors
from acceld.evaluate.correctness.gates import Trial, check_errors
from acceld.evaluate.correctness.metrics import compare_pieces
from acceld.evaluate.correctness.oracle import floors_of
from acceld.workloads import load_workload, make_inputs, reference_outputs, workload

SUITE = "tests/adversarial/workloads"
SILU, SOFTMAX = load_workload(f"{SUITE}/st_silu"), load_workload(f"{SUITE}/st_product_softmax")


def test_each_argument_goes_through_the_bands_along_an_axis_that_an_output_has() -> None:
    assert banded_variants(workload("matmul")) == ["banded/M", "banded/N"]
    assert banded_variants(workload("adamw")) == ["banded/M"], "one data set for all four arguments"
    assert banded_variants(workload("gqa_full")) == ["banded/N"], "no other axis has room for all bands"
    assert banded_variants(replace(SILU, sample=SILU.folder / "x.npz")) == [], "recorded inputs stay as they are"


@pytest.mark.parametrize("name", ["matmul", "mamba", "bmm_softmax", "gqa_full", "swiglu"])
def test_every_index_of_the_axis_belongs_to_one_band_and_the_seed_moves_them(name: str) -> None:
    loaded = workload(name)
    for variant in banded_variants(loaded):
        first, second = (pieces_of(loaded, variant, seed) for seed in (1, 2))
        assert [piece.band for piece in first] == [piece.band for piece in second] and first != second
        extent = loaded.outputs[0].shape[first[0].axis]
        seen = np.zeros(extent, int)
        for piece in first:
            seen[piece.start :: piece.step] += 1
        assert (seen == 1).all()


def test_what_a_band_holds_and_that_other_arguments_stay() -> None:
    own = make_inputs(SOFTMAX, 3)
    a, b = banded_inputs(SOFTMAX, own, "banded/M", 3)
    assert b is own[1], "its turn comes along N"
    rows = {piece.band: piece.of(a) for piece in pieces_of(SOFTMAX, "banded/M", 3)}
    was = {piece.band: piece.of(own[0]) for piece in pieces_of(SOFTMAX, "banded/M", 3)}
    np.testing.assert_array_equal(rows["tiny"], was["tiny"] * np.float32(1e-10))
    np.testing.assert_allclose(rows["offset-1000"] - was["offset-1000"], 1000, rtol=0.05)
    np.testing.assert_allclose(rows["below-100"] - was["below-100"], -100, rtol=0.05)
    assert (rows["below-1000"] < -900).all(), "no sample around zero has a row of one sign"
    assert 0.8 < (rows["zeros"] == 0).mean() < 1
    logits = rows["aligned"] @ b
    greatest = logits.argmax(axis=1)
    assert len(rows["aligned"]) == 64 and len(set(greatest // 8)) > 48, "the greatest of a row may be in any column"


def test_an_argument_that_is_never_negative_stays_so() -> None:
    step = load_workload(f"{SUITE}/st_adamw")
    own = make_inputs(step, 3)
    *_, m, v = banded_inputs(step, own, "banded/M", 3)
    below = next(piece for piece in pieces_of(step, "banded/M", 3) if piece.band == "below-100")
    assert (below.of(m) < -90).all() and (v >= 0).all()
    np.testing.assert_array_equal(below.of(v), below.of(own[3]))


def test_a_band_where_rounding_or_overflow_decides_tells_nothing() -> None:
    scan = load_workload(f"{SUITE}/st_scan")
    inputs = inputs_of(scan, 1, "banded/C")
    with np.errstate(all="ignore"):
        expected = [np.asarray(one, np.float64) for one in reference_outputs(scan, inputs)]
        trial = {"variant": "banded/C", "seed": 1}
        floors = floors_of(scan, partial(reference_outputs, scan), inputs, expected, trial, split=False)
    assert not isinstance(floors, str)
    found = {piece.band: floor for piece, floor in zip(pieces_of(scan, "banded/C", 1), floors, strict=True)}
    assert found["huge"] == BROKEN and found["tiny"].finite and found["tiny-u"].finite
    blind = [BROKEN if floor == BROKEN else NONE for floor in floors]
    assert check_errors(scan, Trial("banded/C", 1), blind, floors, None).check.passed
    wrong = check_errors(scan, Trial("banded/C", 1), [BROKEN] * len(floors), floors, None)
    assert not wrong.check.passed and "band aligned" in wrong.check.detail


def test_a_candidate_need_not_be_better_in_a_band_than_the_workloads_own_kernel() -> None:
    count = len(pieces_of(SILU, "banded/M", 1))
    errors, floors = [Errors(0.5, 0.5, 0.5)] * count, [Errors(1e-8, 1e-8, 1e-8)] * count
    assert not check_errors(SILU, Trial("banded/M", 1), errors, floors, None).check.passed
    assert check_errors(SILU, Trial("banded/M", 1), errors, floors, errors).check.passed


def test_a_band_of_a_kernel_with_two_outputs_is_named() -> None:
    (output,) = SILU.outputs
    two = replace(SILU, outputs=(output, replace(output, name="other")))
    count = len(pieces_of(two, "banded/M", 1))
    errors, floors = [Errors(0.5, 0.5, 0.5)] * count, [Errors(1e-8, 1e-8, 1e-8)] * count
    errors[:-1] = floors[:-1]
    assert (
        pieces_of(two, "banded/M", 1)[-1].name
        in check_errors(two, Trial("banded/M", 1), errors, floors, None).check.detail
    )


def test_where_a_workload_says_so_what_is_not_a_number_stays_so() -> None:
    silu = replace(SILU, nan=True)
    (x,) = inputs_of(silu, 4, "banded/M")
    pieces = pieces_of(silu, "banded/M", 4)
    assert "nan" in {piece.band for piece in pieces} and "nan" not in {
        piece.band for piece in pieces_of(SILU, "banded/M", 4)
    }
    with np.errstate(all="ignore"):
        right = [np.asarray(one, np.float64) for one in reference_outputs(silu, [x])]
    (nan,) = (piece for piece in pieces if piece.band == "nan")
    assert np.isnan(nan.of(x)).any() and np.isnan(x).sum() == np.isnan(nan.of(x)).sum()
    assert compare_pieces(right, right, [nan]) == [NONE]
    assert compare_pieces([np.nan_to_num(right[0])], right, [nan]) == [BROKEN]


def test_an_ordinary_variant_is_measured_output_by_output() -> None:
    assert not is_banded(OWN) and pieces_of(SILU, OWN, 1) == [Piece(0)]
