# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Tiles come from a class that a kernel of a library would have."""

import nki
import nki.isa as nisa
import nki.language as nl


class Piece(nl.NKIObject):
    def __init__(self, number, start, size):
        self.number = number
        self.start = start
        self.size = size


class Pieces(nl.NKIObject):
    def __init__(self, total, step):
        self.total = total
        self.step = step

    def pieces(self):
        found = []
        for number in range((self.total + self.step - 1) // self.step):
            start = number * self.step
            found.append(Piece(number, start, min(self.step, self.total - start)))
        return found


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for piece in Pieces(256, 128).pieces():
        tile = nl.ndarray((nl.tile_size.pmax, 512), dtype=x.dtype, buffer=nl.sbuf, name=f"tile_{piece.number}")
        nisa.dma_copy(dst=tile[0 : piece.size, :], src=x[piece.start : piece.start + piece.size, :])
        nisa.activation(dst=tile[0 : piece.size, :], op=nl.silu, data=tile[0 : piece.size, :])
        nisa.dma_copy(dst=out[piece.start : piece.start + piece.size, :], src=tile[0 : piece.size, :])
    return out
