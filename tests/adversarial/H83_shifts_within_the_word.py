# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Shifts by tiles and by numbers, of which those that shift too far are not used."""

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
        held = nl.ndarray((128, 512), dtype=nl.uint32, buffer=nl.sbuf)
        by = nl.ndarray((128, 512), dtype=nl.uint32, buffer=nl.sbuf)
        few = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=held, value=4294967295)
        nisa.iota(dst=by, pattern=[[1, 512]], offset=0)
        nisa.tensor_tensor(dst=held, data1=held, data2=by, op=nl.right_shift)
        nisa.tensor_scalar(dst=held, data=held, op0=nl.right_shift, operand0=31)
        nisa.tensor_copy(dst=few, src=held[:, 0:32])
        nisa.tensor_scalar(dst=few[:, 0:1], data=few[:, 0:1], op0=nl.subtract, operand0=1.0)
        nisa.tensor_tensor(dst=done[:, 0:32], data1=done[:, 0:32], data2=few, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
