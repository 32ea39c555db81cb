"""Messages to a person who does not know acceld yet: on files that are no kernels, names, settings, results."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import acceld
from acceld.cli.commands.profile import HOT_SPOTS, Subject, _error, _status, print_evaluation
from acceld.cli.main import COMMANDS, main, parser_of
from acceld.cli.outcome import _refused
from acceld.drafts import DraftArgument, DraftOutput, workload_toml
from acceld.evaluate.correctness.metrics import place_of as place_of_errors
from acceld.findings import source_line
from acceld.model import Correctness, Gate, Kernel
from acceld.workloads import load_workload
from tests.store.records import passed, state_with_runs

FORMULA = "import numpy as np\n\n\ndef forward(x):\n    return np.exp(x)\n"
NOT_LOWERED = "import numpy as np\n\n\ndef forward(x):\n    return np.abs(np.fft.fft(x))\n"
ARRAY = ["--arg", "x=128x64:float32"]
KERNEL = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(
        dst=tile,  # in place
        op=nl.exp,
        data=tile,
    )
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def toml(reference: str | None = None, **baselines: str) -> str:
    """Return the workload.toml of a drafted workload."""
    arguments, outputs = [DraftArgument("x", (128, 64), "float32")], [DraftOutput("out0", (128, 64), "float32")]
    return workload_toml("mine", arguments, outputs, baselines=baselines, reference=reference)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return a command's exit code, and what it prints on both streams."""
    capsys.readouterr()
    code = main(list(words))
    return code, "".join(capsys.readouterr())


