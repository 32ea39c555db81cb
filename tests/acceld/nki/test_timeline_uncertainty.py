"""Intervals of predicted latencies."""

import pytest

from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.timing.timeline import timeline
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
    found = prediction(chip="trn2", engines=engines, latency_us=100.0, unlike=False)
    assert found.interval_percent == INTERVALS["trn2", bound][0] and found.validated


@pytest.mark.parametrize(("chip", "unlike"), [("trn3", False), ("trn1", True)])
def test_what_nothing_measured_is_like_has_no_interval(chip: str, unlike: bool) -> None:
    found = prediction(chip=chip, engines={"tensor": 90.0}, latency_us=100.0, unlike=unlike)
    assert found.interval_percent is None and found.validated_on == "unvalidated" and not found.validated


def test_a_kernel_that_waits_is_less_certain_than_one_that_an_engine_binds() -> None:
    for chip in ("trn1", "trn2"):
        others = [INTERVALS[chip, bound][0] for bound in Bound if bound is not Bound.WAITING]
        assert INTERVALS[chip, Bound.WAITING][0] > max(others)


COPIES = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(128 // ROWS):
        tile = nl.ndarray((ROWS, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[i * ROWS : (i + 1) * ROWS, :])
        nisa.dma_copy(dst=out[i * ROWS : (i + 1) * ROWS, :], src=tile)
    return out
"""


@pytest.mark.parametrize(("rows", "validated"), [(1, False), (64, True)])
def test_more_transfers_than_can_start_within_the_latency_leave_no_interval(rows: int, validated: bool) -> None:
    text = COPIES.replace("ROWS", str(rows))
    found = timeline(trace(text, [TensorSpec((128, 512), "float32")], api="nki", chip="trn2"))
    assert found.prediction.validated is validated
    said = [one for one in found.unproven if "transfers start one after the other" in one]
    assert bool(said) is not validated and all(one.startswith("256 transfers") for one in said)
