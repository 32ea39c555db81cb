"""The JSON form of events: what is stored and sent reads back as the same record."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.events import EventData, EventKind, InsightWritten, Steered, event_json, event_of, from_json, to_json
from acceld.store.rows import dump
from tests.acceld.event_records import event_data


def test_each_kind_has_one_record() -> None:
    assert sorted(record.kind for record in get_args(EventData)) == sorted(EventKind)


@given(event_data(st.text()))
def test_an_event_that_is_written_reads_back_equal(data: EventData) -> None:
    assert from_json(data.kind, json.loads(dump(to_json(data)))) == data


def test_keys_stand_as_they_always_did() -> None:
    """Check two keys that differ from their fields' names: an insight's kind, and the arguments of an action."""
    assert list(to_json(InsightWritten(38, "Hoist", "positive", 1.3))) == ["insight", "title", "kind", "speedup"]
    assert to_json(Steered("pin", "ann", "pinned", {"candidate": 7})) == {
        "action": "pin",
        "by": "ann",
        "result": "pinned",
        "candidate": 7,
    }


def test_what_a_newer_daemon_says_besides_is_left_out_and_what_an_older_one_does_not_has_its_default() -> None:
    row = {"kind": "candidate_written", "run": 1, "seq": 4, "at": 2.0, "data": {"candidate": 3, "colour": "red"}}
    data = {"candidate": 3, "parent": None, "plan": None, "iteration": 0, "sha256": "", "change": ""}
    assert event_json(event_of(row)) == row | {"data": data}


@pytest.mark.parametrize(
    ("kind", "data"), [("eclipse", {}), ("candidate_queued", {}), ("run_state", {"state": "asleep"})]
)
def test_an_event_that_does_not_fit_is_refused(kind: str, data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=kind):
        from_json(kind, data)
