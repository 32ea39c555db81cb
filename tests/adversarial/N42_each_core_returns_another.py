# expect: reject
# caught by: compile_error.kernel_result
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""The first core returns a tensor that nobody writes, the second one the result."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    core = nl.program_id(axis=0)
    first = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    second = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.dma_copy(dst=second[128 * core : 128 * core + 128, :], src=tile)
    return first if core == 0 else second
