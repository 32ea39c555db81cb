# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
"""The scale of each partition is read through a view that starts inside the tile that is written."""

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
        nisa.memset(dst=small.view(nl.bfloat16), value=1.0)
        half = small.view(nl.bfloat16)
        nisa.tensor_tensor(dst=small[:, 0:256], data1=half[:, 256:512], data2=half[:, 0:256], op=nl.multiply)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=small[:, 0:1])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
