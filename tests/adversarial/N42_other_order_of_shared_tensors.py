# expect: reject
# caught by: compile_error.shared_tensors
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""The second core declares its tensors in another order, so that its result is the first core's scratch."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    core = nl.program_id(axis=0)
    names = ("result", "scratch") if core == 0 else ("scratch", "result")
    made = {}
    for name in names:
        made[name] = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm, name=name)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    one = made["result"] if core == 0 else made["scratch"]
    nisa.dma_copy(dst=one[128 * core : 128 * core + 128, :], src=tile)
    return one
