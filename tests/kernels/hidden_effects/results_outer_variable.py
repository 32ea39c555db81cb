# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[0:128, 0:512])
    for k in nl.affine_range(2):
        for i in nl.affine_range(2):
            t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[nl.ds(128 * k, 128), nl.ds(128 * i, 128)])
            for k in nl.affine_range(2):
                s = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.tensor_scalar(dst=s, data=a[0:128, nl.ds(128 * k, 128)], op0=nl.multiply, operand0=3.0)
                nisa.tensor_tensor(dst=t, data1=t, data2=s, op=nl.add)
            nisa.dma_copy(dst=out[nl.ds(128 * k, 128), nl.ds(128 * i, 128)], src=t)
            nisa.dma_copy(dst=out[nl.ds(128 * (1 - k), 128), nl.ds(256 + 128 * i, 128)], src=t)
    nisa.dma_copy(dst=out[0:128, 0:512], src=a)
    return out
