# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""An engine writes two windows that meet in 256 columns; the second one stays there."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=done, op=nl.silu, data=tile)
        pair = nl.ndarray((128, 768), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=pair.ap([[768, 128], [256, 2], [1, 512]]), src=done.ap([[512, 128], [0, 2], [1, 512]]))
        nisa.tensor_copy(dst=done, src=pair[:, 256:768])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
