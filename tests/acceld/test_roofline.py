"""Least times from declared work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from acceld.roofline import attainable_us, floor_of, floor_us, percent_of_attainable, percent_of_peak, roofline_us
from acceld.workloads import DeclaredWork, find_workloads, workload


@dataclass(frozen=True)
class Case:
    work: DeclaredWork | None
    dtype: str = "float32"
    precision: str = "fp32_strict"
    tolerance: float = 2e-5


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("rope_single_freq_apply", 21.1),
        ("mamba", 28.4),
        ("gqa_full", 30.3),
        ("bmm_softmax", 39.0),
        ("silu", 40.0),
        ("adamw", 50.9),
        ("matmul_add_rmsnorm", 54.3),
        ("bmm", 54.6),
        ("add_rmsnorm_matmul", 59.2),
        ("matmul", 61.6),
        ("rmsnorm_matmul", 68.5),
        ("lora", 74.5),
        ("swiglu", 77.1),
        ("transpose_matmul", 80.4),
    ],
)
def test_percent_of_peak_of_the_published_baselines_is_the_papers(name: str, percent: float) -> None:
    one = workload(name)
    baseline = next(anchor for anchor in one.anchors if anchor.what == "published baseline")
    assert percent_of_peak(one, baseline.latency_us, "trn1") == pytest.approx(percent, abs=0.1)


def test_the_floor_lies_below_every_anchor_and_below_the_attainable() -> None:
    for one in find_workloads().values():
        for chip in ("trn1", "trn2", "trn3"):
            floor, attainable = floor_us(one, chip), attainable_us(one, chip)
            if floor is None or attainable is None:
                continue
            assert floor <= attainable * 1.0001, (one.name, chip)
            for anchor in one.anchors:
                assert anchor.chip != chip or floor < anchor.latency_us


def test_nothing_is_guessed_without_work_or_figures() -> None:
    unknown = Case(None)
    assert roofline_us(unknown, "trn1") is None and floor_us(unknown, "trn1") is None
    assert attainable_us(unknown, "trn1") is None and percent_of_peak(unknown, 10.0, "trn1") is None
    known = Case(DeclaredWork(0, 0, 1000))
    assert roofline_us(known, "h100") is None and floor_us(known, "h100") is None
    assert percent_of_attainable(known, 10.0, "h100") is None
    assert attainable_us(Case(DeclaredWork(0, 1, 1), dtype="int8"), "trn1") is None


def test_bytes_bound_work_takes_bytes_over_the_practical_rate() -> None:
    assert attainable_us(Case(DeclaredWork(0, 0, 302_000_000)), "trn1") == pytest.approx(1000)
    assert roofline_us(Case(DeclaredWork(0, 0, 410 * 2**30)), "trn1") == pytest.approx(1e6)


def test_a_split_product_may_be_faster_than_a_strict_one_but_not_than_a_narrow_one() -> None:
    work = DeclaredWork(0, 10**12, 1)
    strict, split = floor_us(Case(work), "trn1"), floor_us(Case(work, precision="split_ok"), "trn1")
    narrow = floor_us(Case(work, precision="any_within_tolerance", tolerance=4e-3), "trn1")
    tight = floor_us(Case(work, precision="any_within_tolerance"), "trn1")
    half = floor_us(Case(work, dtype="bfloat16"), "trn1")
    assert strict and split and narrow and half
    assert strict == pytest.approx(4 * narrow) and split == pytest.approx(3 * narrow) == tight and half == narrow


def test_eight_bit_products_have_the_floor_of_their_rate_only_where_they_are_declared_or_tolerated() -> None:
    product = DeclaredWork(0, 2 * 4096**3, 1)
    wide = floor_us(Case(product, "bfloat16", "any_within_tolerance", 4e-3), "trn2")
    assert wide is not None
    for chip, faster in (("trn2", 2), ("trn3", 4)):
        for case in (Case(product, "float8_e4m3"), Case(product, "bfloat16", "any_within_tolerance", 5e-2)):
            assert floor_us(case, chip) == pytest.approx(wide / faster)
    assert floor_us(Case(product, "float8_e4m3"), "trn1") == floor_us(Case(product, "bfloat16"), "trn1")


def test_element_wise_work_has_a_floor_of_its_own() -> None:
    strict = floor_of(Case(DeclaredWork(128 * 10**9, 0, 1)), "trn1")
    narrow = floor_of(Case(DeclaredWork(128 * 10**9, 0, 1), dtype="bfloat16"), "trn1")
    assert strict is not None and narrow is not None
    # scalar engine 4 x 1.4 GHz; GpSimd, the faster of the two that exclude each other, 3 x 1.4; tensor engine 2 x 2.8 in four passes
    assert strict.least_us == strict.elements_us == pytest.approx(1e6 / (4 * 1.4 + 3 * 1.4 + 2 * 2.8 / 4))
    assert narrow.elements_us == pytest.approx(1e6 / (4 * 1.4 + 3 * 4 * 1.12 + 2 * 2.8))


def test_operations_counted_in_a_reference_are_no_floor() -> None:
    work = DeclaredWork(10**9, 10**12, 10**6)
    stated, counted = (Case(work), Case(replace(work, counted=True)))
    floor = floor_of(counted, "trn2")
    assert floor is not None and floor.of == "products"
    assert floor_us(stated, "trn2") == floor.least_us > floor.transfers_us == floor_us(counted, "trn2")


def test_a_scan_takes_longer_than_its_bytes() -> None:
    floor = floor_of(workload("mamba"), "trn1")
    assert floor is not None and floor.elements_us > 3 * floor.transfers_us
