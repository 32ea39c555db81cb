# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    def put(row):
        nisa.dma_copy(dst=out[nl.ds(row, 128), 0:512], src=t)
    nisa.memset(dst=t, value=1.0)
    put(0)

    nisa.memset(dst=t, value=2.0)
    put(128)
    return out
