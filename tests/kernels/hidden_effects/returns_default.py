# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

SIZE = 1.0

def factor(by, scale=SIZE):
    return by * scale

SIZE = 5.0

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128, 0:512])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=factor(2.0))
    nisa.dma_copy(dst=out, src=t)
    return out
