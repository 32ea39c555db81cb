"""Measure the rates of one core of this machine, and store them: multiply-adds, copies in memory, and copies in the
cache.

Percentages of peak use the rates of memory and arithmetic. A kernel is suspect if its latency would need more than 1.2
times the best of the three rates of copies, or more than 1.2 times the rate of arithmetic.

Other work on the machine slows a measurement down, so a stored rate may be too low. Before a kernel that exceeds a rate
is suspect, the rate is measured again, and the greater of the two measurements is stored.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acceld.roofline import Peaks

log = logging.getLogger(__name__)

FILE = "host_peaks.json"
VERSION = 1
_MEMORY_BYTES, _SHARED_BYTES, _CACHE_BYTES = 64 << 20, 2 << 20, 16 << 10
_REPEATS = 5
_BUILD_S = 60.0
_RATES = ("memory_bytes_per_s", "shared_bytes_per_s", "cache_bytes_per_s", "flops_per_s")
_MARGIN = 1.2
"""Ratio of the limit to the best measured rate. It allows for changing clocks, and for kernels that are better than the
measuring loop.
"""


@dataclass(frozen=True, slots=True)
class HostRates:
    """Measured rates of one core. Each rate is the best of several measurements."""

    memory_bytes_per_s: float
    """Bytes read plus bytes written per second, in copies of arrays of 64 MiB."""
    shared_bytes_per_s: float
    """Bytes read plus bytes written per second, in copies of arrays of 2 MiB.

    Arrays of workloads are about this large. On most machines such arrays fit the last-level cache.
    """
    cache_bytes_per_s: float
    """Bytes read plus bytes written per second, in copies of arrays of 16 KiB."""
    flops_per_s: float
    """Float32 operations per second. A multiply-add counts as two."""
    how: str

    def greatest(self, other: HostRates) -> HostRates:
        """Return, for each rate, the greater of two measurements."""
        both = {name: max(getattr(self, name), getattr(other, name)) for name in _RATES}
        return replace(other, **both)

    def peaks(self) -> Peaks:
        """Return the rates that count as 100 percent of peak."""
        return Peaks(
            max(self.memory_bytes_per_s, self.shared_bytes_per_s),
            {"float32": self.flops_per_s},
            self.flops_per_s,
            self.how,
        )

    def limits(self) -> Peaks:
        """Return the rates that no honest kernel on one core exceeds.

        Element-wise work has no limit, because a kernel can merge several operations into one.
        """
        flops = _MARGIN * self.flops_per_s
        bytes_per_s = _MARGIN * max(self.cache_bytes_per_s, self.shared_bytes_per_s, self.memory_bytes_per_s)
        return Peaks(bytes_per_s, {"float32": flops}, float("inf"), self.how)


def rates(folder: Path, compiler: str | None, flags: Sequence[str], core: int, *, again: bool = False) -> HostRates:
    """Return the stored rates of this machine. If no rates are stored, measure the rates on core number ``core`` and
    store them.

    With ``again`` they are measured in any case, and the greater of each stored and measured rate is stored and
    returned. A measurement takes about two seconds.
    """
    stored = stored_rates(folder, compiler)
    if stored is not None and not again:
        return stored
    path, machine = folder / FILE, _machine(compiler)
    found = _measure(compiler, flags, core)
    if stored is not None:
        found = stored.greatest(found)
    record = {name: getattr(found, name) for name in HostRates.__slots__}
    record |= {"machine": machine, "version": VERSION, "measured_at": time.time()}
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1), encoding="utf-8")
    partial.replace(path)
    return found


def stored_rates(folder: Path, compiler: str | None) -> HostRates | None:
    """Return the rates of this machine that are stored in ``folder``; None if ``folder`` has no rates of this machine."""
    try:
        stored = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if stored["machine"] == _machine(compiler) and stored["version"] == VERSION:
            return HostRates(*(stored[name] for name in HostRates.__slots__))
    except (OSError, ValueError, KeyError):
        return None
    return None


def _machine(compiler: str | None) -> dict[str, Any]:
    """Return a description of this machine. Rates that were stored are used only if the description has not changed.

    The description says whether the machine has a C compiler, because without a C compiler the rates are measured by
    numpy.
    """
    model = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {"processor": model, "machine": platform.machine(), "c": compiler is not None}


def _measure(compiler: str | None, flags: Sequence[str], core: int) -> HostRates:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})  # pin only this thread to the core
    try:
        if compiler is not None:
            try:
                return _by_c(compiler, flags)
            except (OSError, subprocess.SubprocessError) as error:
                log.warning("the host's rates could not be measured in C: %s", error)
        return _by_numpy()
    finally:
        os.sched_setaffinity(0, before)


def _by_c(compiler: str, flags: Sequence[str]) -> HostRates:
    with tempfile.TemporaryDirectory(prefix="acceld-peaks-", ignore_cleanup_errors=True) as folder:
        target = Path(folder) / "peaks.so"
        source = Path(__file__).with_name("peaks.c")
        command = [compiler, *flags, str(source), "-o", str(target)]
        subprocess.run(command, check=True, capture_output=True, timeout=_BUILD_S)
        library = ctypes.CDLL(str(target))
    library.fma_flops_per_s.restype = library.scale_bytes_per_s.restype = ctypes.c_double
    sink = ctypes.c_float(1.0)

    def flops() -> float:
        return float(library.fma_flops_per_s(ctypes.c_long(2_000_000), ctypes.byref(sink)))

    def copying(size: int, rounds: int) -> Callable[[], float]:
        source, to = (ctypes.create_string_buffer(size) for _ in range(2))
        return lambda: float(library.scale_bytes_per_s(to, source, ctypes.c_size_t(size), ctypes.c_long(rounds)))

    how = f"best of 5 on one core: scaled copies of 64 MiB, 2 MiB and 16 KiB, ten chains of vector multiply-adds ({compiler})"
    memory, shared, cache = copying(_MEMORY_BYTES, 2), copying(_SHARED_BYTES, 50), copying(_CACHE_BYTES, 2000)
    return HostRates(_best(memory), _best(shared), _best(cache), _best(flops), how)


def _by_numpy() -> HostRates:
    import numpy as np

    def copying(size: int, rounds: int) -> Callable[[], float]:
        source, to = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)

        def once() -> float:
            start = time.thread_time()
            for _ in range(rounds):
                np.copyto(to, source)
            return 2.0 * size * rounds / max(1e-9, time.thread_time() - start)

        return once

    left = np.ones((512, 512), np.float32)

    def flops() -> float:
        start = time.process_time()  # measure the time of all threads, because the library may use several
        np.matmul(left, left)
        return 2.0 * 512**3 / max(1e-9, time.process_time() - start)

    how = "best of 5 on one core: numpy copies of 64 MiB, 2 MiB and 16 KiB, a matrix product of 512 x 512"
    memory, shared, cache = copying(_MEMORY_BYTES, 2), copying(_SHARED_BYTES, 50), copying(_CACHE_BYTES, 2000)
    return HostRates(_best(memory), _best(shared), _best(cache), _best(flops), how)


def _best(measure: Callable[[], float]) -> float:
    return max(measure() for _ in range(_REPEATS))
