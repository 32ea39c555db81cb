"""A captured profile: both of its forms, the division of time, the ranking, and the command that prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.main import main
from acceld.devices.neuron.tools.captured import UNNAMED, ExecutedInstruction, divided, read_captured
from acceld.devices.neuron.tools.reports import parse_summary
from acceld.errors import UsageError

SUMMARY = {
    "total_time": 20e-6,
    "tensor_engine_active_time": 9e-6,
    "vector_engine_active_time": 6e-6,
    "throttle_avg_util_limit_nc0_percent": 0.6,
    "instance_type": "trn2.3xlarge",
    "compiler_version": "2.23.0",
}
TENSORS = [
    {"variable_name": "q.in", "type": "IN", "shape": "[128 512]", "size": "262144"},
    {"variable_name": "out", "type": "OUT", "shape": "[512 128]", "size": "131072"},
    {"variable_name": "", "type": "", "shape": "", "node": "3"},
]
ROWS = (
    # start, end, engine, opcode, operator, HBM bytes read, bfloat16-equivalent FLOP
    (0, 4000, "sync", "DMA_TRIGGER", "", 0, 0),
    (4000, 12000, "tensor", "MATMUL", "layer[0]/attention", 1_000_000, 8 * 128 * 128 * 512),
    (8000, 14000, "vector", "TENSOR_REDUCE", "layer[0]/norm", 0, 0),
    (14000, 15000, "scalar", "EVENT_SEMAPHORE", "layer[0]/norm", 0, 0),
    (18000, 20000, "vector", "COPY", "layer[0]/attention", 0, 0),
)


def as_json(place: Path) -> Path:
    """Write the rows as the profiler's full JSON."""
    instructions = [
        {
            "timestamp": start,
            "duration": end - start,
            "label": "TensorMatrix" if engine == "tensor" else engine.capitalize(),
            "opcode": opcode,
            "layer": operator or "Unknown",
            "hlo_name": "",
            "subgraph": "sg00",
            "operands": "src=fp32@0x1[1][1] 128*128" if opcode == "MATMUL" else "",
            "instruction_type": "REGULAR",
        }
        | ({"hbm_read_bytes": moved} if moved else {})
        | ({"elements": flops // 8} if flops else {})
        for start, end, engine, opcode, operator, moved, flops in ROWS
    ]
    transpose = {"label": "TensorMatrix", "opcode": "MATMUL", "layer": "layer[0]/attention", "subgraph": "sg00"}
    instructions.append(
        transpose | {"timestamp": 9000, "duration": 10, "elements": 10**9, "instruction_type": "TRANSPOSE"}
    )
    whole = {"instruction": instructions, "summary": [SUMMARY], "neff_node": TENSORS, "warnings": [{"message": "w"}]}
    place.write_text(json.dumps(whole), encoding="utf-8")
    return place


def as_tables(folder: Path) -> Path:
    """Write the rows as the tables of Neuron Explorer, the instructions in two files."""
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow: make test-exports")
    from pyarrow import parquet

    inner = folder / "profiles" / "global" / "mine@latest"
    inner.mkdir(parents=True)
    instructions: list[dict[str, Any]] = [
        {
            "start_ts": start,
            "end_ts": end,
            "duration_ns": end - start,
            "engine": engine,
            "opcode": opcode,
            "raw_framework_id": number if operator else None,
            "layer": None,
            "nki_source_location": '["kernel.py:42"]' if engine == "tensor" else None,
            "pcore_idx": 0,
            "hbm_read_bytes": moved,
            "adjusted_flops": flops + (77 if flops else 0),
            "adjusted_flops_transpose": 77 if flops else 0,
        }
        for number, (start, end, engine, opcode, operator, moved, flops) in enumerate(ROWS)
    ]
    tables = {
        "Instruction_0": instructions[:2],
        "Instruction_1": instructions[2:],
        "FrameworkInstruction": [
            {"raw_framework_id": number, "framework_name": row[4]} for number, row in enumerate(ROWS) if row[4]
        ],
        "Summary": [{name: found for name, found in SUMMARY.items() if not isinstance(found, str)}],
        "Metadata": [{name: found for name, found in SUMMARY.items() if isinstance(found, str)}],
        "TensorInfo": TENSORS[:2],
        "Warning": [{"message": "w", "category": "Missing Data"}],
    }
    for name, rows in tables.items():
        parquet.write_table(pyarrow.Table.from_pylist(rows), inner / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("write", [as_json, as_tables])
def test_both_forms_give_one_ranking(write: Any, tmp_path: Path) -> None:
    found = read_captured(write(tmp_path / "profile"))
    assert (found.chip, found.cores, found.summary.total_us, found.warnings) == ("trn2", 1, 20.0, ("w",))
    assert found.summary.throttled_percent == 60
    # 4 to 8 attention alone, 8 to 12 shared, 12 to 14 norm; the idle 14 to 18 belongs to the copy that waited.
    assert {one.name: one.time_us for one in found.operators} == {
        "layer[0]/attention": pytest.approx(4 + 2 + 6),
        "layer[0]/norm": pytest.approx(2 + 2),
        UNNAMED: pytest.approx(4),
    }
    first = found.operators[0]
    assert (first.name, first.bound, first.hbm_bytes) == ("layer[0]/attention", "DMA", 1_000_000)
    assert first.flops == 8 * 128 * 128 * 512, "transposes are no products"
    assert 1 < first.least_us < first.time_us
    assert [(one.name, one.shape, one.dtype) for one in found.tensors] == [
        ("q.in", (128, 512), "float32"),
        ("out", (512, 128), "bfloat16"),
    ]


def test_source_lines_are_ranked_too(tmp_path: Path) -> None:
    found = read_captured(as_tables(tmp_path / "profile"))
    assert [(one.name, one.instructions) for one in found.lines] == [("kernel.py:42", 1)]


def test_parts_add_up_to_the_whole() -> None:
    steps = [
        ExecutedInstruction(start, end, "vector", "COPY", name, "", "0", 0, 0, 0)
        for start, end, name in ((5, 9, "a"), (6, 7, "b"), (6, 12, "a"), (20, 30, "c"), (29, 31, "b"))
    ]
    steps.append(ExecutedInstruction(7, 7, "vector", "COPY", "takes no time", "", "0", 0, 0, 0))
    parts = divided(steps)
    assert sum(parts.values()) == 31 - 5
    assert parts == {"a": 7 - 0.5, "b": 0.5 + 1.5, "c": 8 + 9.5}


def test_the_summary_of_a_full_profile_is_read_like_a_summary(tmp_path: Path) -> None:
    text = as_json(tmp_path / "profile.json").read_text()
    assert parse_summary(text).total_us == 20.0
    assert parse_summary(json.dumps({"n": SUMMARY})).engines_us == parse_summary(text).engines_us


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no JSON"),
        ("[]", "no list `instruction`"),
        ('{"instruction": [{"opcode": "COPY"}]}', "has another form"),
        ('{"instruction": []}', "holds no instruction"),
        ('{"instruction": [], "warnings": [3]}', "has another form"),
        (
            '{"instruction": [{"timestamp": 1, "duration": 0}], "summary": [{"instance_type": "trn2.48xlarge"}]}',
            "no instruction of the profile takes time",
        ),
        ('{"instruction": [{"timestamp": 0, "duration": 1}]}', "an unnamed instance"),
    ],
)
def test_what_is_no_profile_is_named(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UsageError, match=told):
        read_captured(tmp_path / "p.json")


def test_inputs_get_names_that_python_takes_and_that_differ(tmp_path: Path) -> None:
    raw = json.loads(as_json(tmp_path / "p.json").read_text())
    named = ("q.in", "q_in", "0", "in")
    raw["neff_node"] = [{"variable_name": one, "type": "IN", "shape": "[8 8]", "size": 256} for one in named]
    raw["instruction"][0]["layer"] = 'a"""b\\x'
    (tmp_path / "p.json").write_text(json.dumps(raw))
    assert main(["find", str(tmp_path / "p.json"), "--init", str(tmp_path / "ref.py")]) == 0
    text = (tmp_path / "ref.py").read_text()
    assert "def forward(q_in, q_in_, x_0, x_in):" in text
    compile(text, "ref.py", "exec")


def test_a_folder_without_tables_and_a_missing_file_are_named(tmp_path: Path) -> None:
    for place, told in ((tmp_path, "no Instruction.parquet"), (tmp_path / "gone", "No such file")):
        with pytest.raises(UsageError, match=told):
            read_captured(place)


def test_the_command_ranks_and_writes_a_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, reference = as_json(tmp_path / "profile.json"), tmp_path / "ref.py"
    assert main(["find", str(profile), "--init", str(reference)]) == 0
    printed = capsys.readouterr().out
    assert "layer[0]/attention  12.0 µs  60.0 %" in printed
    assert f"acceld optimize {reference} --arg q_in=128x512:float32 --chip trn2" in printed
    assert "held at 60.0 % of its rate" in printed
    text = reference.read_text()
    assert "def forward(q_in):" in text and "Inputs of the whole program" in text
    compile(text, str(reference), "exec")
    assert main(["find", str(profile), "--init", str(reference)]) != 0, "nothing is written over"
    assert main(["find", str(profile), "--json", "--top", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["operators"]] == ["layer[0]/attention"]
    assert told["source"] == "measured"
