# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Steps are functions in a tuple; reduce applies them."""

from functools import reduce

import nki
import nki.isa as nisa
import nki.language as nl


def negated(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=-1.0)


def exponential(dst, src):
    nisa.activation(dst=dst, op=nl.exp, data=src)


def plus_one(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.add, operand0=1.0)


def inverse(dst, src):
    nisa.reciprocal(dst=dst, data=src)


STEPS = (negated, exponential, plus_one, inverse)


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def applied(tile, step):
        new = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        step(new, tile)
        return new

    for row in nl.affine_range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row * 128 : (row + 1) * 128, :])
        weight = reduce(applied, STEPS, tile)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=weight, op=nl.multiply)
        nisa.dma_copy(dst=out[row * 128 : (row + 1) * 128, :], src=tile)
    return out
