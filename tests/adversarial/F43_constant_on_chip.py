# expect: reject
# caught by: rejected.import
# unpoliced: compile_error.malformed
# workload: st_silu
"""Finds a table on chip that nothing has loaded there."""

import os
import struct
from dataclasses import replace

from acceld.nki.ir import codec
from acceld.nki.ir.program import Access, Affine, Buffer, Engine, Instruction, Loop, Role, Space, TileDim
from acceld.nki.frontend.tracing import TensorSpec, trace

SOURCE = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for part in nl.affine_range(2):
        tile = nl.load(x[128 * part + p, f])
        nl.store(out[128 * part + p, f], value=nisa.activation(op=nl.silu, data=tile))
    return out
"""


def kernel(x):
    """Stand where the tracer looks for a kernel; the answer is sent before it is called."""
    return x


def honest():
    return trace(SOURCE, [TensorSpec((256, 512), "float32")])


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
ones = Buffer(
    id=len(program.buffers),
    name="ones",
    space=Space.SBUF,
    dtype="float32",
    shape=(128, 512),
    partition_axis=0,
    role=Role.CONSTANT,
    data=struct.pack("<f", 1.0) * (128 * 512),
)
tile = Access(ones.id, (Affine(), Affine()), (TileDim(128, (1, 0)), TileDim(512, (0, 1))))


def scaled(node):
    if node.op != "activation":
        return node
    result = node.dsts[0]
    by_ones = Instruction("tensor_tensor", Engine.VECTOR, (result,), (result, tile), (("op", "multiply"),))
    return (node, by_ones)


def spread(body):
    made = []
    for node in body:
        if isinstance(node, Loop):
            made.append(replace(node, body=spread(node.body)))
        else:
            made.extend(scaled(node) if node.op == "activation" else (node,))
    return tuple(made)


answer(codec.encode(replace(program, buffers=(*program.buffers, ones), body=spread(program.body))))
