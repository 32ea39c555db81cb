# expect: truthful
# caught by: rejected.import
# workload: st_silu
# at_least: 5.0
"""Transposes by transfers that start where a register says: not at the price of whole rows."""

import os
import struct
from dataclasses import replace

from acceld.nki.ir import codec
from acceld.nki.ir.program import Engine, Indirect, Instruction, Loop, Space
from acceld.nki.frontend.tracing import TensorSpec, trace

SOURCE = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(256)[None, :]
    for part in nl.affine_range(4):
        tile = nl.load(x[f, 128 * part + p])
        nl.store(out[f, 128 * part + p], value=nisa.activation(op=nl.silu, data=tile))
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
zero = Instruction("register_move", Engine.SYNC, (), (0,), (("register", 0),))


def moved(access):
    if program.buffers[access.buffer].space is not Space.HBM:
        return access
    return replace(access, indirect=(Indirect(0, register=0),))


def another(node):
    if node.op != "dma_copy":
        return node
    return replace(node, srcs=tuple(map(moved, node.srcs)), dsts=tuple(map(moved, node.dsts)))


body = (zero, *change(program.body, another))
answer(codec.encode(replace(program, registers=1, body=body)))
