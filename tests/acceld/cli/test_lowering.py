"""init and optimize start from a numpy reference without a kernel."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import numpy as np
import pytest

from acceld.cli.commands.optimize import specification
from acceld.cli.declared import judged
from acceld.cli.main import main, parser_of
from acceld.cli.reference import lowered_root
from acceld.drafts import DraftArgument, DraftOutput, workload_toml
from acceld.errors import WorkloadError
from acceld.model import Correctness, Evaluation, Gate, Profile, Source, Status
from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.verify.verifier import verify
from acceld.workloads import load_workload

REFERENCE = '''
import numpy as np


def forward(x, w):
    """softmax(x) @ w."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ w
'''
PARTED = "import numpy as np\n\n\ndef forward(x, w):\n    return np.partition(x @ w, 3, axis=1)\n"
NARROW = REFERENCE.replace("    e =", "    x, w = x.astype(np.float32), w.astype(np.float32)\n    e =")
WIDE = """
import numpy as np


def get_inputs():
    return [np.random.randint(0, 10, (2, 20)), np.random.randn(10, 32)]


def forward(ids, table):
    return table[ids] * np.sqrt(table.shape[1])
"""
ARGUMENTS = ["--arg", "x=128x96:float32", "--arg", "w=96x64:float32"]


@pytest.mark.parametrize("api", ["nki", pytest.param("nki_legacy", marks=pytest.mark.slow)])
def test_init_writes_a_workload_whose_kernels_are_lowered_and_right(
    folder: Path, api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(REFERENCE, encoding="utf-8")
    assert main(["init", "--reference", "mine.py", *ARGUMENTS, "--api", api, "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["status"] == "passed" and result["api"] == api and result["rel_l2"] < 1e-6
    assert "even from float64" not in captured.err, "the reference keeps float64"
    loaded = load_workload(folder / "mine")
    assert set(loaded.baselines) == {"nki", "nki_legacy"}
    assert (
        loaded.work is not None and "softmax(x) @ w. Lowered from the reference." in loaded.baselines[api].read_text()
    )
    text = (folder / "mine" / "workload.toml").read_text()
    assert loaded.work.matmul_flops == 2 * 128 * 96 * 64 and 'hbm_bytes = "4*128*96 + 4*96*64 + 4*128*64"' in text
    assert re.search(r"^# \[\[hidden]] .*\n# M = 256$", text, re.MULTILINE) and 'scaled_up = "declared"' in text


OVERFLOWING = """
import numpy as np


def forward(x):
    return np.exp(x)
"""
DROPPING = '''
import nki
import nki.language as nl
import nki.isa as nisa


@nki.jit
def kernel(x):
    """exp(x), without the last digits of small inputs."""
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(dst=tile, op=nl.exp, data=tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=1.0)
    nisa.dma_copy(dst=out, src=tile)
    return out
