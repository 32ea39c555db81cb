# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[0:128, 0:512])
    k = 0
    for i in nl.sequential_range(2):
        s = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=s, data=a[0:128, nl.ds(256 * k, 256)], op0=nl.multiply, operand0=3.0)
        nisa.dma_copy(dst=out[nl.ds(128 * i, 128), 0:256], src=s)
        nisa.dma_copy(dst=out[nl.ds(128 * i, 128), 256:512], src=s)
        for k in range(2):
            pass
    return out
