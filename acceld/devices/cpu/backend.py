"""Provide the evaluator for the host's processor, and the lines about the processor in ``acceld doctor``."""

from __future__ import annotations

import platform
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
    """Yield findings about the compiler, the core and the peak rates that kernels for the host's processor would use.
    Nothing is measured.
    """
    driver = CpuDriver()
    try:
        driver.check()
    except AcceldError as error:
        yield Finding("cpu", "note", error.message, error.hint)
        return
    core = driver.leases()[0].name
    if driver.compiler is None:
        todo = "install gcc (apt install gcc)"
        yield Finding("cpu", "note", f"{core}; no C compiler (gcc, cc or clang), so only numpy kernels run", todo)
        return
    found = stored_rates(state_folder, driver.compiler.path)
    if found is None:
        reported = f"peaks not measured yet: the first run does, in two seconds ({FILE})"
    else:
        memory = max(found.memory_bytes_per_s, found.shared_bytes_per_s)
        reported = f"measured peaks {found.flops_per_s / 1e9:.3g} GFLOP/s, {memory / 1e9:.3g} GB/s"
    yield Finding("cpu", "ok", f"{driver.compiler.version}; {core}; {reported}", "acceld optimize matmul_cpu --wait")


VECTOR_SETS = "sse4_2 avx2 fma avx512f avx512bw avx512_bf16 amx_bf16 asimd sve".split()
"""Flags in /proc/cpuinfo that stand for sets of vector instructions."""


def figures(chip: str) -> list[str]:
    """Return lines of text on this machine's processor, as the system reports them: architecture, vector instructions
    and sizes of the caches. ``chip`` is not used.
    """
    lines = [f"processor: {platform.machine()}"]
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    flags = {
        flag for line in text.splitlines() if line.lower().startswith(("flags", "features")) for flag in line.split()
    }
    if found := [name for name in VECTOR_SETS if name in flags]:
        lines.append(f"vector instructions: {', '.join(found)}")
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((cache / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        lines.append(f"L{level} cache ({kind.lower()}): {size}")
    return lines
