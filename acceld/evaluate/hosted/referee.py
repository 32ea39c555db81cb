"""Give a worker its inputs, time it and keep its outputs. The referee runs beside the worker, not in it.

The referee is the worker's parent (the supervisor of :mod:`acceld.evaluate.sandbox.zygote`). It has every input
and never runs evaluated code. One call goes as follows:

1. The worker is stopped by SIGSTOP, which no process can refuse and which stops all its threads.
2. The worker's arena gets inputs that the worker has never seen, with a few hundred elements still wrong, and
   random bytes as outputs.
3. The referee writes a byte, the *doorbell*, to the pipe that the worker waits on. **The clocks start.** The wrong
   elements are corrected.
4. The worker is continued by SIGCONT. It reads the byte, runs the kernel and answers on another pipe.
5. The worker is stopped again, and the referee waits until the system reports that. **The clocks end.**
6. Outputs are copied, guard zones and inputs are compared with what they were.

So the clocks cover everything that the worker does while it can see data. The worker gains nothing by answering
early, by computing early or by going on after the answer. The cost of an empty call is measured in the same way.

Two clocks are read: the wall clock, and the worker's processor time as the system accounts it.

The referees of a candidate and of its competitor take turns, in the order ABBA, on one core. They signal their
turns through pipes.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import json
import math
import mmap
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acceld.evaluate.hosted.arena import Layout, Slot
from acceld.evaluate.hosted.worker import ANSWER
from acceld.evaluate.sandbox.zygote import Job

FIXUPS = 200
"""Number of elements of each input that are corrected after the clocks have started."""
TILE_BYTES = 4096
_READY_MESSAGE, _TURN, _STOP = b"r", b"t", b"s"
_HANDLING_S = 10.0
"""Seconds for writing inputs and copying outputs around a call."""
FINISHED = "finished"
"""Cause that the outcome of a worker names if the referee ended the worker because all calls were made."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The calls that a referee makes, and their limits.

    In a session with a competitor, ``place`` is 0 for the kernel that starts and 1 for the other kernel; else
    it is None. Once ``budget_s`` seconds have passed, no call beyond the first ``least`` begins.
    """

    layout: Layout
    calls: int
    least: int
    budget_s: float
    call_s: float
    """Deadline of one call in seconds."""
    ready_s: float
    place: int | None
    mutates: tuple[int, ...] = ()
    """Positions of inputs that the kernel may change."""
    keep_outputs: bool = True

    def plain(self) -> dict[str, Any]:
        """Return the record as a dict for JSON."""
        return {
            name: getattr(self, name)
            for name in ("calls", "least", "budget_s", "call_s", "ready_s", "place", "mutates", "keep_outputs")
        } | {"layout": self.layout.plain()}

    @staticmethod
    def from_plain(raw: dict[str, Any]) -> CallPlan:
        """Return the plan from the dict that :meth:`plain` returns."""
        others = {**raw, "layout": Layout.from_plain(raw["layout"]), "mutates": tuple(raw["mutates"])}
        return CallPlan(**others)


class _Ended(Exception):
    """Raised to end the session. ``cause`` is the cause that the outcome names."""

    def __init__(self, cause: str, rule: str = "", message: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.rule = rule
        self.message = message


@dataclass(slots=True)
class _Session:
    """The state of one session: a sequence of calls of one kernel in one worker."""

    job: Job
    child: int
    plan: CallPlan
    arena: mmap.mmap
    batches: mmap.mmap | None
    doorbell: int
    done: int
    kept: int
    turn_in: int
    turn_out: int
    deadline: float
    rng: np.random.Generator
    gone: tuple[int | None, int | None] | None = None
    """Exit status and signal of a worker that ended by itself; None if the worker has not ended by itself."""
    wall_ns: list[int] = field(default_factory=list)
    processor_ns: list[int] = field(default_factory=list)
    claimed_us: list[float | None] = field(default_factory=list)
    unwritten: list[int] = field(default_factory=list)
    alone: bool = False


def referee(job: Job, child: int, started: float) -> dict[str, Any]:
    """Run one session, and return its outcome after the worker has ended.

    The job's private descriptors are, in this order:

    - the record: first the plan, at the end the result
    - the input batches
    - the kept outputs
    - the write end of the doorbell
    - the read end of the worker's answers
    - with a competitor: a read end and a write end, for the turns
    """
    record_file, batch_file, kept, doorbell, done, *turns = job.private
    raw = json.loads(os.pread(record_file, os.fstat(record_file).st_size, 0))
    plan = CallPlan.from_plain(raw)
    arena = mmap.mmap(job.shared[0], plan.layout.size_bytes)
    batch_bytes = os.fstat(batch_file).st_size
    batches = mmap.mmap(batch_file, batch_bytes, mmap.MAP_SHARED, mmap.PROT_READ) if batch_bytes else None
    for descriptor in job.shared[1:]:
        os.close(descriptor)
    for descriptor in (job.request, job.reply):
        os.close(descriptor)
    turn_in, turn_out = turns if turns else (-1, -1)
    session = _Session(
        job, child, plan, arena, batches, doorbell, done, kept, turn_in, turn_out,
        started + job.jail.wall_s, np.random.default_rng(),
    )  # fmt: skip
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    ended = _Ended(FINISHED)
    try:
        _run(session)
    except _Ended as end:
        ended = end
    finally:
        for descriptor in (turn_in, turn_out):
            if descriptor >= 0:
                os.close(descriptor)
    if session.gone is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        session.gone = (None, int(signal.SIGKILL)) if ended.cause != FINISHED else (0, None)
    record = {
        "wall_ns": session.wall_ns,
        "processor_ns": session.processor_ns,
        "claimed_us": [None if one is None or not math.isfinite(one) else one for one in session.claimed_us],
        "unwritten": session.unwritten,
        "rule": ended.rule,
        "message": ended.message,
    }
    os.ftruncate(record_file, 0)
    os.pwrite(record_file, json.dumps(record).encode(), 0)
    return {"exit": session.gone[0], "signal": session.gone[1], "cause": ended.cause}


def _run(session: _Session) -> None:
    """Make the calls of a session."""
    plan = session.plan
    guards = _fill_guards(session, plan.layout)
    with _bounded(session, plan.ready_s):
        _await_answer(session, -1, plan.ready_s)
        _stop(session)
    started = time.monotonic()
    if plan.place is not None:
        _send(session, _READY_MESSAGE)
        _hear(session, plan.ready_s)
    for number in range(plan.calls):
        if not _begin(session, number, started):
            return
        if plan.layout.second is not None:
            guards = _fill_guards(session, plan.layout.at(number))
        with _bounded(session, plan.call_s):
            _call(session, number, guards)
        _end(session, number)


@contextlib.contextmanager
def _bounded(session: _Session, most_s: float) -> Iterator[None]:
    """End the session if its worker blocks the referee for more than ``most_s`` seconds where ``_wait`` does
    not notice.

    For example, a worker that sends itself SIGCONT discards a pending stop. A worker that has filled its pipe
    blocks the doorbell byte.
    """

    def late(number: int, frame: object) -> None:
        raise _Ended("deadline")

    before = signal.signal(signal.SIGALRM, late)
    left_s = min(most_s + _HANDLING_S, session.deadline - time.monotonic())
    signal.setitimer(signal.ITIMER_REAL, max(0.001, left_s))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _begin(session: _Session, number: int, started: float) -> bool:
    """Wait until this referee's worker may make call ``number``. Return False if the session, which began at
    ``started``, is over.

    In a round each of the two kernels is called once. The referee whose worker is called first in a round decides
    whether the session goes on.
    """
    place = session.plan.place
    late = number >= session.plan.least and time.monotonic() - started > session.plan.budget_s
    if place is None or session.alone:
        return not late
    first = (number % 2 == 0) == (place == 0)
    if first:
        if late:
            _send(session, _STOP)
        return not late
    return _hear(session, session.plan.call_s * 2) != _STOP


def _end(session: _Session, number: int) -> None:
    """Tell the referee that times the competitor to begin its call, if this worker's call ``number`` was the first of
    its round.
    """
    place = session.plan.place
    if place is not None and (number % 2 == 0) == (place == 0):
        _send(session, _TURN)


def _send(session: _Session, message: bytes) -> None:
    """Send a message to the competitor's referee. If that referee has ended, this session continues alone."""
    if not session.alone:
        try:
            os.write(session.turn_out, message)
        except BrokenPipeError:
            session.alone = True


