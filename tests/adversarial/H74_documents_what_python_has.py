# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""SiLU, without a use of __builtins__ or of any object's __dict__."""

import nki
import nki.isa as nisa
import nki.language as nl


def weighed(done, tile):
    """Write tile * sigmoid(tile) to done; __class__ and __import__ stand in this text only."""
    nisa.activation(dst=done, op=nl.silu, data=tile)


@nki.jit
def kernel(x):
    """Unlike __getattribute__, this reads x."""
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, :])
        weighed(tile, tile)
        nisa.dma_copy(dst=out[128 * row : 128 * row + 128, :], src=tile)
    return out
