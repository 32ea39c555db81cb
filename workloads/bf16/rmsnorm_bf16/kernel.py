"""RMS normalization of 128 rows at a time, float32 inside, an instruction for each operation."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, g, eps):
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    gain = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
    # A stride of 0 reads the one row of gains into all 128 partitions.
    nisa.dma_copy(dst=gain, src=g.ap(pattern=[[0, 128], [1, width]], offset=0))
    for row in nl.affine_range(rows // 128):
        x_tile = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
        square = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        mean = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        out_tile = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[nl.ds(128 * row, 128), 0:width])
        nisa.tensor_tensor(dst=square, data1=x_tile, data2=x_tile, op=nl.multiply)
        nisa.tensor_reduce(dst=total, op=nl.add, data=square, axis=1)
        nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / width, op1=nl.add, operand1=eps)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=mean)
        for part in nl.affine_range(width // 1024):
            scaled = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=scaled, data=x_tile[0:128, nl.ds(1024 * part, 1024)], op0=nl.multiply, operand0=inverse
            )
            nisa.tensor_tensor(
                dst=out_tile[0:128, nl.ds(1024 * part, 1024)],
                data1=scaled,
                data2=gain[0:128, nl.ds(1024 * part, 1024)],
                op=nl.multiply,
            )
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), 0:width], src=out_tile)
    return out
