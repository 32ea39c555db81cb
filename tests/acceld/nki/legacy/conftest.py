"""Tracing and running small kernels of the legacy API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Program

HEAD = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
from neuronxcc.nki.language import par_dim

"""
HEAD_LINES = HEAD.count("\n")

Array = np.ndarray[Any, Any]
TraceKernel = Callable[..., Program]
RunKernel = Callable[..., Any]


def _trace(body: str, *arguments: Any, **options: Any) -> Program:
    specs = [TensorSpec(a.shape, a.dtype.name) if isinstance(a, np.ndarray) else a for a in arguments]
    program = trace(HEAD + body, specs, **options)
    assert decode(encode(program)) == program
    return program


def _run(body: str, *arguments: Any, execution: ExecuteOptions | None = None, **options: Any) -> Any:
    program = _trace(body, *arguments, **options)
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    outputs = execute(program, arrays, execution or ExecuteOptions())
    return outputs[0] if len(outputs) == 1 else outputs


@pytest.fixture
def trace_kernel() -> TraceKernel:
    """Trace a kernel (its text after the usual imports) for arrays, TensorSpecs and plain values."""
    return _trace


@pytest.fixture
def run_kernel() -> RunKernel:
    """Trace a kernel and run it on arrays: the output, or a list of outputs."""
    return _run


@pytest.fixture
def random() -> Callable[..., Array]:
    """Return standard normal float32 arrays, the same in each run."""
    generator = np.random.default_rng(7)

    def make(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(np.float32)

    return make


@pytest.fixture
def strict_options() -> TraceOptions:
    """Return options that refuse block dimensions."""
    return TraceOptions(strict_block_dims=True)
