"""Scores from bfloat16 parts."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(q, k, v):
    out = nl.ndarray((1, 8, 2, 32, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for head in nl.affine_range(8):
        v_tile = nl.ndarray((128, 32, 128), dtype=nl.float32, buffer=nl.sbuf)
        k_hi = nl.ndarray((128, 4096), dtype=nl.bfloat16, buffer=nl.sbuf)
        k_lo = nl.ndarray((128, 4096), dtype=nl.bfloat16, buffer=nl.sbuf)
        for block in nl.affine_range(8):
            for part in nl.affine_range(4):
                k_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                k_turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                nisa.dma_copy(dst=k_tile, src=k[0, block, part, 0:128, head, 0:128])
                nisa.nc_transpose(dst=k_turned, data=k_tile)
                nisa.tensor_copy(
                    dst=k_hi[0:128, nl.ds(512 * block + 128 * part, 128)], src=k_turned, engine=nisa.engine.scalar
                )
                nisa.tensor_tensor(
                    dst=k_lo[0:128, nl.ds(512 * block + 128 * part, 128)],
                    data1=k_turned,
                    data2=k_hi[0:128, nl.ds(512 * block + 128 * part, 128)],
                    op=nl.subtract,
                )
        for step in nl.affine_range(32):
            nisa.dma_copy(dst=v_tile[0:128, step, 0:128], src=v[0, step, 0:128, nl.ds(128 * head, 128)])
        for pair in nl.affine_range(2):
            for row in nl.affine_range(32):
                q_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                q_turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                scores = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
                weight = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
                part_max = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
                negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                out_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=q_tile, src=q[row, 0:128, 2 * head + pair, 0:128])
                nisa.nc_transpose(dst=q_turned, data=q_tile)
                q_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                q_hi = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
                q_lo = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
                nisa.tensor_scalar(dst=q_t, data=q_turned, op0=nl.multiply, operand0=0.08838834764831845)
                nisa.tensor_copy(dst=q_hi, src=q_t, engine=nisa.engine.scalar)
                nisa.tensor_tensor(dst=q_lo, data1=q_t, data2=q_hi, op=nl.subtract)
                for block in nl.affine_range(8):
                    product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                    for part in nl.affine_range(1):
                        nisa.nc_matmul(
                            dst=product[0:128, nl.ds(512 * part, 512)],
                            stationary=q_hi,
                            moving=k_hi[0:128, nl.ds(512 * block + 512 * part, 512)],
                            accumulate=False,
                        )
                        nisa.nc_matmul(
                            dst=product[0:128, nl.ds(512 * part, 512)],
                            stationary=q_hi,
                            moving=k_lo[0:128, nl.ds(512 * block + 512 * part, 512)],
                            accumulate=True,
                        )
                        nisa.nc_matmul(
                            dst=product[0:128, nl.ds(512 * part, 512)],
                            stationary=q_lo,
                            moving=k_hi[0:128, nl.ds(512 * block + 512 * part, 512)],
                            accumulate=True,
                        )
                    nisa.tensor_copy(dst=scores[0:128, nl.ds(512 * block, 512)], src=product, engine=nisa.engine.scalar)
                    nisa.tensor_reduce(dst=part_max[0:128, nl.ds(block, 1)], op=nl.maximum, data=product, axis=1)
                nisa.tensor_reduce(dst=negative, op=nl.maximum, data=part_max, axis=1, negate=True)
                nisa.activation(
                    dst=weight,
                    op=nl.exp,
                    data=scores,
                    bias=negative,
                    reduce_op=nl.add,
                    reduce_res=total,
                    reduce_cmd=nisa.reduce_cmd.reset_reduce,
                )
                nisa.reciprocal(dst=inverse, data=total)
                mixed = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                for group in nl.affine_range(8):
                    turned = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                    weight_t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                    for step in nl.affine_range(4):
                        nisa.nc_transpose(
                            dst=turned[0:128, nl.ds(128 * step, 128)],
                            data=weight[0:128, nl.ds(512 * group + 128 * step, 128)],
                        )
                    nisa.tensor_copy(dst=weight_t, src=turned, engine=nisa.engine.vector)
                    for step in nl.affine_range(4):
                        nisa.nc_matmul(
                            dst=mixed,
                            stationary=weight_t[0:128, nl.ds(128 * step, 128)],
                            moving=v_tile[0:128, 4 * group + step, 0:128],
                            accumulate=4 * group + step > 0,
                        )
                nisa.tensor_scalar(dst=out_tile, data=mixed, op0=nl.multiply, operand0=inverse)
                nisa.dma_copy(dst=out[0, head, pair, row, 0:128, 0:128], src=out_tile)
    return out
