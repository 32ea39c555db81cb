# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=z, src=x[0:128, 0:512])
    for k in range(1):
        nisa.dma_copy(dst=out[0:128, nl.ds(256 * k, 256)], src=z[0:128, 0:256])
    for i in nl.sequential_range(2):
        s = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=s, data=z[0:128, nl.ds(256 * k, 256)], op0=nl.multiply, operand0=2.0)
        for k in range(2):
            nisa.dma_copy(dst=out[nl.ds(128 * i, 128), nl.ds(256 * k, 256)], src=s)
    return out
