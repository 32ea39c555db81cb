# expect: pass
# workload: st_silu
# api: nki
"""The current API: tiles in lists, a helper with destinations, slices with steps."""

import nki
import nki.isa as nisa
import nki.language as nl


def weighed(done, tile):
    """Write tile * sigmoid(tile) to done."""
    weight = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.activation(dst=weight, op=nl.sigmoid, data=tile)
    nisa.tensor_tensor(dst=done, data1=tile, data2=weight, op=nl.multiply)


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for _ in range(2):
        tiles.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf))
    for row, tile in enumerate(tiles):
        nisa.dma_copy(dst=tile, src=x[row * 128 : (row + 1) * 128, :])
    for row, tile in enumerate(tiles):
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for odd in range(2):
            weighed(done[:, odd::2], tile[:, odd::2])
        nisa.dma_copy(dst=out[row * 128 : (row + 1) * 128, :], src=done)
    return out
