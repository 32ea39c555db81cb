"""Progress of a run on the terminal."""

import io

from acceld.cli.progress import PlainProgress, progress_line
from acceld.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateStarted,
    CandidateWritten,
    Event,
    EventData,
    IterationStarted,
    RunCreated,
    RunStateChanged,
    Tuning,
)
from acceld.model import RunState, Status
from acceld.tui.state import RunView

SEARCH = {"iterations": 4}
HAPPENED: list[EventData] = [
    RunCreated("silu", "trn1", "nki_legacy", "simulator", "rules", search=SEARCH),
    CandidateWritten(1),
    CandidateEvaluated(1, 1, Status.PASSED),
    BestChanged(1, 1000.0, percent_of_peak=40.0),
    IterationStarted(1),
    CandidateWritten(2, 1),
    CandidateEvaluated(2, 2, Status.PASSED),
    CandidateWritten(3, 1, iteration=1),
    BestChanged(2, 800.0, percent_of_peak=50.0),
]
STORY = [Event(data, 1, seq) for seq, data in enumerate(HAPPENED, 1)]


def test_the_line_counts_candidates_and_not_the_baseline() -> None:
    run = RunView(1)
    assert all(run.apply(event) for event in STORY)
    assert (
        progress_line(run)
        == "iteration 1/4 · 1 passed · 1 waiting · best ≈ 800 µs sim trn1 (1.25x tie) · 50.0 % of peak"
    )


def test_a_pipe_gets_a_line_for_each_new_best() -> None:
    stream = io.StringIO()
    progress = PlainProgress(1, stream)
    for event in (*STORY, *STORY):  # the second time nothing is new
        progress.update(event)
    lines = stream.getvalue().splitlines()
    assert [line.split(" · ")[0] for line in lines] == ["iteration 0/4", "iteration 1/4"]


def test_a_pipe_gets_a_line_about_a_tuning_at_its_begin_and_every_ten_seconds() -> None:
    stream = io.StringIO()
    progress = PlainProgress(1, stream)
    progress.update(Event(RunCreated("silu", "trn1", "nki_legacy", "simulator", "rules", search=SEARCH), 1, 1))
    progress.update(Event(RunStateChanged(RunState.RUNNING), 1, 2))
    for place in range(12):
        elapsed_s = 2.0 * place
        progress.update(Event(Tuning(1, place, 200, elapsed_s), 1, 3 + place, at=1_790_000_000.0 + elapsed_s))
    told = [line.split(" · ")[2] for line in stream.getvalue().splitlines()]
    assert told == [f"tuning: {timed} of 200 kernels timed, {2 * timed} s" for timed in (0, 5, 10)]


def test_a_latency_is_measured_only_where_its_evaluation_says_so() -> None:
    run = RunView(1)
    run.apply(Event(RunCreated("silu", "trn1", "nki_legacy", "neuron", "rules", search=SEARCH), 1, 1))
    run.apply(Event(BestChanged(1, 1000.0, source="simulated"), 1, 2))
    assert "best ≈ 1.00 ms sim trn1" in progress_line(run)
    run.apply(Event(BestChanged(1, 900.0, source="measured"), 1, 3))
    assert "best 900 µs trn1" in progress_line(run)


def test_a_candidate_that_leads_is_unconfirmed_until_it_is_verified() -> None:
    stream = io.StringIO()
    progress = PlainProgress(1, stream)
    leads: list[EventData] = [
        RunStateChanged(RunState.RUNNING),
        CandidateEvaluated(3, 3, Status.PASSED, 500.0, speedup=2.0, gate="search"),
        CandidateStarted(3, "sim0"),
    ]
    for event in (*STORY, *(Event(data, 1, seq, at=9.0) for seq, data in enumerate(leads, len(STORY) + 1))):
        progress.update(event)
    last = stream.getvalue().splitlines()[-1]
    assert " · verifying c3, 0 s · " in last and " · c3 2.00x unconfirmed · " in last
