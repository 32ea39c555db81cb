"""Run the zygote: a process that imports the modules of jobs and forks a jailed child for each job.

:mod:`acceld.evaluate.sandbox.process` starts the zygote by exec with an empty environment, before the daemon has
a key. The zygote has one thread. It imports the modules of a job before the fork, once for all jobs, because a
jail has no files to import from. A job arrives as one datagram with four file descriptors:

* ``request``: a file with the task's input
* ``reply``: a file to which the child writes its answer
* ``control``: a pipe; when its other end closes, the job is ended with all its descendants
* ``status``: a pipe to which the job's supervisor writes one line of JSON when it starts and one at the end

Further descriptors may follow: those that the child shares with its referee (5 and up in the child), then those
of the referee alone. A datagram without descriptors names tasks and modules to import before they are needed.

Each job has a supervisor, which never runs evaluated code. The jailed child is the supervisor's child. A job may
name a referee: code of acceld that the supervisor runs while the child lives
(:mod:`acceld.evaluate.hosted.referee`). When the datagram socket closes, the zygote ends. When the daemon dies,
all control pipes close, which ends every job.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from acceld.evaluate.sandbox import cgroups, linux, namespaces, process_tree
from acceld.evaluate.sandbox.jail import Jail, Level, enter

MAX_DATAGRAM = 60_000
WATCH_S = 0.02
"""Seconds between two readings of a job's memory and number of processes."""

_ENTERED = b"entered"
_MOST_DESCRIPTORS = 24

Task = Callable[[bytes, int], None]
"""Function that runs in the jailed child. Its arguments are the bytes of the request, and the descriptor to which it
writes its answer.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the daemon requested it."""

    task: str
    jail: Jail
    level: Level
    slot: int
    cgroup: str
    request: int
    reply: int
    control: int
    status: int
    referee: str = ""
    modules: tuple[str, ...] = ()
    """Modules to import before the child is jailed."""
    shared: tuple[int, ...] = ()
    private: tuple[int, ...] = ()


Referee = Callable[[Job, int, float], dict[str, Any]]
"""Function that takes the job, the child's process id and the start time, and returns the outcome after the child has
ended.
"""


def main(tasks: dict[str, str], descriptor: int) -> NoReturn:
    """Run the jobs that arrive at the datagram socket ``descriptor``, until it closes.

    ``tasks`` maps the name of a task to ``module:function``. The module is imported for the first job that
    needs it.
    """
    loaded: dict[str, Callable[..., Any]] = {}
    server = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server.send(b"ready")
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, MAX_DATAGRAM, _MOST_DESCRIPTORS)
        if not data:
            os._exit(0)  # a normal exit of Python would take longer than its start
        if not descriptors:
            _load(**json.loads(data), known=tasks, loaded=loaded)
            continue
        job = _job(data, descriptors)
        problem = _load([job.task, *filter(None, [job.referee])], job.modules, known=tasks, loaded=loaded)
        if os.fork() == 0:
            server.close()
            _supervise(job, loaded, problem)
        for number in descriptors:
            os.close(number)


def _load(
    tasks: Sequence[str], modules: Sequence[str], *, known: Mapping[str, str], loaded: dict[str, Callable[..., Any]]
) -> str:
    """Import tasks and modules that are not imported yet. Return the error as text; "" if all imports worked."""
    wanted = [name for name in tasks if name not in loaded]
    modules = [name for name in modules if name not in sys.modules]
    if not wanted and not modules:
        return ""
    gc.disable()
    try:
        for name in modules:
            importlib.import_module(name)
        loaded |= {name: _function(known[name]) for name in wanted}
    except Exception as error:  # noqa: BLE001  # a module may raise anything, which is reported to the daemon
        return f"{type(error).__name__}: {error}"
    finally:
        gc.freeze()
        gc.enable()
    return ""


def _function(where: str) -> Callable[..., Any]:
    """Import a module and return its function, both named as ``module:name``."""
    module, _, name = where.partition(":")
    task: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return task


def _job(data: bytes, descriptors: list[int]) -> Job:
    """Return the job that a datagram describes."""
    raw: dict[str, Any] = json.loads(data)
    jail, level = Jail.from_plain(raw["jail"]), Level(raw["level"])
    request, reply, control, status, *others = descriptors
    shared, private = others[: raw["shared"]], others[raw["shared"] :]
    return Job(
        raw["task"], jail, level, raw["slot"], raw["cgroup"], request, reply, control, status,
        raw["referee"], tuple(raw["modules"]), tuple(shared), tuple(private),
    )  # fmt: skip