@pytest.mark.usefixtures("here")
def test_a_file_without_nki_is_no_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nothing.py").write_text("def f(x): return x\n")
    Path("formula.py").write_text(FORMULA)
    Path("bare.py").write_text("def kernel(x):\n    return nl.exp(x)\n")
    for command in ("init", "profile"):
        code, text = told(capsys, command, "nothing.py", *ARRAY)
        assert code != 0 and "nothing.py is no kernel: it imports neither nki nor neuronxcc.nki" in text
        assert "acceld init --reference formula.py" in told(capsys, command, "formula.py", *ARRAY)[1]
        assert "is no kernel" not in told(capsys, command, "bare.py", *ARRAY)[1], "the modules are provided"
    assert not Path("nothing").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def forward(x):\n    return (x\n", "ref.py:2: syntax error: '(' was never closed"),
        ("import torch_of_nobody\ndef forward(x):\n    return x\n", "ref.py:1: torch_of_nobody is not installed here"),
        ("y = 1 / 0\ndef forward(x):\n    return x\n", "ref.py:1: the reference can not be loaded: ZeroDivisionError"),
        ("def other(x):\n    return x\n", "no function forward at its top level\n  add the line: forward = other"),
        ("class Net:\n    def forward(self, x):\n        return x\n", "acceld init --module ref.py:Net"),
        ("raise ModuleNotFoundError('no', name='torch')\n", "a PyTorch module goes to acceld init --module"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_reference_that_can_not_be_called_is_not_said_to_be_called(
    capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    Path("ref.py").write_text(text)
    code, printed = told(capsys, "init", "--reference", "ref.py", *ARRAY)
    assert code == 2 and said in printed and "was called" not in printed
    assert not Path("ref").exists()


@pytest.mark.usefixtures("here")
def test_a_reference_that_is_not_lowered_leaves_no_folder_and_its_next_command_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("fft_ref.py").write_text(NOT_LOWERED)
    code, printed = told(capsys, "init", "--reference", "fft_ref.py", *ARRAY)
    assert code == 2 and "fft_ref/ was not kept" in printed and not Path("fft_ref").exists()
    (command,) = re.findall(r"acceld (optimize .*)", printed)
    code, printed = told(capsys, *command.split(), "--show-prompts", "--json")
    assert code == 0, printed


@pytest.mark.usefixtures("here")
def test_a_folder_without_a_kernel_gets_one_of_the_current_api(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/reference.py").write_text(NOT_LOWERED)
    Path("mine/workload.toml").write_text(toml(reference="reference.py"))
    code, printed = told(
        capsys, "optimize", "mine", "--from-reference", "--proposer", "llm", "--show-prompts", "--json"
    )
    assert code == 0, printed
    assert "no nki kernel was lowered" in printed and "no nki_legacy kernel" not in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("optimize nofile_ref.py --arg x=1x1:float32", "there is no file nofile_ref.py"),
        ("optimize kernel.py --arg x=1x1:float32", "kernel.py is a kernel"),
        ("optimize broken.py --arg x=1x1:float32", "broken.py:1: syntax error"),
        ("optimize --workload silu", "acceld optimize silu begins"),
        ("optimize gelgu", "Did you mean 'geglu'?"),
        ("optimize my-kernels/nope", "there is no workload 'my-kernels/nope', and no folder of that name"),
        ("optimize silu --chip h100", "no kernel that runs on h100; it has kernels for nki (trn2, trn3"),
        ("optimize kernel.py", "acceld init kernel.py --reference REF.py --arg"),
        ("--home X runs", "acceld COMMAND [options]"),
        ("config show models.claude", "a section [models.NAME] may have: provider, name"),
        ("config show search", "the kernel decides"),
        ("optimize silu --preset quick --dry-run", "at most"),
        ("optimize silu --proposer llm --dry-run", "docs/models.md"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    here: Path, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    (here / "geglu").mkdir()
    (here / "geglu" / "workload.toml").write_text('name = "geglu"\n')
    (here / "kernel.py").write_text(KERNEL)
    (here / "broken.py").write_text("def (:\n")
    assert said in told(capsys, *words.split())[1]


def test_a_key_that_only_an_option_sets_names_the_option(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("beam", "beem"):
        (here / "acceld.toml").write_text(f"[search]\n{key} = 3\n")
        assert "acceld optimize --beam does" in told(capsys, "config")[1]
    (here / "acceld.toml").write_text("[models.claude]\nfooooo = 3\n")
    assert "Its keys: provider, name" in told(capsys, "config")[1]


def test_doctor_reports_a_broken_file_once_and_keeps_its_columns(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "acceld.toml").write_text("[search\n")
    code, printed = told(capsys, "doctor")
    assert code == 1 and printed.count("acceld.toml: ") == 1
    starts = {re.match(r"\S (\S+( \S+)*)\s{2,}", line).end() for line in printed.splitlines() if line[0] != " "}  # type: ignore[union-attr]
    assert len(starts) == 1 and starts.pop() < 24


def test_commands_of_the_history_say_which_command_is_meant(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state_with_runs(here, runs=2)
    assert "acceld compare r1 r2" in told(capsys, "diff", "r1", "r2")[1]
    assert "a candidate c345, an insight i38" in told(capsys, "show", "foo")[1]
    assert "acceld show c1 shows it" in told(capsys, "tree", "c1")[1]
    assert "is not a run, a workload with a run" in told(capsys, "check", "nothing")[1]
    (here / "mine.py").write_text("def kernel(x, y):\n    return x\n")
    assert "acceld apply r1 -o FILE" in told(capsys, "apply", "r1", "mine.py", "--even-if-tied")[1]


def test_check_takes_the_name_of_a_workload(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state_with_runs(here, runs=1)
    assert told(capsys, "check", "nkibench/silu") == told(capsys, "check", "r1")


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_exit_code_outlives_the_reader_of_the_output(here: Path, closed: str, unbuffered: str) -> None:
    (here / "wrong.py").write_text(KERNEL.replace("nl.exp", "nl.no_such"))
    words = [sys.executable, "-m", "acceld", "profile", "wrong.py", *ARRAY]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": unbuffered, "HOME": str(here)}
    other = "stderr" if closed == "stdout" else "stdout"
    streams = {closed: subprocess.PIPE, other: subprocess.DEVNULL}
    with subprocess.Popen(words, env=environment, cwd=here, **streams) as running:  # type: ignore[call-overload]
        getattr(running, closed).close()
        assert running.wait() == 7


def test_a_tail_that_is_never_written_is_named() -> None:
    import numpy as np

    wanted = np.ones((4, 1000))
    found = wanted.copy()
    found[:, 768:] = np.nan
    assert place_of_errors(found, wanted).startswith(
        "columns 768 to 999 are never written: 1000 is no multiple of 256; "
    )
    found[0, 999] = 1.0
    assert "never written" not in place_of_errors(found, wanted)
    assert "of 4 rows of 1000 columns" in place_of_errors(found, wanted)


def test_a_result_says_what_it_was_compared_with_and_which_tolerance_counts(here: Path) -> None:
    (here / "workload.toml").write_text(toml(nki="kernel.py"))
    (here / "kernel.py").write_text(KERNEL)
    found = load_workload(here)
    text = _error(Correctness(Gate.SEARCH, 1e-8, 1e-5), found)
    assert "tolerance 1e-05 (derived" in text and "the 2e-05 of workload.toml is the upper limit" in text
    assert "because there is no reference" in text
    assert _error(Correctness(Gate.SEARCH, 1e9, 1e-5), None).startswith("not finite relative L2")
    assert "compared with itself alone" in _status(passed(10.0), found)


def test_a_call_on_several_lines_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert source_line(KERNEL, 11) == "nisa.activation(dst=tile, op=nl.exp, data=tile)"
    assert source_line(KERNEL, 10) == "nisa.dma_copy(dst=tile, src=x)" and source_line(KERNEL, 99) == ""
    spots = [{"line": 11, "engine": "scalar", "busy_us": 1.0}] * HOT_SPOTS
    evaluation = passed(10.0)
    assert evaluation.profile is not None
    evaluation.profile.details["hot_spots"] = spots  # type: ignore[index]
    print_evaluation(evaluation, Subject(Kernel(KERNEL, "nki"), None, ()), "trn2", "kernel.py")
    assert f"the {HOT_SPOTS} busiest lines" in capsys.readouterr().out


def test_all_refusals_are_no_examples() -> None:
    refusals = [{"title": f"rule{number}", "rule": "", "reason": "no", "count": 1, "parent": 1} for number in range(2)]
    assert _refused(refusals, 2, 1).startswith("2 proposals without code:\n")
    assert _refused(refusals, 1, 1).startswith("2 proposals without code, such as\n")


def suggested() -> Iterator[tuple[str, str]]:
    """Yield place and words of each acceld command in a text of the package; a value in it is written ``_``."""
    for path in sorted(Path(acceld.__file__).parent.rglob("*.py")):
        whole = path.read_text(encoding="utf-8")
        if "acceld " not in whole:
            continue
        for node in ast.walk(ast.parse(whole)):
            if not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "_" for part in parts
            )
            for words in re.findall(r"\bacceld ((?:[a-z]+ )(?:[^;:,.()\n]|\.(?=\w))*)", text):
                yield f"{path.name}:{getattr(node, 'lineno', 0)}", words


def test_every_option_of_a_suggested_command_exists() -> None:
    options: dict[str, argparse.ArgumentParser] = {}
    unknown, tried = [], 0
    for place, words in suggested():
        name = words.split()[0]
        if name not in COMMANDS:
            continue
        parser = options.setdefault(name, parser_of(name))
        for option in re.findall(r"(?<!for)\s(--[a-z][a-z-]*)", words):
            tried += 1
            if option not in parser._option_string_actions:
                unknown.append((place, words, option))
    assert unknown == [] and tried > 50
