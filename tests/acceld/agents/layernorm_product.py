"""The formula of a layer norm with a product, as an agent would send it, and a kernel for it."""

FORMULA = '''\
import numpy as np


def forward(x, w, b, v):
    """Layer norm with gain and bias, then a product."""
    mean = np.mean(x, axis=1, keepdims=True)
    var = np.mean(np.square(x - mean), axis=1, keepdims=True)
    return ((x - mean) / np.sqrt(var + 1e-5) * w + b) @ v
'''
ARGUMENTS = ("x=2048x1024:float32", "w=1024:float32", "b=1024:float32", "v=1024x1024:float32")

OWN_KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w, b, v):
    rows, depth = x.shape
    columns = v.shape[1]
    parts, count = depth // 128, rows // 128
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    epsilon = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=epsilon, value=1e-5)
    gain = nl.ndarray((128, depth), dtype=nl.float32, buffer=nl.sbuf)
    shift = nl.ndarray((128, depth), dtype=nl.float32, buffer=nl.sbuf)
    v_high = nl.ndarray((128, parts, columns), dtype=nl.bfloat16, buffer=nl.sbuf)
    v_low = nl.ndarray((128, parts, columns), dtype=nl.bfloat16, buffer=nl.sbuf)
    high = nl.ndarray((128, count, depth), dtype=nl.bfloat16, buffer=nl.sbuf)
    low = nl.ndarray((128, count, depth), dtype=nl.bfloat16, buffer=nl.sbuf)
    high_turned = nl.ndarray((128, count, parts, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    low_turned = nl.ndarray((128, count, parts, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
    high_kept = nl.ndarray((count, 128, depth), dtype=nl.bfloat16, buffer=nl.private_hbm)
    low_kept = nl.ndarray((count, 128, depth), dtype=nl.bfloat16, buffer=nl.private_hbm)
    # The tensor engine runs at half its rate until it has been busy for a while: it warms up while the first rows come.
    idle = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(dst=idle, value=0.0)
    warm = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for _ in nl.static_range(20):
        nisa.nc_matmul(dst=warm, stationary=idle[0:128, 0:128], moving=idle)
    # Rows m are normalized, split and turned while rows m - 2 are multiplied: the tensor engine finds its operands ready.
    # It turns the first rows itself, while it has nothing else to do; transfers turn the others on their way from HBM.
    for m in nl.static_range(count + 2):
        if m < count:
            x_tile = nl.ndarray((128, depth), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[nl.ds(128 * m, 128), 0:depth])
            if m == 0:
                nisa.dma_copy(dst=gain, src=w.ap(pattern=[[0, 128], [1, depth]], offset=0))
                nisa.dma_copy(dst=shift, src=b.ap(pattern=[[0, 128], [1, depth]], offset=0))
            stats = nl.ndarray((128, 2, 6), dtype=nl.float32, buffer=nl.sbuf)
            for half in nl.static_range(2):
                nisa.bn_stats(dst=stats[0:128, half, 0:6], data=x_tile[0:128, nl.ds(512 * half, 512)])
            moments = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
            nisa.bn_aggr(dst=moments, data=stats)
            scale = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=scale, op=nl.rsqrt, data=moments[0:128, 1:2], bias=epsilon)
            centered = nl.ndarray((128, depth), dtype=nl.float32, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=centered, data=x_tile, op0=nl.subtract, operand0=moments[0:128, 0:1], op1=nl.multiply, operand1=gain
            )
            normal = nl.ndarray((128, depth), dtype=nl.float32, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=normal, data=centered, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=shift
            )
            nisa.activation(dst=high[0:128, m, 0:depth], op=nl.copy, data=normal)
            nisa.tensor_tensor(dst=low[0:128, m, 0:depth], data1=normal, data2=high[0:128, m, 0:depth], op=nl.subtract)
        if m < 2:
            for pair in ((high, high_turned), (low, low_turned)):
                across = nl.ndarray((128, parts, 128), dtype=nl.bfloat16, buffer=nl.psum)
                for k in nl.static_range(parts):
                    nisa.nc_transpose(dst=across[0:128, k, 0:128], data=pair[0][0:128, m, nl.ds(128 * k, 128)])
                nisa.tensor_copy(dst=pair[1][0:128, m, 0:parts, 0:128], src=across)
        if m == 1:
            for n in nl.static_range(columns // 512):
                place = nl.ds(512 * n, 512)
                for k in nl.static_range(parts):
                    v_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                    nisa.dma_copy(dst=v_tile, src=v[nl.ds(128 * k, 128), place])
                    nisa.activation(dst=v_high[0:128, k, place], op=nl.copy, data=v_tile)
                    nisa.tensor_tensor(
                        dst=v_low[0:128, k, place],
                        data1=v_tile,
                        data2=v_high[0:128, k, place],
                        op=nl.subtract,
                        engine=nisa.vector_engine if k % 3 == 2 else nisa.gpsimd_engine,
                    )
        if 2 <= m < count:
            for part in ((high, high_kept, high_turned), (low, low_kept, low_turned)):
                nisa.dma_copy(dst=part[1][m, 0:128, 0:depth], src=part[0][0:128, m, 0:depth])
                for k in nl.static_range(parts):
                    nisa.dma_transpose(dst=part[2][0:128, m, k, 0:128], src=part[1][m, 0:128, nl.ds(128 * k, 128)])
        if m >= 2:
            for n in nl.static_range(columns // 512):
                place = nl.ds(512 * n, 512)
                product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                for k in nl.static_range(parts):
                    high_part = high_turned[0:128, m - 2, k, 0:128]
                    low_part = low_turned[0:128, m - 2, k, 0:128]
                    nisa.nc_matmul(dst=product, stationary=high_part, moving=v_high[0:128, k, place], accumulate=k > 0)
                    nisa.nc_matmul(dst=product, stationary=low_part, moving=v_high[0:128, k, place], accumulate=True)
                for k in nl.static_range(parts):
                    high_part = high_turned[0:128, m - 2, k, 0:128]
                    nisa.nc_matmul(dst=product, stationary=high_part, moving=v_low[0:128, k, place], accumulate=True)
                result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                nisa.activation(dst=result, op=nl.copy, data=product)
                nisa.dma_copy(dst=out[nl.ds(128 * (m - 2), 128), place], src=result)
    return out
"""
"""A kernel that adds three products of bfloat16 parts: high x high, low x high and high x low."""
