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
