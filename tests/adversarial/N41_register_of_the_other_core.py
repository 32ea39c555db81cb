# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""The second core takes its place from a register that only the first core has written."""

import nki
import nki.isa as nisa
import nki.language as nl

HELD = []


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    if core == 0:
        HELD.append(nisa.register_alloc(128))
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    if core == 1:
        nisa.dma_copy(dst=tile, src=x.ap([[512, 128], [1, 512]], scalar_offset=HELD[-1], indirect_dim=0))
    else:
        nisa.dma_copy(dst=tile, src=x[0:128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.dma_copy(dst=out[128 * core : 128 * core + 128, :], src=tile)
    return out
