"""``acceld profile``: check and time one kernel on the simulator, without a daemon; or many kernels on any
backend.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld import config, figures, roofline
from acceld.chips import NKI_VERSIONS
from acceld.cli.arguments import CONFIGURED, add_json, add_launch, add_target, count
from acceld.cli.kernels import (
    NOT_PASSED,
    SUFFIXES,
    baseline_of,
    evaluated,
    parsed_kernel,
    place_of,
    plain,
    say_cautions,
    workload_folders,
    workload_of,
)
from acceld.cli.output import print_json, print_pairs, print_table, say, write_file
from acceld.errors import DaemonError, UsageError, no_file
from acceld.evaluate.correctness.distributions import OWN
from acceld.findings import binds, finding, floor_share, source_line
from acceld.home import Home, find_home
from acceld.kernel_files import api_of_file
from acceld.model import Correctness, Evaluation, Gate, Kernel, Profile, Status
from acceld.nki.errors import KernelFailure
from acceld.roofline import peak_source
from acceld.targets import SIMULATOR
from acceld.workloads import Arguments, ArraySpec, Workload, load_workload, workload

if TYPE_CHECKING:
    from acceld.nki.ir.program import Program

HOT_SPOTS = 10
"""Most lines of a kernel for which a profile keeps the busy time."""
_DAEMON_S = 180.0
"""Deadline in seconds for the daemon's answer. Tracing and timing have shorter deadlines of their own."""
FINE = frozenset({Status.PASSED, Status.UNCHECKED, Status.UNTESTED})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "kernel", nargs="?", metavar="KERNEL.py|WORKLOAD", help="a kernel file, or a workload for its baseline"
    )
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--workload", help="check the kernel against this workload")
    against.add_argument(
        "--reference", metavar="REF.py", help="check the kernel against a file with get_inputs and forward"
    )
    against.add_argument(
        "--arg",
        action="append",
        metavar="[NAME=]SHAPE:DTYPE",
        help="an argument, by name or in order; the kernel is then not checked",
    )
    parser.add_argument(
        "--scalar", action="append", default=[], metavar="NAME=VALUE", help="with --arg: a number, true or false"
    )
    add_launch(parser)
    add_target(parser, backend=f"with --jsonl: the backend that evaluates the kernels {CONFIGURED}")
    parser.add_argument("--nki", choices=NKI_VERSIONS, help="version of the package nki (default: as acceld.toml says)")
    parser.add_argument(
        "--strict", action="store_true", help="check on all seeds and distributions, not on one data set"
    )
    parser.add_argument(
        "--latency-only",
        action="store_true",
        help="only time the kernel, without running it on data; a running daemon does this faster",
    )
    parser.add_argument("--ir", action="store_true", help="print the traced program instead")
    parser.add_argument("--trace", metavar="FILE", help="write a timeline for ui.perfetto.dev")
    add_json(parser)
    many = parser.add_argument_group("many kernels, on any backend, for other programs")
    many.add_argument("--jsonl", metavar="IN", help="one JSON object a line: workload, kernel or file")
    many.add_argument("--out", metavar="OUT", help="file for the results; an existing one is continued")
    many.add_argument("--gate", choices=("search", "strict"), default="strict", help="default: strict")
    many.add_argument("--trusted", action="store_true", help="the kernels are your own: no import policy")
    many.add_argument("--jobs", type=count, default=8, metavar="N", help="requests at the same time (default 8)")
    many.add_argument(
        "--best-of",
        type=count,
        default=1,
        metavar="N",
        help="for --table: count only the best of each N kernels of a workload",
    )
    many.add_argument(
        "--table", action="store_true", help="print a table: how many are correct, how many at least as fast, speed-ups"
    )


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel to profile, with its workload or with arguments from the command line."""

    kernel: Kernel
    workload: Workload | None
    arguments: Arguments

    @property
    def folder(self) -> Path | None:
        """Return the absolute path of the workload's folder; None without a workload."""
        return self.workload.folder.resolve() if self.workload else None


