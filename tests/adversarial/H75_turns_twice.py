# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Turns blocks on the tensor engine, and back."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        for block in range(4):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            kept = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            back = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=tile[:, nl.ds(128 * block, 128)])
            nisa.activation(dst=kept, op=nl.silu, data=turned)
            nisa.nc_transpose(dst=back, data=kept)
            nisa.tensor_copy(dst=done[:, nl.ds(128 * block, 128)], src=back)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
