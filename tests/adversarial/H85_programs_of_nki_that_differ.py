# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""A launch of nki whose programs ask which one they are, and have columns of their own."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def columns(x, out):
    program = nl.program_id(axis=0)
    first = program * 128 if program < 3 else 384
    for row in range(2):
        tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row * 128 : row * 128 + 128, first : first + 128])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[row * 128 : row * 128 + 128, first : first + 128], src=tile)


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    columns[4](x, out)
    return out
