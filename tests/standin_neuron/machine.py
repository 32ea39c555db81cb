"""A machine of stand-ins: interpreters and tools that a test names to acceld, and a small workload to run on it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.programs import python_program

STANDIN = Path(__file__).resolve().parent
PROJECT = STANDIN.parents[1]


@dataclass(frozen=True)
class StandInMachine:
    """Paths that a configuration names, the folder that goes to the front of PATH, and the device's state."""

    compile_python: str
    runner_python: str
    folder: Path
    state: Path

    def uses(self) -> list[dict[str, Any]]:
        """Return the uses of cores: core, kind (run or time), entry, start, end."""
        return [one for one in self._log() if one["entry"]]

    def holds(self) -> list[dict[str, Any]]:
        """Return the processes that held cores, from their first NEFF to their end: core, purpose (run or time), start,
        end.
        """
        return [one for one in self._log() if not one["entry"]]

    def _log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.state / "log").read_text().splitlines()]

    def show_processes(self, *processes: dict[str, object], device: int = 0) -> None:
        """Make neuron-ls report these processes on one of the two chips."""
        chips = [_chip(number, list(processes) if number == device else []) for number in (0, 1)]
        (self.state / "ls.json").write_text(json.dumps(chips))


def machine_in(folder: Path) -> StandInMachine:
    """Return the machine that was made in ``folder``, to read the use of its cores."""
    return StandInMachine(
        str(folder / "bin" / "compile-python"), str(folder / "bin" / "runner-python"), folder / "bin", folder / "device"
    )


def _chip(number: int, processes: Sequence[dict[str, object]] = (), lnc: int = 1) -> dict[str, object]:
    """Return a chip of two logical cores as neuron-ls reports it."""
    reported = {"neuron_device": number, "nc_count": 2, "memory_size": 1 << 35, "neuron_processes": list(processes)}
    ids = [2 * number, 2 * number + 1]
    return reported | {"neuroncore_ids": ids} | ({"logical_neuroncore_config": lnc} if lnc > 1 else {})


def stand_in_machine(
    folder: Path,
    *,
    scenario: str = "",
    runtime: str = "runtime",
    compiler: str = "legacy",
    lnc: int = 1,
    modes: Mapping[str, str] | None = None,
) -> StandInMachine:
    """Return interpreters with the stand-in packages, neuron-ls and neuron-monitor, in ``folder``/bin.

    The packages compute what acceld's own simulator reads in a kernel. ``scenario`` is what goes wrong on the device;
    ``runtime`` "" leaves the profiler as the only way to run; ``compiler`` is the folder of the compiler's packages;
    ``modes`` are variables of :mod:`tests.standin_neuron.neff_file` without their STANDIN.
    """
    tools, state = folder / "bin", folder / "device"
    tools.mkdir()
    state.mkdir()
    state.chmod(0o777)
    for place in (folder, tools):
        # Where the tests run as root, jailed processes have another uid.
        place.chmod(0o755)
    named = f"ACCELD_STANDIN=1 STANDIN_COMPUTES=1 STANDIN_SCENARIO='{scenario}' OPENBLAS_NUM_THREADS=1"
    named += f" STANDIN_STATE={state} STANDIN_LS='{json.dumps([_chip(0, lnc=lnc), _chip(1, lnc=lnc)])}'"
    named += "".join(f" STANDIN_{name}={shlex.quote(value)}" for name, value in (modes or {}).items())
    _script(tools / "compile-python", f"{named} PYTHONPATH={shlex.quote(f'{STANDIN / compiler}:{PROJECT}')}")
    _script(tools / "runner-python", f"{named} PYTHONPATH={shlex.quote(f'{STANDIN / runtime}:{PROJECT}')}")
    for tool in ("neuron-ls", "neuron-monitor"):
        _script(
            tools / tool, named, "-S", str(STANDIN / "bin" / tool)
        )  # without packages it starts in a third of the time
    return machine_in(folder)


