"""Ask AWS's own tools about a kernel: ``nki.simulate``, then the compiler. Both run in the compile jail,
without a chip.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from acceld.config import EvaluateConfig
from acceld.devices.neuron.builds import compile_request
from acceld.devices.neuron.compile_jail import JailedExchange
from acceld.devices.neuron.proving import prove, widened
from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.compiler import CompileJail, Exchange, NeuronCompiler, Versions, private_folder
from acceld.devices.neuron.runtime.requests import FLAGS, CompileRequest, Scalar, Tensor
from acceld.devices.neuron.runtime.scripts.facilities import missing_in
from acceld.devices.neuron.tools.detection import NeuronTools, find_neuron, nki_version
from acceld.devices.neuron.tools.reports import compile_failure
from acceld.errors import AcceldError, DeadlineError, DeviceError, UsageError
from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.datasets import DataSet
from acceld.evaluate.opinion import API, Opinion
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport
from acceld.model import Failure, Kernel, Status
from acceld.nki.entry import find_entry
from acceld.nki.errors import KernelFailure
from acceld.workloads import ArraySpec, Workload

SIMULATE_S, COMPILE_S = 300.0, 600.0
"""Least deadlines in seconds, for simulating a kernel and for compiling it. A longer ``evaluate.build_s`` replaces
them.
"""
_JAILS = (CompileJail.STRICT, CompileJail.WIDE)


def judge(config: EvaluateConfig, state_folder: Path, report: SandboxReport) -> NeuronJudge | None:
    """Return the :class:`NeuronJudge` of this machine, which asks AWS's tools about kernels.

    Return None if no environment of this machine has the package ``nki``, or if there is no sandbox.
    """
    if report.level < Level.L1 or not (config.second_python or nki_version()):
        return None
    return NeuronJudge(config, state_folder, report)


@dataclass(frozen=True, slots=True)
class Stages:
    """The interpreters of the two stages, simulator and compiler, with the versions of their packages.

    The fields of a stage that this machine lacks are empty.
    """

    simulator: str = ""
    simulator_name: str = ""
    compiler: str = ""
    compiler_name: str = ""


def tools_of(python: str) -> NeuronTools:
    """Return the Neuron software that this machine's Python interpreters have. The interpreter ``python``, if given,
    is listed first.
    """
    found = find_neuron()
    if not python:
        return found
    named = find_neuron((python,))
    return replace(found, pythons=(*named.pythons, *found.pythons), packages=(*named.packages, *found.packages))


def stages_of(found: NeuronTools) -> Stages:
    """Return the interpreters in ``found`` that simulate and compile kernels of ``nki``."""
    real = {(one.python, one.name): one.version for one in found.packages if one.real}
    with_nki = [python for python in found.pythons if (python, "nki") in real]
    compiling = [python for python in with_nki if (python, "neuronx-cc") in real]
    simulator, compiler = next(iter(with_nki), ""), next(iter(compiling), "")
    return Stages(
        simulator,
        f"nki {real[simulator, 'nki']}" if simulator else "",
        compiler,
        f"neuronx-cc {real[compiler, 'neuronx-cc']}" if compiler else "",
    )


class NeuronJudge:
    """Ask AWS's simulator and AWS's compiler about kernels. Each of the two first has to accept a known-good kernel in
    the jail.
    """

    def __init__(self, config: EvaluateConfig, state_folder: Path, report: SandboxReport) -> None:
        self._config, self._folder, self._report = config, state_folder, report
        self._exchange: JailedExchange | None = None
        self._simulator: Simulator | None = None
        self._compiler: NeuronCompiler | None = None
        self._versions = Versions("", "", "")
        self._stages = Stages()
        self._faults: list[Opinion] = []
        """For each stage that is missing or does not work here: an opinion whose ``silence`` is the reason."""
        self._starting = asyncio.Lock()

    async def ask(self, kernel: Kernel, loaded: Workload, chip: str, data: DataSet) -> Sequence[Opinion]:
        """Return the opinions of simulator and compiler, in this order. After a refusal the next stage is not
        asked.

        An opinion of a stage that gives no answer has the reason in ``silence``.
        """
        async with self._starting:
            if self._exchange is None:
                await self._start(chip)
        opinions = list(self._faults)
        if self._simulator is not None:
            opinions.append(await self._simulated(self._simulator, kernel, loaded, chip, data))
        if self._compiler is not None and not any(one.refusal for one in opinions):
            opinions.append(await self._compiled(self._compiler, kernel, loaded, chip))
        return opinions

    async def stop(self) -> None:
        """End the child processes."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            await exchange.stop()

    async def _start(self, chip: str) -> None:
        """Start the jail, and find out whether AWS's simulator and AWS's compiler work in it."""
        self._stages = stages = stages_of(await asyncio.to_thread(tools_of, self._config.second_python))
        exchange = JailedExchange(
            self._report.level,
            self._report.cgroup_folder,
            memory_bytes=int(self._config.memory_gib * 2**30),
        )
        await exchange.start()
        self._exchange = exchange
        self._faults.clear()
        jails = {jail: one for jail, one in exchange.exchanges().items() if jail in _JAILS}
        if not stages.simulator:
            self._faults.append(Opinion("simulate", API, 0.0, silence="no interpreter with the package nki answers"))
        else:
            simulator = Simulator(stages.simulator, jails, max(SIMULATE_S, self._config.build_s))
            try:
                await simulator.prove(chip)
                self._simulator = simulator
            except AcceldError as error:
                self._faults.append(_silent("simulate", stages.simulator_name, 0.0, error))
        if stages.compiler:
            compiler = NeuronCompiler(
                stages.compiler,
                NeffCache(self._folder / "neuron" / "neff"),
                exchanges=jails,
                build_s=max(COMPILE_S, self._config.build_s),
            )
            try:
                self._versions = await prove(
                    compiler,
                    lambda versions: _request(
                        versions, chip, replace(canary.kernel(API, 1), filename="canary.py"), canary.INPUTS, {}
                    ),
                    _accept,
                    wanted="auto",
                    state_folder=self._folder,
                )
                self._compiler = compiler
            except AcceldError as error:
                self._faults.append(_silent("compile", stages.compiler_name, 0.0, error))

    async def _simulated(
        self, simulator: Simulator, kernel: Kernel, loaded: Workload, chip: str, data: DataSet
    ) -> Opinion:
        name, began = self._stages.simulator_name, time.monotonic()
        try:
            values = await asyncio.to_thread(_values, data, loaded)
            outputs, warnings = await simulator.run(kernel, values, chip)
        except Refusal as refused:
            return Opinion("simulate", name, time.monotonic() - began, refusal=refused.failure)
        except AcceldError as error:
            return _silent("simulate", name, time.monotonic() - began, error)
        failure, rel_l2 = await asyncio.to_thread(_compared, outputs, loaded, data)
        return Opinion("simulate", name, time.monotonic() - began, failure, rel_l2=rel_l2, warnings=warnings)

    async def _compiled(self, compiler: NeuronCompiler, kernel: Kernel, loaded: Workload, chip: str) -> Opinion:
        name, began = self._stages.compiler_name, time.monotonic()

        def asked(one: Kernel, arguments: Sequence[Tensor], scalars: dict[str, Scalar]) -> CompileRequest:
            return _request(self._versions, chip, one, arguments, scalars)

        try:
            request = await asyncio.to_thread(compile_request, asked, kernel, loaded)
            found = await widened(compiler, request, wanted="auto")
        except (KernelFailure, UsageError) as error:
            return Opinion("compile", name, time.monotonic() - began, Failure("entry", error.message, hint=error.hint))
        except AcceldError as error:
            return _silent("compile", name, time.monotonic() - began, error)
        seconds = time.monotonic() - began
        if isinstance(found, Compiled):
            return Opinion("compile", name, seconds)
        if found.status is Status.TIMEOUT or missing_in(found.log or found.failure.message):
            return Opinion("compile", name, seconds, silence=found.failure.message)
        return Opinion("compile", name, seconds, refusal=found.failure)


