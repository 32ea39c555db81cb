"""A daemon whose evaluator is a fleet, as people see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.cluster.host import HostFacts
from acceld.config import Config
from acceld.daemon.parts import Parts
from acceld.daemon.runs import Searching
from acceld.daemon.service import Daemon
from acceld.evaluate.interface import EvaluationRequest
from acceld.home import DaemonLock, Home
from acceld.model import Kernel, Run
from acceld.proposers.interface import Problem
from acceld.search.control import RunControl
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import keep_host
from acceld.store.changes.tree import mark_started
from acceld.store.database import Store
from tests.acceld.cluster.conftest import World, until
from tests.acceld.daemon.scripted import TenthFaster


@pytest.fixture
async def serving(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Home, Daemon]]:
    """Yield a daemon in this process over the hosts a and b."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    home = Home(tmp_path / ".acceld")
    home.prepare()

    async def parts(config: Config, home: Home, store: Store, keys: Mapping[str, str]) -> Parts:
        async def started(request: EvaluationRequest, host: str) -> None:
            if request.candidate:
                await store.change(mark_started, request.candidate, host)

        async def seen(facts: HostFacts) -> None:
            await store.change(keep_host, asdict(facts), 3.6)

        world.fleet._on_start, world.fleet._on_seen = started, seen

        async def make_search(run: Run, control: RunControl) -> Searching:
            problem, root = Problem("silu", "", "", (), "trn1", "nki_legacy"), Kernel("latency 100", "nki_legacy")
            return Search(run, SearchParts(store, world.fleet, TenthFaster(), problem, root), control)

        return Parts(world.fleet, make_search, fleet=world.fleet)

    lock = DaemonLock(home)
    token, socket_path = lock.new_token(), home.socket()
    assert token
    daemon = Daemon(home, Config(), parts, socket_path=socket_path, listening=lambda: lock.announce(socket_path, "0"))
    running = asyncio.create_task(daemon.run())
    await daemon.ready.wait()
    await world.add("a", delay_s=0.01)
    await world.add("b", delay_s=0.01)
    yield home, daemon
    daemon.stop(0.0)
    await running
    lock.release()


async def test_hosts_are_listed_drained_and_priced(
    serving: tuple[Home, Daemon], world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    home, daemon = serving

    async def hosts(*words: str) -> list[dict[str, object]]:
        assert await asyncio.to_thread(main, ["hosts", *words, "--json", "--home", str(home.path)]) == 0
        found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["hosts"]
        return found

    search = {"beam_width": 1, "plans": 2, "attempts": 1, "iterations": 1}
    run = await daemon.submit({"workload": "silu", "backend": "neuron_legacy", "search": search})
    await until(lambda: "latency 90.000 # 1 0 0" in str(world.started) or daemon._runs.control(run) is None)
    a, b = await hosts()
    assert (a["host"], a["standing"], a["why_idle"], a["usd_per_hour"]) == ("a", "active", "nothing waits", 3.6)
    usd = [one["usd"] for one in (a, b) if one["usd"] is not None]
    assert usd
    assert sum(map(float, usd)) > 0  # type: ignore[arg-type]
    a, b = await hosts("drain", "a")
    assert (a["standing"], b["standing"]) == ("draining", "active")
    a, b = await hosts("undrain", "a")
    assert a["standing"] == "active"
    assert await asyncio.to_thread(main, ["hosts", "drain", "nosuch", "--home", str(home.path)]) == 2
    assert "there is no host 'nosuch'" in capsys.readouterr().err
    assert await asyncio.to_thread(main, ["hosts", "--home", str(home.path)]) == 0
    assert "why idle" in capsys.readouterr().out


async def test_the_doctor_asks_each_host(
    serving: tuple[Home, Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, _ = serving
    monkeypatch.setenv("ACCELD_DEVICES_CLUSTER", "auto")
    await asyncio.to_thread(main, ["doctor", "--json", "--home", str(home.path)])
    reported = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert reported["host a"]["state"] == "ok"
    assert reported["host b: core 3"]["text"] == "out of service"
