# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A long loop asks for a register in each iteration and uses none."""

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
        nisa.activation(dst=done, op=nl.silu, data=tile)
        fine = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(256):
            nisa.register_alloc()
            nisa.tensor_copy(dst=fine[:, nl.ds(2 * j, 2)], src=done[:, nl.ds(2 * j, 2)])
        first = nisa.register_alloc(0)
        nisa.tensor_copy(
            dst=done[:, 0:128], src=fine.ap(pattern=[[512, 128], [1, 128]], scalar_offset=first, indirect_dim=1)
        )
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
