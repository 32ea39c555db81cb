"""The console over the real routes: a history on disk, served read-only, and nothing in between made up."""

from __future__ import annotations

from pathlib import Path

from acceld.http.client import HttpClient
from acceld.http.server import HistoryServer
from acceld.tui.app import ConsoleApp
from acceld.tui.screens.candidate import CandidateScreen
from tests.store.records import fill


async def test_every_screen_draws_what_the_daemon_stored(tmp_path: Path) -> None:
    database = tmp_path / "acceld.db"
    await fill(database)
    async with HistoryServer(database) as server:
        client = HttpClient(socket_path=server.socket_path, token=server.token)
        client.read_only = True
        app = ConsoleApp(client)
        async with app.run_test(size=(120, 40)) as pilot:
            for _ in range(6000):
                await pilot.pause(0.05)
                if app.session.run_view is not None and len(app.session.run_view.candidates) == 3:
                    break
            run = app.session.run_view
            assert run is not None and run.state == "finished"
            assert run.best is not None and run.best.latency_us == 80.0 and run.baseline_us == 100.0
            assert dict(run.counts) == {"passed": 2, "compile_error": 1}
            assert "read-only" in app.session.banner
            for key in ("2", "B", "3", "d", "c", "l", "4", "5", "6", "7", "8", "d"):
                await pilot.press(key)
                await pilot.pause(0.1)
            await pilot.press("3")
            screen = app.screen
            assert isinstance(screen, CandidateScreen)
            while screen.facts.get("id") != run.best.candidate:
                await pilot.pause(0.05)
            await pilot.press("i")
            assert app.is_running
