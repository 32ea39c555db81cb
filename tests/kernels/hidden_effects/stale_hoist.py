# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=z, src=x[0:128, 0:512])
    for h in range(2):
        m = 1 * h
    for i in nl.sequential_range(2):
        for h in range(2):
            t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=t, data=z[0:128, nl.ds(256 * m, 256)], op0=nl.multiply, operand0=0.5)
            nisa.dma_copy(dst=out[nl.ds(128 * i, 128), nl.ds(256 * h, 256)], src=t)
    return out
