# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    w = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w, src=x[128:256, 0:512])
    acc = nl.ndarray((128, 4, 512), dtype=nl.float32, buffer=nl.sbuf)
    keep = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=keep, src=x[0:128, 0:128])
    flat = keep.reshape((128, 128))
    for i in range(4):
        p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        s = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_matmul(dst=p, stationary=keep, moving=w)
        nisa.tensor_copy(dst=s, src=p)
        for j in range(4):
            nisa.tensor_scalar(dst=acc[0:128, i, nl.ds(128 * j, 128)], data=s[0:128, nl.ds(128 * j, 128)], op0=nl.multiply, operand0=0.5)
        nisa.tensor_scalar(dst=flat, data=flat, op0=nl.multiply, operand0=2.0)
    u = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=u, data1=acc[0:128, 0, 0:512], data2=acc[0:128, 3, 0:512], op=nl.add)
    nisa.dma_copy(dst=out, src=u)
    return out
