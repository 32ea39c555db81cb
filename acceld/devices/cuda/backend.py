"""Provide the evaluator for NVIDIA GPUs, and the lines about GPUs in ``acceld doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from acceld.config import Config
from acceld.device import Finding
from acceld.devices.cuda.driver import CudaDriver
from acceld.devices.cuda.machine import tool
from acceld.errors import AcceldError
from acceld.evaluate.hosted.evaluator import hosted
from acceld.evaluate.interface import Evaluator, Workplace


def evaluator(workplace: Workplace, backend: str) -> Evaluator:
    """Return the evaluator of Triton kernels."""
    return hosted(workplace, CudaDriver())


def doctor(config: Config, state_folder: Path) -> Iterator[Finding]:
    """Yield findings about the GPUs of this machine and the packages that kernels need."""
    driver = CudaDriver()
    if tool() is None:
        yield Finding("nvidia", "note", "no NVIDIA driver: nvidia-smi is not on PATH; Triton kernels can not be timed")
        return
    try:
        for one in driver.gpus:
            known = f"chip {driver.gpu.name}" if driver.gpu else "acceld has no datasheet figures of this GPU"
            yield Finding("nvidia", "ok", f"GPU {one.index} {one.name}, driver {one.driver}, {one.clocks}; {known}")
        driver.check()
    except AcceldError as error:
        yield Finding("nvidia", "note", error.message, error.hint)
    else:
        yield Finding("triton", "ok", f"Triton {version('triton')} and PyTorch {version('torch')} are here")
