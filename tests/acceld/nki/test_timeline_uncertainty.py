"""Intervals of predicted latencies."""

import pytest

from acceld.nki.timing.uncertainty import INTERVALS, Bound, bound_of, prediction


@pytest.mark.parametrize(
    ("engines", "bound"),
    [
        ({"tensor": 90.0, "dma": 40.0}, Bound.TENSOR),
        ({"vector": 90.0, "dma": 80.0}, Bound.ELEMENTWISE),
        ({"scalar": 61.0, "dma": 60.0}, Bound.ELEMENTWISE),
        ({"tensor": 10.0, "dma": 95.0}, Bound.DMA),
        ({"tensor": 50.0, "dma": 55.0}, Bound.WAITING),
    ],
)
def test_the_interval_is_of_what_binds(engines: dict[str, float], bound: Bound) -> None:
    assert bound_of(engines, 100.0) is bound
    found = prediction(chip="trn2", engines=engines, latency_us=100.0, dynamic=False)
    assert found.interval_percent == INTERVALS["trn2", bound][0] and found.validated


@pytest.mark.parametrize(("chip", "dynamic"), [("trn3", False), ("trn1", True)])
def test_what_nothing_measured_is_like_has_no_interval(chip: str, dynamic: bool) -> None:
    found = prediction(chip=chip, engines={"tensor": 90.0}, latency_us=100.0, dynamic=dynamic)
    assert found.interval_percent is None and found.validated_on == "unvalidated" and not found.validated


def test_a_kernel_that_waits_is_less_certain_than_one_that_an_engine_binds() -> None:
    for chip in ("trn1", "trn2"):
        others = [INTERVALS[chip, bound][0] for bound in Bound if bound is not Bound.WAITING]
        assert INTERVALS[chip, Bound.WAITING][0] > max(others)
