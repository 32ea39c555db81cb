# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
    b = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
    c = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
    d = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=a, pattern=[[1, 512]], offset=16777217, channel_multiplier=512)
    nisa.tensor_copy(dst=b, src=a)
    nisa.tensor_tensor(dst=c, data1=a, data2=b, op=nl.add)
    nisa.tensor_scalar(dst=d, data=c, op0=nl.add, operand0=1)
    nisa.dma_copy(dst=out, src=d)
    return out
