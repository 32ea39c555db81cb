# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((512, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    for k in range(4):
        z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=z, value=0.0)
        nisa.dma_copy(dst=out[nl.ds(128 * k, 128), 0:512], src=z)
    t = nl.ndarray((128, 4, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=3.0)
    for i in range(4):
        nisa.tensor_scalar(dst=t[0:128, i, 0:512], data=t[0:128, i, 0:512], op0=nl.multiply, operand0=i + 1.0)
    for i in range(4):
        i = 3 - i
        u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=u, data=t[0:128, i, 0:512], op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[nl.ds(128 * i, 128), 0:512], src=u)
    return out
