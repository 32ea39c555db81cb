"""Implement the GPU backend: lease whole GPUs, build launch plans with Triton, replay the plans in the worker."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from acceld.child import child
from acceld.devices.cuda.gpus import GPUS, Gpu, gpu_called
from acceld.devices.cuda.machine import (
    INSTALL,
    Ask,
    Installed,
    ask_nvidia_smi,
    installed,
    library_path,
    minor_numbers,
)
from acceld.devices.cuda.policy import refused_triton
from acceld.errors import DeviceError
from acceld.evaluate.hosted.driver import Clock, Lease, Rights
from acceld.model import Failure, Kernel
from acceld.roofline import Peaks

_BUILD_BYTES, _BUILD_PROCESSES = 12 << 30, 64
_RUN_BYTES, _RUN_PROCESSES = 1 << 46, 64
"""Limits of a worker: bytes of address space, and processes. CUDA reserves addresses for all memory, but uses few of
them.
"""
_FLUSH = 4
"""Size of the buffer that is written before each timed sequence of launches, in multiples of the L2 cache."""
_LEAST_FLUSH_BYTES = 256 << 20
_BATCH_BYTES = 4 << 30
_HEADROOM = 1.02
"""A kernel is suspect if it needs more than this multiple of the datasheet's peak rate. Boost clocks and rounding
explain smaller excesses.
"""


_START_S = 60.0
_START = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
code = library.cuInit(0)
named = ctypes.c_char_p()
if code:
    library.cuGetErrorName(code, ctypes.byref(named))
    sys.exit(f"cuInit: {(named.value or b'unknown error').decode()} ({code})")
"""
LEAST_TRITON = (3, 4)
"""Oldest Triton whose launches the builder can record. The builder can not record the calls of older versions."""


