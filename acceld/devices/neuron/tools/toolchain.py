"""Choose the interpreters that compile and run: named ones, or those found in AWS's virtual environments."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from acceld.devices.neuron.tools.detection import INSTALL, NeuronTools, find_neuron
from acceld.errors import DeviceError

TOOLS = Path("/opt/aws/neuron/bin")
NEEDS = {"nki_legacy": "neuronx-cc", "nki": "nki"}
"""The package that an API's compiler is in."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Paths of two interpreters and three tools. ``profiler`` is empty where there is none."""

    compile_python: str
    runner_python: str
    profiler: str
    neuron_ls: str
    neuron_monitor: str = "neuron-monitor"


def find_toolchain(
    api: str, *, compile_python: str = "", runner_python: str = "", found: NeuronTools | None = None
) -> Toolchain:
    """Named interpreters as they are, others found. DeviceError, with what was seen, where there is no compiler."""
    tools = found or find_neuron()
    compiler = compile_python or _python_with(NEEDS[api], tools)
    if not compiler:
        seen = [f"{one.name} {one.version} ({'real' if one.real else 'placeholder'})" for one in tools.packages]
        raise DeviceError(
            f"no interpreter with {NEEDS[api]}; found {', '.join(seen) or 'no Neuron package'}", hint=INSTALL
        )
    # Without nrtpy or spike the runner drives the profiler alone, for which any interpreter will do.
    runner = runner_python or _python_with("nrtpy", tools) or _python_with("spike", tools) or sys.executable
    profiler = tools.profiler or _tool("neuron-explorer") or _tool("neuron-profile")
    monitor = _tool("neuron-monitor") or "neuron-monitor"
    return Toolchain(compiler, runner, profiler, _tool("neuron-ls") or "neuron-ls", monitor)


def _python_with(package: str, tools: NeuronTools) -> str:
    real = (one.python for one in tools.packages if one.real and one.name == package)
    return next(real, "")


def _tool(name: str) -> str:
    path = TOOLS / name
    return str(path) if path.is_file() else shutil.which(name) or ""
