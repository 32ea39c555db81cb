# expect: reject
# caught by: rejected.import
# unpoliced: runtime_error.undefined_memory
# workload: st_matmul
"""Makes its loops dynamic, counted by a register that nobody wrote."""

import os
import struct
from dataclasses import replace

from acceld.nki.ir import codec
from acceld.nki.ir.program import (
    Access,
    Affine,
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Notice,
    Role,
    Space,
    TileDim,
)
from acceld.nki.frontend.tracing import TensorSpec, trace

SOURCE = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        product = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            product += nl.matmul(nl.load(a[128 * row + p, 128 * k + c]), nl.load(b[128 * k + p, f]))
        nl.store(out[128 * row + p, f], value=nl.copy(product))
    return out
"""


def kernel(a, b):
    """Stand where the tracer looks for a kernel; the answer is sent before it is called."""
    return a


def honest():
    return trace(SOURCE, [TensorSpec((256, 256), "float32"), TensorSpec((256, 512), "float32")])


def change(body, instruction, loop=lambda node: node):
    """The nodes with every instruction, and every loop after its body, replaced."""
    made = []
    for node in body:
        if isinstance(node, Loop):
            made.append(loop(replace(node, body=change(node.body, instruction, loop))))
        else:
            found = instruction(node)
            if found is not None:
                made.append(found)
    return tuple(made)


def answer(data):
    view = memoryview(struct.pack("<I", 2) + b"{}" + data)
    while view:
        view = view[os.write(3, view) :]
    os._exit(0)


program = honest()
loop = lambda node: replace(node, kind=LoopKind.DYNAMIC, trips_register=0)
answer(codec.encode(replace(program, registers=1, body=change(program.body, lambda node: node, loop))))
