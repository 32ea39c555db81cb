"""A run's outcome: a speed-up inside the tie is no win, counts have every status, the chain of wins is in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acceld.model import SIMULATED_TIE_PERCENT, Attempt, Candidate, Plan, Run, RunSpec, RunState, Source, Status
from acceld.search.outcome import outcome
from tests.acceld.search.test_beam import candidate


def chain(*latencies: float) -> list[Candidate]:
    """Return candidates 1, 2, ..., each the parent of the next."""
    return [
        replace(candidate(number, latency), parent=number - 1 or None, plan=number if number > 1 else None)
        for number, latency in enumerate(latencies, 1)
    ]


def plans(**classes: str) -> dict[int, Plan]:
    return {
        int(number[1:]): Plan(1, 1, 1, 0, "", title=f"plan {number}", rule=kind, change_class=kind, id=int(number[1:]))
        for number, kind in classes.items()
    }


def finished(best: int) -> Run:
    return Run(1, RunSpec("toy"), RunState.FINISHED, 0.0, 0.0, 9.0, baseline=1, best=best)


def test_a_speedup_beyond_the_tie_is_an_improvement_whatever_the_steps_changed() -> None:
    found = outcome(finished(3), chain(100.0, 80.0, 70.0), plans(p2="fusion", p3="tile_width"))
    assert found.tie_band == SIMULATED_TIE_PERCENT and found.improved
    assert [(win.candidate, win.rule) for win in found.wins] == [(2, "fusion"), (3, "tile_width")]


def test_a_speedup_inside_the_tie_is_no_improvement() -> None:
    found = outcome(finished(2), chain(100.0, 80.0), plans(p2="tile_width"))
    assert found.speedup == 1.25 and not found.improved


def test_a_latency_without_a_validated_interval_is_no_win() -> None:
    def unvalidated(one: Candidate) -> Candidate:
        assert one.evaluation is not None and one.evaluation.profile is not None
        profile = replace(one.evaluation.profile, interval_percent=None)
        return replace(one, evaluation=replace(one.evaluation, profile=profile))

    root, fast = chain(100.0, 20.0)
    for pair in ([unvalidated(root), fast], [root, unvalidated(fast)]):
        found = outcome(finished(2), pair, {})
        assert (found.speedup, found.improved, found.tie_band, found.tie_reason) == (5.0, False, None, "unvalidated")
        assert not found.wins[0].improved
    assert outcome(finished(1), [root, unvalidated(fast)], {}).uncounted == 2
    for pair in ([unvalidated(root), unvalidated(fast)], [root, replace(fast, evaluation=None)], [root]):
        assert outcome(finished(1), pair, {}).uncounted is None


def test_the_notes_are_those_of_the_best_kernel_s_lines_that_the_baseline_lacks() -> None:
    def noted(one: Candidate, *notes: str) -> Candidate:
        assert one.evaluation is not None and one.evaluation.profile is not None
        return replace(one, evaluation=replace(one.evaluation, profile=replace(one.evaluation.profile, notes=notes)))

    root, fast = chain(100.0, 50.0)
    pair = [noted(root, "line 3: known"), noted(fast, "line 7: known", "line 9: refused once", "of the whole kernel")]
    assert outcome(finished(2), pair, {}).notes == ("line 9: refused once",)


def test_latencies_of_two_models_are_no_win() -> None:
    root, fast = chain(100.0, 20.0)
    assert root.evaluation is not None and root.evaluation.profile is not None
    profile = replace(root.evaluation.profile, model="8")
    found = outcome(finished(2), [replace(root, evaluation=replace(root.evaluation, profile=profile)), fast], {})
    assert (found.improved, found.tie_reason) == (False, "two performance models")


def test_counts_leave_the_baseline_out_and_hold_every_status() -> None:
    found = outcome(finished(1), chain(100.0), {})
    assert found.counts == dict.fromkeys([status.value for status in Status], 0)
    assert found.speedup == 1.0 and not found.improved and found.elapsed_s == 9.0


def test_a_run_without_a_passed_baseline_has_no_speedup() -> None:
    failed = candidate(1, 100.0, status=Status.COMPILE_ERROR)
    found = outcome(replace(finished(1), best=None), [failed], {})
    assert found.speedup is None and found.baseline_latency_us is None and not found.improved


def test_proposals_without_code_are_counted_by_reason_most_frequent_first() -> None:
    made = plans(p2="fusion", p3="tile_width", p4="tile_width")
    refused = [
        Attempt(2, 0, None, "it is read later"),
        Attempt(3, 0, None, "too wide"),
        Attempt(4, 0, None, "too wide"),
    ]
    found = outcome(finished(1), chain(100.0), made, refused)
    assert [(one.rule, one.reason, one.count, one.title, one.parent) for one in found.refusals] == [
        ("tile_width", "too wide", 2, "plan p3", 1),
        ("fusion", "it is read later", 1, "plan p2", 1),
    ]


def measured_chain(*steps: tuple[float, float, float]) -> list[Candidate]:
    """Return candidates measured interleaved with their parents: ratio and interval of each step."""
    (root,) = chain(100.0)
    assert root.evaluation is not None and root.evaluation.profile is not None
    timed = replace(root.evaluation.profile, source=Source.MEASURED)
    made = [replace(root, evaluation=replace(root.evaluation, profile=timed))]
    for number, (ratio, low, high) in enumerate(steps, 2):
        one = chain(*[100.0] * number)[-1]
        assert one.evaluation is not None and one.evaluation.profile is not None
        kernel = replace(one.kernel, text=f"kernel {number}")
        turn = {"against": made[-1].kernel.sha256, "ratio": ratio, "interval": [low, high], "win": low > 1}
        profile = replace(one.evaluation.profile, source=Source.MEASURED, latency_us=50.0, details={"paired": [turn]})
        made.append(replace(one, kernel=kernel, evaluation=replace(one.evaluation, profile=profile)))
    return made


def test_steps_measured_interleaved_are_multiplied_and_their_widths_add_in_squares() -> None:
    found = outcome(finished(2), measured_chain((2.0, 1.8, 2.2)), {}).paired
    assert found is not None
    assert (found.steps, found.ratio, found.low, found.high) == (1, 2.0, 1.8, 2.2)
    found = outcome(finished(3), measured_chain((2.0, 1.8, 2.2), (1.5, 1.5, 1.5)), {}).paired
    assert found is not None
    assert (found.steps, found.ratio, found.low, found.high) == pytest.approx((2, 3.0, 2.7, 3.3))


def test_a_measured_speedup_whose_interval_holds_one_is_no_improvement() -> None:
    assert outcome(finished(2), measured_chain((2.0, 1.8, 2.2)), {}).improved
    assert not outcome(finished(2), measured_chain((1.02, 0.99, 1.05)), {}).improved
    assert outcome(finished(2), chain(100.0, 50.0), plans(p2="fusion")).paired is None


def test_a_step_by_crossover_names_its_second_parent() -> None:
    steps = plans(p2="fusion", p3="")
    found = outcome(finished(3), chain(100.0, 80.0, 70.0), steps | {3: replace(steps[3], partner=8)})
    assert [win.partner for win in found.wins] == [None, 8] and found.to_json()["wins"][1]["partner"] == 8
