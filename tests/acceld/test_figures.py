"""Figures for people: units, labels and ties."""

from __future__ import annotations

import pytest

from acceld import figures
from acceld.gains import Verdict
from acceld.model import FLASHINFER_STATUS, Source, Status


@pytest.mark.parametrize(
    ("us", "text"),
    [(None, "—"), (0.5, "0.50 µs"), (870.2, "870 µs"), (1190.0, "1.19 ms"), (999.9, "1.00 ms"), (2.31e6, "2.31 s")],
)
def test_durations_have_three_digits(us: float | None, text: str) -> None:
    assert figures.duration(us) == text


def test_a_simulated_latency_is_always_labelled() -> None:
    assert figures.latency(1190.0, Source.SIMULATED, "trn1", 12.0) == "≈ 1.19 ms sim trn1 ±12 %"
    assert figures.latency(1190.0, "simulated", "trn2") == "≈ 1.19 ms sim trn2 unvalidated"
    assert figures.latency(1190.0, Source.MEASURED, "trn1") == "1.19 ms trn1"


def test_a_speedup_inside_its_band_is_a_tie() -> None:
    assert figures.speedup(1.04, 8.0) == "1.04x tie (±8 %)"
    assert figures.speedup(1.5, 10.0) == "1.50x (1.36 – 1.65)"
    assert figures.speedup(None) == "—"


def test_an_unknown_price_is_shown_as_unknown() -> None:
    assert figures.usd(None) == "?" and figures.usd(0.0041) == "$0.0041" and figures.usd(3.456) == "$3.46"


def test_every_status_has_a_glyph_and_a_word_of_flashinfer_bench() -> None:
    assert set(figures.STATUS_GLYPHS) == set(Status) == set(FLASHINFER_STATUS)


def test_a_brief_latency_keeps_its_label() -> None:
    assert figures.brief_latency(1190.0, "simulated", "trn1") == "≈ 1.19 ms sim trn1"
    assert figures.brief_latency(1190.0, "simulated") == "≈ 1.19 ms sim"
    assert figures.brief_latency(1190.0, "measured", "trn2") == "1.19 ms trn2"
    assert figures.brief_latency(None, "measured") == "—"


def test_cores_of_each_backend_are_reported_with_their_utilization_and_holder() -> None:
    quiet = {
        "cores": 4,
        "leased": 0,
        "timing": 0,
        "waiting": 0,
        "utilization": 0.0,
        "out_of_service": [],
        "foreign": {},
    }
    busy = quiet | {"leased": 2, "timing": 1, "waiting": 3, "utilization": 0.374, "out_of_service": [3]}
    busy["foreign"] = {"1": "7 train.py"}
    assert figures.core_use({"backends": {"neuron": {"devices": busy}}}) == ["37 % of neuron cores"]
    assert figures.cores({"slots": 1, "devices": [], "backends": {}}) == []
    assert figures.cores({"devices": quiet}) == ["0 % of all cores' time since it started, 0 of 4 leased"]
    (reported,) = figures.cores({"backends": {"neuron": {"devices": busy}, "cpu": {"devices": ["core 0"]}}})
    assert reported == (
        "neuron: 37 % of all cores' time since it started, 2 of 4 leased (1 timing), 3 waiting; out of service: 3"
        "; chip 1 held by 7 train.py"
    )


def test_a_speedup_that_is_no_win_says_tie() -> None:
    assert figures.gained(1.52, Verdict.TIE, None, "unvalidated") == "1.52x tie (unvalidated)"
    assert figures.gained(1.12, Verdict.TIE, 34.0) == "1.12x tie (±34 %)"
    assert figures.gained(1.26, Verdict.LIKELY, 34.0) == "1.26x likely (±34 %)"
    assert figures.brief_gain(1.26, "likely") == "1.26x likely"
    assert figures.gained(1.5, Verdict.CERTAIN, 10.0) == "1.50x (1.36 – 1.65)"
    assert figures.gained(1.05, "certain", 10.0) == "1.05x", "won interleaved, inside the band of latencies"
    assert (
        figures.gained(0.5, Verdict.SLOWER, 34.0) == "0.50x (0.37 – 0.67)"
        and figures.gained(1.0, Verdict.TIE) == "1.00x"
    )
    assert figures.brief_gain(1.12, Verdict.TIE) == "1.12x tie" and figures.brief_gain(1.12, Verdict.CERTAIN) == "1.12x"
    assert figures.gained(None, None) == figures.brief_gain(None, None) == "—"


def test_of_interleaved_steps_what_may_be_slower_is_a_tie() -> None:
    assert "tie" in figures.paired({"ratio": 1.1, "low": 0.9, "high": 1.2, "steps": 1})
    assert "tie" not in figures.paired({"ratio": 1.1, "low": 1.05, "high": 1.2, "steps": 1})


def test_more_than_all_of_the_peak_has_a_reason() -> None:
    assert figures.beyond_peak(100.0) == "" and "cheaper" in figures.beyond_peak(107.0)


def test_a_change_begins_with_its_parameter() -> None:
    assert figures.change("1024 columns", "widen tiles, line 15") == "1024 columns: widen tiles, l. 15"
    assert (figures.change("", "fuse the loops"), figures.change("x", "")) == ("fuse the loops", "x")


@pytest.mark.parametrize(("count", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1234, "1,234 runs")])
def test_a_noun_agrees_with_its_number(count: int, text: str) -> None:
    assert figures.many(count, "run") == text
