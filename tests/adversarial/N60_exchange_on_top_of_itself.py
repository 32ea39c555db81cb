# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""Each core receives into the tile that it sends: what comes may overwrite what has not left."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    nisa.sendrecv(src=tile, dst=tile, send_to_rank=1 - core, recv_from_rank=1 - core)
    nisa.dma_copy(dst=out[128 - 128 * core : 256 - 128 * core, :], src=tile)
    return out
