# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

def twice(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=2.0)

def doubled_in_place(dst, src):
    nisa.tensor_tensor(dst=src, data1=src, data2=src, op=nl.add)
    nisa.tensor_copy(dst=dst, src=src)

twice = doubled_in_place

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128, 0:512])
    acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=acc, value=0.0)
    for i in nl.sequential_range(4):
        u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        twice(u, t)
        nisa.tensor_tensor(dst=acc, data1=acc, data2=u, op=nl.add)
    nisa.dma_copy(dst=out, src=acc)
    return out
