"""Each hook gets one JSON record of the event, and can neither hang nor fail the daemon."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

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
        (BestChanged(1, 50.0, 2.0, source="simulated", improved=True), "best"),
        (BestChanged(1, 80.0, 1.2, source="simulated", improved=False), ""),
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


async def test_commands_are_given_the_event(tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    script = tmp_path / "hook.py"
    code = "import sys, pathlib; pathlib.Path(__file__).with_name('told').open('a').write(sys.stdin.read() + '\\n')"
    await asyncio.to_thread(script.write_text, code)
    config = HooksConfig(on_best=shlex.join([sys.executable, str(script)]), on_end="/nowhere/program")
    running = asyncio.create_task(hooks.run_hooks(store, config))
    await asyncio.sleep(0)
    run = await records.small_run(store, best_us=50.0)
    async with asyncio.timeout(300):
        async for event in store.subscribe(0):
            if isinstance(event.data, Notice):
                assert "hook on_end ended with 127" in event.data.text
                break
    running.cancel()
    (line,) = (await asyncio.to_thread((tmp_path / "told").read_text)).splitlines()
    reported = json.loads(line)
    assert (reported["hook"], reported["event"]["data"]["speedup"]) == ("on_best", 2.0)
    assert reported["run"]["id"] == run.id
    states = await store.read(lambda c: [tuple(r) for r in c.execute("SELECT state, result FROM journal ORDER BY id")])
    assert states == [("done", '{"exit_code":0}'), ("done", '{"exit_code":127}')]
    await store.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_webhook_of_the_documentation_posts_what_happened() -> None:
    page = (Path(__file__).parents[3] / "docs/tui.md").read_text()
    (example,) = re.findall(r"```toml\n(\[hooks\]\n.*?)```", page, re.DOTALL)
    heard: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        heard.put_nowait((request.content_type, await request.json()))
        return web.Response(status=200 if heard.qsize() == 1 else 500)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    for command in tomllib.loads(example)["hooks"].values():
        reported = {"version": 1, "hook": "on_best", "text": "r1: a faster kernel"}
        here = command.replace("https://example.org", f"http://{host}:{port}")
        assert here != command and await hooks.run_command(here, json.dumps(reported).encode()) == 0
        assert heard.get_nowait() == ("application/json", reported)
    heard.put_nowait(("", None))
    assert await hooks.run_command(here, b"{}") != 0, "a server that refuses is a hook that failed"
    await runner.cleanup()


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "LIMIT_S", 0.2)
    code = shlex.join([sys.executable, "-c", "import time; time.sleep(60)"])
    assert await hooks.run_command(code, b"{}") == 124
