"""Change a run from any screen. Each action is one request; the daemon records it as an event."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from textual.app import App, SystemCommand

from acceld.errors import AcceldError
from acceld.tui.context import Console
from acceld.tui.modals import Ask, Confirm, Help, NewRun

ACTIONS = frozenset("pause cancel pin veto branch remeasure hint budget apply_best new_run help".split())
"""Names of the actions, as bindings give them: ``app.steer('pause')``."""


class Steering:
    """Actions that ask the daemon to change something. ``console`` is ``app`` as screens see it."""

    def __init__(self, app: App[Any], console: Console) -> None:
        self._app = app
        self._console = console

    def do(self, action: str) -> None:
        """Do what a key or the palette names: ``pause``, ``pin`` ...; ValueError for any other name."""
        if action not in ACTIONS:
            raise ValueError(f"no such action: {action!r}")
        getattr(self, action)()

    def commands(self) -> Iterator[SystemCommand]:
        """Yield the palette's entries."""
        yield SystemCommand("New run", "choose a workload, see the estimate, start", self.new_run)
        yield SystemCommand("Pause or resume", "stop before the next step; what runs, ends", self.pause)
        yield SystemCommand("Cancel run", "end it after what runs now", self.cancel)
        yield SystemCommand("Pin candidate", "keep it in the beam", self.pin)
        yield SystemCommand("Veto candidate", "never keep it in the beam", self.veto)
        yield SystemCommand("Branch from candidate", "a parent of the next iteration", self.branch)
        yield SystemCommand("Re-measure candidate", "judge it again, strictly", self.remeasure)
        yield SystemCommand("Hint", "tell the planner something", self.hint)
        yield SystemCommand("Budget", "change the run's cap", self.budget)
        yield SystemCommand("Apply the best", "write it to the file it came from", self.apply_best)

    def _act(self, action: str, done: str, **arguments: Any) -> None:
        """Send one action for the run in view; where ``done`` is empty the daemon says what was done."""
        console = self._console
        run = console.run_view
        if run is None:
            self._app.notify("choose a run first", severity="warning")
            return
        if console.replay is not None or console.client.read_only:
            self._app.notify("this is a recording; nothing can be changed", severity="warning")
            return

        async def send() -> None:
            try:
                told = await console.client.send("POST", f"/v1/runs/{run.id}/actions", {"action": action, **arguments})
            except AcceldError as error:
                console.complain(error)
            else:
                self._app.notify(done or str(told["result"]))

        self._app.run_worker(send(), group="steer", exit_on_error=False)

    def _candidate_act(self, action: str, done: str, **arguments: Any) -> None:
        candidate = self._console.candidate
        if candidate is None:
            self._app.notify("choose a candidate first", severity="warning")
            return
        self._act(action, f"c{candidate} {done}", candidate=candidate, **arguments)

    def pause(self) -> None:
        """Pause, or resume where it is paused."""
        run = self._console.run_view
        if run is not None and run.state == "paused":
            self._act("resume", f"r{run.id} goes on")
        else:
            self._act("pause", "paused before the next step")

    def cancel(self) -> None:
        """Cancel, after asking."""
        run = self._console.run_view
        if run is None:
            return
        text = f"Cancel r{run.id} ({run.workload})? What runs now, ends; everything found so far is kept."
        self._ask(Confirm(text, "Cancel the run"), lambda yes: self._act("cancel", f"r{run.id} ends") if yes else None)

    def pin(self) -> None:
        """Keep a candidate in the beam, or let it go again."""
        off = self._marked("pin")
        self._candidate_act("unpin" if off else "pin", "no longer pinned" if off else "pinned")

    def veto(self) -> None:
        """Keep a candidate out of the beam, or let it in again."""
        off = self._marked("veto")
        self._candidate_act("unveto" if off else "veto", "no longer vetoed" if off else "vetoed")

    def _marked(self, mark: str) -> bool:
        console = self._console
        run = console.run_view
        return run is not None and console.candidate is not None and run.mark(console.candidate) == mark

    def branch(self) -> None:
        """Make a candidate a parent of the next iteration."""
        self._candidate_act("branch", "joins the next iteration's parents")

    def remeasure(self) -> None:
        """Judge a candidate again."""
        self._candidate_act("remeasure", "is judged again")

    def hint(self) -> None:
        """Tell the planner something."""
        ask = Ask("What should the planner know?", "Such as: try keeping the weights in SBUF across row tiles")
        self._ask(ask, lambda text: self._act("hint", "the planner will see it", text=text) if text else None)

    def budget(self) -> None:
        """Change the cap."""

        def change(text: str | None) -> None:
            try:
                value = float((text or "").strip().lstrip("$"))
            except ValueError:
                if text:
                    self._app.notify(f"{text!r} is not an amount in USD", severity="error")
                return
            self._act("budget", f"cap is now ${value:.2f}", usd=value)

        self._ask(Ask("New cap of this run in USD", "20.00"), change)

    def apply_best(self) -> None:
        """Write the best kernel over a file of this machine, after asking which."""
        run = self._console.run_view
        if run is None or run.best is None:
            self._app.notify("nothing has passed yet", severity="warning")
            return

        def write(name: str | None) -> None:
            if not name:
                return
            path = Path(name).expanduser().absolute()
            try:
                expected = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError as error:
                self._app.notify(f"{path}: {error.strerror}", severity="error")
                return
            self._app.notify("tried first: it must be a drop-in and pass today")
            self._act("apply", "", path=str(path), expected_sha256=expected)

        self._ask(
            Ask(f"Write c{run.best.candidate} over which file?", "kernel.py; a copy of it is kept beside it"), write
        )

    def new_run(self) -> None:
        """Choose a workload, see the estimate, start."""
        console = self._console
        if console.client.read_only:
            self._app.notify("no daemon: acceld start", severity="warning")
            return

        def start(spec: Mapping[str, Any] | None) -> None:
            if spec is None:
                return

            async def send() -> None:
                try:
                    made = await console.client.send("POST", "/v1/runs", spec)
                except AcceldError as error:
                    console.complain(error)
                else:
                    self._app.notify(f"r{made['run']['id'] if 'run' in made else made['id']} started")

            self._app.run_worker(send(), group="steer", exit_on_error=False)

        self._ask(NewRun(console.client), start)

    def help(self) -> None:
        """Show the keys that work here."""
        self._app.push_screen(Help(self._app.screen))

    def _ask(self, modal: Any, answer: Callable[[Any], None]) -> None:
        self._app.push_screen(modal, answer)