def _hear(session: _Session, most_s: float) -> bytes:
    """Wait for a message of the competitor's referee, and return it.

    The message is empty if that referee has ended. Then this session continues alone.
    """
    if session.alone:
        return b""
    _wait(session, session.turn_in, most_s, watch_child=False)
    heard = os.read(session.turn_in, 1)
    session.alone = not heard
    return heard


def _call(session: _Session, number: int, guards: list[tuple[int, bytes]]) -> None:
    """Make one call of the kernel.

    Write the inputs, run the worker between two readings of the clocks, keep the outputs, and check guard zones
    and inputs.
    """
    plan, layout = session.plan, session.plan.layout.at(number)
    fixes = _deliver(session, number)
    tile = session.rng.bytes(TILE_BYTES)
    for slot in layout.outputs:
        whole, rest = divmod(slot.size_bytes, TILE_BYTES)
        session.arena[slot.offset : slot.offset + slot.size_bytes] = tile * whole + tile[:rest]
    clock = processor_clock(session.child)
    os.write(session.doorbell, (number + 1).to_bytes(8, "little"))
    processor_from = time.clock_gettime_ns(clock)
    wall_from = time.perf_counter_ns()
    for view, positions, right in fixes:
        view[positions] = right
    del fixes
    os.kill(session.child, signal.SIGCONT)
    claimed = _await_answer(session, number + 1, plan.call_s)
    _stop(session)
    wall_to = time.perf_counter_ns()
    processor_to = time.clock_gettime_ns(clock)
    session.wall_ns.append(wall_to - wall_from)
    session.processor_ns.append(processor_to - processor_from)
    session.claimed_us.append(claimed)
    unwritten, kept_at = 0, number * layout.output_bytes
    for slot in layout.outputs:
        found = session.arena[slot.offset : slot.offset + slot.size_bytes]
        unwritten += _unwritten(found, tile, slot.dtype)
        if plan.keep_outputs:
            os.pwrite(session.kept, found, kept_at)
            kept_at += slot.size_bytes
    session.unwritten.append(unwritten)
    _check_guards(session, guards, layout)
    _check_inputs(session, number)


