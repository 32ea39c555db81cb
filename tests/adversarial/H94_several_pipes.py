# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""Cores that differ exchange four blocks by four pipes."""

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
    for pipe in range(4):
        columns = nl.ds(128 * pipe, 128)
        nisa.sendrecv(
            src=tile[:, columns], dst=back[:, columns], send_to_rank=other, recv_from_rank=other, pipe_id=pipe
        )
    if core == 0:
        nisa.dma_copy(dst=out[128:256, :], src=back)
    else:
        nisa.dma_copy(dst=out[0:128, :], src=back)
    return out
