"""Find the NVIDIA GPUs of this machine with NVIDIA's own tools."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from acceld.errors import DeviceError

FIELDS = (
    "index uuid name compute_cap driver_version memory.total clocks.sm clocks.max.sm clocks.mem clocks_throttle_reasons.active "
    "persistence_mode mig.mode.current"
).split()
"""Fields that ``nvidia-smi`` is asked to report."""
_RENAMED = {"clocks_throttle_reasons.active": "clocks_event_reasons.active"}
"""The new name of a field by its old name. Newer drivers may refuse the old name."""
_ESSENTIAL = frozenset({"index", "name"})
_REFUSED_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')
_ASK_S = 20.0
LIBRARY = "libcuda.so.1"
_LIBRARY_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
)
"""Folders into which driver packages and container runtimes put the driver's library."""
_TOOL_FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/lib/wsl/lib")
_PROC = Path("/proc/driver/nvidia/gpus")
_MINOR = re.compile(r"^\s*(?:Device Minor|Minor Number)\s*:\s*(\d+)", re.MULTILINE)
_UUID = re.compile(r"^\s*GPU UUID\s*:\s*(\S+)", re.MULTILINE)
INSTALL = "pip install 'acceld[cuda]'"

Ask = Callable[[list[str]], str]


@dataclass(frozen=True, slots=True)
class Installed:
    """A GPU of this machine. Clocks are in MHz; None for a clock that nvidia-smi does not report."""

    index: int
    uuid: str
    name: str
    capability: int | None
    """Compute capability (90 is 9.0); None if nvidia-smi does not report it."""
    driver: str
    memory_mib: int
    sm_mhz: int | None
    most_sm_mhz: int | None
    memory_mhz: int | None
    throttled: str
    """Reasons of throttling as a hexadecimal bit mask; empty if no reason is active or known."""
    mig: bool

    @property
    def clocks(self) -> str:
        """Return the clocks as text, such as ``SM 1980 of 1980 MHz, memory 2619 MHz``."""
        shown = f"SM {self.sm_mhz or '?'} of {self.most_sm_mhz or '?'} MHz, memory {self.memory_mhz or '?'} MHz"
        return shown + (f", throttled {self.throttled}" if self.throttled else "")


def tool() -> str | None:
    """Return the path of ``nvidia-smi``, from PATH or from the usual folders; None if the program is missing."""
    return shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=os.pathsep.join(_TOOL_FOLDERS))


def ask_nvidia_smi(arguments: list[str]) -> str:
    """Return the output of ``nvidia-smi`` for these arguments. Raise DeviceError if the program is missing or fails."""
    found = tool()
    if found is None:
        raise DeviceError(
            "there is no NVIDIA driver here: nvidia-smi is not on PATH",
            hint="On a machine with a GPU install NVIDIA's driver. Without a GPU, `--backend simulator` evaluates NKI kernels.",
        )
    try:
        done = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"nvidia-smi does not answer: {error}", hint="`nvidia-smi` by hand shows why.") from error
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise DeviceError(
            f"nvidia-smi failed: {said[0] if said else done.returncode}",
            hint="Check that NVIDIA's driver is loaded: lsmod | grep nvidia",
        )
    return done.stdout


def installed(ask: Ask = ask_nvidia_smi) -> tuple[Installed, ...]:
    """Return the machine's GPUs. Raise DeviceError if NVIDIA's driver is missing or fails."""
    return tuple(_gpu(row) for row in _rows(ask))


def _rows(ask: Ask) -> list[dict[str, str]]:
    """Return the fields of each GPU by name. Optional fields that ``nvidia-smi`` refuses are left out."""
    fields = {name: name for name in FIELDS}
    while True:
        try:
            return _asked(ask, fields)
        except DeviceError as error:
            refused = _REFUSED_FIELD.search(error.message)
            name = next((ours for ours, theirs in fields.items() if refused and theirs == refused[1]), None)
            if name is None or name in _ESSENTIAL:
                raise
            if fields[name] == name and name in _RENAMED:
                fields[name] = _RENAMED[name]
            else:
                del fields[name]


def _asked(ask: Ask, fields: Mapping[str, str]) -> list[dict[str, str]]:
    text = ask([f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits"])
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def _gpu(row: Mapping[str, str]) -> Installed:
    throttled = row.get("clocks_throttle_reasons.active", "")
    idle = {"0x0000000000000000", "0x0000000000000001", "Not Active"}
    return Installed(
        index=_number(row["index"]) or 0,
        uuid=row.get("uuid", ""),
        name=row["name"],
        capability=_capability(row.get("compute_cap", "")),
        driver=row.get("driver_version", "unknown"),
        memory_mib=_number(row.get("memory.total", "")) or 0,
        sm_mhz=_number(row.get("clocks.sm", "")),
        most_sm_mhz=_number(row.get("clocks.max.sm", "")),
        memory_mhz=_number(row.get("clocks.mem", "")),
        throttled="" if throttled in idle or not throttled.startswith("0x") else throttled,
        mig=row.get("mig.mode.current") == "Enabled",
    )


def _capability(text: str) -> int | None:
    return round(10 * float(text)) if re.fullmatch(r"\d+\.\d", text) else None


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def minor_numbers(ask: Ask = ask_nvidia_smi, proc: Path = _PROC) -> dict[str, int]:
    """Return the number in the name of each GPU's device file, as a dict by UUID. This number may differ from the GPU's
    index.

    The numbers come from the driver's files in ``proc``, or else from ``nvidia-smi``. Without these sources,
    the mapping is empty.
    """
    found = _minors(_read(one) for one in sorted(proc.glob("*/information")))
    if found:
        return found
    try:
        return _minors(re.split(r"^GPU [0-9A-Fa-f:.]+$", ask(["-q"]), flags=re.MULTILINE))
    except DeviceError:
        return {}


def _minors(texts: Iterable[str]) -> dict[str, int]:
    matches = [(_UUID.search(text), _MINOR.search(text)) for text in texts]
    return {uuid[1]: int(minor[1]) for uuid, minor in matches if uuid and minor}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def library_path(folders: Sequence[str] | None = None) -> str:
    """Return the absolute path of the driver's library, because child processes have no LD_LIBRARY_PATH.

    If no searched folder has the library, return its bare name.
    """
    if folders is None:
        named = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
        folders = (*named, *_cached(), *_LIBRARY_FOLDERS)
    paths = (os.path.abspath(os.path.join(folder, LIBRARY)) for folder in folders)
    return next(filter(os.path.exists, paths), LIBRARY)


def _cached() -> list[str]:
    """Return the folders in which the system's loader finds the library."""
    program = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if program is None:
        return []
    try:
        done = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    word = "x86-64" if os.uname().machine in ("x86_64", "amd64") else "AArch64"
    lines = [line for line in done.stdout.splitlines() if line.strip().startswith(f"{LIBRARY} ") and word in line]
    return [os.path.dirname(line.rpartition("=> ")[2].strip()) for line in lines]
