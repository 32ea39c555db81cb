"""A machine of stand-ins: interpreters and tools that a test names to acceld, and a small workload to run on it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

STANDIN = Path(__file__).resolve().parent
PROJECT = STANDIN.parents[1]


@dataclass(frozen=True)
class StandInMachine:
    """What a configuration names, and the folder that goes to the front of PATH."""

    compile_python: str
    runner_python: str
    folder: Path


def stand_in_machine(folder: Path, *, scenario: str = "", runtime: str = "runtime") -> StandInMachine:
    """Interpreters with the stand-in packages and neuron-ls, in ``folder``/bin.

    The packages compute what acceld's own simulator reads in a kernel. ``scenario`` is what goes wrong on the device;
    ``runtime`` "" leaves the profiler as the only way to run.
    """
    tools = folder / "bin"
    tools.mkdir()
    for place in (folder, tools):
        # Where the tests run as root, jailed processes have another uid.
        place.chmod(0o755)
    named = f"ACCELD_STANDIN=1 STANDIN_COMPUTES=1 STANDIN_SCENARIO='{scenario}' OPENBLAS_NUM_THREADS=1"
    compiling = _script(tools / "compile-python", f"{named} PYTHONPATH={STANDIN / 'legacy'}:{PROJECT}", "")
    running = _script(tools / "runner-python", f"{named} PYTHONPATH={STANDIN / runtime}:{PROJECT}", "")
    _script(tools / "neuron-ls", named, str(STANDIN / "bin" / "neuron-ls"))
    return StandInMachine(str(compiling), str(running), tools)


def _script(path: Path, named: str, program: str) -> Path:
    path.write_text(f'#!/bin/sh\n{named} exec {sys.executable} {program} "$@"\n')
    path.chmod(0o755)
    return path


def small_silu(folder: Path, kernel: str = "") -> Path:
    """A workload named ``small_silu``: SiLU of 128 x 2048 elements; its baseline works in tiles of 512."""
    made = folder / "small_silu"
    made.mkdir()
    (made / "workload.toml").write_text(_WORKLOAD)
    (made / "reference.py").write_text(_REFERENCE)
    (made / "kernel_legacy.py").write_text(kernel or KERNEL)
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
"""Its baseline."""
NARROW = KERNEL.replace("512", "128").replace("affine_range(4)", "affine_range(16)")
"""The same in tiles of 128: slower."""
