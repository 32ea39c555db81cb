"""Evaluate stored winners, or a kernel file against another git revision, by the strict gate.

A stored winner must still be right, and no slower than allowed, under today's performance model, gates and
rules. A measured winner is timed again, interleaved with the kernel that it beat: latencies measured on two
days are never compared.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from acceld import config, figures
from acceld.cli import interleaved
from acceld.cli.connect import connected, reading, run_named
from acceld.cli.interleaved import Interleaved
from acceld.cli.kernels import NOT_PASSED, evaluated, place_of, stored_kernel, workload_of
from acceld.cli.output import print_json, print_table, say
from acceld.client import Client
from acceld.errors import AcceldError, UsageError
from acceld.home import find_home
from acceld.kernel_files import load_kernel
from acceld.model import Evaluation, Failure, Gate, Kernel, Source, Status
from acceld.production import BROKEN, HOLDS, VERIFIER
from acceld.targets import SIMULATOR, TARGETS

MOST_PERCENT = 5.0
ANSWER_S = 1800.0
"""Deadline of a measurement in seconds, including its wait in the queue."""


@dataclass(frozen=True, slots=True)
class WinnerCheck:
    """A kernel to check, and what its speed is compared with.

    A simulated kernel is compared with its stored latency ``stored_us``, or with today's latency of ``other``.
    A measured kernel is timed interleaved with ``other``.
    """

    name: str
    kernel: Kernel
    workload: str
    folder: str
    chip: str
    backend: str = SIMULATOR
    stored_us: float | None = None
    other: Kernel | None = None
    """The baseline of a measured run, or the kernel at another revision."""
    won: bool = False
    """True if the kernel was stored as faster than ``other``, and must be faster again."""
    stored_ratio: float | None = None
    """The stored speed-up over ``other``, and half the width of its interval in percent; None if no speed-up was
    stored.
    """
    stored_percent: float = 0.0
    most_percent: float | None = None
    """Largest slow-down allowed, in percent; None means the command's own limit."""
    run: int | None = None
    candidate: int | None = None
    model: str | None = None
    """Version of the performance model that gave ``stored_us``; None if the version was not stored."""
    baseline: Kernel | None = None
    """The run's baseline. If today's model is not ``model``, the baseline's latency today replaces ``stored_us``."""


@dataclass(frozen=True, slots=True)
class WinnerResult:
    """Result of one check. ``turns`` is the interleaved timing of a measured kernel; None for a simulated one."""

    case: WinnerCheck
    evaluation: Evaluation
    before_us: float | None
    holds: bool
    turns: Interleaved | None = None
    reason: str = ""
    before: Evaluation | None = None
    """The evaluation of the kernel that this one is compared with; None if the two were measured in one session."""

    @property
    def change_percent(self) -> float | None:
        """Return the slow-down in percent: by two latencies for a simulated kernel, by interleaved timing for a
        measured one. Return None if there is nothing to compare with.
        """
        now = self.evaluation.latency_us
        if self.case.backend != SIMULATOR:
            before = self.case.stored_ratio if self.case.won else 1.0
            return 100 * (before / self.turns.ratio - 1) if before and self.turns is not None else None
        return 100 * (now / self.before_us - 1) if now and self.before_us else None