def _deliver(session: _Session, number: int) -> list[tuple[Any, Any, Any]]:
    """Write the inputs of a call into the arena, a few hundred elements of them still wrong.

    Return the wrong elements as (array, positions, right values).
    """
    fixes = []
    cursor = number * session.plan.layout.input_bytes
    for slot in session.plan.layout.at(number).inputs:
        assert session.batches is not None
        session.arena[slot.offset : slot.offset + slot.size_bytes] = session.batches[cursor : cursor + slot.size_bytes]
        cursor += slot.size_bytes
        view = slot.view(session.arena).reshape(-1)
        positions = session.rng.integers(0, view.size, min(FIXUPS, view.size))
        right = view[positions]
        view[positions] = view[session.rng.integers(0, view.size, len(positions))]
        fixes.append((view, positions, right))
    return fixes


def _fill_guards(session: _Session, layout: Layout) -> list[tuple[int, bytes]]:
    """Fill the guard zones around the arrays with random bytes, and return each zone's start and bytes."""
    guards = []
    for start, end in layout.guards():
        noise = session.rng.bytes(end - start)
        session.arena[start:end] = noise
        guards.append((start, noise))
    return guards


def _check_guards(session: _Session, guards: list[tuple[int, bytes]], layout: Layout) -> None:
    """End the session if a byte in a guard zone, outside of all arrays, has changed."""
    for start, noise in guards:
        if session.arena[start : start + len(noise)] != noise:
            where = _nearest(layout, start + _first_difference(session, start, noise))
            raise _Ended(FINISHED, "out_of_bounds", f"the kernel wrote out of bounds, {where}")


def _first_difference(session: _Session, start: int, noise: bytes) -> int:
    """Return the arena position of the first byte that has changed in the guard zone from ``start`` on, which held
    ``noise``.
    """
    now = np.frombuffer(session.arena[start : start + len(noise)], np.uint8)
    return int(np.flatnonzero(now != np.frombuffer(noise, np.uint8))[0])


