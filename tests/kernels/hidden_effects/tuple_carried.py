# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = 0, 1
    for h in range(2):
        t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[nl.ds(128 * a, 128), 0:128])
        for s in nl.sequential_range(3):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=0.5)
        nisa.dma_copy(dst=out[nl.ds(128 * h, 128), 0:128], src=t)
        a, b = b, a
    return out
