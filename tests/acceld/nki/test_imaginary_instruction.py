"""An instruction that the chip does not have is added by one entry and two functions.

``ADDED`` is the whole recipe: an entry of the table, the function that computes it, the function that kernels call.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ADDED = """
import numpy as np

from acceld.nki.ir import operations

operations.OPS["twice"] = operations.entry(
    "dst = 2 * data", "dst", "data:tile", engines="V", traits="whole elementwise rounds in_place", cycles=3.0
)

from acceld.nki.execute import elementwise
from acceld.nki.frontend.current import arithmetic
from acceld.nki.frontend.current.operands import emit, matched
from acceld.nki.ir.program import Engine


def called(dst, data, name=None):
    "dst = 2 * data."
    target, tile = matched(dst, "twice", data=data)
    emit("twice", Engine.VECTOR, [target], [tile])


def twice(context):
    dst, data = context.dst(), context.reader(0)
    return lambda env, window: dst.put(env, window, 2 * data(env, window))


called.__name__, called.__module__, twice.__module__ = "twice", arithmetic.__name__, elementwise.__name__
arithmetic.twice, elementwise.twice = called, twice
"""
USED = """
from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.reference import look_up
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.source.signatures import positional
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify

KERNEL = '''
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    made = nl.ndarray((128, COLUMNS), dtype=nl.float32, buffer=nl.SPACE)
    nisa.dma_copy(dst=tile, src=x)
    nisa.twice(made, data=tile)
    nisa.dma_copy(dst=out, src=made)
    return out
'''


def traced(columns, space):
    text = KERNEL.replace("COLUMNS", columns).replace("SPACE", space)
    return trace(text, [TensorSpec((128, 512), "float32")], api="nki", chip="trn2")


program = traced("512", "sbuf")
assert verify(program) == ()
x = np.random.default_rng(0).normal(size=(128, 512)).astype(np.float32)
assert np.array_equal(execute(program, [x])[0], 2 * x)
(busy,) = [us for name, us in timeline(program).engines.items() if "vector" in name.lower()]
assert 3 * 512 / 1400 < busy < 6 * 512 / 900, busy  # three cycles an element, at about one GHz
(call,) = look_up("nisa.twice")
assert (call.text, call.signature) == ("dst = 2 * data.", "(dst, data, name=None)")
assert call.state == "supported, not in AWS's pages"
assert positional("nki", "isa")["twice"] == ("dst", "data", "name")
for columns, space in (("256", "sbuf"), ("512", "private_hbm")):  # another size, another memory
    try:
        traced(columns, space)
    except KernelFailure as error:
        assert "twice" in str(error), error
    else:
        raise AssertionError(space)
"""
READ_BY_RULES = """
from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named

STEPS = '''
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for c in nl.affine_range(2):
        tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        made = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[0:128, nl.ds(256 * c, 256)])
        nisa.twice(made, data=tile)
        nisa.dma_copy(dst=out[0:128, nl.ds(256 * c, 256)], src=made)
    return out
'''
kernel = KernelModule(STEPS, Launch("nki", ((128, 512),), ("float32",)))
(call,) = [one for one in kernel.statements if one.op == "twice"]
assert (call.kind, call.made.name, call.reads["data"].name) == ("op", "made", "tile")
(place,) = rule_named("widen_tiles").find(kernel, None)
wider = place.rewrite(place.site.variants[0])
assert "range(2)" not in wider and "nisa.twice" in wider, wider
rewritten = trace(wider, [TensorSpec((128, 512), "float32")], api="nki", chip="trn2")
assert np.array_equal(execute(rewritten, [x])[0], 2 * x)
"""


def test_an_instruction_is_added_by_one_entry_and_two_functions(tmp_path: Path) -> None:
    script = tmp_path / "added.py"
    script.write_text(ADDED + USED + READ_BY_RULES)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
