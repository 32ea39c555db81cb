# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Copies the four bytes of each float by themselves."""

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
        moved = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for byte in range(4):
            nisa.tensor_copy(
                dst=moved.view(nl.uint8).ap(pattern=[[2048, 128], [4, 512]], offset=byte),
                src=tile.view(nl.uint8).ap(pattern=[[2048, 128], [4, 512]], offset=byte),
            )
        nisa.activation(dst=done, op=nl.silu, data=moved)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