def run(arguments: argparse.Namespace) -> int:
    """Profile a kernel and print the result; with ``--jsonl``, the kernels of a file. Return 7 if the kernel
    does not pass.
    """
    if arguments.jsonl:
        if arguments.kernel:
            raise UsageError(
                f"--jsonl reads the kernels from {arguments.jsonl}, so it can not be combined with {arguments.kernel}",
                hint=f"acceld profile --jsonl {arguments.jsonl} --out OUT.jsonl",
            )
        from acceld.cli import many_kernels

        return many_kernels.run(arguments)
    for name in ("out", "table", "trusted"):
        if getattr(arguments, name):
            raise UsageError(f"--{name} works only with --jsonl", hint="acceld profile --jsonl IN --out OUT.jsonl")
    if arguments.kernel is None:
        raise UsageError(
            "a kernel file or a workload is needed",
            hint="acceld profile KERNEL.py, or acceld profile WORKLOAD for its baseline",
        )
    if arguments.backend not in (None, SIMULATOR):
        raise UsageError(
            f"one kernel is profiled on the simulator, not on {arguments.backend}",
            hint=f"acceld optimize {arguments.kernel} --backend {arguments.backend} measures it, or acceld profile --jsonl",
        )
    asked = arguments.api or api_of_file(Path(arguments.kernel))
    flags = {"search.chip": arguments.chip, "search.api": asked, "evaluate.nki": arguments.nki}
    resolved = config.load(flags=flags)
    settings = resolved.config
    found = _named(arguments, settings)
    where = place_of(resolved, Path(arguments.kernel), found, api=arguments.api, chip=arguments.chip, simulated=True)
    chip, api = where.chip, where.api
    with _subject(arguments, api, found) as subject:
        if not _is_workload(arguments):
            say_cautions(Path(arguments.kernel), subject.kernel, chip)
        home = find_home(arguments.home)
        state = home.prepare()
        if arguments.ir:
            from acceld.nki.ir.printing import program_text

            print(program_text(_traced(subject, chip, settings.evaluate, state)), end="")
            return 0
        only_timed = (arguments.latency_only or subject.workload is None) and arguments.nki is None
        timed = _timed_by_daemon(home, subject, chip) if only_timed else None
        evaluation = timed or _evaluated_here(subject, chip, settings.evaluate, state, arguments)
        if arguments.json:
            print_json(record(evaluation, subject.workload, chip, subject.kernel))
        else:
            print_evaluation(evaluation, subject, chip, arguments.kernel)
        if arguments.trace and evaluation.profile is not None:
            _write_timeline(_traced(subject, chip, settings.evaluate, state), Path(arguments.trace), state)
    return 0 if evaluation.status in FINE else NOT_PASSED


def _is_workload(arguments: argparse.Namespace) -> bool:
    """Tell whether the argument names a workload rather than a kernel file."""
    return Path(arguments.kernel).suffix not in SUFFIXES


def _named(arguments: argparse.Namespace, settings: config.Config) -> Workload | None:
    """Return the workload that the arguments name, or else the workload by which a kernel file is checked. Return
    None if there is neither.
    """
    if _is_workload(arguments):
        return workload(arguments.kernel, workload_folders(settings))
    if arguments.arg or arguments.reference:
        return None
    return workload_of(Path(arguments.kernel), arguments.workload, settings)


@contextmanager
def _subject(arguments: argparse.Namespace, api: str, named: Workload | None) -> Iterator[Subject]:
    path = Path(arguments.kernel)
    if named is not None and _is_workload(arguments):
        from acceld.cli.reference import first_kernel

        found, lowered = named, first_kernel(named, api)
        kernel = lowered[1] if lowered else _load(baseline_of(found, api), arguments, api, found)
        yield Subject(kernel, found, found.kernel_arguments())
        return
    if arguments.arg:
        from acceld.given_arguments import bare_arguments

        kernel = _load(path, arguments, api, None)
        yield Subject(kernel, None, bare_arguments(kernel, arguments.arg, arguments.scalar))
        return
    if arguments.reference:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="acceld-") as folder:
            kernel = _load(path, arguments, api, None)
            found = _drafted(Path(arguments.reference), kernel, Path(folder))
            yield Subject(kernel, found, found.kernel_arguments())
        return
    kernel = _load(path, arguments, api, named)
    if named is None:
        raise UsageError(
            f"{path} has no workload to check it against and no shapes to time it with",
            hint=f"give --workload, --reference or --arg SHAPE:DTYPE, or make a workload: acceld init {path} --reference REF.py --arg ...",
        )
    yield Subject(kernel, named, named.kernel_arguments())


