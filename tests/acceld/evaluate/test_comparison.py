"""What counts as faster."""

from __future__ import annotations

import numpy as np

from acceld.evaluate.comparison import median, paired, spread


def test_the_interval_holds_the_median_and_narrows_with_samples() -> None:
    rng = np.random.default_rng(3)
    few, many = median(rng.normal(100, 5, 8).tolist()), median(rng.normal(100, 5, 400).tolist())
    assert few.low <= few.middle <= few.high
    assert many.half_percent < few.half_percent


def test_a_faster_kernel_wins_beyond_its_band() -> None:
    rng = np.random.default_rng(4)
    drift = np.linspace(1, 1.4, 12)
    fast, slow = 100 * drift * rng.normal(1, 0.01, 12), 150 * drift * rng.normal(1, 0.01, 12)
    found = paired(fast.tolist(), slow.tolist(), resolution=1.0)
    assert found.win
    assert 1.4 < found.speedup.middle < 1.6, "drift that both share does not count"


def test_equal_kernels_are_a_tie() -> None:
    rng = np.random.default_rng(5)
    assert not paired(rng.normal(100, 3, 12).tolist(), rng.normal(100, 3, 12).tolist(), resolution=0.5).win


def test_a_gain_within_twice_the_resolution_is_a_tie() -> None:
    found = paired([100.0] * 9, [110.0] * 9, resolution=8.0)
    assert found.band_percent == 16.0
    assert not found.win


def test_the_spread_ignores_outliers() -> None:
    assert spread([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 900.0]) == 0.0


def test_a_slower_kernel_never_wins_and_its_band_is_that_of_the_faster_one() -> None:
    found = paired([110.0] * 9, [100.0] * 9, resolution=1.0, competitor_sha256="other")
    assert not found.win
    assert found.plain() == {
        "against": "other",
        "ratio": 100 / 110,
        "interval": [100 / 110, 100 / 110],
        "resolution_percent": 1.0,
        "band_percent": 2.0,
        "rounds": 9,
        "win": False,
    }


def test_a_win_needs_the_whole_interval_above_one() -> None:
    mixed = paired([100.0, 100.0, 100.0, 100.0], [120.0, 120.0, 99.0, 120.0], resolution=0.001)
    assert mixed.speedup.middle > 1.1
    assert mixed.speedup.low < 1
    assert not mixed.win
