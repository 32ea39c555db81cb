# expect: pass
# workload: st_rmsnorm
# api: nki
# chip: trn2
"""The gain's row is spread over all partitions of its own tile: by shuffles that read the tile's first partition."""

import nki
import nki.isa as nisa
import nki.language as nl


def spread(tile):
    for group in range(tile.shape[0] // 32):
        nisa.nc_stream_shuffle(src=tile[0:1, :], dst=tile[32 * group : 32 * group + 32, :], shuffle_mask=[0] * 32)


@nki.jit
def kernel(x, g):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    gain = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=gain[0:1, :], src=g.reshape((1, columns)))
    spread(gain)
    for first in range(0, rows, 128):
        tile = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        square = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        mean = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first : first + 128, :])
        nisa.activation_reduce(dst=square, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=mean)
        nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1 / columns, op1=nl.add, operand1=1e-5)
        nisa.activation(dst=mean, op=nl.rsqrt, data=mean)
        nisa.scalar_tensor_tensor(dst=tile, data=tile, op0=nl.multiply, operand0=mean, op1=nl.multiply, operand1=gain)
        nisa.dma_copy(dst=out[first : first + 128, :], src=tile)
    return out
