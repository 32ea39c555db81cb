"""The routes over a database alone, and events over a real socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from acceld.client import check_version, understand
from acceld.errors import BudgetError, DaemonError, StoreError, UsageError
from acceld.http.client import HttpClient
from acceld.http.server import HistoryServer, Server
from acceld.http.service import log_lines
from acceld.model import RunSpec, RunState, shown_state
from acceld.store.changes.calls import begin_call
from acceld.store.changes.runs import create_run, set_run_state, write_notice
from acceld.store.database import Store
from acceld.store.reads import listing
from tests.store import records

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()


def client_of(server: HistoryServer) -> HttpClient:
    """Return a client of a history server."""
    return HttpClient(socket_path=server.socket_path, token=server.token)


async def test_a_run_that_a_daemon_left_is_stopped_and_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    store = await asyncio.to_thread(Store.open, path)
    left = await store.change(create_run, records.SPEC)
    await store.change(set_run_state, left.id, RunState.RUNNING)
    paused = await store.change(create_run, records.SPEC)
    await store.change(set_run_state, paused.id, RunState.PAUSED)
    await store.close()
    async with HistoryServer(path) as server:
        client = client_of(server)
        states = {row["id"]: row["state"] for row in (await client.get("/v1/runs"))["runs"]}
        assert states == {left.id: "stopped", paused.id: "paused"}
        assert (await client.get(f"/v1/runs/{left.id}"))["state"] == "stopped"
        assert (await client.get(f"/v1/runs/{left.id}/outcome"))["state"] == "stopped"
        for asked, found in (("stopped", [left.id]), ("running", []), ("stopped,paused", [paused.id, left.id])):
            rows = (await client.get("/v1/runs", state=asked))["runs"]
            assert [row["id"] for row in rows] == found, asked
        await client.close()


async def test_calls_without_an_answer_are_those_of_runs_that_go_on(tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    going, ended = [await store.change(create_run, records.SPEC) for _ in range(2)]
    await store.change(set_run_state, going.id, RunState.RUNNING)
    await store.change(set_run_state, ended.id, RunState.FAILED)
    numbers = [await store.change(begin_call, records.call(run.id, f"question {run.id}")) for run in (going, ended)]
    found = await store.read(listing.open_calls)
    assert [(row["call"], row["run"], row["role"]) for row in found] == [(numbers[0], going.id, ANY)]
    assert found[0]["started_at"] > 0
    await store.close()


async def test_every_reading_route_answers_without_a_daemon(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    await records.fill(path)
    async with HistoryServer(path) as server:
        client = client_of(server)
        assert (await client.hello())["read_only"] is True
        assert client.read_only
        answers: dict[str, Any] = {
            route: await client.get(route)
            for route in (
                "/v1/status /v1/queue /v1/logs /v1/events /v1/runs /v1/runs/r1 /v1/runs/1/outcome /v1/runs/1/tree "
                "/v1/runs/1/candidates /v1/runs/1/plans /v1/runs/1/calls /v1/runs/1/events /v1/candidates/c2 "
                "/v1/candidates/2/diff /v1/calls/1 /v1/evaluations/1 /v1/insights /v1/insights/i1 /v1/costs "
                "/v1/search?q=tiles /v1/history /v1/history/best /v1/history/failures /v1/history/cost-per-win "
                "/v1/history/insight-winrate /v1/history/flaky /v1/history/models /v1/history/rules /v1/tables"
            ).split()
        }
        row = answers["/v1/runs"]["runs"][0]
        assert (row["speedup"], row["improved"], row["tie_band"], row["wins"]) == (1.25, False, 34.0, 0)
        assert answers["/v1/candidates/c2"]["evaluation_record"]["profile"]["counters"] == {"hbm_read_bytes": 4096.0}
        assert answers["/v1/candidates/c2"]["parent_text"] == records.kernel().text
        assert answers["/v1/history/best"]["rows"][0][8] == 1.25
        assert {"name": "history", "columns": ANY} in answers["/v1/tables"]["tables"]
        best = next(one for one in answers["/v1/history"]["saved"] if one["name"] == "best")
        assert (await client.send("POST", "/v1/query", {"sql": best["sql"]}))["rows"] == answers["/v1/history/best"][
            "rows"
        ]
        assert answers["/v1/costs"]["cost_usd"] == 0.0125
        for method, route in (("POST", "/v1/runs"), ("POST", "/v1/stop"), ("DELETE", "/v1/insights/1")):
            with pytest.raises(UsageError, match="read-only"):
                await client.send(method, route, {"workload": "silu"})
        await client.close()


async def test_examples_in_the_protocol_have_the_keys_that_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    await records.fill(path)
    async with HistoryServer(path) as server:
        client = client_of(server)
        run = (await client.get("/v1/runs"))["runs"][0]
        candidate = (await client.get("/v1/runs/1/candidates"))["candidates"][0]
        call = (await client.get("/v1/runs/1/calls"))["calls"][0]
        plan = (await client.get("/v1/runs/1/plans"))["plans"][0]
        insight = (await client.get("/v1/insights"))["insights"][0]
        evaluation = await client.get("/v1/evaluations/1")
        for answered in (run, candidate, call, plan, insight, evaluation):
            absent = [key for key in answered if f'"{key}"' not in PAGE]
            assert absent == []
        await client.close()


async def test_the_websocket_gives_backlog_then_live_and_resumes_without_a_gap(tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    server = Server(store, None, socket_path=tmp_path / "s", token="t" * 64)
    await server.start()
    client = HttpClient(socket_path=tmp_path / "s", token="t" * 64)
    run, _ = await records.begin(store)
    seen: list[int] = []

    async def listen(until: int) -> None:
        async with asyncio.timeout(300):
            async for batch in client.events(seen[-1] if seen else 0):
                seen.extend(event.seq for event in batch)
                if seen[-1] >= until:
                    return

    before = store.hub.last_seq
    listener = asyncio.create_task(listen(before + 300))
    await asyncio.gather(*(store.change(write_notice, run.id, "info", str(number)) for number in range(300)))
    await listener
    await asyncio.gather(*(store.change(write_notice, run.id, "info", str(number)) for number in range(300)))
    await listen(before + 600)
    assert seen == list(range(1, before + 601))
    await client.close()
    await server.stop()
    await store.close()


async def test_following_goes_on_over_a_server_that_comes_back(tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    first = Server(store, None, socket_path=tmp_path / "s", token="t" * 64)
    await first.start()
    client = HttpClient(socket_path=tmp_path / "s", token="t" * 64)
    seen: list[int] = []
    met = asyncio.Event()

    async def listen() -> None:
        async for batch in client.follow(0):
            seen.extend(event.seq for event in batch)
            met.set()

    listener = asyncio.create_task(listen())
    await store.change(write_notice, None, "info", "one")
    await asyncio.wait_for(met.wait(), 300)
    await first.stop()
    await store.change(write_notice, None, "info", "two")
    second = Server(store, None, socket_path=tmp_path / "s", token="t" * 64)
    await second.start()
    met.clear()
    await asyncio.wait_for(met.wait(), 300)
    listener.cancel()
    assert seen == [1, 2]
    await client.close()
    await second.stop()
    await store.close()


async def test_a_request_waits_for_the_first_event(tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    server = Server(store, None, socket_path=tmp_path / "s", token="t" * 64)
    await server.start()
    client = HttpClient(socket_path=tmp_path / "s", token="t" * 64)
    waiting = asyncio.create_task(client.get("/v1/events", after=0, wait_s=20))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await store.change(write_notice, None, "info", "now")
    assert [event["data"]["text"] for event in (await waiting)["events"]] == ["now"]
    assert (await client.get("/v1/events", after=1, wait_s=0.01))["events"] == []
    waiting = asyncio.create_task(client.get("/v1/events", after=1, wait_s=20, kind="run_created"))
    await asyncio.sleep(0.05)
    await store.change(write_notice, None, "info", "of another kind")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await store.change(create_run, RunSpec("silu"))
    assert [event["kind"] for event in (await waiting)["events"]] == ["run_created"]
    with pytest.raises(UsageError, match="kind='run_creatd' is no kind of event"):
        await client.get("/v1/events", kind="run_creatd")
    await client.close()
    await server.stop()
    await store.close()


def test_a_state_for_people_says_cancelling_until_the_end_and_stopped_without_a_daemon() -> None:
    shown = {
        (state, live): shown_state(state, live, True) for state in ("running", "cancelled") for live in (True, False)
    }
    assert shown == {
        ("running", True): "cancelling",
        ("cancelled", True): "cancelled",
        ("running", False): "stopped",
        ("cancelled", False): "cancelled",
    }
    assert shown_state("paused", True) == "paused"


def test_refusals_come_back_as_the_daemons_own_errors() -> None:
    reported = {"error": {"kind": "BudgetError", "message": "too dear", "hint": "raise it", "exit_code": 5}}
    with pytest.raises(BudgetError, match="too dear") as caught:
        understand(422, json.dumps(reported).encode())
    assert caught.value.exit_code == 5
    with pytest.raises(StoreError):
        understand(500, json.dumps({"error": {"kind": "StoreError", "message": "x"}}).encode())
    with pytest.raises(DaemonError, match="not JSON"):
        understand(502, b"<html>")


def test_a_daemon_of_another_protocol_is_refused() -> None:
    with pytest.raises(DaemonError, match="speaks protocol 2") as caught:
        check_version({"api": 2, "version": "9.0"})
    assert "acceld restart" in caught.value.hint


def test_log_lines_are_paged_filtered_and_survive_rotation(tmp_path: Path) -> None:
    log = tmp_path / "acceld.log"
    assert log_lines(log, -1, 10) == ([], 0)
    log.write_text(
        "".join(json.dumps({"at": n, "level": "info", "logger": "x", "text": str(n)}) + "\n" for n in range(5))
    )
    lines, following = log_lines(log, -1, 2)
    assert [line["text"] for line in lines] == ["3", "4"]
    with log.open("a") as stream:
        stream.write('{"at": 5, "level": "error", "logger": "x", "text": "bad"}\nnot json\nhalf a li')
    lines, following = log_lines(log, following, 10, "info")
    assert [line["text"] for line in lines] == ["bad", "not json"]
    assert log_lines(log, following, 10) == ([], following)
    assert [line["text"] for line in log_lines(log, 0, 100, "error")[0]] == ["bad"]
    log.write_text("fresh\n")
    assert [line["text"] for line in log_lines(log, following, 10)[0]] == ["fresh"]
