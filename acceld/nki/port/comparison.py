"""Run a kernel and its port on the same data, and compare the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.core.dtypes import EVERY
from acceld.nki.ir.operations import INTEGER_DTYPES
from acceld.nki.ir.program import Program

Array = np.ndarray[Any, np.dtype[Any]]
SEED = 20260
ALLOWED = {8: 1e-5, 4: 1e-5, 2: 1e-2, 1: 6e-2}
"""The relative L2 error up to which two outputs agree, by the bytes of an output's element."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The result of comparing the outputs of two programs.

    ``rel_l2`` is the greatest relative L2 error of an output. ``agrees`` is True if the error of each output is within
    the limit of its dtype.
    """

    rel_l2: float
    agrees: bool
    inputs: str
    """``normal``, or ``positive`` if the kernel's results on normal inputs are not finite."""


def compare(original: Program, port: Program) -> Agreement:
    """Run both programs on inputs drawn from a fixed seed, and return how well their outputs agree.

    Raise KernelFailure if one of the programs can not be run.
    """
    inputs, expected, kind = [], [], ""
    for kind in ("normal", "positive"):
        inputs = [_drawn(original, number, kind) for number in original.inputs]
        expected = [np.asarray(one) for one in execute(original, inputs)]
        if all(np.isfinite(one.astype(np.float64)).all() for one in expected):
            break
    found = [np.asarray(one) for one in execute(port, inputs)]
    if len(found) != len(expected):
        return Agreement(float("inf"), False, kind)
    distances = [(_distance(a, b), ALLOWED[a.dtype.itemsize]) for a, b in zip(expected, found, strict=True)]
    return Agreement(max(d for d, _ in distances), all(d <= most for d, most in distances), kind)


def _drawn(program: Program, number: int, kind: str) -> Array:
    buffer = program.buffers[number]
    shape = buffer.argument_shape or buffer.shape
    rng = np.random.default_rng([SEED, number])
    if buffer.dtype in INTEGER_DTYPES or buffer.dtype == "bool":
        return rng.integers(0, 2 if buffer.dtype == "bool" else 8, shape).astype(EVERY[buffer.dtype])
    values = rng.standard_normal(shape, dtype=np.float32) if kind == "normal" else rng.uniform(0.1, 1.0, shape)
    return values.astype(EVERY[buffer.dtype])


def _distance(expected: Array, found: Array) -> float:
    a, b = expected.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    if a.size != b.size:
        return float("inf")
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    return float(np.linalg.norm(a[finite] - b[finite]) / max(float(np.linalg.norm(a[finite])), 1e-300))
