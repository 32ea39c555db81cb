"""The real application on a canned client: how it looks, and what its keys do."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style
from textual.pilot import Pilot
from textual.widgets import Footer, Input, Static, TextArea
from textual.widgets._footer import FooterKey

from acceld.errors import ConfigError, DaemonError, UsageError
from acceld.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateWritten,
    Event,
    EventData,
    IterationStarted,
    Notice,
    RunCreated,
    RunStateChanged,
    Tuning,
)
from acceld.gains import Verdict
from acceld.model import RunState, Status
from acceld.targets import Choice, choose
from acceld.tui.app import ConsoleApp
from acceld.tui.modals import Confirm, Help
from acceld.tui.new_run import NewRun, offers
from acceld.tui.palette import Palette
from acceld.tui.replay import Replay
from acceld.tui.screens.base import ConsoleScreen
from acceld.tui.screens.beam import changes
from acceld.tui.state import Roof, Rows
from acceld.tui.steering import origins
from acceld.tui.widgets.frame import Line
from acceld.tui.widgets.lines import LineList
from acceld.tui.widgets.plot import PlotPane
from acceld.tui.words import event_line, sentence
from acceld.watch.apply import apply, seen
from acceld.workloads import workload
from tests.tui.canned import CannedClient, history, now

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
SMALL = ("runs", "beam", "candidate", "profile", "query")
SCREENS = {
    "runs": "1",
    "beam": "2 B",
    "candidate": "2 B enter",
    "diff": "2 B enter d",
    "queue": "4",
    "memory": "5",
    "costs": "6",
    "profile": "2 B 7",
    "logs": "8",
    "query": "9 ctrl+r",
}


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop all movement on the screen, and hide the caller's terminal settings."""
    for name in ("NO_COLOR", "TEXTUAL_THEME", "SSH_CONNECTION", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Input, "cursor_blink", False)
    # The made-up run's work: 33.1 % of peak at its baseline's 812 us.
    roof = Roof(flops=5.38e9, hbm_bytes=1.8e7, flops_per_s=2e13, bytes_per_s=4e11)
    monkeypatch.setattr("acceld.tui.session._roof", lambda *of_a_run: roof)


def console(**more: Any) -> ConsoleApp:
    return ConsoleApp(more.pop("client", None) or CannedClient(), clock=now, **more)


def pressing(keys: str) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Press keys, each after the requests of the last one were answered."""

    async def press(pilot: Pilot[None]) -> None:
        for key in ("", *keys.split()):
            if key:
                await pilot.press(key)
            waiting = [worker for worker in pilot.app.workers if worker.name != "events"]
            if waiting:
                await pilot.app.workers.wait_for_complete(waiting)
            await pilot.pause(0.05)

    return press


@pytest.mark.parametrize(
    ("screen", "size"), [*((name, "120x40") for name in SCREENS), *((name, "80x24") for name in SMALL)]
)
def test_a_screen_looks_as_it_did(snap_compare: Any, screen: str, size: str) -> None:
    assert snap_compare(console(), terminal_size=SIZES[size], run_before=pressing(SCREENS[screen]))


@pytest.mark.parametrize("keys", ["2 B", "2 B f f", "2 B enter d"])
def test_a_wide_terminal_has_no_empty_half(snap_compare: Any, keys: str) -> None:
    assert snap_compare(console(), terminal_size=(200, 50), run_before=pressing(keys))


async def test_a_text_is_searched_with_n_and_n() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("2 B enter s slash")(pilot)
        for key in "for":
            await pilot.press(key)
        await pressing("enter")(pilot)
        lines = app.screen.query_one("#lines", LineList)
        first = lines.cursor
        await pressing("n")(pilot)
        second = lines.cursor
        await pressing("N")(pilot)
        texts = [lines._draw(lines.keys[place], 200).plain for place in (first, second)]
        assert all("for" in text for text in texts)
        assert lines.cursor == first


async def test_the_palette_jumps_to_runs_and_candidates() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("2")(pilot)
        commands = {one.title.partition(" ")[0]: one for one in app.get_system_commands(app.screen)}
        view = app.session.run_view
        assert view is not None
        other = next(number for number in app.session.state.runs if number != view.id)
        commands[f"c{view.best.candidate if view.best else 0}"].callback()
        await pressing("")(pilot)
        assert view.best is not None
        assert (app.current_mode, app.session.candidate) == ("candidate", view.best.candidate)
        commands[f"r{other}"].callback()
        await pressing("")(pilot)
        assert (app.current_mode, app.session.run) == ("beam", other)


@pytest.mark.parametrize("theme", ["acceld-light"])
def test_the_beam_reads_in_other_themes(snap_compare: Any, theme: str) -> None:
    assert snap_compare(console(theme=theme), terminal_size=(160, 50), run_before=pressing("2 B"))


@pytest.mark.parametrize("size", SIZES)
def test_the_beam_reads_without_color(snap_compare: Any, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    """At 120 columns it has a plot, whose empty cells have no style."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(console(), terminal_size=SIZES[size], run_before=pressing("2 B"))


@pytest.mark.parametrize("keys", ["2 B", "7"])
def test_the_screens_read_in_the_terminals_own_colors(snap_compare: Any, keys: str) -> None:
    assert snap_compare(console(theme="ansi-dark"), terminal_size=(80, 24), run_before=pressing(keys))


async def shown(keys: str, size: tuple[int, int] = (80, 24), client: CannedClient | None = None) -> list[str]:
    """Return the lines on the screen after some keys."""
    (lines,) = await pages([keys], size, client)
    return lines


async def pages(
    keys: Sequence[str], size: tuple[int, int] = (80, 24), client: CannedClient | None = None
) -> list[list[str]]:
    """Return the lines on the screen of one console after each group of keys."""
    found = []
    async with console(client=client).run_test(size=size) as pilot:
        for group in keys:
            await pressing(group)(pilot)
            found.append(lines_of(pilot))
    return found


