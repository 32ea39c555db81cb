# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""Half of the partitions of a sum were never written; a bit of theirs is read."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        factor = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=tile)
        sums = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=sums[0:64, :], stationary=tile[:, 0:64], moving=tile[:, 0:64])
        some = nl.ndarray((128, 9), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=some, src=sums[:, 32:41])
        held = some[:, 8:9]
        bits = nl.ndarray((128, 1), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=bits, data=held.view(nl.uint32), op0=nl.right_shift, operand0=30, op1=nl.bitwise_and, operand1=1
        )
        nisa.tensor_copy(dst=factor, src=bits)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
