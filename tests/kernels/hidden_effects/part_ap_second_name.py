# shapes:((128, 128),)
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((64, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    part = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.hbm)[:, 0:4]
    nisa.dma_copy(dst=part, src=x[:, 0:4])
    for t in (part,):
        nisa.dma_copy(dst=out, src=t.ap(pattern=[[8, 64], [1, 4]]))
    return out
