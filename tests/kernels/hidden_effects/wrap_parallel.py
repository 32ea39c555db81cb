# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 1536), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 3, 512), dtype=nl.float32, buffer=nl.sbuf)
    for r in range(3):
        nisa.dma_copy(dst=t[0:128, r, 0:512], src=x[nl.ds(128 * r, 128), 0:512])
    for k in range(2):
        nisa.tensor_scalar(dst=t[0:128, 2 * k, 0:512], data=t[0:128, 2 * k - 1, 0:512], op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=t)
    return out
