# shapes:((512, 512),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[0:128, 0:512])
    for i in nl.sequential_range(2):
        for k in nl.affine_range(2):
            s = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=s, data=a[0:128, nl.ds(256 * k, 256)], op0=nl.multiply, operand0=3.0)
            nisa.dma_copy(dst=out[nl.ds(128 * i, 128), nl.ds(256 * k, 256)], src=s)
        other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=other, src=x[128:256, 0:512])
        scratch = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(dst=scratch, op=nl.copy, data=other, reduce_op=nl.add, reduce_res=a[0:128, 0:1])
    return out
