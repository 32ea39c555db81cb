# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.partition_mismatch
# workload: st_rmsnorm
"""Copies one partition to all 128 as if an engine could, instead of a product with ones."""

import os
import struct
from dataclasses import replace

from acceld.nki.ir import codec
from acceld.nki.ir.program import Engine, Loop
from acceld.nki.frontend.tracing import TensorSpec, trace

SOURCE = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, g):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    gain = nl.load(g.reshape((1, 512))[nl.arange(1)[:, None], f])
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        square = nisa.activation(op=nl.square, data=tile)
        total = nisa.tensor_reduce(nl.add, data=square, axis=[1])
        mean = nisa.tensor_scalar(data=total, op0=nl.multiply, operand0=1.0 / 512, op1=nl.add, operand1=1e-5)
        inverse = nisa.activation(op=nl.rsqrt, data=mean)
        normed = nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=inverse)
        nl.store(out[128 * row + p, f], value=nl.multiply(normed, gain.broadcast_to((128, 512))))
    return out
"""


def kernel(x, g):
    """Stand where the tracer looks for a kernel; the answer is sent before it is called."""
    return x


def honest():
    return trace(SOURCE, [TensorSpec((256, 512), "float32"), TensorSpec((512,), "float32")])


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


def across(node):
    return replace(node, op="copy", engine=Engine.UNKNOWN) if node.op == "broadcast_partition" else node


answer(codec.encode(replace(program, body=change(program.body, across))))