def _load(path: Path, arguments: argparse.Namespace, api: str, found: Workload | None) -> Kernel:
    return parsed_kernel(
        path,
        api=api,
        exit_code=NOT_PASSED,
        entry=arguments.entry or (found.entry if found and found.entry else ""),
        grid=arguments.grid or (found.grid if found else ()),
        lnc=max(arguments.lnc, found.lnc if found else 1),
    )


def _drafted(reference: Path, kernel: Kernel, folder: Path) -> Workload:
    """Make a temporary workload around a reference and a kernel, and return it.

    As in a folder of ``acceld init``, the kernel is its own baseline. Both commands then derive the same tolerance.
    """
    from acceld import drafts

    if not reference.is_file():
        raise no_file(reference, hint="--reference REF.py: a file with get_inputs() and forward(...)")
    facts = drafts.reference_facts(reference)
    (folder / "reference.py").write_text(reference.read_text(encoding="utf-8"), encoding="utf-8")
    text = drafts.workload_toml(
        Path(kernel.filename).stem,
        facts.arguments,
        facts.outputs,
        baselines=drafts.write_kernel(kernel, folder),
        reference="reference.py",
        entry=kernel.entry,
        grid=kernel.grid,
        lnc=kernel.lnc,
    )
    (folder / "workload.toml").write_text(text, encoding="utf-8")
    return load_workload(folder)


def _timed_by_daemon(home: Home, subject: Subject, chip: str) -> Evaluation | None:
    """Return the evaluation by a running daemon, which is quicker because its tracer is loaded already.

    Return None if no daemon runs, or if all of its slots are taken.
    """
    if home.daemon() is None:
        return None
    from acceld.client import Client
    from acceld.watch.answers import evaluation_from

    asked: dict[str, Any] = {"kernel": plain(subject.kernel), "chip": chip}
    if subject.workload is None:
        asked["arguments"] = [asdict(one) if isinstance(one, ArraySpec) else one for one in subject.arguments]
    else:
        asked |= {"workload": subject.workload.name, "workload_folder": str(subject.folder)}
        asked |= {"backend": SIMULATOR, "gate": Gate.TIMING}
    try:
        client = Client(home, timeout_s=_DAEMON_S)
        queue = client.get("/v1/queue")["queue"]
        if queue.get("slots_in_use", 0) >= queue.get("slots", 1):
            return None
        return evaluation_from(client.send("POST", "/v1/evaluations", asked))
    except (DaemonError, UsageError):  # the daemon has another version, or has just ended
        return None


def _evaluated_here(
    subject: Subject, chip: str, settings: config.EvaluateConfig, state: Path, arguments: argparse.Namespace
) -> Evaluation:
    """Return the evaluation by an evaluator in this process."""
    import asyncio

    return asyncio.run(_evaluate(subject, chip, settings, state, arguments))


async def _evaluate(
    subject: Subject, chip: str, settings: config.EvaluateConfig, state: Path, arguments: argparse.Namespace
) -> Evaluation:
    from acceld.evaluate.interface import Priority, started
    from acceld.evaluate.simulated.evaluator import SimulatedEvaluator

    evaluator = SimulatedEvaluator(settings, state)
    async with started(evaluator):
        if subject.workload is None:
            return await evaluator.time(subject.kernel, subject.arguments, chip)
        gate = Gate.TIMING if arguments.latency_only else Gate.STRICT if arguments.strict else Gate.SEARCH
        place = {"workload": subject.workload.name, "folder": str(subject.folder), "chip": chip}
        return await evaluated(evaluator, subject.kernel, gate, priority=Priority.BASELINE, **place)


def _traced(subject: Subject, chip: str, settings: config.EvaluateConfig, state: Path) -> Program:
    import asyncio

    from acceld.evaluate.simulated.programs import traced_program

    try:
        return asyncio.run(traced_program(subject.kernel, subject.arguments, chip, settings, state))
    except KernelFailure as failure:
        if failure.line:
            failure.message = f"{subject.kernel.filename}:{failure.line}: {failure.message}"
        raise


