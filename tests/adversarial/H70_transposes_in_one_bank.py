# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Write four transposes beside each other into one PSUM bank."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        turned = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.psum)
        mid = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
        back = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for c in range(4):
            nisa.nc_transpose(dst=turned[:, c], data=tile[:, nl.ds(128 * c, 128)])
        nisa.activation(dst=mid, op=nl.silu, data=turned)
        for c in range(4):
            nisa.nc_transpose(dst=back[:, nl.ds(128 * c, 128)], data=mid[:, c])
        nisa.tensor_copy(dst=done, src=back)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
