# expect: truthful
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""Two cores work in turn sixty times: each waits for the other one each time."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[nl.ds(128 * core, 128), :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    held = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=held, value=0.0)
    for turn in range(60):
        if turn % 2 == core:
            for _ in range(10):
                nisa.tensor_scalar(dst=held, data=held, op0=nl.multiply, operand0=0.5)
        theirs = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.sendrecv(src=held, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core)
        held = theirs
    nisa.tensor_tensor(dst=tile, data1=tile, data2=held, op=nl.add)
    nisa.dma_copy(dst=out[nl.ds(128 * core, 128), :], src=tile)
    return out
