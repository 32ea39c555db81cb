"""Run the terminal UI: connect to the daemon, apply its events to the state, and let the current screen draw
the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.notifications import Notify, SeverityLevel
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from acceld.alerts import Alert, Manner, announcement
from acceld.errors import AcceldError, DaemonError
from acceld.tui.client import Client
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
from acceld.tui.screens.query import QueryScreen
from acceld.tui.screens.queue import QueueScreen
from acceld.tui.screens.runs import RunsScreen, chosen
from acceld.tui.session import Session
from acceld.tui.steering import ACTIONS, Apply, Steering
from acceld.tui.terminal import APPLY, UNDO, complain
from acceld.tui.widgets.frame import TABS
from acceld.tui.work import start

log = logging.getLogger(__name__)

SCREENS: tuple[type[ConsoleScreen], ...] = (
    RunsScreen,
    BeamScreen,
    CandidateScreen,
    QueueScreen,
    MemoryScreen,
    CostsScreen,
    ProfileScreen,
    LogsScreen,
    QueryScreen,
)
PALETTE_RUNS, PALETTE_CANDIDATES = 200, 500
"""Limits on the runs, and on the candidates of the run in view, that the palette offers."""
RETRY_S = (1.0, 2.0, 4.0, 8.0)
QUEUE_S = 2.0
"""Seconds between two requests to the daemon for the state of its devices and its queue."""


class Styled(LineFilter):
    """Line filter of Textual that gives every segment a style, because other filters need a style."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments. A segment without a style gets an empty style."""
        return [Segment(text, style or Style.null(), control) for text, style, control in segments]