class Refusal(Exception):
    """Raised if AWS's simulator refuses the kernel."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Simulator:
    """Run kernels with ``nki.simulate``.

    Each kernel runs in a fresh process with a fresh folder, because ``nki`` 0.6 may give a second kernel at
    the same path the answer of the first.
    """

    def __init__(self, python: str, exchanges: Mapping[CompileJail, Exchange], deadline_s: float) -> None:
        self._python, self._exchanges, self._deadline_s = python, exchanges, deadline_s
        self.jail = next(iter(exchanges))

    async def prove(self, chip: str) -> None:
        """Choose the strictest jail in which AWS's simulator runs a known-good kernel correctly. Raise DeviceError if
        there is none.
        """
        reasons = []
        for jail in self._exchanges:
            self.jail = jail
            arrays = [np.frombuffer(one, np.float32).reshape(128, 64) for one in canary.inputs()]
            try:
                (found,), _ = await self.run(canary.kernel(API, 1), arrays, chip)
                if found.tobytes() == canary.expected():
                    return
                reasons.append(f"{jail}: wrong sums")
            except (AcceldError, Refusal, ValueError) as error:
                reasons.append(f"{jail}: {error}")
        raise DeviceError(
            f"a known-good kernel can not be simulated by {self._python}: {'; '.join(reasons)}",
            hint="evaluate.second_python names another Python with nki; docs/trainium.md says how to install it",
        )

    async def run(self, kernel: Kernel, values: Sequence[Any], chip: str) -> tuple[list[NDArray[Any]], tuple[str, ...]]:
        """Return the kernel's outputs and the simulator's warnings.

        Raise Refusal if the simulator refuses the kernel, and DeadlineError or DeviceError if the simulator gives no
        answer.
        """
        with private_folder() as folder:
            described = await asyncio.to_thread(lambda: list(_written(values, folder)))
            record = {
                "op": "simulate",
                "text": kernel.text,
                "filename": kernel.filename,
                "closure": dict(kernel.closure),
                "entry": find_entry(kernel.text, kernel.entry or None),
                "api": API,
                "lnc": kernel.lnc,
                "values": described,
                "folder": str(folder),
                "device_pattern": "/dev/neuron*",
            }
            named = {"NEURON_PLATFORM_TARGET_OVERRIDE": chip, "NKI_PRECISE_FP": "1", "OPENBLAS_NUM_THREADS": "1"}
            answer, raw = await self._exchanges[self.jail](
                self._python, named, record, folder=folder, deadline_s=self._deadline_s
            )
        if not answer.get("ok"):
            message = str(answer.get("message", ""))
            if facility := missing_in(message):
                raise DeviceError(f"the simulator may have needed {facility}, which the jail ({self.jail}) refuses")
            if answer.get("kind") == "kernel":
                raise Refusal(compile_failure(message, kernel.filename))
            raise DeviceError(
                f"{self._python} can not simulate: {message[:500]}",
                hint="evaluate.second_python names another Python with nki; docs/trainium.md says how to install it",
            )
        try:
            outputs = list(_read(answer["outputs"], raw))
            return outputs, tuple(str(one)[:500] for one in answer.get("warnings") or ())[:20]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refusal(Failure("outputs", f"the kernel's outputs can not be read: {error}")) from error


def _request(
    versions: Versions, chip: str, kernel: Kernel, arguments: Sequence[Tensor], scalars: Mapping[str, Scalar]
) -> CompileRequest:
    return CompileRequest(
        kernel=kernel,
        arguments=tuple(arguments),
        target=chip,
        compiler_version=versions.compiler,
        api_version=versions.nki,
        scalars=scalars,
        flags=FLAGS[API],
    )


async def _accept(_: Compiled) -> str:
    """Return an empty text, which means that the NEFF is accepted. This machine has no core on which the NEFF could
    be run.
    """
    return ""


def _silent(stage: str, name: str, seconds: float, error: AcceldError) -> Opinion:
    reason = error.message if isinstance(error, DeadlineError) else error.message[:500]
    return Opinion(stage, name, seconds, silence=reason)


def _values(data: DataSet, loaded: Workload) -> list[Any]:
    """Return the kernel's arguments in order: arrays of the data set, and the workload's numbers."""
    arrays = iter([one for one in datasets.read_inputs(data.folder) if isinstance(one, np.ndarray)])
    return [next(arrays).reshape(one.shape) if isinstance(one, ArraySpec) else one for one in loaded.kernel_arguments()]


def _written(values: Sequence[Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Write the arrays among ``values`` to files of the folder, and yield a description of each value."""
    for number, value in enumerate(values):
        if isinstance(value, np.ndarray):
            file = f"input{number}.bin"
            np.ascontiguousarray(value).tofile(folder / file)
            yield {"dtype": value.dtype.name, "shape": list(value.shape), "file": file}
        else:
            yield {"value": value}


