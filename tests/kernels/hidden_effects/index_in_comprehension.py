# shapes:((256, 128),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for r0 in range(0, 256, 64):
        t = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[r0:r0 + 64, :])
        nisa.dma_copy(dst=out[r0:r0 + 64, :], src=t)
    offs = [r0 + k for k in range(2)]
    nisa.dma_copy(dst=out[offs[1]:offs[1] + 32, :], src=x[0:32, :])
    return out
