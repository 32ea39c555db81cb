"""Control a runner from the daemon: a process on one leased core that loads a NEFF, runs it on data and times it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from acceld.devices.neuron.runtime.cache import Compiled
from acceld.devices.neuron.runtime.requests import Tensor
from acceld.devices.neuron.runtime.timing import (
    ITERATIONS,
    MAX_ROUNDS,
    WARMUPS,
    Measurement,
    ProofError,
    Round,
    choose,
    read_round,
    warmups_after,
)
from acceld.devices.neuron.runtime.worker import Worker, Wrap
from acceld.devices.neuron.tools.detection import INSTALL
from acceld.devices.neuron.tools.reports import BUSY, nrt_code, runtime_failure
from acceld.errors import DeadlineError, DeviceError
from acceld.evaluate.case import Failed
from acceld.model import Failure, Status

SCRIPT = "runner.py"
_HELLO_S = 120.0
_BUSY_PAUSE_S = 0.5
PROFILER = (
    "`acceld doctor --neuron` tries every way to run and time; nrtpy (SDK 2.32 and newer) times without the profiler"
)


class DeviceLostError(DeviceError):
    """Raised if the runner or its device was lost while a kernel ran. The runner, the device or the kernel may be at
    fault.
    """


class ProfilerError(DeviceError):
    """Raised if the profiler itself failed. Neither the device nor the kernel is at fault."""


class NeuronRunner:
    """Control a runner: a trusted process that gets NEFFs and data, but never a candidate's Python.

    ``clean`` becomes False when the core may be in a bad state. The holder then has to report an unclean end of
    the lease.
    """

    def __init__(self, worker: Worker, core: int, folder: Path, runtime: str, busy_s: float, lnc: int) -> None:
        self.runtime = runtime
        self.clean = True
        self._worker = worker
        self._core = core
        self._folder = folder
        self._busy_s = busy_s
        self._lnc = lnc
        self._outputs: dict[int, tuple[Tensor, ...]] = {}
        self.reported: list[str] = []
        """Texts that the tools printed in addition to their answers, without repetitions."""

    @classmethod
    async def start(
        cls,
        python: str,
        *,
        core: int,
        folder: Path,
        lnc: int = 1,
        profiler: str = "",
        runtime: str = "",
        named: Mapping[str, str] | None = None,
        wrap: Wrap | None = None,
        busy_s: float = 60.0,
    ) -> NeuronRunner:
        """Start a runner on a logical core, and return it. Raise DeviceError if the interpreter has no runtime
        for NEFFs.
        """
        own = {
            "NEURON_RT_VISIBLE_CORES": str(core),
            "NEURON_RT_VIRTUAL_CORE_SIZE": str(lnc),
            "NEURON_LOGICAL_NC_CONFIG": str(lnc),
        }
        worker = await Worker.start(python, SCRIPT, folder=folder, named={**(named or {}), **own}, wrap=wrap)
        try:
            hello = {"op": "hello", "profiler": profiler, "runtime": runtime}
            record, _ = await worker.ask(hello, deadline_s=_HELLO_S)
        except DeadlineError as error:
            raise DeviceError(error.message) from error
        if not record["ok"]:
            await worker.kill()
            raise DeviceError(f"{python} can not run kernels: {record['message']}", hint=INSTALL)
        name = f"{record['runtime']} {record['version']}".strip()
        return cls(worker, core, folder, name, busy_s, lnc)

    @property
    def session(self) -> int:
        """Return the id of the process session in which the runner works on its core."""
        return self._worker.pid

    async def load(
        self,
        compiled: Compiled,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        slot: int = 0,
        deadline_s: float = 60.0,
    ) -> Failed | None:
        """Load a NEFF into a slot; several slots can be loaded at once. Return the failure; None if the NEFF is
        loaded.

        Raise DeviceLostError if the runner is lost.
        """
        self._outputs[slot] = tuple(outputs)
        record = {
            "op": "load",
            "slot": slot,
            "neff": str(compiled.neff),
            "folder": str(self._folder / f"slot{slot}"),
            "traces": str(compiled.traces / f"core{self._core}"),
            "inputs": [_spec(one) for one in inputs],
            "outputs": [_spec(one) for one in outputs],
            "output_names": list(compiled.outputs),
        }
        got = await self._ask(record, b"", deadline_s)
        return got if isinstance(got, Failed) else None

    async def run(self, inputs: Sequence[bytes], *, slot: int = 0, deadline_s: float) -> tuple[bytes, ...] | Failed:
        """Execute the NEFF once. Each input and output is one array as bytes in C order. Return the outputs in order,
        or the failure.

        Raise DeviceLostError if the runner or the device is lost.
        """
        got = await self._ask({"op": "run", "slot": slot}, b"".join(inputs), deadline_s)
        if isinstance(got, Failed):
            return got
        sizes = [size_of(one) for one in self._outputs[slot]]
        data = got[1]
        if len(data) != sum(sizes):
            raise DeviceError(
                f"a runner returned {len(data)} bytes of outputs, not {sum(sizes)}",
                hint="acceld doctor --neuron tries each step on this machine",
            )
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        return tuple(data[end - size : end] for end, size in zip(ends, sizes, strict=True))

    async def time(
        self,
        chip: str,
        *,
        deadline_s: float,
        warmups: int = WARMUPS,
        iterations: int = ITERATIONS,
        max_rounds: int = MAX_ROUNDS,
    ) -> Measurement | Failed:
        """Time the loaded NEFF on the inputs of the last ``run`` until a round is steady.

        Return the measurement or the failure. ``deadline_s`` is for all rounds together. Raise ProofError if
        nothing proves that the device ran, ProfilerError if the profiler fails, and DeviceLostError if the
        runner or the device is lost.
        """
        rounds: list[Round] = []
        ends = time.monotonic() + deadline_s
        while len(rounds) < max_rounds:
            left_s = max(ends - time.monotonic(), 0.0)
            got = await self.round(chip, deadline_s=left_s, warmups=warmups, iterations=iterations)
            if isinstance(got, Failed):
                return got
            rounds.append(got)
            if got.steady(chip):
                break
            warmups = warmups_after(got, chip, warmups)
        return choose(rounds, chip, self.runtime)

    async def round(
        self, chip: str, *, slot: int = 0, deadline_s: float, warmups: int = WARMUPS, iterations: int = ITERATIONS
    ) -> Round | Failed:
        """Return one round of timed executions, or the failure. Raise the errors that :meth:`time` raises."""
        record = {"op": "time", "slot": slot, "warmups": warmups, "iterations": iterations}
        got = await self._ask(record, b"", deadline_s)
        if isinstance(got, Failed):
            return got
        return read_round(got[0], iterations, chip, warmups=warmups, lnc=self._lnc)

    async def _ask(
        self, record: dict[str, Any], data: bytes, deadline_s: float
    ) -> tuple[dict[str, Any], bytes] | Failed:
        gives_up = time.monotonic() + self._busy_s
        while True:
            try:
                answer, result = await self._worker.ask(record, data, deadline_s=deadline_s)
            except DeadlineError as error:
                self.clean = False
                return Failed(Status.TIMEOUT, Failure("deadline", error.message))
            except DeviceError as error:
                self.clean = False
                raise DeviceLostError(error.message) from error
            except BaseException:  # after a cancellation too: the core may still be at work
                self.clean = False
                raise
            self.reported += [one for one in map(str, answer.get("reported") or ()) if one not in self.reported]
            if answer.get("ok"):
                return answer, result
            message = str(answer.get("message", ""))
            if nrt_code(message) != BUSY:
                return self._failed(str(answer.get("kind")), message)
            if time.monotonic() + _BUSY_PAUSE_S > gives_up:
                raise DeviceError(
                    f"core {self._core} stayed busy for {self._busy_s:g} s: {message}",
                    hint="neuron-ls shows the processes on the core's chip: end the process that uses the core, then try again",
                )
            await asyncio.sleep(_BUSY_PAUSE_S)

    def _failed(self, kind: str, message: str) -> Failed:
        log = "\n".join((*self.reported, message))
        if kind == "shape":
            return Failed(Status.INCORRECT_SHAPE, Failure("output_shape", message), log=log)
        if kind == "profiler":
            raise ProfilerError(f"the profiler failed, but not the kernel: {message}", hint=PROFILER)
        result = runtime_failure(message) if kind == "nrt" else None
        if result is None:
            self.clean = False
            text = f"the runner failed ({kind}): {message}"
            raise {"nrt": DeviceLostError, "proof": ProofError}.get(kind, DeviceError)(text)
        status, failure = result
        self.clean = self.clean and status is Status.INCORRECT_NUMERICAL
        return Failed(status, failure, log=log)

    async def close(self) -> bool:
        """End the process. Return True if all of its work ended cleanly, and the process itself, too."""
        ended = await self._worker.close()
        self.clean = self.clean and ended
        return self.clean


def size_of(tensor: Tensor) -> int:
    """Return the number of bytes of a tensor."""
    dtype = np.dtype(getattr(ml_dtypes, tensor.dtype)) if hasattr(ml_dtypes, tensor.dtype) else np.dtype(tensor.dtype)
    return prod(tensor.shape) * dtype.itemsize


def _spec(tensor: Tensor) -> dict[str, object]:
    return {**tensor.plain(), "nbytes": size_of(tensor)}
