"""Find the NVIDIA GPUs of this machine with its tools."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from acceld.errors import DeviceError

FIELDS = (
    "index uuid name compute_cap driver_version memory.total clocks.sm clocks.max.sm clocks.mem clocks_throttle_reasons.active "
    "persistence_mode mig.mode.current"
).split()
"""Fields asked of ``nvidia-smi``."""
_ASK_S = 20.0
INSTALL = "pip install 'acceld[cuda]'"

Ask = Callable[[list[str]], str]


@dataclass(frozen=True, slots=True)
class Installed:
    """A GPU. Clocks are in MHz, None if the tool gives none."""

    index: int
    uuid: str
    name: str
    capability: int
    driver: str
    memory_mib: int
    sm_mhz: int | None
    most_sm_mhz: int | None
    memory_mhz: int | None
    throttled: str
    """Reasons of throttling as a hexadecimal bit mask; empty if none is active or known."""
    mig: bool

    @property
    def clocks(self) -> str:
        """The clocks as text: ``SM 1980 of 1980 MHz, memory 2619 MHz``."""
        shown = f"SM {self.sm_mhz or '?'} of {self.most_sm_mhz or '?'} MHz, memory {self.memory_mhz or '?'} MHz"
        return shown + (f", throttled {self.throttled}" if self.throttled else "")


def ask_nvidia_smi(arguments: list[str]) -> str:
    """Return the output of ``nvidia-smi``. DeviceError if it is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise DeviceError(
            "there is no NVIDIA driver here: nvidia-smi is not on PATH",
            hint="On a machine with a GPU install NVIDIA's driver. Without one, `--backend simulator` evaluates NKI kernels.",
        )
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"nvidia-smi does not answer: {error}", hint="`nvidia-smi` by hand shows why.") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise DeviceError(f"nvidia-smi failed: {said[0] if said else done.returncode}", hint="Is the driver loaded?")
    return done.stdout


def installed(ask: Ask = ask_nvidia_smi) -> tuple[Installed, ...]:
    """Return the machine's GPUs. DeviceError if there is no driver, or it fails."""
    text = ask([f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"])
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return tuple(_gpu(dict(zip(FIELDS, row, strict=True))) for row in rows if len(row) == len(FIELDS))


def _gpu(row: dict[str, str]) -> Installed:
    throttled = row["clocks_throttle_reasons.active"]
    idle = {"0x0000000000000000", "0x0000000000000001", "Not Active"}
    return Installed(
        index=_number(row["index"]) or 0,
        uuid=row["uuid"],
        name=row["name"],
        capability=round(10 * float(row["compute_cap"])),
        driver=row["driver_version"],
        memory_mib=_number(row["memory.total"]) or 0,
        sm_mhz=_number(row["clocks.sm"]),
        most_sm_mhz=_number(row["clocks.max.sm"]),
        memory_mhz=_number(row["clocks.mem"]),
        throttled="" if throttled in idle or not throttled.startswith("0x") else throttled,
        mig=row["mig.mode.current"] == "Enabled",
    )


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
