# expect: reject
# caught by: runtime_error.overlap
# workload: st_silu
# api: nki
# chip: trn2
"""The result of a search is written over the values that the search looks for."""

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
        data = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        values = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        left = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nothing = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=data, src=done[:, 0:8])
        nisa.max8(dst=values, src=done[:, 0:8])
        nisa.nc_match_replace8(dst=values, data=data, vals=values, imm=5.0)
        nisa.tensor_copy(dst=left, src=values)
        nisa.tensor_scalar(dst=nothing, data=left[:, 0:1], op0=nl.multiply, operand0=0.0)
        nisa.tensor_scalar(dst=done, data=done, op0=nl.add, operand0=nothing)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
