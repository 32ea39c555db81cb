"""Alerts, and the bytes that a terminal is sent for them."""

from __future__ import annotations

import pytest

from acceld.alerts import Alert, alert_of, announcement
from acceld.events import BestChanged, BudgetLevel, CandidateEvaluated, DeviceState, Event, EventData, RunStateChanged
from acceld.model import RunState, Status


@pytest.mark.parametrize(
    ("data", "subject", "text"),
    [
        (BestChanged(5, 80.0, 1.25, source="simulated"), None, ""),
        (BestChanged(5, 50.0, 2.0, source="simulated", improved=True), "win", "r3: c5 ≈ 50.0 µs sim, 2.00x"),
        (BestChanged(1, 100.0, 1.0), None, ""),
        (RunStateChanged(RunState.FAILED, "no key"), "end", "r3: failed: no key"),
        (RunStateChanged(RunState.PAUSED), None, ""),
        (BudgetLevel("run", 4.0, 5.0, 80.0), "budget", "$4.00 of $5.00"),
        (DeviceState("nc0", "sick", "canary"), "device", "nc0 sick: canary"),
        (
            CandidateEvaluated(7, 7, Status.SUSPECT, failure="below the floor"),
            "suspect",
            "c7 is suspiciously fast: below the floor",
        ),
        (CandidateEvaluated(7, 7, Status.PASSED), None, ""),
    ],
)
def test_an_event_tells_what_a_person_waits_for(data: EventData, subject: str | None, text: str) -> None:
    alert = alert_of(Event(data, 3))
    assert (alert.subject if alert else None) == subject
    assert alert is None or text in alert.text


def test_each_manner_has_its_escape_and_text_cannot_end_it() -> None:
    alert = Alert("win", "r1: c2;\x1b]52;c;evil\x07\nnext \x9d")
    assert announcement(alert, "off") == ""
    assert announcement(alert, "bell") == "\a"
    assert announcement(alert, "osc9") == "\a\x1b]9;acceld: new best kernel: r1: c2  ]52 c evil  next  \a"
    sent = announcement(alert, "osc777", in_tmux=True)
    assert sent.startswith("\a\x1bPtmux;\x1b\x1b]777;notify;acceld: new best kernel;r1: c2 ") and sent.endswith(
        "\x1b\\"
    )
