"""A run as a flashinfer-bench trace set: files, public definitions, and that project's own models where installed."""

from __future__ import annotations

import ast
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from acceld.model import (
    Candidate,
    Check,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Kernel,
    Profile,
    Run,
    RunSpec,
    RunState,
    Source,
    Status,
)
from acceld.report.datasets import Material
from acceld.report.trace_set import definition_of, trace_set
from acceld.workloads import find_workloads, workload

DECODE = "gqa_paged_decode_h32_kv8_d128"
PUBLIC = "gqa_paged_decode_h32_kv8_d128_ps1"


def material(name: str = DECODE, api: str = "triton", chip: str = "h100", backend: str = "cuda") -> Material:
    text = workload(name).baselines[api].read_text()
    kernel = Kernel(text, api, entry="run", filename="kernel_triton.py")
    profile = Profile(Source.MEASURED, chip, api, 120.0, method="events")
    right = Correctness(Gate.SEARCH, 1e-3, 4e-3, checks=(Check("own", True, 1e-3, 4e-3),))
    passed = Evaluation(Status.PASSED, kernel.sha256, profile=profile, correctness=right)
    failed = Evaluation(Status.COMPILE_ERROR, kernel.sha256, failure=Failure("compile", "no such function"))
    candidates = [
        Candidate(7, 0, kernel, None, evaluation=passed, id=1),
        Candidate(7, 1, kernel, 1, evaluation=failed, id=2),
    ]
    run = Run(7, RunSpec(name, chip, api, backend), RunState.FINISHED, 1.0, ended_at=2.0, baseline=1, best=1)
    return Material(run, candidates, {}, [], "")


def written(folder: Path, *materials: Material) -> dict[str, bytes]:
    files = trace_set(materials, {name: workload(name) for name in {one.run.spec.workload for one in materials}})
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return files


def test_a_run_becomes_definitions_workloads_solutions_and_traces(tmp_path: Path) -> None:
    files = written(tmp_path, material())
    assert set(files) == {
        f"definitions/gqa_paged/{PUBLIC}.json",
        f"workloads/gqa_paged/{PUBLIC}.jsonl",
        f"blob/workloads/gqa_paged/{PUBLIC}/{DECODE}.safetensors",
        f"solutions/{PUBLIC}/acceld_r7_c1.json",
        f"solutions/{PUBLIC}/acceld_r7_c2.json",
        f"traces/{PUBLIC}.jsonl",
    }
    solution = json.loads(files[f"solutions/{PUBLIC}/acceld_r7_c1.json"])
    assert solution["spec"]["language"] == "triton" and solution["definition"] == PUBLIC
    traces = [json.loads(line) for line in files[f"traces/{PUBLIC}.jsonl"].splitlines()]
    assert [one["evaluation"]["status"] for one in traces] == ["PASSED", "COMPILE_ERROR"]
    axes = {"batch_size": 32, "num_pages": 35000, "len_indptr": 33, "num_kv_indices": 32768}
    assert traces[0]["workload"]["axes"] == axes
    assert "(simulated)" not in traces[0]["evaluation"]["environment"]["hardware"]


def test_index_arrays_are_written_validly(tmp_path: Path) -> None:
    data = written(tmp_path, material())[f"blob/workloads/gqa_paged/{PUBLIC}/{DECODE}.safetensors"]
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    start, end = (8 + length + place for place in header["kv_indptr"]["data_offsets"])
    ends = np.frombuffer(data[start:end], np.int32)
    assert ends.shape == (33,) and ends[0] == 0 and ends[-1] == 32768 and (np.diff(ends) >= 1).all()
    assert set(header) == {"kv_indptr", "kv_indices"} and (8 + length) % 8 == 0


@pytest.mark.parametrize("name", sorted(n for n, one in find_workloads().items() if one.definition is not None))
def test_a_definition_runs_the_reference_it_carries(name: str) -> None:
    made = definition_of(workload(name))
    functions = {node.name for node in ast.parse(made["reference"]).body if isinstance(node, ast.FunctionDef)}
    assert {"run", "forward_torch"} <= functions
    assert all(axis in made["axes"] for one in made["inputs"].values() for axis in one["shape"] or ())
    assert not set(made["inputs"]) & set(made["outputs"])


def test_workloads_without_a_public_definition_keep_their_own_name(tmp_path: Path) -> None:
    files = written(tmp_path, material("rmsnorm_bf16", "nki", "trn2", "neuron"))
    assert set(files) == {
        "solutions/rmsnorm_bf16/acceld_r7_c1.json",
        "solutions/rmsnorm_bf16/acceld_r7_c2.json",
        "traces/rmsnorm_bf16.jsonl",
    }
    assert json.loads(files["solutions/rmsnorm_bf16/acceld_r7_c1.json"])["spec"]["language"] == "python"


def test_flashinfer_benchs_own_models_load_the_folder(tmp_path: Path) -> None:
    data = pytest.importorskip("flashinfer_bench.data")
    names = [name for name, one in find_workloads().items() if one.definition is not None]
    for number, name in enumerate(names):
        written(tmp_path / str(number), material(name))
        loaded = data.TraceSet.from_path(str(tmp_path / str(number)))
        assert len(loaded.definitions) == len(loaded.workloads) == 1
        (definition,) = loaded.definitions
        assert len(loaded.solutions[definition]) == len(loaded.traces[definition]) == 2
        (trace,) = loaded.workloads[definition]
        assert set(trace.workload.axes) == set(loaded.definitions[definition].var_axes)
