# shapes:((256, 128),)
import nki
import nki.isa as nisa
import nki.language as nl

def _f(x, out, r0):
    for i in range(2):
        w = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=w, src=x[r0:r0 + 64, :])
        a = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[64 * i:64 * i + 64, :])
        b = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=b, data1=a, data2=w, op=nl.add)
        nisa.dma_copy(dst=out[64 * i:64 * i + 64, :], src=b)
        r0 += 32

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    _f(x, out, 0)
    _f(x, out, 128)
    return out
