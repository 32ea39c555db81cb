# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    def put(tile):
        nisa.dma_copy(dst=out, src=tile)
    u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=u, value=5.0)
    tiles = []
    for k in range(4):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * k, 128), 0:512])
        tiles.append(tile)
    put(u)
    return out