def _write_timeline(program: Program, path: Path, state: Path) -> None:
    """Write the program's timeline as a Chrome trace. Raise UsageError if the file can not be written."""
    from acceld.nki.timing.calibration import calibrated, chosen, read
    from acceld.nki.timing.chrome_trace import chrome_trace
    from acceld.nki.timing.timeline import timeline

    params = calibrated(chosen(read(state), program.chip, program.api), program.chip, program.api)
    write_file(path, json.dumps(chrome_trace(timeline(program, params))))
    say(f"wrote {path}; open it at ui.perfetto.dev")


COUNTERS = (
    "hbm_read_bytes",
    "hbm_write_bytes",
    "spill_save_bytes",
    "spill_reload_bytes",
    "hardware_flops",
    "transpose_flops",
)


def record(evaluation: Evaluation, found: Workload | None, chip: str, kernel: Kernel) -> dict[str, Any]:
    """Return the evaluation as ``--json`` prints it: its figures, and the summary that coding agents get."""
    figures_of = _figures(evaluation, found, chip, kernel.api)
    return {**finding(evaluation, kernel.text, found, chip, kernel.lnc), **figures_of}


def _figures(evaluation: Evaluation, found: Workload | None, chip: str, api: str) -> dict[str, Any]:
    """Return the figures of an evaluation by name. For a kernel that was not timed they include ``api``."""
    profile, correctness, failure = evaluation.profile, evaluation.correctness, evaluation.failure
    counters = {name: _whole(value) for name, value in profile.counters.items()} if profile else {}
    return {
        "status": str(evaluation.status),
        "latency_us": evaluation.latency_us,
        "source": str(profile.source) if profile else "simulated",
        "chip": chip,
        "api": profile.api if profile else api,
        "method": profile.method if profile else None,
        "engines": {name: {"busy_us": us} for name, us in profile.engines_us.items()} if profile else {},
        **{name: counters.get(name) for name in COUNTERS},
        "counters": counters,
        "rel_l2": correctness.rel_l2 if correctness else None,
        "tolerance": correctness.tolerance if correctness else None,
        "gate": str(correctness.gate) if correctness else None,
        "checks": [{"name": c.name, "passed": c.passed, "rel_l2": c.rel_l2} for c in correctness.checks]
        if correctness
        else [],
        "roofline_us": roofline.roofline_us(found, chip) if found else None,
        "percent_of_peak": evaluation.percent_of_peak,
        "percent_of_attainable": evaluation.percent_of_attainable,
        "bound": profile.bound if profile else None,
        "prediction": profile.details.get("prediction") if profile else None,
        "hot_spots": profile.details.get("hot_spots", []) if profile else [],
        "notes": list(profile.notes) if profile else [],
        "seconds": {name: evaluation.seconds.get(name) for name in ("trace", "execute", "timeline")},
        "program_hash": evaluation.program_sha256 or None,
        "sandbox_level": evaluation.sandbox_level,
        "failure": asdict(failure) if failure else None,
    }


def _whole(value: float) -> float:
    """Return a number as int if it has no fraction, so that bytes and counts are printed without a decimal
    point.
    """
    return int(value) if float(value).is_integer() else value


