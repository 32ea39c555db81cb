# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    for k in range(4):
        nisa.memset(dst=acc[0:128, nl.ds(128 * k, 128)], value=0.0)
    k = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=k, value=1.0)
    for i in nl.sequential_range(4):
        u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=k, src=x[nl.ds(128 * i, 128), 0:512])
        nisa.tensor_scalar(dst=u, data=k, op0=nl.multiply, operand0=2.0)
        nisa.tensor_tensor(dst=acc, data1=acc, data2=u, op=nl.add)
    nisa.dma_copy(dst=out, src=acc)
    return out
