"""Every workload of the repository loads, and its inputs, reference and layouts agree with its workload.toml."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.errors import WorkloadError
from acceld.workloads import (
    DISTRIBUTIONS,
    ArraySpec,
    Workload,
    find_workloads,
    kernel_inputs,
    load_reference,
    load_workload,
    make_inputs,
    metamorphic_pair,
    outputs_in_reference_layout,
    reference_outputs,
    supported_distributions,
    workload,
)
from acceld.workloads.oracle import as_float64
from acceld.workloads.rows import BlockedReference, row_blocks

NKIBENCH = {
    "adamw", "add_rmsnorm_matmul", "bmm", "bmm_softmax", "gqa_full", "lora", "mamba", "matmul", "matmul_add_rmsnorm",
    "rmsnorm_matmul", "rope_single_freq_apply", "silu", "swiglu", "transpose_matmul",
}  # fmt: skip
QUICK: dict[str, dict[str, int]] = {"conv2d_maxpool_small": {}, "rmsnorm_matmul": {"M": 512, "N": 256}}
"""Workloads, and the values that make them small."""


def small(folder: Path, name: str, values: Mapping[str, int]) -> Workload:
    """Return a workload of the repository at other shapes, without its kernels' layouts; its copy is written into a folder."""
    copy = folder / name
    shutil.copytree(workload(name).folder, copy)
    text = (copy / "workload.toml").read_text()
    lines = (line for line in text.splitlines(keepends=True) if not line.startswith("kernel_shape"))
    (copy / "workload.toml").write_text("".join(lines))
    return load_workload(copy, values)


def relative_distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one.astype(np.float64) - other) / max(float(np.linalg.norm(other)), 1e-300))


def test_the_fourteen_nkibench_workloads_are_there() -> None:
    found = find_workloads()
    assert {name for name, one in found.items() if one.family == "nkibench"} == NKIBENCH
    assert {one.family for one in found.values()} == {"nkibench", "bf16", "fp8", "cs149"} | {
        one.family for one in found.values() if one.family in ("triton", "cpu")
    }


@pytest.mark.parametrize("name", sorted(NKIBENCH))
def test_an_nkibench_workload_declares_work_a_baseline_and_its_measured_anchor(name: str) -> None:
    one = workload(name)
    assert one.work is not None and one.work.hbm_bytes > 0
    assert one.baselines["nki_legacy"].read_text().count("@nki.jit") == 1
    assert any(anchor.chip == "trn1" and anchor.citation for anchor in one.anchors)
    assert one.reference is not None and load_reference(one.reference).get_inputs is not None


