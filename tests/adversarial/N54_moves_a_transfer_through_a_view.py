# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
"""A transfer reads halves of a tile through a view, from where the same transfer writes words of the tile."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        small = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        half = small.view(nl.bfloat16)
        nisa.memset(dst=half, value=1.0)
        nisa.dma_copy(dst=small[:, 128:640], src=half[:, 0:512])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=small[:, 128:640], op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
