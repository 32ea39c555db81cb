"""The folds: replay, order, overlap with loaded rows, memory."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acceld.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateQueued,
    CandidateStarted,
    CandidateWritten,
    DaemonStarted,
    Event,
    EventData,
    IterationStarted,
    LlmCallFinished,
    LlmCallStarted,
    Notice,
    PlanWritten,
    RunCreated,
    RunStateChanged,
    Steered,
    Tuning,
)
from acceld.gains import Verdict
from acceld.model import RunState, Status
from acceld.tui.beam import Folding, tree_lines
from acceld.tui.console import KEPT_VIEWS, ConsoleView
from acceld.tui.screens.profile import by_line
from acceld.tui.screens.runs import COLUMNS, RunsScreen
from acceld.tui.state import Recent, RunView
from acceld.tui.widgets.columns import column_at
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
    counted = CandidateEvaluated | LlmCallFinished | BestChanged
    assert not any(view.apply(event) for event in SCENE if isinstance(event.data, counted))
    assert view == IN_ORDER


def test_the_view_agrees_with_the_events_it_was_made_from() -> None:
    evaluated = [event.data for event in SCENE if isinstance(event.data, CandidateEvaluated)]
    assert IN_ORDER.counts.total() == len(evaluated) == len(IN_ORDER.candidates)
    assert IN_ORDER.waiting == 0
    assert IN_ORDER.best is not None
    latencies = [data.latency_us for data in evaluated if data.latency_us]
    assert IN_ORDER.best.latency_us == min(latencies)
    path = IN_ORDER.path(IN_ORDER.best.candidate)
    assert path[0] == 1 and path[-1] == IN_ORDER.best.candidate
    assert all(IN_ORDER.candidates[b].parent == a for a, b in itertools.pairwise(path))
    assert IN_ORDER.state == "finished" and IN_ORDER.running_calls == {}


def test_a_second_result_replaces_the_first_and_an_older_one_does_not() -> None:
    def result(seq: int, status: Status) -> Event:
        return Event(CandidateEvaluated(7, 7, status, 1.0), 1, seq)

    view = folded([result(5, Status.UNTESTED), result(9, Status.PASSED), result(6, Status.UNTESTED)])
    assert dict(view.counts) == {"passed": 1}


def test_rows_loaded_late_do_not_undo_newer_events() -> None:
    view = RunView(1)
    row: dict[str, Any] = {"id": 3, "parent": 1, "plan": 1, "iteration": 1, "sha256": "ab", "state": "queued"}
    view.apply(Event(CandidateEvaluated(3, 3, Status.PASSED, 2.0), 1, 9))
    view.load_candidate(row, seq=5)
    assert view.candidates[3].phase == "evaluated" and view.candidates[3].latency_us == 2.0
    assert view.candidates[3].parent == 1
    view.load_candidate(row | {"status": "rejected", "evaluation": 4}, seq=12)
    assert dict(view.counts) == {"rejected": 1}


def test_events_of_other_runs_are_ignored() -> None:
    view = RunView(2)
    assert not any(view.apply(event) for event in SCENE)
    assert view == RunView(2)


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 12))
def test_recent_holds_the_newest_of_what_it_was_given(seqs: list[int], limit: int) -> None:
    recent = Recent(limit)
    for seq in seqs:
        recent.add(Event(Notice("info", "text"), seq=seq))
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
    written = [one for one in IN_ORDER.candidates.values() if one.parent is not None]
    assert console.runs[1].candidates == len(written) == len(IN_ORDER.candidates) - 1, "no baseline, as in the history"
    assert console.runs[1].state == "finished" and not console.queue
    assert {device.state for device in console.devices.values()} == {"idle"}


def test_memory_is_bounded_by_what_is_kept_for_each_candidate() -> None:
    tracemalloc.start()
    view = RunView(1)
    count = 20_000
    for number in range(1, count + 1):
        view.apply(Event(CandidateWritten(number, number // 50 or None), 1, 2 * number))
        view.apply(Event(CandidateEvaluated(number, number, Status.PASSED), 1, 2 * number + 1))
        view.apply(Event(Notice("info", "x" * 200), 1, 3 * count + number))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / count < 700


def test_a_latency_is_measured_only_where_its_evaluation_says_so() -> None:
    view = RunView(1)
    view.apply(Event(RunCreated("silu", "trn1", "nki_legacy", "neuron", "rules"), 1, 1))
    evaluated = CandidateEvaluated(1, 1, Status.PASSED, 2.0)
    view.apply(Event(replace(evaluated, source="simulated"), 1, 3))
    assert view.source == "simulated"
    view.apply(Event(replace(evaluated, source="measured"), 1, 2))
    assert view.source == "simulated", "an older event changes nothing"
    view.apply(Event(replace(evaluated, source="measured"), 1, 4))
    assert view.source == "measured"


def test_only_what_passed_beyond_a_tie_is_a_win() -> None:
    run = RunView(1)
    happened: list[EventData] = [
        RunCreated("silu", "trn1", "nki_legacy", "simulator", "rules"),
        *(CandidateWritten(number, None if number == 1 else 1) for number in (1, 2, 3, 4)),
        CandidateEvaluated(1, 1, Status.PASSED, 1000.0),
        CandidateEvaluated(2, 2, Status.PASSED, 800.0, improved=False),
        CandidateEvaluated(3, 3, Status.PASSED, 500.0, improved=True),
        CandidateEvaluated(4, 4, Status.UNTESTED, 400.0, improved=False),
    ]
    for seq, data in enumerate(happened, 1):
        run.apply(Event(data, 1, seq))
    assert [number for number in run.candidates if run.is_win(run.candidates[number])] == [3]


def test_a_win_over_the_parent_is_none_over_the_baseline() -> None:
    run = RunView(1)
    happened: list[EventData] = [
        RunCreated("rmsnorm_cpu", "host", "c", "cpu", "rules"),
        *(CandidateWritten(number, None if number == 1 else 1) for number in (1, 2, 3)),
        CandidateEvaluated(1, 1, Status.PASSED, 1000.0, source="measured"),
        CandidateEvaluated(2, 2, Status.PASSED, 990.0, source="measured", improved=False, parent_improved=True),
        CandidateEvaluated(3, 3, Status.PASSED, 500.0, source="measured", improved=True, parent_improved=False),
        BestChanged(3, 500.0, 2.0, source="measured", improved=True),
    ]
    for seq, data in enumerate(happened, 1):
        run.apply(Event(data, 1, seq))
    assert run.best is not None and run.best.verdict is Verdict.CERTAIN
    assert [number for number in run.candidates if run.gained(run.candidates[number])] == [2]
    assert [number for number in run.candidates if run.is_win(run.candidates[number])] == [3]


def test_evaluations_under_way_are_counted_with_their_time_and_a_leader_is_unconfirmed_until_the_strict_gate() -> None:
    run = RunView(1)
    happened: list[EventData] = [
        RunCreated("silu", "trn1", "nki_legacy", "simulator", "rules"),
        RunStateChanged(RunState.RUNNING),
        CandidateWritten(1),
        CandidateEvaluated(1, 1, Status.PASSED, 1000.0, gate="strict"),
        BestChanged(1, 1000.0, 1.0),
        IterationStarted(1),
        *(CandidateWritten(number, 1, iteration=1) for number in (2, 3, 4)),
        CandidateEvaluated(2, 2, Status.PASSED, 600.0, gate="search"),
        CandidateStarted(3, "sim0"),
        CandidateQueued(4),
    ]
    for seq, data in enumerate(happened, 1):
        run.apply(Event(data, 1, seq, at=100.0 + seq))
    assert run.doing(151.0) == "evaluating 2 of 3, 40 s"
    assert run.unconfirmed(run.candidates[2]) and not run.unconfirmed(run.candidates[1])
    for seq, (latency_us, source, leads) in enumerate(
        (
            (996.0, "simulated", False),
            (994.0, "simulated", True),
            (996.0, "measured", True),
            (600.0, "simulated", True),
        ),
        11,
    ):
        run.apply(Event(CandidateEvaluated(2, seq, Status.PASSED, latency_us, gate="search", source=source), 1, seq))
        assert run.unconfirmed(run.candidates[2]) is leads, "a simulated step this small asks for no strict gate"
    run.apply(Event(CandidateEvaluated(2, 3, Status.PASSED, 600.0, gate="strict"), 1, 20))
    run.apply(Event(CandidateEvaluated(3, 4, Status.TIMEOUT), 1, 21))
    assert run.doing(160.0) == "1 waiting" and not run.unconfirmed(run.candidates[2])


def test_a_console_opened_in_the_middle_knows_what_is_under_way_and_since_when() -> None:
    run = RunView(1)
    made = {"workload": "silu", "chip": "trn1", "api": "nki_legacy", "backend": "simulator", "proposer": "rules"}
    run.load_run({"id": 1, "spec": made, "state": "running", "iteration": 1}, 40)
    row = {
        "id": 2,
        "iteration": 1,
        "status": "passed",
        "gate": "search",
        "latency_us": 60.0,
        "evaluation": 5,
        "started_at": 100.0,
    }
    run.load_candidate(row | {"state": "running"}, 40)
    run.load_candidate(row | {"id": 3, "state": "done"}, 40)
    assert run.doing(140.0) == "verifying c2, 40 s"
    run.forget_work()  # the connection is lost, and comes back before anything has happened
    assert run.doing(140.0) == ""
    run.load_candidate(row | {"state": "running"}, 40)
    assert run.doing(150.0) == "verifying c2, 50 s"


def test_a_run_says_what_it_waits_for() -> None:
    run = RunView(1)
    seq = iter(range(1, 100))

    def reported(*happened: EventData) -> str:
        for data in happened:
            run.apply(Event(data, 1, number := next(seq), at=100.0 + number))
        return run.doing(120.0).partition(",")[0]

    def leads() -> int | None:
        return run.leader.id if run.leader else None

    assert reported(RunCreated("silu", "trn1", "nki_legacy", "simulator", "rules")) == ""
    assert reported(RunStateChanged(RunState.RUNNING), CandidateWritten(1), CandidateStarted(1, "sim0")) == (
        "evaluating the baseline"
    )
    reported(
        CandidateEvaluated(1, 1, Status.PASSED, 1000.0, gate="strict"), BestChanged(1, 1000.0), IterationStarted(1)
    )
    assert reported(LlmCallStarted(1, "planner", "m"), LlmCallStarted(2, "planner", "m")) == "2 model calls"
    two = (CandidateWritten(2, 1, iteration=1), CandidateWritten(3, 1, iteration=1))
    assert reported(*two, CandidateStarted(2, "sim0")) == "evaluating 1 of 2"
    timed = (CandidateEvaluated(2, 2, Status.UNTESTED, 700.0), CandidateEvaluated(3, 3, Status.UNTESTED, 800.0))
    assert reported(*timed, CandidateStarted(3, "sim1"), CandidateStarted(2, "sim0")) == "checking c2"
    assert run.doing(120.0).startswith("checking c2, c3 on data, ") and leads() is None
    passed = (CandidateEvaluated(2, 4, Status.PASSED, 700.0, gate="search"), CandidateEvaluated(3, 5, Status.TIMEOUT))
    assert reported(*passed, CandidateStarted(2, "sim0")) == "verifying c2"
    assert leads() == 2
    reported(CandidateEvaluated(2, 6, Status.PASSED, 700.0, gate="strict"), BestChanged(2, 700.0))
    assert leads() is None


def test_a_run_whose_rules_time_kernels_says_how_many_and_for_how_long_in_any_order_of_events() -> None:
    state = state_event(2, RunState.RUNNING)
    reports = [Tuning(1, 0, 200, 0.0), Tuning(1, 34, 200, 40.0)]
    events = [state, *(Event(data, 1, seq, at=100.0 + data.elapsed_s) for seq, data in enumerate(reports, 3))]
    for order in itertools.permutations(events):
        assert folded(list(order)).doing(145.0) == "tuning: 34 of 200 kernels timed, 45 s"
    ended = [*events, Event(Tuning(1, 40, 200, 50.0, ended=True), 1, 5, at=150.0)]
    again = [*events, state_event(6, RunState.RUNNING)]  # another daemon has taken the run
    for told in (ended, again, [*events, state_event(6, RunState.FAILED)]):
        assert {folded(list(order)).doing(160.0) for order in itertools.permutations(told)} == {""}
    lost = folded(events)
    lost.forget_work()
    assert lost.doing(145.0) == ""


def test_a_console_opened_while_models_are_asked_knows_that_from_the_queue() -> None:
    console = ConsoleView()
    view = console.open(1)
    view.apply(state_event(3, RunState.RUNNING))
    asked = {"calls": [{"call": 5, "run": 1, "role": "planner", "model": "m", "started_at": 100.0}]}
    console.take_queue(asked)
    assert view.doing(112.0) == "1 model call, 12 s" and "run 1" in console.dirty
    view.apply(Event(LlmCallFinished(5, "planner", "m", "answered"), 1, 9))
    console.take_queue(asked)  # an answer that was under way while the call ended
    assert view.doing(120.0) == ""


def steered(seq: int, action: str, result: str = "") -> Event:
    return Event(Steered(action, "me", result), 1, seq)


def state_event(seq: int, state: RunState) -> Event:
    return Event(RunStateChanged(state), 1, seq)


def test_a_cancelled_run_is_cancelling_until_it_has_ended_in_any_order_of_events() -> None:
    going = [state_event(3, RunState.RUNNING), steered(5, "cancel", "ends once its running evaluations are done")]
    ended = [*going, state_event(9, RunState.CANCELLED)]
    again = [*ended, state_event(12, RunState.QUEUED)]
    for events, word in ((going, "cancelling"), (ended, "cancelled"), (again, "queued")):
        assert {folded(list(order)).state for order in itertools.permutations(events)} == {word}
    assert (
        folded([state_event(3, RunState.RUNNING), steered(5, "cancel", "refused: it has just ended")]).state
        == "running"
    )


def test_the_list_of_runs_says_cancelling_too_and_a_row_can_say_it() -> None:
    console = ConsoleView()
    console.apply(Event(RunCreated("silu", "trn1", "nki_legacy", "simulator", "rules"), 1, 1))
    console.apply(state_event(2, RunState.RUNNING))
    console.apply(steered(3, "cancel"))
    assert console.runs[1].state == "cancelling"
    console.apply(state_event(4, RunState.CANCELLED))
    console.apply(steered(5, "cancel"))
    assert console.runs[1].state == "cancelled"
    view = RunView(2)
    spec = {"workload": "silu", "chip": "trn1", "api": "nki_legacy", "backend": "simulator", "proposer": "rules"}
    view.load_run({**spec, "state": "cancelling"}, seq=7)
    assert view.state == "cancelling" and not view.ended


def test_the_daemons_answer_replaces_what_events_told_of_devices_and_queue() -> None:
    console = ConsoleView()
    console.open(1)
    for data in (CandidateWritten(7), CandidateQueued(7), CandidateStarted(7, "simulator 0"), CandidateQueued(8)):
        console.apply(Event(data, 1, console.seq + 1, at=50.0))
    console.take_queue(
        {
            "running": [{"candidate": 9, "run": 2, "device": "simulator 1", "started_at": 40.0}],
            "waiting": [{"candidate": 10, "run": 2, "created_at": 41.0}],
        }
    )
    devices = {name: (one.state, one.run, one.candidate, one.since) for name, one in console.devices.items()}
    assert devices == {"simulator 0": ("idle", None, None, 50.0), "simulator 1": ("busy", 2, 9, 40.0)}
    assert list(console.queue.items()) == [(10, (2, 41.0))]


def test_nothing_of_a_dead_daemons_work_is_left_when_the_next_one_starts() -> None:
    console = ConsoleView()
    view = console.open(1)
    for data in (RunStateChanged(RunState.RUNNING), CandidateWritten(7), CandidateStarted(7, "simulator 0")):
        console.apply(Event(data, 1, console.seq + 1, at=50.0))
    console.apply(Event(LlmCallStarted(1, "planner", "m"), 1, console.seq + 1))
    assert view.doing(60.0) == "evaluating the baseline, 10 s" and console.devices
    console.apply(Event(DaemonStarted("0.1.0", 1, "L3"), None, console.seq + 1))
    assert (view.doing(60.0), console.devices, console.queue, view.running_calls) == ("1 waiting", {}, {}, {})


def rule_run(latencies: dict[int, float], *, best: int, worth: Verdict, state: RunState) -> RunView:
    """Return a run of rules: baseline c1 of 100 us, and children of one plan with their latencies."""
    events: list[EventData] = [CandidateWritten(1), CandidateEvaluated(1, 1, Status.PASSED, 100.0)]
    events.append(PlanWritten(7, 1, 1, 0, "widen tiles, line 15", "widen_tiles"))
    for number, us in latencies.items():
        events.append(CandidateWritten(number, 1, 7, 1, change=f"{64 * number} columns"))
        events.append(CandidateEvaluated(number, number, Status.PASSED, us, speedup=100 / us))
    events.append(BestChanged(1, 100.0, 1.0))
    if best != 1:
        events.append(BestChanged(best, latencies[best], 100 / latencies[best], verdict=worth))
    events.append(RunStateChanged(state))
    return folded([Event(data, 1, seq) for seq, data in enumerate(events, 1)])


def test_attempts_of_one_plan_are_told_apart_by_their_parameter_which_comes_first() -> None:
    run = rule_run({2: 50.0, 3: 60.0}, best=2, worth=Verdict.CERTAIN, state=RunState.RUNNING)
    titles = [run.title(one) for one in run.candidates.values()]
    assert titles == ["baseline", "128 columns: widen tiles, l. 15", "192 columns: widen tiles, l. 15"]
    late = RunView(1)
    late.load_candidate({"id": 2, "parent": 1, "plan": 7, "change": "128 columns"}, seq=1)
    assert late.candidates[2].change == "128 columns", "a row says it too"


def test_a_run_that_has_ended_begins_with_its_verdict() -> None:
    def verdict(best: int, worth: Verdict, state: RunState) -> str:
        return rule_run({2: 50.0, 3: 99.0}, best=best, worth=worth, state=state).verdict("f9")

    assert verdict(2, Verdict.CERTAIN, RunState.RUNNING) == ""
    assert verdict(2, Verdict.CERTAIN, RunState.FINISHED) == ("2.00x by 128 columns: widen tiles, l. 15; f9 applies it")
    assert verdict(3, Verdict.TIE, RunState.CANCELLED).startswith("1.01x tie by ")
    assert verdict(3, Verdict.TIE, RunState.CANCELLED).endswith("; no win")
    likely = verdict(3, Verdict.LIKELY, RunState.FINISHED)
    assert likely.startswith("1.01x likely by") and likely.endswith("f9 applies it"), "as acceld apply does"
    assert verdict(1, Verdict.TIE, RunState.FINISHED) == "no gain: nothing faster than the baseline passed"
    assert folded([state_event(1, RunState.FAILED)]).verdict("f9") == "no verdict: no kernel passed"


def test_siblings_of_equal_latency_are_one_line_that_says_so() -> None:
    latencies = {2: 50.0, 3: 50.1, 4: 50.2, 5: 51.0, 6: 70.0}
    run = rule_run(latencies, best=2, worth=Verdict.CERTAIN, state=RunState.RUNNING)
    lines = tree_lines(run, Folding())
    assert [one.candidate for one in lines if not one.folded] == [1, 2, 5, 6]
    (rest,) = [one for one in lines if one.folded]
    assert (rest.folded, rest.note) == (2, "2 like c2")
    unfolded = tree_lines(run, Folding(unfolded={1}))
    assert [one.candidate for one in unfolded] == [1, 2, 3, 4, 5, 6]


def test_a_hot_line_is_listed_once_with_all_its_engines() -> None:
    spots = [{"line": 9, "engine": "dma", "busy_us": 3.0}, {"line": 4, "engine": "pe", "busy_us": 4.0}]
    spots += [{"line": 9, "engine": "act", "busy_us": 2.0}, {"line": 9, "engine": "dma", "busy_us": 1.0}]
    assert by_line(spots) == [(9, 6.0, "dma+act"), (4, 4.0, "pe")]


def test_a_click_on_a_header_finds_its_column() -> None:
    found = [column_at(COLUMNS, 100, cell) for cell in (0, 5, 6)]
    assert [one.title if one else None for one in found] == ["run", None, None]
    wide = {one.title for cell in range(100) if (one := column_at(COLUMNS, 100, cell))}
    assert {"x", "% peak", "state"} <= wide and set(RunsScreen.SORTED_BY.values()) <= set(RunsScreen.SORTS)
    assert set(RunsScreen.SORTED_BY) <= {one.title for one in COLUMNS}
