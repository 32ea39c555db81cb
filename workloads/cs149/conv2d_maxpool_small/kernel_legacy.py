"""Convolution one output row at a time: nine small products for a row, then the maximum of neighboring pixels."""

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
    out = nl.ndarray((batches, filters, rows // 2, columns // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    weights_t = nl.ndarray(
        (nl.par_dim(128), out_tiles, in_tiles, filter_rows, filter_columns, 128), dtype=x.dtype, buffer=nl.sbuf
    )
    offset = nl.ndarray((nl.par_dim(128), out_tiles), dtype=x.dtype, buffer=nl.sbuf)
    bias_column = bias.reshape((filters, 1))
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    one = nl.arange(1)[None, :]
    f = nl.arange(columns)[None, :]
    # Weights come by filter; the tensor engine wants the channel in the partitions.
    for o in nl.affine_range(out_tiles):
        offset[p, o + one] = nl.load(bias_column[128 * o + p, one])
        for i in nl.affine_range(in_tiles):
            loaded = nl.load(weights[o * 128 : (o + 1) * 128, i * 128 : (i + 1) * 128, 0:filter_rows, 0:filter_columns])
            for r in nl.affine_range(filter_rows):
                for s in nl.affine_range(filter_columns):
                    turned = nisa.nc_transpose(loaded[p, c, r, s])
                    weights_t[p, o, i, r, s, c] = nl.copy(turned)
    for batch in nl.affine_range(batches):
        for o in nl.affine_range(out_tiles):
            for row in nl.affine_range(rows // 2):
                pair = nl.ndarray((nl.par_dim(128), 2, columns), dtype=x.dtype, buffer=nl.sbuf)
                for lower in nl.affine_range(2):
                    total = nl.zeros((nl.par_dim(128), columns), dtype=nl.float32, buffer=nl.psum)
                    for i in nl.affine_range(in_tiles):
                        for r in nl.affine_range(filter_rows):
                            image_row = nl.load(x[batch, i * 128 : (i + 1) * 128, 2 * row + lower + r, 0:width])
                            for s in nl.affine_range(filter_columns):
                                total += nisa.nc_matmul(weights_t[p, o, i, r, s, c], image_row[p, s + f])
                    pair[p, lower, f] = nisa.tensor_scalar(data=total, op0=nl.add, operand0=offset[p, o + one])
                taller = nl.maximum(pair[p, 0, f], pair[p, 1, f])
                half = nl.arange(columns // 2)[None, :]
                pooled = nl.maximum(taller[p, 2 * half], taller[p, 2 * half + 1])
                nl.store(out[batch, 128 * o + p, row, half], value=pooled)
    return out
