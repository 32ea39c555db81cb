"""The oracle child: makes a workload's inputs and runs its reference. It never sees a candidate's code.

The reference runs in float64; the first time a variant is asked for also in float32, to learn how much honest
arithmetic differs from it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from acceld.errors import WorkloadError
from acceld.evaluate import datasets
from acceld.evaluate.correctness import Errors, compare
from acceld.evaluate.distributions import NOISY, inputs_of
from acceld.evaluate.messages import send
from acceld.workloads import Workload, kernel_inputs, load_workload, reference_outputs

_LARGEST = 3e38
"""Greatest value an output of type float32 may have."""


def make(request: bytes, reply: int) -> None:
    """Write the data set that the request describes, and answer ``{}``, ``{"refused": why}`` or ``{"error": ...}``."""
    raw = json.loads(request)
    try:
        with np.errstate(all="ignore"):
            send(reply, _make(load_workload(raw["workload"]), raw))
    except WorkloadError as error:
        send(reply, {"error": error.message, "hint": error.hint})
    except MemoryError:
        send(reply, {"error": f"the reference of {raw['workload']} needs more memory than an evaluation may use"})


def _make(workload: Workload, raw: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    seed, variant = raw["seed"], raw["variant"]
    inputs = inputs_of(workload, seed, variant)
    expected = [np.asarray(one, np.float64) for one in reference_outputs(workload, inputs)]
    if not all(np.isfinite(one).all() and np.abs(one).max(initial=0.0) < _LARGEST for one in expected):
        return {"refused": "the reference is not finite on these inputs"}
    seconds = time.monotonic() - started
    dtypes = [output.dtype for output in workload.outputs]
    floors = raw["floors"]
    if floors is None:
        measured = _floors(workload, inputs, expected, dtypes)
        if variant.startswith("boosted/") and any(not floor.rel_l2 < NOISY for floor in measured):
            return {"refused": "float32 arithmetic is too inexact on these inputs"}
        if not all(floor.finite for floor in measured):
            return {"refused": "the reference is not finite in float32 on these inputs"}
        floors = [floor.plain() for floor in measured]
    record = {"seed": seed, "variant": variant, "floors": floors, "seconds": seconds}
    datasets.write(Path(raw["folder"]), kernel_inputs(workload, inputs), expected, dtypes, record)
    return {}


def _floors(
    workload: Workload, inputs: Sequence[Any], expected: Sequence[NDArray[Any]], dtypes: Sequence[str]
) -> list[Errors]:
    """Error of the reference in float32, rounded to the output's dtype as a kernel's would be."""
    narrow = [_as_float32(one) for one in inputs]
    floors = []
    for single, want, dtype in zip(reference_outputs(workload, narrow, False), expected, dtypes, strict=True):
        rounded = single.astype(_dtype(dtype))
        floor = compare(rounded, want)
        floors.append(floor if dtype == "float32" else floor.worst(compare(want.astype(_dtype(dtype)), want)))
    return floors


def _as_float32(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
        return value.astype(np.float32)
    return value


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
