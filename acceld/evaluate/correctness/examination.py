"""Examine whether a workload's checks detect wrong kernels: constant outputs must fail, and every input must
matter.

Each array is divided into regions in C order. If one region is replaced by a second draw, the reference's
outputs must change by more than the tolerance on some distribution. Otherwise a kernel that never reads that
region would pass. Arguments that are declared ``fixed`` (indices, masks) are left out.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.errors import WorkloadError
from acceld.evaluate.correctness.admission import Admission
from acceld.evaluate.correctness.distributions import inputs_of
from acceld.evaluate.correctness.gates import splits
from acceld.evaluate.correctness.metrics import Comparison, compare, rows_of, sum_of_squares
from acceld.evaluate.correctness.tolerance import Tolerance, tolerance_from
from acceld.evaluate.sandbox.messages import error_header, send, unpack
from acceld.workloads import Workload, load_unchanged, reference_outputs, supported_distributions
from acceld.workloads.probe import REMEDY_OF_CHANCE, drawing_line, remedy_of_change
from acceld.workloads.rows import BlockedReference, row_blocks

REGIONS = 4
"""Number of regions into which each array is divided. If the reference is expensive, each array is a single region."""
FINE_S = 30.0
"""Processor seconds that the regions of all arguments may take together. If the regions would take more, each array is
a single region.
"""
MOST_S = 300.0
"""Processor seconds after which no further regions are examined."""

_DULL_REMEDY = "Draw inputs for which the outputs differ, in get_inputs or by the arguments' distributions."
_SILENT_REMEDY = "Leave the argument out, declare it fixed, or give it a distribution that matters."

Expect = Callable[[Workload, Sequence[Any]], Sequence[Any]]
"""Function that returns the expected outputs, in the reference's layout, for a workload and its inputs."""


def admit(request: bytes, reply: int, expect: Expect | None = None) -> None:
    """Examine a workload in an oracle's process. The answer is an :class:`Admission` as JSON, or ``{"error": text}``.
    ``expect`` computes the outputs; None stands for the workload's reference.
    """
    raw, _ = unpack(request)
    try:
        with np.errstate(all="ignore"):
            workload = load_unchanged(raw)
            send(reply, asdict(examine(workload, raw["seed"], expect or _reference)))
    except MemoryError:
        send(
            reply, asdict(Admission(untried="two sets of the workload's inputs do not fit into [evaluate] memory_gib"))
        )
    except Exception as error:  # noqa: BLE001 -- an error that is not sent is not seen
        send(reply, error_header(error, f"examining the checks of {raw['workload']}"))


def examine(workload: Workload, seed: int, expect: Expect | None = None, most_s: float = MOST_S) -> Admission:
    """Return the findings on a workload, with the first reason why passing its checks would mean little.

    ``expect`` computes the outputs; None for the workload's reference. After ``most_s`` seconds no further
    region is examined. Raise WorkloadError if the reference fails.
    """
    expect, began = expect or _reference, time.process_time()
    regions, dull, tried = 0, True, list[str]()
    silent, left = list[tuple[int, int]](), set[str]()
    for variant in supported_distributions(workload):
        if tried and not silent and not dull:
            break
        inputs, others = inputs_of(workload, seed, variant), inputs_of(workload, seed + 1, variant)
        given = list(map(_digest, inputs))
        started = time.process_time()
        expected = [np.asarray(one, np.float64) for one in expect(workload, inputs)]
        if not regions:
            moved = _moved(workload)
            regions = REGIONS if (time.process_time() - started) * len(moved) * REGIONS < FINE_S else 1
            silent = [(position, region) for position in moved for region in range(regions)]
        if not all(np.isfinite(one).all() for one in expected):
            continue
        limits = _limits(workload, variant, expected)
        named = "" if tried else _changed(workload, given, list(map(_digest, inputs)))
        if not tried and (named or not _passes(expect(workload, inputs), expected, limits)):
            line = drawing_line(workload.reference) if workload.reference else 0
            where = f", at line {line} of {workload.reference.name}" if line and workload.reference else ""
            return Admission(
                f"the reference changes its argument {named}"
                if named
                else f"the reference gives other outputs for equal inputs{where}",
                regions,
                (variant,),
                remedy=remedy_of_change(named) if named else REMEDY_OF_CHANCE,
            )
        if not tried and expect is _reference:
            _check_rows(workload, inputs, expected, limits)
        tried.append(variant)
        if dull:
            # one element is always its own mean, so its constant is the value for other inputs
            single = any(one.size == 1 for one in expected)
            means = [np.mean(one) for one in (expect(workload, others) if single else expected)]
            dull = _passes([np.full_like(one, m) for one, m in zip(expected, means, strict=True)], expected, limits)
        for position, region in tuple(silent):
            if time.process_time() - began > most_s:
                left.add(workload.arguments[position].name)
                silent.remove((position, region))
                continue
            changed = list(inputs)
            changed[position] = _replaced(inputs[position], others[position], region, regions)
            if _differs(workload, expect, changed, expected, limits):
                silent.remove((position, region))
    if not tried:
        return Admission(untried="the workload's reference is finite on no inputs")
    complaint = _complaint(workload, dull, silent, regions)
    remedy = _DULL_REMEDY if complaint and dull else _SILENT_REMEDY if complaint else ""
    seconds = round(time.process_time() - began, 3)
    return Admission(complaint, regions, tuple(tried), tuple(sorted(left)), seconds, remedy=remedy)


