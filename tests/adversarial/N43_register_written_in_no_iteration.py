# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A loop that runs no iteration would give a register its value, which is stored and added."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    zero, trips = nisa.register_alloc(), nisa.register_alloc(0)
    for _ in nl.dynamic_range(0, trips, 1):
        nisa.register_move(dst=zero, src=0)
    held = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    bias = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.register_store(dst=held, src=zero)
    nisa.memset(dst=bias, value=0.0)
    nisa.tensor_copy(dst=bias[0:1, :], src=held)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=tile, op=nl.silu, data=tile, bias=bias)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
