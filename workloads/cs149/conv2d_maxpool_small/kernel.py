"""Convolution one output row at a time: nine small products for a row, then the maximum of neighboring pixels."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, weights, bias):
    batches, channels, height, width = x.shape
    filters, _, filter_rows, filter_columns = weights.shape
    rows, columns = height - filter_rows + 1, width - filter_columns + 1
    in_tiles, out_tiles, positions = channels // 128, filters // 128, filter_rows * filter_columns
    out = nl.ndarray((batches, filters, rows // 2, columns // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    offset = nl.ndarray((128, out_tiles), dtype=x.dtype, buffer=nl.sbuf)
    weights_t = nl.ndarray((128, out_tiles * in_tiles * positions, 128), dtype=x.dtype, buffer=nl.sbuf)
    bias_column = bias.reshape((filters, 1))
    # Weights come by filter; the tensor engine wants the channel in the partitions.
    for o in nl.affine_range(out_tiles):
        nisa.dma_copy(dst=offset[0:128, o : o + 1], src=bias_column[nl.ds(128 * o, 128), 0:1])
        for i in nl.affine_range(in_tiles):
            loaded = nl.ndarray((128, 128, filter_rows, filter_columns), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(
                dst=loaded,
                src=weights[nl.ds(128 * o, 128), nl.ds(128 * i, 128), 0:filter_rows, 0:filter_columns],
            )
            for r in nl.affine_range(filter_rows):
                for s in nl.affine_range(filter_columns):
                    turned = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.psum)
                    nisa.nc_transpose(dst=turned, data=loaded[0:128, 0:128, r, s])
                    place = (o * in_tiles + i) * positions + r * filter_columns + s
                    nisa.tensor_copy(dst=weights_t[0:128, place, 0:128], src=turned)
    for batch in nl.affine_range(batches):
        for o in nl.affine_range(out_tiles):
            for row in nl.affine_range(rows // 2):
                pair = nl.ndarray((128, 2, columns), dtype=x.dtype, buffer=nl.sbuf)
                taller = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
                pooled = nl.ndarray((128, columns // 2), dtype=x.dtype, buffer=nl.sbuf)
                for lower in nl.affine_range(2):
                    total = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.psum)
                    for i in nl.affine_range(in_tiles):
                        for r in nl.affine_range(filter_rows):
                            image_row = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
                            nisa.dma_copy(
                                dst=image_row,
                                src=x[batch, nl.ds(128 * i, 128), 2 * row + lower + r, 0:width],
                            )
                            for s in nl.affine_range(filter_columns):
                                place = (o * in_tiles + i) * positions + r * filter_columns + s
                                nisa.nc_matmul(
                                    dst=total,
                                    stationary=weights_t[0:128, place, 0:128],
                                    moving=image_row[0:128, nl.ds(s, columns)],
                                    accumulate=i + r + s > 0,
                                )
                    nisa.tensor_scalar(
                        dst=pair[0:128, lower, 0:columns],
                        data=total,
                        op0=nl.add,
                        operand0=offset[0:128, o : o + 1],
                    )
                nisa.tensor_tensor(
                    dst=taller, data1=pair[0:128, 0, 0:columns], data2=pair[0:128, 1, 0:columns], op=nl.maximum
                )
                nisa.tensor_tensor(
                    dst=pooled, data1=taller[0:128, 0:columns:2], data2=taller[0:128, 1:columns:2], op=nl.maximum
                )
                nisa.dma_copy(dst=out[batch, nl.ds(128 * o, 128), row, 0 : columns // 2], src=pooled)
    return out
