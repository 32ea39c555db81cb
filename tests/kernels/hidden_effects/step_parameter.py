# shapes:((256, 128),)
import nki
import nki.isa as nisa
import nki.language as nl

STEP = 128
@nki.jit
def kernel(x, STEP=-128):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=acc, value=0.0)
    for r0 in range(128, -128, STEP):
        t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[r0:r0 + 128, :])
        nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.add)
        nisa.dma_copy(dst=out[r0:r0 + 128, :], src=acc)
    return out
