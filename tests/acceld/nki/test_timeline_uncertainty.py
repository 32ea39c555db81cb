"""Bands, ties and ranges."""

import pytest

from acceld.nki.uncertainty import (
    PAIRED_PERCENT,
    ChangeClass,
    is_tie,
    paired_band_percent,
    prediction,
    speedup_range,
)


@pytest.mark.parametrize("change", list(ChangeClass))
def test_every_change_class_has_a_band(change: ChangeClass) -> None:
    assert 0 < paired_band_percent(change) == PAIRED_PERCENT[change]


def test_a_tie_does_not_depend_on_the_order() -> None:
    band = paired_band_percent("mixed") / 100
    assert is_tie(100.0, 100.0 * (1 + band) * 0.999) and is_tie(100.0 * (1 + band) * 0.999, 100.0)
    assert not is_tie(100.0, 100.0 * (1 + band) * 1.001)


def test_a_speedup_is_a_range_or_a_tie() -> None:
    assert speedup_range(100.0, 99.0, "tile_width") is None
    found = speedup_range(200.0, 100.0, "tile_width")
    assert found is not None and 1 < found[0] < 2 < found[1]


def test_mixed_changes_are_the_least_certain() -> None:
    assert max(PAIRED_PERCENT.values()) == PAIRED_PERCENT[ChangeClass.MIXED]


@pytest.mark.parametrize(
    ("api", "chip", "dtype"),
    [("nki", "trn2", "float32"), ("nki_legacy", "trn2", "float32"), ("nki_legacy", "trn1", "bfloat16")],
)
def test_outside_the_validated_set_there_is_no_interval(api: str, chip: str, dtype: str) -> None:
    found = prediction(api=api, chip=chip, dtypes=frozenset({dtype}), dynamic=False, has_latency=True)
    assert found.interval_percent is None and found.validated_on == "unvalidated" and not found.validated
