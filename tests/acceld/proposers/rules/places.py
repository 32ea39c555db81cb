"""Kernels where a rule applies, and changes of them after which the rule must leave them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.acceld.proposers.rules.kernels import current, legacy


@dataclass(frozen=True)
class Example:
    """A kernel with places of a rule."""

    rule: str
    source: str
    shapes: Sequence[tuple[int, ...]]
    stays: Sequence[tuple[str, ...]] = ()
    """Texts and their replacements, in turn, after which the rule does not offer the place any more."""
    other_dtypes: Sequence[tuple[str, ...]] = ()
    """Dtypes of the arguments with which the rule does not offer the place. Elsewhere all arguments are float32."""
    what: str = ""
    """A regular expression that the line, the key, the variants and the plan of the place match, if the rule finds other places."""
    scale: float = 1.0
    """Factor on the inputs, so that results are neither all equal nor infinite."""
    positive: bool = False
    """True if the kernel takes roots of its inputs."""
    runs: bool = True
    """False if the kernel leaves elements undefined, or is executed for another place."""


def tiled(parameters: str, shape: tuple[int, ...], *, body: str, **columns: int) -> str:
    """Return a legacy kernel that returns ``out``. Its indices are ``p`` over 128 partitions, and those in ``columns``."""
    head = [f"out = nl.ndarray({shape}, dtype=nl.float32, buffer=nl.shared_hbm)", "p = nl.arange(128)[:, None]"]
    head += [f"{name} = nl.arange({count})[None, :]" for name, count in columns.items()]
    return legacy(parameters, "".join(f"    {line}\n" for line in head) + body.removeprefix("\n") + "    return out\n")


TILE = (128, 1024)
SILU = tiled(
    "x",
    (128, 1024),
    f=1024,
    body="""
    x_tile = nl.load(x[p, f])
    # SiLU from its formula.
    decay = nisa.activation(op=nl.exp, data=x_tile, scale=-1.0)
    total = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)
    sigmoid = nisa.reciprocal(data=total)
    y_tile = nl.multiply(x_tile, sigmoid)
    nl.store(out[p, f], value=y_tile)
""",
)
SQUARE = SILU.replace("nl.multiply(x_tile, sigmoid)", "nl.multiply(small, x_tile)").replace(
    "    y_tile =", "    small = nisa.tensor_scalar(data=x_tile, op0=nl.multiply, operand0=0.25)\n    y_tile ="
)
BIASED = current(
    "x, b, w",
    """
    out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for c in nl.affine_range(4):
        x_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        row = nl.ndarray((1, 256), dtype=nl.float32, buffer=nl.sbuf)
        first = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        second = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        factor = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[0:128, nl.ds(256 * c, 256)])
        nisa.dma_copy(dst=row, src=b[0:1, nl.ds(256 * c, 256)])
        # the bias for every row
        nisa.dma_copy(dst=first, src=nl.broadcast_to(row, (128, 256)))
        nisa.dma_copy(dst=second, src=b.ap(pattern=[[0, 128], [1, 256]], offset=1024 + 256 * c))
        nisa.dma_copy(dst=factor, src=w[0:128, 0:1])
        nisa.tensor_tensor(dst=x_tile, data1=x_tile, data2=first, op=nl.add)
        for k in range(2):
            nisa.tensor_scalar(dst=second, data=second, op0=nl.multiply, operand0=factor)
        nisa.tensor_tensor(dst=x_tile, data1=x_tile, data2=second, op=nl.add)
        nisa.dma_copy(dst=out[0:128, nl.ds(256 * c, 256)], src=x_tile)
    return out
""",
)
"""Steps over columns that also load a row for all partitions in two ways and a number for each row, with a loop inside."""
BIASED_SHAPES = [(128, 1024), (2, 1024), (128, 4)]
READ_IN_PARTS = current(
    "x, w",
    """
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
    for k in range(4):
        # a part of the rows
        part = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=x[0:128, 128 * k + 64:128 * k + 192])
        nisa.tensor_scalar(dst=part[0:128, 0:64], data=part[0:128, 64:128], op0=nl.multiply, operand0=0.5)
        turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=part)
        kept = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=kept, src=turned)
        weight = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=weight, src=w[nl.ds(128 * k, 128), 0:64])
        nisa.nc_matmul(dst=total, stationary=kept, moving=weight, accumulate=(k > 0))
    done = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=done, src=total)
    nisa.dma_copy(dst=out, src=done)
    return out
