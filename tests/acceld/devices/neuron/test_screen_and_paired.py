"""Screening drops kernels and stops after too many errors; pairs decide which kernel is faster."""

from __future__ import annotations

import pytest

from acceld.devices.neuron.runtime.timing import Round
from acceld.devices.neuron.screen import Choice, Screen
from acceld.devices.neuron.stopwatch import compared
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import SIMULATED_TIE_PERCENT, Kernel, Profile, Source


def _profile(latency_us: float | None, interval: float | None = 15.0) -> Profile:
    return Profile(Source.SIMULATED, "trn1", "nki_legacy", latency_us, "model", interval_percent=interval)


def _chosen(screen: Screen, count: int, latency_us: float = 140.0) -> list[Choice | None]:
    requests = (EvaluationRequest(Kernel(f"# {n}", "nki_legacy"), "silu", "trn1", run=1) for n in range(count))
    return [screen.choose(request, _profile(latency_us), _profile(100.0)) for request in requests]


def test_only_what_is_slower_beyond_the_band_is_dropped_and_a_tenth_of_it_measured() -> None:
    screen = Screen()
    assert _chosen(screen, 3, 100.0 + SIMULATED_TIE_PERCENT - 1) == [None] * 3
    request = EvaluationRequest(Kernel("#", "nki_legacy"), "silu", "trn1")
    assert screen.choose(request, _profile(140.0), _profile(None)) is None
    assert screen.choose(request, _profile(None), _profile(100.0)) is None
    assert screen.choose(request, _profile(140.0, None), _profile(100.0)) is None, "it is not validated"
    choices = _chosen(screen, 300)
    assert all(one is not None and one.ratio == pytest.approx(1.4) for one in choices)
    measured = sum(one.measured for one in choices if one)
    assert 15 <= measured <= 45
    assert screen.dropped == 300 - measured
    assert _chosen(Screen(), 300) == choices


def test_screening_ends_when_too_many_of_the_sample_were_wins() -> None:
    screen = Screen()
    assert not screen.learn(100.0, 101.0, band_percent=2.0)
    assert screen.learn(100.0, 110.0, band_percent=2.0)
    assert screen.plain()["on"]
    assert screen.learn(100.0, 110.0, band_percent=2.0)
    assert screen.plain() == {"on": False, "dropped": 0, "sampled": 3, "wrong": 2}


def _rounds(*means_us: float, resolution_us: float = 0.001) -> list[list[Round]]:
    """Return five sessions of the same rounds."""
    return [[Round((mean,) * 10, "nrtpy device", resolution_us, None) for mean in means_us]] * 5


def test_a_win_is_beyond_the_interval_and_twice_the_resolution() -> None:
    clear = compared(_rounds(100, 101, 100, 101), _rounds(110, 111, 110, 111), "other")
    assert clear.win
    assert clear.speedup.low <= clear.speedup.middle <= clear.speedup.high
    mixed = (
        [_rounds(mean)[0] for mean in (100, 140, 90, 130, 120)],
        [_rounds(mean)[0] for mean in (110, 130, 100, 140, 125)],
    )
    assert not compared(*mixed, "other").win
    coarse = compared(
        _rounds(100, 100, 100, 100, resolution_us=6), _rounds(110, 110, 110, 110, resolution_us=6), "other"
    )
    assert coarse.band_percent == pytest.approx(12.0)
    assert not coarse.win


def test_sessions_that_contradict_each_other_are_no_win() -> None:
    theirs = _rounds(105, 105)
    mine = [_rounds(mean, mean)[0] for mean in (100, 100, 107, 100, 107)]
    assert compared(mine[:1] * 5, theirs, "other").win
    assert not compared(mine, theirs, "other").win


def test_drift_that_both_share_does_not_hide_a_win() -> None:
    drifting = compared(_rounds(100, 120, 140, 160), _rounds(105, 126, 147, 168), "other")
    assert drifting.speedup.middle == pytest.approx(1.05)
    assert drifting.win


def test_rounds_by_two_methods_are_not_held_together() -> None:
    other = [[Round((1.0,), "neuron-profile total_time", 55.56, None)]] * 5
    with pytest.raises(ValueError, match="one method"):
        compared(_rounds(1.0), other, "other")
