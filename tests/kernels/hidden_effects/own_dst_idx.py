# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

def replaced(left, idx, src, vals):
    nisa.nc_match_replace8(dst=left, data=src, vals=vals, imm=0.0, dst_idx=idx)

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=acc, value=0.0)
    idx = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(dst=idx, value=0)
    for i in nl.sequential_range(4):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        left = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        v = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        y = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[nl.ds(128 * i, 128), 0:512])
        nisa.max8(dst=v, src=t)
        replaced(left, idx, t, v)
        nisa.tensor_scalar(dst=y, data=idx, op0=nl.multiply, operand0=2.0)
        nisa.tensor_tensor(dst=acc, data1=acc, data2=y, op=nl.add)
    nisa.dma_copy(dst=out, src=acc)
    return out
