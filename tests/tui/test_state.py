"""The folds: replay, order, overlap with loaded rows, memory."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acceld.events import Event, EventKind
from acceld.tui.console import KEPT_VIEWS, ConsoleView
from acceld.tui.state import Recent, RunView
from tests.tui.scene import events_of

SCENE = list(events_of(1, iterations=3, ends="finished"))


def folded(events: list[Event]) -> RunView:
    view = RunView(1)
    for event in events:
        view.apply(event)
    return view


IN_ORDER = folded(SCENE)


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(SCENE), max_size=40))
def test_any_order_and_any_repetition_of_events_give_the_same_view(draw: random.Random, again: list[Event]) -> None:
    mixed = SCENE + again
    draw.shuffle(mixed)
    assert folded(mixed) == IN_ORDER


def test_replaying_a_run_reports_no_change_for_candidates_calls_and_bests() -> None:
    view = folded(SCENE)
    counted = {EventKind.CANDIDATE_EVALUATED, EventKind.LLM_CALL_FINISHED, EventKind.BEST_CHANGED}
    assert not any(view.apply(event) for event in SCENE if event.kind in counted)
    assert view == IN_ORDER


def test_the_view_agrees_with_the_events_it_was_made_from() -> None:
    evaluated = [event for event in SCENE if event.kind is EventKind.CANDIDATE_EVALUATED]
    assert IN_ORDER.counts.total() == len(evaluated) == len(IN_ORDER.candidates)
    assert IN_ORDER.waiting == 0
    assert IN_ORDER.best is not None
    latencies = [e.data["latency_us"] for e in evaluated if e.data["latency_us"]]
    assert IN_ORDER.best.latency_us == min(latencies)
    path = IN_ORDER.path(IN_ORDER.best.candidate)
    assert path[0] == 1 and path[-1] == IN_ORDER.best.candidate
    assert all(IN_ORDER.candidates[b].parent == a for a, b in itertools.pairwise(path))
    assert IN_ORDER.state == "finished" and IN_ORDER.running_calls == {}


def test_a_second_verdict_replaces_the_first_and_an_older_one_does_not() -> None:
    def verdict(seq: int, status: str) -> Event:
        return Event(EventKind.CANDIDATE_EVALUATED, 1, {"candidate": 7, "status": status, "latency_us": 1.0}, seq)

    view = folded([verdict(5, "untested"), verdict(9, "passed"), verdict(6, "untested")])
    assert dict(view.counts) == {"passed": 1}


def test_rows_loaded_late_do_not_undo_newer_events() -> None:
    view = RunView(1)
    row: dict[str, Any] = {"id": 3, "parent": 1, "plan": 1, "iteration": 1, "sha256": "ab", "state": "queued"}
    view.apply(Event(EventKind.CANDIDATE_EVALUATED, 1, {"candidate": 3, "status": "passed", "latency_us": 2.0}, 9))
    view.load_candidate(row, seq=5)
    assert view.candidates[3].phase == "judged" and view.candidates[3].latency_us == 2.0
    assert view.candidates[3].parent == 1
    view.load_candidate(row | {"status": "rejected"}, seq=12)
    assert dict(view.counts) == {"rejected": 1}


def test_events_of_other_runs_are_ignored() -> None:
    view = RunView(2)
    assert not any(view.apply(event) for event in SCENE)
    assert view == RunView(2)


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 12))
def test_recent_holds_the_newest_of_what_it_was_given(seqs: list[int], limit: int) -> None:
    recent = Recent(limit)
    for seq in seqs:
        recent.add(Event(EventKind.NOTICE, seq=seq))
    assert [event.seq for event in recent] == sorted(set(seqs))[-limit:]


def test_the_console_takes_each_event_once_and_forgets_runs_not_looked_at() -> None:
    console = ConsoleView()
    for run in range(1, 8):
        console.open(run)
    assert list(console.views) == list(range(8 - KEPT_VIEWS, 8))
    console.open(1)
    for event in SCENE * 2:
        console.apply(event)
    assert console.views[1] == IN_ORDER
    assert console.runs[1].candidates == len(IN_ORDER.candidates)
    assert console.runs[1].state == "finished" and not console.queue
    assert {device.state for device in console.devices.values()} == {"idle"}


def test_memory_is_bounded_by_what_is_kept_for_each_candidate() -> None:
    tracemalloc.start()
    view = RunView(1)
    count = 20_000
    for number in range(1, count + 1):
        view.apply(
            Event(EventKind.CANDIDATE_WRITTEN, 1, {"candidate": number, "parent": number // 50 or None}, 2 * number)
        )
        view.apply(Event(EventKind.CANDIDATE_EVALUATED, 1, {"candidate": number, "status": "passed"}, 2 * number + 1))
        view.apply(Event(EventKind.NOTICE, 1, {"level": "info", "text": "x" * 200}, 3 * count + number))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / count < 700


def test_a_latency_is_measured_only_where_its_evaluation_says_so() -> None:
    view = RunView(1)
    created = {"workload": "silu", "chip": "trn1", "api": "nki_legacy", "backend": "neuron", "proposer": "rules"}
    view.apply(Event(EventKind.RUN_CREATED, 1, created, 1))
    told = {"candidate": 1, "status": "passed", "latency_us": 2.0}
    view.apply(Event(EventKind.CANDIDATE_EVALUATED, 1, told | {"source": "simulated"}, 3))
    assert view.source == "simulated"
    view.apply(Event(EventKind.CANDIDATE_EVALUATED, 1, told | {"source": "measured"}, 2))
    assert view.source == "simulated", "an older event changes nothing"
    view.apply(Event(EventKind.CANDIDATE_EVALUATED, 1, told | {"source": "measured"}, 4))
    assert view.source == "measured"
