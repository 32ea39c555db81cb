"""Weights and values from bfloat16 parts."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(q, k, v):
    out = nl.ndarray((1, 8, 2, 32, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for head in nl.affine_range(8):
        v_tile = nl.ndarray((128, 32, 128), dtype=nl.float32, buffer=nl.sbuf)
        k_t = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
        for block in nl.affine_range(8):
            for part in nl.affine_range(4):
                k_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                k_turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                nisa.dma_copy(dst=k_tile, src=k[0, block, part, 0:128, head, 0:128])
                nisa.nc_transpose(dst=k_turned, data=k_tile)
                nisa.tensor_copy(dst=k_t[0:128, nl.ds(512 * block + 128 * part, 128)], src=k_turned)
        for step in nl.affine_range(32):
            nisa.dma_copy(dst=v_tile[0:128, step, 0:128], src=v[0, step, 0:128, nl.ds(128 * head, 128)])
        v_hi = nl.ndarray((128, 32, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
        v_both = nl.ndarray((128, 32, 256), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=v_hi, src=v_tile, engine=nisa.engine.scalar)
        nisa.tensor_copy(dst=v_both[0:128, 0:32, 0:128], src=v_hi, engine=nisa.engine.gpsimd)
        nisa.tensor_tensor(dst=v_both[0:128, 0:32, 128:256], data1=v_tile, data2=v_hi, op=nl.subtract)
        for pair in nl.affine_range(2):
            for row in nl.affine_range(32):
                q_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                q_turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                scores = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
                weight = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
                part_max = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
                negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                out_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=q_tile, src=q[row, 0:128, 2 * head + pair, 0:128])
                nisa.nc_transpose(dst=q_turned, data=q_tile)
                q_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_scalar(dst=q_t, data=q_turned, op0=nl.multiply, operand0=0.08838834764831845)
                for block in nl.affine_range(4):
                    product = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum)
                    for part in nl.affine_range(2):
                        nisa.nc_matmul(
                            dst=product[0:128, nl.ds(512 * part, 512)],
                            stationary=q_t,
                            moving=k_t[0:128, nl.ds(1024 * block + 512 * part, 512)],
                            accumulate=False,
                        )
                    nisa.tensor_copy(
                        dst=scores[0:128, nl.ds(1024 * block, 1024)], src=product, engine=nisa.engine.scalar
                    )
                    nisa.tensor_reduce(dst=part_max[0:128, nl.ds(block, 1)], op=nl.maximum, data=product, axis=1)
                nisa.tensor_reduce(dst=negative, op=nl.maximum, data=part_max, axis=1, negate=True)
                w_hi = nl.ndarray((128, 4096), dtype=nl.bfloat16, buffer=nl.sbuf)
                w_lo = nl.ndarray((128, 4096), dtype=nl.bfloat16, buffer=nl.sbuf)
                part_sum = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
                sums = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
                for block in nl.affine_range(4):
                    nisa.activation(
                        dst=weight[0:128, nl.ds(1024 * block, 1024)],
                        op=nl.exp,
                        data=scores[0:128, nl.ds(1024 * block, 1024)],
                        bias=negative,
                        reduce_op=nl.add,
                        reduce_cmd=nisa.reduce_cmd.reset_reduce,
                        reduce_res=part_sum[0:128, nl.ds(block, 1)],
                    )
                    nisa.tensor_copy(
                        dst=w_hi[0:128, nl.ds(1024 * block, 1024)],
                        src=weight[0:128, nl.ds(1024 * block, 1024)],
                        engine=nisa.engine.gpsimd,
                    )
                    nisa.tensor_tensor(
                        dst=w_lo[0:128, nl.ds(1024 * block, 1024)],
                        data1=weight[0:128, nl.ds(1024 * block, 1024)],
                        data2=w_hi[0:128, nl.ds(1024 * block, 1024)],
                        op=nl.subtract,
                    )
                nisa.tensor_reduce(dst=total, op=nl.add, data=part_sum, axis=1)
                nisa.reciprocal(dst=inverse, data=total)
                for group in nl.affine_range(4):
                    hi_turned = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.psum)
                    lo_turned = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.psum)
                    hi_t = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
                    lo_t = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
                    for step in nl.affine_range(8):
                        nisa.nc_transpose(
                            dst=hi_turned[0:128, nl.ds(128 * step, 128)],
                            data=w_hi[0:128, nl.ds(1024 * group + 128 * step, 128)],
                        )
                        nisa.nc_transpose(
                            dst=lo_turned[0:128, nl.ds(128 * step, 128)],
                            data=w_lo[0:128, nl.ds(1024 * group + 128 * step, 128)],
                        )
                    nisa.tensor_copy(dst=hi_t, src=hi_turned, engine=nisa.engine.vector)
                    nisa.tensor_copy(dst=lo_t, src=lo_turned, engine=nisa.engine.scalar)
                    for step in nl.affine_range(8):
                        nisa.nc_matmul(
                            dst=sums,
                            stationary=hi_t[0:128, nl.ds(128 * step, 128)],
                            moving=v_both[0:128, 8 * group + step, 0:256],
                            accumulate=8 * group + step > 0,
                        )
                        nisa.nc_matmul(
                            dst=sums[0:128, 0:128],
                            stationary=lo_t[0:128, nl.ds(128 * step, 128)],
                            moving=v_hi[0:128, 8 * group + step, 0:128],
                            accumulate=True,
                        )
                mixed = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                low = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_copy(dst=low, src=sums[0:128, 128:256], engine=nisa.engine.scalar)
                nisa.tensor_tensor(dst=mixed, data1=sums[0:128, 0:128], data2=low, op=nl.add)
                nisa.tensor_scalar(dst=out_tile, data=mixed, op0=nl.multiply, operand0=inverse)
                nisa.dma_copy(dst=out[0, head, pair, row, 0:128, 0:128], src=out_tile)
    return out
