"""Choose the interpreters that compile and run kernels: the configured interpreters, or else those of AWS's virtual
environments.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from acceld.devices.neuron.tools.detection import INSTALL, NeuronTools, find_neuron
from acceld.errors import DeviceError

TOOLS = Path("/opt/aws/neuron/bin")
NEEDS = {"nki_legacy": "neuronx-cc", "nki": "nki"}
"""Package that contains an API's compiler."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Paths of the two interpreters and the three tools in use. ``profiler`` is empty if the machine has no
    profiler.
    """

    compile_python: str
    runner_python: str
    profiler: str
    neuron_ls: str
    neuron_monitor: str = "neuron-monitor"


def find_toolchain(
    api: str, *, compile_python: str = "", runner_python: str = "", found: NeuronTools | None = None
) -> Toolchain:
    """Return the toolchain. Interpreters that are not given, and all tools, are looked for on this machine.

    Raise DeviceError, with all packages that were found, if there is no compiler.
    """
    tools = found or find_neuron()
    compiler = compile_python or _python_with(NEEDS[api], tools)
    if not compiler:
        seen = [f"{one.name} {one.version} ({'real' if one.real else 'placeholder'})" for one in tools.packages]
        raise DeviceError(
            f"no interpreter with {NEEDS[api]}; found {', '.join(seen) or 'no Neuron package'}", hint=INSTALL
        )
    # Without nrtpy or spike the runner only drives the profiler, which any interpreter can do.
    runner = runner_python or _python_with("nrtpy", tools) or _python_with("spike", tools) or sys.executable
    profiler = tools.profiler or tool("neuron-explorer") or tool("neuron-profile")
    monitor = tool("neuron-monitor") or "neuron-monitor"
    return Toolchain(compiler, runner, profiler, tool("neuron-ls") or "neuron-ls", monitor)


def likely_toolchain(api: str, found: NeuronTools, *, compile_python: str = "", runner_python: str = "") -> Toolchain:
    """Return the toolchain, even if parts of it are missing. A missing part is empty, or a name that can not be
    started.
    """
    try:
        return find_toolchain(api, compile_python=compile_python, runner_python=runner_python, found=found)
    except DeviceError:
        profiler = found.profiler or tool("neuron-explorer") or tool("neuron-profile")
        return Toolchain("", runner_python or sys.executable, profiler, tool("neuron-ls") or "neuron-ls")


def _python_with(package: str, tools: NeuronTools) -> str:
    real = (one.python for one in tools.packages if one.real and one.name == package)
    return next(real, "")


def tool(name: str) -> str:
    """Return the path of one of Neuron's tools; an empty text if the tool is not installed."""
    path = TOOLS / name
    return str(path) if path.is_file() else shutil.which(name) or ""
