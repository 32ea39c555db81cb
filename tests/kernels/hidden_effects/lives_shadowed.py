# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=u, value=5.0)
    nisa.memset(dst=t, value=1.0)

    nisa.memset(dst=t, value=2.0)
    def put(t):
        nisa.dma_copy(dst=out, src=t)
    put(u)
    return out
