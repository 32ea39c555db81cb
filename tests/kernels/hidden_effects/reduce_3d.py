# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    dims = (128, 4, 128)
    s = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
    for k in range(4):
        nisa.dma_copy(dst=s[0:128, k, 0:128], src=x[nl.ds(128 * k, 128), 0:128])
    a = nl.ndarray(dims, dtype=nl.float32, buffer=nl.sbuf)
    m = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=a, src=s)
    nisa.tensor_reduce(dst=m, op=nl.add, data=a, axis=-1)
    nisa.dma_copy(dst=out, src=m)
    return out
