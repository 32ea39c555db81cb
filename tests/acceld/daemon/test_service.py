"""A whole daemon with scripted parts, used over its socket."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import pwd
import shutil
import threading
import time
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from acceld.cli.commands.status import lines
from acceld.client import not_running
from acceld.daemon import interruption, steering
from acceld.errors import AcceldError, DaemonError, StoreError, UsageError
from acceld.events import CandidateEvaluated, InsightChanged, RunStateChanged
from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.model import Kernel, RunSpec, RunState, SearchParameters
from acceld.search import loop
from acceld.store.changes.insights import write_insight
from acceld.store.changes.runs import create_run, set_run_state, write_notice
from acceld.store.database import Store
from acceld.store.writer import Change, Transaction
from tests.acceld.daemon.conftest import serving
from tests.store import records

QUICK = {"workload": "silu", "preset": "quick", "search": {"iterations": 2, "patience": 0}}


async def ended(client: HttpClient, run: int) -> dict[str, Any]:
    """Return the run's row once it has ended."""
    async with asyncio.timeout(300):
        async for batch in client.events(0, run):
            for event in batch:
                if isinstance(event.data, RunStateChanged) and event.data.state.ended:
                    row: dict[str, Any] = await client.get(f"/v1/runs/{run}")
                    return row
    raise AssertionError("the run did not end")


async def begun(client: HttpClient, run: int) -> dict[str, Any]:
    """Return the run's row once its baseline has been evaluated."""
    async with asyncio.timeout(300):
        async for batch in client.events(0, run):
            if any(event.kind == "best_changed" for event in batch):
                row: dict[str, Any] = await client.get(f"/v1/runs/{run}")
                return row
    raise AssertionError("the run did not begin")


async def test_a_clock_that_goes_back_an_hour_ends_no_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    async with serving(home) as (_, client):
        run = (await client.send("POST", "/v1/runs", QUICK))["id"]
        await begun(client, run)
        monkeypatch.setattr(time, "time", lambda: real() - 3600)
        assert (await ended(client, run))["state"] == "finished"
        reported = await client.get(f"/v1/runs/{run}/outcome")
        assert reported["speedup"] > 1 and reported["elapsed_s"] >= 0
        last, seqs = (await client.get("/v1/hello"))["last_seq"], list[int]()
        async for batch in client.events(0):
            seqs += [event.seq for event in batch]
            if seqs[-1] >= last:
                break
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_submitted_run_goes_to_its_end_and_is_reported_event_by_event(home: Home) -> None:
    async with serving(home) as (_, client):
        run = await client.send("POST", "/v1/runs", QUICK)
        assert run["state"] in ("queued", "running")  # a free place takes it at once
        row = await ended(client, run["id"])
        assert row["state"] == "finished"
        assert row["speedup"] == pytest.approx(100 / 81)
        assert row["statuses"]["compile_error"] > 0
        reported = await client.get(f"/v1/runs/{run['id']}/outcome")
        assert reported["improved"] is False  # 1.23x: a tie
        assert reported["baseline_latency_us"] == 100
        page = await client.get(f"/v1/runs/{run['id']}/candidates", limit=3)
        assert len(page["candidates"]) == 3
        assert page["total"] == row["candidates"] + 1
        tree = await client.get(f"/v1/runs/{run['id']}/tree")
        assert tree["best"] == row["best"]
        detail = await client.get(f"/v1/candidates/{row['best']}")
        assert [step["latency_us"] for step in detail["lineage"]] == [100, 90, 81]
        diff = await client.get(f"/v1/candidates/{row['best']}/diff", against="baseline")
        assert "-latency 100" in diff["diff"]


async def test_refusals_say_what_and_what_to_do(home: Home) -> None:
    async with serving(home) as (_, client):
        with pytest.raises(UsageError, match="Did you mean 'workload'"):
            await client.send("POST", "/v1/runs", {"worklaod": "silu"})
        with pytest.raises(UsageError, match=r"search\.iterations = 'two'"):
            await client.send("POST", "/v1/runs", {"workload": "silu", "search": {"iterations": "two"}})
        with pytest.raises(UsageError, match="there is no workload 'nosuch'"):
            await client.send("POST", "/v1/runs", QUICK | {"workload": "nosuch"})
        with pytest.raises(StoreError, match="there is no run r99"):
            await client.get("/v1/runs/99")
        with pytest.raises(UsageError, match="Not Found"):
            await client.get("/v1/nothing")
        with pytest.raises(UsageError, match="no action 'puase'"):
            await client.send("POST", "/v1/runs/1/actions", {"action": "puase"})