def run(arguments: argparse.Namespace) -> int:
    """Check the kernels and print the results. Return 0 if each one passed and is fast enough, else 7."""
    if arguments.on == "device":
        from acceld.cli.checks.device import run as on_device

        return on_device(arguments)
    resolved = config.load(flags={"search.chip": arguments.chip, "search.api": arguments.api})
    settings = resolved.config
    cases = _cases(arguments, resolved)
    state = find_home(arguments.home).prepare()
    client = None
    # The daemon lends devices, and with --all it also stores each result.
    if arguments.every or any(case.backend != SIMULATOR for case in cases):
        client = Client(connected(arguments.home)[0], timeout_s=ANSWER_S)
    results = asyncio.run(
        results_on(cases, settings.evaluate, state, arguments.max_regression, client, marks=arguments.every)
    )
    if arguments.json:
        print_json({"holds": all(v.holds for v in results), "cases": [_record(v) for v in results]})
    else:
        rows = [
            (
                result.case.name,
                result.case.workload,
                figures.status(result.evaluation.status),
                figures.brief_latency(
                    result.before_us,
                    Source.SIMULATED if result.case.backend == SIMULATOR else Source.MEASURED,
                ),
                _now(result),
                "—" if result.change_percent is None else f"{result.change_percent:+.1f} %",
                "—" if result.turns is None else result.turns.text,
                "holds" if result.holds else f"DOES NOT HOLD{result.reason and f': {result.reason}'}",
            )
            for result in results
        ]
        headers = ("kernel", "workload", "status", "before", "now", "change", "interleaved", "result")
        print_table(rows, headers, right=frozenset({3, 4, 5, 6}))
        for result in results:
            failure = result.evaluation.failure
            if failure is not None:
                where = f"line {failure.line}: " * bool(failure.line)
                say(f"{result.case.name} on {result.case.workload}: {where}{failure.message} [{failure.rule}]")
    return 0 if all(result.holds for result in results) else NOT_PASSED


def _now(result: WinnerResult) -> str:
    profile = result.evaluation.profile
    if profile is None:
        return "—"
    return figures.latency(profile.latency_us, profile.source, profile.chip, profile.interval_percent)


def is_file(what: str) -> bool:
    """Tell whether ``what`` names a kernel file rather than a run."""
    return what.endswith((".py", ".c", ".ipynb"))


def _cases(arguments: argparse.Namespace, resolved: config.Resolved) -> list[WinnerCheck]:
    what = arguments.what
    if what is not None and is_file(what):
        given = {name: getattr(arguments, name) for name in ("workload", "against", "backend", "api", "chip")}
        return [file_case(Path(what), resolved, **given)]
    if arguments.against:
        raise UsageError(
            "--against compares a kernel file, or the files of --changed, and neither is given",
            hint=f"acceld check KERNEL.py --against {arguments.against}",
        )
    with reading(arguments.home) as history:
        if what is None and arguments.workload:
            runs = history.get("/v1/runs", workload=arguments.workload, limit=500)["runs"]
        elif what is None and arguments.every:
            runs = _every_run(history)
        elif what is not None and (number := _run(arguments.home, what)) is not None:
            runs = [history.get(f"/v1/runs/{number}")]
        elif what is not None and (named := history.get("/v1/runs", workload=what, sort="speedup", limit=1)["runs"]):
            runs = named
        else:
            raise UsageError(
                f"{what!r} is not a run, a workload with a run, or a kernel file"
                if what
                else "no kernel to check is named",
                hint="acceld check r12, KERNEL.py, --workload NAME, --all or --changed; the machine and its settings: acceld doctor",
            )
        found = [_stored(history.get(f"/v1/runs/{one['id']}"), history) for one in runs if one["best"]]
    if not found:
        raise UsageError("there is no stored winner to check", hint="acceld runs lists runs and their best kernels")
    return found


def _run(home: str | None, what: str) -> int | None:
    """Return the id of a run by ``r12`` or by its name; None if no run has the name."""
    return int(what[1:]) if re.fullmatch(r"r[0-9]{1,15}", what) else run_named(home, what)


def _every_run(history: Any) -> list[dict[str, Any]]:
    """Return the rows of all runs, oldest first."""
    runs: list[dict[str, Any]] = []
    while page := history.get("/v1/runs", limit=500, offset=len(runs))["runs"]:
        runs += page
    return sorted(runs, key=lambda one: int(one["id"]))


