"""Rotation of both halves of the head dimension, 512 positions at a time."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    depth, length = x.shape
    half = depth // 2
    out = nl.ndarray((depth, length), dtype=nl.float32, buffer=nl.shared_hbm)
    for tile in nl.affine_range(length // 512):
        upper = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        lower = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        cos_tile = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        sin_tile = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        upper_cos = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        lower_sin = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        upper_sin = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        lower_cos = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        out_upper = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        out_lower = nl.ndarray((half, 512), dtype=nl.float32, buffer=nl.sbuf)
        # Two operands start at the same partition: the halves are loaded into tiles of their own.
        nisa.dma_copy(dst=upper, src=x[0:half, nl.ds(512 * tile, 512)])
        nisa.dma_copy(dst=lower, src=x[half:depth, nl.ds(512 * tile, 512)])
        nisa.dma_copy(dst=cos_tile, src=cos[0:half, nl.ds(512 * tile, 512)])
        nisa.dma_copy(dst=sin_tile, src=sin[0:half, nl.ds(512 * tile, 512)])
        nisa.tensor_tensor(dst=upper_cos, data1=upper, data2=cos_tile, op=nl.multiply)
        nisa.tensor_tensor(dst=lower_sin, data1=lower, data2=sin_tile, op=nl.multiply)
        nisa.tensor_tensor(dst=upper_sin, data1=upper, data2=sin_tile, op=nl.multiply)
        nisa.tensor_tensor(dst=lower_cos, data1=lower, data2=cos_tile, op=nl.multiply)
        nisa.tensor_tensor(dst=out_upper, data1=upper_cos, data2=lower_sin, op=nl.subtract)
        nisa.tensor_tensor(dst=out_lower, data1=upper_sin, data2=lower_cos, op=nl.add)
        nisa.dma_copy(dst=out[0:half, nl.ds(512 * tile, 512)], src=out_upper)
        nisa.dma_copy(dst=out[half:depth, nl.ds(512 * tile, 512)], src=out_lower)
    return out
