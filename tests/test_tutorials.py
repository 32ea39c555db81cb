"""README and the tutorials as a reader follows them, in one shell; then every other command of the pages."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.acceld.daemon.test_neuron_runs import made_for
from tests.test_docs import documented_commands

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)(?: title=\"([\w.]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLING = ("python3 -m venv ", "pip install ")
"""Commands that make an environment and fill it; ``make dist`` runs them. Here :func:`installed` has done so."""
ELSEWHERE = ("acceld attach", "make test")
"""Commands that are not run here: one needs a terminal and is run in tests/tui, the other runs these tests."""


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
    """Return an environment of a person whose home is ``folder``."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELD_", "XDG_", "VIRTUAL"))}
    return kept | {"HOME": str(folder), "XDG_RUNTIME_DIR": str(runtime), "OPENBLAS_NUM_THREADS": "1"}


def installed(place: Path) -> None:
    """Make an environment in which this interpreter is ``acceld``."""
    (place / "bin").mkdir(parents=True)
    program = place / "bin" / "acceld"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m acceld "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    activate = f"export PATH={shlex.quote(str(place / 'bin'))}:$PATH\n"
    (place / "bin" / "activate").write_text(activate, encoding="utf-8")


def checked_out(place: Path) -> Path:
    """Return a copy of the checkout, with the environment that ``make`` would make."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if os.path.lexists(ROOT / name):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    installed(place / ".venv")
    (place / ".venv" / "bin" / "python").symlink_to(sys.executable)
    for name in (".installed", ".installed-dev"):
        (place / ".venv" / name).touch()
    return place


class Reader:
    """A person who types what the pages say, into one shell."""

    def __init__(self, folder: Path, environment: Mapping[str, str], names: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment)
        self._names = names or {}
        self._moved = folder
        installed(Path(self.environment["HOME"]) / "acceld-venv")

    def follow(
        self, page: Path, *, exits: Mapping[str, int] = MappingProxyType({}), without: str = "\0"
    ) -> dict[str, str]:
        """Type the commands of a page up to a heading; return the output of each. AssertionError where one fails.

        ``exits`` has the exit codes that are not 0. The next page begins where this one ended: in its folder, with its
        variables.
        """
        printed: dict[str, str] = {}
        for language, title, block in FENCE.findall(page.read_text(encoding="utf-8").partition(without)[0]):
            if title:
                (self._moved / title).write_text(block, encoding="utf-8")
            if language != "sh":
                continue
            for line in block.splitlines():
                if not line.startswith((*INSTALLING, *ELSEWHERE)):
                    printed[line] = self.type(line, exits.get(line, 0))
        return printed

    def type(self, line: str, code: int = 0) -> str:
        """Type one line; return what it printed."""
        typed = " ".join(self._names.get(word, word) for word in line.split(" "))
        with tempfile.TemporaryDirectory() as left:
            after = f"code=$?; pwd > {left}/folder; env -0 > {left}/environment; exit $code"
            done = subprocess.run(
                ["bash", "-c", f"{typed}\n{after}"],
                cwd=self._moved,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            assert done.returncode == code, f"{typed}\n{done.stdout}\n{done.stderr}"
            self._moved = Path(Path(left, "folder").read_text(encoding="utf-8").rstrip("\n"))
            pairs = Path(left, "environment").read_text(encoding="utf-8").split("\0")
        self.environment = dict(pair.split("=", 1) for pair in pairs if pair)
        return done.stdout + done.stderr


def unprinted(page: Path, begins: str, printed: str) -> list[str]:
    """Return the lines of a page's block, found by its first word, that a command did not print."""
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    shown = next(block for language, _, block in blocks if not language and block.startswith(begins))
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    return [line for line in shown.splitlines() if " ".join(line.split()) not in lines]


