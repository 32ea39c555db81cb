"""A run that gained nothing says why, by the reasons that it has, and what to try next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceld.cli.outcome import print_outcome
from acceld.gains import APART, UNVALIDATED
from acceld.report.endings import deciding, next_steps, why
from acceld.statuses import Status

REFUSED = [
    {"title": f"Hoist, line {n}", "rule": "hoist_loads", "reason": f"why {n}", "count": 2, "parent": 1}
    for n in range(6)
]
TIED: dict[str, Any] = {
    "run": 7,
    "name": "",
    "workload": "silu",
    "workload_folder": "",
    "state": "finished",
    "message": "2 iterations done",
    "exit_code": 0,
    "chip": "trn1",
    "api": "nki_legacy",
    "source": "simulated",
    "method": "",
    "proposer": "rules",
    "baseline_latency_us": 100.0,
    "best_latency_us": 90.0,
    "interval_percent": 20.0,
    "baseline_interval_percent": 20.0,
    "speedup": 1.11,
    "improved": False,
    "verdict": "tie",
    "paired": None,
    "tie_band": 28.0,
    "tie_reason": "",
    "timed_again": "",
    "percent_of_peak_before": 40.0,
    "percent_of_peak_after": 44.0,
    "percent_of_attainable_before": 60.0,
    "percent_of_attainable_after": 66.0,
    "bound_before": "DMA",
    "bound_after": "DMA",
    "counts": {str(status): 0 for status in Status} | {"passed": 2},
    "wins": [],
    "refusals": REFUSED,
    "baseline": 1,
    "best": 3,
    "elapsed_s": 3.0,
    "has_reference": True,
    "baseline_status": "passed",
}
NONE = {str(status): 0 for status in Status}
ONE_REFUSED = {"counts": NONE, "refusals": [REFUSED[0] | {"count": 1}]}
SAME = {"best": 1, "best_latency_us": 100.0, "speedup": 1.0}
FAILED = SAME | {"state": "failed", "message": "reference.py:5: forward raised ValueError", "counts": NONE}
ENDINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a tie by predictions": ({}, "1.11x is a tie: the errors of the two predictions allow ±28 %", "--on device"),
    "a likely gain": (
        {"speedup": 1.25, "verdict": "likely"},
        "1.25x is likely, not certain: the errors",
        "apply r7 FILE",
    ),
    "a tie by times": ({"source": "measured"}, "the intervals of the two times allow ±28 %", "--even-if-tied"),
    "a tie without a band": ({"tie_band": None, "tie_reason": UNVALIDATED}, "error is not known", "--on device"),
    "times of two days": ({"tie_band": None, "tie_reason": APART}, "measured at different times", "acceld diff r7"),
    "all places refused": (SAME | {"counts": NONE}, "was not proven (12 places)", "acceld suggest silu"),
    "one place refused": (SAME | ONE_REFUSED, "was not proven (1 place)", "acceld suggest silu"),
    "not read": (
        SAME
        | {
            "counts": NONE,
            "refusals": [
                {"title": "reading the source", "rule": "reading", "reason": "it is a method", "count": 1, "parent": 1}
            ],
        },
        "rewrite rules can not read this kernel: it is a method",
        "acceld suggest",
    ),
    "no place": (SAME | {"counts": NONE, "refusals": []}, "rewrite rules found no change", "--proposer llm --dry-run"),
    "no code from models": (SAME | {"counts": NONE, "proposer": "llm"}, "(12 proposals)", "acceld costs r7"),
    "none passed": (SAME | {"counts": NONE | {"incorrect_numerical": 3}}, "no candidate passed: 3", "acceld show r7"),
    "all for one reason": (
        SAME | {"counts": NONE | {"suspect": 12}, "failing": "workload w: the reference changes its argument x"},
        "no candidate passed: 12 suspect, each because workload w: the reference changes its argument x",
        "acceld show r7",
    ),
    "a gain that does not count": (SAME | {"uncounted": 11}, "c11 is predicted faster, but", "diff c11 baseline"),
    "none faster": (SAME, "no candidate is faster than the kernel", "--preset standard"),
    "little left": (SAME | {"percent_of_attainable_before": 96.0}, "already reaches 96.0 % of attainable", "--preset"),
    "a latency that depends on data": (
        {
            "baseline_latency_us": None,
            "best": None,
            "speedup": None,
            "best_latency_us": None,
            "counts": NONE,
            "bound_before": "data_dependent",
        },
        "the latency depends on values that the kernel reads",
        "acceld show c1",
    ),
    "a failed baseline": (
        FAILED | {"baseline_latency_us": None, "baseline_status": "incorrect_numerical"},
        "did not pass",
        "acceld show c1",
    ),
    "a run that failed at its first kernel": (
        FAILED | {"baseline_latency_us": None, "baseline_status": ""},
        "the run failed before it judged the kernel that it began with",
        "acceld resume r7",
    ),
    "a run that failed later": (FAILED, "before its end; until then: every place that", "acceld resume r7"),
    "cancelled at once": (
        FAILED | {"state": "cancelled", "message": "cancelled", "refusals": []},
        "the run was cancelled before it proposed anything",
        "acceld optimize silu",
    ),
    "cancelled later": (
        SAME | {"state": "cancelled"},
        "was cancelled before its end; until then: no candidate is",
        "silu",
    ),
}


@pytest.mark.parametrize(("change", "reason", "step"), ENDINGS.values(), ids=ENDINGS.keys())
def test_every_ending_without_a_win_has_a_reason_and_a_next_step(
    change: dict[str, Any], reason: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = TIED | change
    assert reason in why(result)
    assert any(step in command for command, _ in next_steps(result, "acceld.db"))
    print_outcome(result, None, "acceld.db")
    printed = capsys.readouterr()
    label = "not certain" if result["verdict"] == "likely" else "no win"
    assert f"{label:<15}{why(result)}" in printed.out
    assert step in printed.err and "the best kernel's checks" not in printed.err


def test_a_kernel_that_was_not_judged_has_no_failure_to_show() -> None:
    shown = [command for command, _ in next_steps(TIED | ENDINGS["a run that failed at its first kernel"][0], "a.db")]
    assert shown == ["acceld resume r7"]


def test_the_reasons_of_the_rules_are_shown_when_they_are_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(TIED | SAME | {"counts": NONE}, None, "acceld.db")
    assert capsys.readouterr().out.count("Hoist, line") == 5


def test_a_shown_reason_says_what_a_second_line_is(capsys: pytest.CaptureFixture[str]) -> None:
    refused = [
        {"title": "hoist work, line 13", "rule": "hoist_work", "reason": reason, "count": 1, "parent": parent}
        for parent, reason in ((1, "line 13: i is a loop"), (1, "line 15: i is a loop"), (4, "line 13: i is an index"))
    ]
    print_outcome(TIED | SAME | {"counts": NONE, "refusals": refused}, None, "acceld.db")
    printed = capsys.readouterr().out
    assert "hoist work, line 13: i is a loop" in printed
    assert "hoist work, line 13: prevented by line 15: i is a loop" in printed
    assert "hoist work, line 13 of c4: i is an index" in printed, "c4 has other lines than the baseline"


def test_a_kernel_that_was_written_out_goes_to_a_file_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    win = {"rule": "write_out+hoist_loads", "title": "", "partner": None, "speedup": 1.3, "verdict": "certain"}
    print_outcome(TIED | {"improved": True, "verdict": "certain", "wins": [win]}, None, "acceld.db")
    table, after = capsys.readouterr()
    printed = table + after
    assert "only for" in printed and "the workload's shapes: the best kernel was written out from a trace" in printed
    assert "-o NEW.py" in printed and "FILE  write it over your file" not in printed


@pytest.mark.parametrize("change", [{"improved": True}, {"state": "running"}, {"state": "paused"}])
def test_a_win_and_a_run_that_goes_on_need_no_excuse(change: dict[str, Any]) -> None:
    assert why(TIED | change) == ""


def test_a_win_offers_to_be_applied(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(TIED | {"improved": True, "verdict": "certain"}, None, "acceld.db")
    printed = capsys.readouterr()
    assert "acceld apply r7 FILE  " in printed.err and "no win" not in printed.out


def step(candidate: int, speedup: float, verdict: str) -> dict[str, Any]:
    """Return one step on the way to the best kernel, as an outcome states it."""
    return {
        "candidate": candidate,
        "title": "",
        "rule": "fold_scalars",
        "partner": None,
        "speedup": speedup,
        "verdict": verdict,
    }


STEPS = [step(2, 2.0, "certain"), step(3, 1.25, "likely"), step(4, 1.02, "tie")]


def test_a_run_ends_with_the_measurement_that_decides_most(capsys: pytest.CaptureFixture[str]) -> None:
    won = TIED | {"improved": True, "verdict": "certain", "speedup": 2.55, "wins": STEPS}
    print_outcome(won, None, "acceld.db")
    printed = capsys.readouterr()
    assert "to measure     c3 against its parent (1.25x likely, 92 % of what is not certain)" in printed.out
    assert "acceld check r7 --on device  measure the steps that are not certain" in printed.err
    assert deciding(won | {"wins": STEPS[:2]}) == "c3 against its parent (1.25x likely)"


@pytest.mark.parametrize(
    "change", [{"source": "measured"}, {"state": "running"}, {"wins": STEPS[:1]}, {"wins": [step(2, 1.002, "tie")]}]
)
def test_what_is_measured_certain_or_not_ended_needs_no_measurement(change: dict[str, Any]) -> None:
    assert deciding(TIED | {"wins": STEPS} | change) == ""


@pytest.mark.parametrize("change", [{}, {"improved": True, "verdict": "certain"}])
def test_the_kernel_of_a_formula_is_offered_as_a_new_file(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "workloads" / "formula-1"
    print_outcome(TIED | change | {"workload_folder": str(folder)}, None, str(tmp_path / "acceld.db"))
    said = capsys.readouterr().err
    assert "acceld apply r7 -o NEW.py" in said and "FILE" not in said


@pytest.mark.parametrize("state", ["running", "finished"])
def test_only_a_run_that_has_ended_says_that_nothing_was_faster(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(TIED | SAME | {"counts": NONE, "state": state}, None, "acceld.db")
    assert ("nothing was faster" in capsys.readouterr().out) == (state == "finished")