def lines_of(pilot: Pilot[None]) -> list[str]:
    """Return the lines on the screen now."""
    return ["".join(part.text for part in row) for row in pilot.app.screen._compositor.render_strips()]


async def test_at_eighty_columns_a_profile_has_percent_of_peak_and_what_binds() -> None:
    text = "\n".join(await shown("2 B 7"))
    assert "73.7 % of peak" in text and "bound by  DMA 86 %" in text and "dve" in text


@pytest.mark.parametrize("size", [*SIZES.values(), (100, 30)])
async def test_bytes_as_compiled_and_as_written_are_told_apart_and_not_cut(size: tuple[int, int]) -> None:
    async with console().run_test(size=size) as pilot:
        await pressing("2 B 7 G")(pilot)
        lines = [
            line.text.strip() for line in map(pilot.app.screen.query_one("#counters", LineList).render_line, range(40))
        ]
    (read,) = [line.split() for line in lines if line.startswith("hbm_read_bytes")]
    (written,) = [line.split() for line in lines if line.startswith("written_read_bytes")]
    assert read[1:] == ["33,554,432", "as", "compiled"] and written[1:] == ["67,108,864", "as", "written"]
    names = [line.split()[0] for line in lines if line]
    exact, modelled = lines.index("exact: counted from the program"), lines.index("modelled: as compiled")
    assert {line.split()[0] for line in lines[exact + 1 : modelled]} == {"written_read_bytes", "dma_descriptors"}
    assert names.index("hbm_read_bytes") > names.index("modelled:"), "what depends on the compiler is not called exact"


async def test_at_eighty_columns_no_price_of_a_call_is_cut() -> None:
    assert any("$0.0312" in line for line in await shown("2 B enter tab tab tab tab"))


async def test_no_key_of_a_small_screen_is_cut() -> None:
    app, ends = console(), []
    async with app.run_test(size=(80, 24)) as pilot:
        for keys in ("1", "2 B", "3", "7", "8", "9 escape"):
            await pressing(keys)(pilot)
            await pilot.pause()
            *others, palette = app.screen.query(FooterKey)
            seen = [key for key in others if key.visible]
            assert all(key.region.right <= palette.region.x for key in seen), keys
            ends.append(seen[-1].description)
        assert ends == ["Detach", "Detach", "Help", "Detach", "Help", "Help"]
        await pressing("8 question_mark")(pilot)
        *others, palette = app.screen_stack[-2].query(FooterKey)
        assert [key.description for key in others if key.visible][-1] == "Help", "behind a window too"
        await pressing("escape 9 escape")(pilot)
        await pilot.resize_terminal(120, 24)
        await until(pilot, lambda: all(key.visible for key in app.screen.query(FooterKey)))


async def test_a_wide_window_for_a_new_run_names_workloads_and_chips_whole() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("plus")(pilot)
        await until(pilot, lambda: bool(app.screen.query("#workloads")) and bool(app.screen.query_one(LineList).keys))
        listed = app.screen.query_one(LineList)
        assert isinstance(app.screen, NewRun)
        text = "\n".join(app.screen._row(key, listed.content_size.width - 2).plain for key in listed.keys)
    assert "mla_paged_prefill_causal_h16_ckv512_kpe64" in text and "h100 h200 a100 b200 l40s l4" in text


async def test_the_cursors_line_is_one_block_in_the_terminals_own_colors() -> None:
    app = console(theme="ansi-light")
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("2 B")(pilot)
        listed = app.screen.query_one("#tree", LineList)
        (strip,) = (line for y in range(10) if "›" in (line := listed.render_line(y)).text)
        assert "✓ passed" in strip.text
        styles = {(one.style.reverse, one.style.dim, str(one.style.color)) for one in strip if one.style}
    assert len(styles) == 1 and (True, False) in {style[:2] for style in styles}


async def test_a_line_that_goes_on_says_so_and_no_number_is_cut_in_its_middle() -> None:
    logs, source = await pages(["8", "2 B enter"])
    assert "row loop (…" in next(line for line in logs if "insight i5" in line)
    assert "…" in next(line for line in source if "out = nl.ndarray" in line)


@pytest.mark.parametrize(("percent", "explained"), [(107.0, True), (99.0, False)])
async def test_more_than_the_peak_has_its_reason_beside_it(percent: float, explained: bool) -> None:
    client = CannedClient()
    for view in client.console.views.values():
        for node in view.candidates.values():
            node.percent_of_peak = percent
    for lines in await pages(["2 B", "enter", "7"], (120, 40), client):
        told = " ".join(" ".join(lines).split())
        assert f"{percent} % of peak" in told
        assert ("above 100 %: the kernel makes products" in told) is explained


async def test_texts_name_the_keys_that_the_settings_gave() -> None:
    app = console(keymap={"run.apply": "f9", "filter": "f8"})
    async with app.run_test(size=(160, 40)) as pilot:
        await pressing("2")(pilot)
        view = app.session.run_view
        assert view is not None and view.best is not None
        view.stored_state, view.bests[-1] = RunState.FINISHED, replace(view.bests[-1], verdict=Verdict.CERTAIN)
        app.refresh_screen()
        assert "f9 applies it" in str(app.screen.query_one("#context", Line).render())
        await pilot.resize_terminal(80, 40)
        await pilot.pause()
        assert "2.23x; f9 applies it" in str(app.screen.query_one("#context", Line).render())
        await pilot.press("n")
        assert {"Type f8 and a text first."} == {toast.message for toast in app._notifications}
        await pilot.press("question_mark")
        help_text = str(app.screen.query_one(Static).render())
        assert re.search(r"f9 +Apply best", help_text) and re.search(r"f8 +Find", help_text)


