"""What is shown while a run goes on."""

import io

from acceld.cli.progress import PlainProgress, ProgressState
from acceld.events import Event, EventKind


def events(*pairs: tuple[EventKind, dict[str, object]]) -> list[Event]:
    """Events of run 1, in order."""
    return [Event(kind, 1, data, number, 0.0) for number, (kind, data) in enumerate(pairs, 1)]


STORY = events(
    (EventKind.RUN_CREATED, {"chip": "trn1", "backend": "simulator", "search": {"iterations": 4}}),
    (EventKind.CANDIDATE_WRITTEN, {"candidate": 1, "parent": None}),
    (EventKind.CANDIDATE_EVALUATED, {"candidate": 1, "status": "passed"}),
    (EventKind.BEST_CHANGED, {"latency_us": 1000.0, "percent_of_peak": 40.0}),
    (EventKind.ITERATION_STARTED, {"iteration": 1}),
    (EventKind.CANDIDATE_WRITTEN, {"candidate": 2, "parent": 1}),
    (EventKind.CANDIDATE_EVALUATED, {"candidate": 2, "status": "passed"}),
    (EventKind.CANDIDATE_WRITTEN, {"candidate": 3, "parent": 1}),
    (EventKind.BEST_CHANGED, {"latency_us": 800.0, "percent_of_peak": 50.0}),
)


def test_the_line_counts_candidates_and_not_the_baseline() -> None:
    state = ProgressState()
    assert [state.apply(event) for event in STORY] == [True] * len(STORY)
    assert not any(state.apply(event) for event in STORY)
    assert state.line() == "iteration 1/4 · 1 passed · 1 waiting · best ≈ 800 µs sim trn1 (1.25x) · 50.0 % of peak"


def test_a_pipe_gets_a_line_for_each_new_best() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    for event in STORY:
        progress.update(event)
    lines = stream.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in lines] == ["iteration 0/4", "iteration 1/4"]


def test_a_latency_is_measured_only_where_its_evaluation_says_so() -> None:
    state = ProgressState()
    state.apply(Event(EventKind.RUN_CREATED, 1, {"chip": "trn1", "backend": "neuron", "search": {"iterations": 4}}, 1))
    state.apply(Event(EventKind.BEST_CHANGED, 1, {"latency_us": 1000.0, "source": "simulated"}, 2))
    assert "best ≈ 1.00 ms sim trn1" in state.line()
    state.apply(Event(EventKind.BEST_CHANGED, 1, {"latency_us": 900.0, "source": "measured"}, 3))
    assert "best 900 µs trn1" in state.line()
