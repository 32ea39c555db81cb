# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((512, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[0:128, 0:512])
    f = 2.0
    for i in range(4):
        for k in range(2):
            t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=t, data=a[0:128, nl.ds(256 * k, 256)], op0=nl.multiply, operand0=f)
            nisa.dma_copy(dst=out[nl.ds(128 * i, 128), nl.ds(256 * k, 256)], src=t)
            f = f * 1.5
    return out
