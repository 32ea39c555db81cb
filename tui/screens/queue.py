"""Show the devices, what waits for them, and the bottleneck."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.containers import Container

from acceld import figures
from acceld.model import RunState
from acceld.tui.palette import styled
from acceld.tui.screens.base import ConsoleScreen
from acceld.tui.widgets.bars import bar, fitted
from acceld.tui.widgets.columns import Column, header, line
from acceld.tui.widgets.frame import Panel
from acceld.tui.widgets.lines import LineList
from acceld.tui.words import age, state_word

DEVICES = (
    Column("device", 14, keep=9, stretch=True),
    Column("state", 10, keep=8),
    Column("candidate", 10, keep=7),
    Column("run", 5, keep=5),
    Column("for", 5, keep=6, right=True),
    Column("done", 6, keep=2, right=True),
)
HOSTS = (
    Column("host", 16, keep=9),
    Column("state", 9, keep=8),
    Column("busy", 7, keep=7, right=True),
    Column("done", 6, keep=2, right=True),
    Column("why idle", 22, keep=5, stretch=True),
)
WAITING = (
    Column("candidate", 10, keep=9),
    Column("run", 5, keep=8),
    Column("plan", 16, keep=5, stretch=True),
    Column("waits", 6, keep=9, right=True),
)


class QueueScreen(ConsoleScreen):
    """Screen with the devices, what each one does, and the queue."""

    NAME = "queue"
    AUTO_FOCUS: ClassVar[str | None] = "#devices"
    WANTS = frozenset({"devices", "run"})
    AGES = ("devices", "waiting")
    BINDINGS: ClassVar[list[BindingType]] = []

    def body(self) -> Iterable[Any]:
        yield Panel(self._lanes, id="lanes")
        with Container(id="split"):
            yield LineList(id="devices")
            yield LineList(id="waiting", empty="Nothing waits.")

    def show(self) -> None:
        state, palette = self.session.state, self.palette
        devices = self.query_one("#devices", LineList)
        reported = state.answer.get("queue") or {}
        hosts = {host["host"]: host for host in reported.get("hosts") or ()}
        used = figures.core_use(reported)
        devices.border_title = " · ".join([f"Devices {len(state.devices)}", *used])
        if hosts:
            devices.border_title = f"Hosts {len(hosts)}"
            draw = partial(self._host, hosts)
            devices.show(list(hosts), draw, header=lambda w: header(HOSTS, w, palette.muted))
        else:
            unknown = "The daemon does not answer, so what its devices do is not known."
            idle = "No device is at work."
            if used_slots := reported.get("slots_in_use"):
                idle = f"No candidate is at work. Kernels that rules propose are timed in {figures.many(used_slots, 'slot')}."
            devices.empty = unknown if self.session.lost else self.nothing(idle)
            devices.show(sorted(state.devices), self._device, header=lambda w: header(DEVICES, w, palette.muted))
        waiting = self.query_one("#waiting", LineList)
        waiting.border_title = f"Waiting {len(state.queue)}"
        waiting.empty = "No candidate waits, only kernels of rules." if self._jobs() else "Nothing waits."
        waiting.show(list(state.queue)[:500], self._wait, header=lambda w: header(WAITING, w, palette.muted))
        self.query_one("#lanes").refresh()

    def _host(self, hosts: Mapping[str, Mapping[str, Any]], key: Hashable, width: int) -> Text:
        palette, host = self.palette, hosts[str(key)]
        state = "idle" if host["standing"] == "active" and not host["slots_in_use"] else host["standing"]
        colour = palette.state({"active": "busy", "idle": "idle"}.get(state, "sick"))
        cells = [
            (host["host"], palette.text),
            (state, colour),
            (f"{host['slots_in_use']}/{host['slots']}", palette.text),
            (str(host["done"]), palette.muted),
            (host["why_idle"], palette.muted),
        ]
        return line(HOSTS, cells, width)

    def _device(self, key: Hashable, width: int) -> Text:
        palette, app = self.palette, self.session
        device = app.state.devices.get(str(key))
        if device is None:  # the line belongs to the daemon that was shown before
            return Text("")
        cells = [
            (device.name, palette.text),
            (state_word(device.state), palette.state(device.state)),
            (f"c{device.candidate}" if device.candidate else device.reason or "—", palette.text),
            (f"r{device.run}" if device.run else "", palette.muted),
            (age(app.now - device.since) if device.since else "", palette.muted),
            (str(device.done), palette.muted),
        ]
        return line(DEVICES, cells, width)

    def _wait(self, key: Hashable, width: int) -> Text:
        palette, app = self.palette, self.session
        number = int(str(key))
        run, at = app.state.queue.get(number, (None, 0.0))
        view = app.state.views.get(run or 0)
        node = view.candidates.get(number) if view else None
        cells = [
            (f"c{number}", palette.text),
            (f"r{run}" if run else "", palette.muted),
            (view.title(node) if view and node else "", palette.muted),
            (age(app.now - at), palette.muted),
        ]
        return line(WAITING, cells, width)

    def _jobs(self) -> int:
        """Return the number of jobs that wait: candidates, and kernels that rules propose and that are to be timed."""
        state = self.session.state
        return max(len(state.queue), (state.answer.get("queue") or {}).get("waiting") or 0)

    def _lanes(self, width: int, height: int) -> Text:
        palette, app = self.palette, self.session
        queue = app.state.answer.get("queue") or {}
        busy = sum(1 for device in app.state.devices.values() if device.state == "busy")
        busy = max(busy, queue.get("slots_in_use") or 0)  # kernels that rules time have no device's name
        slots = max(len(app.state.devices), int(queue.get("slots") or 0), 1)
        if queue.get("hosts"):
            slots = max(queue["slots"], 1)
        views = app.state.views.values()
        calls = sum(len(view.running_calls) for view in views)
        waiting = len(app.state.queue)
        tuning = sum(view.state == RunState.RUNNING and bool(view.tuning) and not view.under_way for view in views)
        said = styled("bottleneck ", palette.muted).append(
            bottleneck(calls, busy, slots, waiting, tuning), palette.accent
        )
        text = Text("\n").join(said.wrap(self.app.console, width)).append("\n")
        room = max(8, min(30, width - 44))
        text.append("models    ", palette.muted).append(bar(calls, max(calls, 8), room), palette.primary)
        text.append(f"  {figures.many(calls, 'call')} under way\n")
        text.append("devices   ", palette.muted).append(bar(busy, slots, room), palette.primary)
        text.append(f"  {busy} of {slots} busy, {self._jobs()} waiting\n")
        level = queue.get("sandbox_level") or app.hello.get("sandbox_level")
        text.append("sandbox   ", palette.muted).append(f"{level or 'not reported'}\n")
        for view in sorted(views, key=lambda one: one.id):
            if view.state == RunState.PAUSED:
                why = " ".join(f"paused: {view.message}".splitlines()) if view.message else "paused"
                text.append(f"{f'r{view.id}':<10}", palette.muted).append(fitted(why, width - 10) + "\n", palette.warn)
            if doing := app.doing(view):
                text.append(f"{f'r{view.id}':<10}", palette.muted).append(doing)
                leader = view.leader
                text.append(f"  c{leader.id} leads, unconfirmed" if leader else "", palette.warn).append("\n")
        return text


def bottleneck(calls: int, busy: int, slots: int, waiting: int, tuning: int = 0) -> str:
    """Return in words what holds all other work up: the models, the evaluations, the rules, or nothing.

    ``tuning`` is the number of runs whose rules time kernels before they write plans.
    """
    if waiting and busy >= slots:
        return f"devices: {slots} of {slots} busy, {figures.many(waiting, 'candidate')} waiting"
    if waiting:
        return "dispatch: candidates wait although a device is free"
    if calls and not busy:
        return "models: no candidate to evaluate until they answer"
    if tuning:
        return "rules: they time kernels before they write plans"
    if calls:
        return "models"
    return "nothing waits" + (": the candidates under way decide what comes next" if busy else "")
