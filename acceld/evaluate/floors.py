"""How inexact a workload's own baseline is, by backend, chip, distribution: measured once and stored.

It is asked for only where a candidate is beyond the noise of numpy's float32 arithmetic: an accepted kernel of the
same backend may honestly be noisier (other orders of summation, other functions).
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from acceld.evaluate.base import EvaluationRequest
from acceld.evaluate.correctness import Errors
from acceld.evaluate.datasets import DataSet
from acceld.evaluate.gates import Trial
from acceld.model import Kernel
from acceld.workloads import Workload

if TYPE_CHECKING:
    from acceld.evaluate.children import Children

log = logging.getLogger(__name__)

_DEADLINE_S = 600.0
_LEAST_MULTIPLE = 2.0


class Floors:
    """The baselines' floors, in one small JSON file for each workload, API and chip under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def of_baseline(
        self, children: Children, loaded: Workload, request: EvaluationRequest, data: DataSet, trial: Trial
    ) -> Errors | None:
        """The worst errors of the workload's baseline on a variant, measured on ``data`` the first time.

        None where the workload has no baseline in this API, it does not run, or it is wrong by the published tolerance
        itself (a wrong baseline must not excuse itself).
        """
        path = self._folder / f"{loaded.hash[:24]}-{request.kernel.api}-{request.chip}.json"
        stored = _read(path)
        if trial.variant in stored:
            return Errors(*stored[trial.variant])
        baseline = loaded.baselines.get(request.kernel.api)
        if baseline is None:
            return None
        kernel = Kernel(
            baseline.read_text(encoding="utf-8"),
            request.kernel.api,
            entry=loaded.entry or "",
            grid=loaded.grid,
            lnc=loaded.lnc,
            trusted=True,
        )
        from acceld.evaluate.children import Failed

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
            log.warning("the baseline of %s is wrong on %s inputs: %.3g", loaded.name, trial.variant, worst.rel_l2)
            return None
        stored[trial.variant] = worst.plain()
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(stored), encoding="ascii")
        partial.replace(path)
        return worst


def _read(path: Path) -> dict[str, list[float]]:
    try:
        found: dict[str, list[float]] = json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    return found
