"""Compute the expected outputs with the workload's reference in float64, on the GPU if torch finds one.

The reference runs in a child process that never sees a candidate, after the candidate's worker has ended. Importing
this module imports torch, once, before children are forked. Only a child uses the GPU.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.workloads import Workload, load_reference, reference_outputs

with contextlib.suppress(ImportError):
    importlib.import_module("torch")


def reference(workload: Workload, inputs: Sequence[Any]) -> list[NDArray[Any]]:
    """Return the workload's expected outputs in the reference's layout.

    The host computes the outputs if the workload has no torch reference, or if no GPU has enough memory.
    """
    import torch

    forward = load_reference(workload.reference).forward_torch if workload.reference is not None else None
    if forward is None or not torch.cuda.is_available():
        return reference_outputs(workload, inputs)
    try:
        with torch.no_grad():
            result = forward(*(_tensor(torch, one) for one in inputs))
            outputs = result if isinstance(result, tuple | list) else (result,)
            return [one.cpu().numpy() for one in outputs]
    except torch.cuda.OutOfMemoryError:
        return reference_outputs(workload, inputs)


def _tensor(torch: Any, value: Any) -> Any:
    """Return an array as a tensor on the GPU: integers and booleans unchanged, all other numbers in float64. Any other
    value is returned unchanged.
    """
    if not isinstance(value, np.ndarray):
        return value
    whole = value.dtype.kind in "iub"
    return torch.from_numpy(np.ascontiguousarray(value if whole else value.astype(np.float64))).to("cuda")
