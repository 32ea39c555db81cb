"""A person's program as proposer: its folder, its caps, its cost, and a whole run with it."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.config import CommandConfig
from acceld.errors import BudgetError, ConfigError
from acceld.llm.ledger import MemoryLedger
from acceld.model import Attempt, Candidate, Kernel
from acceld.proposers.command import TEMPLATES, CommandProposer, command_words, reported_usd
from acceld.proposers.interface import AttemptRequest, Partner, PlanRequest, Problem, ProblemArgument
from acceld.search.budget import Budget
from tests.programs import python_program
from tests.standin_neuron.machine import KERNEL, small_silu

SLOW = KERNEL.replace("512", "8").replace("affine_range(4)", "affine_range(256)")
PROBLEM = Problem(
    "silu",
    "SiLU",
    "def forward(x): ...",
    (ProblemArgument("x", (128, 2048), "float32"),),
    "trn1",
    "nki_legacy",
    tolerance=2e-5,
)
PARENT = Candidate(run=1, iteration=0, kernel=Kernel(SLOW, "nki_legacy"), parent=None, id=7)
WIDENS = """\
import pathlib, sys
file = pathlib.Path(sys.argv[1])
text = file.read_text().replace("8 * tile", "512 * tile").replace("arange(8)", "arange(512)")
file.write_text(text.replace("affine_range(256)", "affine_range(4)"))
print('{"cost_usd": 0.001}')
"""
EDITS = """\
import pathlib
file = pathlib.Path("kernel.py")
told = pathlib.Path("README.md").read_text()
assert "kernel.py" in told and "float64" in told, told
assert "It has not been timed" in pathlib.Path("profile.md").read_text()
assert "x: float32" in pathlib.Path("problem.md").read_text()
file.write_text(file.read_text() + "# faster\\n")
print('{"type": "result", "total_cost_usd": 0.02}')
"""


def agent(folder: Path, text: str) -> str:
    """Return the command line of a script that plays the role of an agent."""
    script = folder / "agent.py"
    script.write_text(text)
    return shlex.join([sys.executable, str(script)])


def proposer(
    command: str, ledger: MemoryLedger | None = None, budget: Budget | None = None, **caps: float
) -> CommandProposer:
    settings = CommandConfig(run=command, **{"usd": 0.5, "time_s": 60.0, **caps})  # type: ignore[arg-type]
    return CommandProposer(settings, ledger=ledger or MemoryLedger(), purse=budget or Budget(), plans=2)


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended; AssertionError if it does not."""
    state, deadline = Path(f"/proc/{pid}/stat"), time.monotonic() + 300
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def attempted(made: CommandProposer, index: int = 0) -> Attempt:
    plan = await made.plan(PlanRequest(PROBLEM, 1, 1, PARENT, 0, 0, 5, hints=("try wider tiles",)))
    assert plan is not None
    found = await made.attempt(AttemptRequest(PROBLEM, replace(plan, id=3), PARENT, index, 9))
    assert found is not None
    return found


async def test_a_program_edits_the_kernel_in_its_folder_and_is_booked(tmp_path: Path) -> None:
    ledger, budget = MemoryLedger(), Budget()
    budget.open_run(1, 1.0)
    made = proposer(agent(tmp_path, EDITS), ledger, budget)
    found = await attempted(made)
    assert (found.text, found.plan) == (SLOW + "# faster\n", 3)
    (intent,), (outcome,) = ledger.intents.values(), ledger.outcomes.values()
    assert (intent.provider, intent.reserved_usd, intent.role) == ("command", 0.5, "executor")
    assert "try wider tiles" in intent.user
    assert (outcome.outcome, outcome.cost_usd, outcome.usage.estimated) == ("answered", 0.02, False)
    assert budget.spent_usd(1) == pytest.approx(0.02)
    (tmp_path / "agent.py").unlink()
    assert await attempted(made) == found, "a paid answer is taken from the ledger"


async def test_a_program_of_a_crossover_finds_the_second_parent_beside_its_kernel(tmp_path: Path) -> None:
    copies = "open('kernel.py', 'w').write(open('partner_kernel.py').read())"
    made = proposer(agent(tmp_path, copies))
    other = replace(PARENT, kernel=replace(PARENT.kernel, text=SLOW + "# other\n"), id=8)
    plan = await made.plan(PlanRequest(PROBLEM, 1, 1, PARENT, 0, 1, 5, partner=Partner(other, ())))
    assert plan is not None and plan.partner == 8
    found = await made.attempt(AttemptRequest(PROBLEM, replace(plan, id=3), PARENT, 0, 9, partner=other))
    assert found is not None and found.text == SLOW + "# other\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "changed nothing"),
        ("raise SystemExit(3)", "stopped, failed"),
        ("import os; os.remove('kernel.py'); os.symlink('/etc/passwd', 'kernel.py')", "left no kernel"),
        ("import os; os.remove('kernel.py'); os.mkfifo('kernel.py')", "left no kernel"),
        ("open('kernel.py', 'w').write('x' * 2_000_000)", "left no kernel"),
        ("open('kernel.py', 'wb').write(b'\\xff\\xfe')", "left no kernel"),
    ],
)
async def test_what_is_no_edit_gives_no_code(tmp_path: Path, text: str, reason: str) -> None:
    found = await attempted(proposer(agent(tmp_path, text)))
    assert found.text is None
    assert reason in found.reason