def test_a_folder_holds_what_it_held_after_its_reference_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "reference.py").write_text("def forward(x):\n    return x\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert load_reference(file).forward(3) == 3
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", ["silu", "rmsnorm_matmul", "matmul", "bmm_softmax", "mamba", "matmul_bf16"])
def test_workloads_with_a_current_baseline_do_not_import_the_old_namespace(name: str) -> None:
    source = workload(name).baselines["nki"].read_text()
    assert "import nki.isa as nisa" in source and "neuronxcc" not in source


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("distribution", list(DISTRIBUTIONS))
def test_a_reference_stays_finite_and_follows_float64(name: str, distribution: str, tmp_path: Path) -> None:
    one = small(tmp_path, name, QUICK[name])
    inputs = make_inputs(one, 7, distribution)
    narrow, wide = reference_outputs(one, inputs, float64=False), reference_outputs(one, inputs, float64=True)
    for output, declared, exact in zip(narrow, one.outputs, wide, strict=True):
        assert output.dtype.name == declared.dtype and exact.dtype == np.float64
        assert np.isfinite(exact).all()
        assert relative_distance(output, exact) < one.tolerance


@pytest.mark.parametrize("name", QUICK)
def test_the_declared_metamorphic_checks_hold_for_the_reference(name: str, tmp_path: Path) -> None:
    one = small(tmp_path, name, QUICK[name])
    inputs = make_inputs(one, 3)
    before = reference_outputs(one, inputs)
    assert one.metamorphic
    for check in one.metamorphic:
        pair = metamorphic_pair(one, check, inputs, np.random.default_rng(5))
        after = reference_outputs(one, pair.inputs)
        for got, expected in zip(after, pair.expected(before), strict=True):
            assert relative_distance(got, expected) < 1e-12, check


def test_a_metamorphic_check_catches_a_kernel_that_ignores_a_row() -> None:
    one = workload("conv2d_maxpool_small")
    check = next(check for check in one.metamorphic if check.kind == "scale")
    inputs = make_inputs(one, 3)
    before = reference_outputs(one, inputs)
    pair = metamorphic_pair(one, check, inputs, np.random.default_rng(5))
    assert relative_distance(before[0], pair.expected(before)[0]) > 0.5


def test_every_check_names_the_relation_it_declares() -> None:
    for one in find_workloads().values():
        for check in one.metamorphic:
            assert check.arguments, f"{one.name}: {check}"
            for name in check.arguments:
                assert check.axis < max(1, len(one.argument(name).shape))


def test_published_seeds_reproduce_and_leave_numpys_generator_alone() -> None:
    one = workload("conv2d_maxpool_small")
    np.random.seed(123)
    first = make_inputs(one, 42)
    drawn = np.random.random()
    np.random.seed(123)
    assert drawn == np.random.random()
    np.random.seed(42)
    x = np.random.normal(size=one.arguments[0].shape).astype(np.float32)
    assert np.array_equal(first[0], x)
    assert all(np.array_equal(a, b) for a, b in zip(first, make_inputs(one, 42), strict=True))
    assert not np.array_equal(first[0], make_inputs(one, 43)[0])
    assert not np.array_equal(make_inputs(one, None)[0], make_inputs(one, None)[0])


def test_derived_distributions_are_what_they_say() -> None:
    one = workload("conv2d_maxpool_small")
    own = make_inputs(one, 1)[0]
    assert np.allclose(make_inputs(one, 1, "scaled_up")[0], own * 30)
    assert np.allclose(make_inputs(one, 1, "scaled_down")[0], own * 1e-3)
    assert np.allclose(make_inputs(one, 1, "shifted")[0], own + 3)
    integers = make_inputs(one, 1, "integers")[0]
    assert np.array_equal(integers, np.round(integers)) and set(np.unique(integers)) == {-2, -1, 0, 1, 2}
    sparse = make_inputs(one, 1, "sparse")[0]
    assert 0.85 < np.mean(sparse == 0) < 0.95
    ratio = make_inputs(one, 1, "row_scaled")[0][0, 0] / own[0, 0]
    assert np.allclose(ratio, ratio[:, :1]) and np.allclose(np.log2(ratio), np.round(np.log2(ratio)))
    special = make_inputs(one, 1, "special")[0]
    assert {80.0, -80.0, 1.0} <= set(special[special != own].tolist()) and np.isfinite(special).all()


def test_arrays_that_are_never_negative_stay_so(tmp_path: Path) -> None:
    one = small(tmp_path, "adamw", {"M": 256})
    position = [argument.name for argument in one.arguments].index("v")
    assert make_inputs(one, 5, "special")[position].min() >= 0


def test_a_refused_distribution_is_refused_with_its_reason() -> None:
    one = workload("mamba")
    assert "scaled_up" not in supported_distributions(one)
    with pytest.raises(WorkloadError, match="overflow"):
        make_inputs(one, 1, "scaled_up")
    with pytest.raises(WorkloadError, match="Did you mean 'shifted'"):
        make_inputs(one, 1, "shiftd")


def test_layouts_for_the_kernel_and_back() -> None:
    one = workload("rmsnorm_matmul")
    inputs = make_inputs(one, 1)
    specs = one.kernel_arguments()
    assert specs == (ArraySpec((32, 128, 1024), "float32"), ArraySpec((8, 128, 2048), "float32"))
    given = kernel_inputs(one, inputs)
    assert [array.shape for array in given] == [(32, 128, 1024), (8, 128, 2048)]
    assert np.array_equal(given[0].reshape(-1), inputs[0].reshape(-1))
    result = np.zeros(one.outputs[0].kernel_shape, np.float32)
    assert outputs_in_reference_layout(one, [result])[0].shape == (4096, 2048)
    with pytest.raises(ValueError, match="2 outputs"):
        outputs_in_reference_layout(one, [result, result])


def test_scalars_reach_the_kernel_as_numbers() -> None:
    arguments = workload("add_rmsnorm_matmul").kernel_arguments()
    assert arguments[2] == 1e-5 and isinstance(arguments[2], float)


def test_bfloat16_inputs_have_that_type(tmp_path: Path) -> None:
    one = small(tmp_path, "rmsnorm_bf16", {"M": 128})
    assert one.dtype == "bfloat16"
    inputs = make_inputs(one, 1, "integers")
    assert inputs[0].dtype.name == "bfloat16" and inputs[2] == 1e-5


def test_an_unknown_workload_gets_the_nearest_name() -> None:
    with pytest.raises(WorkloadError, match="Did you mean 'matmul'"):
        workload("matmull")


def test_a_folder_given_as_a_path_is_loaded(tmp_path: Path) -> None:
    one = write_workload(tmp_path)
    assert workload(str(one.folder)).name == "double"
    assert "double" in find_workloads([tmp_path])


def test_importing_the_package_loads_neither_numpy_nor_references() -> None:
    code = "import sys, acceld.workloads; acceld.workloads.find_workloads(); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_hash_follows_the_reference_and_the_description(tmp_path: Path) -> None:
    before = write_workload(tmp_path).hash
    reference = tmp_path / "mine" / "double" / "reference.py"
    reference.write_text(reference.read_text().replace("2 * x", "x + x"))
    assert workload("double", [tmp_path]).hash != before


def write_workload(root: Path, change: str = " => ") -> Workload:
    folder = root / "mine" / "double"
    folder.mkdir(parents=True)
    old, _, new = change.partition(" => ")
    assert old in WORKLOAD
    text = WORKLOAD.replace(old, new) if old else WORKLOAD
    (folder / "workload.toml").write_text(text)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "kernel.py").write_text("def kernel(x): ...\n")
    return load_workload(folder)


