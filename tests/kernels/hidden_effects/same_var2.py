# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    for h in nl.affine_range(2):
        o = 128 * h
        t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=t, value=0.0)
        for h in nl.sequential_range(3):
            u = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=u, src=x[nl.ds(128 * h, 128), 0:128])
            nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(o, 128), 0:128], src=t)
    return out
