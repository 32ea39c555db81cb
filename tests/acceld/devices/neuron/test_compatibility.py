"""``doctor`` lists the chips, SDKs, APIs and workloads that go together; the documentation's first example can run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acceld.devices.neuron.tools.compatibility import check, has_block_dimensions, runs, sdk_of
from acceld.workloads import find_workloads, workload


@pytest.mark.parametrize(
    ("version", "sdk"),
    [("2.27.5334.0", 32), ("2.28.7631.0", 33), ("2.21.0+standin", 26), ("1.0.post1", None), ("", None)],
)
def test_a_compilers_version_names_its_sdk(version: str, sdk: int | None) -> None:
    assert sdk_of(version) == sdk


@pytest.mark.parametrize(
    ("api", "chip", "sdk", "reason"),
    [
        ("nki_legacy", "trn1", 26, ""),
        ("nki_legacy", "trn1", 30, "2.20 to 2.29; this is 2.30"),
        ("nki_legacy", "trn2", 20, "2.21 to 2.29; this is 2.20"),
        ("nki_legacy", "trn3", 26, "for trn1 and trn2, not trn3"),
        ("nki", "trn1", 32, ""),
        ("nki", "trn1", 31, "reported to run on trn1 with SDK 2.32; this is 2.31"),
        ("nki", "inf1", 32, "trn2 and trn3, not inf1"),
        ("nki", "trn2", 28, "2.29 or newer; this is 2.28"),
        ("nki", "trn3", 29, ""),
    ],
)
def test_what_does_not_go_together_says_why(api: str, chip: str, sdk: int, reason: str) -> None:
    found = runs(api, chip, sdk)
    assert reason in found.reason and bool(found.reason) is bool(reason)


def test_the_workload_of_the_documents_first_command_runs_with_every_sdk_that_compiles_its_api() -> None:
    known = [workload(name, ()) for name in find_workloads(())]
    for version in ("2.16.345", "2.21.18209", "2.22.12471", "2.24.5133"):
        able, *_ = check("nki_legacy", "trn2", version, known)
        assert able.state == "ok" and "silu" in able.text.split(": ")[1].split(", ")


def test_every_legacy_baseline_is_legal_for_every_sdk_of_its_api() -> None:
    for one in find_workloads(()).values():
        if "nki_legacy" in one.baselines:
            assert not has_block_dimensions(one.baselines["nki_legacy"].read_text()), one.name


def test_a_baseline_with_block_dimensions_is_named_where_the_sdk_refuses_them(tmp_path: Path) -> None:
    silu = workload("silu", ())
    kernel = tmp_path / "kernel_legacy.py"
    kernel.write_text("tile = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32)\n")
    blocks = replace(silu, name="blocks", baselines={"nki_legacy": kernel})
    able, unable = check("nki_legacy", "trn1", "2.22.12471", [silu, blocks])
    assert able.text.endswith(": silu") and unable.text.endswith(": blocks")
    assert len(list(check("nki_legacy", "trn1", "2.21.18209", [silu, blocks]))) == 1


def test_block_dimensions_are_those_before_the_partitions() -> None:
    assert has_block_dimensions("x = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32)")
    assert not has_block_dimensions("x = nl.ndarray((nl.par_dim(128), 4, 512), dtype=nl.float32)")
