"""Divide on the gpsimd engine, in one instruction."""

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
            weight = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            out_tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            part_max = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=lhs_tile, src=lhs[batch, nl.ds(128 * row, 128), 0:64])
            turned = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
            lhs_t = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_transpose(dst=turned, data=lhs_tile)
            nisa.tensor_copy(dst=lhs_t, src=turned, engine=nisa.engine.scalar)
            logits = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            for column in nl.affine_range(8):
                product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                for part in nl.affine_range(1):
                    nisa.nc_matmul(
                        dst=product[0:128, nl.ds(512 * part, 512)],
                        stationary=lhs_t,
                        moving=rhs_tile[0:64, nl.ds(512 * column + 512 * part, 512)],
                    )
                nisa.tensor_copy(dst=logits[0:128, nl.ds(512 * column, 512)], src=product, engine=nisa.engine.scalar)
                nisa.tensor_reduce(dst=part_max[0:128, nl.ds(column, 1)], op=nl.maximum, data=product, axis=1)
            nisa.tensor_reduce(dst=negative, op=nl.maximum, data=part_max, axis=1, negate=True)
            nisa.activation(
                dst=weight,
                op=nl.exp,
                data=logits,
                bias=negative,
                reduce_op=nl.add,
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
                reduce_res=total,
            )
            nisa.reciprocal(dst=inverse, data=total)
            nisa.tensor_scalar(
                dst=out_tile[0:128, 0:4096],
                data=weight[0:128, 0:4096],
                op0=nl.multiply,
                operand0=inverse,
                engine=nisa.engine.gpsimd,
            )
            nisa.dma_copy(dst=out[batch, row, 0:128, 0:4096], src=out_tile)
    return out