""",
)
CHUNKS = tiled(
    "x",
    (4, 128, 1024),
    body="""
    wide = nl.arange(1024)[None, :]
    f = nl.arange(512)[None, :]
    half = nl.ndarray((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    x_tile = nl.ndarray((4, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    y_tile = nl.ndarray((4, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        x_tile[i, p, wide] = nl.load(x[i, p, wide], mask=128 * i + p < 500)
        for c in nl.affine_range(2):
            # twice, then squared
            half[i, c, p, f] = nisa.tensor_scalar(data=x_tile[i, p, 512 * c + f], op0=nl.multiply, operand0=2.0, mask=128 * i + p < 500)
            y_tile[i, p, 512 * c + f] = nl.multiply(half[i, c, p, f], half[i, c, p, f], mask=128 * i + p < 500)
        nl.store(out[i, p, wide], value=y_tile[i, p, wide], mask=128 * i + p < 500)
""",
)
PRODUCT = tiled(
    "x, w",
    (128, 1024),
    c=128,
    f=512,
    body="""
    x_tile = nl.load(x[p, nl.arange(256)[None, :]])
    for column in nl.affine_range(2):
        total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            w_tile = nl.load(w[128 * k + p, 512 * column + f])
            total += nl.matmul(x_tile[p, 128 * k + c], w_tile)
        nl.store(out[p, 512 * column + f], value=nl.copy(total))
""",
)
PRODUCT_SHAPES = [(128, 256), (256, 1024)]
SUM = tiled(
    "x",
    (128, 1),
    f=1024,
    body="""
    one = nl.arange(1)[None, :]
    x_tile = nl.load(x[p, f])
    power = nisa.activation(op=nl.exp, data=x_tile, scale=0.5)
    total = nisa.tensor_reduce(nl.add, data=power, axis=[1])
    nl.store(out[p, one], value=total)
""",
)
FROM_PSUM = tiled(
    "x, w, y",
    (128, 512),
    c=128,
    f=512,
    body="""
    x_tile = nl.load(x[p, c])
    w_tile = nl.load(w[p, f])
    y_tile = nl.load(y[p, f])
    product = nisa.nc_matmul(x_tile, w_tile)
    copied = nl.copy(product)
    result = nl.multiply(copied, y_tile)
    nl.store(out[p, f], value=result)
""",
)
FROM_PSUM_SHAPES = [(128, 128), (128, 512), (128, 512)]
FOLDS = tiled(
    "x, y",
    (128, 1024),
    f=1024,
    body="""
    x_tile = nl.load(x[p, f])
    y_tile = nl.load(y[p, f])
    twice = nisa.tensor_scalar(data=x_tile, op0=nl.multiply, operand0=2.0)
    more = nisa.tensor_scalar(data=twice, op0=nl.subtract, operand0=1.0, reverse0=True)
    half = nisa.tensor_scalar(data=y_tile, op0=nl.multiply, operand0=0.5)
    power = nisa.activation(op=nl.exp, data=half)
    small = nisa.tensor_scalar(data=power, op0=nl.multiply, operand0=0.25)
    result = nl.subtract(more, small)
    nl.store(out[p, f], value=result)
""",
)
QUOTIENT = FOLDS.replace("nl.subtract(more, small)", "nl.multiply(x_tile, inverse)").replace(
    "    result =", "    inverse = nisa.reciprocal(data=power)\n    result ="
)
REPEATED = tiled(
    "x, w",
    (4, 128, 1024),
    f=512,
    body="""
    for row in nl.affine_range(4):
        for k in nl.affine_range(2):
            x_tile = nl.load(x[row, p, 512 * k + f])
            w_tile = nl.load(w[p, 512 * k + f])
            y_tile = nl.multiply(x_tile, w_tile)
            nl.store(out[row, p, 512 * k + f], value=y_tile)
""",
)
REPEATED_SHAPES = [(4, 128, 1024), (128, 1024)]
NEST = tiled(
    "x, y",
    (2, 128, 512),
    f=512,
    body="""
    total = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for step in nl.affine_range(3):
        for tile in nl.affine_range(2):
            x_tile = nl.load(x[tile, p, f])
            y_tile = nl.load(y[step, p, f])
            total[tile, p, f] += nl.multiply(x_tile, y_tile)
    for tile in nl.affine_range(2):
        nl.store(out[tile, p, f], value=total[tile, p, f])
""",
)
NEST_SHAPES = [(2, 128, 512), (3, 128, 512)]
HANDOVER = tiled(
    "x, w",
    (4, 128, 1024),
    f=512,
    body="""
    w_tile = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    made = nl.ndarray((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.ndarray((2, 4, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    most = nl.ndarray((4, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for block in nl.affine_range(2):
        w_tile[block, p, f] = nl.load(w[p, 512 * block + f])
        for row in nl.affine_range(4):
            # what the second nest needs
            x_tile = nl.load(x[row, p, 512 * block + f])
            made[row, block, p, f] = nl.multiply(x_tile, w_tile[block, p, f])
            part[block, row, p, 0] = nisa.tensor_reduce(nl.max, data=made[row, block, p, f], axis=[1])
            most[row, p, 0] = nl.loop_reduce(part[block, row, p, 0], op=np.max, loop_indices=[block])
    for line in nl.affine_range(4):
        for block in nl.affine_range(2):
            shifted = nl.subtract(made[line, block, p, f], most[line, p, 0])
            nl.store(out[line, p, 512 * block + f], value=shifted)
""",
)
HANDOVER_SHAPES = [(4, 128, 1024), (128, 1024)]
BLOCKS = tiled(
    "x",
    (8, 128, 512),
    f=512,
    body="""
    made = nl.ndarray((8, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for block in nl.affine_range(2):
        for row in nl.affine_range(4):
            x_tile = nl.load(x[4 * block + row, p, f])
            made[4 * block + row, p, f] = nl.multiply(x_tile, 2.0)
    # two parts of a block
    for half in nl.affine_range(4):
        for row in nl.affine_range(2):
            y_tile = nl.exp(made[2 * half + row, p, f])
            nl.store(out[2 * half + row, p, f], value=y_tile)
""",
)
BLOCKS_SHAPES = [(8, 128, 512)]
SCRATCH = tiled(
    "x, y",
    (4, 128, 1024),
    f=512,
    body="""
    wide = nl.arange(1024)[None, :]
    kept = nl.ndarray((4, 128, 1024), dtype=nl.float32, buffer=nl.private_hbm)
    for row in nl.affine_range(4):
        x_tile = nl.load(x[row, p, wide])
        doubled = nisa.tensor_scalar(data=x_tile, op0=nl.multiply, operand0=2.0)
        nl.store(kept[row, p, wide], value=doubled)
    for row in nl.affine_range(4):
        again = nl.load(kept[row, p, wide])
        y_tile = nl.load(y[row, p, wide])
        for half in nl.affine_range(2):
            result = nl.add(again[p, 512 * half + f], y_tile[p, 512 * half + f])
            nl.store(out[row, p, 512 * half + f], value=result)
""",
)
SCRATCH_SHAPES = [(4, 128, 1024), (4, 128, 1024)]
REPEATED_WORK = tiled(
    "x, w",
    (3, 16, 128, 1),
    f=4096,
    body="""
    w_tile = nl.ndarray((3, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    x_tile = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    twice = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((3, 16, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for block in nl.affine_range(3):
        w_tile[block, p, f] = nl.load(w[block, p, f])
        for row in nl.affine_range(16):
            # the same for every block
            x_tile[block, row, p, f] = nl.load(x[row // 4, row % 4, p, f])
            twice[block, row, p, f] = nl.multiply(x_tile[block, row, p, f], 2.0)
            product[block, row, p, f] = nl.multiply(twice[block, row, p, f], w_tile[block, p, f])
            total[block, row, p, 0] = nisa.tensor_reduce(nl.add, data=product[block, row, p, f], axis=[1])
            nl.store(out[block, row, p, 0], value=total[block, row, p, 0])
""",
)
REPEATED_WORK_SHAPES = [(4, 4, 128, 4096), (3, 128, 4096)]
FILL_LOW = current(
    "x, y",
    """
    out = nl.ndarray((64, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(8):
        a = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[0:64, nl.ds(512 * t, 512)])
        nisa.dma_copy(dst=b[0:64, 0:512], src=y[t, 0:64, 0:512])
        nisa.tensor_reduce(dst=total, op=nl.add, data=a, axis=1)
        nisa.tensor_scalar(dst=product, data=b[0:64, 0:512], op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[0:64, nl.ds(512 * t, 512)], src=product)
    return out
""",
)
FILL_SHAPES = [(64, 4096), (8, 64, 512)]
FILL_HALVES = legacy(
    "x, cos",
    """
    rows, length = x.shape
    out = nl.ndarray((rows, length), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    upper = nl.arange(64)[:, None]
    lower = upper + 64
    width = 512
    f = nl.arange(width)[None, :]
    for at in range(length // width):
        x_tile = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
        x_tile[p, f] = nl.load(x[p, f + width * at])
        # the same for both halves
        angle = nl.load(cos[upper, f + width * at])
        even = x_tile[upper, f]
        odd = nl.copy(x_tile[lower, f])
        result = nl.ndarray((rows, width), dtype=x_tile.dtype, buffer=nl.sbuf)
        turned = nisa.tensor_tensor(odd, angle, op=nl.multiply)
        result[upper, f] = nisa.tensor_tensor(even, turned, op=nl.subtract)
        result[lower, f] = nisa.tensor_tensor(odd, angle, op=nl.add)
        nl.store(out[p, f + width * at], value=result)
    return out
""",
)
FILL_HALVED = [(128, 2048), (64, 2048)]
SINK_HEADS = tiled(
    "q, k",
    (4, 2, 128, 512),
    c=128,
    f=512,
    body="""
    wide = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    q_tile = nl.ndarray((2, nl.par_dim(128), 4, 128), dtype=nl.float32, buffer=nl.sbuf)
    k_tile = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        wide[row, p, f] = nl.load(q[row, p, f])
        # one head
        for one in nl.affine_range(4):
            q_tile[row, p, one, c] = nl.multiply(wide[row, p, 128 * one + c], 2.0)
    for head in nl.affine_range(4):
        k_tile[head, p, f] = nl.load(k[head, p, f])
    for pair in nl.affine_range(2):
        for head in nl.affine_range(2):
            for row in nl.affine_range(2):
                scores = nisa.nc_matmul(q_tile[row, p, 2 * pair + head, c], k_tile[2 * pair + head, p, f])
                nl.store(out[2 * pair + head, row, p, f], value=nl.copy(scores))
""",
)
SINK_SHAPES = [(2, 128, 512), (4, 128, 512)]
SCALE_SOFTMAX = tiled(
    "x, w",
    (2, 3, 128, 512),
    c=128,
    f=512,
    body="""
    identity = nl.shared_constant(np.identity(128, dtype=np.float32))
    unit = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    unit[p, c] = nl.load(identity[p, c])
    w_tile = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    power = nl.ndarray((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((3, 2, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    inverse = nl.ndarray((3, 2, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    scaled = nl.ndarray((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    turned = nl.zeros((2, 3, 4, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
    scaled_t = nl.ndarray((4, 2, nl.par_dim(128), 384), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.zeros((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        w_tile[k, p, f] = nl.load(w[k, p, f])
    for a in nl.affine_range(2):
        for b in nl.affine_range(3):
            tile = nl.load(x[a, b, p, f])
            power[a, b, p, f] = nisa.activation(op=nl.exp, data=tile)
            total[b, a, p, 0] = nisa.tensor_reduce(nl.add, data=power[a, b, p, f], axis=[1])
            inverse[b, a, p, 0] = nisa.reciprocal(data=total[b, a, p, 0])
            scaled[a, b, p, f] = nisa.tensor_scalar(data=power[a, b, p, f], op0=nl.multiply, operand0=inverse[b, a, p, 0])
            for k in nl.affine_range(4):
                turned[a, b, k, p, c] = nisa.nc_matmul(scaled[a, b, p, 128 * k + c], unit[p, c], is_transpose=True)
                scaled_t[k, a, p, 128 * b + c] = nl.copy(turned[a, b, k, p, c])
    for a in nl.affine_range(2):
        for row in nl.affine_range(3):
            for k in nl.affine_range(4):
                sums[a, row, p, f] += nisa.nc_matmul(scaled_t[k, a, p, 128 * row + c], w_tile[k, p, f])
            result = nl.copy(sums[a, row, p, f], dtype=nl.float32)
            nl.store(out[a, row, p, f], value=result)
""",
)
SCALE_SHAPES = [(2, 3, 128, 512), (4, 128, 512)]
SUM_BLOCKED = tiled(
    "x, w",
    (2, 3, 128, 512),
    c=128,
    f=512,
    body="""
    right = nl.ndarray((2, 4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    left = nl.ndarray((4, 2, 3, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    total = nl.full((2, 3, nl.par_dim(128), 512), 0.0, dtype=nl.float32, buffer=nl.sbuf)
    for n in nl.affine_range(2):
        # a block of the sum
        for s in nl.sequential_range(4):
            for k in nl.affine_range(2):
                right[n, s, k, p, f] = nl.load(w[256 * s + 128 * k + p, 512 * n + f])
            for m in nl.affine_range(3):
                # the operand
                for k in nl.affine_range(2):
                    left[s, n, m, k, p, c] = nl.load(x[256 * s + 128 * k + p, 128 * m + c])
                for k in nl.affine_range(2):
                    part[n, s, m, p, f] += nisa.nc_matmul(left[s, n, m, k, p, c], right[n, s, k, p, f])
                total[n, m, p, f] = nl.loop_reduce(part[n, s, m, p, f], op=np.add, loop_indices=[s], dtype=nl.float32)
                ' end loop m '
            ' end loop s '
        for m in nl.affine_range(3):
            nl.store(out[n, m, p, f], value=total[n, m, p, f])
""",
)
SUM_SHAPES = [(1024, 384), (1024, 1024)]
SUM_ADDED = SUM_BLOCKED.replace(
    "nl.loop_reduce(part[n, s, m, p, f], op=np.add, loop_indices=[s], dtype=nl.float32)",
    "nl.add(total[n, m, p, f], part[n, s, m, p, f])",
)
SWAP_SHAPES = [(4, 128, 128), (128, 256), (2, 128, 256)]
SWAP_GATED = tiled(
    "x, w, v",
    (4, 128, 256),
    c=128,
    f=256,
    body="""
    identity_hbm = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    x_t = nl.ndarray((4, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    w_tile = nl.ndarray((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
    v_tile = nl.ndarray((2, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
    wide = nl.ndarray((4, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
    identity[p, c] = nl.load(identity_hbm[p, c])
    w_tile[p, f] = nl.load(w[p, f])
    for n in nl.affine_range(2):
        v_tile[n, p, f] = nl.load(v[n, p, f])
    for row in nl.affine_range(4):
        x_t[row, p, c] = nl.load(x[row, p, c])
    for row in nl.affine_range(4):
        product = nl.zeros((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.psum)
        product += nisa.nc_matmul(x_t[row, p, c], w_tile[p, f])
        gate = nisa.activation(op=nl.tanh, data=product, scale=0.1)
        wide[row, p, f] = nl.multiply(gate, product)
    for block in nl.affine_range(2):
        wide_t = nl.ndarray((2, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
        for row in nl.affine_range(2):
            # for the next product
            for part in nl.affine_range(2):
                turned = nisa.nc_matmul(wide[2 * block + row, p, 128 * part + c], identity[p, c], is_moving_onezero=True, is_transpose=True)
                wide_t[row, part, p, c] = nl.copy(turned)
        for row in nl.affine_range(2):
            total = nl.zeros((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.psum)
            for n in nl.affine_range(2):
                total += nisa.nc_matmul(wide_t[row, n, p, c], v_tile[n, p, f])
            nl.store(out[2 * block + row, p, f], value=nl.copy(total))
""",
)
SWAP_BY_COLUMNS = (
    SWAP_GATED.replace("x_t = nl.ndarray((4, nl.par_dim(128), 128)", "x_t = nl.ndarray((2, nl.par_dim(128), 256)")
    .replace("x_t[row, p, c] = nl.load", "x_t[row // 2, p, 128 * (row % 2) + c] = nl.load")
    .replace("    for row in nl.affine_range(4):\n        product", "    for pair in nl.affine_range(2):\n      for row in nl.affine_range(2):\n        product")
    .replace("x_t[row, p, c], w_tile", "x_t[pair, p, 128 * row + c], w_tile")
    .replace("wide[row, p, f]", "wide[2 * pair + row, p, f]")
)  # fmt: skip
REDUCE_BLOCKS = tiled(
    "x",
    (3, 128, 2048),
    f=512,
    body="""
    power = nl.ndarray((3, 2, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.ndarray((3, 2, 2, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((3, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(3):
        for a in nl.affine_range(2):
            for b in nl.affine_range(2):
                tile = nl.load(x[row, p, 1024 * a + 512 * b + f])
                power[row, a, b, p, f] = nisa.activation(op=nl.exp, data=tile)
                part[row, a, b, p, 0] = nisa.tensor_reduce(nl.add, data=power[row, a, b, p, f], axis=[1], dtype=nl.float32)
                total[row, p, 0] = nl.loop_reduce(part[row, a, b, p, 0], op=np.add, loop_indices=[a, b], dtype=nl.float32)
        inverse = nisa.reciprocal(data=total[row, p, 0])
        for a in nl.affine_range(2):
            for b in nl.affine_range(2):
                scaled = nisa.tensor_scalar(data=power[row, a, b, p, f], op0=nl.multiply, operand0=inverse)
                nl.store(out[row, p, 1024 * a + 512 * b + f], value=scaled)
""",
)
REDUCE_SHAPES = [(3, 128, 2048)]
REDUCE_COLUMNS = tiled(
    "x",
    (256, 1),
    f=512,
    body="""
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 2, 1024), dtype=nl.float32, buffer=nl.sbuf)
        part = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32, buffer=nl.sbuf)
        for a in nl.affine_range(2):
            for b in nl.affine_range(2):
                tile[p, a, 512 * b + f] = nl.load(x[128 * row + p, 1024 * a + 512 * b + f])
                part[p, 2 * a + b] = nisa.tensor_reduce(nl.max, data=tile[p, a, 512 * b + f], axis=[1])
        largest = nisa.tensor_reduce(nl.max, data=part[p, nl.arange(4)[None, :]], axis=[1], negate=True)
        nl.store(out[128 * row + p, 0], value=largest)
""",
)
REDUCE_SLICES = current(
    "x",
    """
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(4):
        nisa.dma_copy(dst=tile[0:128, nl.ds(512 * c, 512)], src=x[0:128, nl.ds(512 * c, 512)])
        nisa.tensor_reduce(dst=part[0:128, nl.ds(c, 1)], op=nl.add, data=tile[0:128, nl.ds(512 * c, 512)], axis=1)
    nisa.tensor_reduce(dst=total, op=nl.add, data=part, axis=1)
    nisa.dma_copy(dst=out, src=total)
    return out
""",
)
DRAIN_TURNED = tiled(
    "x",
    (2, 8, 128, 128),
    c=128,
    body="""
    eye = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.load(eye[p, c])
    flipped = nl.zeros((2, 8, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
    kept = nl.ndarray((2, 8, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        tile = nl.load(x[row, p, nl.arange(1024)[None, :]])
        for i in nl.affine_range(8):
            flipped[row, i, p, c] = nisa.nc_matmul(tile[p, 128 * i + c], identity[p, c], is_transpose=True)
            kept[row, i, p, c] = nl.copy(flipped[row, i, p, c])
            ' end loop i '
        for i in nl.affine_range(8):
            nl.store(out[row, i, p, c], value=kept[row, i, p, c])
""",
)
DRAIN_SHAPES = [(2, 128, 1024)]
DRAIN_PARTS = tiled(
    "x",
    (4, 128, 128),
    c=128,
    body="""
    eye = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.load(eye[p, c])
    left = nl.ndarray((nl.par_dim(128), 4, 256), dtype=nl.float32, buffer=nl.sbuf)
    factor = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    factor[p, 0] = nl.load(x[0, p, 0])
    for row in nl.affine_range(2):
        for i in nl.affine_range(4):
            # each with a load of its own
            tile = nl.load(x[0, p, 512 * row + 128 * i + c], dtype=nl.float32)
            turned = nisa.nc_matmul(tile[p, c], identity[p, c], is_transpose=True)
            scaled = nisa.tensor_scalar(data=turned, op0=nl.multiply, operand0=factor[p, 0])
            left[p, i, 128 * row + c] = nl.add(scaled, 1.0)
    for i in nl.affine_range(4):
        nl.store(out[i, p, c], value=nl.add(left[p, i, c], left[p, i, 128 + c]))
""",
)
DRAIN_SUMS = tiled(
    "x, w",
    (4, 128, 128),
    c=128,
    body="""
    both = nl.ndarray((4, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total = nl.zeros((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            total[p, c] += nisa.nc_matmul(nl.load(x[k, p, c]), nl.load(w[i, k, p, c]))
        both[i, p, c] = nl.copy(total[p, c])
        nl.store(out[i, p, c], value=both[i, p, c])
""",
)
COLUMNS_BLOCKS = tiled(
    "x, w",
    (2, 3, 128, 1024),
    c=128,
    f=512,
    body="""
    wide = nl.arange(1024)[None, :]
    left = nl.ndarray((3, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((2, 2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    twice = nl.ndarray((2, 2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.zeros((2, 3, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    made = nl.ndarray((2, 3, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(3):
        for k in nl.affine_range(2):
            left[m, k, p, c] = nl.load(x[128 * k + p, 128 * m + c])
    for n in nl.affine_range(2):
        # the operand
        for k in nl.affine_range(2):
            right[n, k, p, wide] = nl.load(w[128 * k + p, wide + 1024 * n])
            twice[n, k, p, wide] = nl.multiply(right[n, k, p, wide], 2.0)
            ' end loop k '
        # the products
        for m in nl.affine_range(3):
            for h in nl.affine_range(2):
                for k in nl.affine_range(2):
                    part[n, m, h, p, f] += nisa.nc_matmul(left[m, k, p, c], twice[n, k, p, 512 * h + f])
                made[n, m, p, 512 * h + f] = nl.copy(part[n, m, h, p, f])
                ' end loop h '
            nl.store(out[n, m, p, wide], value=made[n, m, p, wide])
            ' end loop m '
""",
)
COLUMNS_SHAPES = [(256, 384), (256, 2048)]
COLUMNS_CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((3, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 3, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((128, 2, 1024), dtype=nl.float32, buffer=nl.sbuf)
    twice = nl.ndarray((128, 2, 1024), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(3):
        for k in nl.affine_range(2):
            nisa.dma_copy(dst=left[0:128, m, k, 0:128], src=x[nl.ds(128 * k, 128), nl.ds(128 * m, 128)])
    # the operand
    for k in nl.affine_range(2):
        nisa.dma_copy(dst=right[0:128, k, 0:1024], src=w[nl.ds(128 * k, 128), 0:1024])
        nisa.tensor_scalar(dst=twice[0:128, k, 0:1024], data=right[0:128, k, 0:1024], op0=nl.multiply, operand0=2.0)
    # the products
    for m in nl.affine_range(3):
        made = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        for h in nl.affine_range(2):
            part = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                nisa.nc_matmul(
                    dst=part, stationary=left[0:128, m, k, 0:128], moving=twice[0:128, k, nl.ds(512 * h, 512)], accumulate=k > 0
                )
            nisa.tensor_copy(dst=made[0:128, nl.ds(512 * h, 512)], src=part)
        nisa.dma_copy(dst=out[m, 0:128, 0:1024], src=made)
    return out
""",
)
STAGES_CHAIN = tiled(
    "x, w",
    (4, 128, 512),
    c=128,
    f=512,
    body="""
    w_tile = nl.load(w[p, f])
    product = nl.zeros((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    power = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(4):
        for part in nl.affine_range(2):
            x_tile = nl.load(x[row, part, p, c])
            product[row, p, f] += nisa.nc_matmul(x_tile, w_tile)
        # what other engines do
        power[row, p, f] = nisa.activation(op=nl.tanh, data=product[row, p, f])
        nl.store(out[row, p, f], value=power[row, p, f])
""",
)
STAGES_SHAPES = [(4, 2, 128, 128), (128, 512)]
STAGES_FED = tiled(
    "x, w",
    (4, 128, 512),
    c=128,
    f=512,
    body="""
    w_tile = nl.load(w[p, f])
    x_tile = nl.ndarray((4, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.zeros((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for row in nl.affine_range(4):
        for part in nl.affine_range(2):
            x_tile[row, part, p, c] = nl.load(x[row, part, p, c])
        for part in nl.affine_range(2):
            product[row, p, f] += nisa.nc_matmul(x_tile[row, part, p, c], w_tile)
        nl.store(out[row, p, f], value=nl.copy(product[row, p, f]))
""",
)
SPLIT_PRODUCT = tiled(
    "x, w",
    (2, 128, 512),
    f=512,
    body="""
    total = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    turned = nl.zeros((2, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
    x_t = nl.ndarray((2, 2, nl.par_dim(128), 128), dtype=nl.float32, name="x_t", buffer=nl.sbuf)
    w_tile = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(2):
        w_tile[k, p, f] = nl.load(w[k, p, f])
    for row in nl.affine_range(2):
        for k in nl.affine_range(2):
            x_tile = nl.load(x[row, k, p, nl.arange(128)[None, :]])
            turned[row, k, p, nl.arange(128)[None, :]] = nisa.nc_transpose(x_tile)
            x_t[row, k, p, nl.arange(128)[None, :]] = nl.copy(turned[row, k, p, nl.arange(128)[None, :]])
            total[row, p, f] += nisa.nc_matmul(x_t[row, k, p, nl.arange(128)[None, :]], w_tile[k, p, f])
        nl.store(out[row, p, f], value=nl.copy(total[row, p, f]))
""",
)
SPLIT_PRODUCT_SHAPES = [(2, 2, 128, 128), (2, 128, 512)]
SPLIT_HALF = tiled(
    "x, w",
    (2, 128, 512),
    f=512,
    body="""
    total = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    x_tile = nl.ndarray((2, nl.par_dim(64), 128), dtype=nl.float32, buffer=nl.sbuf)
    w_tile = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=nl.sbuf)
    w_tile[nl.arange(64)[:, None], f] = nl.load(w[nl.arange(64)[:, None], f])
    for row in nl.affine_range(2):
        x_tile[row, nl.arange(64)[:, None], nl.arange(128)[None, :]] = nl.load(x[row, nl.arange(64)[:, None], nl.arange(128)[None, :]])
        total[row, p, f] = nisa.nc_matmul(x_tile[row, nl.arange(64)[:, None], nl.arange(128)[None, :]], w_tile[nl.arange(64)[:, None], f])
        nl.store(out[row, p, f], value=nl.copy(total[row, p, f]))
""",
)
SPLIT_HALF_SHAPES = [(2, 64, 128), (64, 512)]
SPLIT_OVERWRITTEN = SPLIT_HALF.replace("total = nl.zeros", "total = nl.ndarray")
SPLIT_CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        x_t = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(2):
            x_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[row, k, 0:128, 0:128])
            nisa.dma_copy(dst=w_tile, src=w[k, 0:128, 0:512])
            nisa.nc_transpose(dst=turned, data=x_tile)
            nisa.tensor_copy(dst=x_t[0:128, k, 0:128], src=turned)
            nisa.nc_matmul(dst=total, stationary=x_t[0:128, k, 0:128], moving=w_tile, accumulate=k > 0)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=result)
    return out
""",
)
SCALE_CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        square = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        normed = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        normed_t = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        out_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:512])
        nisa.activation(dst=square, op=nl.square, data=x_tile)
        nisa.tensor_reduce(dst=total, op=nl.add, data=square, axis=1)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=total)
        nisa.tensor_scalar(dst=normed, data=x_tile, op0=nl.multiply, operand0=inverse)
        for k in nl.affine_range(4):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=normed[0:128, nl.ds(128 * k, 128)])
            nisa.tensor_copy(dst=normed_t[0:128, k, 0:128], src=turned)
        for k in nl.affine_range(4):
            w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=w_tile, src=w[k, 0:128, 0:512])
            nisa.nc_matmul(dst=product, stationary=normed_t[0:128, k, 0:128], moving=w_tile, accumulate=k > 0)
        nisa.tensor_copy(dst=out_tile, src=product)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=out_tile)
    return out
""",
)
DRAIN_FED = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 8, 64), dtype=nl.float32, buffer=nl.sbuf)
    for step in nl.affine_range(8):
        nisa.dma_copy(dst=w_tile[0:128, step, 0:64], src=w[step, 0:128, 0:64])
    for row in nl.affine_range(2):
        tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row, 0:128, 0:1024])
        for step in nl.affine_range(8):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            tile_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_transpose(dst=turned, data=tile[0:128, nl.ds(128 * step, 128)])
            nisa.tensor_copy(dst=tile_t, src=turned)
            nisa.nc_matmul(dst=total, stationary=tile_t, moving=w_tile[0:128, step, 0:64], accumulate=step > 0)
        # scaled by both engines in turn
        nisa.tensor_scalar(dst=result, data=total, op0=nl.multiply, operand0=0.5)
        nisa.dma_copy(dst=out[row, 0:128, 0:64], src=result)
    return out
""",
)
DRAIN_FED_SHAPES = [(2, 128, 1024), (8, 128, 64)]
STAGES_NORMED = current(
    "x, w",
    """
    out = nl.ndarray((4, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w)
    for row in nl.affine_range(4):
        tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        statistics = nl.ndarray((128, 2, 6), dtype=nl.float32, buffer=nl.sbuf)
        both = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
        centred = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        tile_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row, 0:128, 0:128])
        for half in nl.affine_range(2):
            nisa.bn_stats(dst=statistics[0:128, half, 0:6], data=tile[0:128, nl.ds(64 * half, 64)])
        nisa.bn_aggr(dst=both, data=statistics)
        nisa.tensor_scalar(dst=centred, data=tile, op0=nl.subtract, operand0=both[0:128, 0:1])
        nisa.nc_transpose(dst=turned, data=centred)
        nisa.tensor_copy(dst=tile_t, src=turned)
        for column in nl.affine_range(2):
            product = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
            result = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_matmul(dst=product, stationary=tile_t, moving=w_tile[0:128, nl.ds(256 * column, 256)])
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(256 * column, 256)], src=result)
    return out
""",
)
STAGES_NORMED_SHAPES = [(4, 128, 128), (128, 512)]
RECURRENCE = current(
    "x, w",
    """
    out = nl.ndarray((4, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    for head in nl.affine_range(4):
        gates = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        state = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        first = 8 * head
        nisa.dma_copy(dst=gates, src=w[0:128, nl.ds(first, 8)])
        # the state before the first step
        nisa.dma_copy(dst=state, src=x[head, 0:128, 0:64])
        for t in nl.sequential_range(8):
            step = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=step, data=state, op0=nl.multiply, operand0=gates[0:128, nl.ds(t, 1)])
            nisa.activation(dst=state, op=nl.tanh, data=step)
        nisa.dma_copy(dst=out[head, 0:128, 0:64], src=state)
    return out
""",
)
RECURRENCE_SHAPES = [(4, 128, 64), (128, 32)]
LOADED_RECURRENCE = (
    RECURRENCE.replace("        state = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)\n", "")
    .replace("nisa.dma_copy(dst=state, src=x[head, 0:128, 0:64])", "state = loaded(x[head, 0:128, 0:64])")
    .replace(
        "@nki.jit",
        "def loaded(part):\n    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)\n"
        "    nisa.dma_copy(dst=tile, src=part)\n    return tile\n\n\n@nki.jit",
    )
)
"""A recurrence whose state is a tile that a function loads."""
TWO_OPERATIONS = current(
    "x, y",
    """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    y_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_tile, src=x)
    nisa.dma_copy(dst=y_tile, src=y)
    nisa.scalar_tensor_tensor(dst=result, data=x_tile, op0=nl.multiply, operand0=0.9, op1=nl.subtract, operand1=y_tile, reverse1=True)
    nisa.dma_copy(dst=out, src=result)
    return out
""",
)
WHOLE_LOADS = current(
    "x, w",
    """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    # the weights
    w_tile = nl.ndarray((128, 8, 512), dtype=nl.float32, buffer=nl.sbuf)
    # from HBM
    nisa.dma_copy(dst=w_tile, src=w)
    x_tile = nl.ndarray((128, 8, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(
        dst=x_tile,
        src=x[0:128, 8:16, 0:128],
    )
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(8):
        nisa.nc_matmul(dst=total, stationary=x_tile[0:128, k, 0:128], moving=w_tile[0:128, k, 0:512], accumulate=k > 0)
    done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=done, src=total)
    nisa.dma_copy(dst=out, src=done)
    return out
""",
)
WHOLE_LOADS_SHAPES = [(128, 16, 128), (128, 8, 512)]
PIECES = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    for p in range(128):
        # a row
        nisa.dma_copy(dst=w_tile[p:p + 1, 0:512], src=w[0:1, 0:512])
    for b in nl.affine_range(2):
        x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for c in nl.affine_range(4):
            nisa.dma_copy(dst=x_tile[0:128, 128 * c:128 * c + 128], src=x[b, 128:256, 128 * c:128 * c + 128])
        nisa.tensor_tensor(dst=other, data1=x_tile, data2=w_tile, op=nl.multiply)
        nisa.dma_copy(dst=out[b, 0:128, 0:512], src=other)
    return out
""",
)
TWO_OPERATIONS_OF_ROWS = current(
    "x, y",
    """
    height, width = x.shape
    out = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range((height + 127) // 128):
        rows = min(128, height - 128 * row)
        x_tile = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
        y_tile = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[nl.ds(128 * row, rows), nl.ds(0, width)])
        nisa.dma_copy(dst=y_tile, src=y[nl.ds(128 * row, rows), nl.ds(0, width)])
        nisa.scalar_tensor_tensor(dst=result, data=x_tile, op0=nl.multiply, operand0=0.9, op1=nl.subtract, operand1=y_tile)
        nisa.dma_copy(dst=out[nl.ds(128 * row, rows), nl.ds(0, width)], src=result)
    return out
""",
)
STORED_PARTS = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:128])
        for part in nl.affine_range(8):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=product, stationary=x_tile, moving=w_tile[0:128, nl.ds(512 * part, 512)])
            # the result, a bank at a time
            result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(512 * part, 512)], src=result)
    return out
""",
)
STORED_PARTS_SHAPES = [(2, 128, 128), (128, 4096)]
LOADED_FIRST = current(
    "x, w",
    """
    out = nl.ndarray((3, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 2, 1024), dtype=nl.float32, buffer=nl.sbuf)
    w_kept = nl.ndarray((128, 2, 1024), dtype=nl.float32, buffer=nl.sbuf)
    # two rows of operands
    for k in nl.affine_range(2):
        loaded = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=w[0:128, k, 0:1024])
        nisa.tensor_copy(dst=w_tile[0:128, k, :], src=loaded)
        nisa.tensor_scalar(dst=w_kept[0:128, k, 0:1024], data=w_tile[0:128, k, 0:1024], op0=nl.multiply, operand0=0.5)
    x_tile = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_tile, src=x[0, 0:128, 0:2, 0:128])
    small = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=small, op=nl.exp, data=x_tile)
    for row in nl.affine_range(3):
        rows = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x[row, 0:128, 0:2, 0:128])
        both = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=both, data1=rows, data2=small, op=nl.multiply)
        for n in nl.affine_range(2):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                nisa.nc_matmul(dst=product, stationary=both[0:128, k, 0:128], moving=w_kept[0:128, k, nl.ds(512 * n, 512)], accumulate=k > 0)
            result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(512 * n, 512)], src=result)
    return out
""",
)
"""Operands of products that are loaded before the rows of the first product."""
LOADED_FIRST_SHAPES = [(3, 128, 2, 128), (128, 2, 1024)]
LOADED_FIRST_OLDER = tiled(
    "x, w",
    (128, 512),
    c=128,
    f=512,
    body="""
    w_tile = nl.load(w[p, f])
    x_tile = nl.load(x[p, c])
    small = nisa.activation(op=nl.exp, data=x_tile)
    product = nisa.nc_matmul(small, w_tile)
    nl.store(out[p, f], value=nl.copy(product))
""",
)
LOADED_IN_BLOCKS = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=1.0)
    for block in nl.sequential_range(2):
        w_kept = nl.ndarray((128, 2, 512), dtype=nl.float32, buffer=nl.sbuf)
        # a block of operands
        for k in nl.affine_range(2):
            loaded = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=loaded, src=w[0:128, k, nl.ds(512 * block, 512)])
            nisa.tensor_scalar(dst=w_kept[0:128, k, 0:512], data=loaded, op0=nl.multiply, operand0=0.5)
        first = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=first, src=x[block, 0:128, 0:2, 0:128])
        small = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=small, op=nl.exp, data=first)
        for row in nl.affine_range(2):
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                nisa.nc_matmul(dst=product, stationary=small[0:128, k, 0:128], moving=w_kept[0:128, k, 0:512], accumulate=k > 0)
            result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=result, data1=product, data2=total, op=nl.add)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(512 * block, 512)], src=result)
        nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=2.0)
    return out
""",
)
"""Operands of a block's products that are loaded before the rows of the first product, in a loop that carries a tile."""
LOADED_IN_BLOCKS_OLDER = tiled(
    "x, w",
    (2, 128, 512),
    c=128,
    f=512,
    body="""
    for block in nl.sequential_range(2):
        w_tile = nl.load(w[block, p, f])
        x_tile = nl.load(x[block, p, c], mask=(p < 100))
        small = nisa.activation(op=nl.exp, data=x_tile, mask=(p < 100))
        product = nisa.nc_matmul(small[p, c], w_tile[p, f], mask=(p < 100))
        nl.store(out[block, p, f], value=nl.copy(product))
""",
)
TURNED_FIRST = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((2, 128, 256), dtype=nl.float32, buffer=nl.private_hbm)
    w_tile = nl.ndarray((128, 2, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w)
    x_t = nl.ndarray((128, 3, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
    first = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=first, src=x[0, 0:128, 0:256])
    nisa.dma_copy(dst=kept[0, 0:128, 0:256], src=first)
    for k in nl.affine_range(2):
        turned_first = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_transpose(dst=turned_first, src=kept[0, :, nl.ds(128 * k, 128)])
        nisa.tensor_copy(dst=x_t[0:128, 0, k, 0:128], src=turned_first)
    for row in nl.sequential_range(1):
        tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row + 1, 0:128, 0:256])
        nisa.dma_copy(dst=kept[row + 1, 0:128, 0:256], src=tile)
        for k in nl.affine_range(2):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_transpose(dst=turned, src=kept[row + 1, 0:128, nl.ds(128 * k, 128)])
            nisa.tensor_copy(dst=x_t[0:128, row + 1, k, 0:128], src=turned)
    for row in nl.affine_range(2):
        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            nisa.nc_matmul(dst=product, stationary=x_t[0:128, row, k, 0:128], moving=w_tile[0:128, k, 0:512], accumulate=k > 0)
        result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=product)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=result)
    return out
""",
)
"""Rows that transfers transpose on the way from HBM: the first ones before the loop, the others in it."""
SPLIT_SCAN = legacy(
    "x, y, a",
    """
    out = nl.ndarray((2, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((2, nl.par_dim(128), 4096), dtype=nl.float32)
    for block in nl.affine_range(2):
        x_tile = nl.load(x[block, 0:128, 0:4096])
        factor = nl.load(a[block, 0:128, 0:1])
        decay = nisa.activation(op=nl.exp, data=x_tile, scale=factor)
        y_row = nl.load(y[0:1, 0:4096])
        y_tile = y_row.broadcast_to((128, 4096))
        state = nisa.tensor_tensor_scan(decay, y_tile, initial=0.5, op0=np.multiply, op1=np.add)
        product = nisa.tensor_tensor(state, x_tile, op=nl.multiply)
        total[block, 0:128, 0:4096] += product
    for block in nl.affine_range(2):
        nl.store(out[block, 0:128, 0:4096], value=total[block, 0:128, 0:4096])
    return out
""",
)
SPLIT_SCAN_CURRENT_SHAPES = [(2, 128, 4096), (128, 4096), (2, 128, 1)]
SPLIT_SCAN_SHAPES = [(2, 128, 4096), (1, 4096), (2, 128, 1)]
SPLIT_ADDED = tiled(
    "x, y",
    (2, 128, 2048),
    f=2048,
    body="""
    total = nl.zeros((nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    for step in nl.affine_range(3):
        for half in nl.affine_range(2):
            x_tile = nl.load(x[step, 0:128, 2048 * half:2048 * half + 2048])
            y_tile = nl.load(y[p, f])
            product = nisa.tensor_tensor(x_tile, y_tile, op=nl.multiply)
            total[p, 2048 * half + f] += product
    for half in nl.affine_range(2):
        nl.store(out[half, p, f], value=total[p, 2048 * half + f])
""",
)
SPLIT_ADDED_SHAPES = [(3, 128, 4096), (128, 2048)]
SPLIT_SCAN_CURRENT = current(
    "x, y, a",
    """
    out = nl.ndarray((2, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for block in nl.affine_range(2):
        x_tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
        factor = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        decay = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
        y_tile = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
        state = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[block, 0:128, 0:4096])
        nisa.dma_copy(dst=factor, src=a[block, 0:128, 0:1])
        nisa.activation(dst=decay, op=nl.exp, data=x_tile, scale=factor)
        nisa.dma_copy(dst=y_tile, src=y[0:128, nl.ds(0, 4096)])
        nisa.tensor_tensor_scan(dst=state, data0=decay, data1=y_tile, initial=0.5, op0=nl.multiply, op1=nl.add)
        nisa.tensor_tensor(dst=product, data1=state, data2=x_tile, op=nl.multiply)
        nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)
        nisa.dma_copy(dst=out[block, 0:128, 0:4096], src=product)
    nisa.dma_copy(dst=out[0, 0:128, 0:4096], src=total)
    return out
""",
)
ROOT = SILU.replace("op=nl.exp, data=x_tile, scale=-1.0", "op=nl.sqrt, data=x_tile, scale=3.0")
ROOT = ROOT.replace("    total = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)\n", "")
ROOT = ROOT.replace("reciprocal(data=total)", "reciprocal(data=decay)")
CURRENT_SILU = current(
    "x",
    """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    decay = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    sigmoid = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    y_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_tile, src=x)
    nisa.activation(dst=decay, op=nl.exp, data=x_tile, scale=-1.0)
    nisa.tensor_scalar(dst=total, data=decay, op0=nl.add, operand0=1.0)
    nisa.reciprocal(dst=sigmoid, data=total)
    nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=sigmoid, op=nl.multiply)
    nisa.dma_copy(dst=out, src=y_tile)
    return out
""",
)
TILES = tiled(
    "x",
    (128, 2048),
    f=512,
    body="""
    for t in nl.affine_range(4):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[p, 512 * t + f])
        root = nl.exp(tile[p, f])
        nl.store(out[p, 512 * t + f], value=root)
""",
)
CURRENT_LOADS = current(
    "x, w",
    """
    out = nl.ndarray((4, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(4):
        for k in nl.affine_range(2):
            x_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            w_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[row, 0:128, nl.ds(256 * k, 256)])
            nisa.dma_copy(dst=w_tile, src=w[0:128, nl.ds(256 * k, 256)])
            nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=w_tile, op=nl.multiply)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(256 * k, 256)], src=y_tile)
    return out
""",
)
REPEATED_RESULTS = current(
    "x, w",
    """
    out = nl.ndarray((4, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w[0:128, 0:512])
    for row in nl.affine_range(4):
        for k in nl.affine_range(2):
            x_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            square = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[row, 0:128, nl.ds(256 * k, 256)])
            nisa.tensor_tensor(dst=square, data1=w_tile[0:128, nl.ds(256 * k, 256)], data2=w_tile[0:128, nl.ds(256 * k, 256)], op=nl.multiply)
            nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=square, op=nl.add)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(256 * k, 256)], src=y_tile)
    return out
""",
)
OWN_SUMS = tiled(
    "x, y",
    (2, 3, 128, 512),
    c=128,
    f=512,
    body="""
    total = nl.zeros((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for m in nl.affine_range(2):
        for n in nl.affine_range(3):
            for k in nl.affine_range(2):
                left = nl.load(x[m, k, p, c])
                right = nl.load(y[n, k, p, f])
                total[m, n, p, f] += nisa.nc_matmul(left, right)
            made = nl.copy(total[m, n, p, f])
            nl.store(out[m, n, p, f], value=made)
""",
)
SQUARE_NESTS = BLOCKS.replace("4 * block + row", "block, row").replace("2 * half + row", "half, row")
SQUARE_NESTS = SQUARE_NESTS.replace("half in nl.affine_range(4)", "half in nl.affine_range(2)")
SQUARE_NESTS = SQUARE_NESTS.replace("row in nl.affine_range(2)", "row in nl.affine_range(4)")
SQUARE_NESTS = SQUARE_NESTS.replace("ndarray((8, nl.par_dim", "ndarray((2, 4, nl.par_dim").replace(
    "((8, 128", "((2, 4, 128"
)
SUM_CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 2, 512), dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((128, 3, 2, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for s in nl.sequential_range(3):
        for k in nl.affine_range(2):
            nisa.dma_copy(dst=right[0:128, s, k, 0:512], src=w[s, k, 0:128, 0:512])
        for m in nl.affine_range(2):
            # the products of one step
            part = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            left = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=x[s, m, 0:128, 0:2, 0:128])
            for k in nl.affine_range(2):
                nisa.nc_matmul(dst=part, stationary=left[0:128, k, 0:128], moving=right[0:128, s, k, 0:512], accumulate=k > 0)
            nisa.tensor_tensor(dst=total[0:128, m, 0:512], data1=total[0:128, m, 0:512], data2=part, op=nl.add)
    for m in nl.affine_range(2):
        nisa.dma_copy(dst=out[m, 0:128, 0:512], src=total[0:128, m, 0:512])
    return out
""",
)
NESTS_CURRENT = current(
    "x",
    """
    out = nl.ndarray((4, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    made = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        x_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[i, 0:128, 0:128])
        nisa.activation(dst=made[0:128, i, 0:128], op=nl.exp, data=x_tile)
    for j in nl.affine_range(4):
        y_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y_tile, data=made[0:128, j, 0:128], op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[j, 0:128, 0:128], src=y_tile)
    return out
""",
)
WORK_CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        w_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        w_half = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        copied = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        more = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:128])
        nisa.dma_copy(dst=w_tile, src=w)
        nisa.tensor_scalar(dst=w_half, data=w_tile, op0=nl.multiply, operand0=0.5)
        nisa.nc_matmul(dst=product, stationary=x_tile, moving=w_half)
        nisa.tensor_copy(dst=copied, src=product)
        nisa.tensor_scalar(dst=more, data=copied, op0=nl.add, operand0=2.0)
        nisa.tensor_tensor(dst=result, data1=more, data2=x_tile, op=nl.multiply)
        nisa.dma_copy(dst=out[row, 0:128, 0:128], src=result)
    return out
""",
)
WORK_CURRENT_SHAPES = [(2, 128, 128), (128, 128)]
TURNS_CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
        w_t = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:4, 0:128])
        for k in nl.affine_range(4):
            w_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.dma_copy(dst=w_tile, src=w[k, 0:128, 0:128])
            nisa.nc_transpose(dst=turned, data=w_tile)
            nisa.tensor_copy(dst=w_t[0:128, k, 0:128], src=turned)
        for k in nl.affine_range(4):
            nisa.nc_matmul(dst=total, stationary=x_tile[0:128, k, 0:128], moving=w_t[0:128, k, 0:128], accumulate=k > 0)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row, 0:128, 0:128], src=result)
    return out
""",
)
GROUPS_CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((2, 6, 128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for block in nl.affine_range(2):
        w_tile = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=w_tile, src=w[block, 0:128, 0:8192])
        for row in nl.affine_range(6):
            # the same for every block
            x_tile = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf)
            product = nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf)
            total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:8192])
            nisa.tensor_tensor(dst=product, data1=x_tile, data2=w_tile, op=nl.multiply)
            nisa.tensor_reduce(dst=total, op=nl.add, data=product, axis=1)
            nisa.dma_copy(dst=out[block, row, 0:128, 0:1], src=total)
    return out
""",
)
SUM_DECLARED = SUM_ADDED.replace(
    "    part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)\n", ""
).replace("part[n, s, m, p, f]", "part[p, f]")
SUM_DECLARED = SUM_DECLARED.replace(
    "                # the operand\n",
    "                part = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)\n",
)
SWAP_PLACES = (
    SWAP_GATED.replace("wide_t = nl.ndarray((2, 2, nl.par_dim", "wide_t = nl.ndarray((4, nl.par_dim")
    .replace("wide_t[row, part, p, c]", "wide_t[2 * row + part, p, c]")
    .replace("wide_t[row, n, p, c]", "wide_t[2 * row + n, p, c]")
)
SWAP_TWO = SWAP_GATED.replace(
    "        gate = nisa",
    "        other = nl.zeros((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.psum)\n"
    "        other += nisa.nc_matmul(stationary=x_t[row, p, c], moving=w_tile[p, f])\n"
    "        up = nl.copy(other)\n        gate = nisa",
).replace("nl.multiply(gate, product)", "nl.multiply(gate, up)")
SWAP_BIAS = SWAP_GATED.replace("scale=0.1", "scale=0.1, bias=zeros[p, 0]").replace(
    "    identity[p, c] =",
    "    zeros = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)\n"
    "    zeros[p, 0] = nisa.memset(shape=(128, 1), value=0.0, dtype=nl.float32)\n    identity[p, c] =",
)
REDUCE_BETWEEN = REDUCE_BLOCKS.replace(
    "        for a in nl.affine_range(2):\n            for b in nl.affine_range(2):\n                tile",
    "        for a in nl.affine_range(2):\n            for _ in nl.affine_range(1):\n              for b in nl.affine_range(2):\n                tile",
)
COLUMNS_NARROW = COLUMNS_BLOCKS.replace("twice[n, k, p, 512 * h + f])", "twice[n, k, p, 512 * h + 128 * q + c])")
COLUMNS_NARROW = COLUMNS_NARROW.replace("part[n, m, h, p, f] +=", "part[n, m, h, p, 128 * q + c] +=").replace(
    "                for k in nl.affine_range(2):\n                    part",
    "                for q in nl.affine_range(4):\n                  for k in nl.affine_range(2):\n                    part",
)
SPLIT_ELSEWHERE = SPLIT_HALF.replace("(nl.par_dim(64), 512), dtype", "tile_of(512), dtype").replace(
    "@nki.jit", "def tile_of(columns):\n    return nl.par_dim(64), columns\n\n\n@nki.jit"
)
_LINE = next(line for line in SPLIT_OVERWRITTEN.splitlines() if "total[row, p, f] = nisa" in line)
SPLIT_UNROLLED = SPLIT_OVERWRITTEN.replace(_LINE, f"{_LINE}\n" + _LINE.replace("total[row", "total[2 + row"))
SPLIT_UNROLLED = SPLIT_UNROLLED.replace("total = nl.ndarray((2,", "total = nl.ndarray((4,")
SPLIT_STACKED = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w[0:64, 0:512])
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=TILE, src=x[row, 0:64, 0:128])
        nisa.nc_matmul(dst=total, stationary=TILE, moving=w_tile[0:64, nl.ds(0, 512)])
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=result)
    return out
""",
)
_SECOND = SPLIT_HALF.split("buffer=nl.shared_hbm)\n", 1)[1].replace("total", "more").replace("_tile", "_half")
_SECOND = _SECOND.replace("x[row", "y[row").replace("w[", "v[").replace("out[row, p", "out[2 + row, p")
_SECOND = _SECOND.replace("    p = nl.arange(128)[:, None]\n    f = nl.arange(512)[None, :]\n", "")
SPLIT_APART = SPLIT_PRODUCT.replace(
    "(2, 128, 512), dtype=nl.float32, buffer=nl.shared", "(4, 128, 512), dtype=nl.float32, buffer=nl.shared"
)
SPLIT_APART = SPLIT_APART.replace("kernel(x, w)", "kernel(x, w, y, v)").replace("    return out\n", _SECOND)
"""Products that share no operand, so that each is also split alone."""
SPLIT_ENGINES = legacy(
    "x, y",
    """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    x_tile = nl.load(x[0:128, 0:512])
    y_tile = nl.load(y[0:128, 0:512])
    product = nl.multiply(x_tile, y_tile)
    result = nl.add(product, y_tile)
    nl.store(out[0:128, 0:512], value=result)
    return out
""",
)

TURNED_BLOCKS = current(
    "x, w",
    """
    out = nl.ndarray((3, 2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for n in nl.affine_range(3):
        w_tile = nl.ndarray((128, 4, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=w_tile, src=w[n, 0:128, 0:4, 0:512])
        for row in nl.affine_range(2):
            x_tile = nl.ndarray((128, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            # the same rows for every block of columns
            nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:4, 0:128])
            for k in nl.affine_range(4):
                turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
                x_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                nisa.nc_transpose(dst=turned, data=x_tile[0:128, k, 0:128])
                nisa.tensor_copy(dst=x_t, src=turned)
                nisa.nc_matmul(dst=product, stationary=x_t, moving=w_tile[0:128, k, 0:512], accumulate=k > 0)
            nisa.tensor_copy(dst=made, src=product)
            nisa.dma_copy(dst=out[n, row, 0:128, 0:512], src=made)
    return out
""",
)
"""Blocks of loaded rows that every iteration of an outer loop turns again."""
TURNED_ROWS = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 4, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        scaled = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:512])
        nisa.tensor_scalar(dst=scaled, data=x_tile, op0=nl.multiply, operand0=0.5)
        # blocks of rows that this kernel makes itself
        for k in nl.affine_range(4):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            x_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_transpose(dst=turned, data=scaled[0:128, 128 * k : 128 * k + 128])
            nisa.tensor_copy(dst=x_t, src=turned)
            nisa.nc_matmul(dst=product, stationary=x_t, moving=w_tile[0:128, k, 0:512], accumulate=k > 0)
        nisa.tensor_copy(dst=made, src=product)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=made)
    return out
""",
)
"""Blocks of a tile that its iteration makes, turned one by one on the tensor engine."""
KEPT_CURRENT = current(
    "x",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.private_hbm)
    for row in nl.affine_range(2):
        first = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=first, src=x[row, 0:128, 0:512])
        nisa.dma_copy(dst=kept[row, 0:128, 0:512], src=first)
    for row in nl.affine_range(2):
        again = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=again, src=kept[1 - row, 0:128, 0:512])
        nisa.tensor_scalar(dst=made, data=again, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=made)
    return out
""",
)
TURNED_PARTS = current(
    "x",
    """
    out = nl.ndarray((2, 128, 4, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:512])
        for k in nl.affine_range(4):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            high = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
            low = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)
            made = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.nc_transpose(dst=turned, data=x_tile[0:128, nl.ds(128 * k, 128)])
            nisa.tensor_copy(dst=high, src=turned)
            nisa.tensor_tensor(dst=low, data1=turned, data2=high, op=nl.subtract)
            nisa.tensor_tensor(dst=made, data1=high, data2=low, op=nl.add)
            nisa.dma_copy(dst=out[row, 0:128, k, 0:128], src=made)
    return out
""",
)
"""A float32 tile that is transposed, and then divided into bfloat16 parts."""
BESIDE = current(
    "x, w, u",
    """
    out = nl.ndarray((2, 128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 2, 256), dtype=nl.float32, buffer=nl.sbuf)
    u_tile = nl.ndarray((128, 2, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w)
    nisa.dma_copy(dst=u_tile, src=u)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        gate = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
        up = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
        kept = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        made = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:2, 0:128])
        for k in nl.affine_range(2):
            nisa.nc_matmul(dst=gate, stationary=x_tile[0:128, k, 0:128], moving=w_tile[0:128, k, 0:256], accumulate=k > 0)
        for k in nl.affine_range(2):
            nisa.nc_matmul(dst=up, stationary=x_tile[0:128, k, 0:128], moving=u_tile[0:128, k, 0:256], accumulate=k > 0)
        nisa.tensor_copy(dst=kept, src=gate)
        nisa.tensor_tensor(dst=made, data1=kept, data2=up, op=nl.multiply)
        nisa.dma_copy(dst=out[row, 0:128, 0:256], src=made)
    return out
""",
)
"""Two products that share an operand, side by side in one loop."""
TURNS_AHEAD = current(
    "x, w",
    """
    out = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    x_tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    w_tile = nl.ndarray((128, 8, 256), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
    made = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_tile, src=x)
    nisa.dma_copy(dst=w_tile, src=w)
    for step in nl.affine_range(4):
        turned = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.psum)
        x_t = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        for part in nl.affine_range(2):
            nisa.nc_transpose(dst=turned[0:128, part, 0:128], data=x_tile[0:128, nl.ds(256 * step + 128 * part, 128)])
        nisa.tensor_copy(dst=x_t, src=turned)
        for part in nl.affine_range(2):
            nisa.nc_matmul(dst=total, stationary=x_t[0:128, part, 0:128], moving=w_tile[0:128, 2 * step + part, 0:256], accumulate=2 * step + part > 0)
    nisa.tensor_copy(dst=made, src=total)
    nisa.dma_copy(dst=out, src=made)
    return out
""",
)
"""Blocks that are transposed and then multiplied, all into one sum."""
DRAIN_NARROW = current(
    "x",
    """
    out = nl.ndarray((128, 2, 8, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
        rounded = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)
        rounded_t = nl.ndarray((128, 8, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:1024])
        nisa.tensor_copy(dst=rounded, src=x_tile)
        for k in nl.affine_range(8):
            turned = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=rounded[0:128, nl.ds(128 * k, 128)])
            nisa.tensor_copy(dst=rounded_t[0:128, k, 0:128], src=turned)
        nisa.dma_copy(dst=out[0:128, row, 0:8, 0:128], src=rounded_t)
    return out
""",
)
PEAKS = tiled(
    "x",
    (128, 1024),
    f=1024,
    body="""
    one = nl.arange(1)[None, :]
    x_tile = nl.load(x[p, f])
    half = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    peak = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    half[p, f] = nisa.tensor_scalar(data=x_tile, op0=nl.multiply, operand0=0.5)
    peak[p, one] = nisa.tensor_reduce(nl.max, data=half[p, f], axis=[1])
    y_tile = nl.subtract(half[p, f], peak[p, one])
    nl.store(out[p, f], value=y_tile)
""",
)
PEAKS_CURRENT = current(
    "x",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        half = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        peak = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        below = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:512])
        nisa.tensor_scalar(dst=half, data=x_tile, op0=nl.multiply, operand0=0.5, engine=nisa.engine.scalar)
        nisa.tensor_reduce(dst=peak, op=nl.maximum, data=half, axis=1)
        nisa.tensor_scalar(dst=below, data=half, op0=nl.subtract, operand0=peak)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=below)
    return out
""",
)
"""Rows less their maximum."""

# Kernels stand above this line, and below it the list of places: a line each for a place and for a change of it.
# fmt: off
PLACES = [
    Example("keep_on_chip", KEPT_CURRENT, [(2, 128, 512)],
        stays=[
        ("src=kept[1 - row, 0:128, 0:512]", "src=kept[0:2, 0:128, 0:512]"),
        ("    return out", "    return out, kept"),
        ("    return out", "    nisa.dma_copy(dst=kept[0, 0:128, 0:512], src=kept[1, 0:128, 0:512])\n    return out"),
        ("kept[row, 0:128", "kept[row, 64:128"),
        ("dtype=nl.float32, buffer=nl.private_hbm", "dtype=nl.float32, buffer=nl.shared_hbm"),
        ]),
    Example("keep_on_chip", KEPT_CURRENT.replace("0:512], src=first", "0:512], src=x[row, 0:128, 0:512]"), [(2, 128, 512)]),
    Example("keep_on_chip", KEPT_CURRENT.replace("src=made", "src=kept[1 - row, 0:128, 0:512]"), [(2, 128, 512)]),
    Example("transpose_once", TURNED_BLOCKS, [(2, 128, 4, 128), (3, 128, 4, 512)],
        stays=[
        ("src=x[row, 0", "src=x[row + n - n // 1, 0"),
        ("n in nl.affine_range", "n in nl.sequential_range"),
        ("dst=made, src=product", "dst=made[0:128, 0:128], src=x_tile[0:128, 0, 0:128]"),  # read elsewhere too
        ("stationary=x_t,", "stationary=x_tile[0:128, k, 0:128],"),
        ("data=x_tile[0:128, k, 0:128]", "data=x_tile[0:128, 0, 0:128]"),  # one block again and again
        ("                nisa.tensor_copy(dst=x_t", "                other = x_tile\n                nisa.tensor_copy(dst=x_t"),
        ]),
    Example("turn_by_transfer", TURNED_ROWS, [(2, 128, 512), (128, 4, 512)],
        stays=[
        ("128 * k + 128])", "128 * k + 128], engine=nisa.tensor_engine)"),
        ("        # blocks", "        nisa.tensor_copy(dst=scaled, src=x_tile)\n        # blocks"),  # made twice
        ("        # blocks", "        other = scaled\n        # blocks"),
        ("nisa.tensor_copy(dst=x_t, src=turned)", "nisa.nc_transpose(dst=turned, data=x_tile[0:128, 0:128])\n            nisa.tensor_copy(dst=x_t, src=turned)"),
        ("    for row in nl.affine_range(2):\n", "    scaled = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\n    for row in nl.affine_range(2):\n",
         "        scaled = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\n        product", "        product"),
        ]),
    Example("composite_activation", SILU, [TILE],
        stays=[
        ("operand0=1.0)", "operand0=2.0)"),  # not 1 + exp(-x)
        ("scale=-1.0", "scale=-2.0"),
        ("nl.multiply(x_tile, sigmoid)", "nl.multiply(x_tile, nl.add(sigmoid, total))"),  # another reader
        ("    y_tile =", "    x_tile[p, f] = nl.add(x_tile, 1.0)\n    y_tile ="),  # x changes in between
        ("data=decay, op0", "data=decay[p, f], op0"),  # not provably the same tile
        ("reciprocal(data=total)", "reciprocal(data=total, mask=f < 1000)"),  # masked tail
        ("    total =", "    other = decay\n    total ="),  # alias
        ], what="silu"),
    Example("composite_activation", SILU.replace("y_tile = nl.multiply(x_tile, sigmoid)", "y_tile = nl.multiply(sigmoid, 2.0)"), [TILE]),
    Example("composite_activation", ROOT, [TILE], positive=True),
    Example("composite_activation", SQUARE, [TILE],
        stays=[
        ("operand0=0.25", "operand0=-0.25"),  # no real root
        ("operand0=0.25", "operand0=x_tile[p, 0]"),  # no number
        ("nl.multiply(small, x_tile)", "nl.multiply(small, decay)"),
        ("    y_tile =", "    x_tile[p, f] = nl.add(x_tile, 1.0)\n    y_tile ="),
        ("operand0=0.25)", "operand0=0.25, mask=f < 1000)"),
        ], what="square"),
    Example("composite_activation", CURRENT_SILU, [(128, 512)]),
    Example("widen_tiles", CHUNKS.replace("kernel(x)", "kernel(x, parts)"), [(4, 128, 1024), (4, 2, 128, 512)],
        stays=[
        ("data=x_tile[i, p, 512 * c + f]", "data=x_tile[i, p, f]"),  # the same columns in every step
        ("mask=128 * i + p < 500)\n            y_tile", "mask=512 * c + f < 1000)\n            y_tile"),  # masked tail
        ("data=x_tile[i, p, 512 * c + f]", "data=x_tile[i, p, 512 * c + 1 * f // 1]"),  # not understood
        ("nl.affine_range(2)", "nl.affine_range(count)"),  # unknown trips
        ("            # twice", "            keep = half\n            # twice"),  # alias
        ("nl.store(out[i, p, wide]", "nl.copy(half[i, 0, p, f])\n        nl.store(out[i, p, wide]"),  # read elsewhere
        ("= nl.multiply(half[i, c, p, f]", "+= nl.multiply(half[i, c, p, f]"),  # running sum
        ("data=x_tile[i, p, 512 * c + f]", "data=x_tile[c, p, 512 * c + f]"),  # another tile for each step
        ("half = nl.ndarray((4, 2, nl.par_dim(128), 512)", "half = nl.ndarray(parts.shape"),  # no shape to change
        ("x_tile[i, p, 512 * c + f]", "row[nl.ds(512 * c, 512)]"),
        ("half = nl.ndarray((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)", "half = nl.zeros((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)"),
        ], runs=False),
    Example("widen_tiles", BIASED, BIASED_SHAPES,
        stays=[
        ("nl.broadcast_to(row, (128, 256))", "nl.broadcast_to(row, b.shape)"),  # no count to change
        ("nl.broadcast_to(row, (128, 256))", "nl.broadcast_to(b[0:1, 0:256], (128, 256))"),  # the same columns in every step
        ("offset=1024 + 256 * c", "offset=1024 + 128 * c"),  # another step
        ("offset=1024 + 256 * c", "offset=1024 + 256 * (c // 2)"),  # two steps read the same
        ("[1, 256]], offset", "[2, 256]], offset"),
        ("offset=1024 + 256 * c)", "offset=1024, vector_offset=row)"),
        ("src=w[0:128, 0:1]", "src=w[0:128, nl.ds(c, 1)]"),  # another number for each step
        ("range(2)", "range(c)"),
        ("operand0=factor", "operand0=x_tile[0:128, 0:1]"),  # another column of the wider tile
        ("        for k in", "        nisa.memset(dst=first[0:128, 0:4], value=0.0)\n        for k in"),
        ("        for k in", "        nisa.tensor_copy(dst=factor, src=first[0:128, 0:1])\n        for k in"),
        ("        # the bias", "        other = row\n        # the bias"),
        ]),
    Example("load_once", READ_IN_PARTS, [(128, 640), (512, 64)],
        stays=[
        ("128 * k + 64:128 * k + 192", "64 * k + 64:64 * k + 192"),  # overlapping parts
        ("        # a part", "        nisa.dma_copy(dst=x[0:128, 0:64], src=done)\n        # a part"),  # what is loaded changes
        ("        nisa.dma_copy(dst=part,", "        nisa.memset(dst=part, value=0.0)\n        nisa.dma_copy(dst=part,"),
        ("data=part)", "data=part[0:128, ::1])"),  # columns that are not understood
        ("    return out", "    nisa.tensor_copy(dst=done, src=part[0:128, 0:64])\n    return out"),
        ("buffer=nl.sbuf)\n        nisa.dma_copy(dst=part,", "buffer=nl.sbuf, name=f'part{k}')\n        nisa.dma_copy(dst=part,"),
        ("        # a part", "        here = 64\n        # a part", "128 * k + 64:128 * k + 192", "128 * k + here:128 * k + here + 128"),
        ("        # a part", "        other = part\n        # a part"),
        ], what=".* of x"),
    Example("widen_tiles", TILES, [(128, 2048)]),
    Example("transpose_once", PRODUCT, PRODUCT_SHAPES,
        stays=[
        ("x_tile[p, 128 * k + c], w_tile", "x_tile[p, 64 * k + 64 * column + c], w_tile"),  # depends on both loops
        ("            w_tile =", "            x_tile[p, c] = nl.load(x[p, c])\n            w_tile ="),  # written in it
        ("nl.matmul(x_tile[p, 128 * k + c], w_tile)", "nl.matmul(x_tile[p, 128 * k + c], w_tile, transpose_x=True)"),
        ("], w_tile)", "], w_tile, mask=f < 500)"),  # masked
        ("    for column", "    view = x_tile\n    for column"),  # alias
        ("nl.affine_range(2):\n        total", "nl.sequential_range(2):\n        total"),  # may depend on order
        ("            w_tile =", "            at = 128 * k + c\n            w_tile =", "nl.matmul(x_tile[p, 128 * k + c]", "nl.matmul(x_tile[p, at]"),
        ]),
    Example("reduce_in_activation", SUM, [TILE],
        stays=[
        ("tensor_reduce(nl.add", "tensor_reduce(nl.max"),  # the engine only adds
        ("data=power, axis", "data=x_tile, axis"),  # not what the activation wrote
        ("data=power, axis=[1]", "data=power, axis=[1], mask=p < 100"),  # masked
        ("data=power, axis=[1]", "data=power, axis=[1], negate=True"),
        ("    total =", "    power[p, f] = nl.add(power, 1.0)\n    total ="),  # changed in between
        ("    total =", "    other = power\n    total ="),  # alias
        ]),
    Example("reduce_in_activation", SUM.replace("nisa.activation(op=nl.exp, data=x_tile, scale=0.5)", "nl.multiply(x_tile, x_tile)"), [TILE]),
    Example("reduce_in_activation", SUM.replace("nisa.activation(op=nl.exp, data=x_tile, scale=0.5)", "nl.square(x_tile)").replace("nisa.tensor_reduce(nl.add, data=power, axis=[1])", "nl.sum(power, axis=[1])"), [TILE]),
    Example("reduce_in_copy", PEAKS, [TILE],
        stays=[
        ("nl.max, data", "nl.bitwise_or, data"),
        ("operand0=0.5)", "operand0=0.5, op1=nl.add, operand1=1.0)"),
        ("operand0=0.5)", "operand0=0.5, mask=p < 100)"),  # masked
        ("axis=[1])", "axis=[1], negate=True)"),
        ("    peak[p, one] =", "    half[p, f] = nl.add(x_tile, 1.0)\n    peak[p, one] ="),  # changed in between
        ]),
    Example("reduce_in_copy", PEAKS_CURRENT, [(2, 128, 512)],
        stays=[
        ("op=nl.maximum", "op=nl.multiply"),
        ("operand0=0.5,", "operand0=0.5, reverse0=True,"),
        ("half = nl.ndarray((128, 512), dtype=nl.float32", "half = nl.ndarray((128, 512), dtype=nl.bfloat16"),  # rounded
        ("data=half, axis=1", "data=half[0:128, 0:256], axis=1"),
        ("data=half, axis=1", "data=half, axis=1, negate=True"),
        ("        nisa.tensor_reduce(", "        other = half\n        nisa.tensor_reduce("),  # alias
        ("        nisa.tensor_reduce(", "        nisa.memset(dst=peak, value=1.0)\n        nisa.tensor_reduce("),
        ]),
    Example("reduce_in_copy", PEAKS_CURRENT.replace("tensor_scalar(dst=half, data=x_tile, op0=nl.multiply, operand0=0.5,", "tensor_copy(dst=half, src=x_tile,"), [(2, 128, 512)],
        stays=[
        ("x_tile = nl.ndarray((128, 512), dtype=nl.float32", "x_tile = nl.ndarray((128, 512), dtype=nl.int32"),  # not exact in float32
        ]),
    Example("pipeline_stages", TURNS_AHEAD, [(128, 1024), (128, 8, 256)], what="transposes",
        stays=[
        ("step in nl.affine_range", "step in nl.sequential_range"),
        ("part > 0)", "part > 0)\n        nisa.tensor_copy(dst=x_tile[0:128, 0:256], src=x_t)"),  # the next transposes read it
        ]),
    Example("split_products", BESIDE, [(2, 128, 2, 128), (128, 2, 256), (128, 2, 256)], what="this product",
        stays=[
        ("dst=up, stationary", "dst=gate, stationary"),  # two terms of one sum
        ]),
    Example("turn_parts", TURNED_PARTS, [(2, 128, 512)],
        stays=[
        ("data2=high, op=nl.subtract", "data2=high, op=nl.add"),  # not the rest
        ("data1=high, data2=low", "data1=turned, data2=low"),  # the transposed tile is also read
        ("low = nl.ndarray((128, 128), dtype=nl.bfloat16", "low = nl.ndarray((128, 128), dtype=nl.float32"),
        ("            nisa.tensor_tensor(dst=low", "            nisa.memset(dst=high, value=1.0)\n            nisa.tensor_tensor(dst=low"),
        ("            nisa.tensor_copy(", "            other = x_tile\n            nisa.tensor_copy("),  # alias
        ("            nisa.tensor_copy(", "            nisa.memset(dst=turned[0:128, 0:64], value=1.0)\n            nisa.tensor_copy("),
        ]),
    Example("consume_psum", FROM_PSUM, FROM_PSUM_SHAPES,
        stays=[
        ("value=result", "value=copied"),  # a store can not read PSUM
        ("nl.multiply(copied, y_tile)", "nl.multiply(copied, copied)"),  # two operands in PSUM
        ("nl.multiply(copied, y_tile)", "nl.multiply(copied, product)"),
        ("nl.copy(product)", "nl.copy(product, dtype=nl.bfloat16)"),  # rounds
        ("y[p, f])", "y[p, f], dtype=nl.bfloat16)", "nl.copy(product)", "nl.copy(product, dtype=y_tile.dtype)"),
        ("nl.multiply(copied, y_tile)", "nl.multiply(copied, y_tile, mask=f < 100)"),  # other mask
        ("    result =", "    view = copied\n    result ="),  # alias
        ]),
    Example("consume_psum", FROM_PSUM.replace("nl.copy(product)", "nl.copy(product, dtype=y.dtype)"), FROM_PSUM_SHAPES,
        other_dtypes=[("float32", "float32", "bfloat16"), ("float32", "float32", "")]),  # rounds, may round
    Example("fold_scalars", FOLDS, [TILE, TILE],
        stays=[
        ("nl.subtract(more, small)", "nl.subtract(more, twice)"),  # another reader
        ("    more =", "    x_tile[p, f] = nl.add(x_tile, 1.0)\n    more ="),  # operand changes in between
        ("data=x_tile, op0=nl.multiply, operand0=2.0", "data=x_tile, op0=nl.multiply, operand0=2.0, mask=f < 9"),
        ("operand0=2.0)", "operand0=2.0, dtype=nl.bfloat16)"),  # rounds in between
        ("    more =", "    view = twice\n    more ="),  # alias
        ], what=" tensor_scalar "),
    Example("fold_scalars", QUOTIENT, [TILE, TILE],
        stays=[
        ("nl.multiply(x_tile, inverse)", "nl.add(x_tile, inverse)"),
        ("nl.multiply(x_tile, inverse)", "nl.multiply(inverse, inverse)"),
        ("nl.multiply(x_tile, inverse)", "nl.multiply(x_tile, inverse, mask=f < 1000)"),  # masked tail
        ("    result =", "    power[p, f] = nl.add(power, 1.0)\n    result ="),  # operand changes in between
        ("    result =", "    view = inverse\n    result ="),  # alias
        ], what="divide"),
    Example("place_engine", FROM_PSUM, FROM_PSUM_SHAPES,
        stays=[
        ("nl.copy(product)", "nisa.tensor_copy(product, engine=nisa.vector_engine)"),
        ], what="copies leave"),
    Example("hoist_loads", REPEATED, REPEATED_SHAPES,
        stays=[
        ("w[p, 512 * k + f]", "w[p, 256 * k + 128 * row + f]"),  # depends on the loop
        ("w[p, 512 * k + f]", "w[p, 512 * k + f], mask=f < 500"),  # masked tail
        ("w[p, 512 * k + f]", "out[0, p, 512 * k + f]"),  # the kernel writes it
        ("            y_tile", "            w_tile = nl.add(w_tile, 1.0)\n            y_tile"),  # changed in the loop
        ("            y_tile", "            other = w_tile\n            y_tile"),  # alias
        ("nl.affine_range(2)", "nl.affine_range(count)"),  # unknown trips
        ("            w_tile = nl.load(w[p, 512 * k + f])", "            at = 512 * k + f\n            w_tile = nl.load(w[p, at])"),
        ("nl.affine_range(2)", "nl.affine_range(100)"),
        ]),
    Example("hoist_loads", CURRENT_LOADS, [(4, 128, 512), (128, 512)]),
    Example("hoist_results", REPEATED_RESULTS, [(4, 128, 512), (128, 512)],
        stays=[
        ("data1=w_tile[0:128, nl.ds(256 * k, 256)]", "data1=x_tile"),  # loaded in the loop
        ("data1=w_tile[0:128, nl.ds(256 * k, 256)]", "data1=w_tile[0:128, nl.ds(64 * row, 256)]"),  # depends on the loop
        ("data1=w_tile[0:128, nl.ds(256 * k, 256)]", "data1=square"),  # reads what it writes
        ("dst=square,", "dst=square[0:64, 0:256],"),  # writes a part
        ("            nisa.tensor_tensor(dst=y_tile", "            nisa.memset(dst=square[0:128, 0:1], value=0.0)\n            nisa.tensor_tensor(dst=y_tile"),
        ("            nisa.tensor_tensor(dst=y_tile", "            other = square\n            nisa.tensor_tensor(dst=y_tile"),  # second name
        ("            nisa.dma_copy(dst=out", "            nisa.tensor_tensor(dst=w_tile, data1=w_tile, data2=w_tile, op=nl.add)\n            nisa.dma_copy(dst=out"),
        ("    for row in", "    view = w_tile.reshape((128, 512))\n    for row in", "            nisa.dma_copy(dst=out", "            nisa.memset(dst=view, value=1.0)\n            nisa.dma_copy(dst=out"),
        ("            nisa.dma_copy(dst=out", "            helper(w_tile)\n            nisa.dma_copy(dst=out"),  # not understood
        ("nl.affine_range(4)", "nl.affine_range(count)"),  # unknown trips
        ("nl.affine_range(2)", "nl.affine_range(200)"),  # does not fit
        ("    return out", "    k = 1\n    return out"),  # the index has another use
        ("op=nl.multiply)", "op=nl.multiply, name='square')"),
        ]),
    Example("interchange_loops", NEST, NEST_SHAPES,
        stays=[
        ("nl.affine_range(3)", "nl.sequential_range(3)"),  # order may matter
        ("+= nl.multiply(x_tile, y_tile)", "+= nl.multiply(x_tile, total[tile, p, f])"),  # loop-carried value
        ("    for step in nl.affine_range(3):\n", "    for step in nl.affine_range(3):\n        z_tile = nl.load(y[step, p, f])\n"),
        ("            y_tile =", "            alias = total\n            y_tile ="),
        ("            y_tile =", "            last = nl.copy(x_tile)\n            y_tile =", "value=total[tile, p, f]", "value=last"),
        ]),
    Example("interchange_loops", OWN_SUMS, [(2, 2, 128, 128), (3, 2, 128, 512)],
        stays=[
        ("total[m, n, p, f]", "total[m, n // 2, p, f]"),
        ]),
    Example("fuse_nests", HANDOVER, HANDOVER_SHAPES,
        stays=[
        ("made[line, block, p, f]", "made[3 - line, block, p, f]"),  # another iteration's part
        ("nl.affine_range(4):\n            # what", "nl.sequential_range(4):\n            # what"),
        ("for line in nl.affine_range(4)", "for line in nl.affine_range(3)"),  # other trips
        ("made[line, block, p, f], most", "made[line, block, p, f], most[0, p, 0] if False else most"),
        ("    for line in", "    view = made\n    for line in"),  # alias
        ("    for line in", "    check = nl.copy(made[0, 0, p, f])\n    nl.store(out[0, p, f], value=check)\n    for line in"),
        ("w_tile = nl.ndarray((2, nl.par_dim", "w_tile = nl.ndarray((nl.par_dim", "w_tile[block, p, f]", "w_tile[p, f]"),
        ]),
    Example("fuse_nests", BLOCKS, BLOCKS_SHAPES,
        stays=[
        ("made[2 * half + row, p, f])", "made[2 * half - row + 1, p, f])\n            z_tile = nl.exp(made[7 - 2 * half, p, f])"),
        ("nl.exp(made[2 * half + row", "nl.exp(made[half + row"),  # parts of two blocks
        ("nl.exp(made[2 * half + row", "nl.exp(made[2 * half + 2 * row"),
        ("for half in nl.affine_range(4)", "for half in nl.sequential_range(4)"),
        ("for half in nl.affine_range(4)", "for half in nl.affine_range(3)"),
        ("    # two parts", "    view = made\n    # two parts"),  # alias
        ]),
    Example("fuse_nests", SQUARE_NESTS, [(2, 4, 128, 512)]),
    Example("keep_on_chip", SCRATCH, SCRATCH_SHAPES,
        stays=[
        ("nl.store(kept[row, p, wide], value=doubled)", "nl.store(kept[row, p, wide], value=doubled, mask=wide < 512)"),
        ("    return out\n", "    return out, kept\n"),
        ("again = nl.load(kept[row, p, wide])", "again = nl.load(kept[p // 32, p % 32 + row, wide])"),
        ("value=doubled", "value=doubled + 1.0"),
        ]),
    Example("keep_on_chip", SCRATCH.replace("again[p, 512 * half + f], y_tile[p, 512 * half + f]", "again[0:128, nl.ds(512 * half, 512)], y_tile[0:128, nl.ds(512 * half, 512)]"), SCRATCH_SHAPES),
    Example("keep_on_chip", SCRATCH.replace("doubled = nisa", "kept_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32)\n        kept_tile[p, wide] = nisa").replace("value=doubled", "value=kept_tile[p, wide]"), SCRATCH_SHAPES),
    Example("hoist_work", REPEATED_WORK, REPEATED_WORK_SHAPES,
        stays=[
        ("row % 4, p, f])", "block, p, f])"),  # depends on the loop
        ("row % 4, p, f])", "row % 4, p, f], mask=128 * block + p < 300)"),  # masked tail
        ("= nl.multiply(x_tile[block, row, p, f], 2.0)", "+= nl.multiply(x_tile[block, row, p, f], 2.0)"),  # running sum
        ("x_tile[block, row, p, f], 2.0)", "w_tile[block, p, f], 2.0)"),  # what the rest makes
        ("    for block in", "    other = twice\n    for block in"),  # alias
        ("    return out", "    nl.store(out[0, 0, p, 0], value=twice[0, 0, p, 0])\n    return out"),  # used after the loop
        ("twice[block, row, p, f]", "twice", "    twice = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)\n", ""),
        ], what=" block "),
    Example("group_iterations", REPEATED_WORK, REPEATED_WORK_SHAPES,
        stays=[
        ("for block in nl.affine_range", "for block in nl.sequential_range"),
        ("            twice[", "            view = w_tile\n            twice["),  # alias
        ("w_tile[block, p, f] = nl.load", "w_tile[block, p, f] += nl.load"),
        ("total[block, row, p, 0]", "total[block, 0, p, 0]"),
        ("    return out", "    nl.store(out[0, 0, p, 0], value=w_tile[0, p, 0])\n    return out"),
        ("nl.load(w[block, p, f])", "nl.multiply(total[0, 0, p, 0], 2.0)"),
        ("4096", "512"),
        ]),
    Example("fill_partitions", FILL_LOW, FILL_SHAPES,
        stays=[
        ("affine_range", "sequential_range"),
        ("affine_range(8)", "affine_range(7)"),
        ("data=b[0:64, 0:512]", "data=b[0:32, 0:512]"),
        ("nl.ndarray((64, 1)", "nl.ndarray((1, 64)"),
        ("tensor_reduce(dst=total, op=nl.add, data=a, axis=1)", "nc_transpose(dst=total, data=a)"),
        ("src=x[0:64", "src=out[0:64"),
        ("operand0=total", "operand0=1.0 * t"),
        ("    return out", "    other = product\n    return out"),
        ("    for t", "    one = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)\n    for t", "operand0=total", "operand0=one"),
        ]),
    Example("fill_partitions", FILL_LOW.replace("64", "32"), [(32, 4096), (8, 32, 512)]),
    Example("fill_partitions", FILL_HALVES, FILL_HALVED,
        stays=[
        ("width = 512", "width = 2048"),  # a single iteration
        ("cos[upper, f + width * at]", "cos[upper, f + width * at], mask=f < 500"),
        ("nisa.tensor_tensor(odd, angle, op=nl.add)", "nisa.tensor_tensor(odd, weight, op=nl.add)"),  # same in all
        ("op=nl.add)", "op=nl.add)\n        nl.store(out[p, f], value=result)"),  # the order of stores would change
        ("even = x_tile[upper, f]", "even = result_before[upper, f]"),
        ("odd = nl.copy(x_tile[lower, f])", "odd = nl.softmax(x_tile[lower, f], axis=[1])"),
        ("turned = nisa", "result[lower, f] = nisa.nc_transpose(odd)\n        turned = nisa"),
        ("    return out", "    nl.store(out[upper, f], value=turned)\n    return out"),
        ]),
    Example("fill_partitions", FILL_HALVES.replace("(64)", "(32)").replace("upper + 64", "upper + 32").replace("(128)", "(64)"), [(64, 2048), (32, 2048)]),
    Example("fill_partitions", FILL_HALVES.replace("range(length // width)", "range(0, length, width)").replace("f + width * at", "f + at"), FILL_HALVED),
    Example("sink_work", SINK_HEADS, SINK_SHAPES,
        stays=[
        ("    for pair in", "    q_tile[0, p, 0, c] = nl.load(q[0, p, c])\n    for pair in"),  # changed in between
        ("for row in nl.affine_range(2):\n        wide", "for row in nl.sequential_range(2):\n        wide"),
        ("    return out", "    nl.store(out[0, 0, p, c], value=q_tile[0, p, 0, c])\n    return out"),  # used elsewhere
        ("q_tile[row, p, one, c] =", "q_tile[row, p, 3 - one, c] ="),  # made in another order
        ("q_tile[row, p, 2 * pair + head, c],", "q_tile[row, p, nl.load(k[0, 0, 0]), c],"),
        ], what="^16 .*into head"),
    Example("sink_work", SINK_HEADS, SINK_SHAPES,
        stays=[
        ("q_tile[row, p, one, c] = nl.multiply(wide[row, p, 128 * one + c], 2.0)", "q_tile[0, p, one, c] += nl.multiply(wide[row, p, 128 * one + c], 2.0)", "q_tile[row, p, 2", "q_tile[0, p, 2"),
        ], what="^16 .*into row", runs=False),
    Example("sink_work", SINK_HEADS.replace("for pair in", "for again in nl.affine_range(1):\n      for pair in").replace("                nl.store(out[2", "                nl.store(out[2 * again + 2"), SINK_SHAPES),
    Example("scale_after_product", SCALE_SOFTMAX, SCALE_SHAPES,
        stays=[
        ("inverse[b, a, p, 0])", "inverse[b, a, p, 0], op1=nl.add, operand1=1.0)"),
        ("inverse[b, a, p, 0]", "inverse[0, a, p, 0]"),
        ("data=power[a, b, p, f], op0", "data=tile, op0"),
        ("data=power[a, b, p, f], op0", "data=power[a, b, p, 2 * f], op0"),  # every other column
        ("sums[a, row", "sums[row", "sums = nl.zeros((2, 3,", "sums = nl.zeros((3,"),  # products with other factors are added too
        ("    return out", "    nl.store(out[0, 0, p, f], value=scaled[0, 0, p, f])\n    return out"),
        ("    return out", "    nl.store(out[0, 0, p, f], value=nl.copy(sums[0, 0, p, f]))\n    return out"),
        ("128 * row + c], w", "128 * row + c + 64 * a], w"),
        ("scaled_t[k, a, p, 128 * row", "scaled_t[k, k // 2, p, 128 * row"),
        ("128 * row + c], w", "128 * row + 64 + c], w"),
        ("unit[p, c], is_transpose=True", "unit[p, c]"),
        ("result = nl.copy(sums", "result = nl.exp(sums"),
        ("nl.zeros((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)", "nl.full((2, 3, nl.par_dim(128), 512), 1.0, dtype=nl.float32, buffer=nl.psum)"),
        ("scaled[a, b, p, 128 * k + c], unit", "scaled[1 - a, b, p, 128 * k + c], unit"),
        ]),
    Example("scale_after_product", SCALE_SOFTMAX.replace("scaled[a, b, p, f] = ", "scaled = ").replace("scaled[a, b, p, 128", "scaled[p, 128").replace("    scaled = nl.ndarray((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)\n", ""), SCALE_SHAPES),
    Example("scale_after_product", SCALE_CURRENT, [(2, 128, 512), (4, 128, 512)],
        stays=[
        ("            nisa.nc_transpose", "            nisa.memset(dst=x_tile, value=1.0)\n            nisa.nc_transpose"),
        ("        inverse = nl", "        unused = nl", "    for row", "    inverse = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)\n    for row"),
        ("        square = nl", "        other = inverse\n        square = nl"),
        ("    return out", "    nisa.dma_copy(dst=out[0, 0:128, 0:512], src=normed)\n    return out"),
        ("src=product", "src=product, engine=nisa.engine.scalar"),
        ("operand0=inverse)", "operand0=inverse, op1=nl.add, operand1=1.0)"),
        ("    for row", "    product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)\n    for row", "        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)\n        out_tile", "        out_tile", "accumulate=k > 0", "accumulate=row + k > 0"),
        ("data=normed[0:128, nl.ds(128 * k, 128)]", "data=normed[0:128, nl.ds(64 * k, 128)]"),
        ]),
    Example("sum_in_psum", SUM_BLOCKED, SUM_SHAPES),
    Example("sum_in_psum", SUM_ADDED, SUM_SHAPES,
        stays=[
        ("0.0, dtype", "1.0, dtype"),
        ("part[n, s, m, p, f])", "part[n, s, m, p, f], mask=(p < 100))"),
        ("nl.add(total", "nl.subtract(total"),
        ("    total = nl.full((2, 3, nl.par_dim(128), 512), 0.0, dtype=nl.float32", "    total = nl.full((2, 3, nl.par_dim(128), 512), 0.0, dtype=nl.bfloat16"),
        ("total[n, m, p, f] = nl.add(total[n, m, p, f]", "total[n, m // 2, p, f] = nl.add(total[n, m // 2, p, f]"),
        ("for m in nl.affine_range(3):\n                #", "for m in nl.sequential_range(3):\n                #"),
        ("right[n, s, k, p, f])\n", "right[n, 0, k, p, f])\n"),
        ("left[s, n, m, k, p, c] = nl.load", "left[3 - s, n, m, k, p, c] = nl.load"),
        ("                ' end loop m '", "                nl.store(out[n, m, p, f], value=total[n, m, p, f])"),
        ("            ' end loop s '", "            nl.store(out[n, s % 3, p, f], value=right[n, s, 0, p, f])"),
        ("part[n, s, m, p, f] += nisa.nc_matmul", "part[n, s, m, p, f] = nisa.nc_matmul"),
        ("right[n, s, k, p, f])\n", "right[n, s, k, p, f], mask=(p < 100))\n"),
        ("part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.float32", "part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.bfloat16"),
        ("part = nl.zeros(", "part = nl.ndarray("),
        ("            for k in nl.affine_range(2):\n                right", "            other = total\n            for k in nl.affine_range(2):\n                right"),
        ("right[n, s, k, p, f] = nl.load(w[256 * s + 128 * k + p, 512 * n + f])", "row = nl.load(w[256 * s + 128 * k + p, 512 * n + f])", "part[n, s, m, p, f] += nisa.nc_matmul(left[s, n, m, k, p, c], right[n, s, k, p, f])", "part[n, s, m, p, f] += nisa.nc_matmul(left[s, n, m, k, p, c], row)"),
        ]),
    Example("sum_in_psum", SUM_ADDED.replace("= nl.add(total[n, m, p, f], part[n, s, m, p, f])", "+= part[n, s, m, p, f]"), SUM_SHAPES),
    Example("sum_in_psum", SUM_ADDED.replace("= nl.add(total[n, m, p, f], part[n, s, m, p, f])", "= nisa.tensor_tensor(part[n, s, m, p, f], total[n, m, p, f], op=nl.add)"), SUM_SHAPES),
    Example("sum_in_psum", SUM_DECLARED, SUM_SHAPES),
    Example("sum_in_psum", SUM_CURRENT, [(3, 2, 128, 2, 128), (3, 2, 128, 512)],
        stays=[
        ("value=0.0", "value=1.0"),
        ("memset(dst=total", "memset(dst=total[0:128, 0:1, 0:512]"),
        ("accumulate=k > 0", "accumulate=k > 1"),
        ("accumulate=k > 0", "accumulate=s + k > 0"),
        ("accumulate=k > 0", "accumulate=True"),
        ("right[0:128, s, k, 0:512]", "right[0:128, 0, k, 0:512]"),
        ("data2=part, op=nl.add", "data2=part, op=nl.subtract"),
        ("nisa.tensor_tensor(dst", "nisa.memset(dst=part[0:1, 0:512], value=0.0)\n            nisa.tensor_tensor(dst"),
        ("for m in nl.affine_range(2):\n            #", "for m in nl.sequential_range(2):\n            #"),
        ("total = nl.ndarray((128, 2, 512), dtype=nl.float32", "total = nl.ndarray((128, 2, 512), dtype=nl.bfloat16"),
        ]),
    Example("sum_in_psum", SUM_CURRENT.replace(", accumulate=k > 0", ""), [(3, 2, 128, 2, 128), (3, 2, 128, 512)]),
    Example("swap_operands", SWAP_GATED, SWAP_SHAPES,
        stays=[
        ("np.identity(128,", "np.ones((128, 128),"),  # no transpose
        ("np.identity(128, dtype=np.float32)", "np.identity(128, dtype=np.float32)[::-1]"),
        ("data=product, scale=0.1", "data=product, scale=0.1, bias=w_tile[p, 0]"),
        ("nl.multiply(gate, product)", "nl.multiply(gate, product[p, 0])"),  # one value a row
        ("nl.multiply(gate, product)", "nl.multiply(gate, w_tile[p, f])"),  # not a product
        ("data=product, scale=0.1", "data=product, scale=0.1, mask=f < 200"),
        ("        wide[row, p, f] =", "        total_gate = nl.sum(gate, axis=[1])\n        wide[row, p, f] ="),
        ("    return out", "    nl.store(out[0, p, f], value=wide[0, p, f])\n    return out"),
        ("wide[row, p, f] = nl.multiply", "wide[3 - row, p, f] = nl.multiply"),
        ("nl.multiply(gate, product)", "nl.multiply(gate, wide[row, p, f])"),
        ("    for row in nl.affine_range(4):\n        product", "    for row in nl.affine_range(3):\n        product"),
        ("        product += nisa", "        w_tile[p, f] = nl.load(w[p, f])\n        product += nisa"),
        ("        product += nisa", "        x_t[row, p, c] = nl.load(x[row, p, c])\n        product += nisa"),
        ("nc_matmul(x_t[row, p, c], w_tile[p, f])", "nc_matmul(x_t[row, p, c], w_tile[p, f], is_moving_onezero=True)"),
        ("    for block in", "    other = x_t\n    for block in"),  # another name
        ("2, 2, nl.par_dim(128), 128), dtype=nl.float32", "2, 2, nl.par_dim(128), 128), dtype=nl.bfloat16"),
        ("wide_t[row, n, p, c], v", "wide_t[row, n, p, 0:64], v"),
        ("wide[2 * block + row, p, 128 * part", "wide[block + 2 * row, p, 128 * part"),
        ("wide[2 * block + row, p, 128 * part", "wide[block + row, p, 128 * part"),
        ("data=product, scale=0.1", "data=product, scale=0.1 * row"),
        ("    for block in", "    x_t[0, p, c] = nl.load(x[0, p, c])\n    for block in"),
        ("nl.copy(turned)", "nl.exp(turned)"),
        ], scale=0.25),
    Example("swap_operands", SWAP_BY_COLUMNS, SWAP_SHAPES, scale=0.25),
    Example("swap_operands", SWAP_PLACES, SWAP_SHAPES, scale=0.25),
    Example("swap_operands", SWAP_TWO, SWAP_SHAPES, scale=0.25),
    Example("swap_operands", SWAP_BIAS, SWAP_SHAPES,
        stays=[
        ("value=0.0", "value=1.0"),
        ], scale=0.25),
    Example("swap_operands", SWAP_GATED.replace("nisa.nc_matmul(wide[2 * block + row, p, 128 * part + c], identity[p, c], is_moving_onezero=True, is_transpose=True)", "nisa.nc_transpose(wide[2 * block + row, p, 128 * part + c])"), SWAP_SHAPES, scale=0.25),
    Example("reduce_once", REDUCE_BLOCKS, REDUCE_SHAPES,
        stays=[
        ("op=np.add, loop_indices", "op=np.max, loop_indices"),  # another operation joins
        ("[row, a, b, p, f]", "[row, a, 0, p, f]"),  # each part overwrites the one before
        ("axis=[1], dtype=nl.float32", "axis=[1], dtype=nl.bfloat16"),  # each part is rounded
        ("data=power[row, a, b, p, f], axis", "data=power[row, a, b, p, f], mask=p < 100, axis"),
        ("        inverse =", "        again = nl.copy(part[row, 0, 0, p, 0])\n        inverse ="),
        ("        inverse =", "        power[row, 0, 0, p, f] = nl.load(x[row, p, f])\n        inverse ="),
        ]),
    Example("reduce_once", REDUCE_BETWEEN, REDUCE_SHAPES),
    Example("reduce_once", REDUCE_COLUMNS, [(256, 2048)],
        stays=[
        ("part[p, 2 * a + b]", "part[p, a + b]"),  # two parts share a place
        ("part[p, nl.arange(4)[None, :]]", "part[p, nl.arange(3)[None, :]]"),  # one part is left out
        ("tile[p, a, 512 * b + f]", "tile[p, a, 256 * b + f]"),  # parts overlap
        ("nl.max, data=part", "nl.add, data=part"),
        ]),
    Example("reduce_once", REDUCE_SLICES, [(128, 2048)],
        stays=[
        ("nl.ds(512 * c, 512)], axis", "nl.ds(512 * c, 256)], axis"),  # a part of each tile
        ]),
    Example("drain_once", DRAIN_TURNED, DRAIN_SHAPES,
        stays=[
        ("flipped[row, i, p, c]", "flipped[row, 0, p, c]"),  # one place for all
        ("i in nl.affine_range(8):\n            flipped", "i in nl.sequential_range(8):\n            flipped"),
        ("nl.copy(flipped[row, i, p, c])", "nl.copy(flipped[row, i, p, c], mask=p < 100)"),
        ("kept[row, i, p, c] = nl.copy", "kept[row, 7 - i, p, c] = nl.copy"),  # in the other order
        ("nl.copy(flipped[row, i, p, c])", "nl.add(flipped[row, i, p, c], tile[p, 128 + c])"),  # the same for all
        ]),
    Example("drain_once", DRAIN_PARTS, [(1, 128, 1024)],
        stays=[
        ("left[p, i, 128 * row + c] = ", "left[p, 0, 128 * row + c] = "),
        ("operand0=factor[p, 0]", "operand0=tile[p, 0]"),  # another number in each iteration
        ]),
    Example("drain_once", DRAIN_SUMS, [(2, 128, 128), (4, 2, 128, 128)],
        stays=[
        ("nl.copy(total[p, c])", "nl.copy(total[p, nl.arange(64)[None, :]])"),
        ("value=both[i, p, c]", "value=nl.add(both[i, p, c], total[p, c])"),  # still read from PSUM afterwards
        ]),
    Example("drain_once", DRAIN_FED, DRAIN_FED_SHAPES,
        stays=[
        ("step in nl.affine_range(8):\n            turned", "step in nl.sequential_range(8):\n            turned"),
        ("dst=tile_t, src=turned)", "dst=tile_t, src=turned)\n            nisa.tensor_copy(dst=result, src=turned[0:128, 0:64])"),
        ("nisa.tensor_copy(dst=tile_t, src=turned)", "nisa.tensor_copy(dst=tile_t[0:128, 0:64], src=turned[0:128, 0:64])"),
        ("128), dtype=nl.float32, buffer=nl.psum", "128), dtype=nl.bfloat16, buffer=nl.psum"),
        ("src=turned)\n", "src=turned)\n            other = tile_t\n"),
        ("accumulate=step > 0)", "accumulate=step > 0)\n            nisa.tensor_copy(dst=tile[0:128, 0:64], src=total)"),
        ], what="of turned"),
    Example("drain_once", DRAIN_NARROW, [(2, 128, 1024)], what="1024 columns"),
    Example("merge_transfers", PIECES, [(2, 256, 512), (1, 512)],
        stays=[
        ("dst=w_tile[p:p + 1", "dst=w_tile[127 - p:128 - p"), ("for p in range(128)", "for p in range(126)", "[p:p", "[p + p:p + p"),
        ("        # a row\n", "        # a row\n        nisa.memset(dst=other, value=1.0)\n"),
        ("src=w[0:1, 0:512])", "src=w[0:1, 0:512], dst_rmw_op=nl.add)"), ("src=w[0:1, 0:512]", "src=x[0, 2 * p:2 * p + 1, 0:512]"),
        ], what=".*loop over p "),
    Example("merge_transfers", PIECES, [(2, 256, 512), (1, 512)],
        stays=[("dst=x_tile[0:128, 128 * c", "dst=x_tile[0:128, 64 * c"), ("src=x[b, 128:256, 128 * c:128 * c + 128]", "src=x[b, 128:256, 0:128]")],
        what=".*loop over c "),
    Example("split_loads", WHOLE_LOADS, WHOLE_LOADS_SHAPES,
        stays=[
        ("dst=w_tile, src=w)", "dst=w_tile, src=w, dst_rmw_op=nl.add)"),  # adds to the tile
        ("dst=w_tile, src=w)", "dst=w_tile[0:64, 0:8, 0:512], src=w[0:64, 0:8, 0:512])"),  # a part of the tile
        ("moving=w_tile[0:128, k, 0:512]", "moving=w_tile[0:128, 0:8, 0:512]"),  # a product of all parts
        ("dst=done, src=total)", "dst=done, src=total)\n    nisa.tensor_tensor(dst=w_tile, data1=w_tile, data2=w_tile, op=nl.add)"),
        ("(128, 8, 512)", "(128, 8, 32)"),  # a small tile
        ("dst=w_tile, src=w)", "dst=w_tile, src=w[0:128, out.shape, 0:512])"),  # an index that is not understood
        ], what=".* loads w_tile"),
    Example("split_loads", WHOLE_LOADS, WHOLE_LOADS_SHAPES,
        stays=[("src=x[0:128, 8:16, 0:128]", "src=x[0:128, 0, 0:1024]")],  # other axes than the tile
        what=".* loads x_tile"),
    Example("store_once", STORED_PARTS, STORED_PARTS_SHAPES,
        stays=[
        ("part in nl.affine_range", "part in nl.sequential_range"),
        ("dst=out[row, 0:128, nl.ds(512 * part, 512)]", "dst=out[row, 0:128, nl.ds(3584 - 512 * part, 512)]"),  # backwards
        ("dst=out[row, 0:128, nl.ds(512 * part, 512)]", "dst=out[row, 0:128, nl.ds(256 * part, 512)]"),  # each over the one before
        ("dst=result, src=product)", "dst=result[0:128, 0:256], src=product[0:128, 0:256])"),  # a part of the tile
        ("            # the result", "            nisa.dma_copy(dst=x_tile, src=out[row, 0:128, 0:128])\n            # the result"),
        ("            nisa.tensor_copy(dst=result", "            other = result\n            nisa.tensor_copy(dst=result"),
        ]),
    Example("order_loads", LOADED_FIRST, LOADED_FIRST_SHAPES,
        stays=[
        ("    x_tile = nl.ndarray", "    loaded = w\n    x_tile = nl.ndarray"),  # alias
        ("    x_tile = nl.ndarray", "    nisa.dma_copy(dst=w, src=w_tile)\n    x_tile = nl.ndarray"),  # what is loaded changes
        ("src=x[0, 0:128, 0:2, 0:128])\n    small", "src=w_kept[0:128, 0:2, 0:128])\n    small"),  # the first user
        ("        nisa.tensor_copy(dst=w_tile", "        nisa.dma_copy(dst=out[0, 0:128, 0:1024], src=loaded)\n        nisa.tensor_copy(dst=w_tile"),
        ], what="two|later"),
    Example("order_loads", LOADED_FIRST_OLDER, [(128, 128), (128, 512)],
        stays=[
        ("    small =", "    other = w_tile\n    small ="),
        ("    x_tile = nl.load(x[p, c])\n", "", "data=x_tile)", "data=w_tile[p, c])"),  # nothing else is loaded before
        ], scale=0.1),
    Example("order_loads", LOADED_IN_BLOCKS, [(2, 128, 2, 128), (128, 2, 1024)],
        stays=[
        ("        first = nl.ndarray", "        total = loaded\n        first = nl.ndarray"),  # alias
        ("src=x[block, 0:128, 0:2, 0:128])", "src=w[0:128, 0:2, nl.ds(128 * block, 128)])", "dst=small, op=nl.exp, data=first", "dst=small, op=nl.exp, data=w_kept[0:128, 0:2, 0:128]"),  # the first user
        ("        first = nl.ndarray", "        nisa.dma_copy(dst=w[0:128, 0, nl.ds(512 * block, 512)], src=total)\n        first = nl.ndarray"),  # what is loaded changes
        ("for k in nl.affine_range(2):\n            loaded", "for k in nl.affine_range(1):\n            loaded", "(128, 2, 128)", "(128, 8, 128)", "0:2, 0:128]", "0:8, 0:128]"),  # loads less
        ], what="later"),
    Example("order_loads", LOADED_IN_BLOCKS_OLDER, [(2, 128, 128), (2, 128, 512)],
        stays=[
        ("        small =", "        other = w_tile\n        small ="),
        ("w[block, p, f]", "w[block, p, c]", "w_tile[p, f]", "w_tile[p, c]"),  # loads as much
        ], scale=0.1),
    Example("turn_on_engine", TURNED_FIRST, [(2, 128, 256), (128, 2, 512)],
        stays=[
        ("    for k in nl.affine_range(2):\n        turned_first", "    nisa.dma_copy(dst=first, src=x[1, 0:128, 0:256])\n    for k in nl.affine_range(2):\n        turned_first"),
        ("    for k in nl.affine_range(2):\n        turned_first", "    nisa.dma_copy(dst=kept[0, 0:128, 0:256], src=w_tile[0:128, 0, 0:256])\n    for k in nl.affine_range(2):\n        turned_first"),
        ("        turned_first =", "        nisa.memset(dst=first, value=0.0)\n        turned_first ="),  # in the same loop
        ("src=kept[0, :, ", "src=kept[1, :, "),
        ("src=turned_first)", "src=turned_first, engine=nisa.engine.gpsimd)"),
        ("        nisa.tensor_copy(dst=x_t[0:128, 0, k", "        other = turned_first\n        nisa.tensor_copy(dst=x_t[0:128, 0, k"),
        ]),
    Example("block_columns", COLUMNS_BLOCKS, COLUMNS_SHAPES,
        stays=[
        ("for m in nl.affine_range(3):\n            for h", "for m in nl.sequential_range(3):\n            for h"),
        ("twice[n, k, p, 512 * h + f])", "twice[n, k, p, 512 * h + f - 128 * m])"),
        ("twice[n, k, p, 512 * h + f])", "twice[n, k, p, 256 * h + f])"),
        ("nl.multiply(right[n, k, p, wide], 2.0)", "nl.multiply(right[n, k, p, 1023 - wide], 2.0)"),
        ("nl.multiply(right[n, k, p, wide], 2.0)", "nl.softmax(right[n, k, p, wide], axis=1)"),
        ("w[128 * k + p, wide + 1024 * n])", "w[128 * k + p, wide + 1024 * n], mask=(wide < 1000))"),
        ("part[n, m, h, p, f] += ", "part[n, m, 0, p, f] += "),
        ("nl.store(out[n, m, p, wide], value=made[n, m, p, wide])", "nl.store(out[n, m, p, wide], value=twice[n, 0, p, wide])"),
        ("nl.store(out[n, m, p, wide], value=made[n, m, p, wide])", "nl.store(out[n, m, p, wide], value=made[n, m, p, 1023 - wide])"),
        ("made[n, m, p, 512 * h + f] = ", "made[n, m, p, 512 * (1 - h) + f] = "),
        ("            ' end loop m '", "            nl.store(out[n, m, p, f], value=twice[n, 0, p, f])"),
        ("    return out", "    nl.store(out[0, 0, p, wide], value=right[0, 0, p, wide])\n    return out"),
        ("        # the products", "        right[n, 0, p, wide] = nl.multiply(right[n, 0, p, wide], 3.0)"),
        ("        # the products", "        left[0, 0, p, c] = nl.copy(twice[n, 0, p, c])"),
        ("        # the operand", "        same = twice"),
        ("made[n, m, p, 512 * h + f] = nl.copy(part[n, m, h, p, f])", "made[n, m, p, 512 * h + f] = nisa.activation_reduce(op=nl.exp, data=part[n, m, h, p, f], reduce_op=np.add, reduce_res=sums)"),
        ]),
    Example("block_columns", COLUMNS_NARROW, COLUMNS_SHAPES),
    Example("block_columns", COLUMNS_BLOCKS.replace("right[n, k, p, wide] = ", "tile = ").replace("right[n, k, p, wide]", "tile"), COLUMNS_SHAPES,
        stays=[
        ("multiply(tile,", "multiply(tile[p, wide],"),
        ]),
    Example("block_columns", COLUMNS_CURRENT, [(256, 384), (256, 1024)],
        stays=[
        ("for m in nl.affine_range(3):\n        made", "for m in nl.sequential_range(3):\n        made"),
        ("moving=twice[0:128, k, nl.ds(512 * h, 512)]", "moving=twice[0:128, k, nl.ds(256 * h, 512)]"),
        ("made[0:128, nl.ds(512 * h, 512)], src", "made[0:128, nl.ds(512 * (1 - h), 512)], src"),
        ("    return out", "    nisa.dma_copy(dst=out[0, 0:128, 0:1024], src=right[0:128, 0, 0:1024])\n    return out"),
        ("    # the products", "    nisa.tensor_copy(dst=left[0:128, 0, 0, 0:128], src=twice[0:128, 0, 0:128])"),
        ("    # the operand", "    same = twice"),
        ("        made = nl", "        other = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)\n        made = nl"),
        ("tensor_scalar(dst=twice", "activation_reduce(op=nl.copy, reduce_op=nl.add, reduce_res=left[0:128, 0, 0, 0:1], dst=twice", ", op0=nl.multiply, operand0=2.0", ""),
        ("src=made)", "src=made[0:128, 0:512])"),
        ]),
    Example("pipeline_stages", STAGES_CHAIN, STAGES_SHAPES,
        stays=[
        ("row in nl.affine_range", "row in nl.sequential_range"),
        ("data=product[row, p, f]", "data=product[0, p, f]"),
        ("        # what", "        row_number = row + 1\n        # what"),
        ("    return out", "    nl.store(out[0, p, f], value=product[0, p, f])\n    return out"),
        ("zeros((4, nl.par_dim(128), 512)", "zeros((nl.par_dim(128), 512)", "product[row, p, f]", "product[p, f]"),
        ]),
    Example("pipeline_stages", STAGES_FED, STAGES_SHAPES,
        stays=[
        ("x_tile[row, part, p, c]", "x_tile[0, part, p, c]"),  # the next load would overwrite what is still read
        ("row in nl.affine_range", "row in nl.sequential_range"),
        ], what="for the loads"),
    Example("pipeline_stages", STAGES_NORMED, STAGES_NORMED_SHAPES,
        stays=[
        ("        nisa.bn_aggr(", "        same = tile\n        other = tile_t\n        kept = both\n        nisa.bn_aggr("),
        ("row in nl.affine_range", "row in nl.sequential_range"),
        ]),
    Example("unroll_and_jam", RECURRENCE, RECURRENCE_SHAPES,
        stays=[
        ("head in nl.affine_range", "head in nl.sequential_range"),
        ("t in nl.sequential_range", "t in nl.affine_range"),  # no chain
        ("t in nl.sequential_range(8)", "t in nl.sequential_range(8 - head)"),
        ("for head", "kept = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)\n    for head",
         "dst=state, op=nl.tanh", "dst=kept, op=nl.tanh"),  # all heads write one tile
        ("src=x[head, 0:128, 0:64]", "src=out[head, 0:128, 0:64]"),
        ("            nisa.activation(", "            other = state\n            nisa.activation("),
        ("state = nl.ndarray((128, 64)", "state = nl.ndarray((128, 24 * 1024)"),  # too large for two
        ]),
    Example("unroll_and_jam", LOADED_RECURRENCE, RECURRENCE_SHAPES,
        stays=[("    return tile", "    last = tile\n    return last")]),  # not understood
    Example("split_products", SPLIT_PRODUCT, SPLIT_PRODUCT_SHAPES,
        stays=[
        ("total = nl.zeros", "total = nl.ndarray"),  # the first product would add to nothing known
        ("w_tile[k, p, f] = nl.load(w[k, p, f])", "w_tile[k, p, f] += nl.load(w[k, p, f])"),
        ("par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf", "par_dim(128), 512), dtype=nl.bfloat16, buffer=nl.sbuf"),
        ("w_tile[k, p, f])\n        nl", "w_tile[k, p, f], is_moving_onezero=True)\n        nl"),
        ("    for row in", "    other = w_tile\n    for row in"),
        ]),
    Example("split_products", SPLIT_PRODUCT.replace("128), dtype=nl.float32, name", "128), dtype=x.dtype, name"), SPLIT_PRODUCT_SHAPES,
        other_dtypes=[("bfloat16", "float32")]),
    Example("split_products", SPLIT_HALF, SPLIT_HALF_SHAPES),
    Example("split_products", SPLIT_OVERWRITTEN, SPLIT_HALF_SHAPES,
        stays=[
        ("total[row, p, f] = ", "total[1, p, f] = nl.copy(w_first[p, f])\n        total[row, p, f] = "),
        ("2, nl.par_dim(128), 512), dtype=nl.float32", "2, nl.par_dim(128), 512), dtype=nl.bfloat16"),
        ("total[row, p, f]", "total[0, p, f]"),  # one place for both iterations
        ]),
    Example("split_products", SPLIT_OVERWRITTEN.replace("total[row, p, f] = ", "total[row, p, f]  = "), SPLIT_HALF_SHAPES),
    Example("split_products", SPLIT_ELSEWHERE, SPLIT_HALF_SHAPES),
    Example("split_products", SPLIT_UNROLLED, SPLIT_HALF_SHAPES),
    Example("split_products", SPLIT_CURRENT, SPLIT_PRODUCT_SHAPES,
        stays=[
        ("512), dtype=nl.float32, buffer=nl.psum", "512), dtype=nl.bfloat16, buffer=nl.psum"),
        ("accumulate=k > 0", "accumulate=k > 0, perf_mode=nisa.matmul_perf_mode.double_row"),
        ("    return out", "    other = x_t\n    return out"),
        ("512), dtype=nl.float32, buffer=nl.sbuf)\n            nisa", "512), dtype=nl.bfloat16, buffer=nl.sbuf)\n            nisa"),
        ]),
    Example("split_products", SPLIT_CURRENT.replace(", accumulate=k > 0", ""), SPLIT_PRODUCT_SHAPES),
    Example("split_products", SPLIT_STACKED.replace("TILE", "x_tile"), SPLIT_HALF_SHAPES),
    Example("split_products", SPLIT_STACKED.replace("TILE", "x_tile[0:64, 0:128]"), SPLIT_HALF_SHAPES),
    Example("split_products", SPLIT_STACKED.replace("TILE", "x_tile[:, 0:128]"), SPLIT_HALF_SHAPES),
    Example("split_products", SPLIT_APART, [*SPLIT_PRODUCT_SHAPES, *SPLIT_HALF_SHAPES]),
    Example("tile_columns", SPLIT_SCAN, SPLIT_SCAN_SHAPES,
        stays=[
        ("nisa.tensor_tensor(state, x_tile, op=nl.multiply)", "nl.softmax(state)"),
        ("x[block, 0:128, 0:4096])", "x[block, 0:128, 0:4096], mask=nl.arange(128)[:, None] < 100)"),
        ("initial=0.5", "initial=factor"),
        ("    return out", "    nl.store(out[0, 0:128, 0:4096], value=state)\n    return out"),
        ("op=nl.multiply)\n", "op=nl.multiply)\n        peak = nl.max(product, axis=[1])\n"),
        ], scale=0.05),
    Example("tile_columns", SPLIT_ADDED, SPLIT_ADDED_SHAPES,
        stays=[
        ("(x_tile, y_tile,", "(x_tile, nl.softmax(y_tile),"),
        ("(x_tile, y_tile,", "(x_tile, nl.max(y_tile, axis=[1]),"),
        ("(x_tile, y_tile,", "(x_tile, y_tile.broadcast_to((128, 4096)),"),
        ("total[p, 2048 * half + f] += product", "total[p, 2048 * half + f] = nl.multiply(product, total[p, f])"),
        ("total[p, 2048 * half + f] += product", "total[p, 2048 * half + f] = nl.multiply(product, total[p, 7])"),
        ("        for half in nl.affine_range(2):", "        for half in nl.affine_range(2):\n            g = 2048 * half + f", "total[p, 2048 * half + f] +=", "total[p, g] +="),
        ]),
    Example("tile_columns", SPLIT_ADDED.replace("nl.load(y[p, f])", "nl.load(y[nl.arange(1)[:, None], f])").replace("(x_tile, y_tile,", "(x_tile, y_tile.broadcast_to((128, 2048)),"), [SPLIT_ADDED_SHAPES[0], (1, 2048)]),
    Example("tile_columns", SPLIT_SCAN_CURRENT, SPLIT_SCAN_CURRENT_SHAPES,
        stays=[
        ("op=nl.exp, data=x_tile", "op=nl.exp, reduce_op=nl.add, reduce_res=factor, data=x_tile"),
        ("initial=0.5", "initial=factor"),
        ("    nisa.dma_copy(dst=out[0,", "    nisa.dma_copy(dst=out[1, 0:128, 0:4096], src=state)\n    nisa.dma_copy(dst=out[0,"),
        ("op=nl.multiply)\n        nisa.tensor_tensor(dst=total", "op=nl.multiply)\n        nisa.tensor_reduce(dst=factor, op=nl.add, data=product, axis=1)\n        nisa.tensor_tensor(dst=total"),
        ("src=product)", "src=total)"),
        ("    for block", "    same = total\n    for block"),
        ], scale=0.05),
    Example("place_engine", SPLIT_ENGINES, [(128, 512), (128, 512)]),
    Example("place_engine", DRAIN_FED, DRAIN_FED_SHAPES,
        stays=[
        ("op0=nl.multiply", "op0=nl.maximum"),  # the scalar engine has no such function
        ("operand0=0.5)", "operand0=0.5, engine=nisa.engine.vector)"),
        ("dst=result, data=total", "dst=out[row, 0:128, 0:64], data=total"),
        ], what="alone scalar"),
    Example("place_engine", TWO_OPERATIONS, [(128, 512), (128, 512)],
        stays=[
        ("op0=nl.multiply", "op0=nl.maximum"),  # the scalar engine has no such function
        ("op1=nl.subtract", "op1=nl.power"),
        ("x_tile = nl.ndarray((128, 512), dtype=nl.float32", "x_tile = nl.ndarray((128, 512), dtype=nl.bfloat16"),
        ("reverse1=True", "reverse0=True"),
        ("    y_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)", "    y_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)"),
        ], what="two scalar and gpsimd"),
    Example("place_engine", TWO_OPERATIONS_OF_ROWS, [(320, 512), (320, 512)],
        stays=[
        ("y_tile = nl.ndarray((rows, width)", "y_tile = nl.ndarray((rows, 1)"),  # broadcast along a row
        ("        result = nl.ndarray((rows, width)", "        rows = min(64, rows)\n        result = nl.ndarray((rows, width)"),
        ("data=x_tile", "data=x_tile[nl.ds(0, rows), nl.ds(0, width)]"),
        ("    for row in", "    y_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\n    for row in",
         "        y_tile = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)\n", ""),
        ], what="two scalar and gpsimd"),
    Example("fuse_nests", NESTS_CURRENT, [(4, 128, 128)],
        stays=[
        ("data=made[0:128, j", "data=made[0:128, 3 - j"),  # another iteration's part
        ("for j in nl.affine_range", "for j in nl.sequential_range"),
        ("    for j in", "    view = made\n    for j in"),  # alias
        ]),
    Example("sink_work", NESTS_CURRENT, [(4, 128, 128)],
        stays=[
        ("for i in nl.affine_range", "for i in nl.sequential_range"),
        ("    for j in", "    nisa.memset(dst=made[0:128, 0, 0:128], value=0.0)\n    for j in"),  # changed in between
        ("    return out", "    nisa.dma_copy(dst=out[0, 0:128, 0:128], src=made[0:128, 0, 0:128])\n    return out"),
        ]),
    Example("hoist_work", WORK_CURRENT, WORK_CURRENT_SHAPES,
        stays=[
        ("src=w)", "src=x[row, 0:128, 0:128])"),  # depends on the loop
        ("data=w_tile, op0", "data=x_tile, op0"),
        ("        nisa.tensor_copy(", "        nisa.memset(dst=w_half, value=0.0)\n        nisa.tensor_copy("),
        ("        nisa.nc_matmul(", "        other = w_half\n        nisa.nc_matmul("),  # alias
        ]),
    Example("hoist_work", TURNS_CURRENT, [(2, 128, 4, 128), (4, 128, 128)],
        stays=[
        ("src=w[k, 0:128, 0:128]", "src=w[k - row, 0:128, 0:128]"),  # depends on the loop
        ("            nisa.nc_matmul(", "            nisa.tensor_copy(dst=w_t[0:128, k, 0:128], src=x_tile[0:128, 0, 0:128])\n            nisa.nc_matmul("),
        ("            nisa.nc_matmul(", "            nisa.memset(dst=w_t[0:128, k, 0:128], value=1.0)\n            nisa.nc_matmul("),
        ("        for k in nl.affine_range(4):\n            nisa.nc_matmul(", "            nisa.nc_matmul("),  # one part is made after another one is read
        ("    return out", "    nisa.dma_copy(dst=out[0, 0:128, 0:128], src=w_t[0:128, 0, 0:128])\n    return out"),
        ("        for k in nl.affine_range(4):\n            nisa.nc_matmul(", "        other = w_t\n        for k in nl.affine_range(4):\n            nisa.nc_matmul("),
        ], what=" row "),
    Example("consume_psum", WORK_CURRENT, WORK_CURRENT_SHAPES,
        stays=[
        ("data1=more, data2=x_tile", "data1=copied, data2=copied"),  # two operands in PSUM
        ("        nisa.tensor_scalar(dst=more", "        other = copied\n        nisa.tensor_scalar(dst=more"),  # alias
        ]),
    Example("fold_scalars", WORK_CURRENT, WORK_CURRENT_SHAPES,
        stays=[
        ("data2=x_tile", "data2=more"),
        ("        nisa.tensor_tensor(", "        nisa.memset(dst=copied, value=1.0)\n        nisa.tensor_tensor("),
        ("src=result)", "src=more)"),  # another reader
        ], what="tensor_tensor"),
    Example("group_iterations", GROUPS_CURRENT, [(6, 128, 8192), (2, 128, 8192)],
        stays=[
        ("for block in nl.affine_range", "for block in nl.sequential_range"),
        ("dst=x_tile, src=x[row", "dst=w_tile, src=x[row"),
        ("8192", "512"),  # all of it fits
        ]),
    Example("interchange_loops", CURRENT_LOADS, [(4, 128, 512), (128, 512)],
        stays=[
        ("for k in nl.affine_range", "for k in nl.sequential_range"),
        ("        for k in", "        nisa.dma_copy(dst=out[row, 0:128, 0:256], src=w[0:128, 0:256])\n        for k in"),
        ("            nisa.tensor_tensor(", "            other = w_tile\n            nisa.tensor_tensor("),  # alias
        ]),
    Example("widen_tiles", CURRENT_LOADS, [(4, 128, 512), (128, 512)],
        stays=[
        ("src=w[0:128, nl.ds(256 * k, 256)]", "src=w[0:128, nl.ds(0, 256)]"),  # the same columns in every iteration
        ("            nisa.tensor_tensor(", "            nisa.activation_reduce(dst=y_tile, op=nl.exp, reduce_op=nl.add, reduce_res=w_tile[0:128, 0:1], data=x_tile)\n            nisa.tensor_tensor("),
        ]),
    Example("reduce_in_activation", SCALE_CURRENT, [(2, 128, 512), (4, 128, 512)],
        stays=[
        ("dst=total, op=nl.add", "dst=total, op=nl.maximum"),
        ("        nisa.tensor_reduce(", "        other = square\n        nisa.tensor_reduce("),  # alias
        ("        nisa.tensor_reduce(", "        nisa.memset(dst=square, value=1.0)\n        nisa.tensor_reduce("),
        ]),
]
# fmt: on
