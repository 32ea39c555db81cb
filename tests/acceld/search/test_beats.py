"""Conditions for a challenger to become the best kernel of a run."""

from __future__ import annotations

from typing import Any

import pytest

from acceld.model import Candidate, Correctness, Evaluation, Gate, Kernel, Profile, Source, Status
from acceld.search.beam import beats, challenger


def _candidate(
    latency_us: float, source: Source = Source.MEASURED, interval_percent: float | None = 2.0, **details: Any
) -> Candidate:
    profile = Profile(
        source, "host", "c", latency_us, "test", resolution_us=3.0, interval_percent=interval_percent, details=details
    )
    correctness = Correctness(Gate.STRICT, 0.0, 1e-5)
    kernel = Kernel(f"/* {latency_us} */", "c")
    return Candidate(
        1,
        1,
        kernel,
        None,
        evaluation=Evaluation(Status.PASSED, kernel.sha256, correctness=correctness, profile=profile),
    )


@pytest.mark.parametrize(
    ("latency_us", "better"), [(90.0, True), (97.4, True), (97.6, False), (98.0, False), (130.0, False)]
)
def test_a_simulated_step_below_half_a_percent_is_not_worth_a_strict_gate(latency_us: float, better: bool) -> None:
    simulated = _candidate(latency_us, Source.SIMULATED)
    assert beats(simulated, _candidate(98.0, Source.SIMULATED)) == better


def test_a_latency_without_an_interval_never_replaces_one_that_has_it() -> None:
    validated, unvalidated = _candidate(100.0, Source.SIMULATED, 15.0), _candidate(10.0, Source.SIMULATED, None)
    assert not beats(unvalidated, validated)
    assert beats(_candidate(50.0, Source.SIMULATED, 15.0), _candidate(100.0, Source.SIMULATED, None))
    assert beats(unvalidated, _candidate(100.0, Source.SIMULATED, None)), "among them the model's order counts"
    second = _candidate(80.0, Source.SIMULATED, 15.0)
    assert challenger((unvalidated, second), validated) is second
    assert challenger((unvalidated, validated), validated) is None
    tied, measured = _candidate(970.0), _candidate(1000.0, interval_percent=4.0)
    assert challenger((tied, measured), measured) is tied, "timed interleaved, it may win"


def test_a_measured_gain_within_the_band_is_none() -> None:
    best = _candidate(1000.0, interval_percent=4.0)
    assert not beats(_candidate(970.0), best)
    assert beats(_candidate(950.0), best)


def test_a_gain_within_twice_the_resolution_is_none() -> None:
    assert not beats(_candidate(95.0), _candidate(100.0))
    assert beats(_candidate(93.0), _candidate(100.0))


@pytest.mark.parametrize("win", [True, False])
def test_one_that_ties_with_its_parent_interleaved_is_not_better(win: bool) -> None:
    assert beats(_candidate(500.0, paired=[{"win": win}]), _candidate(1000.0)) == win
