# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    s = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=s, src=x[0:128, 0:512])
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=a, src=s)
    nisa.tensor_reduce(dst=s[0:128, 0:1], op=nl.add, data=a, axis=1)
    nisa.tensor_tensor(dst=s, data1=s, data2=a, op=nl.add)
    nisa.dma_copy(dst=out, src=s)
    return out
