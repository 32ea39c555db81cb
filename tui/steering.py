"""Steer a run from any screen. Each action is one request, which the daemon records as an event."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from textual.app import App

from acceld.errors import AcceldError
from acceld.model import CANCELLING, PROPOSERS
from acceld.resources import workloads_folder
from acceld.tui.modals import Ask, Confirm
from acceld.tui.new_run import NewRun
from acceld.tui.session import Session
from acceld.tui.terminal import UNDO, complain, key_of
from acceld.tui.work import start
from acceld.watch.apply import backup_of, restore

Apply = Callable[[int, Path, bool], Awaitable[str]]
"""Writes the best kernel of a run over a file without a daemon, even if it is a tie, and returns a message."""
NOT_APPLIED = "this console has written no file for the run"


SCANNED = 1000
"""Greatest number of files in a folder among which kernels are looked for."""


def origins(baseline: Mapping[str, Any], folder: str, state: str = "") -> list[str]:
    """Return the paths of the files that a run may have begun with, the likeliest first.

    Such a file has the text of the baseline. Files are looked for in ``folder``, the workload's folder, in the folder
    around that, and in the current folder. Files with the baseline's name come first. Files of acceld itself do not
    count: neither its own workloads nor files below the folder ``state``.
    """
    name, text = baseline.get("filename") or "", baseline.get("text")
    own = [workloads_folder().resolve(), *([Path(state).resolve()] if state else [])]
    places = [*((Path(folder), Path(folder).parent) if folder else ()), Path.cwd()]
    found: list[Path] = []
    for place in dict.fromkeys(place.resolve() for place in places):
        if text and not any(place.is_relative_to(one) for one in own):
            found += [path for path in _kernel_files(place, Path(name)) if _holds(path, text)]
    return [str(path) for path in sorted(dict.fromkeys(found), key=lambda path: path.name != Path(name).name)]


def _kernel_files(place: Path, name: Path) -> Iterator[Path]:
    """Yield the file ``name`` of a folder, then the folder's other files with the same ending."""
    yield (place / name).resolve()
    try:
        listed = sorted(islice(place.iterdir(), SCANNED))
    except OSError:
        return
    yield from (path for path in listed if path.suffix == name.suffix)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.is_file() and path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        return False


