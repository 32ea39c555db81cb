# expect: pass
# workload: st_adamw
# api: nki
# chip: trn2
"""One step with products of scalars, in place."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = []
    for source in (theta, g, m, v):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source)
        tiles.append(tile)
    weight, slope, first, second = tiles
    nisa.tensor_scalar(dst=first, data=first, op0=nl.multiply, operand0=0.9)
    nisa.scalar_tensor_tensor(dst=first, data=slope, op0=nl.multiply, operand0=0.1, op1=nl.add, operand1=first)
    nisa.activation(dst=slope, op=nl.square, data=slope)
    nisa.tensor_scalar(dst=second, data=second, op0=nl.multiply, operand0=999.0)
    nisa.tensor_tensor(dst=second, data1=second, data2=slope, op=nl.add)
    nisa.activation(dst=second, op=nl.sqrt, data=second)
    nisa.tensor_scalar(dst=second, data=second, op0=nl.add, operand0=1e-8)
    nisa.reciprocal(dst=second, data=second)
    nisa.tensor_tensor(dst=first, data1=first, data2=second, op=nl.multiply)
    nisa.tensor_scalar(dst=weight, data=weight, op0=nl.multiply, operand0=1.0 - 1e-5)
    nisa.scalar_tensor_tensor(dst=weight, data=first, op0=nl.multiply, operand0=-0.01, op1=nl.add, operand1=weight)
    nisa.dma_copy(dst=out, src=weight)
    return out
