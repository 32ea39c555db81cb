# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    s = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=s, src=x[0:128, 0:512])
    u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    v = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=t, src=s)
    nisa.tensor_scalar(dst=u, data=t, op0=nl.multiply, operand0=2.0)
    # lane 31 keeps its values
    nisa.nc_stream_shuffle(dst=t, src=s, shuffle_mask=[0] * 31 + [255])
    nisa.tensor_tensor(dst=v, data1=u, data2=t, op=nl.add)
    nisa.dma_copy(dst=out, src=v)
    return out
