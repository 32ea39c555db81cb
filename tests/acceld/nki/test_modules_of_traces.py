"""Modules that a trace loads, and those it leaves behind."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.ir.program import LoopKind

HELPER = """
import nki.language as nl
ROWS = nl.tile_size.pmax

def doubled(tile):
    return nl.multiply(tile, 2.0)
"""
KERNEL = """
import nki
import nki.language as nl
from helper import ROWS, doubled

def copied(x, rows=nl.tile_size.pmax):
    return nl.load(x)

@nki.jit
def kernel(x):
    out = nl.ndarray((ROWS, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, doubled(copied(x)))
    return out
"""


def test_limits_of_the_chip_are_known_while_files_load(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    options = TraceOptions(source_root=tmp_path)
    for _ in range(2):
        program = trace(KERNEL, [TensorSpec((128, 4), "float32")], api="nki", chip="trn2", options=options)
        assert program.buffers[program.outputs[0]].shape == (128, 4)
    assert "helper" not in sys.modules


def test_a_module_that_holds_another_nl_is_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load neither the helper of another project's test run again, nor a helper that got its functions from there."""
    (tmp_path / "helper.py").write_text(HELPER)
    stale, others_nl = ModuleType("helper"), ModuleType("nki.language")
    stale.__dict__.update(nl=others_nl, ROWS=7, __file__=str(tmp_path / "helper.py"))
    monkeypatch.setitem(sys.modules, "helper", stale)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = trace(KERNEL, [TensorSpec((128, 4), "float32")], api="nki", chip="trn2")
    assert program.buffers[program.outputs[0]].shape == (128, 4)
    assert sys.modules["helper"] is stale


def test_a_while_on_a_register_in_a_module_of_the_kernel_is_one_loop_of_the_chip(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(
        """
import nki.isa as nisa
import nki.language as nl

def doubled_while(tile, again, count):
    turns = 3
    while turns:
        turns -= 1
    assert turns == 0
    while again:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.tensor_scalar(dst=count, data=count, op0=nl.subtract, operand0=1)
        nisa.register_load(again, count)
"""
    )
    kernel = """
import nki
import nki.isa as nisa
import nki.language as nl
from helper import doubled_while

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=count, value=3)
    doubled_while(tile, nisa.register_alloc(count), count)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    options = TraceOptions(source_root=tmp_path)
    program = trace(kernel, [TensorSpec((128, 4), "float32")], api="nki", chip="trn2", options=options)
    assert [loop.kind for loop in program.loops.values()] == [LoopKind.WHILE]
    (out,) = execute(program, [np.ones((128, 4), np.float32)])
    assert (out == 8.0).all()
    assert not list(tmp_path.rglob("helper*.pyc")), "rewritten code is not kept"
