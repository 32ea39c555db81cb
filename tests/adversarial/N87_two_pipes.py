# expect: reject
# caught by: runtime_error.exchange_cores
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""Each core names another pipe, so neither waits for the other one."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    held = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    other = 1 - core
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    back = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.sendrecv(src=tile, dst=back, send_to_rank=other, recv_from_rank=other, pipe_id=core)
    nisa.dma_copy(dst=out[128 * other : 128 * other + 128, :], src=back)
    return out
