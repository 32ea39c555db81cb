"""A stored winner holds only if it wins again interleaved, and its win has not shrunk by more than allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acceld.cli.checks.winners import WinnerCheck, broken_by
from acceld.cli.interleaved import SAME, Interleaved
from acceld.model import Kernel

KERNEL = Kernel("text", "c")
WINNER = WinnerCheck("r1 c2", KERNEL, "w", "", "host", "cpu", other=Kernel("other", "c"), won=True, stored_ratio=2.0)
FILE = WinnerCheck("mine.c", KERNEL, "w", "", "host", "cpu", other=Kernel("other", "c"))


def _turns(ratio: float, band_percent: float = 2.0) -> Interleaved:
    half = ratio * band_percent / 200
    return Interleaved(ratio, ratio - half, ratio + half, band_percent, win=ratio > 1 + band_percent / 100)


@pytest.mark.parametrize(
    ("case", "turns", "reason"),
    [
        (WINNER, _turns(2.0), ""),
        (WINNER, _turns(1.92), ""),
        (WINNER, _turns(1.85), "the stored speed-up was 2.00x"),
        (replace(WINNER, stored_percent=10.0), _turns(1.85), ""),
        (WINNER, _turns(1.85, band_percent=9.0), ""),
        (
            WINNER,
            _turns(1.01),
            "the gain is smaller than its uncertainty (half the interval's width, or twice the clock's resolution)",
        ),
        (replace(WINNER, stored_ratio=None), _turns(1.03), ""),
        (
            replace(WINNER, stored_ratio=None),
            _turns(1.01),
            "the gain is smaller than its uncertainty (half the interval's width, or twice the clock's resolution)",
        ),
        (
            WINNER,
            SAME,
            "the gain is smaller than its uncertainty (half the interval's width, or twice the clock's resolution)",
        ),
        (WINNER, None, "the kernel that this winner beat can not be timed on this machine"),
        (replace(WINNER, other=None), None, ""),
        (FILE, _turns(1.0), ""),
        (FILE, _turns(0.96), ""),
        (FILE, _turns(0.90), "slower"),
        (FILE, _turns(0.90, band_percent=15.0), ""),
        (FILE, SAME, ""),
        (FILE, None, ""),
    ],
)
def test_what_was_faster_must_be_so_beyond_the_band_again(
    case: WinnerCheck, turns: Interleaved | None, reason: str
) -> None:
    assert broken_by(case, turns, 5.0) == reason


def test_how_much_faster_it_was_on_another_day_counts_only_where_somebody_says_so() -> None:
    assert broken_by(WINNER, _turns(1.3), None) == ""
    assert broken_by(WINNER, _turns(1.3), 20.0) == "the stored speed-up was 2.00x"
    assert (
        broken_by(WINNER, _turns(1.01), None)
        == "the gain is smaller than its uncertainty (half the interval's width, or twice the clock's resolution)"
    )
    assert broken_by(FILE, _turns(0.90), None) == "slower"


def test_a_ratio_within_its_band_is_called_a_tie() -> None:
    assert _turns(1.01).text.endswith("tie") and not _turns(1.5).text.endswith("tie")
