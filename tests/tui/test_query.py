"""The screen for SQL: what it completes, asks, shows and writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from acceld.errors import UsageError
from acceld.tui.app import ConsoleApp
from acceld.tui.screens.query import QueryScreen, Statement
from acceld.tui.sql import completions
from acceld.tui.widgets.lines import LineList
from tests.properties import one_in
from tests.tui.canned import CannedClient, now

TABLES = {"runs": ("id", "speedup", "state"), "rewrites": ("parent", "child", "speedup")}


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        ("SELECT * FROM ru", "", "ns"),
        ("SELECT * FROM ", "", "runs"),
        ("sel", "", "ect"),
        ("SEL", "", "ECT"),
        ("SELECT sp", " FROM runs", "eedup"),
        ("SELECT w.ch", " FROM rewrites AS w", "ild"),
        ("SELECT w.", " FROM rewrites w", "parent"),
        ("SELECT * FROM runs WHERE sta", "", "te"),
        ("SELECT * FROM runs gr", "", "oup by"),
    ],
)
def test_a_word_is_completed_by_what_stands_around_it(before: str, after: str, first: str) -> None:
    assert completions(before, before + after, TABLES)[0] == first


@pytest.mark.parametrize("before", ["", "SELECT ", "SELECT * FROM runs r WHERE r.zzz", "SELECT id"])
def test_nothing_is_offered_where_nothing_fits(before: str) -> None:
    assert completions(before, before + " FROM runs", {"runs": ("id",)}) == []


def asked(press: Callable[[Pilot[None], QueryScreen], Awaitable[None]]) -> Any:
    """Open the Query screen and perform an action."""

    async def run(client: CannedClient) -> ConsoleApp:
        app = ConsoleApp(client, clock=now)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("9")
            await idle(pilot)
            screen = app.screen
            assert isinstance(screen, QueryScreen)
            await press(pilot, screen)
        return app

    return run


async def idle(pilot: Pilot[None]) -> None:
    """Wait until every request was answered."""
    waiting = [worker for worker in pilot.app.workers if worker.name != "events"]
    if waiting:
        await pilot.app.workers.wait_for_complete(waiting)
    await pilot.pause()


async def test_tab_completes_and_ctrl_r_asks_for_what_stands_there() -> None:
    async def press(pilot: Pilot[None], screen: QueryScreen) -> None:
        statement = screen.query_one(Statement)
        statement.load_text("SELECT speedup FROM rewr")
        statement.move_cursor(statement.document.end)
        await pilot.pause()
        await pilot.press("tab", "space", "l", "i", "m", "tab", "space", "5", "semicolon")
        assert statement.text == "SELECT speedup FROM rewrites limit 5;"
        await pilot.press("ctrl+r")
        await idle(pilot)
        rows = screen.query_one("#rows", LineList)
        assert list(rows.keys) == [0, 1] and rows.border_title == "2 rows" and rows.has_focus
        assert "1.70123" in rows._draw(0, 100).plain

    client = CannedClient()
    await asked(press)(client)
    body = {"sql": "SELECT speedup FROM rewrites limit 5", "limit": 1000, "time_limit_s": 30}
    assert client.sent == [("POST", "/v1/query", body)]


async def test_who_types_on_while_rows_come_stays_in_the_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    comes = asyncio.Event()
    send = CannedClient.send

    async def slowly(self: CannedClient, method: str, path: str, body: Any = None) -> Any:
        await comes.wait()
        return await send(self, method, path, body)

    async def press(pilot: Pilot[None], screen: QueryScreen) -> None:
        await pilot.press("ctrl+r", "x")
        comes.set()
        await idle(pilot)
        assert list(screen.query_one("#rows", LineList).keys) == [0, 1]
        await pilot.press("2")
        statement = screen.query_one(Statement)
        assert statement.has_focus and "x2" in statement.text and pilot.app.current_mode == "query"

    monkeypatch.setattr(CannedClient, "send", slowly)
    await asked(press)(CannedClient())


async def test_a_column_of_numbers_is_whole_or_not_there_and_right_goes_to_it() -> None:
    async def press(pilot: Pilot[None], screen: QueryScreen) -> None:
        await pilot.press("ctrl+r")
        await idle(pilot)
        rows = screen.query_one("#rows", LineList)
        assert rows._draw(0, 26).plain.strip() == "r2   rmsnorm_matmul"
        await pilot.press("right", "right")
        await pilot.pause()
        assert rows._draw(0, 26).plain.startswith("1.70123")

    await asked(press)(CannedClient())


async def test_an_error_stands_where_the_rows_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: CannedClient, method: str, path: str, body: Any = None) -> Any:
        raise UsageError("SQL: no such table: rnus", hint="Did you mean runs?")

    async def press(pilot: Pilot[None], screen: QueryScreen) -> None:
        await pilot.press("ctrl+r")
        await idle(pilot)
        rows = screen.query_one("#rows", LineList)
        assert rows.empty == "SQL: no such table: rnus\nDid you mean runs?" and rows.border_title == "failed"

    monkeypatch.setattr(CannedClient, "send", fails)
    await asked(press)(CannedClient())


@pytest.mark.parametrize("suffix", one_in(3, ["csv", "jsonl", "md"]))
async def test_rows_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(f"rows.{suffix}")

    async def press(pilot: Pilot[None], screen: QueryScreen) -> None:
        await pilot.press("ctrl+r")
        await idle(pilot)
        await pilot.press("w", *str(file), "enter")
        await pilot.pause()

    await asked(press)(CannedClient())
    lines = file.read_text().splitlines()  # noqa: ASYNC240  the console is closed
    match suffix:
        case "csv":
            assert lines[:2] == [
                "run,workload,speedup,created_at,message",
                "r2,rmsnorm_matmul,1.7012345678,2026-09-21T14:13:20.000Z,",
            ]
        case "jsonl":
            assert json.loads(lines[0])["speedup"] == 1.7012345678
        case _:
            assert lines[0] == "| run | workload | speedup | created_at | message |" and len(lines) == 4


async def test_a_statement_is_saved_and_chosen_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    async def press(pilot: Pilot[None], screen: QueryScreen) -> None:
        await pilot.press("ctrl+s", *"mine", "enter")
        await pilot.pause()
        saved = screen.query_one("#saved", LineList)
        assert list(saved.keys) == ["best", "failures", "mine"]
        screen.query_one(Statement).load_text("")
        saved.focus()
        saved.move_to_key("mine")
        await pilot.press("enter")
        await idle(pilot)

    client = CannedClient()
    await asked(press)(client)
    assert (tmp_path / "acceld" / "queries" / "mine.sql").read_text().startswith("SELECT * FROM history")
    assert client.sent[-1][2] is not None and client.sent[-1][2]["sql"].startswith("SELECT * FROM history")


async def test_a_table_opens_and_a_column_goes_into_the_statement() -> None:
    async def press(pilot: Pilot[None], screen: QueryScreen) -> None:
        statement, tables = screen.query_one(Statement), screen.query_one("#tables", LineList)
        statement.load_text("")
        tables.focus()
        await pilot.press("enter", "down", "down", "enter")
        await pilot.pause()
        assert statement.text == "workload" and statement.has_focus

    await asked(press)(CannedClient())


async def test_no_time_is_cut_and_the_columns_in_view_are_named() -> None:
    async with ConsoleApp(CannedClient(), clock=now).run_test(size=(80, 24)) as pilot:
        await pilot.press("9")
        await idle(pilot)
        await pilot.press("ctrl+r")
        await idle(pilot)
        rows = pilot.app.screen.query_one("#rows", LineList)
        texts = [rows._draw(key, 52).plain for key in rows.keys]
        assert not any("2026" in text for text in texts)
        assert rows.border_subtitle == "columns 1 to 3 of 5, → for more"
        await pilot.press("right", "right")
        await idle(pilot)
        assert any("2026-09-21T14:13:20.000Z" in rows._draw(key, 52).plain for key in rows.keys)
        assert rows.border_subtitle.startswith("columns 3 to")
