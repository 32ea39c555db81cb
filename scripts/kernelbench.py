"""Lower KernelBench's problems to kernels and run these on data: count which are correct, refused, wrong or too
late.

``python -m scripts.kernelbench DIR RESULTS.jsonl`` takes the problems of DIR (a copy of KernelBench, which is
not changed) one after another, at the reduced sizes of ``acceld import kernelbench --reduced``. A problem that
has a line in RESULTS.jsonl is not run again: remove its line to repeat it. ``--table`` only prints the table of
the file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from acceld.cli.kernels import baseline_of, evaluated_once, parsed_kernel
from acceld.cli.modules import write_module_workload
from acceld.config import EvaluateConfig
from acceld.errors import AcceldError
from acceld.lowering.aten.requests import ModuleReference, ModuleRequest, Refused, module_references
from acceld.model import Gate, Status
from acceld.workloads import load_workload

OUTCOMES = ("right", "refused", "wrong", "out of time", "out of memory")


def main() -> int:
    """Run the problems that have no result yet, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("results", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--levels", default="1,2", help="levels to run (default 1,2)")
    parser.add_argument("--only", default="", metavar="REGEX", help="only problems whose name this pattern matches")
    parser.add_argument("--seconds", type=float, default=300.0, help="processor seconds for each problem (default 300)")
    parser.add_argument("--gib", type=float, default=10.0, help="memory in GiB that a process may use (default 10)")
    parser.add_argument("--api", default="nki", help="API of the kernels (default nki)")
    parser.add_argument("--table", action="store_true", help="run nothing, and print the table of the results")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        limit = int(given.gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        _answer([Path(line.strip()) for line in sys.stdin], given.api)
        return 0
    levels = given.levels.split(",")
    if not given.table:
        done = _read(given.results)
        problems = [one for level in levels for one in _problems(given.folder, level)]
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the process of the problems ends too
        try:
            _run(given, [one for one in problems if _name(one) not in done and re.search(given.only, _name(one))])
        except KeyboardInterrupt:
            print("stopped; the same command goes on with the problem at which it was stopped", flush=True)
            return 130
    _print(_read(given.results), levels)
    return 0


def _problems(folder: Path, level: str) -> list[Path]:
    found = [one for one in folder.rglob("*.py") if one.parent.name == f"level{level}"]
    return sorted(found, key=lambda one: (int(re.match(r"\d*", one.stem)[0] or 0), one.stem))  # type: ignore[index]


def _name(problem: Path) -> str:
    return f"{problem.parent.name}/{problem.stem}"


def _read(results: Path) -> dict[str, dict[str, Any]]:
    if not results.is_file():
        return {}
    lines = (json.loads(line) for line in results.read_text("utf-8").splitlines() if line.strip())
    return {one["problem"]: one for one in lines}


def _run(given: argparse.Namespace, problems: Sequence[Path]) -> None:
    """Run the problems, and append a line for each to the file of results."""
    waiting = list(problems)
    while waiting:
        for found in _answers(given, tuple(waiting)):
            record = {"problem": _name(waiting.pop(0)), **found}
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(f"{record['problem']}: {record['outcome']} ({record['seconds']} s) {record['why'][:150]}", flush=True)


def _answers(given: argparse.Namespace, problems: Sequence[Path]) -> Generator[dict[str, Any]]:
    """Yield the result of each problem, all from one process, up to the problem at which the process ends or is
    out of time.
    """
    command = [sys.executable, "-m", "scripts.kernelbench", "--answer", "--api", given.api, "--gib", str(given.gib)]
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(
            [*command, "-", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            start_new_session=True,
        ) as process,
        contextlib.ExitStack() as last,
    ):
        last.callback(_end, process.pid)  # also if a person stops the trial: Ctrl-C does not reach another session
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("".join(f"{one}\n" for one in problems))
        process.stdin.close()
        for _ in problems:
            began, before = time.monotonic(), processor_seconds(process.pid)
            answered, late = threading.Event(), threading.Event()
            watch = threading.Thread(target=_end_at, args=(process.pid, before + given.seconds, answered, late))
            watch.start()
            try:
                line = process.stdout.readline()
            finally:
                answered.set()
                watch.join()
            seconds = round(time.monotonic() - began, 1)
            if line:
                used = processor_seconds(process.pid) - before
                yield json.loads(line) | {"seconds": seconds, "processor_seconds": round(used, 1)}
                continue
            told.seek(0)
            said = told.read().strip().splitlines()[-1:] or ["no message"]
            if late.is_set():
                why = f"more than {given.seconds:.0f} s of processor time"
                yield {"outcome": "out of time", "why": why, "seconds": seconds}
            else:
                yield {
                    "outcome": "wrong",
                    "why": f"its process ended with {process.wait()}: {said[0]}",
                    "seconds": seconds,
                }
            return


def _end_at(process: int, limit: float, answered: threading.Event, late: threading.Event) -> None:
    """End a process and its descendants when they have used ``limit`` seconds of processor time, and set ``late``."""
    while not answered.wait(1.0):
        if processor_seconds(process) > limit:
            late.set()
            _end(process)
            return


def _end(process: int) -> None:
    """End a process and the group that it leads."""
    with contextlib.suppress(ProcessLookupError):  # the group has ended
        os.killpg(process, signal.SIGKILL)


def processor_seconds(process: int) -> float:
    """Return the processor seconds of a process and of its descendants, including those that have ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for one in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = one.read_text().rpartition(")")[2].split()
            parents[int(one.parent.name)] = int(fields[1])
            ticks[int(one.parent.name)] = sum(map(int, fields[11:15]))
    own = {process}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")


def _answer(problems: Sequence[Path], api: str) -> None:
    """Print the result of each problem as a line of JSON."""
    requests = [ModuleRequest(f"{one}:Model", training=True, reduced=True) for one in problems]
    for found in module_references(requests):
        try:
            outcome = _outcome(found, api)
        except MemoryError:
            outcome = {"outcome": "out of memory", "why": ""}
        print(json.dumps(outcome), flush=True)


def _outcome(found: ModuleReference | Refused, api: str) -> dict[str, Any]:
    """Return the result of one problem."""
    if isinstance(found, Refused):
        # An exception of another class than NotLowered is a defect of acceld, as is the end of its process.
        defect = re.search(r"^\w+(Error|Exception): |^the process that records|differs from the module by", found.why)
        return {"outcome": _kind(found.why, "wrong" if defect else "refused"), "why": found.why}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "problem"
        try:
            lowered = write_module_workload(found, folder, name="problem")
        except AcceldError as error:
            return {"outcome": _kind(error.message, "wrong"), "why": error.message}
        if api not in lowered.kernels:
            return {"outcome": "refused", "why": lowered.refused[api]}
        try:
            return _checked(folder, Path(place), api)
        except AcceldError as error:
            return {"outcome": _kind(error.message, "wrong"), "why": error.message}


def _kind(why: str, other: str) -> str:
    """Return the kind of a failure by its message: too little memory, too little time, else ``other``.

    A SIGKILL that acceld did not send comes from a system that has run out of memory. A kernel whose source is too long
    is refused.
    """
    if re.search(r"has more than \d+ MiB; that is not a kernel", why):
        return "refused"
    if re.search("MemoryError|allocate|memory|SIGKILL", why):
        return "out of memory"
    return "out of time" if re.search("deadline|takes more than", why) else other


def _checked(folder: Path, place: Path, api: str) -> dict[str, Any]:
    """Evaluate a kernel on data, and return the result."""
    loaded = load_workload(folder)
    kernel = parsed_kernel(baseline_of(loaded, api), api=api, entry=loaded.entry or "")
    where = {"workload": loaded.name, "folder": str(folder.resolve()), "chip": "trn2"}
    found = asyncio.run(evaluated_once(kernel, Gate.SEARCH, EvaluateConfig(slots=1), place, **where))
    if found.status is Status.PASSED:
        return {"outcome": "right", "why": "", "stages": dict(found.seconds)}
    assert found.failure is not None
    why = f"{found.status}: {found.failure.message}"
    return {"outcome": _kind(why, "wrong"), "why": why, "stages": dict(found.seconds)}


def _print(results: dict[str, dict[str, Any]], levels: Sequence[str]) -> None:
    print("level  problems  " + "  ".join(OUTCOMES))
    for level in levels:
        own = [one for name, one in results.items() if name.startswith(f"level{level}/")]
        counts = [sum(one["outcome"] == outcome for one in own) for outcome in OUTCOMES]
        print(
            f"{level:>5}  {len(own):>8}  " + "  ".join(f"{n:>{len(o)}}" for n, o in zip(counts, OUTCOMES, strict=True))
        )
    for name, one in results.items():
        if one["outcome"] != "right" and name.removeprefix("level").split("/")[0] in levels:
            print(f"{name}: {one['outcome']}: {one['why']}")


if __name__ == "__main__":
    sys.exit(main())
