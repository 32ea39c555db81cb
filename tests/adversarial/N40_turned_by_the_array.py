# expect: reject
# caught by: runtime_error.undefined_memory | incorrect_numerical.tolerance
# workload: st_silu
# api: nki
# chip: trn2
"""Memory that was never written is turned by the tensor engine, and a bit of the result is read."""

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
        wide = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=wide[:, 0:31], value=1.0)
        turned = nl.ndarray((32, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=wide)
        flat = nl.ndarray((32, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=flat, src=turned)
        back = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=back, data=flat)
        held = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=held, src=back[:, 31:32])
        bits = nl.ndarray((128, 1), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=bits, data=held.view(nl.uint32), op0=nl.right_shift, operand0=30, op1=nl.bitwise_and, operand1=1
        )
        nisa.tensor_copy(dst=factor, src=bits)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
