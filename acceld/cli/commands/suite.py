"""``acceld suite``: optimize many kernels under one budget, with one table of results and one overall figure."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld import config, figures
from acceld.cli.arguments import CONFIGURED, add_json, add_target
from acceld.cli.kernels import stored_profile
from acceld.cli.output import print_json, print_table, say, write_file
from acceld.errors import AcceldError, UsageError
from acceld.events import RunStateChanged, event_of
from acceld.model import BUDGET_PREFIX, PRESETS, PROPOSERS, RunState, waits_for_remedy

if TYPE_CHECKING:
    from acceld.client import Client
    from acceld.search.suites import Entry, Row, Slice, Suite
    from acceld.workloads import DeclaredWork

_now = time.monotonic
_SLICES = 2
"""Average number of time slices for each kernel."""
_LEAST_S = 30.0
"""Shortest first slice of a kernel in seconds."""
_LOOK_S = 1.0
"""Seconds between two looks at the time while nothing happens in a run."""
_ANSWER_S = 1800.0
"""Deadline, in seconds, of the evaluation of a competitor's kernel by the strict gate."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("action", choices=("run",), help="run: optimize the suite")
    parser.add_argument(
        "what",
        metavar="FAMILY|SUITE.toml",
        help="a family of workloads, such as nkibench, or a file that lists kernels",
    )
    parser.add_argument("--roots", metavar="FOLDER", help="kernels to start from, named WORKLOAD.py or WORKLOAD_*.py")
    parser.add_argument(
        "--competitors", metavar="FOLDER", help="competitors' kernels, evaluated strictly and shown beside ours"
    )
    parser.add_argument(
        "--hours", type=float, default=1.0, metavar="Y", help="time for all kernels together (default 1)"
    )
    parser.add_argument("--usd", type=float, metavar="X", help="cap on the cost of models for all kernels together")
    parser.add_argument("--name", default="", help="name of this pass over the suite; a known name continues it")
    parser.add_argument("--proposer", choices=tuple(PROPOSERS), help="rewrite rules, language models, or both")
    parser.add_argument("--preset", choices=tuple(PRESETS), default="quick", help="of each slice (default: quick)")
    parser.add_argument("--strategy", help="strategy of each slice (default: tune with rules on the simulator)")
    parser.add_argument("-o", "--output", metavar="FILE.svg", help="write percent of peak before and after as bars")
    add_target(parser, backend=f"backend that evaluates them {CONFIGURED}")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Optimize the kernels of a suite, print the table, and return the exit code: 0 unless a kernel's search failed."""
    from acceld.cli.connect import connected
    from acceld.search.suites import figures_of, first_slices_s, least_work_first, next_entry, slice_s, step_gain

    suite = _suite(arguments)
    if arguments.hours <= 0:
        raise UsageError(f"--hours must be more than 0, not {arguments.hours:g}")
    entries = {_label(entry): entry for entry in suite.entries}
    work = {
        label: _work(entry) for label, entry in entries.items()
    }  # an unknown workload is an error before the first search
    _, client = connected(arguments.home)
    total_s = arguments.hours * 3600
    first_s = first_slices_s(entries, total_s / _SLICES, _LEAST_S)
    done: dict[str, list[Slice]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for entry in suite.entries:
        for outcome in _earlier(client, _run_name(suite, arguments, entry)):
            _note(done, rows, entry, outcome, first_s[_label(entry)], _searched_s(client, outcome["run"]))
    waiting = least_work_first(work)
    spent_s = sum(one.elapsed_s for each in done.values() for one in each)
    ends = _now() + total_s - spent_s
    notes: dict[str, str] = {}
    failed: dict[str, int] = {}  # exit codes by entry
    try:
        while (left_s := ends - _now()) > 0 and (label := next_entry(done, waiting)) is not None:
            begun, open_run = _now(), _open_run(done.get(label, ()))
            without = {other: entries[other] for other in waiting if other not in done}
            used_s = sum(each[0].elapsed_s for each in done.values())
            first_s |= first_slices_s(without, total_s / _SLICES - used_s, _LEAST_S)
            length_s = slice_s(first_s[label], left_s, done.get(label, ()), len(without))
            try:
                best = rows[label][-1]["best"] if rows.get(label) else None
                number = open_run or _begin(client, suite, arguments, entries[label], best, length_s)
                outcome, trouble = _search(client, number, length_s)
            except AcceldError as error:
                notes[label], failed[label] = error.message, error.exit_code
                waiting.remove(label)
                say(f"{label}: {error.message}")
                continue
            _note(done, rows, entries[label], outcome, length_s, _now() - begun)
            if trouble or label not in done or outcome["state"] == RunState.FAILED:
                notes[label], failed[label] = trouble or outcome["message"], int(outcome["exit_code"]) or 1
                waiting.remove(label)
                say(f"{label}: r{number} {outcome['state']}: {notes[label]}")
                continue
            so_far = _row(client, label, rows.get(label, []), done[label], None, "")
            gained = figures.gained(so_far.speedup, so_far.verdict, so_far.tie_band, so_far.tie_reason)
            goes_on = "" if RunState(outcome["state"]).ended else ", not finished"
            say(f"{label}: {gained} in {figures.elapsed(so_far.elapsed_s)} (r{number}{goes_on})")
    except KeyboardInterrupt:
        say("detached; the same command continues the suite")
    for name, slices in done.items():
        if (unfinished := _open_run(slices)) is not None:
            notes[name] = f"r{unfinished} is not finished: the same command goes on with more --hours"
    competitors = _competitors(client, suite, arguments) if arguments.competitors else {}
    found = [
        _row(client, label, rows.get(label, []), done.get(label, []), competitors.get(label), notes.get(label, ""))
        for label in entries
    ]
    step = step_gain({row.workload: row for row in found}, entries)
    record = figures_of(suite.name, found, step)
    if arguments.output:
        _draw(Path(arguments.output), found)
    if arguments.json:
        print_json(record)
    else:
        _print(found, record)
    if failed:
        say(
            f"the search failed for {', '.join(failed)}; once the cause is removed, the same command continues the suite"
        )
    codes = set(failed.values())
    return codes.pop() if len(codes) == 1 else int(bool(codes))


def _suite(arguments: argparse.Namespace) -> Suite:
    from acceld.search.suites import family, kernels_in, read_suite
    from acceld.workloads import find_workloads

    asked = arguments.what
    path = Path(asked)
    suite = read_suite(path) if path.suffix == ".toml" else family(asked, find_workloads())
    if arguments.roots:
        roots = kernels_in(Path(arguments.roots), [_label(entry) for entry in suite.entries])
        entries = (replace(entry, root=roots.get(_label(entry), entry.root)) for entry in suite.entries)
        suite = replace(suite, entries=tuple(entries))
    return suite


def _label(entry: Entry) -> str:
    return Path(entry.workload).name


def _work(entry: Entry) -> DeclaredWork | None:
    """Return the declared work of an entry's workload; None if it declares none."""
    from acceld.cli.kernels import workload_folders
    from acceld.workloads import workload

    return workload(entry.workload, workload_folders(config.load().config)).work


def _run_name(suite: Suite, arguments: argparse.Namespace, entry: Entry) -> str:
    chip = arguments.chip or "default"
    return f"suite {suite.name} {arguments.name} {chip} {_label(entry)}".replace("  ", " ")[:80]


def _earlier(client: Client, name: str) -> list[dict[str, Any]]:
    """Return the outcomes of the runs that an earlier call of this command started for the suite, oldest first."""
    listed = client.get("/v1/runs", limit=1000)["runs"]
    numbers = sorted(one["id"] for one in listed if one["name"] == name)
    return [client.get(f"/v1/runs/{number}/outcome") for number in numbers]


def _searched_s(client: Client, run: int) -> float:
    """Return the seconds in which a run was active."""
    from acceld.search.suites import searched_s

    changes = client.get(f"/v1/runs/{run}/events", kind="run_state", limit=1000)["events"]
    return searched_s([(one["at"], RunState(one["data"]["state"])) for one in changes])


def _open_run(slices: Sequence[Slice]) -> int | None:
    """Return the run that the last of an entry's slices left unfinished; None if the next slice begins a new run."""
    return slices[-1].run if slices and slices[-1].goes_on else None


def _note(
    done: dict[str, list[Slice]],
    rows: dict[str, list[dict[str, Any]]],
    entry: Entry,
    outcome: dict[str, Any],
    length_s: float,
    elapsed_s: float,
) -> None:
    """Record a slice of a suite's entry, if the slice's run has latencies or is not finished. ``length_s`` was the
    time limit of the slice.
    """
    from acceld.search.suites import Slice, worth

    before, after, run = outcome["baseline_latency_us"], outcome["best_latency_us"], outcome["run"]
    goes_on, known = not RunState(outcome["state"]).ended, before is not None and after is not None
    if not (known or goes_on):
        return
    outcomes = rows.setdefault(_label(entry), [])
    if not known:
        before = after = 1.0  # without latencies the gain counts as 1
    elif outcomes and outcomes[-1]["run"] == run:
        before = outcomes.pop()["best_latency_us"]
    left = worth(entry, outcome["percent_of_attainable_after"])
    found = Slice(run, elapsed_s, before, after, goes_on or elapsed_s >= length_s, left, goes_on)
    done.setdefault(_label(entry), []).append(found)
    if known:
        outcomes.append(outcome)


def _begin(
    client: Client, suite: Suite, arguments: argparse.Namespace, entry: Entry, best: int | None, length_s: float
) -> int:
    """Start a run of one kernel from its ``best`` candidate so far, with its share of the money. Return its number."""
    from acceld.cli.commands.optimize import as_body, specification
    from acceld.cli.main import parser_of

    words = [str(entry.root), "--workload", entry.workload] if entry.root is not None else [entry.workload]
    options = {"proposer": arguments.proposer, "preset": arguments.preset, "chip": arguments.chip}
    options |= {"api": arguments.api, "backend": arguments.backend, "strategy": arguments.strategy}
    words += [word for name, value in options.items() if value for word in (f"--{name}", value)]
    spec, _ = specification(parser_of("optimize").parse_args(words))
    search = replace(spec.search, time_limit_s=length_s)
    if arguments.usd is not None:
        part = entry.share / sum(one.share for one in suite.entries)
        search = replace(search, budget_usd=arguments.usd * part / _SLICES)
    body = as_body(replace(spec, search=search, name=_run_name(suite, arguments, entry)))
    if best is not None:
        kernel = client.get(f"/v1/candidates/{best}")
        body["root"] = {**body.get("root", {}), "text": kernel["text"], "api": spec.api}
        if spec.root is None:
            body["root"] |= {"entry": kernel.get("entry", ""), "filename": "kernel.py"}
    number: int = client.send("POST", "/v1/runs", body)["id"]
    return number


def _search(client: Client, number: int, length_s: float) -> tuple[dict[str, Any], str]:
    """Let a run go on for a slice of ``length_s`` seconds, or until it ends.

    Return the run's outcome, and the failure of the models for which the run was cancelled; empty if the models did
    not fail.
    """
    ends = _now() + length_s
    seen = client.get(f"/v1/runs/{number}/events", limit=1)["last_seq"]
    state = RunState(client.get(f"/v1/runs/{number}")["state"])
    if state is RunState.PAUSED:
        client.send("POST", f"/v1/runs/{number}/actions", {"action": "resume"})
    paused = None if state.ended else _wait(client, number, seen, ends)
    outcome: dict[str, Any] = client.get(f"/v1/runs/{number}/outcome")
    if paused is None or paused["message"].startswith(BUDGET_PREFIX):  # a slice also ends when its money is spent
        return outcome, ""
    return outcome | {"exit_code": paused["exit_code"]}, paused["message"]


def _wait(client: Client, number: int, seen: int, ends: float) -> dict[str, Any] | None:
    """Follow a run until it has ended, or pause the run at the time ``ends``. Events up to the number ``seen`` are
    skipped.

    If a strict gate runs at the time ``ends``, the run is paused after the gate, so that the gate's result is kept. A
    run that pauses itself, because its money is spent or its models fail, is cancelled. For such a run, return the
    outcome before it was cancelled; return None for any other run.
    """
    actions, pausing = f"/v1/runs/{number}/actions", False
    paused: dict[str, Any] | None = None
    for page in client.pages(seen, number, _LOOK_S):
        for row in page:
            match event_of(row).data:
                case RunStateChanged(state, message):
                    if waits_for_remedy(state, message):
                        say(f"r{number} {state}: {message}")
                        paused = client.get(f"/v1/runs/{number}/outcome")
                        client.send("POST", actions, {"action": "cancel"})
                    if state.ended or (pausing and state is RunState.PAUSED):
                        return paused
        if _now() >= ends and not pausing:
            try:
                answer = client.send("POST", actions, {"action": "pause", "at_once": True})
            except AcceldError:
                if not RunState(client.get(f"/v1/runs/{number}")["state"]).ended:
                    continue  # the run is ending, and no longer takes a pause: wait for its end
                return paused
            if answer["run"]["state"] == RunState.PAUSED:
                return paused
            say(f"r{number} {answer['result']}")
            pausing = True
    return paused


def _competitors(client: Client, suite: Suite, arguments: argparse.Namespace) -> dict[str, tuple[float | None, str]]:
    """Evaluate each competitor's kernel by the strict gate. For each entry of the suite, return the latency, or None
    with the reason.
    """
    from acceld.client import Client
    from acceld.search.suites import kernels_in

    patient = Client(client.home, timeout_s=_ANSWER_S)
    labels = {_label(entry): entry for entry in suite.entries}
    found: dict[str, tuple[float | None, str]] = {}
    for label, path in kernels_in(Path(arguments.competitors), list(labels)).items():
        kernel = {"text": path.read_text("utf-8"), "filename": path.name}
        body: dict[str, Any] = {"workload": label, "kernel": kernel, "gate": "strict"}
        if labels[label].workload != label:
            body["workload_folder"] = labels[label].workload
        body |= {name: value for name in ("api", "chip", "backend") if (value := getattr(arguments, name))}
        kernel |= {"api": body["api"]} if "api" in body else {}
        try:
            result = patient.send("POST", "/v1/evaluations", body)
        except AcceldError as error:
            found[label] = (None, error.message)
            continue
        latency_us = (result.get("profile") or {}).get("latency_us") if result["status"] == "passed" else None
        found[label] = (latency_us, "" if latency_us is not None else result["status"])
        say(f"{path.name}: {result['status']}, {figures.duration(latency_us)}")
    return found


def _row(
    client: Client,
    label: str,
    outcomes: Sequence[Mapping[str, Any]],
    slices: Sequence[Slice],
    competitor: tuple[float | None, str] | None,
    note: str,
) -> Row:
    from acceld.search.suites import Row, suite_gain

    theirs, problem = competitor or (None, "")
    reported = "; ".join(filter(None, (note, f"competitor: {problem}" if problem else "")))
    spent_s = sum(one.elapsed_s for one in slices)
    if not outcomes:
        runs = tuple(dict.fromkeys(one.run for one in slices))
        return Row(label, None, None, None, None, spent_s, runs, theirs, reported or "not begun")
    first, last = outcomes[0], outcomes[-1]
    before = after = None
    if first is not last:
        ends = (first["baseline"], last["best"])
        before, after = (stored_profile(client.get(f"/v1/candidates/{number}")) for number in ends)
    found = suite_gain(first, before, after)
    return Row(
        label,
        first["baseline_latency_us"],
        last["best_latency_us"],
        first["percent_of_peak_before"],
        last["percent_of_peak_after"],
        spent_s,
        tuple(one["run"] for one in outcomes),
        theirs,
        reported,
        improved=found is not None and found.improved,
        tie_band=found.band_percent if found else None,
        tie_reason=found.reason if found else "",
        verdict=found.verdict(last["source"]) if found else None,
        model=last["model"],
    )


def _print(rows: Sequence[Row], record: Mapping[str, Any]) -> None:
    table = [
        (
            row.workload,
            figures.duration(row.before_us),
            figures.duration(row.after_us),
            figures.gained(row.speedup, row.verdict, reason=row.tie_reason),
            figures.percent(row.percent_before),
            figures.percent(row.percent_after),
            figures.duration(row.competitor_us),
            figures.elapsed(row.elapsed_s),
            row.note or " ".join(f"r{number}" for number in row.runs),
        )
        for row in rows
    ]
    headers = ("workload", "before", "best", "speed-up", "of peak", "then", "competitor", "time", "runs")
    print_table(table, headers, right=frozenset(range(1, 8)))
    mean = record["geometric_mean"]
    if mean is not None:
        print(
            f"geometric mean of {figures.many(mean['count'], 'kernel')}: {mean['value']:.2f}x ({mean['low']:.2f} to {mean['high']:.2f})"
        )
    if (step := record.get("step")) is not None:
        before, after = (figures.duration(step[name]) for name in ("before_us", "after_us"))
        band = (
            "no band, because the latency of a kernel is not validated"
            if step["band_percent"] is None
            else f"±{step['band_percent']:.1f} %"
        )
        print(
            f"these kernels took {before} of a step of the model, and now take {after}: {step['speedup']:.2f}x ({band})"
        )


def _draw(place: Path, rows: Sequence[Row]) -> None:
    from acceld.report import svg

    write_file(place, svg.peak_bars([(row.workload, row.percent_before, row.percent_after) for row in rows]))
    say(f"wrote {place}")
