"""What rings, and what a terminal is sent for it."""

from __future__ import annotations

from typing import Any

import pytest

from acceld.alerts import Alert, alert_of, announcement
from acceld.events import Event, EventKind


@pytest.mark.parametrize(
    ("kind", "data", "subject", "text"),
    [
        (
            EventKind.BEST_CHANGED,
            {"candidate": 5, "latency_us": 80.0, "speedup": 1.25, "source": "simulated"},
            "win",
            "r3: c5 ≈ 80.0 µs sim, 1.25x",
        ),
        (EventKind.BEST_CHANGED, {"candidate": 1, "latency_us": 100.0, "speedup": 1.0}, None, ""),
        (EventKind.RUN_STATE, {"state": "failed", "message": "no key"}, "end", "r3: failed: no key"),
        (EventKind.RUN_STATE, {"state": "paused"}, None, ""),
        (EventKind.BUDGET_LEVEL, {"scope": "run", "spent_usd": 4.0, "cap_usd": 5.0}, "budget", "$4.00 of $5.00"),
        (EventKind.DEVICE_STATE, {"device": "nc0", "state": "sick", "reason": "canary"}, "device", "nc0 sick: canary"),
        (
            EventKind.CANDIDATE_EVALUATED,
            {"candidate": 7, "status": "suspect", "failure": {"message": "below the floor"}},
            "suspect",
            "c7 is too good to be believed: below the floor",
        ),
        (EventKind.CANDIDATE_EVALUATED, {"candidate": 7, "status": "passed"}, None, ""),
    ],
)
def test_an_event_tells_what_a_person_waits_for(
    kind: EventKind, data: dict[str, Any], subject: str | None, text: str
) -> None:
    alert = alert_of(Event(kind, 3, data))
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
