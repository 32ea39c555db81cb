"""How inexact honest arithmetic is, by workload and distribution: measured once and stored.

Numpy's float32 arithmetic is measured when a variant's first data set is made. The baseline's noise is asked for only
where a candidate is beyond the noise of numpy's float32 arithmetic: an accepted kernel of the same backend may honestly
be noisier (other orders of summation, other functions).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.correctness.datasets import DataSet
from acceld.evaluate.correctness.gates import Trial
from acceld.evaluate.correctness.metrics import Errors
from acceld.evaluate.interface import EvaluationRequest
from acceld.workloads import Workload

if TYPE_CHECKING:
    from acceld.evaluate.simulated.children import Children

log = logging.getLogger(__name__)

_DEADLINE_S = 600.0
_LEAST_MULTIPLE = 2.0


@dataclass(frozen=True, slots=True)
class NumpyFloor:
    """What numpy's float32 arithmetic makes of a variant: one error for each output, or why it decides nothing.

    ``seconds`` is what inputs and reference took in float64.
    """

    floors: tuple[Errors, ...] = ()
    refused: str = ""
    seconds: float = 0.0


class Floors:
    """The floors of each workload's variants, in small JSON files under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numpy: dict[tuple[str, str], NumpyFloor] = {}
        self._writing = threading.Lock()

    def of_numpy(self, loaded: Workload, variant: str) -> NumpyFloor | None:
        """The stored floor of a variant; None before it was measured."""
        key = (loaded.hash, variant)
        if key not in self._numpy:
            stored = _read(self._numpy_path(loaded)).get(variant)
            if stored is None:
                return None
            floors = tuple(Errors(*floor) for floor in stored["floors"])
            self._numpy[key] = NumpyFloor(floors, stored["refused"], stored["seconds"])
        return self._numpy[key]

    def learn_numpy(self, loaded: Workload, variant: str, floor: NumpyFloor) -> None:
        """Store what the oracle measured."""
        self._numpy[(loaded.hash, variant)] = floor
        plain = [one.plain() for one in floor.floors]
        record = {"floors": plain, "refused": floor.refused, "seconds": floor.seconds}
        self._add(self._numpy_path(loaded), variant, record)

    def _add(self, path: Path, variant: str, record: Any) -> None:
        """One more entry of a file that several threads add to."""
        with self._writing:
            _write(path, {**_read(path), variant: record})

    def _numpy_path(self, loaded: Workload) -> Path:
        return self._folder / f"{loaded.hash[:24]}-numpy.json"

    def known_baseline(self, loaded: Workload, api: str, chip: str, variant: str) -> Errors | None:
        """The stored worst errors of the workload's baseline; None before they were measured."""
        stored = _read(self._baseline_path(loaded, api, chip))
        return Errors(*stored[variant]) if variant in stored else None

    def learn_baseline(self, loaded: Workload, api: str, chip: str, variant: str, worst: Errors) -> None:
        """Store the worst errors of an accepted baseline."""
        path = self._baseline_path(loaded, api, chip)
        _write(path, {**_read(path), variant: worst.plain()})

    def _baseline_path(self, loaded: Workload, api: str, chip: str) -> Path:
        return self._folder / f"{loaded.hash[:24]}-{api}-{chip}.json"

    async def of_baseline(
        self,
        children: Children,
        loaded: Workload,
        request: EvaluationRequest,
        data: DataSet,
        trial: Trial,
    ) -> Errors | None:
        """The worst errors of the workload's baseline on a variant, measured on ``data`` the first time.

        None where the workload has no baseline in this API, it does not run, or it is wrong by the published tolerance
        itself (a wrong baseline must not excuse itself).
        """
        path = self._baseline_path(loaded, request.kernel.api, request.chip)
        stored = _read(path)
        if trial.variant in stored:
            return Errors(*stored[trial.variant])
        if request.kernel.api not in loaded.baselines:
            return None
        kernel = baseline_kernel(loaded, request.kernel.api)
        from acceld.evaluate.simulated.children import Failed

        traced = await children.trace(kernel, loaded.kernel_arguments(), request.chip)
        if isinstance(traced, Failed):
            log.warning("the baseline of %s can not be traced: %s", loaded.name, traced.failure.message)
            return None
        try:
            tried = await children.attempt(traced, data, Trial(trial.variant, data.seed), _DEADLINE_S)
        finally:
            traced.close()
        if isinstance(tried, Failed) or not all(found.finite for found in tried.errors):
            return None
        worst = tried.errors[0]
        for found in tried.errors[1:]:
            worst = worst.worst(found)
        noise = max(floor.rel_l2 for floor in data.floors)
        if worst.rel_l2 > max(loaded.tolerance, _LEAST_MULTIPLE * noise):
            _no_measure(loaded, trial.variant, request.chip, worst)
            return None
        self._add(path, trial.variant, worst.plain())
        return worst

    def of_device(self, loaded: Workload, backend: str, chip: str, variant: str) -> Errors | None:
        """The stored errors of the workload's baseline on a device; None before they were measured."""
        stored = _read(self._device_path(loaded, backend, chip))
        return Errors(*stored[variant]) if variant in stored else None

    def learn_device(
        self, loaded: Workload, backend: str, chip: str, variant: str, errors: Sequence[Errors], data: DataSet
    ) -> Errors | None:
        """Store the baseline's worst errors on a device; None where it is wrong itself and must not excuse others."""
        worst = errors[0]
        for found in errors[1:]:
            worst = worst.worst(found)
        noise = max(floor.rel_l2 for floor in data.floors)
        if not worst.finite or worst.rel_l2 > max(loaded.tolerance, _LEAST_MULTIPLE * noise):
            _no_measure(loaded, variant, chip, worst)
            return None
        path = self._device_path(loaded, backend, chip)
        _write(path, {**_read(path), variant: worst.plain()})
        return worst

    def _device_path(self, loaded: Workload, backend: str, chip: str) -> Path:
        return self._folder / f"{loaded.hash[:24]}-{backend}-{chip}.json"


def _no_measure(loaded: Workload, variant: str, chip: str, worst: Errors) -> None:
    log.info(
        "on %s inputs the baseline of %s is off by %.3g on %s, beyond the published tolerance: it excuses nobody",
        *(variant, loaded.name, worst.rel_l2, chip),
    )


def _write(path: Path, stored: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(stored), encoding="ascii")
    partial.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    return found
