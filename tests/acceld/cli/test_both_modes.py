"""Every command that reads the history answers the same with a daemon and without one."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.cli.main import COMMANDS, main
from acceld.model import Candidate, Gate, Kernel, RunSpec, RunState
from acceld.store.changes.runs import create_run, select_beam, set_best, set_run_state, start_iteration
from acceld.store.changes.tree import write_candidate
from acceld.store.database import Store
from tests.store import records

SMALL = Path(__file__).parents[2] / "adversarial" / "workloads" / "st_matmul"
SAME: dict[str, tuple[tuple[str, ...], ...]] = {
    "runs": (("runs",), ("runs", "--json"), ("runs", "--sort=-id", "--json"), ("runs", "--saved", "best", "--json")),
    "show": tuple((("show", what, *form)) for what in ("r1", "c2", "i1", "r2", "c4") for form in ((), ("--json",))),
    "best": tuple(("best", what, *form) for what in ("r1", "r2", "st_matmul") for form in ((), ("--json",))),
    "tree": (("tree", "r1"), ("tree", "r1", "--json")),
    "diff": (("diff", "r1"), ("diff", "c2", "c3", "--json")),
    "insights": (("insights",), ("insights", "i1"), ("insights", "--json")),
    "costs": (("costs",), ("costs", "r1", "--by", "candidate", "--json"), ("costs", "--json")),
    "compare": (("compare", "r1", "r2"), ("compare", "r1", "r2", "--json")),
    "query": (("query", "SELECT id, state FROM runs", "--json"),),
    "replay": (("replay", "r2"),),
    "check": (("check", "r2", "--json"),),
    "profile": (("profile", str(SMALL / "kernel_legacy.py"), "--workload", str(SMALL), "--latency-only", "--json"),),
    "export": (("export", "--format", "pairs", "-o", "exported", "--json"), ("export", "r1", "--format", "md")),
    "apply": tuple(("apply", what, "mine.py") for what in ("r2", "st_matmul")),
}
"""Lines of words by command. All have to print the same in both modes."""
OTHERWISE = {
    "ablate": "it starts a daemon",
    "attach": "a screen; tests/tui opens it on a daemon and on a file",
    "calibrate": "a daemon keeps its calibration, so --fit asks to stop it",
    "clean": "a daemon uses what --all would remove",
    "completion": "it reads the file",
    "doctor": "it says whether a daemon runs",
    "import": "it adds to the history only while no daemon writes it",
    "optimize": "it starts a daemon",
    "stop": "it is about the daemon",
    "suite": "it starts a daemon",
    "watch": "it asks a daemon for measurements only",
}
"""Commands that touch the daemon or the history and need not answer the same, each with the reason."""


async def fill(database: Path) -> None:
    """Write a run of invented kernels, and one whose best kernel is real and passes today."""
    store = await asyncio.to_thread(Store.open, database)
    await records.small_run(store)
    text = await asyncio.to_thread((SMALL / "kernel_legacy.py").read_text)
    real = Kernel(text, "nki_legacy", "kernel", (), 1, "kernel_legacy.py")
    spec = RunSpec(workload="st_matmul", workload_folder=str(SMALL), name="real", search=records.SPEC.search)
    run = await store.change(create_run, spec)
    await store.change(set_run_state, run.id, RunState.RUNNING)
    baseline = await store.change(write_candidate, Candidate(run.id, 0, real, None))
    baseline = await records.evaluate(store, baseline, records.passed(100.0, Gate.STRICT), Gate.STRICT)
    await store.change(set_best, run.id, baseline.id)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    fast = await records.child_of(store, replace(baseline, kernel=real), 0)
    better = replace(fast, kernel=replace(real, text=text + "# a little better\n"), attempt=None, plan=None)
    best = await store.change(write_candidate, replace(better, id=0, order=(0, 1, 0, 0)))
    best = await records.evaluate(store, best, records.passed(60.0, Gate.STRICT), Gate.STRICT)
    await store.change(set_best, run.id, best.id)
    await store.change(select_beam, run.id, 1, [best.id], best.id)
    await store.change(set_run_state, run.id, RunState.FINISHED, "1 iteration done")
    await store.close()


@pytest.fixture
def history(folder: Path) -> Iterator[Path]:
    """Yield a folder with a history; its daemon, if the test starts one, is stopped."""
    asyncio.run(fill(folder / ".acceld" / "acceld.db"))
    yield folder
    main(["stop"])


def test_every_command_that_reads_the_history_is_compared() -> None:
    reads = re.compile(r"\b(reading|history_file|records|connected)\(|\.daemon\(\)")
    found = {name for name, command in COMMANDS.items() if reads.search(source_of(command.module))}
    assert found <= SAME.keys() | OTHERWISE.keys()
    assert OTHERWISE.keys() <= COMMANDS.keys()


def source_of(name: str) -> str:
    """Return the source of a command's module and of the parts that it imports when one is asked for."""
    text = inspect.getsource(importlib.import_module(f"acceld.cli.commands.{name}"))
    parts = re.findall(r"^ +from (acceld\.cli(?:\.checks|\.diagnosis)?) import (\w+)$", text, re.MULTILINE)
    modules = [importlib.import_module(f"{package}.{part}") for package, part in parts]
    return text + "".join(map(inspect.getsource, modules))


def test_answers_with_and_without_a_daemon_are_equal(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [words for some in SAME.values() for words in some]
    without = {words: answered(history, words, capsys) for words in lines}
    assert main(["start"]) == 0
    differing = {
        words: (found, was) for words, was in without.items() if (found := answered(history, words, capsys)) != was
    }
    assert differing == {}
    assert {words: found for words, found in without.items() if found[0] != 0} == {}


def answered(folder: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[object, ...]:
    """Return what a command ends with, prints and writes."""
    shutil.rmtree(folder / "exported", ignore_errors=True)
    mine = folder / "mine.py"
    before = (SMALL / "kernel_legacy.py").read_text()
    mine.write_text(before)
    capsys.readouterr()
    code = main(list(words))
    out, err = capsys.readouterr()
    written = mine.read_text()
    if words[0] == "apply":
        assert main(list(words)) == 0 and "already is c" in capsys.readouterr().err
        (undo,) = (line.partition("to undo: ")[2] for line in err.splitlines() if line.startswith("to undo: "))
        subprocess.run(shlex.split(undo), check=True)
        assert mine.read_text() == before != written
    return code, _without_places(out), _without_places(err), written


def _without_places(text: str) -> str:
    """Return the text without clock times: in them two answers always differ."""
    try:
        found = json.loads(text)
    except ValueError:
        return re.sub(r"\d{8}T?\d{6}\w*|\d+(\.\d+)? ?(s|ms)\b", "TIME", text)
    return json.dumps({key: value for key, value in found.items() if key != "seconds"}, indent=1)
