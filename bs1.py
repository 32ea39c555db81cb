"""Batched product and softmax, 128 rows at a time, an instruction for each operation on each 512 columns."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    out = nl.ndarray((16, 32, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    for batch in nl.affine_range(16):
        rhs_tile = nl.ndarray((64, 4096), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rhs_tile, src=rhs[batch, 0:64, 0:4096])
        for row in nl.affine_range(32):
            lhs_tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
            turned = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
            lhs_t = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
            logits = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            weight = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            out_tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            part_max = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            part_sum = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=lhs_tile, src=lhs[batch, nl.ds(128 * row, 128), 0:64])
            nisa.nc_transpose(dst=turned, data=lhs_tile)
            nisa.tensor_copy(dst=lhs_t, src=turned)
            for column in nl.affine_range(8):
                product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                nisa.nc_matmul(dst=product, stationary=lhs_t, moving=rhs_tile[0:64, nl.ds(512 * column, 512)])
                nisa.tensor_scalar_reduce(dst=logits[0:128, nl.ds(512 * column, 512)], data=product, op0=nl.multiply, operand0=1.0, reduce_op=nl.maximum, reduce_res=part_max[0:128, nl.ds(column, 1)])
            nisa.tensor_reduce(dst=negative, op=nl.maximum, data=part_max, axis=1, negate=True)
            for column in nl.affine_range(8):
                nisa.activation(
                    dst=weight[0:128, nl.ds(512 * column, 512)],
                    op=nl.exp,
                    data=logits[0:128, nl.ds(512 * column, 512)],
                    bias=negative,
                )
                nisa.tensor_reduce(
                    dst=part_sum[0:128, nl.ds(column, 1)],
                    op=nl.add,
                    data=weight[0:128, nl.ds(512 * column, 512)],
                    axis=1,
                )
            nisa.tensor_reduce(dst=total, op=nl.add, data=part_sum, axis=1)
            nisa.reciprocal(dst=inverse, data=total)
            for column in nl.affine_range(8):
                nisa.tensor_scalar(
                    dst=out_tile[0:128, nl.ds(512 * column, 512)],
                    data=weight[0:128, nl.ds(512 * column, 512)],
                    op0=nl.multiply,
                    operand0=inverse,
                )
            nisa.dma_copy(dst=out[batch, row, 0:128, 0:4096], src=out_tile)
    return out
