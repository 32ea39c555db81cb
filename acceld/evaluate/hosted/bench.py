"""Call the child processes of a hosted backend: build, generate inputs, time one kernel or two, check outputs.

Builders and workers, which run evaluated code, are forks of one *zygote*, a process that has loaded all modules
before. A second zygote serves the workload's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from acceld.cores import CORES, THREADS
from acceld.errors import WorkloadError
from acceld.evaluate.case import Failed
from acceld.evaluate.correctness.admission import Admission, answered
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.hosted.arena import Layout, memory_file
from acceld.evaluate.hosted.driver import Driver, Job, Lease, Rights
from acceld.evaluate.hosted.oracle import errors_of
from acceld.evaluate.hosted.referee import FINISHED, CallPlan
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.messages import BadMessage, clean, failure_from, pack, parse
from acceld.evaluate.sandbox.process import Outcome, SandboxError, Zygote
from acceld.evaluate.sandbox.reply import Reply
from acceld.model import Failure, Status
from acceld.workloads import Workload, address_of

EMPTY = "acceld.evaluate.hosted.worker:empty"
_ORACLE_S = 900.0
_EMPTY_S = 60.0
_MOST_ARTEFACT = 64 << 20
_MOST_COUNTERS = 64
_MOST_RECORD = 4 << 20
_DEALT_BYTES = 4 << 30
"""Limit on the bytes of inputs and outputs that children make and check at once. In float64 these bytes become up to
eight times as many.
"""
_FILES, _DEVICE_FILES = 64, 1024
"""Limits on the open files of an evaluated process. A GPU's driver library opens hundreds."""
_ARTEFACT_MODE, _FOLDER_MODE = 0o755, 0o711
"""File modes with which evaluated processes can read the built kernel. These processes run as another user if the
daemon is root.
"""
_STATUSES = {
    "output_shape": Status.INCORRECT_SHAPE,
    "output_count": Status.INCORRECT_SHAPE,
    "output_type": Status.INCORRECT_DTYPE,
    "output_dtype": Status.INCORRECT_DTYPE,
    "protocol": Status.REJECTED,
}
"""Statuses by rule, for rules that a kernel can break while it runs. Any other rule gives the status of a run-time
error.
"""


@dataclass(frozen=True, slots=True)
class Artefact:
    """One built kernel: the path of its bytes, their hash, and the builder's log."""

    path: str
    sha256: str
    job: Job
    log: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Draw:
    """The variant and the seed from which the inputs of one call follow.

    - ``again``: the inputs equal those of an earlier call, to check that the outputs are equal too.
    - ``changed``: the number of the input array in which one element is changed; None for no change.
    """

    variant: str
    seed: int
    again: bool = False
    changed: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return the record as a dict for JSON."""
        return {"variant": self.variant, "seed": self.seed, "again": self.again, "changed": self.changed}


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits of a session of calls.

    At most ``calls`` calls are made. Once ``budget_s`` seconds have passed, no further call begins, unless fewer than
    ``least`` calls were made.
    """

    calls: int
    least: int
    budget_s: float
    call_s: float
    """Deadline of one call in seconds."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """The referee's record of one worker (the process with the kernel), with one entry for each complete call.
    ``failed`` says why no further calls were made; None if all calls were made.
    """

    wall_us: tuple[float, ...]
    processor_us: tuple[float, ...]
    claimed_us: tuple[float | None, ...]
    unwritten: tuple[int, ...]
    failed: Failed | None
    outcome: Outcome

    @property
    def calls(self) -> int:
        """Return the number of complete calls."""
        return len(self.wall_us)


@dataclass(frozen=True, slots=True)
class Checked:
    """The comparison of one call's outputs with the reference.

    For a repeated call, ``moved`` has the distances from the outputs of the first call with these inputs. ``refused``
    says why the variant can not be used; empty if the variant can be used.
    """

    errors: tuple[Errors, ...] = ()
    moved: tuple[Errors, ...] = ()
    refused: str = ""


class Kept:
    """A memory file that exists until it is closed."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.descriptor = memory_file(name, size_bytes)

    def close(self) -> None:
        """Close the memory file, which frees its memory."""
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class TimedSession:
    """The calls of one session: memory, inputs, device and limits. The kernel may change the arguments
    ``mutates``.
    """

    layout: Layout
    batches: Kept
    lease: Lease
    terms: Terms
    mutates: tuple[int, ...] = ()


