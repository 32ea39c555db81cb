"""One rule for a win: beyond the band, validated on both sides, by one model, or won interleaved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acceld.gains import APART, TWO_MODELS, TWO_SOURCES, UNVALIDATED, WORK, gain, interleaved, paired_speedup
from acceld.model import Profile, Source

SIMULATED = Profile(Source.SIMULATED, "trn1", "nki", 100.0, "test", model="9", interval_percent=15.0)
MEASURED = Profile(Source.MEASURED, "trn1", "nki", 100.0, "test", details={"tie_percent": 2.0})


def turn(against: str, ratio: float, low: float, high: float, win: bool) -> dict[str, Any]:
    return {"against": against, "ratio": ratio, "interval": [low, high], "band_percent": 5.0, "win": win}


def timed(profile: Profile, latency_us: float, *turns: dict[str, Any]) -> Profile:
    details = {**profile.details, "paired": list(turns)} if turns else profile.details
    return replace(profile, latency_us=latency_us, details=details)


@pytest.mark.parametrize(("base", "band"), [(SIMULATED, 34.0), (MEASURED, 2.0)])
def test_inside_the_band_nothing_is_a_win_or_a_loss(base: Profile, band: float) -> None:
    for ratio, faster in ((1 + (band + 1) / 100, True), (1 + (band - 1) / 100, None)):
        found, lost = gain(base, timed(base, 100 / ratio)), gain(timed(base, 100 / ratio), base)
        assert found is not None and (found.faster, found.band_percent) == (faster, band)
        assert found.improved is (faster is True)
        assert lost is not None and lost.faster is (False if faster else None) and not lost.improved


ENGINES = {"tensor": 40.0, "dma": 90.0}


@pytest.mark.parametrize(
    ("engines", "api", "band"),
    [
        ({"tensor": 40.0, "dma": 70.0}, "nki", 17.0),
        ({"tensor": 40.9, "dma": 70.0}, "nki", 17.0),
        ({"tensor": 42.0, "dma": 70.0}, "nki", 34.0),
        ({"tensor": 40.0, "dma": 90.0}, "nki", 34.0),
        ({"tensor": 40.0, "dma": 86.0}, "nki", 34.0),
        ({"tensor": 40.0, "dma": 70.0, "gpsimd": 2.0}, "nki", 34.0),
        ({"dma": 70.0}, "nki", 17.0),
        ({"tensor": 40.0, "dma": 70.0}, "nki_legacy", 34.0),
        ({}, "nki", 34.0),
    ],
    ids=[
        "an engine works less", "another one hardly more", "another one more", "only the schedule differs",
        "the work explains too little of the gain", "an engine that was idle works", "an engine is not used any more",
        "another compiler", "the busy times are unknown",
    ],
)  # fmt: skip
def test_a_band_is_narrow_only_for_a_kernel_that_works_less(engines: dict[str, float], api: str, band: float) -> None:
    slow = replace(SIMULATED, engines_us=ENGINES)
    fast = replace(SIMULATED, engines_us=engines, api=api, latency_us=80.0)
    for before, after in ((slow, fast), (fast, slow)):
        found = gain(before, after)
        assert found is not None and found.band_percent == band
        assert found.faster is ((after is fast) if band < 25.0 else None)


def crowded(latency_us: float, starts_us: float | None) -> Profile:
    """Return a profile without an interval, whose transfers take ``starts_us`` to start one after the other."""
    details = {"prediction": {"starts_us": starts_us}}
    return replace(SIMULATED, latency_us=latency_us, interval_percent=None, details=details)


@pytest.mark.parametrize(
    ("before", "after", "faster"),
    [
        (crowded(100.0, 300.0), crowded(60.0, 150.0), True),
        (crowded(100.0, 300.0), timed(SIMULATED, 60.0), True),
        (timed(SIMULATED, 100.0), crowded(40.0, 60.0), True),
        (timed(SIMULATED, 100.0), crowded(40.0, 90.0), None),
        (crowded(100.0, 300.0), crowded(60.0, 290.0), None),
        (crowded(100.0, 300.0), crowded(95.0, 100.0), None),
        (crowded(60.0, 150.0), crowded(100.0, 300.0), False),
        (crowded(100.0, 300.0), crowded(60.0, None), None),
    ],
    ids=[
        "both start fewer", "only the slower one is crowded", "only the faster one is, and starts soon enough",
        "the starts take the gain", "as many transfers as before", "fewer transfers alone", "slower either way",
        "more than the starts is in doubt",
    ],
)  # fmt: skip
def test_a_gain_without_intervals_counts_if_it_holds_however_long_transfers_take_to_start(
    before: Profile, after: Profile, faster: bool | None
) -> None:
    found = gain(before, after)
    assert found is not None and found.faster is faster
    assert (found.band_percent, found.reason) == ((None, UNVALIDATED) if faster is None else (34.0, ""))


COUNTERS = dict.fromkeys(WORK, 100.0)
LESS = {"tensor": 40.0, "dma": 70.0}
"""Busy times of a kernel that works less than one of ENGINES."""


@pytest.mark.parametrize(
    ("chip", "engines", "counters", "band"),
    [
        ("trn2", LESS, COUNTERS, 5.0),
        ("trn2", LESS, COUNTERS | {"dma_rows": 75.0, "instruction_count": 130.0}, 5.0),
        ("trn2", LESS, COUNTERS | {"dma_rows": 65.0}, 17.0),
        ("trn2", LESS, COUNTERS | {"instruction_count": 150.0}, 17.0),
        ("trn2", LESS, {}, 17.0),
        ("trn2", ENGINES, COUNTERS, 22.0),
        ("trn2", {"tensor": 50.0, "dma": 70.0}, COUNTERS, 22.0),
        ("trn1", LESS, COUNTERS, 17.0),
        ("trn1", ENGINES, COUNTERS, 34.0),
        ("trn3", LESS, COUNTERS, 17.0),
    ],
    ids=[
        "the same program", "most of it", "fewer rows of DMA", "more instructions", "counters are unknown",
        "only the schedule differs", "work moves", "no pairs test a narrower band", "nor this one", "nor on this chip",
    ],
)  # fmt: skip
def test_a_band_is_narrowest_for_kernels_that_share_most_of_their_program(
    chip: str, engines: dict[str, float], counters: dict[str, float], band: float
) -> None:
    known = replace(SIMULATED, chip=chip)
    slow = replace(known, engines_us=ENGINES, counters=COUNTERS)
    found = gain(slow, replace(known, engines_us=engines, counters=counters, latency_us=80.0))
    assert found is not None and found.band_percent == band


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (replace(SIMULATED, interval_percent=None), SIMULATED, UNVALIDATED),
        (SIMULATED, replace(SIMULATED, interval_percent=None), UNVALIDATED),
        (replace(SIMULATED, model="8"), SIMULATED, TWO_MODELS),
        (replace(SIMULATED, model="9.c1"), SIMULATED, TWO_MODELS),
        (SIMULATED, MEASURED, TWO_SOURCES),
        (replace(MEASURED, details={}), MEASURED, APART),
    ],
)
def test_what_does_not_compare_is_a_tie_and_says_why(before: Profile, after: Profile, reason: str) -> None:
    found = gain(before, timed(after, 10.0))
    assert found is not None and (found.ratio, found.faster, found.band_percent, found.reason) == (
        10.0, None, None, reason
    )  # fmt: skip


def test_without_a_latency_there_is_no_gain() -> None:
    assert gain(None, SIMULATED) is gain(SIMULATED, replace(SIMULATED, latency_us=None)) is None


@pytest.mark.parametrize("win", [True, False])
def test_two_kernels_timed_together_are_decided_by_that(win: bool) -> None:
    after = timed(MEASURED, 99.0, turn("root", 1.5, 1.4, 1.6, win))
    found = gain(MEASURED, after, paired_speedup([("child", after), ("root", MEASURED)]))
    assert found is not None and found.improved is win


def test_steps_timed_one_after_another_win_if_their_product_does() -> None:
    middle = timed(MEASURED, 80.0, turn("root", 1.25, 1.2, 1.3, True))
    for low, improved in ((1.2, True), (0.7, False)):
        last = timed(MEASURED, 60.0, turn("middle", 1.3, low, 1.4, low > 1))
        paired = paired_speedup([("last", last), ("middle", middle), ("root", MEASURED)])
        assert paired is not None and paired.steps == 2
        found = gain(MEASURED, last, paired)
        assert found is not None and found.improved is improved


def test_of_interleaved_measurements_what_is_neither_won_nor_lost_is_a_tie() -> None:
    pair = turn("", 1.2, 1.1, 1.3, True)
    assert interleaved(pair) is True
    assert interleaved(pair | {"win": False}) is None, "too few sessions, or inside the band"
    lost = turn("", 0.7, 0.6, 0.8, False)
    assert interleaved(lost) is False
    assert interleaved(lost | {"interval": [0.6, 1.1]}) is None