class Steering:
    """Sender of a person's actions to the daemon. ``app`` shows windows and messages. ``apply`` writes a kernel where
    no daemon runs.
    """

    def __init__(self, session: Session, app: App[Any], apply: Apply | None = None) -> None:
        self._session, self._app, self._apply = session, app, apply
        self._applied: dict[int, tuple[Path, Path, str]] = {}
        """By run, the file that was written last, its backup, and the sha256 of the written text."""

    def new_run(self) -> None:
        """Open the window that starts a run. A message then names the new run."""

        def started(run: int | None) -> None:
            if run is not None:
                self._app.notify(f"r{run} started")

        self._app.push_screen(NewRun(self._session.client), started)

    def pause(self) -> None:
        """Pause the run in view; if it is paused, resume it."""
        run = self._session.run_view
        if run is not None and run.state == "paused":
            self._act("resume", f"r{run.id} is to go on")
        else:
            self._act("pause", "paused before the next step")

    def cancel(self) -> None:
        """Ask whether to cancel the run in view, and cancel it if the person says yes."""
        run = self._session.run_view
        if run is None:
            return
        text = (
            f"Cancel r{run.id} ({run.workload})? Running evaluations are finished, and everything found so far is kept."
        )
        self._app.push_screen(
            Confirm(text, "Cancel the run"), lambda yes: self._act("cancel", f"r{run.id} ends") if yes else None
        )

    def pin(self) -> None:
        """Pin the candidate in view, so that it stays in the beam; if it is pinned, unpin it."""
        self._mark("pin", "pinned")

    def veto(self) -> None:
        """Veto the candidate in view, so that it is never selected; if it is vetoed, undo that."""
        self._mark("veto", "vetoed")

    def branch(self) -> None:
        """Make the candidate in view a parent of the next iteration."""
        self._act_on_candidate("branch", "joins the next iteration's parents")

    def remeasure(self) -> None:
        """Evaluate the candidate in view again by the strict gate."""
        self._act_on_candidate("remeasure", "is evaluated again")

    def hint(self) -> None:
        """Ask for a text, and send it to the planner of the run in view."""
        self._app.push_screen(
            Ask("What should the planner know?", "Such as: try keeping the weights in SBUF across row tiles"),
            lambda text: self._act("hint", "the planner will see it", text=text) if text else None,
        )

    def budget(self) -> None:
        """Ask for an amount, and make it the cap of the run in view."""

        def change(text: str | None) -> None:
            if not text:
                return
            try:
                value = float(text.strip().lstrip("$"))
            except ValueError:
                self._app.notify(f"{text!r} is not an amount in USD", severity="error")
            else:
                self._act("budget", f"cap is now ${value:.2f}", usd=value)

        self._app.push_screen(Ask("New cap of this run in USD", "20.00"), change)

    def apply_best(self) -> None:
        """Ask for a path, and write the best kernel over that file of this machine.

        The path that is offered is that of the file written last, or of the file that the run began with.
        """
        run = self._session.run_view
        if run is None or run.best is None or run.baseline is None:
            self._warn("nothing has passed yet")
            return
        number, base, best = run.id, run.baseline.id, run.best
        tied: dict[str, Any] = {} if best.verdict.worth_applying else {"even_if_tied": True}

        def write(name: str | None) -> None:
            if not name:
                return
            path = Path(name).expanduser().absolute()
            try:
                expected = hashlib.sha256(path.read_bytes()).hexdigest()
            except FileNotFoundError:
                text = f"there is no file {path}; acceld apply r{number} -o FILE writes a new one"
                self._app.notify(text, severity="error")
                return
            except OSError as error:
                self._app.notify(f"{path}: {error.strerror}", severity="error")
                return
            self._app.notify("the kernel is checked first: it must be a drop-in replacement and pass now")

            def done(answer: Any) -> str:
                written = path.resolve()
                now = hashlib.sha256(written.read_bytes()).hexdigest()
                self._applied[number] = (written, backup_of(written, expected), now)
                return f"{answer['result']}; {key_of(self._app, UNDO)} puts it back"

            if self._session.read_only and self._apply is not None:
                apply = self._apply
                self._do(lambda: apply(number, path, bool(tied)), lambda text: done({"result": text}))
            else:
                body = {"action": "apply", "path": str(path), "expected_sha256": expected, **tied}
                self._send(f"/v1/runs/{number}/actions", body, done)

        async def ask() -> None:
            offered = [str(self._applied[number][0])] if number in self._applied else []
            try:
                facts = await self._session.client.get(f"/v1/candidates/{base}")
                row = await self._session.client.get(f"/v1/runs/{number}")
            except AcceldError:
                facts = row = {}
            offered = offered or origins(facts, row.get("workload_folder") or "", self._session.state_folder)
            word = ", although it is a tie," if tied else ""
            title = f"Write c{best.candidate}{word} over which file?"
            about = (
                "The kernel is checked once more, then it replaces the whole text of this file. The file as it is now is "
                f"kept beside it, with the ending .bak, and {key_of(self._app, UNDO)} puts it back."
            )
            more = [f"  {name}" for name in offered[1:]]
            about += "\n\nThese files hold the first kernel too:\n" + "\n".join(more) if more else ""
            self._app.push_screen(Ask(title, "path of a kernel file", offered, about), write)

        start(self._app, ask, group="steer")

    def undo_apply(self) -> None:
        """Put back the file that this console overwrote last for the run in view."""
        run = self._session.run_view
        if run is None or run.id not in self._applied:
            self._warn(NOT_APPLIED)
            return
        path, backup, written = self._applied[run.id]
        try:
            restore(path, backup, written)
        except AcceldError as error:
            complain(self._app, error)
        else:
            del self._applied[run.id]
            self._app.notify(f"{path} is restored, and its copy is gone")

    def refusal(self, action: str) -> str:
        """Return why an action is not possible now; empty if it is possible."""
        run, needs = self._session.run_view, ACTIONS[action].needs
        if self._session.replay is not None:
            return "a recording"
        if self._session.read_only and not ("file" in needs and self._apply is not None):
            return "no daemon: acceld start"
        if self._session.lost and "applied" not in needs:
            return "the daemon does not answer: acceld start"
        if not needs:
            return ""
        if run is None:
            return "choose a run first"
        if "applied" in needs and run.id not in self._applied:
            return NOT_APPLIED
        if "live" in needs and run.ended:
            return f"r{run.id} has ended"
        if "live" in needs and run.state == CANCELLING:
            return f"r{run.id} is being cancelled: it ends once its running evaluations are done"
        if "candidate" in needs and self._session.candidate is None:
            return "choose a candidate first"
        if self._session.loading:
            return f"r{run.id} is being read"
        if "models" in needs and run.proposer in PROPOSERS and not PROPOSERS[run.proposer].uses_models:
            return "rewrite rules read no hints and cost nothing"
        if "best" in needs and run.best is None:
            return "nothing has passed yet"
        best = run.best.candidate if "best" in needs and run.best is not None else None
        if best is not None and run.baseline is not None and best == run.baseline.id:
            return f"c{best} is the baseline of r{run.id} itself: nothing faster has passed"
        return ""

    def _mark(self, mark: str, done: str) -> None:
        run, candidate = self._session.run_view, self._session.candidate
        off = run is not None and candidate is not None and run.mark(candidate) == mark
        self._act_on_candidate(f"un{mark}" if off else mark, f"no longer {done}" if off else done)

    def _act_on_candidate(self, action: str, done: str) -> None:
        candidate = self._session.candidate
        if candidate is None:
            self._warn("choose a candidate first")
        else:
            self._act(action, f"c{candidate} {done}", candidate=candidate)

    def _act(self, action: str, done: str, **arguments: Any) -> None:
        """Send an action for the run in view, and show the message ``done``. If ``done`` is empty, show the daemon's
        answer.
        """
        run = self._session.run_view
        if run is None:
            self._warn("choose a run first")
        elif self._session.read_only:
            self._warn("this is a recording; nothing can be changed")
        else:
            body = {"action": action, **arguments}
            self._send(f"/v1/runs/{run.id}/actions", body, lambda answer: done or str(answer["result"]))

    def _send(self, path: str, body: Mapping[str, Any], done: Callable[[Any], str]) -> None:
        self._do(lambda: self._session.client.send("POST", path, body), done)

    def _do(self, act: Callable[[], Awaitable[Any]], done: Callable[[Any], str]) -> None:
        """Carry out an action in the background, and show the message that ``done`` makes of its result."""

        async def doing() -> None:
            try:
                answer = await act()
            except AcceldError as error:
                complain(self._app, error)
            else:
                self._app.notify(done(answer))

        start(self._app, doing, group="steer")

    def _warn(self, text: str) -> None:
        self._app.notify(text, severity="warning")


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a key, with the title and the explanation that the palette shows."""

    title: str
    help: str
    do: Callable[[Steering], None]
    needs: frozenset[str] = frozenset()
    """Context that the action needs: ``run``, ``live`` (a run that has not ended), ``candidate``, ``models``, ``best``,
    ``applied`` (a file that this console wrote), ``file`` (only a file, so that no daemon is needed).
    """


ACTIONS: Mapping[str, Action] = {
    "new_run": Action("New run", "choose a workload, see the estimate, start", Steering.new_run),
    "pause": Action(
        "Pause or resume", "stop before the next step; running work is finished", Steering.pause, frozenset(["live"])
    ),
    "cancel": Action(
        "Cancel run", "end the run when the work that is under way is done", Steering.cancel, frozenset(["live"])
    ),
    "pin": Action("Pin candidate", "keep the candidate in the beam", Steering.pin, frozenset(["live", "candidate"])),
    "veto": Action(
        "Veto candidate", "never keep the candidate in the beam", Steering.veto, frozenset(["live", "candidate"])
    ),
    "branch": Action(
        "Branch from candidate", "a parent of the next iteration", Steering.branch, frozenset(["live", "candidate"])
    ),
    "remeasure": Action(
        "Re-measure candidate",
        "evaluate the candidate again by the strict gate",
        Steering.remeasure,
        frozenset(["live", "candidate"]),
    ),
    "hint": Action("Hint", "send the planner a hint", Steering.hint, frozenset(["live", "models"])),
    "budget": Action("Budget", "change the run's cap", Steering.budget, frozenset(["live", "models"])),
    "apply_best": Action(
        "Apply the best",
        "write the best kernel over the file that the run began with",
        Steering.apply_best,
        frozenset(["best", "file"]),
    ),
    "undo_apply": Action(
        "Undo apply", "put the file back as it was before", Steering.undo_apply, frozenset(["applied", "file"])
    ),
}
"""Every action for keys and the palette, by name."""
