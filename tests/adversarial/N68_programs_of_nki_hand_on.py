# expect: reject
# caught by: compile_error.affine_order
# workload: st_silu
# api: nki
# chip: trn2
"""A launch of three programs of nki that ask which one they are: each stores what the one before it left."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def rows(x, scratch, out):
    core = nl.program_id(axis=0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    if core == 2:
        nisa.dma_copy(dst=tile, src=scratch[128:256, :])
        nisa.dma_copy(dst=out[128:256, :], src=tile)
    else:
        nisa.dma_copy(dst=tile, src=x[core * 128 : core * 128 + 128, :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=scratch[core * 128 : core * 128 + 128, :], src=tile)
    if core == 1:
        nisa.dma_copy(dst=tile, src=scratch[0:128, :])
        nisa.dma_copy(dst=out[0:128, :], src=tile)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    rows[3](x, scratch, out)
    return out
