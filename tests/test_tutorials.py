"""Every command of the tutorials, in their order, as a person types them; then every other command of the pages."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.acceld.daemon.test_neuron_runs import made_for
from tests.test_docs import documented_commands

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)(?: title=\"([\w.]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SETTING_UP = re.compile(r"(python3 -m venv|source|pip install|mkdir|cd) ")
"""Commands that set up an environment. ``make dist`` runs them in empty environments, or a test's folder replaces them.
"""
SCREENS = "acceld attach"
"""Command that needs a terminal; tests/tui runs it."""


UNMEASURED = MappingProxyType({"acceld calibrate": 8})
"""Command that compares predictions with measurements: the stand-in measures nothing."""


def run(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one command line in ``folder``."""
    words = shlex.split(line, comments=True)
    assert words[0] == "acceld", line
    command = [sys.executable, "-m", "acceld", *words[1:]]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def own_environment(folder: Path) -> dict[str, str]:
    """Return an environment whose folders are the test's own."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    return os.environ | {
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "ACCELD_HOME": str(folder / ".acceld"),
        "OPENBLAS_NUM_THREADS": "1",
    }


def follow(
    page: str,
    folder: Path,
    environment: dict[str, str],
    names: dict[str, str],
    exits: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, str]:
    """Run the commands of a page, with some names replaced; return the output of each. AssertionError where one fails.

    ``exits`` has the exit codes that are not 0.
    """
    printed = {}
    for language, title, block in FENCE.findall((DOCS / page).read_text(encoding="utf-8")):
        if title:
            (folder / title).write_text(block, encoding="utf-8")
        if language != "sh":
            continue
        for line in block.splitlines():
            if SETTING_UP.match(line) or line.startswith(SCREENS):
                continue
            typed = " ".join(names.get(word, word) for word in line.split(" "))
            done = run(typed, folder, environment)
            assert done.returncode == exits.get(line, 0), f"{typed}\n{done.stdout}\n{done.stderr}"
            printed[line] = done.stdout + done.stderr
    return printed


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], dict[str, str]]:
    """Return the folder, the environment and the output after the tutorial on a laptop."""
    folder = tmp_path_factory.mktemp("laptop")
    environment = own_environment(folder)
    return folder, environment, follow("tutorial-laptop.md", folder, environment, {})


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_laptop_tutorial_ends_with_an_applied_win(laptop: tuple[Path, dict[str, str], dict[str, str]]) -> None:
    folder, _, printed = laptop
    page = (DOCS / "tutorial-laptop.md").read_text(encoding="utf-8")
    result = printed["acceld optimize my_kernel --preset quick --wait"]
    shown = next(block for language, _, block in FENCE.findall(page) if not language and block.startswith("baseline"))
    lines = [" ".join(line.split()) for line in result.splitlines()]
    assert not [line for line in shown.splitlines() if " ".join(line.split()) not in lines]
    assert "nl.silu" in (folder / "my_kernel.py").read_text(encoding="utf-8")
    assert list(folder.glob("my_kernel.py.*.bak"))
    profiled = printed["acceld profile my_kernel.py --arg x=2048x2048:float32"]
    assert "≈ 140 µs" in profiled


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_trn1_tutorial_ends_with_a_kernel_on_the_stand_in(tmp_path: Path) -> None:
    environment = made_for(tmp_path, "legacy")
    printed = follow("tutorial-trn1.md", tmp_path, environment, {"silu": "small_silu"}, UNMEASURED)
    assert "✓ time, nrtpy" in printed["acceld doctor --neuron"]
    result = printed["acceld optimize silu --backend neuron_legacy --preset quick --wait"]
    assert "speed-up" in result and "≈" in result  # a stand-in is never called measured
    assert (tmp_path / "silu_faster.py").is_file()


EXITS = {
    "acceld ci": (2, "not a git repository"),
    "acceld ablate silu --proposer llm": (2, "[models.NAME]"),
    "acceld ablate silu --vary beam=1,2,4": None,
    "acceld ablate silu --vary proposer": (2, "[models.NAME]"),
    "acceld attach": None,
    "acceld doctor --from": (2, "acceld doctor --neuron writes one"),
    "acceld doctor --neuron": (1, "report"),
    "acceld init": (2, "choose another folder"),
    "acceld mcp": (2, "no folder"),
    "acceld optimize --from-reference": (2, "[models.NAME]"),
    "acceld optimize gemm": (2, "gemm"),
    "acceld optimize matmul_cpu --backend cpu --api numpy": (2, "[models.NAME]"),
    "acceld optimize matmul_cpu --backend cpu --wait": None,
    "acceld optimize rmsnorm_h128": (8, "NVIDIA"),
    "acceld optimize silu --backend neuron_legacy": (8, "Neuron"),
    "acceld optimize silu --preset quick": None,
    "acceld optimize silu --proposer command": (2, "[command]"),
    "acceld selftest": None,
    "acceld service uninstall": (2, "no service"),
    "acceld start": (3, "already serves"),
}
"""Commands of other pages that fail in an empty folder, each with the expected exit code and words. None marks a
command that takes minutes or needs a terminal; other tests run those.
"""


def expected(line: str) -> tuple[int, str] | None:
    """Return the exit code and the words to expect."""
    return next((outcome for start, outcome in EXITS.items() if line.startswith(start)), (0, ""))


def of_other_pages() -> list[str]:
    """List the commands that neither a tutorial nor another test runs."""
    followed = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("tutorial-laptop.md", "tutorial-trn1.md"))
    return [line for line in documented_commands() if expected(line) is not None and f"\n{line}\n" not in followed]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("line", of_other_pages())
def test_a_command_of_the_pages_runs_or_says_what_it_needs(
    laptop: tuple[Path, dict[str, str], dict[str, str]], line: str
) -> None:
    folder, environment, _ = laptop
    (folder / "kernel.c").write_bytes(next((ROOT / "workloads").glob("*/matmul_cpu/kernel.c")).read_bytes())
    (folder / "ref.py").write_text("def forward(x, w):\n    return x @ w\n", encoding="utf-8")
    typed = (
        line.replace("r12", "r1").replace("r13", "r1").replace("workloads/nkibench", str(ROOT / "workloads/nkibench"))
    )
    if line.startswith("acceld watch"):
        typed += " --once"
    done = run(typed, folder, environment)
    outcome = expected(line)
    assert outcome is not None
    code, words = outcome
    assert done.returncode == code, f"{typed}\n{done.stdout}\n{done.stderr}"
    assert words in done.stdout + done.stderr


@pytest.mark.slow
def test_the_daemon_of_the_tutorial_is_ended(laptop: tuple[Path, dict[str, str], dict[str, str]]) -> None:
    folder, environment, _ = laptop
    run("acceld stop", folder, environment)
    assert not (folder / ".acceld" / "daemon.json").exists()
