# shapes:((256, 128),)
import nki
import nki.isa as nisa
import nki.language as nl

def _f(x, out, r0, d):
    for i in range(2):
        q = r0 * 2
        z = q + 1
        a = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        c = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[z:z + 64, :])
        nisa.tensor_scalar(dst=b, data=a, op0=nl.multiply, operand0=2.0)
        nisa.tensor_scalar(dst=c, data=b, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out[64 * i:64 * i + 64, :], src=c)
        r0 = r0 + d

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    _f(x, out, 0, 64)
    _f(x, out, 32, 30)
    return out
