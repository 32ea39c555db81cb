"""init, profile and verify on a person's own small kernel, with the real simulator."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.commands.init import judge_too
from acceld.cli.main import main
from acceld.config import EvaluateConfig
from acceld.targets import SIMULATOR, Choice

KERNEL = """
import torch
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def add_kernel(a, b):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    nl.store(out[p, f], nl.add(nl.load(a[p, f]), nl.load(b[p, f])))
    return out


if __name__ == "__main__":
    raise SystemExit("never run")
"""
CURRENT = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
REFERENCE = """
import numpy as np


def get_inputs():
    return [np.random.randn(128, 64).astype(np.float32) for _ in range(2)]


def forward(a, b):
    return a + b
"""


ADD_IN_C = """
void kernel(const float *a, const float *b, float *out)
{
    for (int i = 0; i < 512 * 2048; i++) {
        out[i] = a[i] + b[i];
    }
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the kernel and its reference, in which the commands run."""
    (tmp_path / "mine.py").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "ref.py").write_text(REFERENCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_shapes_alone_time_a_kernel_unchecked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", "mine.py", "--arg", "a=128x64:float32", "--arg", "b=128x64:float32", "--json"]
    assert main(words) == 0
    reported = answer(capsys)
    assert reported["status"] == "unchecked" and reported["source"] == "simulated"
    assert isinstance(reported["latency_us"], float) and reported["hbm_write_bytes"] == 128 * 64 * 4
    assert reported["version"] == 1 and reported["program_hash"]


def test_a_profile_says_what_a_trainium_may_not_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.py").write_text(CURRENT.replace("@nki.jit\n", ""))
    assert main(["profile", "mine.py", "--arg", "a=128x64:float32", "--chip", "trn1"]) == 0
    said = capsys.readouterr().err
    assert (
        "no function of mine.py is under @nki.jit" in said and "supports nki on trn2 and trn3, and not on trn1" in said
    )


def test_a_reference_checks_a_kernel(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "mine.py", "--reference", "ref.py", "--json"]) == 0
    assert answer(capsys)["status"] == "passed"
    (folder / "mine.py").write_text(KERNEL.replace("nl.add", "nl.multiply"), encoding="utf-8")
    assert main(["profile", "mine.py", "--reference", "ref.py", "--json"]) == 7
    reported = answer(capsys)
    assert reported["status"] == "incorrect_numerical" and isinstance(reported["failure"], dict)


@pytest.mark.usefixtures("untried")
def test_profile_and_init_agree_on_a_kernel_with_tiles_of_bfloat16(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounded = CURRENT.replace("(a):", "(a, b):").replace(
        "    nisa.dma_copy(dst=out, src=tile)",
        "    half = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "    more = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)\n"
        "    nisa.dma_copy(dst=more, src=b)\n"
        "    nisa.tensor_tensor(dst=half, data1=tile, data2=more, op=nl.add)\n"
        "    nisa.dma_copy(dst=out, src=half, dge_mode=nisa.dge_mode.swdge)",
    )
    half = REFERENCE.replace("np.float32", "ml_dtypes.bfloat16").replace(
        "import numpy", "import ml_dtypes\nimport numpy"
    )
    (folder / "mine.py").write_text(
        rounded.replace("dtype=a.dtype, buffer=nl.shared", "dtype=nl.float32, buffer=nl.shared")
    )
    (folder / "ref.py").write_text(half.replace("a + b", "a.astype(np.float32) + b.astype(np.float32)"))
    for command in ("profile", "init"):
        assert main([command, "mine.py", "--reference", "ref.py", "--chip", "trn2", "--json"]) == 0
        assert answer(capsys)["status"] == "passed"


@pytest.mark.usefixtures("untried")
def test_init_judges_the_lowered_kernels_of_both_apis(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--reference", "ref.py", "--api", "nki", "--chip", "trn2"]) == 0
    assert "note: kernel_legacy.py (nki_legacy, trn2) passes too" in capsys.readouterr().err
    wrong = folder / "ref" / "kernel_legacy.py"
    wrong.write_text(wrong.read_text(encoding="utf-8").replace("add", "subtract"), encoding="utf-8")
    judge_too(Choice(SIMULATOR, "nki_legacy", "trn2"), folder / "ref", EvaluateConfig(), folder / ".acceld")
    said = capsys.readouterr().err
    assert "kernel_legacy.py (nki_legacy, trn2) does not pass: " in said and "out of [baselines]" in said


def test_a_bare_kernel_is_offered_what_would_help(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("profile", "optimize"):
        assert main([command, "mine.py"]) == 2
        assert "acceld init mine.py" in capsys.readouterr().err


def test_the_program_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "mine.py", "--arg", "128x64:float32", "--arg", "128x64:float32", "--ir"]) == 0
    printed = capsys.readouterr().out
    assert "program add_kernel (nki_legacy, trn1)" in printed and "tensor_tensor.vector" in printed


@pytest.mark.usefixtures("untried")
def test_init_writes_a_folder_that_check_accepts_and_names_the_command_that_ports_its_kernel(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["init", "mine.py", "--reference", "ref.py", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == "passed"
    (port,) = re.findall(r"nki_legacy alone; acceld (port .+) writes one for nki", captured.err)
    work = tomllib.loads((folder / "mine" / "workload.toml").read_text())["work"]
    assert work == {
        "counted": True,
        "matmul_flops": "0",
        "vector_flops": "128*64",
        "hbm_bytes": "12*128*64",
    }
    assert main(["init", "mine.py", "--reference", "ref.py"]) == 2
    assert "exists" in capsys.readouterr().err
    monkeypatch.chdir(folder / "mine")
    git = ["git", "-c", "user.email=a@example.org", "-c", "user.name=a"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "kernel"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})
    assert main(["check", "kernel_legacy.py", "--against", "HEAD", "--json"]) == 0
    (case,) = answer(capsys)["cases"]
    assert case["status"] == "passed" and case["change_percent"] == 0.0 and case["holds"]
    Path("kernel_legacy.py").write_text(KERNEL.replace("nl.add", "nl.subtract"), encoding="utf-8")
    assert main(["check", "kernel_legacy.py", "--against", "HEAD", "--json"]) == 7
    assert answer(capsys)["holds"] is False
    assert main(["check", "kernel_legacy.py"]) == 7
    printed = capsys.readouterr()
    assert "DOES NOT HOLD" in printed.out
    assert "kernel_legacy.py on mine: " in printed.err and "[tolerance]" in printed.err
    monkeypatch.chdir(folder)
    Path("mine", "kernel_legacy.py").write_text(KERNEL, encoding="utf-8")
    assert main(port.split()) == 0 and 'nki = "kernel.py"' in captured.err
    with Path("mine", "workload.toml").open("a", encoding="utf-8") as file:
        file.write('nki = "kernel.py"\n')
    capsys.readouterr()
    assert main(["profile", "mine", "--api", "nki", "--json"]) == 0
    assert answer(capsys)["status"] == "passed"


@pytest.mark.usefixtures("untried")
def test_init_says_if_the_kernel_lowered_from_the_reference_is_predicted_faster(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = KERNEL.replace("nl.load(b[p, f])", "nl.copy(nl.copy(nl.copy(nl.load(b[p, f]))))")
    (folder / "mine.py").write_text(text)
    assert main(["init", "mine.py", "--reference", "ref.py", "--chip", "trn1"]) == 0
    printed = capsys.readouterr().err
    assert re.search(r"lowers from ref\.py is predicted faster: ≈ .* sim trn1", printed)
    assert "acceld init --reference ref.py -o NEW" in printed


def test_init_refuses_a_kernel_whose_parameters_stand_in_another_order_than_those_of_forward(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(KERNEL.replace("add_kernel(a, b)", "add_kernel(b, a)"))
    assert main(["init", "mine.py", "--reference", "ref.py"]) == 2
    printed = capsys.readouterr().err
    assert "mine.py takes b, a, and forward in ref.py takes a, b" in printed and "in the same order" in printed
    assert not (folder / "mine").exists()


@pytest.mark.slow
def test_init_refuses_a_reference_that_takes_more_than_the_kernel(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ref.py").write_text(
        REFERENCE.replace("forward(a, b)", "forward(a, b, c)").replace("range(2)", "range(3)")
    )
    assert main(["init", "mine.py", "--reference", "ref.py"]) == 2
    assert "forward in ref.py takes a, b, c; the kernel in mine.py takes a, b" in capsys.readouterr().err
    (folder / "ref.py").write_text(REFERENCE.replace("forward(a, b)", "forward(a, b, c=1)"))
    assert main(["init", "mine.py", "--reference", "ref.py"]) != 2, "a parameter with a default may be left out"


@pytest.mark.usefixtures("untried")
def test_init_says_what_the_author_of_a_kernel_and_a_reference_may_not_expect(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.py").write_text(KERNEL.replace("@nki.jit\n", ""))
    (folder / "ref.py").write_text(REFERENCE.replace("    return a + b", "    print(a.shape)\n    return a + b"))
    assert main(["init", "mine.py", "--reference", "ref.py"]) == 0
    said = capsys.readouterr().err
    assert "no function of mine.py is under @nki.jit" in said and "is not shown: (128, 64)" in said
    assert said.rstrip().splitlines()[-1].startswith("next: acceld optimize mine")


def test_init_says_if_every_faster_kernel_would_be_suspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    constant = REFERENCE.replace("    return a + b", "    return 1e6 + 0 * (a + b)")
    (folder / "ref.py").write_text(constant)
    assert main(["init", "--reference", "ref.py", "--api", "nki", "--chip", "trn2"]) == 0
    said = capsys.readouterr().err
    assert "every faster kernel will be suspect, because a kernel that writes one constant would pass" in said
    assert said.count("will be suspect") == 1 and said.rstrip().splitlines()[-1].startswith("next: acceld optimize ref")


def test_inputs_unlike_the_workloads_file_are_named_before_the_kernel_is_blamed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.cli.declared.MOST_S", 0.0)
    assert main(["init", "mine.py", "--reference", "ref.py"]) == 0
    file = folder / "mine" / "workload.toml"
    file.write_text(file.read_text().replace("[arguments.b]\nshape = [128, 64]", "[arguments.b]\nshape = [128, 32]"))
    capsys.readouterr()
    assert main(["profile", "mine"]) == 2
    said = capsys.readouterr().err
    assert "get_inputs made b as (128, 64) float32, [arguments.b] declares (128, 32) float32" in said


def test_a_workload_without_a_kernel_is_profiled_and_read_by_the_kernel_lowered_from_its_reference(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.cli.declared.MOST_S", 0.0)
    assert main(["init", "--reference", "ref.py", "--api", "nki", "--chip", "trn2"]) == 0
    file = folder / "ref" / "workload.toml"
    text = file.read_text()
    file.write_text(text[: text.index("[baselines]")])
    for command in (["profile", "ref", "--api", "nki", "--json"], ["suggest", "ref", "--api", "nki", "--json"]):
        capsys.readouterr()
        assert main(command) == 0
        captured = capsys.readouterr()
        assert "ref has no kernel, so this is the kernel that acceld lowers" in captured.err and json.loads(
            captured.out
        )


def test_the_doctor_admits_a_workload_by_its_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.cli.declared.MOST_S", 0.0)
    assert main(["init", "mine.py", "--reference", "ref.py", "-o", "sub/other"]) == 0
    capsys.readouterr()
    assert main(["workloads", "sub/other"]) == 0
    assert "not tried yet: acceld doctor workloads --admit sub/other" in capsys.readouterr().out
    assert main(["doctor", "workloads", "--admit", "sub/other"]) == 0
    assert re.search(r"other +ok: no constant passes, every input matters", capsys.readouterr().out)
    assert main(["doctor", "workloads", "--admit", "sub/othr"]) == 2
    assert "there is no workload 'sub/othr'" in capsys.readouterr().err


@pytest.mark.usefixtures("untried")
def test_init_names_the_arguments_that_a_kernel_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = KERNEL.replace("    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)\n", "")
    (folder / "mine.py").write_text(text.replace("nl.store(out", "nl.store(b").replace("return out", "return b"))
    assert main(["init", "mine.py", "--arg", "a=128x64:float32", "--arg", "b=128x64:float32", "--json"]) == 0
    assert answer(capsys)["status"] == "passed"
    declared = (folder / "mine" / "workload.toml").read_text()
    assert 'mutates = ["b"]' in declared
    (folder / "mine" / "workload.toml").write_text(declared.replace('mutates = ["b"]', ""))
    assert main(["verify", "mine/kernel_legacy.py", "--json"]) == 7
    assert "input_written" in capsys.readouterr().out


def test_init_of_a_kernel_in_c_needs_a_reference_and_no_chip(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "add.c").write_text("void kernel(const float *a, const float *b, float *out) { }\n", encoding="utf-8")
    assert main(["init", "add.c"]) == 2
    assert "--reference REF.py" in capsys.readouterr().err
    assert main(["init", "add.c", "--reference", "ref.py", "--chip", "trn1"]) == 2
    assert "this machine's processor" in capsys.readouterr().err
    assert not (folder / "add").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc")
def test_init_of_a_kernel_in_c_measures_it_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "add.c").write_text(ADD_IN_C, encoding="utf-8")
    (folder / "add_ref.py").write_text(REFERENCE.replace("128, 64", "512, 2048"), encoding="utf-8")
    assert main(["init", "add.c", "--reference", "add_ref.py", "--json"]) == 0
    reported = answer(capsys)
    assert (reported["status"], reported["source"], reported["chip"]) == ("passed", "measured", "host")


def test_a_syntax_error_names_file_and_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.py").write_text("def f(:\n", encoding="utf-8")
    assert main(["profile", "mine.py", "--workload", "silu"]) == 7
    assert "mine.py:1" in capsys.readouterr().err


def test_a_timeline_is_written_beside_the_profile_of_the_api_that_the_file_imports(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "current.py").write_text(CURRENT, encoding="utf-8")
    assert main(["profile", "current.py", "--arg", "128x64:float32", "--trace", "line.json", "--json"]) == 0
    found = answer(capsys)
    assert (found["api"], found["chip"]) == ("nki", "trn2")
    assert isinstance(found["hbm_read_bytes"], int)
    events = json.loads((folder / "line.json").read_text(encoding="utf-8"))["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 2
    assert main(["profile", "current.py", "--arg", "128x64:float32", "--trace", "nowhere/line.json"]) == 2
    assert "nowhere/line.json" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["profile", "init", "check"])
def test_a_state_folder_that_can_not_be_made_is_an_error_that_says_so(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = tmp_path / "add.py"
    kernel.write_text(KERNEL)
    (tmp_path / "file").write_text("in the way")
    words = [command, str(kernel), "--home", str(tmp_path / "file" / "state")]
    given = ["--arg", "a=128x64:float32", "--arg", "b=128x64:float32"]
    assert main(words + (["--workload", "silu"] if command == "check" else given)) == 2
    assert "state folder" in capsys.readouterr().err


@pytest.mark.usefixtures("untried")
def test_a_kernel_inside_a_package_keeps_its_relative_imports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "ops"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sizes.py").write_text("COLUMNS = 64\n")
    text = KERNEL.replace("import torch", "import torch\nfrom .sizes import COLUMNS").replace(
        "arange(64)", "arange(COLUMNS)"
    )
    (package / "add.py").write_text(text)
    shapes = ["--arg", "a=128x64:float32", "--arg", "b=128x64:float32"]
    home = ["--home", str(tmp_path / "state"), "--json"]
    assert main(["init", str(package / "add.py"), "--output", str(tmp_path / "w" / "add"), *shapes, *home]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "passed"
    assert (tmp_path / "w" / "add" / "ops" / "add.py").read_text() == text


def test_check_lists_what_each_version_of_nki_refuses_in_a_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(
        CURRENT.replace("    return out", "    for _ in nl.dynamic_range(2):\n        pass\n    return out")
    )
    assert main(["check", str(path), "--nki", "0.6"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:3] for line in lines[1:]] == [
        ["0.3", "ok"],
        ["0.4", "ok"],
        ["0.5", "ok"],
        ["0.6", "ok"],
        ["0.7", "13", "nl.dynamic_range"],
    ]
    assert main(["check", str(path), "--nki", "0.7", "--json"]) == 7
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["nki"]) == (False, "0.7")
    (broken,) = answer["versions"][-1]["breaks"]
    assert (broken["line"], broken["certain"]) == (13, True) and "fori_loop" in broken["instead"]


def test_check_reads_every_kernel_of_a_file_and_the_functions_of_one_without_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernels.py"
    loop = "@nki.jit\ndef second(x):\n    for _ in nl.dynamic_range(2):\n        pass\n    return x\n"
    path.write_text(f"{CURRENT}\n\n{loop}")
    assert main(["check", str(path), "--nki", "0.7", "--json"]) == 7
    (broken,) = json.loads(capsys.readouterr().out)["versions"][-1]["breaks"]
    assert broken["what"] == "nl.dynamic_range"
    path.write_text(f"{CURRENT}\n\n{loop}".replace("dynamic_range", "affine_rang"))
    assert main(["check", str(path), "--nki", "0.7", "--json"]) == 7, "only the second kernel has the misspelt name"
    assert main(["check", str(path), "--nki", "0.7", "--entry", "kernel", "--json"]) == 0
    path.write_text(path.read_text().replace("@nki.jit\n", ""))
    capsys.readouterr()
    assert main(["check", str(path), "--nki", "0.7"]) == 7
    assert "nl.affine_rang" in capsys.readouterr().out


def test_check_takes_the_functions_of_a_file_without_kernels_for_python_unless_they_call_nki(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "helpers.py"
    tile = "def tile(n):\n    return nl.ndarray((n, n), dtype=nl.float32, buffer=nl.sbuf)\n"
    expected = "def expected(x):\n    return [x @ x for _ in range(2)]\n"
    path.write_text(f"import nki.language as nl\n\n\n{tile}\n\n{expected}")
    assert main(["check", str(path), "--nki", "0.6"]) == 0
    path.write_text(
        path.read_text()
        .replace("return nl.ndarray(", "return [nl.ndarray(")
        .replace("nl.sbuf)", "nl.sbuf) for _ in 'ab']")
    )
    capsys.readouterr()
    assert main(["check", str(path), "--nki", "0.6"]) == 7
    assert "comprehension" in capsys.readouterr().out


def test_check_says_what_it_can_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    legacy = tmp_path / "legacy.py"
    legacy.write_text(KERNEL)
    for words, said in (
        ([str(legacy)], "acceld port"),
        ([str(legacy)], "--workload NAME"),
        ([str(legacy), "--nki"], "acceld port"),
        ([str(legacy), str(legacy)], "unrecognized arguments"),
        ([str(tmp_path / "none.py")], "there is no file"),
        (["r1", "--nki", "0.7"], "acceld check KERNEL.py"),
        (["--changed", "--all"], "--changed finds the kernels itself"),
    ):
        assert main(["check", *words]) == 2
        assert said in capsys.readouterr().err


def test_a_kernel_is_profiled_by_the_rules_of_the_named_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kernel.py"
    path.write_text(CURRENT.replace("    return out", "    sizes = [n for n in range(3)]\n    return out"))
    call = ["profile", str(path), "--arg", "128x64:float32", "--json"]
    assert main([*call, "--nki", "0.5"]) == 7
    failure = json.loads(capsys.readouterr().out)["failure"]
    assert failure["rule"] == "nki_version" and "NKI 0.5 refuses it" in failure["message"]
    assert main([*call, "--nki", "0.7"]) == 0
    (tmp_path / "acceld.toml").write_text('[evaluate]\nnki = "0.4"\n')
    capsys.readouterr()
    assert main(call) == 7
    assert "NKI 0.4 refuses it" in json.loads(capsys.readouterr().out)["failure"]["message"]