def _mark(client: Client, result: WinnerResult) -> None:
    """Store a note in the history that says whether a winner is still right and fast; no note if no device was
    available.
    """
    case, failure = result.case, result.evaluation.failure
    if case.run is None or result.evaluation.status in (Status.TIMEOUT, Status.UNSUPPORTED):
        return
    why = result.reason or (failure.message if failure is not None else "slower than it was")
    text = HOLDS if result.holds else f"{BROKEN}: {why}"
    asked = {"action": "note", "candidate": case.candidate, "text": text, "by": VERIFIER}
    client.send("POST", f"/v1/runs/{case.run}/actions", asked)


def _stored(one: dict[str, Any], history: Any) -> WinnerCheck:
    backend = one["backend"] if one["backend"] in TARGETS else SIMULATOR
    kernel = stored_kernel(history.get(f"/v1/candidates/{one['best']}"))
    case = WinnerCheck(
        f"r{one['id']} c{one['best']}",
        kernel,
        one["workload"],
        one["workload_folder"],
        one["chip"],
        backend,
        one["best_latency_us"],
        run=one["id"],
        candidate=one["best"],
    )
    if one["best"] == one["baseline"] and backend != SIMULATOR:
        return case
    baseline = stored_kernel(history.get(f"/v1/candidates/{one['baseline']}"))
    if backend == SIMULATOR:
        return replace(case, baseline=baseline, model=one["model"])
    found = history.get(f"/v1/runs/{one['id']}/outcome")["paired"] or {}
    ratio = found.get("ratio")
    percent = 100 * (found["high"] - found["low"]) / 2 / ratio if ratio else 0.0
    return replace(case, other=baseline, won=bool(one["improved"]), stored_ratio=ratio, stored_percent=percent)


def file_case(
    path: Path,
    resolved: config.Resolved,
    *,
    workload: str | None = None,
    against: str | None = None,
    backend: str | None = None,
    api: str | None = None,
    chip: str | None = None,
) -> WinnerCheck:
    """Return the check of a kernel file. If ``against`` names a git revision, the kernel is compared with the file's
    text in that revision.
    """
    found = workload_of(path, workload, resolved.config)
    if found is None:
        raise UsageError(f"{path} has no workload to check it against", hint="give a workload with --workload")
    where = place_of(resolved, path, found, api=api, chip=chip, backend=backend)
    kernel = load_kernel(path, api=where.api, entry=found.entry or "", grid=found.grid, lnc=found.lnc)
    other = None
    if against:
        other = replace(kernel, text=_at_revision(path, against), closure={})
    return WinnerCheck(
        path.name, kernel, found.name, str(found.folder.resolve()), where.chip, where.backend, other=other
    )


