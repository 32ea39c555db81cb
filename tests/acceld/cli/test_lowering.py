"""init and optimize start from a numpy reference without a kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.workloads import load_workload

REFERENCE = '''
import numpy as np


def forward(x, w):
    """softmax(x) @ w."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ w
'''
SORTED = "import numpy as np\n\n\ndef forward(x, w):\n    return np.sort(x @ w, axis=1)\n"
NARROW = REFERENCE.replace("    e =", "    x, w = x.astype(np.float32), w.astype(np.float32)\n    e =")
WIDE = """
import numpy as np


def get_inputs():
    return [np.random.randint(0, 10, (2, 20)), np.random.randn(10, 32)]


def forward(ids, table):
    return table[ids] * np.sqrt(table.shape[1])
"""
ARGUMENTS = ["--arg", "x=128x96:float32", "--arg", "w=96x64:float32"]


@pytest.mark.parametrize("api", ["nki", "nki_legacy"])
def test_init_writes_a_workload_whose_kernels_are_lowered_and_right(
    folder: Path, api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(REFERENCE, encoding="utf-8")
    assert main(["init", "--reference", "mine.py", *ARGUMENTS, "--api", api, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["status"] == "passed" and result["api"] == api and result["rel_l2"] < 1e-6
    loaded = load_workload(folder / "mine")
    assert set(loaded.baselines) == {"nki", "nki_legacy"}
    assert (
        loaded.work is not None and "softmax(x) @ w. Lowered from the reference." in loaded.baselines[api].read_text()
    )
    text = (folder / "mine" / "workload.toml").read_text()
    assert (
        f'matmul_flops = "{2 * 128 * 96 * 64}"' in text
        and f'hbm_bytes = "{4 * (128 * 96 + 96 * 64 + 128 * 64)}"' in text
    )


def test_init_without_a_kernel_or_a_reference_says_what_it_needs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--arg", "x=4x4:float32"]) == 2
    assert "a folder is made from a kernel or a reference" in capsys.readouterr().err
    Path("mine.py").write_text(REFERENCE, encoding="utf-8")
    assert main(["init", "--reference", "mine.py", *ARGUMENTS, "--entry", "f"]) == 2
    assert "--entry describes a kernel, and none is given" in capsys.readouterr().err


def test_a_reference_that_rounds_to_float32_by_itself_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, noticed in ((REFERENCE, False), (NARROW, True)):
        Path("mine.py").write_text(text, encoding="utf-8")
        assert main(["init", "--reference", "mine.py", *ARGUMENTS, "-o", f"made{noticed}"]) == 0
        said = capsys.readouterr().err
        assert ("mine.py computes out0 in float32 whatever it is given" in said) is noticed


def test_arrays_of_64_bits_become_a_kernel_of_32(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.py").write_text(WIDE, encoding="utf-8")
    assert main(["init", "--reference", "rows.py", "--api", "nki", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "passed"
    loaded = load_workload(folder / "rows")
    assert [one.dtype for one in loaded.arguments] == ["int32", "float32"]
    assert [one.dtype for one in loaded.outputs] == ["float32"]


def test_what_can_not_be_lowered_is_named_and_models_are_offered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(SORTED, encoding="utf-8")
    assert main(["optimize", "mine.py", *ARGUMENTS, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "line 5: np.sort is not lowered" in said and "--proposer llm" in said


def test_optimize_takes_a_reference_as_it_takes_a_workload(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(REFERENCE, encoding="utf-8")
    assert main(["optimize", "mine.py", *ARGUMENTS, "--api", "nki", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"] == "mine"
    made = [load_workload(one) for one in (folder / ".acceld" / "workloads").iterdir()]
    assert [set(one.baselines) for one in made] == [{"nki", "nki_legacy"}]
