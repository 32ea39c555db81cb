# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""Each core receives the half that it lacks beside its own, in one tile."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    both = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    mine, theirs = both[:, nl.ds(256 * core, 256)], both[:, nl.ds(256 - 256 * core, 256)]
    for row in range(2):
        nisa.dma_copy(dst=mine, src=x[nl.ds(128 * row, 128), nl.ds(256 * core, 256)])
        nisa.activation(dst=mine, op=nl.silu, data=mine)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core)
        if row == core:
            nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=both)
    return out
