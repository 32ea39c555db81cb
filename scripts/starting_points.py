"""Find the kernels from which benchmarks of the search start, and share one evaluator between benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from acceld.config import EvaluateConfig
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.interface import started
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.kernel_files import load_kernel
from acceld.model import Kernel
from acceld.search.suites import kernels_in
from acceld.workloads import Workload, workload


def starting_points(
    names: Sequence[str], roots: str | None, api: str = "nki_legacy"
) -> Iterator[tuple[Workload, Kernel]]:
    """Yield each workload with the kernel to start from: that in the folder ``roots``; without one, the
    workload's baseline.
    """
    given = kernels_in(Path(roots), names) if roots else {}
    for name in names:
        found = workload(name)
        own = baseline_kernel(found, api)
        yield (
            found,
            load_kernel(given[name], api=api, entry=own.entry, grid=own.grid) if name in given else own,
        )


@asynccontextmanager
async def simulated() -> AsyncIterator[tuple[SimulatedEvaluator, Path]]:
    """Yield a started evaluator on the simulator, and its folder, which is deleted after the block."""
    with tempfile.TemporaryDirectory(prefix="acceld-bench-") as folder:
        evaluator = SimulatedEvaluator(EvaluateConfig(), Path(folder))
        async with started(evaluator):
            yield evaluator, Path(folder)
