# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

def add_rows(sums, src):
    junk = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=junk, op=nl.copy, data=src, reduce_op=nl.add, reduce_res=sums, reduce_cmd=nisa.reduce_cmd.reduce)

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128, 0:512])
    acc = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=acc, value=0.0)
    junk2 = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    first = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=junk2, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=first, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    for i in nl.sequential_range(4):
        u = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        add_rows(u, t)
        nisa.tensor_tensor(dst=acc, data1=acc, data2=u, op=nl.add)
    nisa.dma_copy(dst=out, src=acc)
    return out
