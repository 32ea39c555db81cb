# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

N = 2
N += 2

@nki.jit
def kernel(x):
    out = nl.ndarray((512, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    for h in nl.affine_range(N):
        t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[nl.ds(128 * h, 128), 0:128])
        for s in nl.sequential_range(3):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=0.5)
        nisa.dma_copy(dst=out[nl.ds(128 * h, 128), 0:128], src=t)
    return out
