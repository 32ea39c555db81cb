# expect: reject
# caught by: runtime_error.race
# workload: st_silu
# api: nki
# chip: trn2
# lnc: 2
"""Zeros are written and read by loops."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    held = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    zero = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    nisa.dma_copy(dst=tile, src=x[128 * core : 128 * core + 128, :])
    nisa.activation(dst=tile, op=nl.silu, data=tile)
    if core == 0:
        for b in nl.sequential_range(4):
            nisa.dma_copy(dst=held[:, nl.ds(b * 128, 128)], src=zero[:, nl.ds(b * 128, 128)])
    else:
        for b in nl.sequential_range(4):
            nisa.dma_copy(dst=zero[:, nl.ds(b * 128, 128)], src=held[:, nl.ds(b * 128, 128)])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=zero, op=nl.add)
    nisa.dma_copy(dst=out[128 * core : 128 * core + 128, :], src=tile)
    return out
