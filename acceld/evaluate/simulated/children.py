"""Start and call the child processes of the simulator: tracer, judge and oracle.

The tracer traces a kernel. The judge inspects a program, and runs it on a data set. The oracle makes data sets.
All are forks of one zygote, which holds no data: a request lies in a file that only its own child has. The
second trace of a candidate is a fork of another zygote.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from acceld.config import EvaluateConfig
from acceld.cores import THREADS
from acceld.errors import WorkloadError
from acceld.evaluate.baselines import oracle_kernel
from acceld.evaluate.case import Case, Failed
from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.admission import Admission, answered
from acceld.evaluate.correctness.bands import stored_as
from acceld.evaluate.correctness.datasets import DataSet
from acceld.evaluate.correctness.distributions import OWN, own_inputs_refused
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.gates import Trial, least_tolerance
from acceld.evaluate.correctness.noise import Floors, NumpyFloor
from acceld.evaluate.sandbox import ladder
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.messages import BadMessage, clean, failure_from, pack, parse
from acceld.evaluate.sandbox.process import Outcome, SandboxError, Zygote
from acceld.evaluate.sandbox.reply import Reply
from acceld.evaluate.simulated.beside import Beside
from acceld.evaluate.simulated.tracer_modules import ALWAYS, FRONT_ENDS, tracer_modules
from acceld.home import dataset_folder
from acceld.model import Failure, Kernel, Status
from acceld.private_files import NO_ROOM
from acceld.targets import nki_version
from acceld.workloads import Arguments, ArraySpec, Precision, Workload, address_of

log = logging.getLogger(__name__)

TASKS = {
    "trace": "acceld.evaluate.simulated.tracer:run",
    "make": "acceld.evaluate.correctness.oracle:make",
    "admit": "acceld.evaluate.correctness.examination:admit",
    "inspect": "acceld.evaluate.simulated.inspection:inspect",
    "try": "acceld.evaluate.simulated.simulation:attempt",
    **ladder.TASKS,
}
PROGRAM_BYTES = 64 << 20
_MADE_BY = "\0".join(f"{name} {version(name)}" for name in ("acceld", "numpy", "ml_dtypes"))
"""Versions of the software that decides what is in a data set. Several installs of acceld may share the folder of data
sets.
"""
_BUSY = 4.0
"""Wall time that a tracer may take, as a multiple of its processor time. The multiple allows for a busy machine, where
the tracer gets only a part of a core.
"""
ROOM_S = 1.0
"""Seconds between two tries of a data set for which the disk has no room."""
_ORACLE_S = 900.0
_ORACLE_NICE = 10
"""Niceness of an oracle. An oracle has several threads and runs beside a program with one thread, which must not be the
last to end.
"""
_OPEN_FILES = 4096
"""Most files that a process with a data set may have open. The process maps a file for each argument and each output.
"""
_FOLDER = 6
"""Descriptor of a data set's folder in a child that begins before the data set is complete."""
_READ_AGAIN_S = 30.0
"""Seconds after which the folder of data sets is read again although there seems to be room, because other processes
may write to it.
"""


class NoRoomError(Exception):
    """Raised when the disk has no room for a data set at the moment."""


@dataclass(slots=True)
class Traced:
    """The answer of a tracer: untrusted bytes that may encode a Program. The caller must close the record, which
    frees the bytes.
    """

    reply: Reply
    offset: int
    seconds: float

    def sha256(self) -> str:
        """Return the SHA-256 of the answer's bytes, in hexadecimal."""
        return hashlib.sha256(self.reply.read(PROGRAM_BYTES + 1, self.offset)).hexdigest()

    def close(self) -> None:
        """Free the answer's bytes."""
        self.reply.close()


@dataclass(frozen=True, slots=True)
class Inspected:
    """The hash and the timeline of a legal program, found without running it."""

    program_sha256: str
    profile: dict[str, Any]
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Tried:
    """The errors of a program's outputs on one data set, one for each piece of an output.

    ``on_chip`` has the relative L2 errors with functions as inexact as the chip's; None if these errors were not
    computed.
    """

    errors: tuple[Errors, ...]
    seconds: dict[str, float]
    on_chip: tuple[float, ...] | None = None
    settled: bool = True
    """False if memory that was never written may decide the outputs."""


