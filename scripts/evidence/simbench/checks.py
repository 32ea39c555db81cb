"""Measure the time and memory of a first check of each NKIBench kernel at full shape, and the time that numpy takes for
its matrix products alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.workloads import make_inputs
from acceld.workloads.oracle import load_reference
from scripts.evidence.simbench.kernels import Kernel
from scripts.evidence.simbench.tables import Table

SAMPLE_S = 0.2


class _Products(NDArray[Any]):
    """Arrays for a reference that add up the time of its matrix products, in float32 and in float64."""

    seconds = 0.0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **kwargs: Any) -> Any:
        plain = [np.asarray(one) if isinstance(one, _Products) else one for one in inputs]
        if out:
            kwargs["out"] = tuple(np.asarray(one) for one in out)
        if ufunc is np.matmul:
            for dtype in (np.float32, np.float64):
                operands = [np.asarray(one, dtype) for one in plain]
                started = time.perf_counter()
                np.matmul(*operands)
                _Products.seconds += time.perf_counter() - started
        result = getattr(ufunc, method)(*plain, **kwargs)
        return result.view(_Products) if isinstance(result, np.ndarray) else result


def table(kernels: Sequence[Kernel], say: Callable[[str], None]) -> Table:
    """Check each kernel once on one new data set, by ``acceld profile``, and return a row for each."""
    found: Table = []
    for kernel in kernels:
        products = _product_s(kernel)
        wall, peak = _checked(kernel)
        ratio = f"{wall / products:.2f}" if products >= 0.1 else "-"
        found.append(
            {
                "kernel": kernel.name, "wall s": f"{wall:.1f}", "products alone s": f"{products:.1f}", "ratio": ratio,
                "peak GiB": f"{peak / 2**30:.2f}",
            }
        )  # fmt: skip
        say(f"{found[-1]}")
    sums = [sum(float(row[column]) for row in found) for column in ("wall s", "products alone s")]
    greatest = max((float(row["peak GiB"]) for row in found), default=0.0)
    ratio = f"{sums[0] / sums[1]:.2f}" if sums[1] else "-"
    last = {"kernel": "together", "wall s": f"{sums[0]:.1f}", "products alone s": f"{sums[1]:.1f}", "ratio": ratio}
    return [*found, {**last, "peak GiB": f"{greatest:.2f}"}]


def _product_s(kernel: Kernel) -> float:
    """Return the seconds that numpy takes for the workload's matrix products: in float32, as for the kernel,
    and in float64, as for the reference.
    """
    _Products.seconds = 0.0
    assert kernel.workload.reference is not None
    reference = load_reference(kernel.workload.reference)
    inputs = make_inputs(kernel.workload, 7)
    reference.forward(*(one.view(_Products) if isinstance(one, np.ndarray) else one for one in inputs))
    return _Products.seconds


def _checked(kernel: Kernel) -> tuple[float, int]:
    """Return the wall-clock seconds of a check, and the most memory of its processes in bytes (proportional set
    size).
    """
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, kernel.filename)
        file.write_text(kernel.source)
        command = [sys.executable, "-m", "acceld", "profile", str(file), "--workload", str(kernel.workload.folder)]
        started = time.perf_counter()
        check = subprocess.Popen(
            [*command, "--home", f"{home}/.acceld"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        peak = 0
        while check.poll() is None:
            peak = max(peak, sum(map(_memory, _family(check.pid))))
            time.sleep(SAMPLE_S)
        wall = time.perf_counter() - started
        said = check.communicate()[0]
    if check.returncode:
        raise RuntimeError(f"acceld profile {kernel.filename} ended with {check.returncode}: {said}")
    return wall, peak


def _family(process: int) -> list[int]:
    """Return the ids of a process and of its descendants."""
    children: dict[int, list[int]] = {}
    for one in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path("/proc", one, "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(one))
    found = [process]
    for known in found:
        found += children.get(known, [])
    return found


def _memory(process: int) -> int:
    try:
        lines = Path("/proc", str(process), "smaps_rollup").read_text().splitlines()
    except OSError:  # the process has ended
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


__all__ = ["table"]
