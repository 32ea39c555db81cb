# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

def left(tile):
    width = 256
    return tile[0:128, 0:width]

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 256), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=1.0)
    half = left(t)

    nisa.memset(dst=t, value=2.0)
    nisa.dma_copy(dst=out, src=half)
    return out
