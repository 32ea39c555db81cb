"""Exports are what the libraries they are made for read. Each test skips where its library is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from tests.store.records import state_with_runs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder with one finished run."""
    return state_with_runs(tmp_path)


def exported(home: Path, kind: str) -> Path:
    folder = home.parent / kind
    assert main(["export", "--format", kind, "-o", str(folder), "--home", str(home)]) == 0
    return folder


@pytest.mark.parametrize("kind", ["pairs", "trl-sft", "trl-dpo", "verl", "jsonl"])
def test_datasets_loads_the_folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    datasets = pytest.importorskip("datasets")
    folder = exported(home, kind)
    lines = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    loaded = datasets.load_dataset(str(folder))
    assert sum(len(part) for part in loaded.values()) == len(lines) > 0
    names = {name for part in loaded.values() for name in part.column_names}
    assert names == {name for line in lines for name in line}


def test_trl_takes_the_rows(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utilities = pytest.importorskip("trl.data_utils")
    (sft,) = [json.loads(line) for line in (exported(home, "trl-sft") / "train.jsonl").read_text().splitlines()]
    assert utilities.is_conversational(sft)
    (dpo,) = [json.loads(line) for line in (exported(home, "trl-dpo") / "train.jsonl").read_text().splitlines()]
    assert set(dpo) == {"prompt", "chosen", "rejected"} and not utilities.is_conversational(dpo)


def test_parquet_holds_the_rows_of_the_lines(home: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for kind in ("trl-dpo", "verl", "roles"):
        folder = home.parent / f"{kind}-parquet"
        assert main(["export", "--format", kind, "--parquet", "-o", str(folder), "--home", str(home)]) == 0
        found = [row for file in folder.glob("*.parquet") for row in parquet.read_table(file).to_pylist()]
        lines = [
            json.loads(line) for file in exported(home, kind).glob("*.jsonl") for line in file.read_text().splitlines()
        ]
        assert found == lines


def test_flashinfer_bench_takes_solutions_and_traces(home: Path) -> None:
    data = pytest.importorskip("flashinfer_bench.data")
    folder = exported(home, "flashinfer")
    for name, kind in (("solutions", data.Solution), ("traces", data.Trace)):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        assert rows and all(kind.model_validate(row) for row in rows)
