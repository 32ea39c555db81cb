# shapes:((128, 128),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for p in range(128):
        nisa.dma_copy(dst=out[p:p + 1, :], src=x[p:p + 1, :], name=f"c_{p}")
    return out
