"""The rule by which a measured kernel is faster."""

from __future__ import annotations

import numpy as np

from acceld.evaluate.comparison import SESSIONS, median, paired, spread


def _same(sessions: int, *samples: float) -> list[list[float]]:
    return [list(samples)] * sessions


def test_the_interval_holds_the_median_and_narrows_with_samples() -> None:
    rng = np.random.default_rng(3)
    few, many = median([rng.normal(100, 5, 8).tolist()]), median([rng.normal(100, 5, 400).tolist()])
    assert few.low <= few.middle <= few.high
    assert many.half_percent < few.half_percent


def test_the_interval_covers_the_noise_between_sessions() -> None:
    """Calls of a session agree within 1 %, sessions within 10 %: the true ratio is inside nine times of ten."""
    rng = np.random.default_rng(6)
    held, held_by_one = 0, 0
    for _ in range(60):
        own = rng.normal(1, 0.1, SESSIONS)
        mine = [(100 * scale * rng.normal(1, 0.01, 6)).tolist() for scale in own]
        other = [(200 * rng.normal(1, 0.01, 6)).tolist() for _ in own]
        found, one = paired(mine, other, 0.1), paired(mine[:1], other[:1], 0.1)
        held += found.speedup.low <= 2.0 <= found.speedup.high
        held_by_one += one.speedup.low <= 2.0 <= one.speedup.high
    assert held >= 52
    assert held_by_one < 15, "one session does not know how others differ"


def test_a_faster_kernel_wins_beyond_its_band() -> None:
    rng = np.random.default_rng(4)
    drift = np.linspace(1, 1.4, 12)
    fast = [(100 * drift * rng.normal(1, 0.01, 12)).tolist() for _ in range(SESSIONS)]
    slow = [(150 * drift * rng.normal(1, 0.01, 12)).tolist() for _ in range(SESSIONS)]
    found = paired(fast, slow, resolution=1.0)
    assert found.win
    assert 1.4 < found.speedup.middle < 1.6, "drift that both share does not count"


def test_too_few_sessions_are_no_win_however_clear() -> None:
    fast, slow = _same(SESSIONS, 100.0, 100.0), _same(SESSIONS, 200.0, 200.0)
    assert paired(fast, slow, 0.1).win
    assert not paired(fast[1:], slow[1:], 0.1).win


def test_equal_kernels_are_a_tie() -> None:
    rng = np.random.default_rng(5)
    one, other = (rng.normal(100, 3, (SESSIONS, 12)).tolist() for _ in range(2))
    assert not paired(one, other, resolution=0.5).win


def test_equal_kernels_in_unequal_sessions_are_a_tie() -> None:
    mine = [[100.0] * 6, [101.0] * 6, [99.0] * 6, [98.0] * 6, [99.0] * 6]
    assert not paired(mine, _same(SESSIONS, *[100.0] * 6), resolution=0.01).win


def test_a_gain_within_twice_the_resolution_is_a_tie() -> None:
    found = paired(_same(SESSIONS, *[100.0] * 9), _same(SESSIONS, *[110.0] * 9), resolution=8.0)
    assert found.band_percent == 16.0
    assert not found.win


def test_the_spread_ignores_outliers() -> None:
    assert spread([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 900.0]) == 0.0


def test_a_slower_kernel_never_wins_and_its_band_is_that_of_the_faster_one() -> None:
    found = paired(_same(5, *[110.0] * 9), _same(5, *[100.0] * 9), resolution=1.0, competitor_sha256="other")
    assert not found.win
    assert found.plain() == {
        "against": "other",
        "ratio": 100 / 110,
        "interval": [100 / 110, 100 / 110],
        "resolution_percent": 1.0,
        "band_percent": 2.0,
        "rounds": 45,
        "sessions": 5,
        "win": False,
    }


def test_a_win_needs_the_whole_interval_above_one() -> None:
    mixed = paired(_same(5, 100.0, 100.0, 100.0, 100.0), _same(5, 120.0, 120.0, 80.0, 120.0), resolution=0.001)
    assert mixed.speedup.middle > 1.1
    assert mixed.speedup.low < 1.1
    lone = paired(_same(1, 100.0, 100.0, 100.0), _same(1, 120.0, 99.0, 120.0), resolution=0.001)
    assert lone.speedup.low < 1
    assert not lone.win
