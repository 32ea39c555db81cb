"""Whether a workload can tell right from wrong at all: a constant must not pass, and every input must matter.

Each array is cut into regions in C order; with one region replaced by another draw, the reference's outputs must move
by more than the tolerance on some distribution. Where they do not, a kernel that never reads that region passes.
Arguments that are declared ``fixed`` (indices, masks) are left out. The answer is stored by the workload's content.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from acceld.errors import WorkloadError
from acceld.evaluate.correctness import compare
from acceld.evaluate.distributions import inputs_of
from acceld.evaluate.messages import send, unpack
from acceld.evaluate.tolerance import Tolerance, tolerance_from
from acceld.workloads import Workload, load_workload, reference_outputs, supported_distributions
from acceld.workloads.records import Precision

if TYPE_CHECKING:
    from acceld.evaluate.children import Children

REGIONS = 4
"""Regions of each array; one where the reference is dear."""


class Admissions:
    """What is known of workloads, in small JSON files under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    async def complaint(self, children: Children, loaded: Workload, seed: int, *, dear: bool) -> str:
        """Why passing says little on this workload; empty where it says what it should."""
        if loaded.reference is None or loaded.sample is not None:
            return ""
        path = self._folder / f"{loaded.hash[:24]}-admission.json"
        async with self._locks.setdefault(loaded.hash, asyncio.Lock()):
            with contextlib.suppress(OSError, ValueError, KeyError):
                return str(json.loads(await asyncio.to_thread(path.read_text, "ascii"))["complaint"])
            found = await children.admit(loaded, seed, 1 if dear else REGIONS)
            await asyncio.to_thread(self._folder.mkdir, 0o700, True, True)
            await asyncio.to_thread(path.write_text, json.dumps({"complaint": found}), "ascii")
            return found


def admit(request: bytes, reply: int) -> None:
    """Answer ``{"complaint": text}`` or ``{"error": text}``; runs in the oracle's process."""
    raw, _ = unpack(request)
    try:
        with np.errstate(all="ignore"):
            send(reply, {"complaint": complaint(load_workload(raw["workload"]), raw["seed"], raw["regions"])})
    except WorkloadError as error:
        send(reply, {"error": error.message, "hint": error.hint})
    except MemoryError:
        send(reply, {"complaint": ""})


def complaint(workload: Workload, seed: int, regions: int) -> str:
    """The first thing that makes passing say little; empty where there is none. WorkloadError from the reference."""
    silent = {
        (position, region)
        for position, argument in enumerate(workload.arguments)
        if argument.distribution is not None and not argument.distribution.fixed
        for region in range(regions)
    }
    dull = True
    for variant in supported_distributions(workload):
        if not silent and not dull:
            break
        inputs, others = inputs_of(workload, seed, variant), inputs_of(workload, seed + 1, variant)
        expected = [np.asarray(one, np.float64) for one in reference_outputs(workload, inputs, False)]
        if not all(np.isfinite(one).all() for one in expected):
            continue
        limits = _limits(workload, variant, expected)
        dull = dull and _passes([np.full_like(one, one.mean()) for one in expected], expected, limits)
        for position, region in sorted(silent):
            changed = list(inputs)
            changed[position] = _replaced(inputs[position], others[position], region, regions)
            if not _passes(reference_outputs(workload, changed, False), expected, limits):
                silent.discard((position, region))
    if dull:
        return "a constant passes: its outputs hardly vary"
    if silent:
        position, region = min(silent)
        where = "" if regions == 1 else f" (part {region + 1} of {regions})"
        return f"outputs do not react to argument {workload.arguments[position].name!r}{where}: a kernel may ignore it"
    return ""


def _limits(workload: Workload, variant: str, expected: Sequence[NDArray[Any]]) -> list[Tolerance]:
    """The tightest tolerances there can be: no floor is below the rounding of the outputs themselves."""
    split = workload.precision is not Precision.FP32_STRICT and variant != "integers"
    rounded = [one.astype(np.float32).astype(np.float64) for one in expected]
    return [
        tolerance_from(compare(low, one), workload.tolerance, split=split)
        for low, one in zip(rounded, expected, strict=True)
    ]


def _passes(outputs: Sequence[Any], expected: Sequence[NDArray[Any]], limits: Sequence[Tolerance]) -> bool:
    return all(
        limit.admits(compare(np.asarray(one, np.float64), want))
        for one, want, limit in zip(outputs, expected, limits, strict=True)
    )


def _replaced(array: Any, other: Any, region: int, regions: int) -> Any:
    """``array`` with one of its regions taken from ``other``."""
    flat = np.array(array).reshape(-1)
    low, high = flat.size * region // regions, flat.size * (region + 1) // regions
    flat[low:high] = np.asarray(other).reshape(-1)[low:high]
    return flat.reshape(np.shape(array))
