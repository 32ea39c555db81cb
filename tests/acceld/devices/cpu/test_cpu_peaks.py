"""Rates of the host's processor: stored once, and measured again before they make a kernel suspect."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceld.devices.cpu import peaks
from acceld.devices.cpu.peaks import HostRates, rates


def test_rates_measured_again_are_the_greater_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside_work = HostRates(5e9, 6e9, 9e9, 2e10, "first")
    monkeypatch.setattr(peaks, "_measure", lambda *_: beside_work)
    assert rates(tmp_path, None, (), 0) == beside_work
    monkeypatch.setattr(peaks, "_measure", lambda *_: HostRates(4e9, 8e9, 9e9, 9e10, "again"))
    assert rates(tmp_path, None, (), 0) == beside_work, "stored rates are not measured without need"
    best = HostRates(5e9, 8e9, 9e9, 9e10, "again")
    assert rates(tmp_path, None, (), 0, again=True) == best
    assert rates(tmp_path, None, (), 0) == best
