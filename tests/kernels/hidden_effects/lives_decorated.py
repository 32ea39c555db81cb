# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

def same(f):
    return f

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=1.0)
    nisa.tensor_copy(dst=u, src=t)
    @same

    def inner():
        pass
    nisa.memset(dst=t, value=2.0)
    nisa.tensor_tensor(dst=u, data1=u, data2=t, op=nl.add)
    nisa.dma_copy(dst=out, src=u)
    return out