'''


def distributions_of(folder: Path) -> dict[str, str]:
    """Return the reason of each distribution that a workload refuses, by name."""
    states = load_workload(folder).distributions.items()
    return {name: state.reason for name, state in states if not state.declared and name != "special"}


def test_init_proposes_no_distribution_on_which_the_formula_overflows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(OVERFLOWING, encoding="utf-8")
    assert main(["init", "--reference", "mine.py", "--arg", "x=128x64:float32", "--json"]) == 0
    captured = capsys.readouterr()
    refused = distributions_of(folder / "mine")
    assert refused == json.loads(captured.out)["refused"]
    assert "the reference is not finite" in refused["scaled_up"]
    assert "workload.toml refuses the distribution scaled_up (times 30): the reference" in captured.err


def test_init_proposes_no_distribution_on_which_a_kernel_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(DROPPING, encoding="utf-8")
    Path("ref.py").write_text(OVERFLOWING.replace("exp(x)", "expm1(x)"), encoding="utf-8")
    assert main(["init", "mine.py", "--reference", "ref.py", "--arg", "x=128x64:float32"]) == 0
    assert "refuses the distribution scaled_down (times 1e-3): the first kernel is wrong" in capsys.readouterr().err
    assert "the first kernel is wrong on such inputs: output 0" in distributions_of(folder / "mine")["scaled_down"]


def test_init_says_if_the_reference_fails_on_a_declared_distribution(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked = "    if not isinstance(x, np.ndarray):\n        return x\n    assert np.abs(x).max() < 20\n"
    picky = OVERFLOWING.replace("    return np.exp(x)", "    check(x)\n    return x * 2.0")
    Path("mine.py").write_text(
        picky.replace("def forward", f"def check(x):\n{checked}\n\ndef forward"), encoding="utf-8"
    )
    assert main(["init", "--reference", "mine.py", "--arg", "x=128x64:float32"]) == 0
    said = capsys.readouterr().err
    assert "because the reference fails on other inputs" in said and "AssertionError" in said


def test_init_says_if_the_declared_distributions_would_take_too_long(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.cli.declared.MOST_S", 0.0)
    Path("mine.py").write_text(OVERFLOWING, encoding="utf-8")
    assert main(["init", "--reference", "mine.py", "--arg", "x=128x64:float32"]) == 0
    assert "acceld check mine/kernel.py" in capsys.readouterr().err
    assert distributions_of(folder / "mine") == {}


def test_init_without_a_kernel_or_a_reference_says_what_it_needs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--arg", "x=4x4:float32"]) == 2
    assert "a kernel, a reference or a module is needed" in capsys.readouterr().err
    Path("mine.py").write_text(REFERENCE, encoding="utf-8")
    assert main(["init", "--reference", "mine.py", *ARGUMENTS, "--entry", "f"]) == 2
    assert "--entry describes a kernel, and no kernel file is named" in capsys.readouterr().err


def test_a_reference_that_rounds_to_float32_by_itself_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(NARROW, encoding="utf-8")
    assert main(["init", "--reference", "mine.py", *ARGUMENTS]) == 0
    assert "mine.py computes out0 in float32 even from float64" in capsys.readouterr().err


def test_arrays_of_64_bits_become_a_kernel_of_32(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.py").write_text(WIDE, encoding="utf-8")
    assert main(["init", "--reference", "rows.py", "--api", "nki", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == "passed"
    assert "workload.toml keeps the values of ids in every distribution" in captured.err
    loaded = load_workload(folder / "rows")
    assert [one.distribution is not None and one.distribution.fixed for one in loaded.arguments] == [True, False]
    assert [one.dtype for one in loaded.arguments] == ["int32", "float32"]
    assert [one.dtype for one in loaded.outputs] == ["float32"]
    ids = loaded.arguments[0].name

    async def fails_once(gate: Gate) -> Evaluation:
        drawn = load_workload(folder / "rows").arguments[0].distribution
        if gate is Gate.STRICT and drawn is not None and not drawn.fixed:
            raise WorkloadError("the reference fails on these positions")
        profile = Profile(Source.SIMULATED, "trn2", "nki", 1.0, "compiler_current")
        return Evaluation(Status.PASSED, "a", correctness=Correctness(gate, 0.0, 1e-5), profile=profile)

    file = folder / "rows" / "workload.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(re.sub(r"high = \d+, fixed = true", "high = 1234567", text), encoding="utf-8")
    found = asyncio.run(judged(fails_once, folder / "rows"))
    kept = load_workload(folder / "rows").arguments[0].distribution
    assert found.fixed == (ids,) and kept is not None and (kept.fixed, kept.high) == (True, 1234567)


def test_what_can_not_be_lowered_is_named_and_models_are_offered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(PARTED, encoding="utf-8")
    assert main(["optimize", "mine.py", *ARGUMENTS, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "line 5: np.partition is not lowered" in said and "--proposer llm" in said


@pytest.mark.usefixtures("untried")
def test_optimize_takes_a_reference_as_it_takes_a_workload(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(REFERENCE, encoding="utf-8")
    assert main(["optimize", "mine.py", *ARGUMENTS, "--api", "nki", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"] == "mine"
    made = [load_workload(one) for one in (folder / ".acceld" / "workloads").iterdir()]
    assert [set(one.baselines) for one in made] == [{"nki", "nki_legacy"}]


def test_optimize_tries_a_references_first_kernel_once_on_every_distribution(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(OVERFLOWING, encoding="utf-8")
    command = ["optimize", "mine.py", "--arg", "x=128x64:float32", "--dry-run"]
    assert main(command) == 0
    (made,) = (folder / ".acceld" / "workloads").iterdir()
    said = capsys.readouterr().err
    assert f"{made}/workload.toml refuses the distribution scaled_up (times 30): the reference" in said
    assert "the reference is not finite" in distributions_of(made)["scaled_up"]
    assert said.startswith("trying the first kernel of mine.py"), "what takes seconds is said before"
    assert main(command) == 0
    assert "does not propose" not in (again := capsys.readouterr().err), "the folder was kept as it was judged"
    assert "trying" not in again


BRANCHING = """
def forward(x):
    return x * 2.0 if x.shape[0] > 128 else x + 1.0
"""


def workload_of_two_shapes(folder: Path) -> None:
    """Write a workload that has a reference with a branch on shapes, two shapes, and no kernel."""
    x, out = DraftArgument("x", (128, 64), "float32"), DraftOutput("out", (128, 64), "float32")
    text = workload_toml("rows", [x], [out], baselines={}, reference="reference.py", drawn=True)
    text = text.replace("shape = [128, 64]", 'shape = ["M", 64]').replace(
        "[arguments.x]", "[values]\nM = 128\n\n[arguments.x]"
    )
    (folder / "rows").mkdir()
    (folder / "rows" / "workload.toml").write_text(text + "\n[[shapes]]\nvalues = { M = 256 }\n", encoding="utf-8")
    (folder / "rows" / "reference.py").write_text(BRANCHING, encoding="utf-8")


@pytest.mark.parametrize("table", ["hidden", "shapes"])
def test_the_shape_that_init_proposes_is_lowered_as_its_comment_says(folder: Path, table: str) -> None:
    x, out = DraftArgument("x", (128, 64), "float32"), DraftOutput("out", (128, 64), "float32")
    lines = workload_toml("rows", [x], [out], baselines={"nki": "kernel.py"}, reference="reference.py", drawn=True)
    text = lines.replace("shape = [128, 64]", 'shape = ["M", 64]').replace('[baselines]\nnki = "kernel.py"\n', "")
    text, proposed = (
        text[: text.index("# [values]")],
        text[text.index("# [values]") :].replace("# ", "", 2).splitlines(),
    )
    first = next(place for place, line in enumerate(proposed) if line.startswith(f"# [[{table}]]"))
    proposed = [*proposed[:2], *(line.removeprefix("# ") for line in proposed[first : first + 2])]
    (folder / "rows").mkdir()
    (folder / "rows" / "workload.toml").write_text("\n".join([text, *proposed]), encoding="utf-8")
    (folder / "rows" / "reference.py").write_text(BRANCHING, encoding="utf-8")
    found = load_workload(folder / "rows")
    assert {"M": 256} in (found.hidden if table == "hidden" else [one.values for one in found.shapes])
    kernel = lowered_root(found, "nki", hidden=True)
    assert kernel is not None and "x.shape == (128, 64)" in kernel.text


@pytest.mark.parametrize("api", ["nki", "nki_legacy"])
def test_a_workload_without_a_kernel_gets_one_that_is_traced_for_each_of_its_shapes(folder: Path, api: str) -> None:
    workload_of_two_shapes(folder)
    kernel = lowered_root(load_workload(folder / "rows"), api, hidden=True)
    assert kernel is not None
    for rows in (128, 256):
        x = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64)
        program = trace(kernel.text, [TensorSpec(x.shape, "float32")], api=api, chip="trn2")
        assert verify(program) == ()
        (found,) = execute(program, [x], ExecuteOptions())
        assert np.array_equal(np.asarray(found), x * 2 if rows > 128 else x + 1)


def test_a_whole_number_of_a_workload_is_an_index_in_its_reference(folder: Path) -> None:
    x, first, out = (
        DraftArgument("x", (128, 64), "float32"),
        DraftArgument("first", value=3),
        DraftOutput("out", (128,), "float32"),
    )
    text = workload_toml("column", [x, first], [out], baselines={}, reference="reference.py", drawn=True)
    (folder / "column").mkdir()
    (folder / "column" / "workload.toml").write_text(text, encoding="utf-8")
    (folder / "column" / "reference.py").write_text(
        "def forward(x, first):\n    return x[:, first + 1] * 2.0\n", encoding="utf-8"
    )
    kernel = lowered_root(load_workload(folder / "column"), "nki", hidden=False)
    assert kernel is not None and "src=x[0:128, 4:5]" in kernel.text
    spec = TensorSpec((128, 64), "float32")
    assert verify(trace(kernel.text, [spec, 3], api="nki", chip="trn2")) == ()
    with pytest.raises(KernelFailure, match="this kernel was made for first = 3"):
        trace(kernel.text, [spec, 5], api="nki", chip="trn2")


def test_optimize_lowers_the_reference_of_a_workload_that_has_no_kernel(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload_of_two_shapes(folder)
    assert main(["optimize", "rows", "--api", "nki", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"] == "rows"
    (folder / "rows" / "reference.py").write_text(
        "import numpy as np\n\n\ndef forward(x):\n    return np.partition(x, 3)\n"
    )
    assert main(["optimize", "rows", "--api", "nki", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "line 5: np.partition is not lowered" in said and "workload rows has no kernel to begin with" in said


def test_a_workload_without_a_kernel_is_lowered_for_the_current_api(folder: Path) -> None:
    workload_of_two_shapes(folder)
    spec, _ = specification(parser_of("optimize").parse_args(["rows"]))
    assert (spec.api, spec.chip) == ("nki", "trn2")
    assert spec.root is not None and spec.root.api == "nki"


@pytest.mark.usefixtures("untried")
def test_a_run_from_a_reference_begins_at_its_lowered_kernel_too(folder: Path) -> None:
    Path("mine.py").write_text(REFERENCE, encoding="utf-8")
    given = parser_of("optimize").parse_args(
        ["--from-reference", "mine.py", *ARGUMENTS, "--api", "nki", "--proposer", "llm"]
    )
    spec, _ = specification(given)
    assert spec.search.from_reference and spec.root is not None
    assert "Lowered from the reference." in spec.root.text