def start_library(library: str) -> None:
    """Start NVIDIA's driver library once, in a child process without a sandbox. Raise DeviceError if the library does
    not start.
    """
    start = child("-c", _START, library)
    try:
        done = subprocess.run(
            start.command, env=start.environment, capture_output=True, text=True, timeout=_START_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(
            f"NVIDIA's driver library does not start within {_START_S:.0f} s",
            hint="nvidia-smi shows whether the GPU answers; restart the machine if the GPU does not answer",
        ) from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit {done.returncode}"]
        raise DeviceError(
            f"NVIDIA's driver library does not start: {said[-1]}", hint="`nvidia-smi` and `dmesg` may say more."
        )


class CudaDriver:
    """Implement :class:`acceld.evaluate.hosted.driver.Driver` for the NVIDIA GPUs of one kind on this machine."""

    backend = "cuda"
    clock: Clock = "claimed"
    builder = "acceld.devices.cuda.builder:build"
    worker = "acceld.devices.cuda.runner:prepare"
    reference = "acceld.devices.cuda.reference:reference"
    batch_bytes = _BATCH_BYTES
    """Bytes for the inputs and outputs of all calls of one timed session."""

    def __init__(self, ask: Ask = ask_nvidia_smi) -> None:
        self._ask = ask
        self._held: list[int] = []
        """Open file descriptors of the GPUs' device files. They stay open as long as the process lives."""

    @cached_property
    def gpus(self) -> tuple[Installed, ...]:
        """Return the GPUs of this machine that are of the same kind as its first GPU. Raise DeviceError if there is no
        GPU.
        """
        found = installed(self._ask)
        if not found:
            raise DeviceError("nvidia-smi lists no GPU", hint="Make a GPU visible to this machine or container.")
        return tuple(one for one in found if one.name == found[0].name)

    @cached_property
    def minors(self) -> dict[str, int]:
        """Return the number in the name of each GPU's device file, as a dict by the GPU's UUID."""
        return minor_numbers(self._ask)

    @cached_property
    def library(self) -> str:
        """Return the path of NVIDIA's driver library."""
        return library_path()

    @property
    def gpu(self) -> Gpu | None:
        """Return the datasheet figures of this kind of GPU; None if acceld does not know the kind."""
        return gpu_called(self.gpus[0].name)

    def check(self, api: str | None = None) -> None:
        """Raise DeviceError if this machine has no GPU that can be timed, or if Triton or torch is missing or
        too old.
        """
        if sys.platform != "linux":
            raise DeviceError(
                "Triton kernels are evaluated on Linux only", hint="run this on Linux, or use another --backend"
            )
        first = self.gpus[0]
        if first.mig:
            raise DeviceError(
                f"{first.name} is split into instances (MIG)", hint="Timing needs a whole GPU: nvidia-smi -mig 0"
            )
        if self._capability() is None:
            raise DeviceError(
                f"the compute capability of {first.name} is unknown",
                hint="nvidia-smi does not report compute_cap, and acceld has no facts of this GPU. A newer driver reports it.",
            )
        if importlib.util.find_spec("triton") is None:
            raise DeviceError("Triton is not installed in this environment", hint=INSTALL)
        if _numbers(_version("triton")) < LEAST_TRITON:
            raise DeviceError(
                f"Triton {_version('triton')} is too old: kernels are built with Triton 3.4 or later",
                hint=f"{INSTALL}. Triton 3.4 comes with PyTorch 2.8.",
            )
        if self.reference and importlib.util.find_spec("torch") is None:
            raise DeviceError(
                "PyTorch is not installed in this environment; PyTorch checks results on the GPU", hint=INSTALL
            )

    def _capability(self) -> int | None:
        reported, known = self.gpus[0].capability, self.gpu
        return reported if reported is not None or known is None else known.capability

    def leases(self) -> Sequence[Lease]:
        """Return one lease for each GPU in use."""
        return tuple(Lease(one.index, f"GPU {one.index} ({one.name})") for one in self.gpus)

    def refuse(self, kernel: Kernel) -> Failure | None:
        """Return the first construct of a kernel that the policy for Triton forbids; None if the policy allows all of
        the kernel.
        """
        return refused_triton(kernel.text, kernel.filename)

    def building(self, api: str) -> Rights:
        """Return the rights to read Triton's folder and run its assembler, without access to a device."""
        return Rights(_BUILD_BYTES, _BUILD_PROCESSES, execute=True, read_paths=_roots())

    def running(self, api: str, artefact: str, lease: Lease) -> Rights:
        """Return the rights to use one GPU and to read the launch plan."""
        minor = next((self.minors.get(one.uuid) for one in self.gpus if one.index == lease.index), None)
        own = f"/dev/nvidia{lease.index if minor is None else minor}"
        devices = (own, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/null")
        present = tuple(path for path in devices if os.path.exists(path))
        # /proc is visible because CUDA writes its threads' names there. No host code of the candidate runs here.
        return Rights(_RUN_BYTES, _RUN_PROCESSES, True, (artefact,), (*present, "/proc"), own_code=True)

    def referring(self) -> Rights:
        """Return the rights to open every GPU in use. torch uses the first GPU that it is allowed to open."""
        found = [path for lease in self.leases() for path in self.running("triton", "", lease).device_paths]
        devices = tuple(dict.fromkeys(found))
        return Rights(_RUN_BYTES, _RUN_PROCESSES, True, (), devices, own_code=True, libraries=self._libraries())

    def _libraries(self) -> tuple[str, ...]:
        return (self.library,) if os.path.isabs(self.library) else ()

    def settings(self, api: str) -> Mapping[str, Any]:
        """Return the settings of a job: the GPU to compile for, Triton's version, and the bytes to write to
        empty the L2 cache.
        """
        known = self.gpu
        l2_bytes = known.l2_bytes if known else 0
        return {
            "capability": self._capability(),
            "multiprocessors": known.multiprocessors if known else 128,
            "shared_bytes": known.shared_bytes if known else 99 << 10,
            "flush_bytes": max(_LEAST_FLUSH_BYTES, _FLUSH * l2_bytes),
            "device": 0,
            "library": self.library,
            "triton": _version("triton"),
        }

    def learn(self, folder: Path, *, again: bool = False) -> None:
        """Start the driver's library once, in a process without a sandbox, and keep the device files open. Raise
        DeviceError if the start fails.

        The first process that uses CUDA creates missing device files, which a jailed worker can not do. A GPU that no
        process has open is shut down. Such a GPU would start again for each worker and for each call of ``nvidia-smi``.
        With ``again`` there is nothing to do, because the limits are those of the datasheet.
        """
        if again:
            return
        start_library(self.library)
        for lease in self.leases():
            with contextlib.suppress(OSError):  # a missing device file is reported later, by the worker that needs it
                self._held.append(os.open(self.running("", "", lease).device_paths[0], os.O_RDWR | os.O_CLOEXEC))

    def peaks(self, chip: str) -> Peaks | None:
        """Return the datasheet's rates; None for an unknown GPU."""
        gpu = GPUS.get(chip)
        return gpu.peaks() if gpu else None

    def limits(self, chip: str) -> Peaks | None:
        """Return the datasheet's rates with a margin for boost clocks; None for an unknown GPU."""
        peaks = self.peaks(chip)
        if peaks is None:
            return None
        matmul = {dtype: rate * _HEADROOM for dtype, rate in peaks.matmul_flops_per_s.items()}
        vector, memory = peaks.vector_flops_per_s * _HEADROOM, peaks.hbm_bytes_per_s * _HEADROOM
        return Peaks(memory, matmul, vector, peaks.source)

    def condition(self, lease: Lease) -> Mapping[str, Any]:
        """Return the clocks of the leased GPU in MHz, and the reasons why the GPU throttles.

        A clock is None if nvidia-smi does not report it.
        """
        now = next((one for one in installed(self._ask) if one.index == lease.index), None)
        if now is None:
            raise DeviceError(
                f"{lease.name} is gone: nvidia-smi no longer lists the GPU",
                hint="look at dmesg for a fault of the GPU, then acceld restart",
            )
        return {"sm_mhz": now.sm_mhz, "memory_mhz": now.memory_mhz, "throttled": now.throttled}

    def sdk(self, api: str) -> str:
        """Return the versions of Triton and of NVIDIA's driver, and the current clocks."""
        self.__dict__.pop("gpus", None)
        first = self.gpus[0]
        return f"Triton {_version('triton')}, driver {first.driver}, {first.clocks}"


def _roots() -> tuple[str, ...]:
    spec = importlib.util.find_spec("triton")
    # The folder that contains Triton is readable too, because Triton finds its backends by the package metadata there.
    own = [os.path.realpath(Path(spec.origin).parents[1])] if spec is not None and spec.origin else []
    listed = (*own, sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/bin")
    return tuple(dict.fromkeys(path for path in listed if os.path.isdir(path)))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (3, 4) for 3.4.0+git1."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0,)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "missing"
