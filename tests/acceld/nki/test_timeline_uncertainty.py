"""Bands of uncertainty."""

import pytest

from acceld.nki.timing.uncertainty import PAIRED_PERCENT, ChangeClass, prediction


def test_every_change_class_has_a_band() -> None:
    assert set(PAIRED_PERCENT) == set(ChangeClass) and min(PAIRED_PERCENT.values()) > 0


def test_mixed_changes_are_the_least_certain() -> None:
    assert max(PAIRED_PERCENT.values()) == PAIRED_PERCENT[ChangeClass.MIXED]


@pytest.mark.parametrize(
    ("api", "chip", "dtype"),
    [("nki", "trn2", "float32"), ("nki_legacy", "trn2", "float32"), ("nki_legacy", "trn1", "bfloat16")],
)
def test_outside_the_validated_set_there_is_no_interval(api: str, chip: str, dtype: str) -> None:
    found = prediction(api=api, chip=chip, dtypes=frozenset({dtype}), dynamic=False, has_latency=True)
    assert found.interval_percent is None and found.validated_on == "unvalidated" and not found.validated
