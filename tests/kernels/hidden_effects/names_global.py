# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

SCALE = nl.float32

def made():
    return nl.ndarray((128, 512), dtype=SCALE, buffer=nl.sbuf)

@nki.jit
def kernel(x):
    global SCALE
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    SCALE = nl.bfloat16
    u = nl.ndarray((128, 512), dtype=SCALE, buffer=nl.sbuf)
    t = made()
    nisa.dma_copy(dst=t, src=x[0:128, 0:512])
    nisa.tensor_copy(dst=u, src=t)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=1000.0)
    nisa.dma_copy(dst=out, src=t)
    return out
