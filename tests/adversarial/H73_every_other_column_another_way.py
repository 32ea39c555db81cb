# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""divmod of the index; even columns take another way."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in nl.sequential_range(16):
        row, column = divmod(n, 8)
        part = (nl.ds(row * 128, 128), nl.ds(column * 64, 64))
        tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[part])
        if column % 2 == 0:
            nisa.activation(dst=tile, op=nl.silu, data=tile)
        else:
            weight = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=weight, op=nl.sigmoid, data=tile)
            nisa.tensor_tensor(dst=tile, data1=weight, data2=tile, op=nl.multiply)
        nisa.dma_copy(dst=out[part], src=tile)
    return out