async def test_a_program_beyond_its_time_is_ended_with_its_children_and_costs_its_cap(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    forks = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({str(tmp_path)!r}, "child").write_text(str(child.pid))
pathlib.Path("kernel.py").write_text("half")
time.sleep(600)
"""
    found = await attempted(proposer(agent(tmp_path, forks), ledger, time_s=8.0))
    assert found.text is None
    child = int(await asyncio.to_thread((tmp_path / "child").read_text))
    await asyncio.to_thread(wait_for_end, child)
    (outcome,) = ledger.outcomes.values()
    assert (outcome.cost_usd, outcome.finish_reason, outcome.usage.estimated) == (0.5, "deadline", True)


async def test_the_runs_cap_holds_for_programs(tmp_path: Path) -> None:
    budget = Budget()
    budget.open_run(1, 0.1)
    with pytest.raises(BudgetError):
        await attempted(proposer(agent(tmp_path, EDITS), budget=budget))


@pytest.mark.parametrize("name", sorted(TEMPLATES))
async def test_a_template_runs_its_agent_on_the_kernel(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command_words(name)
    program = tmp_path / words[0]
    python_program(
        program,
        "import pathlib, sys\nassert any('README.md' in word for word in sys.argv), sys.argv\n"
        "file = pathlib.Path('kernel.py')\nfile.write_text(file.read_text() + '# ' + str(len(sys.argv)))\n",
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = await attempted(proposer(name))
    assert found.text == f"{SLOW}# {len(words)}"


def test_a_command_line_is_checked_before_it_is_run() -> None:
    assert command_words("my-agent --file {file} 'two words'") == ["my-agent", "--file", "{file}", "two words"]
    for line, why in (
        ("", r"run in .command. is empty"),
        ("x {fil}", "unknown placeholder"),
        ("x '", "quotation"),
        ("x {0}", "placeholder"),
    ):
        with pytest.raises(ConfigError, match=why):
            command_words(line)


async def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such-agent can not be started"):
        await attempted(proposer("no-such-agent"))


def test_what_a_program_says_that_it_cost() -> None:
    assert reported_usd('working\n{"a": 1}\n{"total_cost_usd": 0.25}\nbye') == pytest.approx(0.25)
    for text in ("", "0.25", '{"total_cost_usd": "much"}', '{"total_cost_usd": -1}', '{"total_cost_usd": true}', "[1]"):
        assert reported_usd(text) is None


@pytest.mark.slow
def test_a_whole_run_with_a_script_for_an_agent_ends_in_a_strictly_gated_win(tmp_path: Path) -> None:
    small_silu(tmp_path, SLOW)
    (tmp_path / "run").mkdir(mode=0o700)
    settings = tmp_path / "config" / "acceld" / "acceld.toml"
    settings.parent.mkdir(parents=True)
    line = agent(tmp_path, WIDENS) + " {file}"
    settings.write_text(f"[command]\nrun = {json.dumps(line)}\nusd = 0.01\n")
    environment = os.environ | {
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "ACCELD_HOME": str(tmp_path / ".acceld"),
        "ACCELD_EVALUATE_SLOTS": "1",
    }

    def acceld(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "acceld", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        options = ("--preset", "quick", "--iterations", "1", "--plans", "1", "--budget-usd", "1", "--wait", "--json")
        reported = json.loads(acceld("optimize", "small_silu", "--proposer", "command", *options))
        assert (reported["state"], reported["improved"], reported["proposer"]) == ("finished", True, "command"), (
            reported
        )
        best = json.loads(acceld("show", f"c{reported['best']}", "--json"))
        assert best["gate"] == "strict"
        spent = json.loads(acceld("query", "select sum(cost_micro_usd) as micro_usd from run_totals", "--json"))
        assert spent["rows"] == [{"micro_usd": 2000}]
        assert "runs with your own rights" in acceld("doctor")
        planned = json.loads(acceld("optimize", "small_silu", "--proposer", "command", "--dry-run", "--json"))
        assert (planned["cost_usd"], planned["worst_usd"]) == (None, pytest.approx(0.01 * planned["candidates"]))
    finally:
        acceld("stop")