def _at_revision(path: Path, revision: str) -> str:
    """Return the text of a file in a git revision. Raise UsageError if the revision has no such file."""
    command = ["git", "show", f"{revision}:./{path.name}"]
    done = subprocess.run(command, cwd=path.resolve().parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(
            f"git can not show {path} at {revision}: {done.stderr.strip() or f'exit code {done.returncode}'}",
            hint="give a revision that has the file, such as --against HEAD",
        )
    return done.stdout


async def results_on(
    cases: Sequence[WinnerCheck],
    settings: config.EvaluateConfig,
    state: Path,
    most_percent: float | None,
    client: Client | None,
    *,
    marks: bool = False,
) -> list[WinnerResult]:
    """Do the checks one after another, and return their results. ``client`` reaches the daemon; only measured
    kernels need it.

    With ``marks`` the daemon stores each result at once, and a kernel that can not be evaluated gives a failed result.
    Without ``marks`` such a kernel raises an error.
    """
    from acceld.evaluate.interface import started
    from acceld.evaluate.simulated.evaluator import SimulatedEvaluator

    results = []
    async with started(SimulatedEvaluator(settings, state)) as evaluator:
        for case in cases:
            most = most_percent if case.most_percent is None else case.most_percent
            try:
                result = await _result(evaluator, case, most, client)
            except AcceldError as error:
                if not marks:
                    raise
                failure = Failure("not_tried", error.message, hint=error.hint)
                untried = Evaluation(status=Status.UNSUPPORTED, source_sha256=case.kernel.sha256, failure=failure)
                result = WinnerResult(case, untried, case.stored_us, False, reason=f"not tried: {error.message}")
            if marks:
                assert client is not None, "made where marks are written"
                await asyncio.to_thread(_mark, client, result)
            results.append(result)
    return results


async def _result(evaluator: Any, case: WinnerCheck, most: float | None, client: Client | None) -> WinnerResult:
    if case.backend != SIMULATOR:
        assert client is not None, "made where a case needs it"
        return await asyncio.to_thread(_on_device, client, case, most)
    before, earlier = case.stored_us, None
    place = {"workload": case.workload, "folder": case.folder, "chip": case.chip}
    if case.other is not None:
        earlier = await evaluated(evaluator, case.other, Gate.TIMING, **place)
        before = earlier.latency_us
    found = await evaluated(evaluator, case.kernel, Gate.STRICT, **place)
    now = found.latency_us
    if case.baseline is not None and found.profile is not None and found.profile.model != case.model:
        earlier = await evaluated(evaluator, case.baseline, Gate.TIMING, **place)
        before = earlier.latency_us
    allowed = 1 + (MOST_PERCENT if most is None else most) / 100
    slower = before is not None and now is not None and now > before * allowed
    return WinnerResult(case, found, before, found.status is Status.PASSED and not slower, before=earlier)


def _on_device(client: Client, case: WinnerCheck, most_percent: float | None) -> WinnerResult:
    """Return the daemon's result by the strict gate, measured on its device interleaved with ``case.other``."""
    place = {
        "workload": case.workload,
        "workload_folder": case.folder,
        "backend": case.backend,
        "chip": case.chip,
    }
    found, turns = interleaved.measured(client, place, case.kernel, case.other)
    reason = "" if found.status is not Status.PASSED else broken_by(case, turns, most_percent)
    return WinnerResult(case, found, case.stored_us, found.status is Status.PASSED and not reason, turns, reason)


def broken_by(case: WinnerCheck, turns: Interleaved | None, most_percent: float | None) -> str:
    """Return why a kernel that passed is not as fast as it has to be; empty if the kernel is fast enough.

    A kernel that was stored as a winner has to beat ``case.other`` again. Its gain must exceed the tie band: half the
    width of the interval, or twice the clock's resolution if that is more. The size of a gain differs from day to day,
    so it counts only if ``most_percent`` is given. The gain may then be smaller than the stored gain by
    ``most_percent``, or by the sum of today's band and half the width of the stored interval, whichever is more.

    Any other kernel may be slower than ``case.other`` by ``most_percent`` (MOST_PERCENT if None), or by the same sum,
    whichever is more.
    """
    if case.other is None:
        return ""
    if turns is None:
        return "the kernel that this winner beat can not be timed on this machine" if case.won else ""
    if case.won and not turns.win:
        return "the gain is smaller than its uncertainty (half the interval's width, or twice the clock's resolution)"
    if case.won and most_percent is None:
        return ""
    before = case.stored_ratio if case.won else 1.0
    most_percent = MOST_PERCENT if most_percent is None else most_percent
    allowed = 1 + max(most_percent, turns.band_percent + case.stored_percent) / 100
    if before is not None and turns.ratio * allowed < before:
        return f"the stored speed-up was {before:.2f}x" if case.won else "slower"
    return ""


def _record(result: WinnerResult) -> dict[str, Any]:
    failure = result.evaluation.failure
    return {
        "kernel": result.case.name,
        "workload": result.case.workload,
        "chip": result.case.chip,
        "status": str(result.evaluation.status),
        "source": str(result.evaluation.profile.source) if result.evaluation.profile else None,
        "before_us": result.before_us,
        "latency_us": result.evaluation.latency_us,
        "change_percent": result.change_percent,
        "interleaved": None if result.turns is None else asdict(result.turns),
        "stored_ratio": result.case.stored_ratio,
        "holds": result.holds,
        "reason": result.reason or None,
        "failure": None
        if failure is None
        else {"rule": failure.rule, "message": failure.message, "line": failure.line},
    }
