"""The host's processor as acceld uses it: its evaluator and its lines of ``acceld doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from acceld.config import Config
from acceld.device import Finding
from acceld.devices.cpu.driver import CpuDriver
from acceld.devices.cpu.peaks import FILE, stored_rates
from acceld.errors import AcceldError
from acceld.evaluate.hosted.evaluator import hosted
from acceld.evaluate.interface import Evaluator, Workplace


def evaluator(workplace: Workplace, backend: str) -> Evaluator:
    """Return the evaluator of kernels in C and numpy."""
    return hosted(workplace, CpuDriver())


def doctor(config: Config, state_folder: Path) -> Iterator[Finding]:
    """Yield what kernels for the host's processor would be built and timed with. Nothing is measured."""
    driver = CpuDriver()
    try:
        driver.check()
    except AcceldError as error:
        yield Finding("cpu", "note", error.message, error.hint)
        return
    core = driver.leases()[0].name
    if driver.compiler is None:
        todo = "install gcc (apt install gcc)"
        yield Finding("cpu", "note", f"{core}; no C compiler: none of gcc, cc and clang; numpy kernels only", todo)
        return
    found = stored_rates(state_folder, driver.compiler.path)
    if found is None:
        told = f"peaks not measured yet: the first run does, in two seconds ({FILE})"
    else:
        memory = max(found.memory_bytes_per_s, found.shared_bytes_per_s)
        told = f"measured peaks {found.flops_per_s / 1e9:.3g} GFLOP/s, {memory / 1e9:.3g} GB/s"
    yield Finding("cpu", "ok", f"{driver.compiler.version}; {core}; {told}", "acceld optimize matmul_cpu --wait")
