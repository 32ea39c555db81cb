"""The trial of the GPU backend: a search without a model on Triton workloads, and a table to send back.

    python scripts/gpu_trial.py [--workloads NAME ...] [--preset quick] [-o REPORT.md]

Run it on a machine with an NVIDIA GPU, in an environment with ``pip install 'acceld[cuda]'``. It searches with the
``rules`` proposer, times PyTorch's own operators the same way (cold L2, CUDA events, median) and writes a table of
baseline, best, torch and percent of the datasheet's peak. It changes no clocks and touches no other process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acceld.backends.cuda.driver import CudaDriver
from acceld.errors import AcceldError
from acceld.roofline import least_us
from acceld.workloads import Workload, find_workloads, load_reference, make_inputs, workload

WARM_UP, TIMED = 5, 30


def main() -> int:
    """Search, time, write. 8 without a GPU, 1 where a search failed."""
    names = sorted(name for name, one in find_workloads().items() if "triton" in one.baselines)
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--preset", choices=("quick", "standard", "paper"), default="quick")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_trial.md"))
    arguments = parser.parse_args()
    driver = CudaDriver()
    try:
        driver.check("triton")
    except AcceldError as error:
        print(f"gpu_trial: {error.message}\n  {error.hint}", file=sys.stderr)
        return error.exit_code
    gpu = driver.gpu
    chip = gpu.name if gpu else "h100"
    rows, failed = [], False
    for name in arguments.workloads:
        found = searched(name, chip, arguments.preset)
        failed |= "error" in found
        rows.append(row(workload(name), found, torch_us(workload(name), driver), driver, chip))
        print(rows[-1], file=sys.stderr)
    head = [
        f"# GPU trial: {driver.gpus[0].name}",
        "",
        driver.sdk("triton"),
        "",
        "| workload | baseline us | best us | speed-up | torch us | best, % of peak | notes |",
        "|---|---|---|---|---|---|---|",
    ]
    arguments.output.write_text("\n".join([*head, *rows, ""]), encoding="utf-8")
    print(arguments.output)
    return int(failed)


def searched(name: str, chip: str, preset: str) -> dict[str, Any]:
    """The outcome of a run, or ``error`` with what acceld said."""
    asked = ["acceld", "optimize", name, "--backend", "cuda", "--api", "triton", "--chip", chip]
    asked += ["--proposer", "rules", "--preset", preset, "--wait", "--json"]
    done = subprocess.run([sys.executable, "-m", *asked], capture_output=True, text=True, check=False)
    try:
        outcome: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return outcome


def row(found: Workload, outcome: dict[str, Any], torch: float | None, driver: CudaDriver, chip: str) -> str:
    """One line of the table."""
    before, best = outcome.get("baseline_latency_us"), outcome.get("best_latency_us")
    least = least_us(found, driver.peaks(chip))
    percent = f"{100 * least / best:.1f}" if least and best else "-"
    speedup = f"{outcome['speedup']:.2f}x" if outcome.get("speedup") else "-"
    shown = [f"{one:.1f}" if one else "-" for one in (before, best, torch)]
    note = outcome.get("error", outcome.get("message", ""))
    return f"| {found.name} | {shown[0]} | {shown[1]} | {speedup} | {shown[2]} | {percent} | {note} |"


def torch_us(found: Workload, driver: CudaDriver) -> float | None:
    """Median of the reference's own formula on torch, in the workload's dtypes; None where torch can not."""
    import numpy as np
    import torch

    forward = load_reference(found.reference).forward_torch if found.reference else None
    if forward is None or not torch.cuda.is_available():
        return None
    inputs = []
    for argument, value in zip(found.arguments, make_inputs(found, 0), strict=True):
        if isinstance(value, np.ndarray) and value.dtype.kind not in "iub":
            wide = torch.from_numpy(value.astype(np.float32)).to("cuda")
            inputs.append(wide.to(getattr(torch, argument.dtype)))
        else:
            inputs.append(torch.from_numpy(value).to("cuda") if isinstance(value, np.ndarray) else value)
    flush = torch.empty(int(driver.settings("triton")["flush_bytes"]), dtype=torch.uint8, device="cuda")
    with torch.no_grad():
        return median_us(torch, lambda: forward(*inputs), flush)


def median_us(torch: Any, call: Callable[[], Any], flush: Any) -> float:
    """Of TIMED calls, each with a cold L2 cache."""
    took = []
    for number in range(WARM_UP + TIMED):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if number >= WARM_UP:
            took.append(1000 * start.elapsed_time(end))
    return statistics.median(took)


if __name__ == "__main__":
    raise SystemExit(main())