def _supervise(job: Job, tasks: dict[str, Callable[..., Any]], problem: str) -> NoReturn:
    """Run a job as its supervisor: fork the child, watch it, end its descendants, and write the outcome."""
    started = time.monotonic()
    outcome: dict[str, Any] = {"exit": None, "signal": None, "cause": "harness", "detail": ""}
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        _say(job, {"pid": os.getpid()})
        if problem:
            raise OSError(problem)
        if job.level >= Level.L3:
            namespaces.separate()
        gate_read, gate_write = os.pipe()
        entered_read, entered_write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(gate_write)
            _run(job, tasks, gate_read, entered_write)
        os.close(gate_read)
        os.close(entered_write)
        if job.cgroup:
            cgroups.enter(job.cgroup, child)
        os.write(gate_write, b".")
        os.close(gate_write)
        referee: Referee = tasks[job.referee] if job.referee else watch
        outcome |= referee(job, child, started)
        os.set_blocking(entered_read, False)
        entered = os.read(entered_read, 300)
        if entered != _ENTERED:
            outcome |= {"cause": outcome["cause"] or "harness", "detail": entered.decode(errors="replace")}
    except OSError as error:
        outcome["detail"] = str(error)
    with contextlib.suppress(OSError):
        if job.cgroup:
            if outcome["exit"] != 0 and not outcome["cause"] and cgroups.ran_out_of_memory(job.cgroup):
                outcome["cause"] = "memory"
            cgroups.kill(job.cgroup)
        process_tree.end(os.getpid())
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    if (
        outcome["signal"] == signal.SIGKILL
        and not outcome["cause"]
        and usage.ru_utime + usage.ru_stime > job.jail.cpu_s - 1
    ):
        outcome["cause"] = "cpu"
    outcome |= {
        "wall_s": time.monotonic() - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
    }
    with contextlib.suppress(OSError):
        _say(job, outcome)
    os._exit(0)


def watch(job: Job, child: int, started: float) -> dict[str, Any]:
    """Wait until the child ends, the control pipe closes, the deadline passes or a limit is exceeded.

    End the child, and return the outcome as a dict for JSON.
    """
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(job.control, select.POLLIN | select.POLLHUP)
    deadline = started + job.jail.wall_s
    many = job.jail.processes > 1
    base = process_tree.tree(os.getpid()).memory_bytes if many else 0
    cause = ""
    while not cause:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            cause = "deadline"
            break
        ready = [number for number, _ in poll.poll(1000 * (min(left_s, WATCH_S) if many else left_s) + 1)]
        if handle in ready:
            break
        if job.control in ready:
            cause = "stopped"
        elif many:
            now = process_tree.tree(os.getpid())
            if len(now.pids) > job.jail.processes:
                cause = "processes"
            elif now.memory_bytes - base * len(now.pids) > job.jail.memory_bytes:
                cause = "memory"
    if cause:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"exit": None, "signal": os.WTERMSIG(status), "cause": cause}
    return {"exit": os.WEXITSTATUS(status), "signal": None, "cause": cause}


def _run(job: Job, tasks: dict[str, Callable[..., Any]], gate: int, entered: int) -> NoReturn:
    """Lock the child's process in, run the task, and exit.

    The pipe ``entered`` tells the daemon whether the jail was complete. The pipe is closed before evaluated code runs.
    """
    code = 1
    try:
        os.setsid()
        sys.dont_write_bytecode = True
        os.read(gate, 1)
        _keep_only(job, entered)
        if (numbers := sys.modules.get("numpy.random")) is not None:
            numbers.seed()  # all children would draw the same numbers, and none would seem to depend on them
        request = _read_all(0)
        try:
            enter(job.jail, job.level, slot=job.slot)
        except OSError as error:
            os.write(4, f"the jail of level {job.level.name} failed: {error}".encode()[:300])
            os._exit(1)
        os.write(4, _ENTERED)
        os.close(4)
        tasks[job.task](request, 3)
        code = 0
    finally:
        # Whatever the evaluated code raised, SystemExit included, this process must end here.
        os._exit(code)


def _keep_only(job: Job, entered: int) -> None:
    """Close all descriptors except 0 (the request), 1 and 2 (/dev/null), 3 (the reply), 4 (``entered``) and the shared
    descriptors.
    """
    null = os.open(os.devnull, os.O_RDWR)
    wanted = (job.request, null, null, job.reply, entered, *job.shared)
    # Free numbers above those wanted: a fixed range would be beyond a low limit on open files.
    safe = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, len(wanted)) for number in wanted]
    for target, number in enumerate(safe):
        os.dup2(number, target, inheritable=False)
    os.closerange(len(wanted), resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _read_all(descriptor: int) -> bytes:
    """Return the content of a file."""
    size = os.fstat(descriptor).st_size
    data = bytearray()
    while len(data) < size:
        part = os.pread(descriptor, size - len(data), len(data))
        if not part:
            break
        data += part
    return bytes(data)


def _say(job: Job, record: dict[str, Any]) -> None:
    """Write a record as one line of JSON to the status pipe of a job."""
    os.write(job.status, json.dumps(record).encode() + b"\n")


if __name__ == "__main__":
    named = importlib.import_module("acceld.evaluate.sandbox.zygote")  # referees import the module by this name
    named.main(json.loads(sys.argv[1]), int(sys.argv[2]))