def tool(folder: Path, name: str, *, called: str = "") -> str:
    """Put one of the stand-in's tools into ``folder``, under the name ``called`` if given. Return the tool's path."""
    return str(
        python_program(folder / (called or name), f"import runpy\nrunpy.run_path({str(STANDIN / 'bin' / name)!r})\n")
    )


def _script(path: Path, named: str, *program: str) -> Path:
    path.write_text(f'#!/bin/sh\n{named} exec {shlex.join([sys.executable, *program])} "$@"\n')
    path.chmod(0o755)
    return path


def small_silu(folder: Path, kernel: str = "", *, lnc: int = 1) -> Path:
    """Return a workload named ``small_silu``: SiLU of 128 x 2048 elements, with baselines that work in tiles of 512."""
    made = folder / "small_silu"
    made.mkdir()
    (made / "workload.toml").write_text(_WORKLOAD)
    (made / "reference.py").write_text(_REFERENCE)
    (made / "kernel_legacy.py").write_text(kernel or KERNEL)
    (made / "kernel.py").write_text(CURRENT if lnc == 1 else CURRENT_LNC2)
    if lnc > 1:
        with (made / "workload.toml").open("a") as file:
            file.write(f"\n[kernel]\nlnc = {lnc}\n")
    return made


_WORKLOAD = """\
name = "small_silu"
family = "tests"
description = "SiLU"
precision = "fp32_strict"
tolerance = 2e-05

[arguments.x]
shape = [128, 2048]
dtype = "float32"

[outputs.out]
shape = [128, 2048]
dtype = "float32"

[distributions]
own = "declared"
integers = "declared"
scaled_up = { refused = "the tests need few" }
scaled_down = { refused = "the tests need few" }
shifted = { refused = "the tests need few" }
row_scaled = { refused = "the tests need few" }
sparse = { refused = "the tests need few" }
special = { refused = "the tests need few" }

[work]
vector_flops = "3*128*2048"
matmul_flops = 0
hbm_bytes = "2*128*2048*4"

[baselines]
nki_legacy = "kernel_legacy.py"
nki = "kernel.py"
"""
_REFERENCE = """\
import numpy as np


def forward(x):
    return x / (1 + np.exp(-x))
"""
KERNEL = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for tile in nl.affine_range(4):
        x_tile = nl.load(x[p, 512 * tile + f])
        decay = nisa.activation(op=nl.exp, data=x_tile, scale=-1.0)
        denominator = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)
        sigmoid = nisa.reciprocal(data=denominator)
        y_tile = nl.multiply(x_tile, sigmoid)
        nl.store(out[p, 512 * tile + f], value=y_tile)
    return out
"""
"""The baseline of ``small_silu``."""
NARROW = KERNEL.replace("512", "128").replace("affine_range(4)", "affine_range(16)")
"""``small_silu`` in tiles of 128, which is slower."""

CURRENT = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    for tile in nl.affine_range(4):
        x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        denominator = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[0:128, nl.ds(512 * tile, 512)])
        nisa.activation(dst=denominator, op=nl.exp, data=x_tile, scale=-1.0)
        nisa.tensor_scalar(dst=denominator, data=denominator, op0=nl.add, operand0=1.0)
        nisa.reciprocal(dst=denominator, data=denominator)
        nisa.tensor_tensor(dst=x_tile, data1=x_tile, data2=denominator, op=nl.multiply)
        nisa.dma_copy(dst=out[0:128, nl.ds(512 * tile, 512)], src=x_tile)
    return out
"""
"""The baseline of ``small_silu`` in the package nki."""
CURRENT_NARROW = CURRENT.replace("512", "64").replace("affine_range(4)", "affine_range(32)")
CURRENT_LNC2 = CURRENT.replace("affine_range(4)", "affine_range(2)").replace(
    "512 * tile", "512 * (2 * nl.program_id(0) + tile)"
)
"""The same kernel on the two physical cores of one logical core. Each core computes half of the columns."""
