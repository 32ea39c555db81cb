"""Evaluate a kernel at several shapes. The kernel must be right at each shape.

Its latency is the weighted geometric mean over the shapes. The ratio of two such means is the weighted geometric mean
of the speed-ups. So the search compares kernels for several shapes as it compares any other kernels.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from acceld.evaluate.comparison import Estimate, Paired
from acceld.evaluate.correctness.checks import correctness_of, placed
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Correctness, Evaluation, Gate, Kernel, Profile, Status
from acceld.workloads import WeightedShape, Workload, every_shape, hidden_shapes

OneShape = Callable[[EvaluationRequest, Workload], Awaitable[Evaluation]]
"""Function that evaluates a kernel at a single shape."""
_ENDED_WELL = (Status.PASSED, Status.UNTESTED)


async def over_shapes(request: EvaluationRequest, loaded: Workload, evaluate: OneShape) -> Evaluation:
    """Evaluate a kernel at every shape of its workload, up to the first failure, and return the joined result.

    If the request has ``useful_below_us``, the kernel is first timed at all shapes. The kernel runs on data only if its
    mean latency is useful.
    """
    shapes = await asyncio.to_thread(every_shape, loaded)
    useful_us, asked = request.useful_below_us, replace(request, useful_below_us=None)
    if useful_us is not None and request.gate is not Gate.TIMING:
        timed = await _evaluated(replace(asked, gate=Gate.TIMING), shapes, evaluate)
        if timed.latency_us is None or timed.latency_us > useful_us:
            return timed
    return await _evaluated(asked, shapes, evaluate)


async def _evaluated(
    request: EvaluationRequest, shapes: Sequence[tuple[WeightedShape, Workload]], evaluate: OneShape
) -> Evaluation:
    """Evaluate a kernel at each shape. Return the joined result, or the result of the first shape that failed."""
    found = []
    for shape, shaped in shapes:
        at = replace(at_shape(request, shapes[0][1], shaped), shape=tuple(shape.values.items()))
        one = await evaluate(at, shaped)
        if one.status not in _ENDED_WELL:
            failure = one.failure and placed(one.failure, f"the shape {shape.text}")
            return replace(one, source_sha256=request.kernel.sha256, profile=None, failure=failure)
        found.append(one)
    return joined(request.kernel, [shape for shape, _ in shapes], found)


async def timed_with_hidden(
    request: EvaluationRequest, loaded: Workload, evaluate: Callable[[EvaluationRequest], Awaitable[Evaluation]]
) -> Evaluation | None:
    """Time a kernel without data, and return the result; None if the program is not legal at one of the shapes.

    Hidden shapes count too, because a rewrite rule proves its change at one shape only.
    """
    request = replace(request, gate=Gate.TIMING)
    found = await evaluate(request)
    if found.latency_us is None:
        return None
    for values, shaped in zip(loaded.hidden, await asyncio.to_thread(hidden_shapes, loaded), strict=True):
        there = replace(at_shape(request, loaded, shaped), shape=tuple(values.items()))
        if (await evaluate(there)).latency_us is None:
            return None
    return found


def at_shape(request: EvaluationRequest, own: Workload, shaped: Workload) -> EvaluationRequest:
    """Return ``request`` changed for the shape of the workload ``shaped``.

    A kernel with the same launch grid as the workload ``own`` gets the launch grid of ``shaped``.
    """

    def gridded(kernel: Kernel) -> Kernel:
        return replace(kernel, grid=shaped.grid) if kernel.grid == own.grid else kernel

    against = tuple(map(gridded, request.against))
    return replace(request, kernel=gridded(request.kernel), against=against)


def joined(kernel: Kernel, shapes: Sequence[WeightedShape], found: Sequence[Evaluation]) -> Evaluation:
    """Return one evaluation made of the evaluations ``found`` at each shape, none of which failed.

    Status, log and other fields that can not be averaged are those of the first shape.
    """
    weights = [shape.weight for shape in shapes]
    profiles = [one.profile for one in found if one.profile is not None]
    seconds = sum((Counter(one.seconds) for one in found), Counter[str]())
    programs = hashlib.sha256("\0".join(one.program_sha256 for one in found).encode()).hexdigest()
    return replace(
        found[0],
        source_sha256=kernel.sha256,
        program_sha256=programs if all(one.program_sha256 for one in found) else "",
        profile=_profile(shapes, profiles),
        correctness=_correctness(shapes, [one.correctness for one in found if one.correctness is not None]),
        percent_of_peak=_mean([one.percent_of_peak for one in found], weights),
        percent_of_attainable=_mean([one.percent_of_attainable for one in found], weights),
        seconds=dict(seconds),
        reused=all(one.reused for one in found),
    )


def _profile(shapes: Sequence[WeightedShape], profiles: Sequence[Profile]) -> Profile:
    """Return one profile for all shapes, made of the profile at each shape. Its latency is the weighted geometric
    mean.
    """
    weights = [shape.weight for shape in shapes]
    own, latencies = profiles[0], [one.latency_us for one in profiles]
    latency_us = _mean(latencies, weights)
    listed = [
        {"shape": shape.text, "weight": shape.weight, "latency_us": one_us}
        for shape, one_us in zip(shapes, latencies, strict=True)
    ]
    latencies_text = ", ".join(
        f"{one['shape']} {one['latency_us']:.4g} µs (weight {one['weight']:g})" for one in listed
    )
    notes = [f"weighted geometric mean over shapes: {latencies_text}"] if latency_us is not None else []
    scale = (latency_us or 0.0) / sum(weights)

    def share(values: Sequence[float]) -> float:
        """Return the share of a quantity in the mean latency, in microseconds. ``values`` has the quantity at each
        shape, in microseconds.
        """
        parts = zip(weights, values, latencies, strict=True)
        return scale * sum(weight * value / one_us for weight, value, one_us in parts if one_us)

    def counted(name: str) -> float:
        """Return the weighted mean of a counter over the shapes; for the peak of a memory, the greatest peak."""
        values = [one.counters.get(name, 0.0) for one in profiles]
        return max(values) if "peak" in name else _weighted(values, weights)

    counters = {name for one in profiles for name in one.counters}
    engines = {name for one in profiles for name in one.engines_us}
    intervals = [one.interval_percent for one in profiles if one.interval_percent is not None]
    details = {**own.details, "shapes": listed}
    if "prediction" in own.details:  # the starts of transfers in a timeline are those of one shape
        details["prediction"] = {**own.details["prediction"], "starts_us": None}
    if "paired" in own.details:
        details["paired"] = _interleaved(weights, [one.details.get("paired", ()) for one in profiles])
    return replace(
        own,
        latency_us=latency_us,
        resolution_us=share([one.resolution_us for one in profiles]),
        interval_percent=max(intervals) if len(intervals) == len(profiles) else None,
        engines_us={name: share([one.engines_us.get(name, 0.0) for one in profiles]) for name in sorted(engines)},
        counters={name: counted(name) for name in sorted(counters)},
        bound=f"{own.bound} at {shapes[0].text}" if own.bound else "",
        notes=tuple(dict.fromkeys([*notes, *(note for one in profiles for note in one.notes)])),
        samples_us=(),
        details=details,
    )


def _interleaved(weights: Sequence[float], found: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, object]]:
    """Return the joined comparison with each competitor that was timed at every shape."""
    joint = []
    for first in found[0]:
        pairs = [pair for shape in found for pair in shape if pair["against"] == first["against"]]
        if len(pairs) == len(found):
            joint.append(_joined_pair(weights, pairs).plain())
    return joint


def _joined_pair(weights: Sequence[float], pairs: Sequence[Mapping[str, Any]]) -> Paired:
    """Return the comparison with one competitor over all shapes. ``pairs`` has the comparison at each shape."""
    total = sum(weights)
    middle = _mean([pair["ratio"] for pair in pairs], weights) or 0.0

    def spread(bound: int) -> float:
        parts = zip(weights, pairs, strict=True)
        steps = (weight / total * math.log(pair["interval"][bound] / pair["ratio"]) for weight, pair in parts)
        return math.exp(math.sqrt(sum(step**2 for step in steps)))

    return Paired(
        pairs[0]["against"],
        Estimate(middle, middle / spread(0), middle * spread(1)),
        _weighted([pair["resolution_percent"] for pair in pairs], weights),
        min(pair["rounds"] for pair in pairs),
        min(pair["sessions"] for pair in pairs),
    )


def _correctness(shapes: Sequence[WeightedShape], found: Sequence[Correctness]) -> Correctness | None:
    """Return one record of checks for all shapes, made of the record at each shape; None if no check was made."""
    if not found:
        return None
    checks = [
        replace(check, name=f"{shape.text}: {check.name}")
        for shape, one in zip(shapes, found, strict=True)
        for check in one.checks
    ]
    worst = max((one.worst_row or 0.0 for one in found), default=0.0)
    least = min(found, key=lambda one: list(Gate).index(one.gate))
    return correctness_of(least.gate, checks, worst, found[0].accelopt_passed)


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the weighted geometric mean; None if a value is missing or not positive."""
    known = [value for value in values if value is not None and value > 0]
    if len(known) < len(values):
        return None
    return math.exp(_weighted([math.log(value) for value in known], weights))


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted arithmetic mean."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
