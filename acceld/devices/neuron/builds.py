"""Compile kernels of workloads, a limited number of them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from acceld.devices.neuron.case import Build, NeuronCase
from acceld.devices.neuron.machine import Machine
from acceld.devices.neuron.runtime.requests import CompileRequest, Scalar, Tensor
from acceld.errors import UsageError
from acceld.evaluate.case import Failed
from acceld.model import Failure, Kernel, Status
from acceld.nki.entry import find_entry
from acceld.nki.errors import KernelFailure
from acceld.parsing import functions_of, parse
from acceld.workloads import ArraySpec, Workload

Requested = Callable[[Kernel, Sequence[Tensor], dict[str, Scalar]], CompileRequest]
"""A function that returns the request to compile a kernel with these arrays and numbers as arguments."""


class Builds:
    """Compile kernels of workloads, at most ``at_once`` of them at the same time."""

    def __init__(self, machine: Machine, at_once: int) -> None:
        self._machine = machine
        self._places = asyncio.Semaphore(at_once)

    async def build(self, case: NeuronCase, kernel: Kernel) -> Build | Failed:
        """Return the kernel's NEFF, or the reason why the kernel does not compile. Raise DeviceError if the
        toolchain is at fault.
        """
        try:
            request = await asyncio.to_thread(compile_request, self._machine.request, kernel, case.workload)
        except (KernelFailure, UsageError) as error:
            return Failed(Status.COMPILE_ERROR, Failure("entry", error.message, hint=error.hint))
        with case.stage("compile"):
            async with self._places:
                compiled = await self._machine.compile(request)
        return compiled if isinstance(compiled, Failed) else (request, compiled)


def compile_request(request: Requested, kernel: Kernel, loaded: Workload) -> CompileRequest:
    """Return the request to compile a kernel of a workload. The NEFF's inputs get the names of the kernel's
    parameters.

    Arguments are matched with parameters by position. Raise UsageError if the function has fewer parameters
    than the workload has arguments, and KernelFailure if the file lacks the function.
    """
    entry = find_entry(kernel.text, kernel.entry or None)
    names = _parameters(kernel.text, entry)
    given = loaded.kernel_arguments()
    if names and len(names) < len(given):
        raise UsageError(
            f"{entry} takes {len(names)} arguments, but the workload gives {len(given)}",
            hint="Change the parameters of the function, or the arguments in workload.toml.",
        )
    names = names or [argument.name for argument in loaded.arguments]
    tensors: list[Tensor] = []
    scalars: dict[str, Scalar] = {}
    for name, value in zip(names, given, strict=False):
        if isinstance(value, ArraySpec):
            tensors.append(Tensor(name, value.dtype, value.shape))
        else:
            scalars[name] = value
    return request(replace(kernel, entry=entry), tensors, scalars)


def _parameters(text: str, entry: str) -> list[str]:
    """Return the names of a kernel function's parameters; empty if the file does not define the function by ``def``."""
    found = functions_of(parse(text).body).get(entry)
    return [] if found is None else [one.arg for one in (*found.args.posonlyargs, *found.args.args)]
