# shapes:((256, 128),)
import nki
import nki.isa as nisa
import nki.language as nl

FIRST = 0
def _bump():
    global FIRST
    FIRST = FIRST + 64
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    for r0 in range(FIRST, 256, 64):
        _bump()
        t = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        u = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[r0:r0 + 64, :])
        nisa.tensor_scalar(dst=u, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[r0:r0 + 64, :], src=u)
    return out
