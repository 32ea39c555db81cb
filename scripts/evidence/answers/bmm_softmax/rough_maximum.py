"""A rough maximum from one bfloat16 product."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    out = nl.ndarray((16, 32, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    for batch in nl.affine_range(16):
        rhs_tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
        rhs_hi = nl.ndarray((128, 4096), dtype=nl.bfloat16, buffer=nl.sbuf)
        rhs_lo = nl.ndarray((128, 4096), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=rhs_tile[0:64, 0:4096], src=rhs[batch, 0:64, 0:4096])
        nisa.dma_copy(dst=rhs_tile[64:128, 0:4096], src=rhs[batch, 0:64, 0:4096])
        nisa.tensor_copy(dst=rhs_hi, src=rhs_tile, engine=nisa.engine.scalar)
        nisa.tensor_tensor(dst=rhs_lo, data1=rhs_tile, data2=rhs_hi, op=nl.subtract)
        for row in nl.affine_range(32):
            lhs_tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
            weight = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            out_tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
            part_max = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
            part_sum = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
            negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=lhs_tile, src=lhs[batch, nl.ds(128 * row, 128), 0:64])
            parts = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
            turned = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.psum)
            lhs_t = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
            nisa.tensor_copy(dst=parts[0:128, 0:64], src=lhs_tile, engine=nisa.engine.gpsimd)
            nisa.tensor_tensor(
                dst=parts[0:128, 64:128],
                data1=lhs_tile,
                data2=parts[0:128, 0:64],
                op=nl.subtract,
                engine=nisa.engine.gpsimd,
            )
            nisa.nc_transpose(dst=turned, data=parts)
            nisa.tensor_copy(dst=lhs_t, src=turned, engine=nisa.engine.scalar)
            for column in nl.affine_range(4):
                rough = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
                for part in nl.affine_range(2):
                    nisa.nc_matmul(
                        dst=rough[0:128, nl.ds(512 * part, 512)],
                        stationary=lhs_t,
                        moving=rhs_hi[0:128, nl.ds(1024 * column + 512 * part, 512)],
                        accumulate=False,
                    )
                nisa.tensor_reduce(dst=part_max[0:128, nl.ds(column, 1)], op=nl.maximum, data=rough, axis=1)
            nisa.tensor_reduce(dst=negative, op=nl.maximum, data=part_max, axis=1, negate=True)
            for column in nl.affine_range(4):
                product = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
                for part in nl.affine_range(2):
                    nisa.nc_matmul(
                        dst=product[0:128, nl.ds(512 * part, 512)],
                        stationary=lhs_t,
                        moving=rhs_hi[0:128, nl.ds(1024 * column + 512 * part, 512)],
                        accumulate=False,
                    )
                    nisa.nc_matmul(
                        dst=product[0:128, nl.ds(512 * part, 512)],
                        stationary=lhs_t,
                        moving=rhs_lo[0:128, nl.ds(1024 * column + 512 * part, 512)],
                        accumulate=True,
                    )
                nisa.activation(
                    dst=weight[0:128, nl.ds(1024 * column, 1024)],
                    op=nl.exp,
                    data=product,
                    bias=negative,
                    reduce_op=nl.add,
                    reduce_cmd=nisa.reduce_cmd.reset_reduce,
                    reduce_res=part_sum[0:128, nl.ds(column, 1)],
                )
            nisa.tensor_reduce(dst=total, op=nl.add, data=part_sum, axis=1)
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
