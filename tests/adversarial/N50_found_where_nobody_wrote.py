# expect: reject
# caught by: runtime_error.undefined_memory
# workload: st_silu
# api: nki
# chip: trn2
"""A search for 2.0 finds an element that was never written if it is 2.0."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        nisa.activation(dst=done, op=nl.silu, data=tile)
        held = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        flag = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=held[:, 0:7], value=0.0)
        values = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        found = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.memset(dst=values, value=2.0)
        nisa.nc_find_index8(dst=found, data=held, vals=values)
        nisa.tensor_scalar(dst=flag, data=found, op0=nl.equal, operand0=7)
        nisa.tensor_copy(dst=flag[:, 7:8], src=flag[:, 0:1])
        nisa.tensor_scalar(dst=done, data=done, op0=nl.add, operand0=flag[:, 7:8])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
