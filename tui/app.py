"""The terminal UI: connects, folds events, and hands the state to the screen in front."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SuspendNotSupported, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from acceld.alerts import Alert, Manner, alert_of, announcement
from acceld.errors import AcceldError, DaemonError
from acceld.events import event_of
from acceld.tui.client import Client
from acceld.tui.console import ConsoleView
from acceld.tui.modals import Help
from acceld.tui.palette import THEMES
from acceld.tui.replay import Replay
from acceld.tui.screens.base import ConsoleScreen
from acceld.tui.screens.beam import BeamScreen
from acceld.tui.screens.candidate import CandidateScreen
from acceld.tui.screens.costs import CostsScreen
from acceld.tui.screens.logs import LogsScreen
from acceld.tui.screens.memory import MemoryScreen
from acceld.tui.screens.profile import ProfileScreen
from acceld.tui.screens.queue import QueueScreen
from acceld.tui.screens.runs import RunsScreen
from acceld.tui.state import RunView
from acceld.tui.steering import ACTIONS, Steering
from acceld.tui.widgets.frame import TABS

SCREENS: tuple[type[ConsoleScreen], ...] = (
    RunsScreen,
    BeamScreen,
    CandidateScreen,
    QueueScreen,
    MemoryScreen,
    CostsScreen,
    ProfileScreen,
    LogsScreen,
)
RETRY_S = (1.0, 2.0, 4.0, 8.0)
PAGE = 500
KEPT_AT_START = 500
"""Past events shown in the log of a console that has just connected."""


class ConsoleApp(App[None]):
    """The console. ``client`` is where everything comes from; nothing else is ever asked."""

    TITLE = "acceld"
    CSS_PATH = "console.tcss"
    DEFAULT_MODE = "runs"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "colon"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (150, "-wide")]  # noqa: RUF012  Textual's own type
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"app.switch_mode('{name}')", title, show=False, id=f"go.{name}")
            for number, (name, title) in enumerate(TABS, 1)
        ),
        Binding("question_mark", "help", "Help", id="help", key_display="?"),
        Binding("q", "detach", "Detach", id="detach"),
        Binding("t", "theme", "Theme", show=False, id="theme"),
        Binding("full_stop", "reload", "Reload", show=False, id="reload"),
        Binding("left_square_bracket", "step(-1)", "Replay: an event back", show=False, id="replay.back"),
        Binding("right_square_bracket", "step(1)", "Replay: an event on", show=False, id="replay.on"),
        Binding("left_curly_bracket", "jump(-0.05)", "Replay: 5 % back", show=False, id="replay.jump-back"),
        Binding("right_curly_bracket", "jump(0.05)", "Replay: 5 % on", show=False, id="replay.jump-on"),
        Binding("P", "play", "Replay: play or hold", show=False, id="replay.play"),
        Binding("minus", "previous", "Last screen", show=False, id="previous"),
    ]

    def __init__(
        self,
        client: Client,
        *,
        run: int | None = None,
        replay: Replay | None = None,
        refresh_hz: float = 8.0,
        theme: str = "acceld",
        keymap: Mapping[str, str] | None = None,
        notify: Manner = "bell",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        for screen in SCREENS:
            self.add_mode(screen.NAME, partial(screen, self))
        self.client = client
        self.steering = Steering(self, self)
        self.console_view = ConsoleView()
        self.replay = replay
        self.candidate: int | None = None
        self.banner = ""
        self.hello: Mapping[str, Any] = {}
        self._run = run
        self._clock = clock
        self._manner = notify
        self._refresh_s = 1.0 / max(0.5, refresh_hz)
        self._history: list[str] = []
        self._loaded: set[int] = set()
        self._wanted_theme = theme
        for made in THEMES:
            self.register_theme(made)
        if keymap:
            self.set_keymap(dict(keymap))

    # -- state ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsoleView:
        """What the screens show."""
        return self.replay.console if self.replay else self.console_view

    @property
    def now(self) -> float:
        """Seconds since the epoch; in a replay, the time of the slider."""
        return self.state.now if self.replay else self._clock()

    @property
    def run_view(self) -> RunView | None:
        """The run in view."""
        return self.state.views.get(self._run) if self._run is not None else None

    def select_run(self, run: int) -> None:
        """Look at a run."""
        if run == self._run and self.run_view is not None:
            return
        self._run = run
        self.candidate = None
        self.state.open(run)
        if self.replay is None and run not in self._loaded:
            self.run_worker(self._load(run), group="load", exit_on_error=False)
        self.refresh_screen()

    # -- life ----------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        ansi = {"ansi": "ansi-dark"}.get(self._wanted_theme, self._wanted_theme)
        self.theme = ansi if ansi in self.available_themes else "acceld"
        if self.replay is not None:
            self._run = self.replay.run
            self.replay.seek(1.0)
            self.set_interval(0.1, self._play)
            self.refresh_screen()
        else:
            self.set_interval(self._refresh_s, self._show_changes)
            self.run_worker(self._follow(), name="events", exit_on_error=False)

    async def _follow(self) -> None:
        """Connect, load, take in events; again after every break."""
        tries = 0
        while True:
            try:
                await self._connect()
                tries = 0
                async for batch in self.client.events(self.console_view.seq):
                    fresh = [event for event in batch if self.console_view.apply(event)]
                    self.tell([alert for event in fresh if (alert := alert_of(event)) is not None])
                raise DaemonError("the daemon closed the connection")
            except AcceldError as error:
                wait_s = RETRY_S[min(tries, len(RETRY_S) - 1)]
                tries += 1
                await self._wait(error.message, wait_s)

    async def _connect(self) -> None:
        self.hello = await self.client.get("/v1/hello")
        seq = int(self.hello.get("last_seq") or 0)
        answer = await self.client.get("/v1/runs", limit=500)
        if seq < self.console_view.seq:
            self.console_view = ConsoleView()
        self.console_view.seq = max(seq, self.console_view.seq) if not self.console_view.seq else self.console_view.seq
        for row in answer["runs"]:
            self.console_view.load_run(row, row.get("spec") or row)
        recent = await self.client.get("/v1/events", after=max(0, seq - KEPT_AT_START), limit=KEPT_AT_START)
        for event in recent["events"]:
            self.console_view.remember(event_of(event))
        self._loaded.clear()
        self.banner = "read-only history: no daemon is running" if self.client.read_only else ""
        if self._run is None and self.console_view.runs:
            self._run = max(self.console_view.runs)
        if self._run is not None:
            await self._load(self._run)
        self.refresh_screen()

    async def _load(self, run: int) -> None:
        """Fill a run's view from rows; events that came meanwhile win."""
        view = self.console_view.open(run)
        seq = self.console_view.seq
        found = await self.client.get(f"/v1/runs/{run}")
        self._loaded.add(run)
        view.load_run(found, seq)
        for what, load in (("candidates", lambda row: view.load_candidate(row, seq)), ("plans", view.load_plan)):
            after, more = 0, True
            while more:
                page = (await self.client.get(f"/v1/runs/{run}/{what}", after=after, limit=PAGE))[what]
                for row in page:
                    load(row)
                    after = row["id"]
                more = len(page) == PAGE
                self.refresh_screen()

    async def _wait(self, reason: str, wait_s: float) -> None:
        until = time.monotonic() + wait_s
        while (left := until - time.monotonic()) > 0:
            self.banner = f"disconnected ({reason.splitlines()[0]}); trying again in {left:.0f} s"
            self.refresh_screen()
            await asyncio.sleep(min(1.0, left))
        self.banner = "connecting"

    def _show_changes(self) -> None:
        """Show what changed since the last time, if the screen in front cares."""
        dirty, self.console_view.dirty = self.console_view.dirty, set()
        stack = self._screen_stacks.get(self.current_mode) or ()
        screen = stack[-1] if stack else None
        if dirty and isinstance(screen, ConsoleScreen):
            wants = {"run" if name == f"run {self._run}" else name for name in dirty}
            if wants & screen.WANTS:
                screen.refresh_all()

    def refresh_screen(self) -> None:
        """Draw the screen in front again."""
        stack = self._screen_stacks.get(self.current_mode) or ()
        screen = stack[0] if stack else None
        if isinstance(screen, ConsoleScreen):
            screen.refresh_all()

    def _play(self) -> None:
        if self.replay is not None and self.replay.playing and self.replay.advance(0.1):
            self.refresh_screen()

    # -- help with the terminal ----------------------------------------------------------------------------------

    def copy(self, text: str, what: str) -> None:
        """To the clipboard by OSC 52; what a terminal would cut off goes to a file as well."""
        self.copy_to_clipboard(text)
        if len(text) > 200:
            folder = Path(tempfile.gettempdir()) / f"acceld-{os.getuid()}"
            folder.mkdir(mode=0o700, exist_ok=True)
            file = folder / f"{what}.txt"
            file.write_text(text, encoding="utf-8")
            self.notify(f"{what} copied; also in {file}")
        else:
            self.notify(f"{what} copied: {text}")

    def edit(self, text: str, name: str) -> None:
        """Show a text in $EDITOR; it is a copy."""
        with tempfile.TemporaryDirectory(prefix="acceld-") as folder:
            file = Path(folder) / name
            file.write_text(text, encoding="utf-8")
            words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
            try:
                with self.suspend():
                    subprocess.run([*words, str(file)], check=False)
            except (SuspendNotSupported, OSError) as error:
                self.notify(f"{words[0]}: {error}", severity="error")

    def tell(self, alerts: Sequence[Alert]) -> None:
        """Say what happened in the console, and to a person who looks elsewhere; several at once as one."""
        if not alerts:
            return
        last = next((alert for alert in reversed(alerts) if alert.bad), alerts[-1])
        more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
        self.notify(last.text + more, title=last.title, severity="warning" if last.bad else "information")
        if self._driver is not None:
            self._driver.write(announcement(last, self._manner, in_tmux="TMUX" in os.environ))

    def complain(self, error: AcceldError) -> None:
        """Say what went wrong, and what to do."""
        self.notify(error.hint or "", title=error.message, severity="error", timeout=8)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette."""
        for number, (name, title) in enumerate(TABS, 1):
            yield SystemCommand(title, f"screen {number}", lambda name=name: self.switch_mode(name))
        for action in ACTIONS.values():
            yield SystemCommand(action.title, action.help, partial(action.do, self.steering))
        for theme in ("acceld", "acceld-light", "ansi-dark", "ansi-light", "nord", "gruvbox", "solarized-light"):
            yield SystemCommand(f"Theme {theme}", "change colors", lambda theme=theme: setattr(self, "theme", theme))
        yield SystemCommand("Detach", "leave; the daemon keeps running", self.action_detach)

    def switch_mode(self, mode: str) -> Any:
        if self.current_mode and mode != self.current_mode:
            self._history.append(self.current_mode)
            del self._history[:-20]
        return super().switch_mode(mode)

    def go_back(self) -> None:
        """Show the screen that was in front before."""
        if self._history:
            super().switch_mode(self._history.pop())

    def action_previous(self) -> None:
        self.go_back()

    def action_steer(self, action: str) -> None:
        ACTIONS[action].do(self.steering)

    def action_help(self) -> None:
        self.push_screen(Help(self.screen))

    def action_detach(self) -> None:
        self.exit()

    def action_theme(self) -> None:
        names = ["acceld", "acceld-light", "ansi-dark", "ansi-light"]
        place = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(place + 1) % len(names)]

    def action_reload(self) -> None:
        self._loaded.clear()
        if self._run is not None and self.replay is None:
            self.run_worker(self._load(self._run), group="load", exit_on_error=False)
        self.refresh_screen()

    def action_step(self, events: int) -> None:
        if self.replay is not None:
            self.replay.step(events)
            self.refresh_screen()

    def action_jump(self, fraction: float) -> None:
        if self.replay is not None:
            self.replay.seek(self.replay.fraction + fraction)
            self.refresh_screen()

    def action_play(self) -> None:
        if self.replay is not None:
            if self.replay.fraction >= 1.0:
                self.replay.seek(0.0)
            self.replay.playing = not self.replay.playing
            self.refresh_screen()

    def watch_theme(self, old: str, new: str) -> None:
        self.call_after_refresh(self.refresh_screen)

    async def on_unmount(self) -> None:
        await self.client.close()