@dataclass(frozen=True)
class Laptop:
    """Hold all that a reader has after README and the tutorial on a laptop."""

    checkout: Path
    folder: Path
    reader: Reader
    readme: dict[str, str]
    tutorial: dict[str, str]
    own_kernel: dict[str, str]


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """Follow README in a new checkout, then the tutorial on a laptop."""
    home = tmp_path_factory.mktemp("reader")
    checkout = checked_out(home / "acceld")
    reader = Reader(checkout, own_environment(home))
    readme = reader.follow(ROOT / "README.md", without="## Uninstall")
    tutorial = reader.follow(DOCS / "tutorial-laptop.md")
    own_kernel = reader.follow(DOCS / "own-kernel.md")
    return Laptop(checkout, home / "my-kernels", reader, readme, tutorial, own_kernel)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_readme_is_followed_from_a_new_checkout(laptop: Laptop) -> None:
    found = next(printed for line, printed in laptop.readme.items() if line.startswith("make run"))
    assert unprinted(ROOT / "README.md", "workload ", found) == []
    listed = laptop.readme["acceld runs"]
    assert all(name in listed for name in ("silu", "matmul_bf16")) and "trn1" not in listed


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_laptop_tutorial_ends_with_an_applied_win(laptop: Laptop) -> None:
    page, printed = DOCS / "tutorial-laptop.md", laptop.tutorial
    made = printed["acceld init my_kernel.py --reference my_reference.py --arg x=2048x2048:float32"]
    assert unprinted(page, "status ", made) == []
    assert unprinted(page, "baseline ", printed["acceld optimize my_kernel --preset quick --wait"]) == []
    assert "1024 * tile" in (laptop.folder / "my_kernel.py").read_text(encoding="utf-8")
    assert list(laptop.folder.glob("my_kernel.py.*.bak"))
    best = re.search(r"^best +(≈ \S+ \S+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert best and best[1] in printed["acceld profile my_kernel.py --arg x=2048x2048:float32"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_laptop_tutorial_goes_from_a_formula_to_an_applied_win(laptop: Laptop) -> None:
    place = laptop.folder / "my_gate"
    assert "speed-up" in laptop.tutorial["acceld optimize my_gate --preset quick --wait"]
    kept = list(place.glob("kernel.py.*.bak"))
    assert len(kept) == 1 and "Lowered from the reference." in kept[0].read_text(encoding="utf-8")
    assert (place / "kernel.py").read_text(encoding="utf-8") != kept[0].read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_page_on_ones_own_kernel_shows_the_result_of_its_search(laptop: Laptop) -> None:
    found = laptop.own_kernel["acceld optimize masked_softmax --preset quick --wait"]
    assert unprinted(DOCS / "own-kernel.md", "baseline ", found) == []
    assert "--even-if-tied" in found, "the page says what acceld apply does after a tie"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_trn1_tutorial_ends_with_a_kernel_on_the_stand_in(tmp_path: Path) -> None:
    environment = made_for(tmp_path, "legacy") | {"HOME": str(tmp_path)}
    del environment["ACCELD_HOME"]  # the page's folder has its own
    reader = Reader(tmp_path, environment, {"silu": "small_silu"})
    printed = reader.follow(DOCS / "tutorial-trn1.md", exits=UNMEASURED)
    assert "✓ time, nrtpy" in printed["acceld doctor --neuron"]
    result = printed["acceld optimize silu --backend neuron_legacy --preset quick --wait"]
    assert "speed-up" in result and "≈" in result  # a stand-in is never called measured
    assert (tmp_path / "on-trn1" / "silu_faster.py").is_file()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_page_on_pytorch_goes_from_a_model_to_workloads(tmp_path: Path) -> None:
    page = DOCS / "pytorch.md"
    reader = Reader(tmp_path, own_environment(tmp_path) | {"PATH": f"{tmp_path}/acceld-venv/bin:{os.environ['PATH']}"})
    printed = reader.follow(page, without="## Optimize")
    assert unprinted(page, "region ", printed["acceld model config.json --tp 4 --seq 2048"]) == []
    assert (tmp_path / "step" / "norm_gate_up" / "kernel.py").is_file()
    assert "agrees with the module" in printed[next(line for line in printed if "--module" in line)]
    assert (tmp_path / "regions" / "up" / "kernel.py").is_file()
    scripts = [
        block
        for language, _, block in FENCE.findall(page.read_text("utf-8"))
        if language == "python" and "before = model(x)" in block
    ]
    assert len(scripts) == 2, "a submodule, then a region"
    for script in scripts:
        (tmp_path / "back.py").write_text(script, encoding="utf-8")
        reader.type(f"{shlex.quote(sys.executable)} -W error back.py")


EXITS = {
    "acceld check --changed": (2, "not a git repository"),
    "acceld ablate silu --proposer llm": (2, "[models.NAME]"),
    "acceld ablate silu --vary beam=1,2,4": None,
    "acceld ablate silu --vary proposer": (2, "[models.NAME]"),
    "acceld attach": None,
    "acceld check --all": None,
    "acceld db prune --older 30d": (0, "would be deleted"),
    "acceld dataset make whole": None,
    "acceld find profile": (2, "profile"),
    "acceld doctor --from": (2, "acceld doctor --neuron writes one"),
    "acceld doctor --neuron": (1, "report"),
    "acceld init --reference norm.py": None,
    "acceld init --module": None,
    "acceld init": (2, "choose another folder"),
    "acceld import kernelbench": None,
    "acceld model": None,
    "acceld ablate WORKLOAD": (2, "no workload 'WORKLOAD'"),
    "acceld suite run SUITE.toml": (2, "no file SUITE.toml"),
    "acceld suite run nkibench": None,
    "acceld suite run step/suite.toml": None,
    "acceld mcp": (2, "no folder"),
    "acceld port KERNEL.py --workload W": (2, "no workload"),
    "acceld optimize --from-reference": (2, "[models.NAME]"),
    "acceld optimize WORKLOAD": (2, "no workload 'WORKLOAD'"),
    "acceld optimize gemm": (2, "gemm"),
    "acceld optimize matmul_bf16 --preset quick": None,
    "acceld optimize matmul_cpu --backend cpu --api numpy": (2, "[models.NAME]"),
    "acceld optimize matmul_cpu --backend cpu --wait": None,
    "acceld optimize norm": None,
    "acceld optimize rmsnorm_h128": (8, "NVIDIA"),
    "acceld optimize silu --backend neuron_legacy": (8, "Neuron"),
    "acceld optimize silu --proposer command": (2, "[command]"),
    "acceld optimize silu --proposer llm --show-prompts": (0, "names no model yet"),
    "acceld optimize silu --proposer llm": (2, "[models.NAME]"),
    "acceld doctor selftest": None,
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
    followed = "".join(
        (DOCS / page).read_text(encoding="utf-8")
        for page in ("tutorial-laptop.md", "tutorial-trn1.md", "own-kernel.md")
    )
    return [line for line in documented_commands() if expected(line) is not None and f"\n{line}\n" not in followed]


@pytest.mark.slow
@pytest.mark.parametrize("line", of_other_pages())
def test_a_command_of_the_pages_runs_or_says_what_it_needs(laptop: Laptop, line: str) -> None:
    folder, environment = laptop.folder, laptop.reader.environment
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
def test_uninstalling_ends_the_daemons_and_leaves_no_history(laptop: Laptop) -> None:
    run("acceld stop", laptop.folder, laptop.reader.environment)
    assert not (laptop.folder / ".acceld" / "daemon.json").exists()
    laptop.reader.type(f"cd {shlex.quote(str(laptop.checkout))}")
    laptop.reader.type("acceld start || true")  # the daemon of the checkout has ended if nothing used it for long
    uninstall = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Uninstall")[2]
    for line in FENCE.findall(uninstall)[0][2].splitlines():
        laptop.reader.type(line)
    assert not (laptop.checkout / ".acceld").exists() and not (laptop.checkout / ".venv").exists()