class Bench:
    """Start and call the child processes of one driver."""

    def __init__(self, driver: Driver, level: Level, cgroup_folder: str, *, build_s: float, memory_bytes: int) -> None:
        tasks = {
            "build": "acceld.evaluate.hosted.worker:build",
            "serve": "acceld.evaluate.hosted.worker:serve",
            "referee": "acceld.evaluate.hosted.referee:referee",
        }
        oracle = {task: f"acceld.evaluate.hosted.oracle:{task}" for task in ("generate", "check", "admit")}
        self._driver = driver
        self._level = level
        self._build_s = build_s
        self._memory_bytes = memory_bytes
        self._evaluated = Zygote(tasks, level=level, cgroup_folder=cgroup_folder)
        self._oracle = Zygote(oracle, level=level, cgroup_folder=cgroup_folder)
        self._folder = Path()

    async def start(self) -> None:
        """Start both zygotes, the processes that fork jailed children. A zygote is a process that forks further
        jailed processes. Raise SandboxError if a zygote does not start.
        """
        self._folder = await asyncio.to_thread(_private_folder)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._evaluated.start())
            group.create_task(self._oracle.start())

    async def stop(self) -> None:
        """End both zygotes, and remove built kernels."""
        await asyncio.gather(self._evaluated.stop(), self._oracle.stop())
        await asyncio.to_thread(shutil.rmtree, self._folder, True)

    async def build(self, job: Job) -> Artefact | Failed:
        """Build a kernel in a jail without data. Return the built kernel, or a failure."""
        api = str(job["api"])
        scratch, write = ("/tmp", ()) if self._level >= Level.L3 else await asyncio.to_thread(self._scratch)
        request = json.dumps({"builder": self._driver.builder, "job": {**job, "scratch": scratch}}).encode()
        jail = _jail(self._driver.building(api), self._build_s, write_paths=write)
        outcome, reply = await self._evaluated.run("build", request, jail, modules=_module(self._driver.builder))
        with reply:
            if outcome.cause in ("deadline", "cpu"):
                failure = Failure("build_deadline", f"building the kernel {outcome.text}")
                return Failed(Status.TIMEOUT, failure)
            try:
                header, offset = parse(reply)
                if "failure" in header:
                    _, failure = failure_from(header)
                    return Failed(Status.COMPILE_ERROR, failure)
            except BadMessage:
                return Failed(Status.COMPILE_ERROR, Failure("crash", f"building the kernel {outcome.text}"))
            data = await asyncio.to_thread(reply.read, _MOST_ARTEFACT, offset)
        digest = hashlib.sha256(data).hexdigest()
        path = self._folder / f"{api}-{digest}"
        await asyncio.to_thread(_write, path, data)
        return Artefact(str(path), digest, job, clean(header.get("log")), _counters(header), outcome.wall_s)

    def _scratch(self) -> tuple[str, tuple[str, ...]]:
        """Return a folder that the builder may write to, and the paths that its jail must allow."""
        folder = tempfile.mkdtemp(dir=self._folder)
        os.chmod(folder, 0o777)  # only users who may enter the parent folder reach this folder
        return folder, (folder,)

    async def generate(self, workload: Workload, layout: Layout, draws: Sequence[Draw]) -> Kept:
        """Return a memory file with the inputs of every call, which the caller must close.

        Raise WorkloadError if the workload's code fails.
        """
        batches = Kept("acceld-batches", layout.input_bytes * len(draws))
        try:
            await self._ask_all(workload, "generate", layout, draws, {}, batches.descriptor)
        except BaseException:
            batches.close()
            raise
        return batches

    @staticmethod
    def keep(layout: Layout, calls: int) -> Kept:
        """Return an empty memory file for the outputs of every call, which the caller must close."""
        return Kept("acceld-outputs", layout.output_bytes * calls)

    async def check(
        self, workload: Workload, layout: Layout, draws: Sequence[Draw], kept: Kept, floors: dict[str, Any]
    ) -> list[Checked]:
        """Compare the outputs of each call with the reference, and return one result for each call.

        ``floors`` has the known noise floors by variant; newly measured floors are added to this mapping.
        """
        header = {
            "floors": floors,
            "reference": self._driver.reference,
            "repeats": any(draw.again for draw in draws),
            "libraries": self._libraries(),
        }
        found: dict[int, Checked] = {}
        answers = await self._ask_all(workload, "check", layout, draws, header, kept.descriptor)
        for numbers, answer in answers:
            floors |= {variant: floor for variant, floor in answer["floors"].items() if variant not in floors}
            for number, one in zip(numbers, answer["calls"], strict=True):
                errors, moved = (tuple(errors_of(one.get(name, ()))) for name in ("errors", "moved"))
                found[number] = Checked(errors, moved, one.get("refused", ""))
        return [found[number] for number in range(len(draws))]

    async def admit(self, workload: Workload, seed: int) -> Admission:
        """Examine whether the workload's checks can distinguish right outputs from wrong ones, and return the findings.

        Raise WorkloadError if the workload's reference is at fault.
        """
        request = {
            **address_of(workload),
            "seed": seed,
            "reference": self._driver.reference,
            "libraries": self._libraries(),
        }
        jail, modules = self._oracle_jail(expects=True), _module(self._driver.reference)
        return answered(workload, *await self._oracle.run("admit", pack(request), jail, modules=modules))

    def _oracle_jail(self, *, expects: bool) -> Jail:
        """Return the jail for the workload's own code.

        With ``expects`` this code computes expected outputs and gets the rights that the driver's reference
        needs.
        """
        rights = self._driver.referring() if expects and self._driver.reference else None
        return oracle_jail(rights, self._memory_bytes)

    def _libraries(self) -> tuple[str, ...]:
        """Return the paths of the shared libraries that the driver's reference needs; empty without such a
        reference.
        """
        return self._driver.referring().libraries if self._driver.reference else ()

    async def _ask_all(
        self,
        workload: Workload,
        task: str,
        layout: Layout,
        draws: Sequence[Draw],
        further: Mapping[str, Any],
        shared: int,
    ) -> list[tuple[list[int], dict[str, Any]]]:
        """Divide the calls among several child processes. For each child, return the numbers of its calls, and its
        answer.
        """
        hands = self._dealt(layout, draws)
        headers = [
            {
                **address_of(workload),
                "layout": layout.plain(),
                "numbers": numbers,
                "trials": [draws[number].plain() for number in numbers],
                **further,
            }
            for numbers in hands
        ]
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._ask(workload, task, one, shared)) for one in headers]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from several
        return [(numbers, one.result()) for numbers, one in zip(hands, asked, strict=True)]

    def _dealt(self, layout: Layout, draws: Sequence[Draw]) -> list[list[int]]:
        """Return lists of call numbers, one list for each child process.

        A repeated call goes to the child of the call that it repeats. There are several children only if the
        kernel runs on a device with its own clock. On the host, several children would disturb the timing.
        """
        call_bytes = max(1, layout.input_bytes + layout.output_bytes)
        most = max(1, min(CORES, _DEALT_BYTES // call_bytes)) if self._driver.clock == "claimed" else 1
        place: dict[tuple[str, int], int] = {}
        hands: list[list[int]] = [[] for _ in range(most)]
        for number, draw in enumerate(draws):
            hands[place.setdefault((draw.variant, draw.seed), len(place) % most)].append(number)
        return [one for one in hands if one]

    async def _ask(self, workload: Workload, task: str, header: dict[str, Any], shared: int) -> dict[str, Any]:
        """Run one child process and return its answer. Raise WorkloadError if the workload's code fails."""
        jail = self._oracle_jail(expects=task == "check")
        modules = _module(self._driver.reference)
        outcome, reply = await self._oracle.run(task, pack(header), jail, modules=modules, shared=[shared])
        with reply:
            try:
                answer, _ = parse(reply)
            except BadMessage as error:
                raise WorkloadError(
                    f"the reference of workload {workload.name!r} did not finish: it {outcome.text}",
                    hint=f"See {workload.reference}.",
                ) from error
        if "error" in answer:
            raise WorkloadError(clean(answer["error"]), hint=clean(answer.get("hint")))
        return answer

    async def time(self, artefacts: Sequence[Artefact], session: TimedSession, kept: Kept) -> list[WorkerRecord]:
        """Time one kernel, or two interleaved, on the inputs of a session. Return one record for each kernel.

        The outputs of the first kernel go to ``kept``.
        """
        if len(artefacts) == 1:
            return [await self._serve(artefacts[0], session, kept)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._interleaved(place, ends, artefact, session, into))
                    for place, (artefact, ends, into) in enumerate(zip(artefacts, _pipes(), (kept, None), strict=True))
                ]
            return [task.result() for task in tasks]
        except BaseExceptionGroup as several:
            # A failure of one side's harness ends the session of the other side too. The first exception is the cause.
            raise several.exceptions[0] from several

    async def _interleaved(
        self, place: int, ends: tuple[int, int], artefact: Artefact, session: TimedSession, kept: Kept | None
    ) -> WorkerRecord:
        """Run one of two kernels that take turns, and return its record. ``place`` is 0 for the kernel that
        starts, else 1.

        Afterwards the pipes to the referee that times the competitor are closed. That referee then continues alone.
        """
        try:
            return await self._serve(artefact, session, kept, place, ends)
        finally:
            for end in ends:
                os.close(end)

    async def empty(self, layout: Layout, lease: Lease, calls: int) -> WorkerRecord:
        """Time calls of a kernel that computes nothing, to learn the cost of a call. Return the record."""
        job = {
            "api": "", "text": "", "filename": "", "entry": "", "grid": [], "settings": {},
            "arguments": [{"name": s.name, "shape": s.shape, "dtype": s.dtype} for s in layout.inputs],
            "outputs": [],
        }  # fmt: skip
        batches = Kept("acceld-batches", layout.input_bytes * calls)
        try:
            session = TimedSession(layout, batches, lease, Terms(calls, calls, _EMPTY_S, _EMPTY_S))
            return await self._serve(Artefact("", "", job), session, None)
        finally:
            batches.close()

    async def _serve(
        self,
        artefact: Artefact,
        session: TimedSession,
        kept: Kept | None,
        place: int | None = None,
        pipes: tuple[int, ...] = (),
    ) -> WorkerRecord:
        """Run one kernel in a worker beside its referee, and return the referee's record.

        For a comparison of two kernels, ``place`` says whether this one is called first (0) or second (1) in the first
        round, and ``pipes`` connect the two referees.
        """
        layout, terms, lease = session.layout, session.terms, session.lease
        plan = CallPlan(
            layout, terms.calls, terms.least, terms.budget_s, terms.call_s, self._build_s, place, session.mutates,
            kept is not None,
        )  # fmt: skip
        empty = not artefact.path
        worker = EMPTY if empty else self._driver.worker
        request = {
            "job": artefact.job, "layout": layout.plain(), "artefact": artefact.path, "worker": worker,
            "mutates": session.mutates,
        }  # fmt: skip
        rights = Rights() if empty else self._driver.running(str(artefact.job["api"]), artefact.path, lease)
        wall_s = self._build_s + terms.budget_s + terms.call_s * (2 if place is None else 4)
        jail = _jail(rights, wall_s, cores=(lease.index,) if self._driver.clock == "processor" else ())
        with contextlib.ExitStack() as stack:
            record = _descriptor(stack, os.memfd_create("acceld-record", os.MFD_CLOEXEC))
            os.pwrite(record, json.dumps(plan.plain()).encode(), 0)
            arena = _descriptor(stack, memory_file("acceld-arena", layout.size_bytes))
            nothing = _descriptor(stack, os.memfd_create("acceld-nothing", os.MFD_CLOEXEC))
            ring_out, ring_in = (_descriptor(stack, end) for end in os.pipe())
            done_out, done_in = (_descriptor(stack, end) for end in os.pipe())
            outcome, reply = await self._evaluated.run(
                "serve",
                json.dumps(request).encode(),
                jail,
                modules=_module(worker),
                referee="referee",
                shared=[arena, ring_out, done_in],
                private=[
                    record,
                    session.batches.descriptor,
                    kept.descriptor if kept else nothing,
                    ring_in,
                    done_out,
                    *pipes,
                ],
            )
            with reply:
                said = os.pread(record, _MOST_RECORD, 0)
                return _timed(outcome, reply, said)


def _module(where: str) -> tuple[str, ...]:
    """Return the module of ``module:function`` in a tuple, for the zygote to import; an empty tuple for an
    empty text.
    """
    return (where.partition(":")[0],) if where else ()


def _timed(outcome: Outcome, reply: Reply, said: bytes) -> WorkerRecord:
    """Return the record of a worker, made of the referee's record ``said`` and the worker's untrusted reply."""
    try:
        record = json.loads(said)
        wall = record["wall_ns"]
    except (ValueError, KeyError) as error:
        if outcome.cause in ("memory", "processes"):
            record, wall = {"processor_ns": [], "claimed_us": [], "unwritten": [], "rule": "", "message": ""}, []
        else:
            raise SandboxError(
                f"the referee of a kernel left no record: it {outcome.text}",
                hint="try again; if it happens again, acceld doctor says what this machine lacks",
            ) from error
    return WorkerRecord(
        tuple(one / 1000 for one in wall),
        tuple(one / 1000 for one in record["processor_ns"]),
        tuple(record["claimed_us"]),
        tuple(record["unwritten"]),
        _failed(outcome, reply, record),
        outcome,
    )


def _failed(outcome: Outcome, reply: Reply, record: Mapping[str, Any]) -> Failed | None:
    """Return the failure that ended a worker early; None if all calls were made."""
    if outcome.cause == FINISHED:
        if not record["rule"]:
            return None
        failure = Failure(record["rule"], record["message"])
        return Failed(_STATUSES.get(failure.rule, Status.RUNTIME_ERROR), failure)
    if outcome.cause in ("deadline", "cpu"):
        return Failed(Status.TIMEOUT, Failure("deadline", f"running the kernel {outcome.text}"))
    try:
        header, _ = parse(reply)
        _, failure = failure_from(header)
        return Failed(_STATUSES.get(failure.rule, Status.RUNTIME_ERROR), failure)
    except BadMessage:
        rule = "memory" if outcome.cause == "memory" else "crash"
        return Failed(Status.RUNTIME_ERROR, Failure(rule, f"the kernel's process {outcome.text}"))


def _jail(rights: Rights, wall_s: float, *, write_paths: tuple[str, ...] = (), cores: tuple[int, ...] = ()) -> Jail:
    """Return the jail for a builder or a worker with these rights."""
    return Jail(
        memory_bytes=rights.memory_bytes,
        wall_s=wall_s,
        cpu_s=int(wall_s) + 1,
        processes=rights.processes,
        execute=rights.execute,
        trusted=rights.own_code,
        devices=bool(rights.device_paths),
        open_files=_DEVICE_FILES if rights.device_paths else _FILES,
        read_paths=rights.read_paths,
        write_paths=(*write_paths, *rights.device_paths),
        cores=cores,
    )


def oracle_jail(rights: Rights | None, memory_bytes: int) -> Jail:
    """Return the jail for a workload's own code.

    ``rights`` are the rights of a reference that runs on a device; None for a reference in numpy.
    """
    return Jail(
        memory_bytes=memory_bytes if rights is None else rights.memory_bytes,
        wall_s=_ORACLE_S,
        cpu_s=int(_ORACLE_S),
        output_bytes=1 << 36,
        processes=1 if rights is None else rights.processes,
        open_files=_FILES if rights is None else _DEVICE_FILES,
        threads=THREADS,
        trusted=True,
        devices=rights is not None,
        write_paths=() if rights is None else rights.device_paths,
    )


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the pipe ends through which two referees tell each other that it is the other's turn: (read end, write
    end) for each referee.
    """
    first_hears, second_reports = os.pipe()
    second_hears, first_reports = os.pipe()
    return (first_hears, first_reports), (second_hears, second_reports)


def _descriptor(stack: contextlib.ExitStack, descriptor: int) -> int:
    """Return ``descriptor``, which will be closed when ``stack`` ends."""
    stack.callback(os.close, descriptor)
    return descriptor


def _private_folder() -> Path:
    """Return a new folder for built kernels, which other users can not list."""
    folder = Path(tempfile.mkdtemp(prefix="acceld-hosted-"))
    folder.chmod(_FOLDER_MODE)
    return folder


def _counters(header: Mapping[str, Any]) -> dict[str, float]:
    """Return the builder's counters whose values are finite numbers. Other values are left out, because a builder is
    untrusted.
    """
    reported = header.get("counters")
    found = reported.items() if isinstance(reported, dict) else ()
    numbers = ((clean(name)[:60], value) for name, value in found if type(value) in (int, float))
    return {name: float(value) for name, value in islice(numbers, _MOST_COUNTERS) if math.isfinite(value)}


def _write(path: Path, data: bytes) -> None:
    """Write a file with the rights that let evaluated processes read it, also as another user."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(data)
    partial.chmod(_ARTEFACT_MODE)
    partial.replace(path)
