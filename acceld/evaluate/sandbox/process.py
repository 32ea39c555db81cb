"""Control a zygote from the daemon: start it, run jobs in jailed children, end them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from acceld.child import child
from acceld.errors import AcceldError
from acceld.evaluate.sandbox import cgroups
from acceld.evaluate.sandbox.jail import SLOTS, Jail, Level
from acceld.evaluate.sandbox.reply import Reply, write_all

log = logging.getLogger(__name__)

_START_S = 60.0
"""Seconds that a zygote may take to start, or to begin a job."""
_KILL_S = 5.0
_MAX_STATUS = 64_000
TRIES = 5
"""Number of tries for a job that something outside of acceld ends."""
_LOST = (
    "Something ended a process of the sandbox: the system's memory killer (`dmesg` shows that), or a person. "
    "Try again, with fewer [evaluate] slots if memory ran out."
)
_COPY_BYTES = 1 << 20
_ZYGOTE = "acceld.evaluate.sandbox.zygote"
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "LC_ALL": "C.UTF-8",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}
"""The environment of a zygote besides PYTHONPATH. No key of the daemon is in it.

The C library keeps freed memory of arrays below 256 MiB for the next arrays, in one pool for all threads. Otherwise the
system would clear it again each time.
"""


_SLOTS_TAKEN: set[int] = set()
"""Slots that the zygotes of this process use. Two jobs must not share a slot, because the system limits processes by
user id, and a job's user id follows from its slot.
"""
_JOBS = itertools.count(1)
"""Numbers for the cgroups that this process makes, for all zygotes."""

_CAUSES = {
    "memory": "ended above its memory limit",
    "processes": "ended above its process limit",
    "cpu": "ended above its processor time limit",
    "stopped": "stopped",
}


class SandboxError(AcceldError):
    """Raised when the sandbox itself failed: a zygote does not start, or a jail can not be entered."""


class LostError(SandboxError):
    """Raised when something outside of acceld, such as the system's memory killer or a person, ended a process of the
    sandbox.
    """


class SilentError(LostError):
    """Raised when the zygote did not begin a job, because the zygote is stopped or hangs."""


def lost_in(error: BaseException) -> LostError | None:
    """Return ``error`` if it is a LostError; for an exception group, the first LostError in the group; None otherwise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, LostError) else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job's process and its descendants.

    - ``exit`` or ``signal``: exactly one of them is set, unless the supervisor was lost.
    - ``cause``: empty if the process ended by itself, else ``deadline``, ``cpu``, ``memory``, ``processes`` or
      ``stopped``.
    - ``peak_bytes``: the greatest resident memory of a single process.
    - ``allowed_bytes``: the memory that acceld's own cgroup allows. It is set only if the job ended above its
      memory limit although its jail allows more.
    """

    exit: int | None
    signal: int | None
    cause: str
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    allowed_bytes: int | None = None

    @property
    def ended_well(self) -> bool:
        """Tell whether the job ended by itself with exit status 0. Evaluated code can end that way at any
        point.
        """
        return self.exit == 0 and not self.cause

    @property
    def killed(self) -> bool:
        """Tell whether the job was ended by a SIGKILL that came not from acceld, but from the system, a program or the
        job itself.
        """
        return self.signal == signal.SIGKILL and not self.cause

    @property
    def text(self) -> str:
        """Return how the job ended, as a phrase for messages, such as ``ended at its deadline after 3.0 s``."""
        if self.cause == "deadline":
            return f"ended at its deadline after {self.wall_s:.1f} s"
        if self.cause == "memory" and self.allowed_bytes is not None:
            allowed = f"{self.allowed_bytes >> 20} MiB"
            return (
                f"ended above its memory limit (the cgroup or container of acceld allows {allowed} for all: raise that)"
            )
        if self.cause:
            return _CAUSES.get(self.cause, self.cause)
        if self.signal is not None:
            name = signal.Signals(self.signal).name if self.signal in set(signal.Signals) else str(self.signal)
            return f"died of {name}"
        return f"exited with status {self.exit}"


class Zygote:
    """Control one zygote, a process that forks a jailed child for each job. Several jobs may run at once.

    Start it from a thread that lives as long as the zygote does, such as the event loop's.
    """

    def __init__(self, tasks: Mapping[str, str], *, level: Level, cgroup_folder: str = "") -> None:
        self.tasks = dict(tasks)
        self.level = level
        self._cgroup_folder = cgroup_folder if level >= Level.L4 else ""
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._lock = asyncio.Lock()

    def at(self, level: Level, cgroup_folder: str = "") -> Self:
        """Set the level at which later jobs are jailed, and return this zygote."""
        self.level = level
        self._cgroup_folder = cgroup_folder if level >= Level.L4 else ""
        return self

    @property
    def pid(self) -> int | None:
        """Return the process id of the zygote; None if the zygote does not run."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the zygote and wait until it takes jobs. Raise SandboxError if the zygote does not start, LostError if
        it is killed.
        """
        async with self._lock:
            await self._start()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            start = child(_ZYGOTE, json.dumps(self.tasks), str(theirs.fileno()), environment=_ENVIRONMENT)
            self._process = await asyncio.create_subprocess_exec(
                *start.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                env=start.environment,
                cwd="/",
                start_new_session=True,
            )
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_START_S):
                greeting = await loop.sock_recv(ours, 100)
        except (TimeoutError, OSError):
            greeting = b""
        if greeting != b"ready":
            assert self._process.stderr is not None
            await self._close()
            said = (await self._process.stderr.read(4000)).decode(errors="replace").strip()
            if not said and (self._process.returncode or 0) < 0:
                raise LostError("the sandbox's zygote, which starts its processes, was killed at its start", hint=_LOST)
            raise SandboxError(
                f"the sandbox's zygote, which starts its processes, did not start: {said[-600:] or 'it said nothing'}",
                hint="acceld doctor says which level of isolation this machine allows",
            )

    async def load(self, tasks: Sequence[str], modules: Sequence[str]) -> None:
        """Import tasks and modules in the running zygote now, so that the first job that needs them starts
        sooner.
        """
        await self._send(json.dumps({"tasks": tasks, "modules": modules}).encode(), [])

    async def stop(self) -> None:
        """End the zygote. The calls of :meth:`run` that are waiting end their jobs."""
        async with self._lock:
            await self._close()

    async def _end(self) -> None:
        """End a zygote that does not answer. The next job starts another zygote."""
        async with self._lock:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
            await self._close()

    async def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None and self._process.returncode is None:
            try:
                async with asyncio.timeout(1.0):
                    await self._process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()

    async def run(
        self,
        task: str,
        request: bytes,
        jail: Jail,
        *,
        attachment: Reply | None = None,
        offset: int = 0,
        modules: Sequence[str] = (),
        referee: str = "",
        shared: Sequence[int] = (),
        private: Sequence[int] = (),
    ) -> tuple[Outcome, Reply]:
        """Run one task in a jailed child. Return its outcome and its answer, after the child and all
        descendants have ended.

        - The child gets ``request``, followed by the content of ``attachment`` from ``offset`` on.
        - ``modules`` are imported before the child is jailed, so their names must not come from an untrusted
          source.
        - ``shared`` descriptors have the numbers 5 and up in the child.
        - ``referee`` names a task that the supervisor runs beside the child. The referee also gets the
          ``private`` descriptors.

        The caller closes the answer. A cancelled call ends the job before it returns. Raise SandboxError if
        the jail can not be entered, LostError if the zygote or the supervisor is lost.

        If something outside of acceld ended a job, the job is run again, :data:`TRIES` times in all: a job
        leaves nothing behind. A job with a referee is not run again, because its calls were already made.
        """
        described = {"task": task, "modules": list(modules), "referee": referee, "shared": len(shared)}
        descriptors = (*shared, *private)
        for left in reversed(range(1 if referee else TRIES)):
            try:
                outcome, reply = await self._once(described, request, jail, attachment, offset, descriptors)
            except LostError as error:
                if isinstance(error, SilentError):
                    await self._end()
                if not left:
                    raise
                log.warning("%s; its job %r is done again", error.message, task)
                continue
            if not outcome.killed or not left:
                return outcome, reply
            log.warning("a job %r died of SIGKILL; it is done again", task)
            reply.close()
        raise AssertionError("not reached, because the last try returns or raises")

    async def _once(
        self,
        described: Mapping[str, Any],
        request: bytes,
        jail: Jail,
        attachment: Reply | None,
        offset: int,
        further: Sequence[int],
    ) -> tuple[Outcome, Reply]:
        """Run a job once, and return its outcome and its answer. The job gets a slot of its own, from which its
        user id follows.
        """
        reply = Reply(_memory_file())
        slot = _free_slot()
        _SLOTS_TAKEN.add(slot)
        try:
            request_file = _memory_file()
            try:
                await asyncio.to_thread(_fill, request_file, request, attachment, offset)
                descriptors = (request_file, reply.descriptor, *further)
                outcome = await self._run(described, descriptors, jail, slot)
            finally:
                os.close(request_file)
        except BaseException:
            reply.close()
            raise
        finally:
            _SLOTS_TAKEN.discard(slot)
        return outcome, reply

    async def _run(self, described: Mapping[str, Any], descriptors: Sequence[int], jail: Jail, slot: int) -> Outcome:
        """Send a job to the zygote, wait for its end, and return the outcome."""
        cgroup = self._make_cgroup(jail)
        control_read, control_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            where = {"jail": jail.plain(), "level": int(self.level), "slot": slot, "cgroup": cgroup}
            request_file, reply, *others = descriptors
            try:
                await self._send(
                    json.dumps({**described, **where}).encode(),
                    [request_file, reply, control_read, status_write, *others],
                )
            finally:
                for descriptor in (control_read, status_write):
                    os.close(descriptor)
            return await _await_status(status_read, control_write, jail)
        finally:
            os.close(control_write)
            os.close(status_read)
            if cgroup:
                await asyncio.to_thread(cgroups.remove, cgroup)

    def _make_cgroup(self, jail: Jail) -> str:
        """Make a cgroup for a job and return its path; empty if the level has no cgroups."""
        if not self._cgroup_folder:
            return ""
        name = f"acceld-{os.getpid()}-{next(_JOBS)}"
        memory = jail.memory_bytes + (256 << 20)
        # a thread that has ended may still count against the limit for a while
        processes = jail.processes + 1 + 2 * jail.threads
        return cgroups.create(self._cgroup_folder, name, memory_bytes=memory, processes=processes)

    async def _send(self, message: bytes, descriptors: list[int]) -> None:
        """Send a message to the zygote. If the zygote is lost, start another one first."""
        async with self._lock:
            for first in (True, False):
                if self._socket is None or self.pid is None:
                    await self._close()
                    await self._start()
                assert self._socket is not None
                try:
                    socket.send_fds(self._socket, [message], descriptors)
                    return
                except BlockingIOError:
                    await asyncio.sleep(0.01)
                except (BrokenPipeError, ConnectionError) as error:
                    log.warning("the sandbox's zygote, which starts its processes, was lost; starting another")
                    await self._close()
                    if not first:
                        raise LostError(
                            f"the sandbox's zygote, which starts its processes, does not answer: {error}", hint=_LOST
                        ) from error
        raise LostError("the sandbox's zygote, which starts its processes, accepts no jobs", hint=_LOST)


async def _await_status(status: int, control: int, jail: Jail) -> Outcome:
    """Wait for the two lines that the supervisor writes, and return the outcome of the job.

    If this call is cancelled, or if the job is late, tell the supervisor to end the job.
    """
    loop = asyncio.get_running_loop()
    os.set_blocking(status, False)
    received = bytearray()
    begun, done = asyncio.Event(), asyncio.Event()

    def readable() -> None:
        try:
            data = os.read(status, 65536)
        except BlockingIOError:
            return
        received.extend(data)
        begun.set()
        if not data or len(received) > _MAX_STATUS:
            loop.remove_reader(status)
            done.set()

    loop.add_reader(status, readable)
    try:
        async with asyncio.timeout(_START_S):
            await begun.wait()
        async with asyncio.timeout(jail.wall_s + _KILL_S):
            await done.wait()
    except TimeoutError:
        if not received:
            raise SilentError("the sandbox's zygote, which starts its processes, accepts no jobs", hint=_LOST) from None
        log.warning("a supervisor passed its deadline and is ended")
        _kill_supervisor(received)
        return Outcome(None, signal.SIGKILL, "deadline", jail.wall_s)
    except asyncio.CancelledError:
        await _stop(status, control, done, received)
        raise
    finally:
        loop.remove_reader(status)
    lines = bytes(received).splitlines()
    if len(lines) < 2:
        raise LostError("the supervisor of a job was lost", hint=_LOST)
    record: dict[str, Any] = json.loads(lines[-1])
    if record["cause"] == "harness" and not record["detail"]:
        raise LostError("a job ended before its jail was complete", hint=_LOST)
    if record["cause"] == "harness":
        raise SandboxError(
            f"a job could not be jailed: {record['detail']}",
            hint="acceld doctor says which level of isolation this machine allows",
        )
    outer = cgroups.memory_limit() if record["cause"] == "memory" else None
    return Outcome(
        record["exit"],
        record["signal"],
        record["cause"],
        record["wall_s"],
        record["cpu_s"],
        record["peak_bytes"],
        outer if outer is not None and outer < jail.memory_bytes else None,
    )


async def _stop(status: int, control: int, done: asyncio.Event, received: bytearray) -> None:
    """Tell the supervisor of a cancelled job to end it, and wait briefly. The supervisor may have ended already."""
    with contextlib.suppress(BrokenPipeError):
        os.write(control, b"x")
    try:
        async with asyncio.timeout(_KILL_S):
            await done.wait()
    except TimeoutError:
        _kill_supervisor(received)


def _kill_supervisor(received: bytearray) -> None:
    """Kill the supervisor, whose process id is in the first line that it wrote."""
    with contextlib.suppress(ValueError, KeyError, IndexError, ProcessLookupError):
        os.kill(json.loads(bytes(received).splitlines()[0])["pid"], signal.SIGKILL)


def _free_slot() -> int:
    """Return the number of a slot that no other job of this process uses. A job's user id follows from its slot.

    Other daemons begin with other numbers.
    """
    first = 8 * os.getpid() % SLOTS
    return next((slot for n in range(SLOTS) if (slot := (first + n) % SLOTS) not in _SLOTS_TAKEN), first)


def _memory_file() -> int:
    """Return the descriptor of a new, empty file in memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("acceld", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _fill(descriptor: int, data: bytes, attachment: Reply | None, offset: int) -> None:
    """Write ``data`` to a descriptor, followed by the attachment from ``offset`` on."""
    write_all(descriptor, data)
    while attachment is not None and (part := attachment.read(_COPY_BYTES, offset)):
        offset += len(part)
        write_all(descriptor, part)
