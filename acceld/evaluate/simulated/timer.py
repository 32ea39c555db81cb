"""Predict latencies without data: trace from shapes in the jail, then decode, verify and time in the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from acceld.config import EvaluateConfig
from acceld.evaluate.case import Failed, RecentlyUsed
from acceld.evaluate.simulated.case import TracedCase
from acceld.evaluate.simulated.children import Children, Inspected
from acceld.evaluate.simulated.profiles import profile_from
from acceld.model import Failure, Gate, Profile, Status
from acceld.nki.timing.calibration import Calibration, chosen
from acceld.nki.timing.version import model_of
from acceld.targets import nki_version
from acceld.workloads import Arguments, ArraySpec

_REMEMBERED = 256
"""Number of kernels whose timing is remembered."""
_IN_FULL = 3
"""Factor by which the deadline for timing every execution of a very long program exceeds ``[evaluate] time_s``."""
_LIKE = 1.05
"""Factor by which the latency of all executions may exceed the extrapolated latency."""


class Timer:
    """Trace and time kernels in child processes. Recent results are remembered."""

    def __init__(self, config: EvaluateConfig, children: Children, calibrations: Sequence[Calibration] = ()) -> None:
        self._config = config
        self._children = children
        self._calibrations = calibrations
        self._timed: RecentlyUsed[str, tuple[str, Profile]] = RecentlyUsed(_REMEMBERED)
        """Program hash and profile of the kernels that were timed last."""

    def forget(self) -> None:
        """Forget all remembered results, so that kernels are timed again."""
        self._timed.clear()

    async def time(
        self, case: TracedCase, arguments: Arguments, when_traced: Callable[[], object] = lambda: None
    ) -> Failed | None:
        """Trace, verify and time the kernel of ``case``, and store program and profile in ``case``. Return the
        failure; None if nothing failed.

        ``when_traced`` is called between tracing and verifying. If only the latency is requested and the kernel was
        timed before, the remembered result is used.
        """
        header = self._header(case, arguments)
        if case.request.written_out:
            header["written_out"] = [
                case.request.kernel.text,
                [None if isinstance(one, ArraySpec) else one for one in arguments],
            ]
        key = json.dumps([case.request.kernel.sha256, header, arguments], default=asdict)
        if case.request.gate is Gate.TIMING and key in self._timed:
            case.program_sha256, case.profile = self._timed[key]
            case.reused = True
            return None
        traced = await self._children.trace(case.request.kernel, arguments, case.request.chip)
        if isinstance(traced, Failed):
            return traced
        case.traced = traced
        case.spend({"trace": traced.seconds})
        when_traced()
        found = await self._children.inspect(traced, header)
        if isinstance(found, Failed):
            return found
        case.program_sha256 = found.program_sha256
        case.spend(found.seconds)
        case.profile = profile_from(found.profile, self._model(case))
        self._timed[key] = case.program_sha256, case.profile
        return None

    async def confirm(self, case: TracedCase) -> Failed | None:
        """Time every execution of a program whose latency was extrapolated, and store the new profile.

        Return a failure (``suspect``) if the latency was more than 5 % too low, or if the program is too long to be
        timed in full. Return None if the latency holds, if nothing was extrapolated, or if the result needs no proof.
        """
        if case.profile is None or not case.profile.details.get("extrapolated") or not case.request.needs_proof:
            return None
        assert case.traced is not None
        header = {**self._header(case, case.workload.kernel_arguments()), "exact": True}
        found = await self._children.inspect(case.traced, header, deadline_s=_IN_FULL * self._config.time_s)
        message = "the program executes too many instructions to be timed in full"
        if isinstance(found, Inspected) and not found.profile["extrapolated"]:
            guessed = case.profile.latency_us or 0.0
            case.profile = profile_from(found.profile, self._model(case))
            latency = case.profile.latency_us or 0.0
            if latency <= _LIKE * guessed:
                return None
            message = f"timed in full the program takes {latency:.4g} µs, but {guessed:.4g} µs if extrapolated from its first executions"
        hint = "Give the kernel's loops fewer iterations that each do more."
        return Failed(Status.SUSPECT, Failure("extrapolated", message, hint=hint))

    def _model(self, case: TracedCase) -> str:
        """Return the identity of the performance model, which includes its calibration."""
        return model_of(chosen(self._calibrations, case.request.chip, case.request.kernel.api))

    def _header(self, case: TracedCase, arguments: Arguments) -> dict[str, Any]:
        """Return what the judge must find in the tracer's answer: target, launch, inputs, outputs and demands
        of the workload.
        """
        kernel, loaded = case.request.kernel, case.loaded
        found = chosen(self._calibrations, case.request.chip, kernel.api)
        outputs = None
        if loaded is not None:
            outputs = [
                {"name": o.name, "shape": o.shape, "kernel_shape": o.kernel_shape, "dtype": o.dtype}
                for o in loaded.outputs
            ]
        return {
            "api": kernel.api,
            "chip": case.request.chip,
            "grid": kernel.grid,
            "lnc": kernel.lnc,
            "inputs": [[one.shape, one.dtype] for one in arguments if isinstance(one, ArraySpec)],
            "outputs": outputs,
            "mutates": loaded.mutated if loaded is not None else (),
            "precision": loaded.precision if loaded is not None and loaded.dtype == "float32" else "",
            "strict_legality": self._config.strict_legality,
            "nki": nki_version(self._config.nki) if kernel.api == "nki" else None,
            "calibration": found.plain() if found is not None else None,
        }
