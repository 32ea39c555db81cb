"""Convolution on whole bands of rows: one long moving operand for each filter position, pooled out of the same band."""

import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, weights, bias):
    batches, channels, height, width = x.shape
    filters, _, filter_rows, filter_columns = weights.shape
    rows, columns = height - filter_rows + 1, width - filter_columns + 1
    in_tiles, out_tiles = channels // 128, filters // 128
    # As many output rows as one PSUM bank of 512 float32 columns holds, an even divisor of the height.
    band = max(size for size in range(2, rows + 1, 2) if rows % size == 0 and size * columns <= 512)
    out = nl.ndarray((batches, filters, rows // 2, columns // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    weights_t = nl.ndarray(
        (out_tiles, in_tiles, filter_rows, filter_columns, nl.par_dim(128), 128), dtype=x.dtype, buffer=nl.sbuf
    )
    offset = nl.ndarray((out_tiles, nl.par_dim(128), 1), dtype=x.dtype, buffer=nl.sbuf)
    bias_column = bias.reshape((filters, 1))
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    one = nl.arange(1)[None, :]
    q = nl.arange(128)[:, None, None]
    line = nl.arange(band)[None, :, None]
    pixel = nl.arange(columns)[None, None, :]
    for o in nl.affine_range(out_tiles):
        offset[o, p, one] = nl.load(bias_column[128 * o + p, one])
        for i in nl.affine_range(in_tiles):
            loaded = nl.load(weights[o * 128 : (o + 1) * 128, i * 128 : (i + 1) * 128, 0:filter_rows, 0:filter_columns])
            for r in nl.affine_range(filter_rows):
                for s in nl.affine_range(filter_columns):
                    turned = nisa.nc_transpose(loaded[p, c, r, s])
                    weights_t[o, i, r, s, p, c] = nl.copy(turned)
    for batch in nl.affine_range(batches):
        for step in nl.affine_range(rows // band):
            image = nl.ndarray(
                (in_tiles, nl.par_dim(128), band + filter_rows - 1, width), dtype=x.dtype, buffer=nl.sbuf
            )
            tall = nl.arange(band + filter_rows - 1)[None, :, None]
            across = nl.arange(width)[None, None, :]
            for i in nl.affine_range(in_tiles):
                image[i, q, tall, across] = nl.load(x[batch, 128 * i + q, band * step + tall, across])
            for o in nl.affine_range(out_tiles):
                total = nl.zeros((nl.par_dim(128), band, columns), dtype=nl.float32, buffer=nl.psum)
                for i in nl.affine_range(in_tiles):
                    for r in nl.affine_range(filter_rows):
                        for s in nl.affine_range(filter_columns):
                            total[q, line, pixel] += nisa.nc_matmul(
                                weights_t[o, i, r, s, p, c], image[i, q, r + line, s + pixel]
                            )
                shifted = nisa.tensor_scalar(data=total[q, line, pixel], op0=nl.add, operand0=offset[o, p, one])
                pair = nl.arange(band // 2)[None, :, None]
                half = nl.arange(columns // 2)[None, None, :]
                taller = nl.maximum(shifted[q, 2 * pair, pixel], shifted[q, 2 * pair + 1, pixel])
                pooled = nl.maximum(taller[q, pair, 2 * half], taller[q, pair, 2 * half + 1])
                nl.store(out[batch, 128 * o + q, (band // 2) * step + pair, half], value=pooled)
    return out