def print_evaluation(evaluation: Evaluation, subject: Subject, chip: str, name: str) -> None:
    """Print the evaluation for people."""
    profile, correctness = evaluation.profile, evaluation.correctness
    pairs = [("kernel", f"{name}  ({subject.kernel.api}, {chip})"), ("status", _status(evaluation, subject.workload))]
    if evaluation.failure is not None:
        failure = evaluation.failure
        where = f"line {failure.line}: " if failure.line else ""
        pairs.append(("why", f"{where}{failure.message}  [{failure.rule}]"))
        if failure.hint:
            pairs.append(("what to do", failure.hint))
    if correctness is not None:
        pairs.append(("error", _error(correctness, subject.workload)))
    if profile is not None:
        pairs.append(("latency", _latency(profile, chip)))
        if evaluation.percent_of_peak is not None:
            pairs.append(("of peak", figures.of_peak(evaluation.percent_of_peak, peak_source(chip))))
        floor = floor_share(subject.workload, chip, profile.latency_us, subject.kernel.lnc, profile)
        if "percent_of_floor" in floor:
            pairs.append(
                (
                    "of floor",
                    f"{figures.percent(floor['percent_of_floor'])}  ({floor['floor_us']} µs: {floor['floor_is']})",
                )
            )
        pairs.append(("bound by", profile.bound or "—"))
        told = binds(profile, subject.kernel.text)
        pairs += [(name, told[key]) for name, key in (("time", "time"), ("memory", "peaks")) if key in told]
        pairs += [(name, "\n".join(told[key])) for name, key in (("waits", "waits"),) if key in told]
    print_pairs(pairs)
    if profile is None:
        return
    if profile.engines_us:
        print()
        latency = profile.latency_us or 0.0
        busy = [
            (
                engine,
                figures.duration(us),
                f"{100 * us / latency:.0f} %" if latency else "—",
                figures.counter_class(profile.details, "engines"),
            )
            for engine, us in sorted(profile.engines_us.items(), key=lambda item: -item[1])
            if us
        ]
        over = " over the shapes" if profile.details.get("shapes") else ""
        print_table(busy, ("engine", f"busy{over}", "of latency", "class"), right=frozenset({1, 2}))
    if profile.counters:
        print()
        rows = [
            (counter, f"{value:,.0f}", figures.counter_class(profile.details, counter))
            for counter, value in sorted(profile.counters.items())
            if value
        ]
        print_table(rows, ("counter", "value", "class"), right=frozenset({1}))
    lines = profile.details.get("hot_spots", [])
    if lines:
        print()
        spots = [
            (
                str(one["line"]),
                str(one["engine"]),
                figures.duration(one["busy_us"]),
                figures.cell(source_line(subject.kernel.text, one["line"], 80), 80),
            )
            for one in lines
        ]
        shapes = profile.details.get("shapes")
        at = f" at {shapes[0]['shape']}" if shapes else ""
        print_table(spots, ("line", "engine", f"busy{at}", "source"), right=frozenset({0, 2}))
        if len(spots) == HOT_SPOTS:
            print(f"the {HOT_SPOTS} busiest lines; others may be busy too")
    for note in profile.notes:
        say(f"note: {note}")


def _error(correctness: Correctness, found: Workload | None) -> str:
    """Return, as text, the error on the workload's own inputs, its tolerance, and where that tolerance comes from.

    Other inputs are left out, because some make even float32 arithmetic err much: an error there says nothing about the
    kernel.
    """
    own = [
        one for one in correctness.checks if one.name == OWN and one.rel_l2 is not None and one.tolerance is not None
    ]
    error, tolerance = (own[0].rel_l2, own[0].tolerance) if own else (correctness.rel_l2, correctness.tolerance)
    on = "" if correctness.passed else " on the workload's own inputs" if own else " on the inputs that failed"
    text = f"{figures.rel_l2(error)} relative L2{on}, tolerance {tolerance:.2g}"
    if found is None:
        return text
    if math.isclose(tolerance or 0.0, found.tolerance):
        text += " (declared in workload.toml)"
    else:
        text += f" (derived from the rounding noise on this workload; the {found.tolerance:.2g} of workload.toml is the upper limit)"
    return (
        text
        if found.reference
        else f"{text}; against the kernel's own execution in float64, because there is no reference"
    )


def _latency(profile: Profile, chip: str) -> str:
    """Return a latency such as ``≈ 1.19 ms sim trn1 ±12 % (legacy)``. In parentheses is the compiler that is
    modelled.
    """
    if profile.latency_us is None:
        return "data_dependent: there is no single latency, because it depends on values that the kernel reads"
    text = figures.latency(profile.latency_us, profile.source, chip, profile.interval_percent)
    compiler = profile.method.removeprefix("compiler_")
    return f"{text} ({compiler})" if compiler != profile.method else text


def _status(evaluation: Evaluation, found: Workload | None) -> str:
    if evaluation.status is Status.PASSED and found is not None and found.reference is None:
        return f"{figures.status(evaluation.status)}, compared with itself alone (no reference)"
    extra = {Status.UNCHECKED: " (no reference)", Status.UNTESTED: " (not run on data)"}.get(evaluation.status, "")
    return figures.status(evaluation.status) + extra
