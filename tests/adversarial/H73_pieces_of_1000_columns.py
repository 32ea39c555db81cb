# expect: pass
# workload: st_rope
# api: nki
# chip: trn2
"""Pieces of 1000 columns with a tail, loaded by a table of sources."""

import nki
import nki.isa as nisa
import nki.language as nl


def rotated(dst_upper, dst_lower, upper, lower, c, s, width):
    one = nl.ndarray((64, width), dtype=nl.float32, buffer=nl.sbuf)
    two = nl.ndarray((64, width), dtype=nl.float32, buffer=nl.sbuf)
    for dst, first, second, op in ((dst_upper, c, s, nl.subtract), (dst_lower, s, c, nl.add)):
        nisa.tensor_tensor(dst=one, data1=upper, data2=first, op=nl.multiply)
        nisa.tensor_tensor(dst=two, data1=lower, data2=second, op=nl.multiply)
        nisa.tensor_tensor(dst=dst, data1=one, data2=two, op=op)


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray((128, 32768), dtype=nl.float32, buffer=nl.shared_hbm)
    step, done = 1000, 0
    pieces = []
    for at in range(0, 32768, step):
        width = min(step, 32768 - at)
        loaded = []
        for source, rows in ((x, 0), (x, 64), (cos, 0), (sin, 0)):
            tile = nl.ndarray((64, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source[rows : rows + 64, at : at + width])
            loaded.append(tile)
        results = [nl.ndarray((64, width), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2)]
        rotated(*results, *loaded, width)
        pieces.append((at, width))
        for half, result in enumerate(results):
            nisa.dma_copy(dst=out[64 * half : 64 * half + 64, at : at + width], src=result)
        done += width
    assert done == sum(width for _, width in pieces) == 32768
    return out
