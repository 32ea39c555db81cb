# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for k in range(4):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * k, 128), 0:512])
        if k == 1:
            continue
        tiles.append(tile)
    nisa.dma_copy(dst=out, src=tiles[1])
    return out
