"""``acceld verify``: judge stored winners, or a kernel against another revision, again and strictly; 7 where one fails.

Made for a kernel repository's CI: what once won must still be right, and no slower than allowed, under today's model,
gates and rules.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld import config, figures
from acceld.cli.connect import connected
from acceld.cli.history_source import reading
from acceld.cli.output import print_json, print_table
from acceld.client import Client
from acceld.errors import UsageError
from acceld.home import find_home
from acceld.kernel_files import load_kernel
from acceld.model import Evaluation, Gate, Kernel, Source, Status
from acceld.targets import APIS, CHIPS, SIMULATOR, TARGETS, Choice, choose
from acceld.watch.answers import evaluation_from
from acceld.workloads import load_workload, workload

FAILED = 7
ANSWER_S = 1800.0
"""How long a measurement may take, with what stands before it in the queue."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to judge, and how much slower it may be."""
    parser.add_argument("what", nargs="?", metavar="r12|KERNEL", help="a run's best kernel, or a kernel file")
    parser.add_argument("--workload", help="the best kernel of every run of it; with a file, what to check it against")
    parser.add_argument("--against", metavar="REV", help="with a file: a revision in git to compare the latency with")
    parser.add_argument(
        "--max-regression", type=float, default=5.0, metavar="PERCENT", help="slower by more than this fails (5)"
    )
    parser.add_argument(
        "--on",
        choices=("simulator", "device"),
        default="simulator",
        help="device: a run's fastest kernels, predicted beside measured (what was measured is always measured again)",
    )
    parser.add_argument("--top", type=int, default=5, metavar="M", help="with --on device: how many kernels (5)")
    parser.add_argument("--backend", choices=tuple(TARGETS), help="with --on device: default by the run's API")
    parser.add_argument("--chip", choices=CHIPS)
    parser.add_argument("--api", choices=APIS)
    parser.add_argument("--json", action="store_true", help="print JSON")


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel to judge, and the latency it is held against: stored, or that of ``other``."""

    name: str
    kernel: Kernel
    workload: str
    folder: str
    chip: str
    backend: str = SIMULATOR
    stored_us: float | None = None
    stored_percent: float = 0.0
    """Half width of the stored latency's interval, where it was measured."""
    other: Kernel | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case."""

    case: Case
    evaluation: Evaluation
    before_us: float | None
    holds: bool

    @property
    def change_percent(self) -> float | None:
        """Latency now over before, less one."""
        now = self.evaluation.latency_us
        return 100 * (now / self.before_us - 1) if now and self.before_us else None


def run(arguments: argparse.Namespace) -> int:
    """Judge and print; 7 where anything does not hold."""
    if arguments.on == "device":
        from acceld.cli.verify_device import run as on_device

        return on_device(arguments)
    settings = config.load(flags={"search.chip": arguments.chip, "search.api": arguments.api}).config
    cases = _cases(arguments, settings)
    state = find_home(arguments.home).prepare()
    client = None
    if any(case.backend != SIMULATOR for case in cases):  # the daemon lends devices
        client = Client(connected(arguments.home)[0], timeout_s=ANSWER_S)
    verdicts = asyncio.run(_judged(cases, settings.evaluate, state, arguments.max_regression, client))
    if arguments.json:
        print_json({"holds": all(v.holds for v in verdicts), "cases": [_record(v) for v in verdicts]})
    else:
        rows = [
            (
                verdict.case.name,
                verdict.case.workload,
                f"{figures.STATUS_GLYPHS[verdict.evaluation.status]} {verdict.evaluation.status}",
                figures.duration(verdict.before_us),
                _now(verdict),
                "—" if verdict.change_percent is None else f"{verdict.change_percent:+.1f} %",
                "holds" if verdict.holds else "DOES NOT HOLD",
            )
            for verdict in verdicts
        ]
        headers = ("kernel", "workload", "status", "before", "now", "change", "")
        print_table(rows, headers, right=frozenset({3, 4, 5}))
    return 0 if all(verdict.holds for verdict in verdicts) else FAILED


def _now(verdict: Verdict) -> str:
    profile = verdict.evaluation.profile
    if profile is None:
        return "—"
    return figures.latency(profile.latency_us, profile.source, profile.chip, profile.interval_percent)


def _cases(arguments: argparse.Namespace, settings: config.Config) -> list[Case]:
    what = arguments.what
    if what is not None and what.endswith((".py", ".c")):
        return [_file(arguments, settings)]
    if arguments.against:
        raise UsageError("--against goes with a kernel file")
    with reading(arguments.home) as history:
        if what is None and arguments.workload:
            runs = history.get("/v1/runs", workload=arguments.workload, limit=500)["runs"]
        elif what is not None and re.fullmatch(r"r\d+", what):
            runs = [history.get(f"/v1/runs/{what[1:]}")]
        else:
            raise UsageError(
                "what shall be verified?", hint="a run (r12), --workload NAME, or KERNEL.py (KERNEL.c) --workload NAME"
            )
        found = [_stored(history.get(f"/v1/runs/{one['id']}"), history) for one in runs if one["best"]]
    if not found:
        raise UsageError("there is no stored winner to verify", hint="acceld runs lists runs and their best kernels")
    return found


def _stored(one: dict[str, Any], history: Any) -> Case:
    best = history.get(f"/v1/candidates/{one['best']}")
    kernel = Kernel(
        text=best["text"],
        api=best["api"],
        entry=best["entry"],
        grid=tuple(best["grid"]),
        lnc=best["lnc"],
        filename=best["filename"],
        closure=best["closure"],
    )
    profile = (best.get("evaluation_record") or {}).get("profile") or {}
    return Case(
        f"r{one['id']} c{one['best']}",
        kernel,
        one["workload"],
        one["workload_folder"],
        one["chip"],
        one["backend"] if one["backend"] in TARGETS else SIMULATOR,
        one["best_latency_us"],
        (profile.get("interval_percent") or 0.0) if one["source"] == Source.MEASURED else 0.0,
    )


def _file(arguments: argparse.Namespace, settings: config.Config) -> Case:
    path = Path(arguments.what)
    if arguments.workload:
        found = workload(arguments.workload, [Path(folder) for folder in settings.paths.workloads])
    elif (path.parent / "workload.toml").is_file():
        found = load_workload(path.parent)
    else:
        raise UsageError(f"{path} has nothing to be checked against", hint="name a workload with --workload")
    default = Choice(settings.devices.backend, settings.search.api, settings.search.chip)
    api = arguments.api or ("c" if path.suffix == ".c" else None)
    where = choose(default, backend=arguments.backend, api=api, chip=arguments.chip)
    kernel = load_kernel(path, api=where.api, entry=found.entry or "", grid=found.grid, lnc=found.lnc)
    other = None
    if arguments.against:
        other = Kernel(
            _at_revision(path, arguments.against),
            kernel.api,
            kernel.entry,
            kernel.grid,
            kernel.lnc,
            kernel.filename,
            trusted=True,
        )
    return Case(path.name, kernel, found.name, str(found.folder.resolve()), where.chip, where.backend, other=other)


def _at_revision(path: Path, revision: str) -> str:
    """The file's text in a git revision. UsageError where there is none."""
    command = ["git", "show", f"{revision}:./{path.name}"]
    done = subprocess.run(command, cwd=path.resolve().parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{path} at {revision}: {done.stderr.strip() or 'git failed'}")
    return done.stdout


async def _judged(
    cases: list[Case], settings: config.EvaluateConfig, state: Path, most_percent: float, client: Client | None
) -> list[Verdict]:
    from acceld.evaluate.base import EvaluationRequest, Priority
    from acceld.evaluate.evaluator import Judge

    judge = Judge(settings, state)
    await judge.start()

    async def judged(case: Case, kernel: Kernel, gate: Gate) -> Evaluation:
        if case.backend != SIMULATOR:
            assert client is not None, "made where a case needs it"
            return await asyncio.to_thread(_on_device, client, case, kernel)
        return await judge.evaluate(
            EvaluationRequest(
                kernel=kernel,
                workload=case.workload,
                workload_folder=case.folder,
                chip=case.chip,
                gate=gate,
                priority=Priority.PERSON,
            )
        )

    verdicts = []
    try:
        for case in cases:
            before = case.stored_us
            if case.other is not None:
                before = (await judged(case, case.other, Gate.TIMING)).latency_us
            found = await judged(case, case.kernel, Gate.STRICT)
            now = found.latency_us
            noise = case.stored_percent
            if found.profile is not None and found.profile.source is Source.MEASURED:
                noise += found.profile.interval_percent or 0.0
            allowed = 1 + max(most_percent, noise) / 100
            slower = before is not None and now is not None and now > before * allowed
            verdicts.append(Verdict(case, found, before, found.status is Status.PASSED and not slower))
    finally:
        await judge.stop(0.0)
    return verdicts


def _on_device(client: Client, case: Case, kernel: Kernel) -> Evaluation:
    """The strict verdict of the daemon, which lends the device."""
    asked = {
        "workload": case.workload,
        "workload_folder": case.folder,
        "backend": case.backend,
        "chip": case.chip,
        "gate": Gate.STRICT.value,
        "kernel": {name: getattr(kernel, name) for name in ("text", "api", "entry", "lnc", "filename")}
        | {"grid": list(kernel.grid), "closure": dict(kernel.closure)},
    }
    return evaluation_from(client.send("POST", "/v1/evaluations", asked))


def _record(verdict: Verdict) -> dict[str, Any]:
    failure = verdict.evaluation.failure
    return {
        "kernel": verdict.case.name,
        "workload": verdict.case.workload,
        "chip": verdict.case.chip,
        "status": str(verdict.evaluation.status),
        "source": str(verdict.evaluation.profile.source) if verdict.evaluation.profile else None,
        "before_us": verdict.before_us,
        "latency_us": verdict.evaluation.latency_us,
        "change_percent": verdict.change_percent,
        "holds": verdict.holds,
        "failure": None
        if failure is None
        else {"rule": failure.rule, "message": failure.message, "line": failure.line},
    }
