"""The data sets of each gate, and the decisions by their errors."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from acceld.evaluate.case import Case
from acceld.evaluate.correctness.checks import WORST, bounded, correctness_of, near, placed, worst_row
from acceld.evaluate.correctness.distributions import OWN, strict_variants
from acceld.evaluate.correctness.errors import BROKEN, NONE, Errors
from acceld.evaluate.correctness.gates import (
    FRESH_SEEDS,
    RunSeeds,
    Seeds,
    Trial,
    TrialResult,
    check_errors,
    likely_first,
    published_trials,
    search_trial,
    strict_trials,
)
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.simulated.checking import told_on_chip
from acceld.model import OWN_ORACLE, Check, Failure, Gate, Kernel
from acceld.workloads import PAPER_SEEDS, workload

SILU, MATMUL = workload("silu"), workload("matmul")
FLOOR = Errors(5e-8, 5e-8, 1e-6)


def test_the_strict_gate_tries_every_variant_and_five_own_seeds_one_of_them_shuffled() -> None:
    trials = strict_trials(SILU, Seeds(), expensive=False)
    own = [trial for trial in trials if trial.variant == OWN]
    assert [trial.variant for trial in trials[: -len(own)]] == strict_variants(SILU)
    assert len({trial.seed for trial in own}) == FRESH_SEEDS == len(own) - 1
    assert [trial.shuffled for trial in own] == [False] * FRESH_SEEDS + [True]
    assert own[-1].seed == own[-2].seed and own[-2].kept, "the shuffled trial runs on the last data set once more"


def test_a_program_that_a_model_times_runs_as_it_is_timed_on_one_data_set() -> None:
    trials = strict_trials(SILU, Seeds(), expensive=False, modelled=True)
    assert [trial.as_timed for trial in trials] == [False] * (len(trials) - 2) + [True, False]
    assert trials[-1] == replace(trials[-2], as_timed=False, again=False, shuffled=True, kept=False), (
        "it runs as written there as well"
    )
    expensive = strict_trials(MATMUL, seeds := Seeds(), expensive=True, modelled=True)
    own = search_trial(seeds)
    assert expensive[:2] == [replace(own, as_timed=True, again=True), replace(own, shuffled=True)]


def test_each_candidate_is_tried_on_fresh_seeds_unless_the_run_shares_them() -> None:
    seeds = Seeds()
    first, second = (strict_trials(SILU, seeds, expensive=False) for _ in range(2))
    assert not {trial.seed for trial in first} & {trial.seed for trial in second}
    shared = [strict_trials(SILU, seeds, expensive=False, shared=True) for _ in range(2)]
    assert shared[0] == shared[1] and all(trial.kept for trial in shared[0])


def test_an_expensive_reference_is_asked_once_a_run() -> None:
    seeds = Seeds()
    trials = strict_trials(MATMUL, seeds, expensive=True)
    assert trials == strict_trials(MATMUL, seeds, expensive=True)
    assert sum(trial.variant.startswith("metamorphic/") for trial in trials) == 1
    assert [trial for trial in trials if trial.variant == OWN] == [replace(search_trial(seeds), shuffled=True)]


def test_trials_that_earlier_kernels_failed_come_first_and_none_is_left_out() -> None:
    trials = strict_trials(MATMUL, Seeds(), expensive=True)
    late = [trials[3], trials[-1]]
    assert likely_first(trials, {trial.name for trial in late}) == [*late, *(one for one in trials if one not in late)]
    assert likely_first(trials, ()) == trials


def test_seeds_belong_to_a_run_and_a_workload() -> None:
    runs = RunSeeds()
    seed = search_trial(runs.of(1, SILU)).seed
    assert search_trial(runs.of(1, SILU)).seed == seed
    others = [search_trial(runs.of(run, loaded)).seed for run, loaded in ((2, SILU), (1, MATMUL), (0, SILU), (0, SILU))]
    assert len({seed, *others}) == 5, "requests outside of a run (0) share none"


def test_the_run_used_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceld.evaluate.correctness.gates._REMEMBERED", 2)
    runs = RunSeeds()
    first, second = runs.of(1, SILU), runs.of(2, SILU)
    assert runs.of(1, SILU) is first
    runs.of(3, SILU)
    assert runs.of(1, SILU) is first and runs.of(2, SILU) is not second


def test_only_published_seeds_are_shown() -> None:
    trials = list(published_trials(SILU))
    assert [trial.seed for trial in trials] == list(PAPER_SEEDS)
    assert [trial.name for trial in trials] == [f"published/seed {seed}" for seed in PAPER_SEEDS]
    assert (Trial(OWN, 1234).name, Trial(OWN, 1234, shuffled=True).name) == ("own", "own/shuffled")


def test_a_trial_fails_by_its_worst_output_and_names_the_first_that_is_wrong() -> None:
    right, wrong = Errors(1e-7, 1e-7, 1e-6), Errors(1e-3, 1e-3, 1e-3)
    result = check_errors(SILU, Trial(OWN, 0), [right, wrong, BROKEN], [FLOOR] * 3, None)
    assert not result.check.passed and result.check.detail.startswith("output 1: relative L2 error 0.001 exceeds")
    assert result.errors == BROKEN
    assert check_errors(SILU, Trial(OWN, 0), [right], [FLOOR], None).check.passed


def test_each_output_is_held_against_its_own_floor() -> None:
    noisy, errors = Errors(1e-6, 1e-6, 1e-6), Errors(1e-5, 1e-5, 1e-6)
    assert check_errors(SILU, Trial(OWN, 0), [NONE, errors], [FLOOR, noisy], None).check.passed
    assert not check_errors(SILU, Trial(OWN, 0), [errors, NONE], [FLOOR, noisy], None).check.passed
    assert check_errors(SILU, Trial(OWN, 0), [errors, NONE], [FLOOR, noisy], [noisy] * 2).check.passed, (
        "so noisy is the baseline"
    )


def test_the_published_tolerance_is_for_the_workloads_own_inputs() -> None:
    amplified = Errors(1e-5, 1e-5, 1e-5)  # 20 times that exceeds the published 2e-5
    errors = Errors(5e-5, 5e-5, 1e-5)
    assert not check_errors(MATMUL, Trial(OWN, 0), [errors], [amplified], None).check.passed
    assert check_errors(MATMUL, Trial("shifted", 0), [errors], [amplified], None).check.passed
    assert not check_errors(SILU, Trial("shifted", 0), [errors], [amplified], None).check.passed, "no parts are allowed"


def test_the_published_gate_knows_no_rows_and_no_elements() -> None:
    errors = Errors(1.9e-5, 1.0, 1.0)
    trial = next(published_trials(SILU))
    assert check_errors(SILU, trial, [errors], [FLOOR], None).check.passed
    assert not check_errors(SILU, trial, [replace(errors, rel_l2=2.1e-5)], [FLOOR], None).check.passed


def test_a_check_against_the_own_kernel_says_so() -> None:
    without = replace(SILU, reference=None)
    assert check_errors(without, Trial(OWN, 0), [NONE], [FLOOR], None).check.detail == OWN_ORACLE


@pytest.mark.parametrize(
    ("passed", "error", "expected"),
    [(True, 2e-5, False), (False, 6.3e-4, True), (False, 6.5e-4, False), (False, None, False)],
)
def test_a_near_miss_is_within_sixty_four_tolerances(passed: bool, error: float | None, expected: bool) -> None:
    assert near(Check("own", passed, error, 1e-5)) is expected


def test_records_hold_finite_errors() -> None:
    assert bounded(Check("own", False, math.inf, 1e-5)).rel_l2 == WORST
    assert bounded(Check("own", False, 1e-4, 1e-5)).rel_l2 == 1e-4
    assert (worst_row(BROKEN), worst_row(NONE)) == (WORST, 0.0)


def test_checks_stand_in_the_order_of_their_trials_whichever_ends_first() -> None:
    trials = [Trial("zeros", 1), Trial(OWN, 2), Trial(OWN, 3), Trial(OWN, 3, shuffled=True), Trial("ones", 4)]
    kernel = Kernel("", "nki_legacy", filename="kernel.py")
    case = Case(EvaluationRequest(kernel, "silu", "trn1"), SILU)
    case.untried(trials[4].name, "it is alike", trials[4])
    for trial in (trials[3], trials[2], trials[0], trials[1]):
        case.checked(TrialResult(Check(trial.name, True, float(trial.seed), 9.0), NONE), Gate.STRICT, trial=trial)
    case.order([*trials, Trial("never", 5)])
    assert [(check.name, check.rel_l2) for check in case.checks] == [
        ("zeros", 1.0),
        (OWN, 2.0),
        (OWN, 3.0),
        (f"{OWN}/shuffled", 3.0),
        ("ones (not tried: it is alike)", None),
    ]


def test_the_record_of_a_gate_is_that_of_its_closest_check() -> None:
    checks = [Check("a", True, 1e-6, 1e-5), Check("b", True, 9e-8, 1e-7), Check("not tried", True)]
    found = correctness_of(Gate.STRICT, checks, 0.5, accelopt_passed=True)
    assert (found.rel_l2, found.tolerance, found.worst_row, found.accelopt_passed) == (9e-8, 1e-7, 0.5, True)
    assert correctness_of(Gate.SEARCH, [], 0.0).rel_l2 == 0.0


def test_a_failure_at_a_hidden_shape_says_where_and_keeps_its_own_hint() -> None:
    found = placed(Failure("tolerance", "too far off", 7), "the hidden shape M=384")
    assert (found.rule, found.message, found.line) == ("tolerance", "at the hidden shape M=384: too far off", 7)
    assert "arguments' shapes" in found.hint
    assert placed(Failure("tolerance", "", hint="mine"), "the hidden shape M=384").hint == "mine"


def test_a_kernel_near_the_chips_gate_is_called_so() -> None:
    assert "it would pass there (" in told_on_chip(4e-6, 2e-5)
    assert "it would pass there, near the limit (" in told_on_chip(1.5e-5, 2e-5)
    assert "it would fail there (modelled); write a more exact formula" in told_on_chip(2.1e-5, 2e-5)
