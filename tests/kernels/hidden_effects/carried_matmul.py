# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    f = 1.0
    for m in range(2):
        for n in range(2):
            p = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
            for k in range(4):
                a = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                b = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=a, src=x[nl.ds(128 * k, 128), nl.ds(128 * m, 128)])
                nisa.dma_copy(dst=b, src=x[nl.ds(128 * k, 128), nl.ds(256 * n, 256)])
                nisa.nc_matmul(dst=p, stationary=a, moving=b)
            t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=t, data=p, op0=nl.multiply, operand0=f)
            nisa.dma_copy(dst=out[nl.ds(128 * m, 128), nl.ds(256 * n, 256)], src=t)
            f = f + 1.0
    return out
