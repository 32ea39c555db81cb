"""Every rewrite rule offers, refuses and writes what is recorded in tests/goldens/rules.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import goldens, rule_goldens

SAMPLE = ("workloads/silu", "workloads/lora", "workloads/bmm/", "adversarial/H0", "adversarial/H5", "tests/")
"""Kernels that take a few seconds together, and between them have places for most rules."""
COPY = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    tile = nl.load(x)
    for i in nl.affine_range(2):
        twice = nl.load(x[p, f])
        nl.store(out[p, f], value=nl.multiply(twice, tile))
    return out
"""


def assert_as_recorded(listed: list[rule_goldens.Read]) -> None:
    known = goldens.record(rule_goldens.NAME)
    recorded = {one.name: known[one.name] for one in listed if one.name in known}
    assert goldens.differences(recorded, rule_goldens.entries(listed)) == [], (
        "if this is meant: python scripts/rule_goldens.py --write"
    )


def test_rules_do_with_a_sample_of_kernels_what_they_did() -> None:
    assert_as_recorded([one for one in rule_goldens.kernels() if one.name.startswith(SAMPLE)])


@pytest.mark.slow
def test_rules_do_with_every_kernel_what_they_did() -> None:
    listed = list(rule_goldens.kernels())
    assert len(listed) == len(goldens.record(rule_goldens.NAME))
    assert_as_recorded(listed)


def test_another_reason_or_another_source_is_another_entry() -> None:
    places = [{"line": 3, "made": {"keep": "a = 1"}}, {"line": 4, "refused": True, "because": "no"}]
    first = rule_goldens.summary(places)
    assert first.startswith("1 places, 1 refusals, ")
    assert rule_goldens.summary([{**places[0], "made": {"keep": "a = 2"}}, places[1]]) != first
    assert rule_goldens.summary([places[0], {**places[1], "because": "why"}]) != first


def test_kernels_of_a_folder_are_recorded_by_hashes_alone(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one.py").write_text(COPY)
    (tmp_path / "same.py").write_text(COPY)
    (tmp_path / "none.py").write_text("x = 1\n")
    (one,) = rule_goldens.public_kernels(tmp_path)
    assert one.entry == "kernel" and "kernel" not in one.name
    assert one.name in rule_goldens.entries([one])


def test_a_record_that_is_written_says_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goldens, "FOLDER", tmp_path)
    told = []
    for words in (["--write"], ["--write"], []):
        assert rule_goldens.main(["--only", "workloads/silu/kernel_legacy.py", *words]) == 0
        told.append(capsys.readouterr().out)
    new, *same = told
    assert new.startswith("rules: wrote 1 entries, 1 differences\n  workloads/silu/kernel_legacy.py: new, {")
    assert same == ["rules: wrote 1 entries, 0 differences\n", "rules: 1 of 1 entries, 0 differences\n"]
