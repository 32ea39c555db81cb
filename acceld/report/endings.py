"""Say why a run gained nothing, and what to try next: after a tie, without candidates, with a failed baseline ..."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from acceld import figures
from acceld.gains import APART, TWO_MODELS, UNVALIDATED, Verdict
from acceld.model import DATA_DEPENDENT, PROPOSERS, READING, WRITING_OUT, RunState, Source

NEAR_PERCENT = 90.0
"""Percentage of the attainable speed (:mod:`acceld.roofline`) from which on a kernel has little left to gain."""
_LEAST = 1.005
"""Least speed-up of a step that is worth a measurement: less is printed as 1.00x."""
_BANDLESS = {
    UNVALIDATED: "the simulator's error is not known for kernels like these, so that no predicted gain counts",
    TWO_MODELS: "the two latencies come from different versions or calibrations of the performance model",
    APART: "the two latencies were measured at different times, and neither states an interval",
}
"""Explanation for people why no speed-up of a run can be a win, by the reason that the outcome states."""


def why(result: Mapping[str, Any]) -> str:
    """Return the reason why an ended run has no win; "" if the run has a win, or has not ended."""
    state = RunState(result["state"])
    if result["improved"] or not state.ended:
        return ""
    if state == RunState.FINISHED:
        return _reason(result)
    ended = "was cancelled" if state == RunState.CANCELLED else "failed"
    if not result["baseline_status"]:
        return f"the run {ended} before it judged the kernel that it began with"
    if _proposed_nothing(result):
        return f"the run {ended} before it proposed anything"
    return f"the run {ended} before its end; until then: {_reason(result)}"


def _proposed_nothing(result: Mapping[str, Any]) -> bool:
    """Tell whether a run judged the kernel that it began with, and then made no candidate and refused no place."""
    return result["baseline_latency_us"] is not None and not any(result["counts"].values()) and not result["refusals"]


def _reason(result: Mapping[str, Any]) -> str:
    """Return the reason why the evaluations of a run have no win."""
    counts = {status: count for status, count in result["counts"].items() if count}
    tried, passed = sum(counts.values()), counts.get("passed", 0)
    if result["baseline_latency_us"] is None and result.get("bound_before") == DATA_DEPENDENT:
        return (
            "the latency depends on values that the kernel reads, such as the number of trips of a loop, so the simulator can not "
            "compare candidates: measure them on a device (--backend), or write a kernel with a fixed number of trips"
        )
    if result["baseline_latency_us"] is None:
        return "the kernel that the run began with did not pass, so nothing could be compared with it"
    if not tried:
        return _without_candidates(result)
    if result["speedup"] is not None and result["best"] != result["baseline"]:
        return _tie(result)
    if not passed and not counts.get("untested"):
        because = f", {'each ' if tried > 1 else ''}because {result['failing']}" if result.get("failing") else ""
        return f"no candidate passed: {figures.counted(result['counts'])}{because}"
    if result.get("uncounted"):
        unlike = "the simulator's error is not known for kernels like that one, so its gain does not count"
        return f"c{result['uncounted']} is predicted faster, but {unlike}"
    near = result["percent_of_attainable_before"]
    left = (
        f"; the kernel already reaches {figures.percent(near)} of attainable" if near and near >= NEAR_PERCENT else ""
    )
    return f"no candidate is faster than the kernel that the run began with{left}"


def _without_candidates(result: Mapping[str, Any]) -> str:
    refused = sum(one["count"] for one in result["refusals"])
    if not PROPOSERS[result["proposer"]].uses_models:
        if refused and result["refusals"][0]["rule"] == READING:
            return f"rewrite rules can not read this kernel: {result['refusals'][0]['reason']}"
        if refused:
            places = f"{refused} place{'' if refused == 1 else 's'}"
            return f"every place that a rewrite rule found was refused, because the change was not proven ({places})"
        return "rewrite rules found no change that makes this kernel faster"
    return (
        f"no proposal became code ({refused} proposal{'' if refused == 1 else 's'})"
        if refused
        else "nothing was proposed"
    )


def _tie(result: Mapping[str, Any]) -> str:
    band, gained = result["tie_band"], f"{result['speedup']:.2f}x"
    if band:
        kind = "errors of the two predictions" if result["source"] == Source.SIMULATED else "intervals of the two times"
        if result["verdict"] == Verdict.LIKELY:
            return f"{gained} is likely, not certain: the {kind} allow ±{band:.0f} %; measure it before you rely on it"
        return f"{gained} is a tie: the {kind} allow ±{band:.0f} %, so the best kernel may be no faster"
    reason = _BANDLESS.get(result["tie_reason"], result["tie_reason"] or "no interval is known")
    return f"{gained} is a tie: {reason}"


def deciding(result: Mapping[str, Any]) -> str:
    """Return, as text, the step to the best kernel of a simulated run that should be measured first: of the uncertain
    steps, the one with the greatest gain.

    Return "" if every step is certain, and for a measured or unfinished run.
    """
    if result["source"] != Source.SIMULATED or not RunState(result["state"]).ended:
        return ""
    gains = [
        (math.log(win["speedup"]), win)
        for win in result["wins"]
        if (win["speedup"] or 0) >= _LEAST and win["verdict"] != Verdict.CERTAIN
    ]
    if not gains:
        return ""
    most, win = max(gains, key=lambda one: one[0])
    part = "" if len(gains) == 1 else f", {100 * most / sum(share for share, _ in gains):.0f} % of what is not certain"
    return f"c{win['candidate']} against its parent ({figures.brief_gain(win['speedup'], win['verdict'])}{part})"


def applying(result: Mapping[str, Any], database: str) -> tuple[str, str]:
    """Return (command that writes a run's best kernel, description). ``database`` is the path of the history.

    The command writes over the user's file. If the run began from a formula, the user has no file with a kernel, so the
    command writes a new file. Such a run is known by its workload's folder, which lies beside the history.
    """
    folder, run = result.get("workload_folder"), f"r{result['run']}"
    if folder and Path(folder).is_relative_to(Path(database).parent.resolve()):
        return f"acceld apply {run} -o NEW.py", "write it to a new file"
    if is_written_out(result):
        return f"acceld apply {run} -o NEW.py", "write it to a new file, because it is for the workload's shapes alone"
    tied = " --even-if-tied" if result["verdict"] not in (Verdict.CERTAIN, Verdict.LIKELY) else ""
    return f"acceld apply {run} FILE{tied}", "write it over your file; a copy of FILE is kept"


def is_written_out(result: Mapping[str, Any]) -> bool:
    """Tell whether the best kernel of a run was written out from a trace, so that it only fits the workload's shapes."""
    return any(WRITING_OUT in win["rule"].split("+") for win in result["wins"])


def next_steps(result: Mapping[str, Any], database: str) -> Iterator[tuple[str, str]]:
    """Yield (command, description) for what may help after a run without a win. ``database`` is the history."""
    run, best, baseline = f"r{result['run']}", result["best"], result["baseline"]
    models = PROPOSERS[result["proposer"]].uses_models
    if result["state"] == RunState.FAILED:
        yield f"acceld resume {run}", "go on with the run, when what it failed for is mended"
    if result["state"] == RunState.CANCELLED:
        yield f"acceld optimize {_target(result)}", "begin a new run, because a cancelled run does not go on"
        if _proposed_nothing(result):
            return
    if result["baseline_latency_us"] is None:
        if result.get("bound_before") == DATA_DEPENDENT:
            yield f"acceld show c{baseline}", "the kernel's busy times, each for one trip of such a loop"
        elif result["baseline_status"]:
            yield f"acceld show c{baseline}", "the kernel's failure, with its line and what to do"
        return
    tied = best is not None and best != baseline
    if tied and result["source"] == Source.SIMULATED:
        yield f"acceld check {run} --on device", "measure both kernels on a device, in alternation"
    if tied:
        yield f"acceld diff {run}", "what the tied kernel changes"
        yield applying(result, database)
    elif result.get("uncounted"):
        yield f"acceld check {run} --on device", "measure the run's fastest kernels on a device"
        yield f"acceld diff c{result['uncounted']} baseline", "what that kernel changes"
    elif sum(result["counts"].values()):
        yield f"acceld show {run}", "each candidate, and why it failed or was no faster"
    if not models and result["refusals"]:
        yield f"acceld suggest {_target(result)}", "each place that a rule refuses, with the reason"
    if models:
        yield f"acceld costs {run}", "what the models were asked and what it cost"
    else:
        yield "--proposer llm --dry-run", "with your command: what models would cost, which try what no rule knows"
    if models or sum(result["counts"].values()):
        yield "--preset standard", "with your command: a longer search"


def _target(result: Mapping[str, Any]) -> str:
    """Return the name of a run's workload, or its folder, as commands take it."""
    from acceld import config
    from acceld.workloads.discovery import workload_folders

    name, folder = str(result["workload"]), str(result["workload_folder"])
    known = workload_folders(config.load().config.paths.workloads).get(name)
    return name if not folder or (known is not None and known.resolve() == Path(folder)) else folder