async def test_a_small_memory_screen_shows_the_whole_strategy() -> None:
    assert any("fits." in line for line in await shown("5"))


async def test_the_memory_screen_says_where_an_insight_held() -> None:
    text = " ".join(line.strip(" │") for line in await shown("5"))
    assert "held on trn1 silu (nki_legacy, simulated, 2 times), trn2 rmsnorm_bf16" in text
    assert "i38: shown 11 times, 4 wins of 11 tried, confirmed 2 times; no run without it" in text


async def test_who_proposes_has_one_word() -> None:
    listed, asked = await pages(["1", "plus"], (120, 40))
    assert any("proposals by llm" in line for line in listed)
    assert any("· proposals by llm" in line for line in asked)


async def test_an_event_labels_a_simulated_latency() -> None:
    assert any("c2062 ✓ passed ≈ 497 µs sim" in line for line in await shown("8"))


async def test_keys_steer_the_run_and_the_candidate_in_view() -> None:
    client = CannedClient()
    async with console(client=client).run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.press("2", "B", "i", "p", "h", *"fuse it", "enter")
        await pilot.pause()
        await pilot.press("x", "n", "x", "y")
        await pilot.pause()
    best = client.console.views[3].best
    assert best is not None
    assert client.sent == [
        ("POST", "/v1/runs/3/actions", {"action": "pin", "candidate": best.candidate}),
        ("POST", "/v1/runs/3/actions", {"action": "pause"}),
        ("POST", "/v1/runs/3/actions", {"action": "hint", "text": "fuse it"}),
        ("POST", "/v1/runs/3/actions", {"action": "cancel"}),
    ]


