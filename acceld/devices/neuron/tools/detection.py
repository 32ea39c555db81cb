"""Find AWS's Neuron software on this machine: packages, placeholders, tools, devices. No Neuron package is imported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from acceld.child import with_safe_path

VENVS = Path("/opt")
PATTERN = "aws_neuronx_venv_*"
HOME = Path.home
HOLDS = "lib/python3*/site-packages/{}"
PACKAGES = ("nrtpy", "spike", "neuronxcc", "nki")
"""Packages by which an environment of the user is recognized as one with Neuron."""
DEVICES = "/dev/neuron*"
PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")
TOOLS = "sudo apt-get install aws-neuronx-dkms aws-neuronx-runtime-lib aws-neuronx-tools"
"""Command that installs driver, runtime library, neuron-ls, neuron-monitor and profiler from AWS's repository."""
INSTALL = (
    "start from AWS's Deep Learning AMI Neuron; elsewhere set up AWS's repositories as Neuron's setup page says, then "
    f"`{TOOLS}` and `python -m pip install --extra-index-url INDEX neuronx-cc nki` with the INDEX of that page: "
    "the packages of the same names on PyPI are placeholders"
)
SDK_OF_NKI = {"0.2": "2.28", "0.3": "2.29", "0.4": "2.30", "0.5": "2.31", "0.6": "2.32", "0.7": "2.33"}
"""The SDK that contains each version of the package ``nki``. Source: AWS's migration page."""
_PROBE = """
import sys
sys.path[:] = filter(None, sys.path)
import importlib.metadata as m, json
def state(name, module):
    try:
        found = m.distribution(name)
    except m.PackageNotFoundError:
        return None
    real = any(str(p).startswith(module) and str(p).endswith((".so", ".py")) and "__init__" not in str(p)
               for p in (found.files or []))
    return {"version": found.version, "real": bool(real)}
print(json.dumps({n: state(n, d) for n, d in
    [("neuronx-cc", "neuronxcc"), ("nki", "nki"), ("torch-neuronx", "torch_neuronx"), ("nrtpy", "nrtpy"),
     ("spike", "spike")]}))
"""


@dataclass(frozen=True, slots=True)
class NeuronPackage:
    """A Neuron package in one interpreter: its version, and whether it is real or only a placeholder."""

    name: str
    version: str
    real: bool
    python: str

    @property
    def text(self) -> str:
        """Return the name and the version, the SDK if it is known, and whether the package is only a placeholder."""
        sdk = SDK_OF_NKI.get(".".join(self.version.split(".")[:2]), "") if self.name == "nki" else ""
        notes = [f"SDK {sdk}"] if sdk and self.real else []
        notes += [] if self.real else ["placeholder"]
        return f"{self.name} {self.version}" + (f" ({', '.join(notes)})" if notes else "")


@dataclass(frozen=True, slots=True)
class NeuronTools:
    """The Neuron software of a machine."""

    pythons: tuple[str, ...]
    packages: tuple[NeuronPackage, ...]
    profiler: str
    """Path of neuron-explorer or neuron-profile; empty if there is none."""
    devices: tuple[str, ...]
    instance: str


def find_neuron(pythons: tuple[str, ...] = ()) -> NeuronTools:
    """Return the Neuron packages of the interpreters ``pythons``, and this machine's profiler and devices.

    If ``pythons`` is empty, search AWS's virtual environments, and those of the user's environments that have a
    Neuron package.
    """
    interpreters = pythons or tuple(_interpreters())
    packages = [package for python in interpreters for package in _packages(python)]
    profiler = shutil.which("neuron-explorer") or shutil.which("neuron-profile") or ""
    devices = tuple(sorted(str(path) for path in Path("/dev").glob("neuron[0-9]*")))
    return NeuronTools(interpreters, tuple(packages), profiler, devices, instance())


def _interpreters() -> Iterator[str]:
    """Yield the interpreters of AWS's virtual environments, then the interpreters of the user's environments with
    Neuron.

    A user's environment may lie in the home folder or be the active one. A user's environment may be needed because
    nrtpy can not be installed beside ``nki``.
    """
    own = [Path(active)] if (active := os.environ.get("VIRTUAL_ENV")) else []
    own += sorted(made.parent for pattern in ("*", ".*") for made in HOME().glob(f"{pattern}/pyvenv.cfg"))
    holding = [folder for folder in own if any(next(folder.glob(HOLDS.format(name)), None) for name in PACKAGES)]
    for folder in dict.fromkeys((*sorted(VENVS.glob(PATTERN)), *holding)):
        if (python := folder / "bin" / "python").exists():
            yield str(python)


@cache
def nki_version() -> str:
    """Return the newest version of ``nki``, such as ``0.6``, in the environments into which :func:`find_neuron` looks.

    Return an empty text if there is no ``nki``, or only placeholders. No interpreter is started.
    """
    found = []
    for python in _interpreters():
        for made in Path(python).parents[1].glob(HOLDS.format("nki-*.dist-info")):
            version = re.match(r"nki-(\d+)\.(\d+)", made.name)
            if version and next((made.parent / "nki").glob("isa*"), None) is not None:
                found.append((int(version[1]), int(version[2])))
    return "{}.{}".format(*max(found)) if found else ""


def _packages(python: str) -> Iterator[NeuronPackage]:
    try:
        environment = with_safe_path(os.environ)
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=30, check=True, env=environment
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return
    for name, state in found.items():
        if state is not None:
            yield NeuronPackage(name, state["version"], state["real"], python)


def instance() -> str:
    """Return the instance type from the firmware, such as ``trn1.32xlarge``; an empty text if the firmware names none."""
    try:
        return PRODUCT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
