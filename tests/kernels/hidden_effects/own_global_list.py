# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

STATE = [1.0]

def scaled(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=STATE[0])

def bump(by):
    STATE[0] = STATE[0] + by

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    STATE[0] = 1.0
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128, 0:512])
    acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=acc, value=0.0)
    for i in nl.sequential_range(4):
        bump(1)
        u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        scaled(u, t)
        nisa.tensor_tensor(dst=acc, data1=acc, data2=u, op=nl.add)
    nisa.dma_copy(dst=out, src=acc)
    return out