@pytest.mark.parametrize("screen", ["2", "9"])
async def test_an_event_shows_without_a_key_being_pressed(screen: str) -> None:
    client = CannedClient()
    app = console(client=client, refresh_hz=50.0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(screen)
        seq = client.console.seq
        best = BestChanged(2001, 100.0, 8.12, 90.0, "simulated", improved=True, verdict=Verdict.CERTAIN)
        await client.future.put([Event(best, 3, seq + 1, now())])
        await pilot.pause(0.2)
        shown = str(app.screen.query_one("#context", Line).render())
        assert "100 µs" in shown and "8.12x" in shown
        (toast,) = app._notifications
        assert (toast.title, toast.message) == ("new best kernel", "r3: c2001 ≈ 100 µs sim, 8.12x")


async def test_events_have_one_order_on_every_screen() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("1")(pilot)
        short = app.screen.query_one("#events", LineList).keys
        await pressing("8")(pilot)
        every = app.screen.query_one("#log", LineList).keys
        assert len(short) > 1 and [key for key in every if key in set(short)] == list(short)
        assert short[-1] == every[-1], "the newest stands last"


async def test_beside_the_tree_stands_what_the_candidate_changed() -> None:
    async with console().run_test(size=(160, 50)) as pilot:
        await pilot.press("2", "B")
        change = pilot.app.screen.query_one("#change", LineList)
        await until(pilot, lambda: str(change.border_title).startswith("Change from c"))
        assert change.keys
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert not change.display


async def test_a_filter_narrows_the_list_and_escape_clears_it() -> None:
    async with console().run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.press("slash", *"cancelled", "enter")
        runs = pilot.app.screen.query_one("#runs", LineList)
        assert list(runs.keys) == [2]
        await pilot.press("slash", "escape")
        await pilot.pause()
        assert list(runs.keys) == [3, 2, 1]


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait for something, for minutes on a busy machine."""
    for _ in range(6000):
        if holds():
            return
        await pilot.pause(0.05)
    raise AssertionError("it did not come about")


async def test_a_lost_daemon_gives_a_banner_and_the_console_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flaky(CannedClient):
        down = True

        async def events(self, after: int) -> AsyncIterator[list[Event]]:
            if self.down:
                raise DaemonError("no answer")
            async for batch in super().events(after):
                yield batch

    monkeypatch.setattr("acceld.tui.app.RETRY_S", (0.1,))
    client = Flaky()
    app = console(client=client)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "disconnected (no answer)" in app.session.banner)
        await until(pilot, lambda: bool(app.screen.query_one("#banner").display))
        client.down = False
        await until(pilot, lambda: app.session.banner == "")


async def test_a_replay_shows_the_run_as_it_was_and_changes_nothing() -> None:
    client = CannedClient()
    events = [event for event in history() if event.run == 3]
    app = console(client=client, run=3, replay=Replay(3, events))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("2")
        run = app.session.run_view
        assert run is not None and len(run.candidates) == 62
        assert app.session.replay is not None
        app.session.replay.seek(0.1)
        app.refresh_screen()
        await pilot.press("p")
        early = app.session.run_view
        assert early is not None and 0 < len(early.candidates) < 20
        app.session.replay.step(-3)
        app.session.replay.seek(1.0)
        assert app.session.run_view == client.console.views[3]
    assert client.sent == []


async def test_a_click_selects_and_a_second_opens() -> None:
    async with console().run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        await pilot.click("#runs", offset=(10, 3))
        assert pilot.app.screen.query_one("#runs", LineList).key == 2
        await pilot.click("#runs", offset=(10, 3))
        await pilot.pause(0.2)
        assert pilot.app.current_mode == "beam"
        await pilot.press("minus")
        await pilot.pause(0.1)
        assert pilot.app.current_mode == "runs"


def test_no_binding_takes_a_key_of_tmux_or_screen() -> None:
    taken = {"ctrl+a", "ctrl+b", "ctrl+space"}
    app = ConsoleApp
    for source in (app, LineList, *(mode for mode in app.MODES.values())):
        for binding in getattr(source, "BINDINGS", ()):
            assert not taken & set(binding.key.split(",")), binding
            assert binding.id, f"{binding} can not be remapped"


async def test_another_run_opens_after_a_resize() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("2 1")(pilot)
        await pilot.resize_terminal(100, 30)
        await pressing("down enter")(pilot)
        assert (app.current_mode, app.session.run, app.is_running) == ("beam", 2, True)


async def test_a_line_that_can_not_be_drawn_says_so_and_the_others_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    def sentence(event: Event) -> str:
        raise KeyError("latency_us")

    monkeypatch.setattr("acceld.tui.words.sentence", sentence)
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("1")(pilot)
        events = app.screen.query_one("#events", LineList)
        assert "can not be drawn: KeyError" in events.render_line(0).text
        assert app.is_running


async def test_the_run_asked_for_is_under_the_cursor_and_its_beam_is_open() -> None:
    app = console(run=2)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("")(pilot)
        assert (app.current_mode, app.session.run) == ("beam", 2)
        await pressing("1")(pilot)
        assert app.screen.query_one("#runs", LineList).key == 2


async def test_the_beam_of_an_ended_run_opens_on_the_best_and_stays_where_a_person_goes() -> None:
    app = console(run=1)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: (view := app.session.run_view) is not None and view.rows is Rows.READ)
        await pressing("")(pilot)
        run, tree = app.session.run_view, app.screen.query_one("#tree", LineList)
        assert run is not None and run.ended and run.best is not None and run.baseline is not None
        assert tree.key == ("candidate", run.best.candidate) != ("candidate", run.baseline.id)
        await pressing("home 1 2")(pilot)
        assert app.session.candidate == run.baseline.id, "the cursor is not taken away"


async def test_a_run_that_there_is_not_leaves_the_newest_in_view() -> None:
    class Client(CannedClient):
        async def get(self, path: str, **parameters: Any) -> Any:
            if path == "/v1/runs/99":
                raise UsageError("there is no run r99")
            return await super().get(path, **parameters)

    app = console(client=Client(), run=99)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.session.run == 3 and not app.session.banner)


async def test_keys_act_on_the_run_that_a_filter_left_under_the_cursor() -> None:
    client = CannedClient()
    app = console(client=client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("")(pilot)
        await pilot.press("slash", *"cancelled", "enter")
        await pressing("p")(pilot)
        assert app.session.run == 2 and not client.sent
        assert [toast.message for toast in app._notifications] == ["r2 has ended"]


class Starting(CannedClient):
    """Refuses the first start."""

    refused = False

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        await super().send(method, path, body)
        if path == "/v1/runs" and not self.refused:
            self.refused = True
            raise UsageError("there is no kernel", hint="write one")
        return {"id": 4}


async def test_a_new_run_begins_with_the_last_choices_and_a_refusal_keeps_the_window(tmp_path: Path) -> None:
    client = Starting()
    app = console(client=client)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("plus")(pilot)
        await until(pilot, lambda: bool(app.screen.query("#workloads")) and bool(app.screen.query_one(LineList).keys))
        window, listed = app.screen, app.screen.query_one(LineList)

        def shown() -> str:
            return " ".join(str(part.render()) for part in window.query(Static))

        assert isinstance(window, NewRun)
        last = "rmsnorm_matmul · trn1 · preset standard · proposals by llm"
        assert listed.key == "rmsnorm_matmul" and last in shown(), "as in the newest run"
        await pilot.press("slash", *"silu", "enter")
        assert listed.keys and all("silu" in str(key) for key in listed.keys)
        await pressing("escape")(pilot)
        (tmp_path / "mine.py").write_text("import neuronxcc.nki as nki\n")
        await pressing("f")(pilot)
        await pilot.press(*str(tmp_path / "mine.py"), "enter")
        await pressing("s")(pilot)
        assert "preset paper" in shown() and "from mine.py" in shown()
        await pressing("enter")(pilot)
        asks = app.screen
        assert isinstance(asks, Confirm) and not client.sent
        await pressing("n enter y")(pilot)
        assert app.screen is window and "not started: there is no kernel write one" in " ".join(shown().split())
        await pressing("s s enter")(pilot)
        await until(pilot, lambda: [toast.message for toast in app._notifications] == ["r4 started"])
        assert app.screen is not window
        (_, _, body), _ = client.sent
        assert body is not None and body["preset"] == "paper" and body["root"]["filename"] == "mine.py"


def test_a_new_run_offers_only_chips_on_which_the_workload_runs() -> None:
    found = offers([])
    for name, offer in found.items():
        loaded = workload(name)
        assert offer.chips, name
        for chip in offer.chips:
            chosen = choose(
                Choice("simulator", "nki_legacy", "trn1"),
                chip=chip,
                offered=tuple(loaded.baselines),
                runs_on=loaded.chips,
            )
            assert chosen.chip == chip
    assert sum(offer.chips[0] != "trn1" for offer in found.values()) > 0


@pytest.mark.parametrize(
    ("run", "action", "why"),
    [
        (2, "cancel", "r2 has ended"),
        (3, "hint", ""),
        (1, "apply_best", ""),
        (3, "pin", "choose a candidate first"),
    ],
)
async def test_an_action_that_makes_no_sense_now_says_why(run: int, action: str, why: str) -> None:
    app = console(run=run)
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("1")(pilot)
        app.session.candidate = None
        assert app.steering.refusal(action) == why
        helps = {command.title: command.help for command in app.get_system_commands(app.screen)}
        assert (f"not now: {why}" in helps.values()) == bool(why)


async def test_a_baseline_is_not_offered_as_the_best() -> None:
    app = console(run=1)
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("1")(pilot)
        run = app.session.run_view
        assert run is not None and run.best is not None and run.baseline is not None
        run.bests.append(replace(run.best, candidate=run.baseline.id))
        why = app.steering.refusal("apply_best")
        assert why == f"c{run.baseline.id} is the baseline of r1 itself: nothing faster has passed"


async def test_an_unexpected_answer_is_shown_and_the_console_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(CannedClient):
        asked = 0

        async def get(self, path: str, **parameters: Any) -> Any:
            if path == "/v1/runs":
                self.asked += 1
                if self.asked == 1:
                    return {"rows": "not what was asked for"}
            return await super().get(path, **parameters)

    monkeypatch.setattr("acceld.tui.app.RETRY_S", (0.05,))
    client = Odd()
    app = ConsoleApp(client, clock=lambda: 0.0)
    async with app.run_test(size=(100, 40)) as pilot:
        async with asyncio.timeout(300):
            while client.asked < 2 or app.session.banner:
                await pilot.pause(0.05)
        assert app.session.live.runs
        assert any("KeyError" in notice.message for notice in app._notifications)


async def test_a_console_that_has_ended_draws_nothing() -> None:
    app = ConsoleApp(CannedClient(), clock=lambda: 0.0)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, ConsoleScreen)
    assert not screen.query("#context")
    with app._context():
        screen.refresh_all()


async def test_the_queue_is_shown_by_host_where_there_is_a_fleet() -> None:
    client = CannedClient()
    host = {"slots": 32, "done": 7, "why_idle": "nothing waits"}
    hosts = [
        {**host, "host": "trn-a", "standing": "active", "slots_in_use": 30, "why_idle": ""},
        {**host, "host": "trn-b", "standing": "aside", "slots_in_use": 0, "why_idle": "aside: disagrees with others"},
    ]
    queue = {"slots": 32, "slots_in_use": 30, "waiting": 0, "sandbox_level": "L3", "hosts": hosts}
    client.extra["/v1/queue"] = {"queue": queue, "running": [], "waiting": [], "devices": []}
    app = console(client=client)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("4")(pilot)
        devices = app.screen.query_one("#devices", LineList)
        shown = [devices._draw(key, 80).plain for key in devices.keys]
        assert devices.border_title == "Hosts 2"
    assert "30/32" in shown[0] and "busy" not in shown[0]
    assert "disagrees with others" in shown[1]


async def test_a_key_that_makes_no_sense_now_is_greyed_and_says_why_when_pressed() -> None:
    client = CannedClient()
    app = console(client=client, run=3)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("1")(pilot)
        assert all(app.screen.active_bindings[key].enabled for key in ("plus", "p", "x"))
        await pressing("down")(pilot)
        assert app.session.run == 2, "one that was cancelled"
        assert {key: app.screen.active_bindings[key].enabled for key in ("plus", "p", "x")} == {
            "plus": True,
            "p": False,
            "x": False,
        }
        greyed = {key.key for key in app.screen.query(FooterKey) if key.has_class("-disabled")}
        assert greyed == {"p", "x"}
        await pressing("p")(pilot)
        assert [message.message for message in app._notifications] == ["r2 has ended"] and not client.sent


@pytest.mark.parametrize(
    ("keys", "route", "list_id", "text"),
    [
        ("5", "/v1/insights", "insights", "No insight yet. Models write insights, rewrite rules do not."),
        ("9", "/v1/tables", "tables", "There are no tables."),
        ("8 d", "/v1/logs", "log", "The daemon has written nothing."),
    ],
)
async def test_reading_failed_and_empty_are_three_texts(keys: str, route: str, list_id: str, text: str) -> None:
    class Slow(CannedClient):
        answered = asyncio.Event()
        fails = True

        async def get(self, path: str, **parameters: Any) -> Any:
            if path != route:
                return await super().get(path, **parameters)
            await self.answered.wait()
            if self.fails:
                raise UsageError("the disk is on fire")
            return {"insights": [], "tables": [], "lines": []}

    client = Slow()
    app = console(client=client)
    async with app.run_test(size=(120, 40)) as pilot:
        for key in keys.split():
            await pilot.press(key)
        shown = app.screen.query_one(f"#{list_id}", LineList)
        assert shown.empty == "reading"
        client.answered.set()
        await pressing("")(pilot)
        assert shown.empty == "could not be read: the disk is on fire"
        client.fails = False
        screen = app.screen
        assert isinstance(screen, ConsoleScreen)
        screen.fetch(route, lambda answer: screen.refresh_all())
        await pressing("")(pilot)
        assert shown.empty == text


async def test_before_there_is_a_connection_nothing_is_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(self: CannedClient, path: str, **parameters: Any) -> Any:
        raise DaemonError("no daemon runs for /tmp/x")

    monkeypatch.setattr(CannedClient, "get", refused)
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        assert "no daemon runs for /tmp/x" in app.screen.query_one("#runs", LineList).empty


async def test_a_plot_is_drawn_when_the_terminal_grows_though_nothing_happens() -> None:
    async with console().run_test(size=(80, 24)) as pilot:
        await pressing("2 B")(pilot)
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: bool(pilot.app.screen.query(PlotPane)))
        await until(pilot, lambda: str(pilot.app.screen.query_one(PlotPane).border_title) == "Best over iterations")


async def test_a_run_that_is_still_being_read_shows_no_state() -> None:
    async with console().run_test(size=(80, 24)) as pilot:
        await pressing("2")(pilot)
        screen = pilot.app.screen
        assert isinstance(screen, ConsoleScreen)
        view = screen.session.run_view
        assert view is not None
        view.workload = ""
        assert screen._context_line(80).plain.strip() == f"r{view.id}  reading"


async def test_one_message_is_shown_at_a_time_and_an_error_is_not_pushed_away() -> None:
    app = console(client=CannedClient())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("2")
        for severity, text in (("information", "a"), ("information", "[b]"), ("error", "c"), ("information", "d")):
            app.notify(text, title="r3", severity=severity, timeout=60)  # type: ignore[arg-type]
            await pilot.pause()
        await pilot.pause()
        assert [shown.message for shown in app._notifications] == ["c", "d"]
        app.notify("e", severity="warning", timeout=60)
        await pilot.pause()
        await pilot.pause()
        assert [shown.message for shown in app._notifications] == ["e"]
        (footer,) = app.screen.query(Footer)
        (toast,) = [toast.region for toast in app.screen.query("Toast")]
        assert toast.height <= 2 and not toast.overlaps(footer.region)


async def test_time_passes_on_a_screen_on_which_nothing_happens() -> None:
    times = [now()]
    app = ConsoleApp(CannedClient(), clock=lambda: times[0])
    async with app.run_test(size=(160, 40)) as pilot:
        await pressing("1")(pilot)
        ages = [app.screen.query_one("#runs", LineList).render_line(1).text.split()[-1]]
        times[0] += 3600
        assert isinstance(app.screen, ConsoleScreen)
        app.screen.tick()
        ages.append(app.screen.query_one("#runs", LineList).render_line(1).text.split()[-1])
        assert ages[0].endswith("m") and ages[1] == "1h"


async def test_while_the_daemon_does_not_answer_no_work_is_shown_and_a_state_is_the_last_known_one() -> None:
    client = CannedClient()
    client.extra["/v1/queue"] = {
        "queue": {"slots": 2},
        "running": [{"candidate": 2001, "run": 3, "device": "simulator 0", "started_at": now()}],
        "degraded": "database or disk is full",
    }
    app = console(client=client, run=3)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("4")(pilot)
        screen = app.screen
        assert isinstance(screen, ConsoleScreen)
        assert screen._banner_line(120).plain == " DEGRADED: database or disk is full"
        assert "▶ running" in screen._context_line(120).plain
        devices = screen.query_one("#devices", LineList)
        assert list(devices.keys) == ["simulator 0"]
        app.session.lose()
        screen.refresh_all()
        assert "? running" in screen._context_line(120).plain and not devices.keys
        assert "does not answer" in devices.empty


async def test_the_bottleneck_is_never_cut() -> None:
    client = CannedClient()
    running = [{"candidate": 2001 + n, "run": 3, "device": f"simulator {n}", "started_at": now()} for n in range(2)]
    waiting = [{"candidate": 2100 + n, "run": 3, "created_at": now()} for n in range(1234)]
    client.extra["/v1/queue"] = {"queue": {"slots": 2}, "running": running, "waiting": waiting}
    app = console(client=client)
    async with app.run_test(size=(40, 24)) as pilot:
        await pressing("4")(pilot)
        panel = app.screen.query_one("#lanes")
        said = " ".join(str(panel.render()).split())
        assert "bottleneck devices: 2 of 2 busy, 1,234 candidates waiting" in said
        assert max(map(len, str(panel.render()).splitlines()[:2])) <= panel.content_size.width


async def test_enter_on_an_event_opens_what_it_is_about() -> None:
    app = console(run=2)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("8")(pilot)
        log = app.screen.query_one("#log", LineList)
        event = next(one for one in reversed(history()) if isinstance(one.data, CandidateEvaluated))
        assert isinstance(event.data, CandidateEvaluated)
        log.move_to_key(event.seq)
        await pressing("enter")(pilot)
        assert (app.current_mode, app.session.run, app.session.candidate) == ("candidate", 3, event.data.candidate)
        await pressing("1 tab")(pilot)
        events = app.screen.query_one("#events", LineList)
        seqs = [int(str(key)) for key in events.keys]
        assert events.has_focus and seqs == sorted(seqs), "the newest last, as in the log"
        await pressing("enter")(pilot)
        assert app.current_mode in ("beam", "candidate") and app.session.run == 3


async def test_a_click_on_a_header_sorts_by_it() -> None:
    async with console().run_test(size=(120, 40)) as pilot:
        await pressing("1")(pilot)
        runs = pilot.app.screen.query_one("#runs", LineList)
        head = runs.render_line(0).text
        await pilot.click("#runs", offset=(1 + head.index("state") + 2, 1))
        await pilot.pause()
        assert runs.border_subtitle == "by state" and list(runs.keys) == [2, 1, 3]


async def test_two_candidates_are_marked_and_compared() -> None:
    app = console()
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("2 B m")(pilot)
        marked = app.session.marked
        assert marked is not None and marked == app.session.candidate
        await pressing("home m")(pilot)
        assert app.current_mode == "candidate" and app.session.candidate != marked
        views = str(app.screen.query_one("#views", Line).render())
        assert f"against c{marked}" in views
        assert any("+" in line.plain for line in app.screen._drawn)  # type: ignore[attr-defined]


async def test_apply_offers_the_file_that_the_run_began_with_and_can_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.py"

    class Writing(CannedClient):
        async def get(self, path: str, **parameters: Any) -> Any:
            answer = await super().get(path, **parameters)
            return {**answer, "filename": "mine.py"} if path.startswith("/v1/candidates/") else answer

        async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
            await super().send(method, path, body)
            assert body is not None
            apply(Path(body["path"]), "better", body["expected_sha256"])
            return {"result": "wrote it"}

    client = Writing()
    base = client.console.views[1].baseline
    assert base is not None
    mine.write_text((await client.get(f"/v1/candidates/{base.id}"))["text"])
    before = mine.read_text()
    monkeypatch.chdir(tmp_path)
    app = console(client=client, run=1)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("6 U")(pilot)
        assert [toast.message for toast in app._notifications] == ["this console has written no file for the run"]
        await pressing("A")(pilot)
        assert app.screen.query_one(Input).value == str(mine)
        await pressing("enter")(pilot)
        assert mine.read_text() == "better" and len(os.listdir(tmp_path)) == 2
        await pressing("U")(pilot)
        assert mine.read_text() == before and os.listdir(tmp_path) == ["mine.py"]


async def test_apply_offers_no_file_of_the_state_folder_and_says_how_a_new_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, text = tmp_path / "state", "def kernel(x):\n    return x\n"
    lowered, mine = state / "workloads" / "formula-1" / "kernel.py", tmp_path / "mine" / "kernel.py"
    for path in (lowered, mine):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    baseline = {"filename": "kernel.py", "text": text}
    assert origins(baseline, str(lowered.parent), str(state)) == []
    assert origins(baseline, str(mine.parent), str(state)) == [str(mine)]
    monkeypatch.chdir(tmp_path)
    app = console(run=1)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("A")(pilot)
        app.screen.query_one(Input).value = "none.py"
        await pressing("enter")(pilot)
        assert [toast.message for toast in app._notifications] == [
            f"there is no file {tmp_path}/none.py; acceld apply r1 -o FILE writes a new one"
        ]


@pytest.mark.parametrize("width", [80, 120])
async def test_every_screen_has_its_tab_also_after_runs_without_models(width: int) -> None:
    client = CannedClient([event for event in history() if event.run == 1])
    (first, *_) = await shown("1", (width, 24), client)
    assert [int(number) for number in re.findall(r"\d", first)] == [*range(1, 10)] and "9 Query" in first


async def test_a_tuner_is_seen_at_work_on_the_beam_and_in_the_queue() -> None:
    client = CannedClient([event for event in history() if event.run != 3])
    seq, at = client.console.seq, now()
    client.extra["/v1/queue"] = {"queue": {"slots": 2, "slots_in_use": 1}, "running": [], "waiting": [], "devices": []}
    app = console(client=client)
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("1")(pilot)
        happened: list[EventData] = [
            RunCreated("silu", "trn2", "nki", "simulator", "rules", search={"iterations": 4}),
            RunStateChanged(RunState.RUNNING),
            CandidateWritten(9001),
            CandidateEvaluated(9001, 9001, Status.PASSED, 100.0, gate="strict"),
            IterationStarted(1, (9001,)),
            Tuning(9001, 34, 200, 40.0),
        ]
        app.session.select(9)
        app.session.live.open(9).rows = Rows.READ
        app.session.fold([Event(data, 9, seq + place, at) for place, data in enumerate(happened, 1)])
        await pressing("2")(pilot)
        beam = "\n".join(lines_of(pilot))
        await pressing("4")(pilot)
        queue = "\n".join(lines_of(pilot))
    assert "tuning: 34 of 200 kernels timed, 40 s" in beam and "no candidate yet" in beam and "0 waiting" not in beam
    assert "bottleneck rules: they time kernels before they write plans" in queue and "1 of 2 busy" in queue
    assert "tuning: 34 of 200 kernels timed, 40 s" in queue


async def test_a_candidate_counts_the_children_that_came_after_its_facts_were_read() -> None:
    app = console(client=CannedClient(), run=3)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("2 B 3")(pilot)
        run, candidate = app.session.run_view, app.session.candidate
        assert run is not None and candidate is not None
        before = len(run.children.get(candidate, ()))
        seq = app.session.live.seq
        app.session.fold([Event(CandidateWritten(9000 + n, candidate, iteration=9), 3, seq + n) for n in (1, 2)])
        await until(pilot, lambda: f"{before + 2} children" in "\n".join(lines_of(pilot)))


async def test_a_question_mark_explains_the_keys_of_the_query_too_and_is_typed_only_in_a_text() -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("9")(pilot)
        statement = app.screen.query_one("#sql", TextArea)
        assert statement.has_focus and "esc Back" in lines_of(pilot)[-1]
        before = statement.text
        await pressing("question_mark")(pilot)
        assert isinstance(app.screen, Help) and statement.text == before
        await pressing("escape")(pilot)
        statement.load_text("SELECT '")
        statement.move_cursor((0, 8))
        await pressing("question_mark")(pilot)
        assert statement.text == "SELECT '?" and not isinstance(app.screen, Help)


async def test_a_paused_run_says_why_on_every_screen_in_one_line_with_a_mark_where_it_is_cut() -> None:
    client = CannedClient()
    app = console(client=client, run=3)
    why = "models: iteration 1 got no kernel, as calls failed: model 'local' failed 8 times\nIt is asked again in 59 s."
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("1")(pilot)
        app.session.fold([Event(RunStateChanged(RunState.PAUSED, why), 3, app.session.live.seq + 1, now())])
        await until(pilot, lambda: "‖ paused  models: iteration 1 got no kernel" in lines_of(pilot)[1])
        (line,) = (line for line in lines_of(pilot) if "r3 paused: models" in line)
        assert "… " in line[-4:] or "…│" in line[-4:], "a line break does not hide that the line is cut"
        await pressing("4")(pilot)
        assert any("r3        paused: models: iteration 1" in line for line in lines_of(pilot))


async def test_the_profile_says_what_its_percentages_compare_with() -> None:
    text = " ".join(" ".join(await shown("2 B 7", (120, 40))).split())
    for words in ("of peak", "by the chip's stated", "of attainable", "by rates that"):
        assert words in text


def test_events_name_a_run_once_and_tell_a_baseline_from_a_win() -> None:
    def line(data: EventData) -> str:
        return event_line(Event(data, 5, 1, 1.0), Palette(*(Style(),) * 12)).plain.partition("r5 ")[2]

    assert line(Notice("error", "r5 failed: no disk", "acceld logs")) == "failed: no disk (acceld logs)"
    assert line(RunStateChanged(RunState.FAILED, "no disk")) == "failed: no disk"
    assert line(RunStateChanged(RunState.RUNNING)) == "runs"
    assert line(BestChanged(22, 100.0, 1.0)) == "c22 is the baseline: ≈ 100 µs sim"
    assert line(BestChanged(23, 50.0, 2.0, verdict=Verdict.CERTAIN)) == "new best c23: ≈ 50.0 µs sim, 2.00x"
    assert line(Tuning(22, 34, 200, 40.0)) == "tuning c22: 34 of 200 kernels timed, 40 s"


async def test_without_a_daemon_apply_writes_the_file_and_other_actions_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[int, Path, bool]]()

    async def write(run: int, path: Path, even_if_tied: bool) -> str:
        asked.append((run, path, even_if_tied))
        apply(path, "better", seen(path))
        return "wrote it"

    client = CannedClient()
    client.read_only = True
    mine = tmp_path / "kernel.py"
    base = client.console.views[1].baseline
    assert base is not None
    mine.write_text((await client.get(f"/v1/candidates/{base.id}"))["text"])
    monkeypatch.chdir(tmp_path)
    app = console(client=client, run=1, apply=write)
    async with app.run_test(size=(120, 40)) as pilot:
        await pressing("2 A")(pilot)
        app.screen.query_one(Input).value = str(mine)
        await pressing("enter")(pilot)
        assert asked[0][:2] == (1, mine) and mine.read_text() == "better" and client.sent == []
        await pressing("U p")(pilot)
        assert mine.read_text() != "better"
        assert [toast.message for toast in app._notifications] == ["no daemon: acceld start"]
        app.session.lose()
        assert app.steering.refusal("apply_best") == "the daemon does not answer: acceld start"


async def test_the_window_of_apply_says_what_is_written_and_offers_every_file_with_the_first_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = CannedClient()
    base = client.console.views[1].baseline
    assert base is not None
    facts = await client.get(f"/v1/candidates/{base.id}")
    client.extra[f"/v1/candidates/{base.id}"] = {**facts, "filename": "kernel.py"}
    client.extra["/v1/runs/1"] = {**(await client.get("/v1/runs/1")), "workload_folder": str(tmp_path / "geglu")}
    (tmp_path / "geglu").mkdir()
    copied, mine, other = (tmp_path / name for name in ("geglu/kernel.py", "geglu.py", "other.py"))
    for path, text in ((copied, facts["text"]), (mine, facts["text"]), (other, "x = 1\n")):
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    app = console(client=client, run=1)
    async with app.run_test(size=(80, 24)) as pilot:
        await pressing("2 A")(pilot)
        field, text = app.screen.query_one(Input), "\n".join(lines_of(pilot))
        assert field.value == str(copied)
        for words in ("replaces the whole", "kept beside it", "U puts it back", "⏎ OK", "↓ Next choice", "esc Back"):
            assert words in text, words
        await pressing("down")(pilot)
        assert field.value == str(mine) and str(other) not in text
        await pressing("down")(pilot)
        assert field.value == str(copied)


async def test_a_replay_names_the_command_that_applies_because_its_key_does_nothing() -> None:
    events = [event for event in history() if event.run == 1]
    app = console(client=CannedClient(events), replay=Replay(1, events))
    async with app.run_test(size=(160, 40)) as pilot:
        await pressing("2")(pilot)
        run = app.session.run_view
        assert run is not None and run.best is not None and isinstance(app.screen, ConsoleScreen)
        assert app.screen.applies == "acceld apply r1 FILE"


async def test_the_now_pane_tells_what_comes_next_and_the_pace_which_no_event_tells() -> None:
    client = CannedClient()
    waiting = [{"candidate": number, "run": 3, "created_at": now()} for number in (2061, 2062)]
    client.extra["/v1/queue"] = {"queue": {"slots": 2}, "running": [], "waiting": waiting}
    app = console(client=client, run=3)
    async with app.run_test(size=(200, 50)) as pilot:
        await pressing("2")(pilot)
        told = str(app.screen.query_one("#now").render()).splitlines()
        assert [line.split("  ")[0] for line in told[:3]] == ["2 waiting", "next c2061", "next c2062"]
        assert any(line.startswith("61 evaluated in ") and line.endswith(" a minute") for line in told)
        assert any(line.startswith("best c2051") and line.endswith(", 11 written since") for line in told)
        view = app.session.run_view
        assert view is not None and sum(tried for tried, _, _ in changes(view).values()) == 61
        one = view.candidates[2051]
        one.parent_verdict = Verdict.CERTAIN
        title, tried = next(iter(changes(view).items()))
        assert (title, tried[1]) == (view.title(one), 1) and round(tried[2], 3) == 1.188
        assert any(line.split()[:2] == [title.split()[0], title.split()[1]] for line in told)
        happened = {sentence(event) for event in app.session.state.log}
        assert not any(line in happened for line in told)


async def test_chosen_columns_are_drawn_in_their_order_and_their_headers_sort() -> None:
    with pytest.raises(ConfigError, match="'speed' is no column of Runs"):
        console(columns=("speed",))
    async with console(columns=("x", "state", "run")).run_test(size=(120, 40)) as pilot:
        await pressing("1")(pilot)
        runs = pilot.app.screen.query_one("#runs", LineList)
        head, first = (runs.render_line(place).text.split() for place in (0, 1))
        assert head == ["x", "state", "run"] and first[-4:] == ["2.23x", "▶", "running", "r3"]
        await pilot.click("#runs", offset=(1 + runs.render_line(0).text.index("state"), 1))
        await pilot.pause()
        assert runs.border_subtitle == "by state"


async def test_a_number_stays_beside_its_unit_where_a_text_is_wrapped() -> None:
    app = console()
    async with app.run_test(size=(80, 24)):
        assert isinstance(app.screen, ConsoleScreen)
        text = app.screen.wrapped("bound by waiting: vector 38 %, DMA 32 %, 512 B rows", "", 38)
        assert text.plain == "bound by waiting: vector 38 %, DMA\n32 %, 512 B rows\n"
        assert app.screen.wrapped("one two three", "", 4, 2).plain == "one\ntwo\n"
