# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

def turned(both):
    both.reverse()

def stored(both, out):
    first = both[0]
    turned(both)
    nisa.dma_copy(dst=out, src=first)

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=1.0)
    nisa.memset(dst=u, value=2.0)
    stored([t, u], out)
    return out