@dataclass(frozen=True, slots=True)
class UnusedVariant:
    """A variant that a workload does not use, with the reason."""

    variant: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A data set that is to be made."""

    workload: Workload
    variant: str
    seed: int
    folder: Path
    known: NumpyFloor | None
    """The noise floors of the variant; None if they are unknown."""
    measured: bool
    """True if floors are measured on the inputs of this data set."""
    beside: Beside[Any]
    """The trial that begins as soon as the inputs are written."""

    def request(self, partial: Path) -> dict[str, Any]:
        """Return the request for an oracle that writes into the folder ``partial``."""
        workload, known = self.workload, self.known
        return {
            **address_of(workload),
            "seed": self.seed,
            "variant": self.variant,
            "folder": str(partial),
            "floors": None if known is None or self.measured else [floor.plain() for floor in known.floors],
            "closely": self.measured,
            "split": workload.precision is not Precision.FP32_STRICT,
            "least": astuple(least_tolerance(workload, self.variant)),
        }


class Children:
    """Start and call the child processes. The noise floors that they measure are stored in the state folder.

    If ``zygote`` is given, which must offer the tasks :data:`TASKS`, it is used instead of a new zygote.
    """

    def __init__(
        self,
        config: EvaluateConfig,
        state_folder: Path,
        level: Level,
        cgroup_folder: str = "",
        *,
        floors: Floors | None = None,
        zygote: Zygote | None = None,
    ) -> None:
        self._floors = floors or Floors(state_folder / "floors")
        self._config = config
        self._root = dataset_folder(state_folder)
        self._zygote = zygote or Zygote(TASKS, level=level, cgroup_folder=cgroup_folder)
        self._reading = Zygote(TASKS, level=level, cgroup_folder=cgroup_folder)
        """Zygote for second traces, started with the first second trace. It has other hashes of strings and other
        addresses than the zygote for first traces.
        """
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._memory_bytes = int(config.memory_gib * 2**30)
        self._coming_bytes = 0
        """Bytes of the data sets that are being made."""
        self._held_bytes = 0
        """Bytes of the data sets on disk, as known without reading the folder again."""
        self.waits_for = ""
        """Reason why no data set can be made now, in words; empty if data sets can be made."""
        self._read_s = -math.inf
        """Time at which the folder was last read, by the monotonic clock."""

    async def start(self) -> None:
        """Start the zygote that every evaluation needs. Raise SandboxError if the zygote does not start."""
        await asyncio.to_thread(self._root.mkdir, 0o700, True, True)
        await self.trim()
        if self._zygote.pid is None:
            await self._zygote.start()

    async def load(self) -> None:
        """Let the zygote import the front ends in advance, so that the first kernel is timed as quickly as
        later ones.
        """
        await self._zygote.load(("trace", "inspect"), (*ALWAYS, *FRONT_ENDS.values()))

    async def stop(self) -> None:
        """End the zygotes, the processes that fork jailed children."""
        await self._zygote.stop()
        await self._reading.stop()

    async def trace(
        self,
        kernel: Kernel,
        arguments: Arguments,
        chip: str,
        *,
        observe: bool = False,
        guarded: bool = False,
    ) -> Traced | Failed:
        """Trace a kernel in the jail, from shapes. Return the tracer's answer, or a failure.

        With ``observe`` the answer describes the kernel's expressions instead of its program. With ``guarded``
        the file is run as the permitted subset of Python, which takes a little longer, in a process that shares
        nothing with other traces.
        """
        deadline_s = self._config.build_s * (2 if guarded else 1)
        request = {
            "source": kernel.text,
            "filename": kernel.filename,
            "closure": dict(kernel.closure),
            "entry": kernel.entry,
            "grid": kernel.grid,
            "lnc": kernel.lnc,
            "api": kernel.api,
            "chip": chip,
            "arguments": [_plain(argument) for argument in arguments],
            "max_instructions": self._config.max_instructions,
            "strict_legality": self._config.strict_legality,
            "nki": nki_version(self._config.nki) if kernel.api == "nki" else None,
            "deadline_s": deadline_s,
            "observe": observe,
            "guarded": guarded,
        }
        jail = Jail(
            memory_bytes=self._memory_bytes,
            wall_s=_BUSY * deadline_s + 2.0,
            cpu_s=int(deadline_s) + 2,
            output_bytes=PROGRAM_BYTES,
        )
        outcome, reply = await (self._reading if guarded else self._zygote).run(
            "trace", json.dumps(request).encode(), jail, modules=tracer_modules(kernel, observe=observe)
        )
        try:
            answer = _tracer_answer(outcome, reply)
        except BaseException:
            reply.close()
            raise
        if isinstance(answer, Failed):
            reply.close()
            return answer
        return Traced(reply, answer, outcome.wall_s)

    async def inspect(
        self, traced: Traced, header: dict[str, Any], *, deadline_s: float | None = None
    ) -> Inspected | Failed:
        """Decode, verify and time the program of a tracer's answer. Return the findings, or a failure.

        ``header`` describes the program that the answer must be: target, launch, inputs and outputs.
        """
        jail = self._judge_jail(deadline_s or self._config.time_s)
        outcome, reply = await self._zygote.run(
            "inspect", pack(header), jail, attachment=traced.reply, offset=traced.offset
        )
        with reply:
            raw = _judge_answer(outcome, reply, "timing")
        if isinstance(raw, Failed):
            return raw
        return Inspected(raw["program_sha256"], raw["profile"], raw["seconds"])

    async def attempt(
        self,
        traced: Traced,
        data: DataSet,
        trial: Trial,
        deadline_s: float,
        ran: Tried | None = None,
    ) -> Tried | Failed:
        """Run a traced program on a data set in a fresh process. Return the errors of its outputs, or a
        failure.

        ``ran`` is the result of an earlier plain run of the same program on this data set. Its errors are used again
        if the trial would only repeat that run.
        """
        return await self._attempt(traced, str(data.folder), trial, self._judge_jail(deadline_s), ran=ran)

    async def _attempt(
        self,
        traced: Traced,
        folder: str,
        trial: Trial,
        jail: Jail,
        *,
        ran: Tried | None = None,
        shared: Sequence[int] = (),
    ) -> Tried | Failed:
        """Run a traced program on the data set in ``folder``. Return the errors of its outputs, or a failure.

        If there are ``shared`` descriptors, the data set may be incomplete. The data set is complete when the first of
        these descriptors closes. ``ran`` is the argument of :meth:`attempt`.
        """
        header: dict[str, Any] = {
            "folder": folder,
            "incomplete": bool(shared),
            "shuffle": trial.seed if trial.shuffled else None,
            "ran": ran is not None,
            "as_timed": trial.as_timed,
            "chip_functions": trial.shuffled,
            "again": trial.again,
            "own": trial.variant == OWN,
        }
        header["max_bytes"] = self._memory_bytes
        outcome, reply = await self._zygote.run(
            "try", pack(header), jail, attachment=traced.reply, offset=traced.offset, shared=shared
        )
        with reply:
            raw = _judge_answer(outcome, reply, "running")
        if isinstance(raw, Failed):
            return raw
        on_chip = raw["on_chip"]
        modelled = None if on_chip is None else tuple(math.inf if one is None else one for one in on_chip)
        if raw["errors"] is None and ran is not None:
            return replace(ran, seconds=raw["seconds"], on_chip=modelled)
        errors = tuple(
            Errors(*(math.inf if one is None else one for one in found), place=place)
            for found, place in zip(raw["errors"], raw["places"], strict=True)
        )
        return Tried(errors, raw["seconds"], modelled, raw["settled"])

    @asynccontextmanager
    async def tried(
        self,
        case: Case,
        traced: Traced,
        trial: Trial,
        deadline_s: float,
        allowed: asyncio.Event | None = None,
        ran: Tried | None = None,
    ) -> AsyncIterator[tuple[DataSet, Tried | Failed] | None]:
        """Run a program on a trial's data set. Yield the data set, which stays on disk during the block, and the result.

        The program starts once ``allowed`` is set. If the data set is new, the program runs while the reference is
        computed. ``ran`` is the argument of :meth:`attempt`.

        If the workload does not use the variant, record that in the case and yield None. Raises the errors of
        :meth:`data_for`.
        """

        async def begin(complete: int, folder: int) -> Tried | Failed:
            if allowed is not None:
                await allowed.wait()
            jail = replace(self._judge_jail(deadline_s), wall_s=deadline_s + _ORACLE_S)
            there = f"/proc/self/fd/{_FOLDER}"
            return await self._attempt(traced, there, trial, jail, ran=ran, shared=(complete, folder))

        beside = Beside(begin)
        try:
            async with self.data_for(case, trial, beside) as data:
                if allowed is not None:
                    await allowed.wait()
                if data is None:
                    yield None
                else:
                    yield data, await beside.result() or await self.attempt(traced, data, trial, deadline_s, ran)
        finally:
            await beside.end()

    @asynccontextmanager
    async def data_set(
        self,
        workload: Workload,
        variant: str,
        seed: int,
        *,
        kept: bool = True,
        measured: bool = False,
        beside: Beside[Any] | None = None,
    ) -> AsyncIterator[DataSet | UnusedVariant]:
        """Yield a data set of a variant, new or from disk, for use in the block; an UnusedVariant, with the reason, if
        the workload does not use the variant.

        After the block the data set is removed, unless it is ``kept`` and the disk has room. If the data set is new,
        the trial ``beside`` begins as soon as the inputs are written, before the expected outputs are.

        The noise floors of the data set are those stored for the variant, if there are any. With ``measured`` they are
        measured on these very inputs, and no other caller gets the data set. They then have the noise of float32 in
        numpy and, where the workload allows products of bfloat16 parts, also the noise of such products.

        Raise WorkloadError if the reference is at fault.
        """
        known = await asyncio.to_thread(self._floors.of_numpy, workload, variant)
        if known is not None and known.refused:
            yield UnusedVariant(variant, known.refused)
            return
        kind = f"{stored_as(variant)}\0{seed}" + (f"\0{secrets.token_hex(8)}" if measured else "")
        # A reference may import files that the workload's hash does not cover, so workload folders share no data sets.
        origin = f"{_MADE_BY}\0{workload.folder.resolve()}\0{workload.hash}"
        name = hashlib.sha256(f"{origin}\0{kind}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
        folder = self._root / name
        async with self._locks[name]:
            wanted = _Wanted(workload, variant, seed, folder, known, measured, beside or Beside(_nothing))
            found = await asyncio.to_thread(datasets.hold, folder) or await self._write_with_room(wanted)
        if isinstance(found, UnusedVariant):
            yield found
            return
        data, lock = found
        try:
            if known is None:  # another state folder may have made the data set
                learned = NumpyFloor(data.floors, seconds=data.seconds)
                await asyncio.to_thread(self._floors.learn_numpy, workload, variant, learned)
            yield data
        finally:
            os.close(lock)
            if (measured or not kept) and await asyncio.to_thread(datasets.remove, folder):
                self._held_bytes -= _disk_bytes(workload)
            await self.trim()

    async def make_ahead(self, workload: Workload, variant: str, seed: int) -> None:
        """Make a data set, unless it exists, and leave it on disk. Raise WorkloadError if the reference is at
        fault.
        """
        async with self.data_set(workload, variant, seed):
            pass

    def room_for(self, workload: Workload) -> int:
        """Return how many data sets of a workload fit on disk, besides the search gate's data set."""
        return max(0, self._config.cache_bytes // max(1, _disk_bytes(workload)) - 1)

    async def _write_with_room(self, wanted: _Wanted) -> tuple[DataSet, int] | UnusedVariant:
        """Make a data set. As long as the disk has no room, remove unused data sets, wait, and try again.

        Return the data set and the descriptor that locks it, or the reason why the variant is not used.
        """
        while True:
            try:
                found = await self._write(wanted)
            except NoRoomError as full:
                if not self.waits_for:
                    log.error("%s; evaluations wait for room", full)
                self.waits_for = str(full)
                await wanted.beside.again()
                self._held_bytes = await asyncio.to_thread(datasets.trim, self._root, 0)
                await asyncio.sleep(ROOM_S)
            else:
                self.waits_for = ""
                return found

    async def _write(self, wanted: _Wanted) -> tuple[DataSet, int] | UnusedVariant:
        """Make a data set, after unused data sets were removed to make room. Return the data set with the descriptor
        that locks it, or the reason why the variant is not used.
        """
        coming_bytes = _disk_bytes(wanted.workload)
        self._coming_bytes += coming_bytes
        try:
            await self.trim(again=True)
            try:
                begun = datasets.begin(wanted.folder)
            except OSError as error:
                if error.errno in NO_ROOM:  # on a full disk there is no room for a folder either
                    raise self._no_room(wanted.workload, error.strerror or "") from error
                raise WorkloadError(
                    f"a data set of {wanted.workload.name} can not be written: {error}",
                    hint=f"Examine the folder {wanted.folder.parent}.",
                ) from error
            with begun:
                return await self._written(wanted, begun)
        finally:
            self._coming_bytes -= coming_bytes

    def _no_room(self, workload: Workload, why: str) -> NoRoomError:
        """Return the error that says in which folder there is no room for a data set."""
        return NoRoomError(f"a data set of {workload.name} can not be written in {self._root}: {why}")

    async def _written(self, wanted: _Wanted, begun: datasets.Begun) -> tuple[DataSet, int] | UnusedVariant:
        """Let the oracle write a data set.

        Return the data set with the descriptor that locks it, or the reason why the variant is not used.
        """
        workload, variant = wanted.workload, wanted.variant
        jail = Jail(
            memory_bytes=self._memory_bytes,
            wall_s=_ORACLE_S,
            cpu_s=int(_ORACLE_S),
            output_bytes=1 << 36,
            trusted=True,
            threads=THREADS,
            open_files=_OPEN_FILES,
            nice=_ORACLE_NICE,
            write_paths=(str(begun.partial),),
        )
        async with wanted.beside.following(begun.partial) as ready:
            outcome, reply = await self._make(workload, pack(wanted.request(begun.partial)), jail, ready)
        with reply:
            try:
                header, _ = parse(reply)
            except BadMessage as error:
                await self.trim()
                raise WorkloadError(
                    f"the reference of workload {workload.name!r} did not finish: it {outcome.text}",
                    hint=f"See {workload.reference}.",
                ) from error
        if "no_room" in header:
            raise self._no_room(workload, clean(header["no_room"]))
        if "error" in header:
            raise WorkloadError(clean(header["error"]), hint=clean(header.get("hint")))
        if "refused" in header:
            reason = clean(header["refused"])
            await asyncio.to_thread(self._floors.learn_numpy, workload, variant, NumpyFloor(refused=reason))
            return UnusedVariant(variant, reason)
        found = begun.publish()
        if found is None:
            raise SandboxError(
                f"the oracle ended without a complete data set of workload {workload.name!r}",
                hint="try again; if it happens again, acceld doctor says what this machine lacks",
            )
        self._held_bytes += await asyncio.to_thread(datasets.folder_bytes, begun.folder)
        return found

    @asynccontextmanager
    async def data_for(
        self, case: Case, trial: Trial, beside: Beside[Any] | None = None
    ) -> AsyncIterator[DataSet | None]:
        """Yield a trial's data set, which stays on disk during the block.

        If the workload does not use the variant, record that in the case and yield None.

        Raise WorkloadError if the workload's own distribution can not be used, or if the reference is at
        fault.
        """
        loaded = case.workload
        async with self.data_set(loaded, trial.variant, trial.seed, kept=trial.kept, beside=beside) as data:
            if not isinstance(data, UnusedVariant):
                yield data
                return
        if trial.variant == OWN:
            raise own_inputs_refused(loaded, data.reason)
        case.untried(trial.name, data.reason, trial)
        yield None

    async def _make(self, workload: Workload, request: bytes, jail: Jail, begun: int) -> tuple[Outcome, Reply]:
        """Run the oracle and return its answer. The oracle writes to the descriptor ``begun`` when the inputs are
        written.

        If the workload has no reference, the oracle runs the program of the workload's baseline.
        """
        if workload.reference is not None:
            return await self._zygote.run("make", request, jail, shared=[begun])
        kernel, chip = oracle_kernel(workload)
        traced = await self.trace(kernel, workload.kernel_arguments(), chip)
        if isinstance(traced, Failed):
            where = f"line {traced.failure.line}: " if traced.failure.line else ""
            raise WorkloadError(
                f"the kernel of workload {workload.name!r} can not stand in for a reference: "
                f"{where}{traced.failure.message}",
                hint=traced.failure.hint,
            )
        try:
            return await self._zygote.run(
                "make", request, jail, attachment=traced.reply, offset=traced.offset, shared=[begun]
            )
        finally:
            traced.close()

    async def admit(self, workload: Workload, seed: int) -> Admission:
        """Examine whether the checks of the workload can distinguish right outputs from wrong ones, and return
        the findings.

        Raise WorkloadError if the workload's reference is at fault.
        """
        request = {
            **address_of(workload),
            "seed": seed,
        }
        jail = replace(self._judge_jail(_ORACLE_S), nice=_ORACLE_NICE)  # candidates may be timed beside the examination
        return answered(workload, *await self._zygote.run("admit", pack(request), jail))

    async def trim(self, *, again: bool = False) -> None:
        """Remove the least recently used data sets, until the remaining ones fit into the configured limit.

        Data sets that are being made count too. With ``again`` the folder is read even if it was read a moment ago.
        """
        most_bytes = self._config.cache_bytes - self._coming_bytes
        if again or self._held_bytes > most_bytes or time.monotonic() > self._read_s + _READ_AGAIN_S:
            self._read_s = time.monotonic()
            self._held_bytes = await asyncio.to_thread(datasets.trim, self._root, most_bytes)

    def _judge_jail(self, deadline_s: float) -> Jail:
        return Jail(
            memory_bytes=self._memory_bytes,
            wall_s=deadline_s,
            cpu_s=int(deadline_s) + 1,
            trusted=True,
            threads=THREADS,
            open_files=_OPEN_FILES,
        )


async def _nothing(*_: int) -> None:
    """Do nothing. Used where no trial runs while a data set is made."""


def _disk_bytes(workload: Workload) -> int:
    """Return the bytes on disk of one data set of a workload: inputs and expected outputs, without the record
    beside them.
    """
    inputs = sum(one.size_bytes for one in workload.kernel_arguments() if isinstance(one, ArraySpec))
    return inputs + sum(datasets.expected_bytes(math.prod(one.shape), one.dtype) for one in workload.outputs)


def _plain(argument: ArraySpec | float | bool) -> dict[str, Any]:
    if isinstance(argument, ArraySpec):
        return {"shape": argument.shape, "dtype": argument.dtype}
    return {"value": argument}


def _tracer_answer(outcome: Outcome, reply: Reply) -> int | Failed:
    """Return the offset of the program in the reply, or a failure. The reply is checked, because it is not
    trusted.
    """
    if outcome.cause in ("deadline", "cpu"):
        return Failed(
            Status.TIMEOUT,
            Failure(
                "trace_deadline",
                f"the kernel {outcome.text} while it was traced",
                hint="Look for endless loops. Keep long loops as nl.affine_range or nl.sequential_range: Python's range is traced in full.",
            ),
        )
    if not outcome.ended_well:
        return Failed(
            Status.COMPILE_ERROR, Failure("crash", f"the kernel's process {outcome.text} while it was traced")
        )
    try:
        header, offset = parse(reply)
        if reply.size > offset:
            return offset
        status, failure = failure_from(header)
    except BadMessage as error:
        said = f"the kernel's process did not end as it should: {error.message}"
        return Failed(Status.COMPILE_ERROR, Failure("crash", said, hint=error.hint))
    return Failed(status, failure)


def _judge_answer(outcome: Outcome, reply: Reply, doing: str) -> dict[str, Any] | Failed:
    """Return the header of the judge process's answer, or a failure of the program that was judged.

    The failure says that the process took too long, ended without a whole answer, or found a fault of the program.
    ``doing`` begins the message about a process that took too long or ended.
    """
    if outcome.cause in ("deadline", "cpu"):
        return Failed(Status.TIMEOUT, Failure("deadline", f"{doing} the program {outcome.text}"))
    try:
        header, _ = parse(reply)
    except BadMessage:
        text = f"{doing} the program {outcome.text}"
        return Failed(Status.RUNTIME_ERROR, Failure("memory" if outcome.signal == 9 else "crash", text))
    if "failure" in header:
        status, failure = failure_from(header)
        return Failed(Status(header.get("status", status)), failure)
    return header