async def test_a_run_that_can_not_begin_fails_and_the_daemon_goes_on(home: Home) -> None:
    async with serving(home) as (_, client):
        for name in ("unreadable", "defect"):
            run = await client.send("POST", "/v1/runs", QUICK | {"name": name})
            assert (await ended(client, run["id"]))["state"] == "failed"
        run = await client.send("POST", "/v1/runs", QUICK)
        assert (await ended(client, run["id"]))["state"] == "finished"
        status = await client.get("/v1/status")
        assert status["runs"]["failed"] == 2


async def test_a_cancelled_run_is_never_shown_as_running_while_its_end_is_stored(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_S", "0.05")
    storing, stored = threading.Event(), threading.Event()

    def slow(tx: Transaction, run: int, state: RunState, *others: Any) -> Any:
        if state is RunState.CANCELLED:
            storing.set()
            assert stored.wait(300)
        return set_run_state(tx, run, state, *others)

    monkeypatch.setattr(loop, "set_run_state", slow)
    async with serving(home) as (_, client):
        run = await client.send("POST", "/v1/runs", QUICK | {"search": {"iterations": 50, "patience": 0}})
        await begun(client, run["id"])
        # the store writes one change at a time: the answer itself may wait behind the run's end
        cancel = asyncio.ensure_future(client.send("POST", f"/v1/runs/{run['id']}/actions", {"action": "cancel"}))
        try:
            assert await asyncio.to_thread(storing.wait, 300)
            assert (await client.get(f"/v1/runs/{run['id']}"))["state"] == "cancelling"
            assert [row["state"] for row in (await client.get("/v1/status"))["active"]] == ["cancelling"]
        finally:
            stored.set()
        await cancel
        assert (await ended(client, run["id"]))["state"] == "cancelled"


async def test_runs_are_steered_and_every_step_is_recorded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_S", "0.05")
    async with serving(home) as (_, client):
        long = {"search": {"iterations": 50, "patience": 0}}
        ruled = await client.send("POST", "/v1/runs", QUICK | long)
        with pytest.raises(UsageError, match="come from rules, which read no hints"):
            await client.send("POST", f"/v1/runs/{ruled['id']}/actions", {"action": "hint", "text": "fuse"})
        await client.send("POST", f"/v1/runs/{ruled['id']}/actions", {"action": "cancel"})
        run = await client.send("POST", "/v1/runs", QUICK | long | {"proposer": "llm"})
        path = f"/v1/runs/{run['id']}/actions"
        row = await begun(client, run["id"])
        paused = await client.send("POST", path, {"action": "pause"})
        assert paused["run"]["state"] == "paused"
        pinned = await client.send("POST", path, {"action": "pin", "candidate": row["best"], "by": "me"})
        assert pinned["run"]["steering"]["pinned"] == [row["best"]]
        await client.send("POST", path, {"action": "hint", "text": "fuse"})
        with pytest.raises(StoreError, match="no candidate c9999"):
            await client.send("POST", path, {"action": "veto", "candidate": 9999})
        assert (await client.send("POST", path, {"action": "resume"}))["run"]["state"] == "running"
        assert "is not paused" in (await client.send("POST", path, {"action": "resume"}))["result"]
        left = await client.send("POST", path, {"action": "cancel"})
        assert left["run"]["state"] in ("cancelling", "cancelled"), "never running any more"
        with pytest.raises(AcceldError, match=r"is being cancelled|has ended \(cancelled\)"):
            await client.send("POST", path, {"action": "resume"})
        found = await ended(client, run["id"])
        assert (found["state"], found["exit_code"]) == ("cancelled", 130)
        events = await client.get(f"/v1/runs/{run['id']}/events", limit=5000)
        steered = [event["data"] for event in events["events"] if event["kind"] == "steered"]
        assert [one["action"] for one in steered] == ["pause", "pin", "hint", "resume", "resume", "cancel", "resume"]
        assert steered[1]["by"] == "me"
        with pytest.raises(AcceldError, match="has ended"):
            await client.send("POST", path, {"action": "resume"})


async def test_a_paused_run_stays_paused_over_a_restart_and_keeps_its_pins(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_S", "0.05")
    async with serving(home) as (_, client):
        run = await client.send("POST", "/v1/runs", QUICK | {"search": {"iterations": 3, "patience": 0}})
        path = f"/v1/runs/{run['id']}/actions"
        row = await begun(client, run["id"])
        await client.send("POST", path, {"action": "pin", "candidate": row["best"]})
        await client.send("POST", path, {"action": "pause"})
    monkeypatch.setenv("SCRIPTED_S", "0.001")
    async with serving(home) as (_, client):
        assert (await client.get(f"/v1/runs/{run['id']}"))["state"] == "paused"
        again = await client.send("POST", path, {"action": "resume"})
        assert again["run"]["steering"]["pinned"] == [row["best"]]
        assert (await ended(client, run["id"]))["state"] == "finished"


async def test_a_user_without_a_name_steers_a_run(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many containers have a user that ``/etc/passwd`` does not know, and no variable that names one."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    async with serving(home) as (_, client):
        run = (await client.send("POST", "/v1/runs", QUICK))["id"]
        await client.send("POST", f"/v1/runs/{run}/actions", {"action": "note", "text": "x"})
        row = await client.get(f"/v1/runs/{run}")
        assert [note["by"] for note in row["notes"]] == [f"user {os.geteuid()}"]


async def test_a_full_disk_refuses_new_work_and_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceld.daemon.service.STORAGE_S", 0.01)
    async with serving(home) as (daemon, client):
        run = (await client.send("POST", "/v1/runs", QUICK))["id"]
        await ended(client, run)
        writer = daemon.store.writer
        writer.degraded = "database or disk is full"
        for path, asked in (("/v1/runs", QUICK), (f"/v1/runs/{run}/actions", {"action": "note", "text": "x"})):
            with pytest.raises(StoreError, match=r"database or disk is full.*, so nothing was changed"):
                await client.send("POST", path, asked)
        writer.degraded = ""
        room, submit = asyncio.Event(), writer.submit

        async def full(change: Change) -> Any:
            writer.degraded = "database or disk is full"
            await room.wait()
            writer.degraded = ""
            return await submit(change)

        monkeypatch.setattr(writer, "submit", full)
        with pytest.raises(StoreError, match="the run is not stored yet") as told:
            await client.send("POST", "/v1/runs", QUICK)
        assert "begins by itself" in told.value.hint
        monkeypatch.setattr(writer, "submit", submit)
        room.set()
        assert (await ended(client, run + 1))["state"] == "finished"


async def test_a_stopped_daemon_takes_its_runs_up_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_S", "0.02")
    async with serving(home) as (_, client):
        run = await client.send("POST", "/v1/runs", QUICK)
        await begun(client, run["id"])
    async with serving(home) as (_, client):
        row = await ended(client, run["id"])
        assert row["state"] == "finished"
        counted = await client.send(
            "POST", "/v1/query", {"sql": "SELECT key FROM evaluations GROUP BY key HAVING count(*) > 1"}
        )
        assert counted["rows"] == []


async def test_a_spot_notice_ends_the_daemon_in_order_and_the_next_one_goes_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_S", "0.02")
    announced = asyncio.Event()

    async def notice() -> str:
        await announced.wait()
        return "EC2 will terminate this spot instance at noon"

    monkeypatch.setattr(interruption, "on_ec2", lambda: True)
    monkeypatch.setattr(interruption, "notice", notice)
    async with serving(home) as (daemon, client):
        run = await client.send("POST", "/v1/runs", QUICK)
        await begun(client, run["id"])
        announced.set()
        async with asyncio.timeout(300):
            await daemon._stop.wait()
        assert "spot instance at noon" in daemon._stop_reason
    monkeypatch.setattr(interruption, "on_ec2", lambda: False)
    async with serving(home) as (_, client):
        assert (await ended(client, run["id"]))["state"] == "finished"
        reported = await client.send("POST", "/v1/query", {"sql": "SELECT data FROM events"})
        assert any("spot instance at noon" in str(row) for row in reported["rows"])


async def test_a_daemon_that_lives_is_ready_only_while_it_takes_runs(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(home) as (daemon, client):
        assert await client.get("/v1/ready") == {"ready": True}
        for target, name, value, said in (
            (daemon.store.writer, "degraded", "the disk is full", "not ready: the disk is full"),
            (daemon, "_state", "stopping", "not ready: the daemon is stopping"),
        ):
            with monkeypatch.context() as patch, pytest.raises(DaemonError, match=said):
                patch.setattr(target, name, value)
                await client.get("/v1/ready")
            said_hello = await client.get("/v1/hello")
            assert (said_hello["name"], said_hello["models"]) == ("acceld", [])


async def test_an_idle_daemon_ends_itself(home: Home) -> None:
    async with serving(home, idle_exit_s=0.2) as (daemon, client):
        run = await client.send("POST", "/v1/runs", QUICK)
        await ended(client, run["id"])
        async with asyncio.timeout(300):
            await daemon._stop.wait()


async def test_a_daemon_whose_state_folder_is_deleted_ends_itself(home: Home) -> None:
    async with serving(home) as (daemon, client):
        await client.get("/v1/hello")
        await asyncio.to_thread(shutil.rmtree, home.path)
        async with asyncio.timeout(300):
            await daemon._stop.wait()
        assert "was deleted" in daemon._stop_reason
    assert not home.path.exists()


async def test_a_daemon_whose_file_is_deleted_writes_the_file_again(home: Home) -> None:
    async with serving(home):
        told = await asyncio.to_thread(home.daemon)
        await asyncio.to_thread(home.daemon_file.unlink)
        with pytest.raises(DaemonError, match="is starting or ending"):
            raise not_running(home)
        async with asyncio.timeout(300):
            while (again := await asyncio.to_thread(home.daemon)) is None:  # noqa: ASYNC110  a file tells nobody
                await asyncio.sleep(0.05)
        assert told is not None and again["pid"] == told["pid"]


async def test_a_server_that_stops_leaves_the_socket_of_the_next_one(home: Home) -> None:
    async with contextlib.AsyncExitStack() as both:
        async with serving(home) as (old, _):
            await asyncio.to_thread(home.path.rename, home.path.with_name("moved"))
            await asyncio.to_thread(home.prepare)
            _, client = await both.enter_async_context(serving(home))
            await old._stop.wait()
        assert (await client.get("/v1/status"))["state"] == "running"
        await client.close()
        assert (await client.get("/v1/status"))["state"] == "running"  # over a new connection


async def test_the_state_counts_data_sets(
    home: Home, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    former = home.path / "datasets" / "of an older release"
    await asyncio.to_thread(former.mkdir, parents=True)
    await asyncio.to_thread((former / "input0.bin").write_bytes, bytes(4096))
    folder = home.datasets / "one"
    await asyncio.to_thread(folder.mkdir, parents=True)
    await asyncio.to_thread((folder / "input0.bin").write_bytes, bytes(4096))
    async with serving(home) as (_, client):
        reported = await client.get("/v1/status")
        assert reported["storage"]["data_bytes"] == 4096
        assert reported["storage"]["data_cap_bytes"] == 4 << 30
        assert not await asyncio.to_thread(former.exists)
        assert any("4.0 KiB of 4.0 GiB" in line for line in lines(reported))


async def test_applying_refuses_a_file_that_has_changed_or_is_called_otherwise(home: Home) -> None:
    text = "latency 100\nvoid kernel(const float *x, float *out) { }\n"
    target, other = home.path / "kernel.c", home.path / "other.c"
    await asyncio.to_thread(target.write_text, text)
    await asyncio.to_thread(other.write_text, text.replace("*out", "*out, int n"))
    async with serving(home) as (_, client):
        root = {"text": text, "api": "c", "filename": "kernel.c"}
        run = await client.send(
            "POST", "/v1/runs", QUICK | {"backend": "cpu", "api": "c", "chip": "host", "root": root}
        )
        await ended(client, run["id"])
        path = f"/v1/runs/{run['id']}/actions"
        wrong: dict[str, object] = {"action": "apply", "path": str(target), "expected_sha256": "0" * 64}
        with pytest.raises(AcceldError, match=r"is no win: 1\.23x tie"):
            await client.send("POST", path, wrong)
        assert await asyncio.to_thread(target.read_text) == text
        wrong["even_if_tied"] = True
        with pytest.raises(AcceldError, match="has changed"):
            await client.send("POST", path, wrong)
        with pytest.raises(AcceldError, match="arguments of its kernel differ"):
            await client.send("POST", path, wrong | {"path": str(other)})
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        for _ in range(2):  # also a second time, after a person put the old text back
            reported = await client.send("POST", path, wrong | {"expected_sha256": sha256})
            assert (await asyncio.to_thread(target.read_text)).startswith("latency 81")
            assert reported["result"].endswith(f"kernel.c.{sha256[:8]}.bak")
            assert await asyncio.to_thread(target.with_name(f"kernel.c.{sha256[:8]}.bak").read_text) == text
            written = await asyncio.to_thread(target.read_bytes)
            with pytest.raises(AcceldError, match=r"already is c\d+; nothing was written"):
                await client.send("POST", path, wrong | {"expected_sha256": hashlib.sha256(written).hexdigest()})
            await asyncio.to_thread(target.write_text, text)


async def test_one_kernel_is_evaluated_without_being_stored(home: Home) -> None:
    async with serving(home) as (_, client):
        body = {"workload": "silu", "kernel": {"text": "latency 42", "api": "nki_legacy"}}
        reported = await client.send("POST", "/v1/evaluations", body)
        assert (reported["status"], reported["profile"]["latency_us"], reported["id"]) == ("passed", 42, 0)
        assert (await client.get("/v1/runs"))["total"] == 0


async def test_a_compilation_ends_when_nobody_waits_for_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_S", "30")
    kernel = {"text": "latency 42", "api": "nki_legacy"}
    body = {"workload": "silu", "backend": "neuron_legacy", "gate": "timing", "kernel": kernel}
    async with serving(home) as (daemon, client):
        evaluator = daemon._parts.evaluator
        asking = asyncio.create_task(client.send("POST", "/v1/evaluations", body))
        async with asyncio.timeout(300):
            while not evaluator.statistics()["slots_in_use"]:  # noqa: ASYNC110  # the judge has no event to wait for
                await asyncio.sleep(0.02)
            asking.cancel()
            while evaluator.statistics()["slots_in_use"]:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.02)


async def test_many_kernels_are_evaluated_in_one_request_and_answered_in_their_order(home: Home) -> None:
    kernels = [{"text": f"latency {n}", "api": "nki_legacy"} for n in (42, 41)]
    items: list[dict[str, Any]] = [{"id": "a", "workload": "silu", "kernel": kernels[0]}]
    items += [{"workload": "siluu", "kernel": kernels[0]}]
    items += [{"id": "c", "workload": "silu", "kernel": kernels[1], "details": False}]
    async with serving(home) as (_, client):
        connector = aiohttp.UnixConnector(str(await asyncio.to_thread(home.socket)))
        headers = {"Authorization": f"Bearer {await asyncio.to_thread(home.token)}"}
        async with (
            aiohttp.ClientSession("http://localhost", connector=connector, headers=headers) as session,
            session.post("/v1/evaluations", json={"items": items}) as response,
        ):
            reported = [json.loads(line) async for line in response.content]
        assert [one["id"] for one in reported] == ["a", 1, "c"]
        assert [one["profile"]["latency_us"] for one in (reported[0], reported[2])] == [42, 41]
        assert "no workload 'siluu'" in reported[1]["error"]["message"]
        with pytest.raises(UsageError, match="with a list of evaluations"):
            await client.send("POST", "/v1/evaluations", {"items": items, "workload": "silu"})


async def test_sql_reads_within_its_time_and_writes_nothing(home: Home) -> None:
    async with serving(home) as (_, client):
        assert (await client.send("POST", "/v1/query", {"sql": "SELECT 1 AS one"}))["rows"] == [[1]]
        for sql in ("DELETE FROM runs", "PRAGMA journal_mode = DELETE", "SELECT 1; SELECT 2", "ATTACH 'x' AS y"):
            with pytest.raises(UsageError):
                await client.send("POST", "/v1/query", {"sql": sql})
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
        with pytest.raises(AcceldError, match=r"longer than 0\.2 s"):
            await client.send("POST", "/v1/query", {"sql": endless, "time_limit_s": 0.2})


async def test_a_run_whose_kernel_was_changed_in_the_file_fails_and_the_others_go_on(home: Home) -> None:
    async def fill() -> None:
        store = await asyncio.to_thread(Store.open, home.database)
        for number in (1, 2):
            root = Kernel(f"latency 5{number}", "nki_legacy")
            spec = RunSpec(workload="silu", root=root, search=SearchParameters(iterations=1, patience=0))
            await store.change(set_run_state, (await store.change(create_run, spec)).id, RunState.RUNNING)
        await store.change(lambda tx: tx.execute("UPDATE texts SET text = 'latency 1' WHERE text = 'latency 51'"))
        await store.close()

    await fill()
    async with serving(home) as (_, client):
        changed, other = await ended(client, 1), await ended(client, 2)
        assert (changed["state"], other["state"]) == ("failed", "finished")
        assert "not the one that was evaluated" in changed["message"]


async def test_a_key_that_turns_up_in_texts_is_stored_nowhere(home: Home) -> None:
    canary = "canary-5e1f7a90c2"
    async with serving(home, keys={"OPENAI_API_KEY": canary}) as (daemon, client):
        named = QUICK | {"name": f"with {canary}", "root": {"text": f"latency 50 # {canary}"}}
        run = await client.send("POST", "/v1/runs", named)
        await ended(client, run["id"])
        path = f"/v1/runs/{run['id']}/actions"
        await client.send("POST", path, {"action": "note", "text": f"401 for {canary}"})
        with pytest.raises(AcceldError):
            await client.send("POST", path, {"action": "hint", "text": canary})
        await daemon.store.change(write_notice, run["id"], "error", f"refused: Bearer {canary}", canary)
        assert "[key " in (await client.get(f"/v1/runs/{run['id']}"))["name"]

    def found() -> list[str]:
        return [str(f) for f in home.path.rglob("*") if f.is_file() and canary.encode() in f.read_bytes()]

    assert await asyncio.to_thread(found) == []


async def test_a_candidate_is_measured_again_when_asked(home: Home) -> None:
    async with serving(home) as (daemon, client):
        run = await client.send("POST", "/v1/runs", QUICK)
        row = await ended(client, run["id"])
        last = daemon.store.hub.last_seq
        await client.send("POST", f"/v1/runs/{run['id']}/actions", {"action": "remeasure", "candidate": row["best"]})
        async with asyncio.timeout(300):
            async for batch in client.events(last, run["id"]):
                reported = [event.data for event in batch if isinstance(event.data, CandidateEvaluated)]
                if reported:
                    break
        assert (reported[0].candidate, reported[0].gate, reported[0].latency_us) == (row["best"], "strict", 81)


async def test_what_no_longer_passes_withdraws_what_it_taught(home: Home) -> None:
    async with serving(home) as (daemon, client):
        run = await client.send("POST", "/v1/runs", QUICK)
        await ended(client, run["id"])
        listed = (await client.get(f"/v1/runs/{run['id']}/candidates", limit=500))["candidates"]
        broken = next(one["id"] for one in listed if one["status"] == "compile_error")
        lesson = await daemon.store.change(write_insight, replace(records.insight(), fast_candidate=broken))
        last = daemon.store.hub.last_seq
        await client.send("POST", f"/v1/runs/{run['id']}/actions", {"action": "remeasure", "candidate": broken})
        async with asyncio.timeout(300):
            async for batch in client.events(last):
                reported = [event.data for event in batch if isinstance(event.data, InsightChanged)]
                if reported:
                    break
        assert reported == [InsightChanged(lesson.id, "withdrawn")]


async def test_insights_are_pinned_edited_and_forgotten(home: Home) -> None:
    async with serving(home) as (daemon, client):
        lesson = await daemon.store.change(write_insight, records.insight())
        path = f"/v1/insights/i{lesson.id}"
        changed = await client.send("PATCH", path, {"pinned": True, "title": "Load once", "tags": ["dma"]})
        assert (changed["pinned"], changed["title"], changed["tags"]) == (True, "Load once", ["dma"])
        assert (await client.send("PATCH", path, {"pinned": False}))["pinned"] is False
        for wrong in ({"uses": 7}, {"pinned": "yes"}, {"tags": [1]}):
            with pytest.raises(UsageError):
                await client.send("PATCH", path, wrong)
        assert [i["id"] for i in (await client.get("/v1/insights", q="loading"))["insights"]] == [lesson.id]
        await client.send("DELETE", path)
        with pytest.raises(StoreError, match="no insight"):
            await client.get(path)


def test_an_empty_hint_is_called_empty() -> None:
    with pytest.raises(UsageError, match="text is empty\n  hint needs text"):
        steering.check("hint", {"text": " "})
