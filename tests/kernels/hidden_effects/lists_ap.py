# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

def doubled(tile):
    nisa.tensor_scalar(dst=tile.ap([[512, 128], [1, 512]]), data=tile.ap([[512, 128], [1, 512]]), op0=nl.multiply, operand0=2.0)

@nki.jit
def kernel(x):
    out = nl.ndarray((512, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for k in range(4):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * k, 128), 0:512])
        tiles.append(tile)
    for k in range(4):
        doubled(tiles[k])
    for k in range(4):
        nisa.dma_copy(dst=out[nl.ds(128 * k, 128), 0:512], src=tiles[k])
    return out
