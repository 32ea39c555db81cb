"""SiLU from its formula: exp, add, reciprocal and multiply in chunks of 512 columns."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 32, 7168), dtype=nl.float32, buffer=nl.shared_hbm)
    for block in nl.affine_range(32):
        for tile in nl.affine_range(7):
            x_tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[0:128, block, nl.ds(1024 * tile, 1024)])
            for chunk in nl.affine_range(2):
                decay = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                denominator = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                sigmoid = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                nisa.activation(dst=decay, op=nl.exp, data=x_tile[0:128, nl.ds(512 * chunk, 512)], scale=-1.0)
                nisa.tensor_scalar(dst=denominator, data=decay, op0=nl.add, operand0=1.0)
                nisa.reciprocal(dst=sigmoid, data=denominator)
                nisa.tensor_tensor(
                    dst=y_tile[0:128, nl.ds(512 * chunk, 512)],
                    data1=x_tile[0:128, nl.ds(512 * chunk, 512)],
                    data2=sigmoid,
                    op=nl.multiply,
                )
            nisa.dma_copy(dst=out[0:128, block, nl.ds(1024 * tile, 1024)], src=y_tile)
    return out
