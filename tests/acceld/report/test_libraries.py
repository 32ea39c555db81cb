"""Exports can be read by the libraries that they are made for. Each test skips where its library is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from tests.store.records import state_with_runs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a state folder with one finished run."""
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


def test_verl_reads_the_rows(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By verl's own data set, with a tokenizer of single bytes made here."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    reader = pytest.importorskip("verl.utils.dataset.rl_dataset")
    omegaconf = pytest.importorskip("omegaconf")
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    folder = exported(home, "verl")
    lines = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bytes_only = tokenizers.Tokenizer(tokenizers.models.BPE({one: i for i, one in enumerate(alphabet)}, []))
    bytes_only.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_only)
    tokenizer.chat_template = "{% for one in messages %}{{ one['content'] }}{% endfor %}"
    config = omegaconf.OmegaConf.create(
        {"max_prompt_length": 1_000_000, "cache_dir": str(tmp_path / "verl"), "filter_overlong_prompts_workers": None}
    )
    files = [str(file) for file in sorted(folder.glob("*.jsonl"))]
    rows = reader.RLHFDataset(files, tokenizer, config)
    assert len(rows) == len(lines) > 0
    for index, line in enumerate(lines):
        row = rows[index]
        assert list(row["raw_prompt"]) == line["prompt"]
        assert row["reward_model"]["ground_truth"] == line["reward_model"]["ground_truth"]
        assert row["data_source"] == line["data_source"]


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
