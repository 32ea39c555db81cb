"""Turn events into alerts for a person who is not watching.

Five kinds of event give an alert: a new best kernel, a share of a cap that is spent, a sick device, a kernel
that is suspected of cheating, and the end of a run. The terminal UI, ``acceld watch`` and the hooks show the
same alerts. The functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from acceld import figures
from acceld.events import BestChanged, BudgetLevel, CandidateEvaluated, DeviceState, Event, RunStateChanged
from acceld.model import Status

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
    """A message for a person who is not watching, such as a better kernel or a sick device: its subject and its text."""

    subject: Subject
    text: str

    @property
    def title(self) -> str:
        """Return one line that names the subject."""
        return TITLES[self.subject]

    @property
    def bad(self) -> bool:
        """Tell whether the alert reports a problem."""
        return self.subject in ("budget", "device", "suspect")


def alert_of(event: Event) -> Alert | None:
    """Return the alert for an event; None for an event about which nobody is alerted."""
    run = f"r{event.run}: " if event.run else ""
    match event.data:
        case BestChanged() as best if best.improved:
            latency = figures.brief_latency(best.latency_us, best.source or "simulated")
            return Alert("win", f"{run}c{best.candidate} {latency}, {figures.speedup(best.speedup)}")
        case RunStateChanged(state, message) if state.ended:
            return Alert("end", f"{run}{state}" + (f": {message}" if message else ""))
        case BudgetLevel(scope, spent_usd, cap_usd):
            return Alert("budget", f"{run}{scope} {figures.usd(spent_usd)} of {figures.usd(cap_usd)}")
        case DeviceState(device, state, reason) if state in SICK:
            return Alert("device", f"{device} {state}" + (f": {reason}" if reason else ""))
        case CandidateEvaluated(status=Status.SUSPECT) as evaluated:
            reason = f": {evaluated.failure}" if evaluated.failure else ""
            return Alert("suspect", f"{run}c{evaluated.candidate} is suspiciously fast{reason}")
    return None


def announcement(alert: Alert, manner: Manner, *, in_tmux: bool = False) -> str:
    """Return the characters to write to a terminal so that it announces an alert.

    ``manner`` is the setting ``tui.notify``: ``off`` gives an empty text, ``bell`` the bell, ``osc9`` and
    ``osc777`` the bell and an escape sequence for a desktop notification. tmux forwards such a sequence only if
    it is wrapped (``in_tmux``) and tmux's option ``allow-passthrough`` is on.
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
    """Return a text cut to 200 characters, with spaces in place of control characters and of ``;``, which
    separates the fields of the escape sequence.
    """
    return "".join(" " if sign < " " or sign in ";\x7f" or "\x80" <= sign < "\xa0" else sign for sign in text)[:200]