def _read(described: Sequence[Mapping[str, Any]], raw: bytes) -> Iterator[NDArray[Any]]:
    """Yield the output arrays of an answer. Raise ValueError for a shape that does not fit the bytes, or a
    dtype of objects.
    """
    at = 0
    for one in described:
        name = str(one["dtype"])
        kind = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
        shape = tuple(int(n) for n in one["shape"])
        size = math.prod(shape) * kind.itemsize
        if kind.hasobject or min(shape, default=1) < 0 or at + size > len(raw):
            raise ValueError(f"{name} of shape {shape} does not fit {len(raw)} bytes")
        yield np.frombuffer(raw, kind, math.prod(shape), at).reshape(shape)
        at += size
    if at != len(raw):
        raise ValueError(f"the outputs have {len(raw) - at} bytes more than their shapes need")


def _compared(outputs: Sequence[NDArray[Any]], loaded: Workload, data: DataSet) -> tuple[Failure | None, float | None]:
    """Compare outputs with the expected outputs.

    Return the failure, which is None if the outputs are right, and the relative L2 error.
    """
    wanted = loaded.outputs
    if len(outputs) != len(wanted):
        message = f"the kernel has {len(outputs)} outputs, but the workload has {len(wanted)}"
        return Failure("output_count", message), None
    for got, want in zip(outputs, wanted, strict=True):
        if got.size != math.prod(want.shape):
            return Failure("output_shape", f"output {want.name} has shape {got.shape}, not {want.kernel_shape}"), None
        if got.dtype.name != want.dtype:
            return Failure("output_dtype", f"output {want.name} is {got.dtype.name}, not {want.dtype}"), None
    shaped = [got.reshape(want.shape) for got, want in zip(outputs, wanted, strict=True)]
    error = max((one.rel_l2 for one in datasets.measure(data.folder, shaped)), default=0.0)
    if error <= loaded.tolerance:
        return None, error
    lost = sum(int(np.isnan(np.asarray(one, np.float64)).sum()) for one in shaped)
    shown = f"relative L2 error {error:.3g}, the tolerance is {loaded.tolerance:.3g}" + (
        f"; {lost} NaN" if lost else ""
    )
    return Failure("outputs", shown), error if math.isfinite(error) else None