def _nearest(layout: Layout, position: int) -> str:
    """Return a text that says where a position outside of all arrays lies, relative to the nearest array."""

    def distance(slot: Slot) -> int:
        return max(slot.offset - position, position - (slot.offset + slot.size_bytes) + 1)

    slot = min((*layout.inputs, *layout.outputs), key=distance)
    side = "before the start" if position < slot.offset else "past the end"
    apart = distance(slot)
    return f"{apart} {'byte' if apart == 1 else 'bytes'} {side} of {slot.name}"


def _check_inputs(session: _Session, number: int) -> None:
    """End the session if the kernel changed, in call ``number``, an input that it may not change."""
    cursor = number * session.plan.layout.input_bytes
    for position, slot in enumerate(session.plan.layout.at(number).inputs):
        assert session.batches is not None
        given = session.batches[cursor : cursor + slot.size_bytes]
        cursor += slot.size_bytes
        now = session.arena[slot.offset : slot.offset + slot.size_bytes]
        if position not in session.plan.mutates and now != given:
            raise _Ended(
                FINISHED,
                "input_changed",
                f"the kernel changed its input {slot.name}, which the key 'mutates' in workload.toml does not name",
            )


def _unwritten(found: bytes, tile: bytes, dtype: str) -> int:
    """Return how many 4-byte words of an output still have their initial random bytes.

    Return 0 for an output whose size is no multiple of 4 bytes, because single bytes may be equal by chance.
    """
    width = 4 if len(found) % 4 == 0 else 1
    kind = np.dtype(f"u{width}")
    now = np.frombuffer(found, kind)
    before = np.frombuffer(tile, kind)
    whole = len(now) // len(before) * len(before)
    same = int(np.count_nonzero(now[:whole].reshape(-1, len(before)) == before))
    same += int(np.count_nonzero(now[whole:] == before[: len(now) - whole]))
    return same if width == 4 else 0


def _await_answer(session: _Session, number: int, most_s: float) -> float | None:
    """Wait for the worker's answer to a call.

    Return the microseconds that the worker measured by a clock of its device; None if its device has no such clock.
    """
    _wait(session, session.done, most_s, watch_child=True)
    said = os.read(session.done, ANSWER.size)
    if len(said) != ANSWER.size:
        raise _Ended(FINISHED, "protocol", "the kernel's process closed the pipe on which it answers calls")
    answered, claimed = ANSWER.unpack(said)
    if answered != number:
        raise _Ended(FINISHED, "protocol", f"the kernel's process answered call {answered} instead of {number}")
    return claimed if math.isfinite(claimed) else None


def _wait(session: _Session, descriptor: int, most_s: float, *, watch_child: bool) -> None:
    """Wait until a descriptor can be read. End the session at the deadline, or if the worker or the daemon has
    ended.
    """
    handle = os.pidfd_open(session.child)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        poll.register(session.job.control, select.POLLIN | select.POLLHUP)
        if watch_child:
            poll.register(handle, select.POLLIN)
        left_s = min(most_s, session.deadline - time.monotonic())
        ready = [number for number, _ in poll.poll(max(0.0, left_s) * 1000 + 1)]
    finally:
        os.close(handle)
    if session.job.control in ready:
        raise _Ended("stopped")
    if descriptor in ready:
        return
    if handle in ready:
        _reap(session)
        raise _Ended("")
    raise _Ended("deadline")


def _stop(session: _Session) -> None:
    """Stop the worker and wait until it has stopped."""
    os.kill(session.child, signal.SIGSTOP)
    result = os.waitid(os.P_PID, session.child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert result is not None
    if result.si_code != os.CLD_STOPPED:
        _reap(session)
        raise _Ended("")
    os.waitid(os.P_PID, session.child, os.WSTOPPED)


def _reap(session: _Session) -> None:
    """Collect the worker's exit status and store it in the session."""
    _, status = os.waitpid(session.child, 0)
    killed = os.WIFSIGNALED(status)
    session.gone = (None, os.WTERMSIG(status)) if killed else (os.WEXITSTATUS(status), None)


def processor_clock(pid: int) -> int:
    """Return the id of the clock that counts the processor time of process ``pid`` (clock_getcpuclockid(3))."""
    found = ctypes.c_int()
    if _libc.clock_getcpuclockid(pid, ctypes.byref(found)):
        raise OSError(f"there is no processor clock of process {pid}")
    return found.value


_libc = ctypes.CDLL(None)
