"""Figures for people: units, labels and ties."""

from __future__ import annotations

import pytest

from acceld import figures
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


def test_inside_the_interval_nothing_is_a_win_or_a_loss() -> None:
    assert [figures.news(ratio, "simulated") for ratio in (1.33, 1.35, 0.76, 0.74)] == [None, True, None, False]
    assert [figures.news(ratio, "measured", 2.0) for ratio in (1.01, 1.03, 0.99, 0.97)] == [None, True, None, False]
    assert not figures.is_win(None, "measured")
    assert not figures.is_win(1.5, "measured"), "of two measurements nothing is known without their band"
    assert figures.best_is_win(1.01, "measured") and not figures.best_is_win(1.01, "simulated")


def test_of_interleaved_measurements_what_is_neither_won_nor_lost_is_a_tie() -> None:
    pair = {"ratio": 1.2, "interval": [1.1, 1.3], "band_percent": 10.0, "win": True}
    assert figures.interleaved_news(pair) is True
    assert figures.interleaved_news(pair | {"win": False}) is None, "too few sessions, or inside the band"
    lost = {"ratio": 0.7, "interval": [0.6, 0.8], "band_percent": 10.0, "win": False}
    assert figures.interleaved_news(lost) is False
    assert figures.interleaved_news(lost | {"interval": [0.6, 1.1]}) is None
    assert "tie" in figures.paired({"ratio": 1.1, "low": 0.9, "high": 1.2, "steps": 1})
    assert "tie" not in figures.paired({"ratio": 1.1, "low": 1.05, "high": 1.2, "steps": 1})
