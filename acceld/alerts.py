"""What a person wants to hear of while looking elsewhere: a win, a budget level, a sick device, a cheat, an end.

The same events ring in the terminal UI and in ``acceld watch`` and call the hooks. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from acceld import figures
from acceld.events import Event, EventKind
from acceld.model import RunState, Status

Subject = Literal["win", "budget", "device", "suspect", "end"]
Manner = Literal["off", "bell", "osc9", "osc777"]

SICK = frozenset({"sick", "lost", "failed"})
TITLES: Mapping[Subject, str] = {
    "win": "new best kernel",
    "budget": "budget",
    "device": "device",
    "suspect": "suspect kernel",
    "end": "run ended",
}
BELL = "\a"


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to tell."""

    subject: Subject
    text: str

    @property
    def title(self) -> str:
        """What it is about."""
        return TITLES[self.subject]

    @property
    def bad(self) -> bool:
        """Whether something went wrong."""
        return self.subject in ("budget", "device", "suspect")


def alert_of(event: Event) -> Alert | None:
    """What an event tells; None for one that nobody waits for."""
    data, run = event.data, f"r{event.run}: " if event.run else ""
    match event.kind:
        case EventKind.BEST_CHANGED if data.get("speedup") is not None and data["speedup"] > 1:
            latency = figures.brief_latency(data.get("latency_us"), data["source"])
            return Alert("win", f"{run}c{data.get('candidate')} {latency}, {figures.speedup(data['speedup'])}")
        case EventKind.RUN_STATE if RunState(data["state"]).ended:
            return Alert("end", f"{run}{data['state']}" + (f": {data['message']}" if data.get("message") else ""))
        case EventKind.BUDGET_LEVEL:
            spent, cap = figures.usd(data.get("spent_usd")), figures.usd(data.get("cap_usd"))
            return Alert("budget", f"{run}{data.get('scope')} {spent} of {cap}")
        case EventKind.DEVICE_STATE if data.get("state") in SICK:
            reason = f": {data['reason']}" if data.get("reason") else ""
            return Alert("device", f"{data.get('device')} {data['state']}{reason}")
        case EventKind.CANDIDATE_EVALUATED if data["status"] == Status.SUSPECT:
            failure = data.get("failure") or {}
            reason = f": {failure['message']}" if failure.get("message") else ""
            return Alert("suspect", f"{run}c{data.get('candidate')} is too good to be believed{reason}")
    return None


def announcement(alert: Alert, manner: Manner, *, in_tmux: bool = False) -> str:
    """The characters that make a terminal tell of it: a bell, and with OSC a notification of the desktop.

    tmux hands an escape on only where it is wrapped, and ``allow-passthrough`` is on; the bell always goes through.
    """
    if manner == "off":
        return ""
    if manner == "bell":
        return BELL
    title, text = _plain(f"acceld: {alert.title}"), _plain(alert.text)
    escape = f"\x1b]9;{title}: {text}\a" if manner == "osc9" else f"\x1b]777;notify;{title};{text}\a"
    if in_tmux:
        escape = "\x1bPtmux;" + escape.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return BELL + escape


def _plain(text: str) -> str:
    """One line without control characters and without the sign that separates fields, at most 200 letters."""
    return "".join(" " if sign < " " or sign in ";\x7f" or "\x80" <= sign < "\xa0" else sign for sign in text)[:200]
