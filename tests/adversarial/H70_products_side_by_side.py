# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Write four products beside each other into one PSUM tensor of four banks, each product inside a bank."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, 4, 512), dtype=nl.float32, buffer=nl.psum)
    zero = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        for k in range(4):
            for c in range(4):
                nisa.nc_matmul(
                    dst=sums[:, k, nl.ds(128 * c, 128)], stationary=zero, moving=tile[:, nl.ds(128 * c, 128)]
                )
            nisa.tensor_tensor(dst=done, data1=done, data2=sums[:, k], op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
