"""Hooks are told what happened as JSON, once each, and can neither hang nor fail the daemon."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from acceld.config import HooksConfig
from acceld.daemon import hooks
from acceld.events import (
    BestChanged,
    BudgetLevel,
    CandidateEvaluated,
    DeviceState,
    Event,
    EventData,
    Notice,
    RunStateChanged,
)
from acceld.model import RunState, Status
from acceld.store.database import Store
from tests.store import records

ALL = HooksConfig(on_best="best", on_end="end", on_alarm="alarm")


@pytest.mark.parametrize(
    ("data", "command"),
    [
        (BestChanged(1, 80.0, 1.2, source="simulated"), "best"),
        (BestChanged(1, 100.0, 1.0), ""),
        (RunStateChanged(RunState.FAILED), "end"),
        (RunStateChanged(RunState.RUNNING), ""),
        (BudgetLevel("run", 4.0, 5.0, 80), "alarm"),
        (CandidateEvaluated(1, 1, Status.SUSPECT), "alarm"),
        (CandidateEvaluated(1, 1, Status.PASSED), ""),
        (DeviceState("nc0", "sick"), "alarm"),
        (Notice("info", "hello"), ""),
    ],
)
def test_each_event_calls_its_hook(data: EventData, command: str) -> None:
    assert hooks.hook_for(Event(data, 1), ALL)[1] == command


async def test_commands_are_told_what_happened(tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    script = tmp_path / "hook.py"
    code = "import sys, pathlib; pathlib.Path(__file__).with_name('told').open('a').write(sys.stdin.read() + '\\n')"
    await asyncio.to_thread(script.write_text, code)
    config = HooksConfig(on_best=f"{sys.executable} {script}", on_end="/nowhere/program")
    running = asyncio.create_task(hooks.run_hooks(store, config))
    await asyncio.sleep(0)
    run = await records.small_run(store)
    async with asyncio.timeout(30):
        async for event in store.subscribe(0):
            if isinstance(event.data, Notice):
                assert "hook on_end ended with 127" in event.data.text
                break
    running.cancel()
    (line,) = (await asyncio.to_thread((tmp_path / "told").read_text)).splitlines()
    told = json.loads(line)
    assert (told["hook"], told["event"]["data"]["speedup"]) == ("on_best", 1.25)
    assert told["run"]["id"] == run.id
    states = await store.read(lambda c: [tuple(r) for r in c.execute("SELECT state, result FROM journal ORDER BY id")])
    assert states == [("done", '{"exit_code":0}'), ("done", '{"exit_code":127}')]
    await store.close()


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "LIMIT_S", 0.2)
    code = f"{sys.executable} -c 'import time; time.sleep(60)'"
    assert await hooks.run_command(code, b"{}") == 124
