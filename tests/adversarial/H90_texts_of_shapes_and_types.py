# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Writes texts of shapes, dtypes and positions, and names tiles by them."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = x.shape
    assert rows % 128 == 0, f"rows of {x} do not fill the partitions"
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(rows // 128):
        tile = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf, name=f"tile_{row}_{x.shape}_{str(x.dtype)}")
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        print(f"row {row} of {rows}, {tile.shape} {tile.dtype}")
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=tile)
    return out
