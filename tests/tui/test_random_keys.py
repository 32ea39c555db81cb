"""Random keys on the console of a live daemon, with more runs than the console keeps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from acceld.client import Client
from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.tui.app import ConsoleApp
from acceld.tui.console import KEPT_VIEWS
from acceld.tui.screens.beam import BeamScreen
from acceld.tui.screens.candidate import CandidateScreen
from acceld.tui.screens.in_view import CandidateInView
from acceld.tui.state import Rows
from acceld.tui.widgets.lines import LineList
from tests.faults.harness import client_of
from tests.standin_neuron.machine import small_silu
from tests.store.records import state_with_runs

RUNS = KEPT_VIEWS + 5
"""Finished runs; with the one that is searched there are ten."""
KEYS = (
    *"123456789",
    *("1", "2", "2", "3", "7", "up", "down", "up", "down", "enter", "enter", "home", "end", "pagedown"),
    *("escape", "tab", "shift+tab", "space", "slash", "left", "right", "minus", "full_stop", "question_mark"),
    *"aABbcdefghijklmoprstuvwXxyNP!",
    *("left_square_bracket", "right_square_bracket", "left_curly_bracket", "right_curly_bracket"),
)
"""Every key but those that leave the console, open the palette (it can leave too) or begin a search of another workload."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Client]:
    """Yield the client of a daemon with finished runs; commands and consoles find that daemon."""
    (folder / "run").mkdir(mode=0o700)
    acceld = [sys.executable, "-m", "acceld"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("ACCELD_HOME", str(folder / ".acceld"))
        patch.chdir(folder)
        patch.setattr(Input, "cursor_blink", False)
        state_with_runs(folder, RUNS)
        subprocess.run([*acceld, "start"], env=dict(os.environ), check=True, capture_output=True, timeout=300)
        try:
            yield client_of(Home(folder / ".acceld"))
        finally:
            subprocess.run([*acceld, "stop"], env=dict(os.environ), check=False, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Yield the client of a daemon with finished runs, which tests only read."""
    with serving(tmp_path_factory.mktemp("finished")) as client:
        yield client


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Client]:
    """Yield the client of a daemon with finished runs, which searches by rules on a small workload."""
    with serving(tmp_path) as client:
        begin_search(client, small_silu(tmp_path))
        yield client


def begin_search(client: Client, folder: Path) -> None:
    """Begin a small search by rules."""
    search = {"beam_width": 2, "plans": 2, "attempts": 1, "iterations": 3}
    client.send("POST", "/v1/runs", {"workload": str(folder), "search": search})


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    for _ in range(6000):
        if true():
            return
        await pilot.pause(0.05)
    raise AssertionError("it did not become true")


def one_run_is_shown(app: ConsoleApp, edited: list[tuple[str, str]]) -> None:
    """AssertionError if the screen mixes two runs, or something on it could not be drawn."""
    view, screen = app.session.run_view, app.screen
    if isinstance(screen, CandidateInView) and screen.facts:
        assert screen.facts["run"] == app.session.run
    if view is not None and view.rows is Rows.READ and app.session.candidate is not None:
        assert app.session.candidate in view.candidates
    if isinstance(screen, BeamScreen) and view is not None:
        keys = screen.query_one("#tree", LineList).keys
        assert {key[1] for key in keys if isinstance(key, tuple)} <= set(view.candidates) | {0}
    for name, text in edited:
        assert isinstance(screen, CandidateScreen)
        assert name == f"c{app.session.candidate}.py" and text == screen.facts["text"]
    edited.clear()
    lines = ("".join(segment.text for segment in strip) for strip in screen._compositor.render_strips())
    assert not [line for line in lines if "can not be drawn" in line]
    said = [f"{toast.title} {toast.message}" for toast in app._notifications]
    assert not [text for text in said if "can not be shown" in text or "could not be shown" in text]


async def pressed(live: Client, monkeypatch: pytest.MonkeyPatch, seed: int, more: Callable[[int], bool]) -> int:
    """Press random keys while ``more`` of their number is true. Return their number."""
    edited: list[tuple[str, str]] = []

    def edit(app: Any, text: str, name: str) -> None:
        edited.append((name, text))

    monkeypatch.setattr("acceld.tui.screens.candidate.edit", edit)
    draw, count = random.Random(seed), 0
    app = ConsoleApp(HttpClient.of(Home(Path(os.environ["ACCELD_HOME"]))))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.session.live.runs) == RUNS + 1)
        while more(count):
            key = draw.choice(KEYS)
            await pilot.press(key)
            count += 1
            assert app.is_running, f"{key} ended the console"
            one_run_is_shown(app, edited)
            if count % 500 == 0:
                await figures_agree(app, live, pilot)
        await until(pilot, lambda: not app.session.loading)
        one_run_is_shown(app, edited)
        assert await figures_agree(app, live, pilot) > RUNS
    return count


async def figures_agree(app: ConsoleApp, live: Client, pilot: Pilot[None]) -> int:
    """Wait until the console's list of runs has the figures that a query of the history gives; return their number."""
    sql = (
        "SELECT r.id, b.latency_us, c.latency_us, r.speedup, t.candidates FROM runs r JOIN run_totals t ON t.run = r.id "
        "LEFT JOIN candidates b ON b.id = r.baseline LEFT JOIN candidates c ON c.id = r.best ORDER BY r.id"
    )

    def agree() -> bool:
        stored = [tuple(row) for row in live.send("POST", "/v1/query", {"sql": sql})["rows"]]
        runs = sorted(app.session.live.runs.values(), key=lambda one: one.id)
        return [(one.id, one.baseline_us, one.best_us, one.speedup, one.candidates) for one in runs] == stored

    await until(pilot, agree)
    return len(app.session.live.runs)


async def test_random_keys_never_end_it_nor_mix_two_runs(live: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pressed(live, monkeypatch, 1, lambda count: count < 60) == 60


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_ten_minutes_of_random_keys_while_runs_are_searched(
    live: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = time.monotonic() + 600

    def more(count: int) -> bool:
        active = "SELECT count(*) FROM runs WHERE state IN ('queued', 'running')"
        if count % 20 == 0 and live.send("POST", "/v1/query", {"sql": active})["rows"] == [[0]]:
            begin_search(live, tmp_path / "small_silu")
        return time.monotonic() < end

    assert await pressed(live, monkeypatch, 2, more) > 0


async def test_a_run_seen_earlier_is_read_again(finished: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    edited: list[tuple[str, str]] = []
    monkeypatch.setattr("acceld.tui.screens.candidate.edit", lambda app, text, name: edited.append((name, text)))
    app = ConsoleApp(HttpClient.of(Home(Path(os.environ["ACCELD_HOME"]))), run=1)
    async with app.run_test(size=(120, 40)) as pilot:

        async def see(run: int) -> None:
            app._go_to_run(run)
            await until(
                pilot, lambda: (view := app.session.run_view) is not None and view.id == run and view.rows is Rows.READ
            )

        for run in [*range(1, RUNS + 1), 1]:
            await see(run)
        view = app.session.run_view
        assert view is not None and view.id == 1 and len(view.candidates) == 3 and view.best is not None
        await pilot.press("B", "3")
        screen = app.screen
        assert isinstance(screen, CandidateScreen)
        await until(pilot, lambda: bool(screen.facts))
        await pilot.press("e", "2", "h", "p")
        one_run_is_shown(app, [])
        found = (await app.session.client.get(f"/v1/candidates/{view.best.candidate}"))["text"]
        assert edited == [(f"c{view.best.candidate}.py", found)]


async def test_another_runs_candidate_is_never_in_view(finished: Client) -> None:
    app = ConsoleApp(HttpClient.of(Home(Path(os.environ["ACCELD_HOME"]))), run=1)
    async with app.run_test(size=(120, 40)) as pilot:
        app.switch_mode("candidate")
        await until(pilot, lambda: isinstance(app.screen, CandidateScreen) and bool(app.screen.facts))
        screen = app.screen
        assert isinstance(screen, CandidateScreen)
        assert screen.facts["run"] == 1
        answering, get = asyncio.Event(), app.session.client.get

        async def late(path: str, **parameters: Any) -> Any:
            await answering.wait()
            return await get(path, **parameters)

        app.session.client.get = late  # type: ignore[method-assign]
        screen.select_run(2)
        await pilot.pause()
        assert not screen.facts and not screen.query_one("#lines", LineList).keys
        await pilot.press("e")
        answering.set()
        await until(pilot, lambda: screen.facts.get("run") == 2)
