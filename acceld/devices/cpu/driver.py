"""Drive the host backend: find a C compiler, choose a core to time on, apply the policy for C sources."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from acceld.devices.cpu.peaks import HostRates, rates
from acceld.devices.cpu.policy import refused_c
from acceld.errors import DeviceError
from acceld.evaluate.hosted.driver import Clock, Lease, Rights
from acceld.model import Failure, Kernel
from acceld.roofline import Peaks

FLAGS = (
    "-O3 -march=native -std=gnu11 -fno-jump-tables -fopenmp-simd -fno-math-errno -fno-trapping-math -shared -fPIC -fno-ident "
    "-fopt-info-vec-optimized -Werror=date-time -static-libgcc -Wl,--build-id=none -Wl,-z,defs -Wl,-z,relro,-z,now -s"
).split()
"""Compiler flags of C kernels: code for this processor, and one thread. Of OpenMP, only ``omp simd`` pragmas have an
effect.
"""
_COMPILERS = ("gcc", "cc", "clang")
_BUILD_PROCESSES, _BUILD_BYTES, _RUN_BYTES = 16, 4 << 30, 2 << 30
_VERSION_S = 20.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """The C compiler that builds kernels on this machine: its path and version."""

    path: str
    version: str

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the folders that a jailed compiler has to read: its own, and those of the programs that it starts."""
        own = str(Path(os.path.realpath(self.path)).parents[1])
        listed = ("/usr", "/lib", "/lib64", "/bin", own)
        return tuple(dict.fromkeys(path for path in listed if os.path.isdir(path) and not _below(path, listed)))


class CpuDriver:
    """Implement :class:`acceld.evaluate.hosted.driver.Driver` for the processor that acceld runs on."""

    backend = "cpu"
    clock: Clock = "processor"
    builder = "acceld.devices.cpu.kernels:build"
    worker = "acceld.devices.cpu.kernels:prepare"
    batch_bytes = 512 << 20
    reference = ""

    def __init__(self) -> None:
        self._rates: HostRates | None = None

    def check(self, api: str | None = None) -> None:
        """Raise DeviceError if kernels can not be timed here.

        The machine has to be Linux. For kernels in C (``api``), it needs a C compiler.
        """
        if sys.platform != "linux":
            raise DeviceError(
                "kernels are timed on the host's processor on Linux only",
                hint="run this on Linux, or use --backend simulator",
            )
        if api == "c" and self.compiler is None:
            raise DeviceError(
                "there is no C compiler: gcc, cc and clang are not on PATH",
                hint="Install gcc (`apt install gcc`), or optimize numpy kernels: --api numpy.",
            )

    @cached_property
    def compiler(self) -> Compiler | None:
        """Return the first of the usual C compilers on PATH that prints its version; None if there is none."""
        for name in _COMPILERS:
            path = shutil.which(name)
            if path is None:
                continue
            asked = [path, "--version"]
            try:
                done = subprocess.run(asked, capture_output=True, text=True, timeout=_VERSION_S, check=False)
            except (OSError, subprocess.TimeoutExpired):
                continue
            if done.returncode == 0 and done.stdout:
                return Compiler(path, done.stdout.splitlines()[0])
        return None

    def leases(self) -> Sequence[Lease]:
        """Return the only core on which kernels are timed, as a lease: the last core that this process may use. The
        daemon, and the referee that times kernels, run on the other cores.
        """
        core = max(os.sched_getaffinity(0))
        return (Lease(core, f"core {core}"),)

    def refuse(self, kernel: Kernel) -> Failure | None:
        """Return the first forbidden construct of a C kernel; None if a C kernel has no such construct.

        The result is also None for every numpy kernel, which the evaluator's own policy reads.
        """
        return refused_c(kernel.text) if kernel.api == "c" else None

    def building(self, api: str) -> Rights:
        """Return the rights to run the compiler, with its programs and libraries. A numpy kernel gets no rights."""
        if api != "c" or self.compiler is None:
            return Rights()
        return Rights(_BUILD_BYTES, _BUILD_PROCESSES, execute=True, read_paths=self.compiler.roots)

    def running(self, api: str, artefact: str, lease: Lease) -> Rights:
        """Return the rights of a worker: one thread, and for C also mapping the compiled kernel as code."""
        return Rights(_RUN_BYTES, 1, execute=api == "c", read_paths=(artefact,))

    def learn(self, folder: Path, *, again: bool = False) -> None:
        """Measure the rates of one core (memory and arithmetic), or read the rates that are stored in ``folder``.

        With ``again`` the rates are measured in any case, and for each rate the greater of the stored and the measured
        one is stored.
        """
        compiler = self.compiler.path if self.compiler else None
        self._rates = rates(folder, compiler, FLAGS, self.leases()[0].index, again=again)

    def peaks(self, chip: str) -> Peaks | None:
        """Return the measured rates of one core, which count as 100 percent of peak; None before :meth:`learn`."""
        return self._rates.peaks() if self._rates else None

    def limits(self, chip: str) -> Peaks | None:
        """Return the rates above which a kernel on one core is suspected of not doing its work; None before
        :meth:`learn`.
        """
        return self._rates.limits() if self._rates else None

    def referring(self) -> Rights:
        """Return empty rights, because the workload's own reference needs no device on this machine."""
        return Rights()

    def settings(self, api: str) -> Mapping[str, Any]:
        """Return the settings of a job: the compiler's path and flags; empty for numpy."""
        if api != "c" or self.compiler is None:
            return {}
        return {"compiler": self.compiler.path, "flags": FLAGS, "path": os.environ.get("PATH", os.defpath)}

    def condition(self, lease: Lease) -> Mapping[str, Any]:
        """Return no facts about the core. Kernels are timed by processor time, which counts only their own work, so
        no fact about the core changes a latency.
        """
        return {}

    def sdk(self, api: str) -> str:
        """Return the name and version of the compiler, with the flags that change latencies; for numpy, numpy's
        version.
        """
        if api == "c" and self.compiler is not None:
            return f"{self.compiler.version}, {' '.join(FLAGS[:2])}"
        import numpy as np

        return f"numpy {np.__version__}, Python {platform.python_version()}"


def _below(path: str, others: Sequence[str]) -> bool:
    """Tell whether the folder ``path``, unless it is a link, lies in one of the folders ``others``."""
    return not os.path.islink(path) and any(path != one and path.startswith(one + os.sep) for one in others)
