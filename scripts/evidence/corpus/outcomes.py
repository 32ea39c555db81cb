"""Try each kernel in a separate process and record its outcome."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

MEMORY_BYTES = 14 * 2**30
WALL_PER_CPU = 5
"""Longest wall-clock time of a trial on a busy machine, as a multiple of its limit of processor time."""


class State(StrEnum):
    """The last stage that a kernel reached."""

    EQUAL = "equal"
    DIFFERS = "differs"
    RUNS = "runs"
    """The kernel was executed, and there is no reference to compare its results with."""
    FAILED = "does not run"
    ILLEGAL = "illegal"
    UNTRACED = "does not trace"
    REFUSED = "refused"
    """The kernel uses a call that is not simulated. The reason names the call."""
    TIMEOUT = "timeout"
    CRASH = "crash"
    """The simulator itself failed."""
    UNTRIED = "not tried"
    """The kernel's own test can not be run in this environment."""


TRACED = frozenset({State.EQUAL, State.DIFFERS, State.RUNS, State.FAILED, State.ILLEGAL})
LEGAL = TRACED - {State.ILLEGAL}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of trying one kernel: the last stage that it reached, and why it went no further."""

    repository: str
    kernel: str
    state: State
    reason: str = ""
    seconds: float = 0.0
    """Processor time."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One kernel to try. ``run`` is called in a separate process; it returns the kernel's last stage and a
    reason.
    """

    repository: str
    kernel: str
    run: Callable[[], tuple[State, str]]
    limit_s: float = 120.0
    """Limit of processor time."""


def results(trials: Sequence[Trial], jobs: int) -> Iterator[Outcome]:
    """Run each trial in a forked process, ``jobs`` at a time; yield outcomes as they come."""
    fork = multiprocessing.get_context("fork")
    waiting = list(reversed(trials))
    running: dict[Connection, tuple[Trial, ForkProcess, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            trial = waiting.pop()
            mine, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_child, args=(trial, theirs))
            process.start()
            theirs.close()
            running[mine] = (trial, process, time.monotonic())
        ready = [one for one in wait(list(running), timeout=1.0) if isinstance(one, Connection)]
        for pipe in list(running):
            trial, process, began = running[pipe]
            late = time.monotonic() - began > trial.limit_s * WALL_PER_CPU
            if pipe not in ready and not late:
                continue
            outcome = _received(pipe) if pipe in ready else None
            if late:
                process.kill()
            process.join()
            if outcome is None and not late and process.exitcode != -signal.SIGXCPU:
                outcome = Outcome(trial.repository, trial.kernel, State.CRASH, f"its process died: {process.exitcode}")
            pipe.close()
            del running[pipe]
            yield outcome or Outcome(
                trial.repository, trial.kernel, State.TIMEOUT, f"more than {trial.limit_s:g} s", trial.limit_s
            )


def _received(pipe: Connection) -> Outcome | None:
    try:
        found: Outcome = pipe.recv()
    except EOFError:
        return None
    return found


def _child(trial: Trial, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(trial.limit_s), int(trial.limit_s) + 5))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    began = time.process_time()
    try:
        state, reason = trial.run()
    except BaseException as error:  # noqa: BLE001  # whatever a test raises
        state, reason = _failure(error)
    pipe.send(Outcome(trial.repository, trial.kernel, state, reason[:400], round(time.process_time() - began, 2)))
    pipe.close()
    os._exit(0)


def _failure(error: BaseException) -> tuple[State, str]:
    """Return the stage and the reason for an error. The error is a fault of the simulator, or of the test."""
    frames = list(traceback.walk_tb(error.__traceback__))
    text = f"{type(error).__name__}: {error}"
    if not frames:
        return State.UNTRIED, text
    frame, line = frames[-1]
    # By the name of the module, since a checkout can lie in a folder of any name.
    ours = str(frame.f_globals.get("__name__")).partition(".")[0] == "acceld"
    usage = type(error).__name__ == "UsageError"
    where = f" at {Path(frame.f_code.co_filename).name}:{line}"
    return (State.CRASH if ours and not usage else State.UNTRIED), text + where


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write outcomes as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))


def read(path: Path) -> list[Outcome]:
    """Return the outcomes in a file; an empty list if there is no file."""
    if not path.is_file():
        return []
    return [Outcome(**{**one, "state": State(one["state"])}) for one in json.loads(path.read_text())]