class ConsoleApp(App[None]):
    """The Textual application. It connects to the daemon and tells the current screen about changes. It also owns the
    session, which all screens share, and the requests that steer runs.
    """

    TITLE = "acceld"
    CSS_PATH = "console.tcss"
    DEFAULT_MODE = "runs"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "colon"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (120, "-roomy"), (150, "-wide"), (180, "-huge")]  # noqa: RUF012  Textual's own type
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]  # noqa: RUF012  # Textual's own type
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"app.switch_mode('{name}')", title, show=False, id=f"go.{name}")
            for number, (name, title) in enumerate(TABS, 1)
        ),
        Binding("A", APPLY, "Apply best", show=False, id="run.apply"),
        Binding("U", UNDO, "Undo apply", show=False, id="run.undo-apply"),
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
        candidate: int | None = None,
        replay: Replay | None = None,
        refresh_hz: float = 8.0,
        theme: str = "acceld",
        keymap: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        notify: Manner = "bell",
        apply: Apply | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.session = Session(client, run=run, replay=replay, clock=clock)
        self.session.candidate = candidate
        chosen(columns)  # an unknown column is an error before anything is drawn
        for screen in SCREENS:
            more = {"columns": columns} if screen is RunsScreen else {}
            self.add_mode(screen.NAME, partial(screen, self.session, **more))
        self.steering = Steering(self.session, self, apply)
        self._manner = notify
        self._refresh_s = 1.0 / max(0.5, refresh_hz)
        self._history: list[str] = []
        self._wanted_theme = theme
        for made in THEMES:
            self.register_theme(made)
        if keymap:
            self.set_keymap(dict(keymap))

    # -- life ----------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        ansi = {"ansi": "ansi-dark"}.get(self._wanted_theme, self._wanted_theme)
        self.theme = ansi if ansi in self.available_themes else "acceld"
        if self.session.replay is not None:
            self.session.replay.seek(1.0)
            self.set_interval(0.1, self._play)
            self.refresh_screen()
        else:
            if self.session.run is not None:
                self.switch_mode("beam" if self.session.candidate is None else "candidate")
            self.set_interval(self._refresh_s, self._show_changes)
            self.set_interval(1.0, self._tick)
            self.set_interval(QUEUE_S, self._ask_queue)
            self.call_after_refresh(start, self, self._follow, name="events")

    async def _follow(self) -> None:
        """Connect, load the state, and apply events, until the application ends. If the connection breaks, connect
        again.
        """
        tries = 0
        while True:
            try:
                await self.session.connect()
                await self._load()
                self.refresh_screen()
                tries = 0
                async for batch in self.session.client.events(self.session.live.seq):
                    self.alert(self.session.fold(batch))
                raise DaemonError("the daemon closed the connection", hint="acceld status says if a daemon runs now")
            except Exception as error:  # noqa: BLE001  one bad answer must not leave a console that hears nothing
                self.session.lose()
                wait_s = RETRY_S[min(tries, len(RETRY_S) - 1)]
                tries += 1
                await self._wait(self._error_text(error), wait_s)

    def _error_text(self, error: Exception) -> str:
        """Return the message of an error, for people. An error that is not acceld's own is logged too."""
        if isinstance(error, AcceldError):
            return error.message
        log.error("an event or answer could not be handled", exc_info=error)
        text = f"{type(error).__name__}: {error}"
        self.notify(text, title="Something could not be shown", severity="error", markup=False)
        return text

    async def _reload(self) -> None:
        try:
            await self._load()
        except Exception as error:  # noqa: BLE001  # shown to the person, whatever it is
            self.notify(self._error_text(error), title="Not loaded", severity="error", markup=False)

    async def _load(self) -> None:
        """Load the rows of the run in view."""
        if self.session.run is not None:
            await self.session.load(self.session.run, self.refresh_screen)

    async def _wait(self, reason: str, wait_s: float) -> None:
        until, line = time.monotonic() + wait_s, reason.partition("\n")[0]
        while (left := until - time.monotonic()) > 0:
            self.session.banner = f"disconnected ({line}); trying again in {left:.0f} s"
            self.refresh_screen()
            await asyncio.sleep(min(1.0, left))
        self.session.banner = "connecting"

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show the error of a background worker that failed."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            known = (
                error
                if isinstance(error, AcceldError)
                else AcceldError(
                    f"an answer can not be shown: {error!r}", hint="acceld logs has the daemon's side of it"
                )
            )
            complain(self, known)

    def _tick(self) -> None:
        """Draw ages and durations again, which change as time passes."""
        stack = self._screen_stacks.get(self.current_mode) or ()
        screen = stack[-1] if stack else None
        if isinstance(screen, ConsoleScreen):
            screen.tick()

    def _ask_queue(self) -> None:
        if self.session.hello and not self.session.lost and not self.session.read_only:
            start(self, self._take_queue, group="queue", exclusive=True)

    async def _take_queue(self) -> None:
        with contextlib.suppress(AcceldError):  # the connection that follows events reports a lost daemon
            await self.session.ask_queue()

    def _show_changes(self) -> None:
        """Draw the current screen again if it shows something that has changed."""
        dirty, self.session.live.dirty = self.session.live.dirty, set()
        stack = self._screen_stacks.get(self.current_mode) or ()
        screen = stack[-1] if stack else None
        if dirty and isinstance(screen, ConsoleScreen):
            wants = {"run" if name == f"run {self.session.run}" else name for name in dirty}
            if wants & screen.WANTS:
                screen.refresh_all()

    def refresh_screen(self) -> None:
        """Draw the current screen again."""
        stack = self._screen_stacks.get(self.current_mode) or ()
        screen = stack[0] if stack else None
        if isinstance(screen, ConsoleScreen):
            screen.refresh_all()

    def _play(self) -> None:
        if self.session.replay is not None and self.session.replay.playing and self.session.replay.advance(0.1):
            self.refresh_screen()

    # -- help with the terminal ----------------------------------------------------------------------------------

    def alert(self, alerts: Sequence[Alert]) -> None:
        """Show alerts as one message, and announce them to a person who is not watching, as ``tui.notify``
        says.
        """
        if not alerts:
            return
        last = next((alert for alert in reversed(alerts) if alert.bad), alerts[-1])
        more = f" (and {len(alerts) - 1} more)" if len(alerts) > 1 else ""
        self.notify(last.text + more, title=last.title, severity="warning" if last.bad else "information")
        if self._driver is not None:
            self._driver.write(announcement(last, self._manner, in_tmux="TMUX" in os.environ))

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def on_notify(self, event: Notify) -> None:
        """Show the newest message in place of earlier ones, so that rows stay visible. An unread error stays
        too.
        """
        minor = event.notification.severity == "information"
        for shown in list(self._notifications):
            if shown.severity == "information" or not minor:
                self._unnotify(shown, refresh=False)

    def get_line_filters(self) -> Sequence[LineFilter]:
        # Without color, Textual's filter needs a style on every segment. Segments of plots have none if nothing is
        # drawn.
        return [Styled(), *super().get_line_filters()] if self.no_color else super().get_line_filters()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the entries of the palette: screens, actions, themes, and runs and candidates to go to."""
        for number, (name, title) in enumerate(TABS, 1):
            yield SystemCommand(title, f"screen {number}", lambda name=name: self.switch_mode(name))
        for name, action in ACTIONS.items():
            why = self.steering.refusal(name)
            help = f"not now: {why}" if why else action.help
            yield SystemCommand(action.title, help, partial(self.action_steer, name))
        for theme in ("acceld", "acceld-light", "ansi-dark", "ansi-light", "nord", "gruvbox", "solarized-light"):
            yield SystemCommand(f"Theme {theme}", "change colors", lambda theme=theme: setattr(self, "theme", theme))
        for run in sorted(self.session.state.runs.values(), key=lambda one: one.id, reverse=True)[:PALETTE_RUNS]:
            yield SystemCommand(f"r{run.id} {run.workload}", f"run, {run.state}", partial(self._go_to_run, run.id))
        view = self.session.run_view
        for node in list(view.candidates.values())[-PALETTE_CANDIDATES:] if view else ():
            title = view.title(node) if view else ""
            yield SystemCommand(f"c{node.id} {title}", "candidate", partial(self._go_to_candidate, node.id))
        yield SystemCommand("Detach", "leave; the daemon keeps running", self.action_detach)

    def _go_to_run(self, run: int) -> None:
        self.switch_mode("beam")
        if isinstance(self.screen, ConsoleScreen):
            self.screen.select_run(run)

    def _go_to_candidate(self, candidate: int) -> None:
        self.session.candidate = candidate
        self.switch_mode("candidate")
        self.refresh_screen()

    def switch_mode(self, mode: str) -> Any:
        if self.current_mode and mode != self.current_mode:
            self._history.append(self.current_mode)
            del self._history[:-20]
        return super().switch_mode(mode)

    def action_previous(self) -> None:
        if self._history:
            super().switch_mode(self._history.pop())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Tell whether an action is possible now.

        Return True if it is possible, or if it does not steer a run. Else return None, by which Textual greys the
        action's key.
        """
        if action == "steer" and self.steering.refusal(str(parameters[0])):
            return None
        return True

    def action_steer(self, action: str) -> None:
        if self.steering.refusal(action):
            self.action_why(action)
        else:
            ACTIONS[action].do(self.steering)

    def action_why(self, action: str) -> None:
        why = self.steering.refusal(action)
        self.notify(why, title=f"{ACTIONS[action].title}: not now", severity="warning")

    def action_help(self) -> None:
        self.push_screen(Help(self.screen))

    def action_detach(self) -> None:
        self.exit()

    def action_theme(self) -> None:
        names = ["acceld", "acceld-light", "ansi-dark", "ansi-light"]
        place = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(place + 1) % len(names)]

    def action_reload(self) -> None:
        if self.session.replay is None:
            start(self, self._reload, group="load")
        self.refresh_screen()

    def action_step(self, events: int) -> None:
        if self.session.replay is not None:
            self.session.replay.step(events)
            self.refresh_screen()

    def action_jump(self, fraction: float) -> None:
        if self.session.replay is not None:
            self.session.replay.seek(self.session.replay.fraction + fraction)
            self.refresh_screen()

    def action_play(self) -> None:
        if self.session.replay is not None:
            if self.session.replay.fraction >= 1.0:
                self.session.replay.seek(0.0)
            self.session.replay.playing = not self.session.replay.playing
            self.refresh_screen()

    def watch_theme(self, old: str, new: str) -> None:
        self.call_after_refresh(self.refresh_screen)

    async def on_unmount(self) -> None:
        await self.session.client.close()