def _changed(workload: Workload, before: Sequence[bytes], after: Sequence[bytes]) -> str:
    """Return the name of the first argument that the reference has changed; "" if it changed none."""
    pairs = zip(workload.arguments, before, after, strict=True)
    return next((argument.name for argument, one, other in pairs if one != other), "")


def _digest(value: Any) -> bytes:
    """Return a hash of an array's elements; b"" for a number."""
    return (
        hashlib.blake2b(np.ascontiguousarray(value).view(np.uint8).data).digest()
        if isinstance(value, np.ndarray)
        else b""
    )


def _reference(workload: Workload, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the outputs of the workload's own reference."""
    return reference_outputs(workload, inputs, False)


def _check_rows(
    workload: Workload, inputs: Sequence[Any], expected: Sequence[NDArray[Any]], limits: Sequence[Tolerance]
) -> None:
    """Raise WorkloadError if the reference computes other outputs for the last block of rows alone than for the same
    rows among all rows.
    """
    *others, block = row_blocks(workload)
    if not others:
        return
    found = BlockedReference(workload, inputs, lambda one: one).outputs(block)
    wanted = [block.of(one, output.axes) for one, output in zip(expected, workload.outputs, strict=True)]
    if not _passes(found, wanted, limits):
        raise WorkloadError(
            f"{workload.folder}: rows are {list(workload.rows)}, but forward gives other outputs for some of these rows alone",
            hint="Leave `rows` out of workload.toml.",
        )


def _differs(
    workload: Workload,
    expect: Expect,
    inputs: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    limits: Sequence[Tolerance],
) -> bool:
    """Tell whether the outputs for ``inputs`` differ from the expected outputs by more than the tolerances.

    A reference that can compute blocks of rows computes only as many blocks as are needed to find a wrong element.
    """
    blocks = row_blocks(workload)
    if expect is not _reference or any({*output.axes[-1:]} & {*workload.rows} for output in workload.outputs):
        return not _passes(expect(workload, inputs), expected, limits)
    reference = BlockedReference(workload, inputs, lambda one: one)
    compared = [Comparison(len(rows), rows.size, sum_of_squares(rows)) for rows in map(rows_of, expected)]
    first = [0] * len(expected)
    for block in blocks:
        for number, (output, found) in enumerate(zip(workload.outputs, reference.outputs(block), strict=True)):
            got = rows_of(found)
            compared[number].add(first[number], got, rows_of(block.of(expected[number], output.axes)))
            first[number] += len(got)
            if not compared[number].greatest_element <= limits[number].element:
                return True
    return not all(limit.admits(one.errors()) for one, limit in zip(compared, limits, strict=True))


def _moved(workload: Workload) -> list[int]:
    """Return the positions of the arguments that must affect the outputs: all but those declared ``fixed``."""
    return [
        position
        for position, argument in enumerate(workload.arguments)
        if argument.distribution is not None and not argument.distribution.fixed
    ]


def _complaint(workload: Workload, dull: bool, silent: Sequence[tuple[int, int]], regions: int) -> str:
    """Return the reason why a wrong kernel could pass the checks; empty if the checks suffice.

    ``dull``: a kernel that writes one constant would pass. ``silent``: (argument, region) pairs that can change without
    any change of the outputs.
    """
    if dull:
        return "a kernel that writes one constant would pass, because the outputs hardly vary"
    if not silent:
        return ""
    position, region = silent[0]
    where = "" if regions == 1 else f" (part {region + 1} of {regions})"
    return f"outputs do not react to argument {workload.arguments[position].name!r}{where}: a kernel may ignore it"


def _limits(workload: Workload, variant: str, expected: Sequence[NDArray[Any]]) -> list[Tolerance]:
    """Return the tightest tolerance of each output, as if the only error of the output were its rounding to float32."""
    rounded = [one.astype(np.float32).astype(np.float64) for one in expected]
    return [
        tolerance_from(floor, workload.tolerance, split=splits(workload, variant, floor))
        for floor in map(compare, rounded, expected)
    ]


def _passes(outputs: Sequence[Any], expected: Sequence[NDArray[Any]], limits: Sequence[Tolerance]) -> bool:
    """Tell whether all outputs are within the tolerances."""
    return all(
        limit.admits(compare(np.asarray(one, np.float64), want))
        for one, want, limit in zip(outputs, expected, limits, strict=True)
    )


def _replaced(array: Any, other: Any, region: int, regions: int) -> Any:
    """Return a copy of ``array`` with the elements of one region taken from ``other``."""
    flat = np.array(array).reshape(-1)
    low, high = flat.size * region // regions, flat.size * (region + 1) // regions
    flat[low:high] = np.asarray(other).reshape(-1)[low:high]
    return flat.reshape(np.shape(array))
