"""Provide the canary: a known-good kernel that must give the right sum on a core before the core is trusted again."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np

from acceld.devices.neuron.runtime.cache import Compiled
from acceld.devices.neuron.runtime.cores import Core
from acceld.devices.neuron.runtime.requests import Tensor
from acceld.devices.neuron.runtime.runner import NeuronRunner
from acceld.evaluate.case import Failed
from acceld.model import Kernel

_LEGACY = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def canary(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(b)))
    return out
"""
_CURRENT = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def canary(a, b):
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=left)
    return out
"""
INPUTS = (Tensor("a", "float32", (128, 64)), Tensor("b", "float32", (128, 64)))
OUTPUTS = (Tensor("output_0", "float32", (128, 64)),)
DEADLINE_S = 60.0
Start = Callable[[Core, Path], Awaitable[NeuronRunner]]


def kernel(api: str, lnc: int) -> Kernel:
    """Return the canary, a known-good kernel that adds two arrays, in an API."""
    return Kernel(
        _LEGACY if api == "nki_legacy" else _CURRENT, api, "canary", lnc=lnc, filename="canary.py", trusted=True
    )


def inputs() -> tuple[bytes, ...]:
    """Return the canary's two inputs as bytes: small whole numbers, whose sums float32 holds exactly."""
    left = np.arange(128 * 64, dtype=np.float32).reshape(128, 64) % 97
    return left.tobytes(), (left[::-1] + 1).tobytes()


def expected() -> bytes:
    """Return the canary's correct output as bytes."""
    left = np.arange(128 * 64, dtype=np.float32).reshape(128, 64) % 97
    return (left + left[::-1] + 1).tobytes()


async def fails(core: Core, compiled: Compiled, start: Start) -> str:
    """Return the reason why the core does not add two arrays correctly in a fresh runner; an empty text if the core
    adds them correctly. Raise DeviceError if the canary, the kernel that adds, can not be run at all.
    """
    with tempfile.TemporaryDirectory(prefix="acceld-canary-", ignore_cleanup_errors=True) as folder:
        runner = await start(core, Path(folder))
        try:
            bad = await runner.load(compiled, INPUTS, OUTPUTS, deadline_s=DEADLINE_S)
            ran = bad or await runner.run(inputs(), deadline_s=DEADLINE_S)
            if isinstance(ran, Failed):
                return f"did not add two arrays: {ran.status}, {ran.failure.message}"
            wrong = np.frombuffer(ran[0], np.float32) != np.frombuffer(expected(), np.float32)
            return (
                f"did not add two arrays correctly: {wrong.sum()} of {wrong.size} sums are wrong" if wrong.any() else ""
            )
        finally:
            await runner.close()
