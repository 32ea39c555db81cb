# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    keep = []
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=1.0)
    keep.append(t)
    # again
    nisa.memset(dst=t, value=2.0)
    nisa.dma_copy(dst=out, src=keep[0])
    return out
