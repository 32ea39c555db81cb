# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(3):
        for j in range(2):
            s = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=s, src=x[nl.ds(128 * j, 128), 0:512])
            nisa.tensor_scalar(dst=t, data=s, op0=nl.multiply, operand0=1.0 + i)
            nisa.dma_copy(dst=out[0:128, nl.ds(512 * i + 512 * j, 512)], src=t)
    for i in range(1):
        for j in range(1):
            w = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=w, value=1.0)
    return out
