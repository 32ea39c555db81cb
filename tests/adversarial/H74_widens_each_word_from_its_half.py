# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Each word is written from its own upper half, and other words from halves that lie before them."""

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
        small = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        half = small.view(nl.bfloat16)
        nisa.memset(dst=half, value=1.0)
        nisa.tensor_copy(dst=small, src=half[:, 1:1024:2])
        nisa.tensor_copy(dst=small[:, 256:512], src=small.view(nl.bfloat16)[:, 1:512:2])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=small, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
