# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[0:128, 0:512])
    factor = 2.0
    for i in nl.sequential_range(2):
        for k in nl.affine_range(2):
            s = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=s, data=a[0:128, nl.ds(256 * k, 256)], op0=nl.multiply, operand0=factor)
            nisa.dma_copy(dst=out[nl.ds(128 * i, 128), nl.ds(256 * k, 256)], src=s)
        factor = 5.0
    return out