REFERENCE = "def forward(x):\n    return 2 * x\n"
WORKLOAD = """
description = "twice x"
tolerance = 1e-5

[values]
M = 4

[arguments.x]
shape = ["M", "2*M"]
distribution = { kind = "uniform", low = 1.0, high = 2.0 }

[outputs.out]
shape = ["M", "2*M"]

[distributions]
scaled_up = "declared"
scaled_down = "declared"
shifted = "declared"
integers = "declared"
row_scaled = "declared"
sparse = "declared"
special = { refused = "not needed" }

[baselines]
nki = "kernel.py"

[[metamorphic]]
kind = "scale"
arguments = ["x"]
"""


def test_a_workload_without_get_inputs_draws_what_it_declares(tmp_path: Path) -> None:
    one = write_workload(tmp_path)
    (array,) = make_inputs(one, 3)
    assert array.shape == (4, 8) and array.dtype == np.float32 and 1 <= array.min() and array.max() <= 2
    assert one.family == "mine" and one.work is None and one.metamorphic[0].power == 1


def test_arrays_can_come_from_a_sample_file(tmp_path: Path) -> None:
    folder = write_workload(tmp_path).folder
    path = folder / "workload.toml"
    path.write_text('sample = "sample.npz"\n' + path.read_text())
    np.savez(folder / "sample.npz", x=np.full((4, 8), 7, np.float32))
    (array,) = make_inputs(workload("double", [tmp_path]), 3)
    assert (array == 7).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("tolerance = 1e-5 => tolerence = 1e-5", "key 'tolerence' is unknown"),
        ('shape = ["M", "2*M"]\ndistribution => shap = ["M"]\ndistribution', r"\[arguments.x\] key 'shap' is unknown"),
        (
            'shape = ["M", "2*M"]\ndistribution => shape = ["m"]\ndistribution',
            r"\[arguments.x\] shape .* It defines M; add . = NUMBER\.",
        ),
        ('kind = "uniform" => kind = "unifrm"', r"Did you mean 'uniform'"),
        ('sparse = "declared"\n => ', r"\[distributions\] sparse is missing"),
        ('special = { refused = "not needed" } => special = "no"', r"\[distributions\] special must be"),
        ('nki = "kernel.py" => nki = "gone.py"', r"\[baselines\] nki names 'gone.py'.*\n.*Write that file"),
        ('nki = "kernel.py" => nkii = "kernel.py"', r"Did you mean 'nki'"),
        ('arguments = ["x"] => arguments = ["xx"]', r"\[\[metamorphic\]\] 1 arguments names 'xx'"),
        ("tolerance = 1e-5 => tolerance = 2", "tolerance is 2"),
        ("M = 4 => M = 4.5", r"\[values\] M must be"),
        ('description = "twice x" => name = "double"', "'description' is missing"),
        ("tolerance = 1e-5 => tolerance = ", "workload.toml"),
        (
            'description = "twice x" => description = "\\u001b[2Jtwice"',
            r"description has the control character '\\x1b'",
        ),
        (
            "tolerance = 1e-5 => tolerance = 1e-5\ntags = ['\\u0007']".replace("'", '"'),
            "tags has the control character",
        ),
        ("tolerance = 1e-5 => tolerance = 1e-5\nname = '../other'", r"name can not be '\.\./other'"),
        ("tolerance = 1e-5 => tolerance = 1e-5\nname = ''", "name can not be ''"),
        ("tolerance = 1e-5 => tolerance = 1e-5\nfamily = '/tmp'", "family can not be '/tmp'"),
        ('nki = "kernel.py" => nki = "kernel.py"\n\n[[hidden]]\nM = -8', r"\[\[hidden\]\] 1 shape is M=-8; every size"),
        ('nki = "kernel.py" => nki = "kernel.py"\n\n[[hidden]]\nM = 4', r"shape is the workload's own"),
    ],
)
def test_a_broken_workload_names_file_and_key(tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        write_workload(tmp_path, change=change)
    assert "workload.toml" in str(caught.value)


def test_a_reference_that_raises_is_named(tmp_path: Path) -> None:
    one = write_workload(tmp_path)
    (one.folder / "reference.py").write_text("def forward(x):\n    raise RuntimeError('no such luck')\n")
    with pytest.raises(WorkloadError, match=r"reference.py:2: forward raised RuntimeError: no such luck"):
        reference_outputs(one, make_inputs(one, 1))
    (one.folder / "reference.py").write_text("def forwrd(x):\n    return x\n")
    with pytest.raises(WorkloadError, match=r"no function 'forward'.\n  Did you mean 'forwrd'"):
        reference_outputs(one, make_inputs(one, 1))
    (one.folder / "reference.py").write_text("def forward(x):\n    return x[:2]\n")
    with pytest.raises(WorkloadError, match=r"returned shapes \[\(2, 8\)\]"):
        reference_outputs(one, make_inputs(one, 1))


@pytest.mark.parametrize("name", ["add_rmsnorm_matmul", "mamba", "matmul_add_rmsnorm"])
def test_secret_inputs_are_drawn_as_declared_which_is_how_the_published_ones_are(name: str) -> None:
    one = workload(name)
    published, drawn, again = make_inputs(one, 21), make_inputs(one, 22), make_inputs(one, 22)
    assert one.drawn and one.reference is not None
    for argument, theirs, ours, same in zip(one.arguments, published, drawn, again, strict=True):
        if argument.is_scalar:
            assert theirs == ours
            continue
        assert (theirs.shape, theirs.dtype) == (ours.shape, ours.dtype)
        assert np.array_equal(ours, same) and not np.array_equal(ours, theirs)
        slack = 6 / np.sqrt(theirs.size)
        assert abs(theirs.mean() - ours.mean()) < slack * theirs.std()
        assert abs(np.abs(theirs).mean() - np.abs(ours).mean()) < slack * theirs.std()
        assert abs(theirs.std() / ours.std() - 1) < slack


@pytest.mark.parametrize("name", sorted(name for name, one in find_workloads().items() if one.drawn))
def test_published_inputs_fit_the_declared_distribution(name: str) -> None:
    one = workload(name)
    assert one.reference is not None
    small = re.sub(r"^([A-Z, ]+) = .*\d.*$", _shrunk, one.reference.read_text(), count=1, flags=re.MULTILINE)
    functions: dict[str, Any] = {}
    exec(small, functions)  # noqa: S102  # our own reference
    np.random.seed(0)
    for argument, array in zip(one.arguments, functions["get_inputs"](), strict=True):
        how = argument.distribution
        if how is None:
            continue
        assert how.kind == "normal" and array.dtype.name == argument.dtype
        assert (array >= 0).all() == how.absolute
        values = array.astype(np.float64)  # an 8-bit float has no fine spread
        signed = values * np.random.choice([-1, 1], array.shape) if how.absolute else values
        assert abs(signed.mean() - how.mean) < 6 * how.std / np.sqrt(array.size)
        assert abs(signed.std() / how.std - 1) < 6 / np.sqrt(array.size)


def _shrunk(match: re.Match[str]) -> str:
    names = match[1].split(", ")
    return f"{', '.join(names)} = {', '.join(['16'] * len(names))}"


@pytest.mark.parametrize("name", sorted(name for name, one in find_workloads().items() if one.rows))
def test_a_reference_gives_the_same_by_blocks_of_rows(name: str, tmp_path: Path) -> None:
    values = {symbol: 3 + number for number, symbol in enumerate(workload(name).values)}
    declared = small(tmp_path, name, values)
    inputs = make_inputs(declared, 7)
    blocks = row_blocks(declared, most_elements=2 * declared.outputs[0].shape[-1])
    blocked = BlockedReference(declared, inputs, as_float64)
    whole = reference_outputs(declared, inputs)
    found = [np.full_like(one, np.nan) for one in whole]
    for block in blocks:
        for into, output, part in zip(found, declared.outputs, blocked.outputs(block), strict=True):
            block.of(into, output.axes)[...] = part
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert len(blocks) > 1


def test_rows_are_axes_of_every_output(tmp_path: Path) -> None:
    folder = workload("matmul").folder
    (tmp_path / "reference.py").write_text((folder / "reference.py").read_text())
    text = (folder / "workload.toml").read_text().partition("[baselines]")[0]
    for rows in ('["K"]', '["M", "M"]'):
        (tmp_path / "workload.toml").write_text(text.replace('rows = ["M"]', f"rows = {rows}"))
        with pytest.raises(WorkloadError, match="must be one axis of output 'out'"):
            load_workload(tmp_path)
