# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    d = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[0:128, 0:128])
    nisa.dma_copy(dst=b, src=x[128:256, 0:512])
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=a, moving=b)
    v = 2.0
    nisa.tensor_copy(dst=u, src=p)
    v = 5.0
    nisa.tensor_scalar(dst=d, data=u, op0=nl.multiply, operand0=v)
    v = 7.0
    nisa.tensor_scalar(dst=u, data=d, op0=nl.add, operand0=v)
    nisa.dma_copy(dst=out, src=u)
    return out
