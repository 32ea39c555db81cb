"""Every rewrite that is offered for a kernel on Trainium 2 leaves its results as they are, and so does every second one after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from acceld.model import Profile, Source
from acceld.nki.errors import KernelFailure
from acceld.nki.source.launches import Launch
from acceld.proposers.rules.proposer import moves
from tests.acceld.nki.source import test_moves
from tests.acceld.nki.source.test_own_functions import SCALED
from tests.acceld.proposers.rules import places
from tests.acceld.proposers.rules.kernels import Array, api_of, arrays, current, legacy, run
from tests.acceld.proposers.rules.places import tiled

Shapes = tuple[tuple[int, ...], ...]

KERNELS: dict[str, tuple[str, Shapes]] = {
    "tiles that are read again for every iteration of an outer loop": (
        legacy(
            "x",
            """
    out = nl.ndarray((2, 4, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(64)[None, :]
    tiles = nl.ndarray((4, nl.par_dim(128), 64), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(4):
        tiles[k, p, f] = nl.load(x[128 * k + p, f])
    for i in nl.affine_range(2):
        for j in nl.affine_range(4):
            nl.store(out[i, j, p, f], value=nl.multiply(tiles[j, p, f], 2.0))
    return out
""",
        ),
        ((512, 64),),
    ),
    "sums of parts in blocks": (places.REDUCE_BLOCKS, ((3, 128, 2048),)),
    "greatest of parts side by side": (places.REDUCE_COLUMNS, ((256, 2048),)),
    "transposes with a copy each": (places.DRAIN_TURNED, ((2, 128, 1024),)),
    "transposes into strided tiles": (places.DRAIN_PARTS, ((1, 128, 1024),)),
    "transposes for the product beside them": (places.DRAIN_FED, ((2, 128, 1024), (8, 128, 64))),
    "statistics of rows before a product": (places.STAGES_NORMED, ((4, 128, 128), (128, 512))),
    "two operations as one instruction of the vector engine": (places.TWO_OPERATIONS, ((128, 512), (128, 512))),
    "products with a store each": (places.STORED_PARTS, ((2, 128, 128), (128, 4096))),
    "sums of products with a copy and a store each": (places.DRAIN_SUMS, ((2, 128, 128), (4, 2, 128, 128))),
    "a product between element-wise work in the current API": (places.WORK_CURRENT, ((2, 128, 128), (128, 128))),
    "transposes of an operand that is the same for every row": (
        places.TURNS_CURRENT,
        ((2, 128, 4, 128), (4, 128, 128)),
    ),
    "tiles made long before they are used": (places.SINK_HEADS, ((2, 128, 512), (4, 128, 512))),
    "a sum between two nests that an activation writes beside its result": (
        legacy(
            "x",
            """
    out = nl.ndarray((4 * 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[None, :]
    powers = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tile = nl.load(x[128 * i + p, f])
        powers[i, p, f] = nisa.activation_reduce(op=nl.exp, data=tile, reduce_op=np.add, reduce_res=sums[p, i + one])
    inverse = nl.reciprocal(sums)
    for j in nl.affine_range(4):
        scaled = nl.multiply(powers[j, p, f], inverse[p, j + one])
        nl.store(out[128 * j + p, f], value=scaled)
    return out
""",
        ),
        ((512, 512),),
    ),
    "rows of sums that the second nest reads in the other order": (
        tiled(
            "x",
            (512, 512),
            f=512,
            one=1,
            body="""
    kept = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.ndarray((4, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tile = nl.load(x[128 * i + p, f])
        kept[i, p, f] = nisa.activation_reduce(op=nl.exp, data=tile, reduce_op=np.add, reduce_res=sums[i, p, one])
    for i in nl.affine_range(4):
        inverse = nl.reciprocal(sums[3 - i, p, one])
        made = nl.multiply(kept[i, p, f], inverse)
        nl.store(out[128 * i + p, f], value=made)
""",
        ),
        ((512, 512),),
    ),
    "sums of chunks that an activation writes beside its result": (
        legacy(
            "x",
            """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[None, :]
    sums = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(4):
        tile = nl.load(x[p, 512 * c + f])
        power = nisa.activation_reduce(op=nl.exp, data=tile, reduce_op=np.add, reduce_res=sums[p, c + one])
        twice = nl.multiply(power, 2.0)
        nl.store(out[p, 512 * c + f], value=twice)
    nl.store(total, value=sums)
    return total, out
""",
        ),
        ((128, 2048),),
    ),
    "sums of chunks": (
        legacy(
            "x",
            """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[None, :]
    sums = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(4):
        tile = nl.load(x[p, 512 * c + f])
        power = nl.exp(tile)
        sums[p, c + one] = nl.sum(power, axis=1)
        twice = nl.multiply(power, 2.0)
        nl.store(out[p, 512 * c + f], value=twice)
    nl.store(total, value=sums)
    return total, out
""",
        ),
        ((128, 2048),),
    ),
    "a loaded tile that an activation overwrites with a sum": (
        tiled(
            "x, w",
            (512, 512),
            f=512,
            body="""
    for i in nl.affine_range(4):
        weight = nl.load(w)
        tile = nl.load(x[128 * i + p, f])
        scaled = nl.multiply(tile, weight)
        power = nisa.activation_reduce(op=nl.exp, data=scaled, reduce_op=np.add, reduce_res=weight)
        inverse = nl.reciprocal(weight)
        made = nl.multiply(power, inverse)
        nl.store(out[128 * i + p, f], value=made)
""",
        ),
        ((512, 512), (128, 1)),
    ),
    "a sum over one of two free axes": (
        legacy(
            "x",
            """
    out = nl.ndarray((128, 4, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    power = nl.exp(tile)
    total = nl.sum(power, axis=1)
    twice = nl.multiply(power, 2.0)
    i, j, k = nl.mgrid[0:128, 0:4, 0:256]
    nl.store(out[i, j, k], value=twice)
    return out
""",
        ),
        ((128, 4, 256),),
    ),
    "a named width, and a maximum of each tile": (
        legacy(
            "x",
            """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    width = 512
    p = nl.arange(128)[:, None]
    f = nl.arange(width)[None, :]
    for c in range(0, 2048, width):
        tile = nl.load(x[p, c + f])
        highest = nl.max(tile, axis=1)
        made = nl.subtract(tile, highest)
        nl.store(out[p, c + f], value=made)
    return out
""",
        ),
        ((128, 2048),),
    ),
    "an activation function step by step, whose first step also adds up": (
        legacy(
            "x",
            """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[None, :]
    sums = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(4):
        tile = nl.load(x[p, 512 * c + f])
        decay = nisa.activation(op=nl.exp, data=tile, scale=-1.0, reduce_op=np.add, reduce_res=sums[p, c + one], reduce_cmd=nisa.reduce_cmd.reset_reduce)
        plus = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)
        sigmoid = nisa.reciprocal(data=plus)
        made = nl.multiply(tile, sigmoid)
        nl.store(out[p, 512 * c + f], value=made)
    nl.store(total, value=sums)
    return total, out
""",
        ),
        ((128, 2048),),
    ),
    "a bias that changes between two steps": (
        tiled(
            "x, b",
            (128, 512),
            one=1,
            body="""
    bias = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    bias[p, one] = nl.load(b)
    tile = nl.load(x)
    positive = nl.multiply(tile, tile)
    more = nl.multiply(bias[p, one], bias[p, one])
    bias[p, one] = nl.add(more, 1.0)
    root = nisa.activation(op=nl.sqrt, data=positive, bias=bias[p, one])
    bias[p, one] = nl.add(more, 7.0)
    made = nisa.reciprocal(data=root)
    last = nl.multiply(made, bias[p, one])
    nl.store(out, value=last)
""",
        ),
        ((128, 512), (128, 1)),
    ),
    "a function that changes its argument": (
        legacy(
            "x",
            """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for c in nl.affine_range(4):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[p, 512 * c + f])
        power = nl.exp(tile[p, f])
        grown = bump(tile, p, f)
        made = nl.multiply(power, tile[p, f])
        more = nl.add(made, grown)
        nl.store(out[p, 512 * c + f], value=more)
    return out


def bump(tile, p, f):
    tile[p, f] = nl.add(tile[p, f], 1.0)
    return nl.multiply(tile[p, f], 0.5)
""",
        ),
        ((128, 2048),),
    ),
    "a second name of a tile": (
        legacy(
            "x",
            """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for c in nl.affine_range(4):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        same = tile
        tile[p, f] = nl.load(x[p, 512 * c + f])
        power = nl.exp(tile[p, f])
        same[p, f] = nl.multiply(tile[p, f], 3.0)
        made = nl.multiply(power, tile[p, f])
        nl.store(out[p, 512 * c + f], value=made)
    return out
""",
        ),
        ((128, 2048),),
    ),
    "values carried from one iteration to the next": (
        tiled(
            "x",
            (128, 1),
            f=512,
            one=1,
            body="""
    best = nl.full((nl.par_dim(128), 1), -1e30, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.zeros((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.sequential_range(4):
        tile = nl.load(x[p, 512 * c + f])
        here = nl.max(tile, axis=1)
        new = nl.maximum(best[p, one], here)
        gap = nl.subtract(best[p, one], new)
        scale = nl.exp(gap)
        best[p, one] = nl.copy(new)
        negative = nl.multiply(new, -1.0)
        power = nisa.activation(op=nl.exp, data=tile, bias=negative)
        mine = nl.sum(power, axis=1)
        kept = nl.multiply(total[p, one], scale)
        total[p, one] = nl.add(kept, mine)
    nl.store(out, value=total)
""",
        ),
        ((128, 2048),),
    ),
    "products, transposes and a softmax": (
        tiled(
            "q, k, v",
            (512, 128),
            c=128,
            f=512,
            one=1,
            body="""
    for i in nl.affine_range(4):
        left = nl.load(q[p, 128 * i + c])
        keys = nl.load(k[p, f])
        scores = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        scores[p, f] = nisa.nc_matmul(left, keys)
        highest = nisa.tensor_reduce(nl.max, data=scores[p, f], axis=[1], negate=True)
        power = nisa.activation(op=nl.exp, data=scores[p, f], bias=highest, scale=1.0)
        total = nisa.tensor_reduce(nl.add, data=power, axis=[1])
        inverse = nisa.reciprocal(data=total)
        weights = nl.multiply(power, inverse)
        acc = nl.zeros((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
        for j in nl.affine_range(4):
            turned = nisa.nc_transpose(weights[p, 128 * j + c])
            turned_sb = nl.copy(turned)
            values = nl.load(v[128 * j + p, c])
            acc[p, c] += nisa.nc_matmul(turned_sb, values)
        made = nl.copy(acc[p, c])
        nl.store(out[128 * i + p, c], value=made)
""",
        ),
        ((128, 512), (128, 512), (512, 128)),
    ),
    "current API: a loaded tile that an activation overwrites with a sum": (
        current(
            "x, w",
            """
    out = nl.ndarray((512, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        weight = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        scaled = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        power = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=weight, src=w[0:128, 0:1])
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * i, 128), 0:512])
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=weight)
        nisa.activation_reduce(dst=power, op=nl.exp, data=scaled, reduce_op=nl.add, reduce_res=weight)
        nisa.tensor_scalar(dst=made, data=power, op0=nl.multiply, operand0=weight)
        nisa.dma_copy(dst=out[nl.ds(128 * i, 128), 0:512], src=made)
    return out
""",
        ),
        ((512, 512), (128, 1)),
    ),
    "current API: sums of chunks": (
        current(
            "x",
            """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(4):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        power = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        twice = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[0:128, nl.ds(512 * c, 512)])
        nisa.activation(dst=power, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=sums[0:128, nl.ds(c, 1)], reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.tensor_scalar(dst=twice, data=power, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[0:128, nl.ds(512 * c, 512)], src=twice)
    nisa.dma_copy(dst=total, src=sums)
    return total, out
""",
        ),
        ((128, 2048),),
    ),
    "current API: products": (
        current(
            "x, w",
            """
    out = nl.ndarray((512, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(4):
        for n in nl.affine_range(2):
            acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            for k in nl.affine_range(2):
                left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
                right = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=x[nl.ds(128 * k, 128), nl.ds(128 * m, 128)])
                nisa.dma_copy(dst=right, src=w[nl.ds(128 * k, 128), nl.ds(512 * n, 512)])
                nisa.nc_matmul(dst=acc, stationary=left, moving=right)
            nisa.tensor_copy(dst=made, src=acc)
            nisa.dma_copy(dst=out[nl.ds(128 * m, 128), nl.ds(512 * n, 512)], src=made)
    return out
""",
        ),
        ((256, 512), (256, 1024)),
    ),
    "loads that transpose an operand": (
        tiled(
            "x, w",
            (512, 1024),
            q=128,
            f=512,
            body="""
    for m in nl.affine_range(4):
        for n in nl.affine_range(2):
            acc = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(2):
                left = nl.load_transpose2d(x[128 * m + p, 128 * k + q])
                right = nl.load(w[128 * k + p, 512 * n + f])
                acc[p, f] += nisa.nc_matmul(left, right)
            made = nl.copy(acc[p, f])
            nl.store(out[128 * m + p, 512 * n + f], value=made)
""",
        ),
        ((512, 256), (256, 1024)),
    ),
    "a load that transposes the same tile again and again": (
        tiled(
            "x, w",
            (512, 64),
            f=64,
            body="""
    i64 = nl.arange(64)[:, None]
    q = nl.arange(128)[None, :]
    for i in nl.affine_range(4):
        scale = nl.load_transpose2d(x[i64, q])
        tile = nl.load(w[128 * i + p, f])
        made = nl.multiply(tile, scale)
        more = nl.add(made, 1.0)
        nl.store(out[128 * i + p, f], value=more)
""",
        ),
        ((64, 128), (512, 64)),
    ),
    "branches that the shapes decide": (
        legacy(
            "x",
            """
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    tail = rows % 128
    for i in nl.affine_range(rows // 128):
        if tail > 0 and columns == 512:  # the usual case
            scale = 2.0

            tile = nl.load(x[128 * i + p,
      f])
            decay = nisa.activation(op=nl.exp, data=tile, scale=-1.0)
            # one more
            plus = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)
        elif tail == 7:
            scale = 3.0
        else:
            scale = 4.0
        sigmoid = nisa.reciprocal(data=plus)
        made = nl.multiply(tile, sigmoid)
        nl.store(out[128 * i + p, f], value=made)
    if columns > 512:
        raise ValueError("too wide")
    elif not tail:
        pass
    else:
        last = nl.load(x[rows - tail + nl.arange(44)[:, None], f])
        nl.store(out[rows - tail + nl.arange(44)[:, None], f], value=last)
    return out
""",
        ),
        ((300, 512),),
    ),
    "scans over tiles from before the loop, added up": (
        legacy(
            "x, u, b, c",
            """
    out = nl.ndarray((256, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(2):
        total = nl.zeros((nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
        x_tile = nl.load(x[128 * t:128 * t + 128, 0:4096])
        u_tile = nl.load(u[128 * t:128 * t + 128, 0:4096])
        for s in nl.affine_range(4):
            decay = nisa.activation(op=nl.sigmoid, data=x_tile)
            part = nisa.tensor_tensor(x_tile, u_tile, op=nl.multiply)
            b_row = nl.load(b[s:s + 1, 0:4096])
            grown = nisa.tensor_tensor(part, b_row.broadcast_to((128, 4096)), op=nl.multiply)
            scanned = nisa.tensor_tensor_scan(decay, grown, initial=0, op0=np.multiply, op1=np.add)
            c_row = nl.load(c[s:s + 1, 0:4096])
            mine = nisa.tensor_tensor(scanned, c_row.broadcast_to((128, 4096)), op=nl.multiply)
            total += mine
        nl.store(out[128 * t:128 * t + 128, 0:4096], value=total)
    return out
""",
        ),
        ((256, 4096), (256, 4096), (4, 4096), (4, 4096)),
    ),
    "a sum that its own loop reads": (
        legacy(
            "x, u",
            """
    out = nl.ndarray((256, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(2):
        total = nl.zeros((nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
        x_tile = nl.load(x[128 * t:128 * t + 128, 0:4096])
        u_tile = nl.load(u[128 * t:128 * t + 128, 0:4096])
        for s in nl.sequential_range(4):
            decay = nisa.activation(op=nl.sigmoid, data=x_tile)
            part = nisa.tensor_tensor(decay, u_tile, op=nl.multiply)
            more = nl.add(part, total)
            total += more
        nl.store(out[128 * t:128 * t + 128, 0:4096], value=total)
    return out
""",
        ),
        ((256, 4096), (256, 4096)),
    ),
    "a row that is broadcast in every iteration": (
        legacy(
            "x, b",
            """
    out = nl.ndarray((256, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(2):
        row = nl.load(b[0:1, 0:2048])
        rows = row.broadcast_to((128, 2048))
        tile = nl.load(x[128 * t:128 * t + 128, 0:2048])
        made = nisa.tensor_tensor(tile, rows, op=nl.multiply)
        more = nisa.tensor_tensor(made, rows, op=nl.add)
        nl.store(out[128 * t:128 * t + 128, 0:2048], value=more)
    return out
""",
        ),
        ((256, 2048), (1, 2048)),
    ),
    "current API: a row that a function of the file spreads in every iteration": (SCALED, ((512, 256), (1, 256))),
    "products of blocks, added up in SBUF": (
        tiled(
            "x, w",
            (2, 128, 512),
            c=128,
            f=512,
            body="""
    right = nl.ndarray((2, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    left = nl.ndarray((2, 2, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.zeros((2, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    total = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for s in nl.sequential_range(2):
        for k in nl.affine_range(2):
            right[s, k, p, f] = nl.load(w[256 * s + 128 * k + p, f])
        for m in nl.affine_range(2):
            for k in nl.affine_range(2):
                left[s, m, k, p, c] = nl.load(x[256 * s + 128 * k + p, 128 * m + c])
            for k in nl.affine_range(2):
                part[s, m, p, f] += nisa.nc_matmul(left[s, m, k, p, c], right[s, k, p, f])
            total[m, p, f] = nl.loop_reduce(part[s, m, p, f], op=np.add, loop_indices=[s])
    for m in nl.affine_range(2):
        made = nl.multiply(total[m, p, f], 2.0)
        nl.store(out[m, p, f], value=made)
""",
        ),
        ((512, 256), (512, 512)),
    ),
    "products of blocks, added to what a step before left behind": (
        tiled(
            "x, w",
            (2, 128, 512),
            c=128,
            f=512,
            body="""
    left = nl.ndarray((3, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(2):
        left[0, m, p, c] = nl.load(x[p, 128 * m + c])
    for s in nl.sequential_range(2):
        right = nl.load(w[128 * s + p, f])
        for m in nl.affine_range(2):
            part = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            part[p, f] += nisa.nc_matmul(left[s, m, p, c], right)
            left[s + 1, m, p, c] = nl.tanh(left[s, m, p, c])
            total[m, p, f] += part[p, f]
    for m in nl.affine_range(2):
        nl.store(out[m, p, f], value=total[m, p, f])
""",
        ),
        ((128, 256), (256, 512)),
    ),
    "products added up, and the largest of each step": (
        legacy(
            "x, w",
            """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    highest = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    one = nl.arange(1)[None, :]
    tops = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for s in nl.sequential_range(4):
        part = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        left = nl.load(x[128 * s + p, c])
        right = nl.load(w[128 * s + p, f])
        part[p, f] += nisa.nc_matmul(left, right)
        tops[p, s + one] = nl.max(part[p, f], axis=1)
        total[p, f] = nl.add(total[p, f], part[p, f])
    nl.store(highest, value=tops)
    nl.store(out, value=total)
    return highest, out
""",
        ),
        ((512, 128), (512, 512)),
    ),
    "transposes in the current API, then products that add up": (
        current(
            "x, w",
            """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 4, 512), dtype=nl.float32, buffer=nl.sbuf)
    x_t = nl.ndarray((128, 2, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(4):
        nisa.dma_copy(dst=w_tile[0:128, k, 0:512], src=w[k, 0:128, 0:512])
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:512])
        for k in nl.affine_range(4):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=x_tile[0:128, nl.ds(128 * k, 128)])
            nisa.tensor_copy(dst=x_t[0:128, row, k, 0:128], src=turned)
    for row in nl.affine_range(2):
        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        out_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(4):
            nisa.nc_matmul(
                dst=product, stationary=x_t[0:128, row, k, 0:128], moving=w_tile[0:128, k, 0:512], accumulate=k > 0
            )
        nisa.tensor_copy(dst=out_tile, src=product)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=out_tile)
    return out
""",
        ),
        ((2, 128, 512), (4, 128, 512)),
    ),
    "sums of products in the current API, side by side, and one that the tensor engine adds up by itself": (
        current(
            "x, w",
            """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    again = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    w_tile = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
    x_tile = nl.ndarray((128, 2, 4, 128), dtype=nl.float32, buffer=nl.sbuf)
    whole = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(2):
        nisa.dma_copy(dst=w_tile[0:128, k, 0:128], src=w[k, 0:128, 0:128])
        nisa.dma_copy(dst=x_tile[0:128, k, 0:4, 0:128], src=x[k, 0:128, 0:4, 0:128])
    for part in nl.affine_range(4):
        total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            nisa.nc_matmul(dst=total, stationary=w_tile[0:128, k, 0:128], moving=x_tile[0:128, k, part, 0:128])
        nisa.tensor_copy(dst=kept[0:128, nl.ds(128 * part, 128)], src=total)
    for k in nl.affine_range(2):
        for part in nl.affine_range(4):
            nisa.nc_matmul(
                dst=whole[0:128, nl.ds(128 * part, 128)],
                stationary=w_tile[0:128, k, 0:128],
                moving=x_tile[0:128, k, part, 0:128],
                accumulate=k > 0,
            )
    nisa.tensor_tensor(dst=again, data1=kept, data2=whole, op=nl.add)
    nisa.dma_copy(dst=out, src=again)
    return out
""",
        ),
        ((2, 128, 4, 128), (2, 128, 128)),
    ),
    "stages in the current API, each with tiles of its own": (test_moves.STAGES, tuple(test_moves.SHAPES)),
    "products with parts of a wide operand": (
        tiled(
            "x, w",
            (2, 128, 1024),
            c=128,
            f=512,
            wide=1024,
            body="""
    left = nl.ndarray((2, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.zeros((2, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    made = nl.ndarray((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(2):
        for k in nl.affine_range(2):
            left[m, k, p, c] = nl.load(x[128 * k + p, 128 * m + c])
    for k in nl.affine_range(2):
        right[k, p, wide] = nl.load(w[128 * k + p, wide])
    for m in nl.affine_range(2):
        for h in nl.affine_range(2):
            for k in nl.affine_range(2):
                part[m, h, p, f] += nisa.nc_matmul(left[m, k, p, c], right[k, p, 512 * h + f])
            made[m, p, 512 * h + f] = nl.copy(part[m, h, p, f])
        nl.store(out[m, p, wide], value=made[m, p, wide])
""",
        ),
        ((256, 256), (256, 1024)),
    ),
    "a wide tile whose parts are scaled by a sum over all of it": (
        tiled(
            "x, w",
            (2, 128, 1024),
            f=512,
            one=1,
            wide=1024,
            body="""
    right = nl.ndarray((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.ndarray((2, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    made = nl.ndarray((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(2):
        tile = nl.load(w[128 * m + p, wide])
        right[m, p, wide] = nisa.activation_reduce(op=nl.exp, data=tile, reduce_op=np.add, reduce_res=sums[m, p, one])
    for m in nl.affine_range(2):
        for h in nl.affine_range(2):
            scale = nl.load(x[p, one])
            both = nl.multiply(sums[m, p, one], scale)
            made[m, p, 512 * h + f] = nl.multiply(right[m, p, 512 * h + f], both)
        nl.store(out[m, p, wide], value=made[m, p, wide])
""",
        ),
        ((128, 1), (256, 1024)),
    ),
    "a wide tile whose parts a function changes": (
        legacy(
            "x",
            """
    out = nl.ndarray((2, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    wide = nl.arange(1024)[None, :]
    right = nl.ndarray((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    made = nl.ndarray((2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(2):
        right[m, p, wide] = nl.load(x[128 * m + p, wide])
    for m in nl.affine_range(2):
        for h in nl.affine_range(2):
            bump(right, m, p, 512 * (1 - h) + f)
            made[m, p, 512 * h + f] = nl.multiply(right[m, p, 512 * h + f], 2.0)
        nl.store(out[m, p, wide], value=made[m, p, wide])
    return out


def bump(tile, m, p, f):
    tile[m, p, f] = nl.add(tile[m, p, f], 1.0)
""",
        ),
        ((256, 1024),),
    ),
}
OVER_RANGE = ", over Python's range"
KERNELS |= {
    f"{name}{OVER_RANGE}": (source.replace("nl.affine_range", "range"), shapes)
    for name, (source, shapes) in KERNELS.items()
    if api_of(source) == "nki" and "nl.affine_range" in source
}
_TOLERANCE = 3e-5
"""Relative error allowed in the L2 norm: that of products of bfloat16 parts."""


def rewrites(source: str, shapes: Shapes) -> Iterator[tuple[str, str]]:
    """Yield the name and the result of each rewrite that is offered and carried out."""
    dtypes = ("float32",) * len(shapes)
    for move in moves(source, Launch(api_of(source), shapes, dtypes)):
        text = move.apply()
        if text is not None:
            yield move.step, text


def assert_close(step: str, source: str, inputs: list[Array], expected: Array) -> None:
    for shuffle in (None, 3):
        error = np.linalg.norm(run(source, *inputs, shuffle=shuffle, chip="trn2") - expected) / np.linalg.norm(expected)
        assert error < _TOLERANCE, step


@pytest.mark.parametrize("name", KERNELS)
def test_a_profile_adds_no_rewrite_because_sequences_are_repeated_without_one(name: str) -> None:
    text, shapes = KERNELS[name]
    counters = {"spill_save_bytes": 1e6, "hbm_read_bytes": 9e6, "written_read_bytes": 1e6}
    busy = {"tensor": 1.0, "vector": 9.0, "scalar": 5.0, "gpsimd": 0.0, "dma": 9.0}
    profile = Profile(Source.SIMULATED, "trn2", "nki_legacy", 10.0, "m", counters=counters, engines_us=busy)

    def steps(known: Profile | None) -> set[str]:
        return {move.step for move in moves(text, Launch(api_of(text), shapes), known)}

    assert steps(profile) <= steps(None)


@pytest.mark.parametrize(
    "name",
    [
        # the same rewrites are offered over Python's range, which the last test of this file checks
        pytest.param(name, marks=pytest.mark.slow) if number % (3 if OVER_RANGE in name else 2) else name
        for number, name in enumerate(KERNELS)
    ],
)
def test_every_rewrite_leaves_the_results_as_they_are(name: str) -> None:
    source, shapes = KERNELS[name]
    inputs = arrays(*shapes)
    expected = run(source, *inputs)
    for step, text in rewrites(source, shapes):
        assert_close(step, text, inputs, expected)


@pytest.mark.parametrize(
    "name",
    [
        "sums of chunks",
        "a bias that changes between two steps",
        "a row that is broadcast in every iteration",
        pytest.param("products of blocks, added up in SBUF", marks=pytest.mark.slow),
        pytest.param("products with parts of a wide operand", marks=pytest.mark.slow),
        "sums of parts in blocks",
        "greatest of parts side by side",
        "sums of products with a copy and a store each",
        "tiles made long before they are used",
    ],
)
def test_every_rewrite_of_a_rewritten_kernel_leaves_the_results_as_they_are(name: str) -> None:
    source, shapes = KERNELS[name]
    inputs = arrays(*shapes)
    expected = run(source, *inputs)
    found = {
        text: f"{first}, {second}"  # two steps often make the same text in either order
        for first, once in rewrites(source, shapes)
        for second, text in rewrites(once, shapes)
    }
    for text, steps in found.items():
        assert_close(steps, text, inputs, expected)


def test_an_activation_that_also_adds_up_may_move_into_the_nest_that_reads_its_sum() -> None:
    source, shapes = KERNELS["rows of sums that the second nest reads in the other order"]
    in_order = source.replace("sums[3 - i", "sums[i")
    fused = {step: text for step, text in rewrites(in_order, shapes) if step.startswith("fuse_nests")}
    assert fused
    inputs = arrays(*shapes)
    for step, text in fused.items():
        assert_close(step, text, inputs, run(in_order, *inputs))


ANY_SHAPE = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, lhs):
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(rows // 128):
        whole = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=whole, src=x[nl.ds(128 * row, 128), 0:width])
        grown = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
        for part in nl.affine_range(width // 512):
            nisa.activation(dst=grown[0:128, nl.ds(512 * part, 512)], op=nl.exp, data=whole[0:128, nl.ds(512 * part, 512)])
        for part in nl.affine_range(width // 512):
            left = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=lhs[0:128, 0:128])
            product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=product, stationary=left, moving=grown[0:128, nl.ds(512 * part, 512)])
            done = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=done, src=product)
            nisa.dma_copy(dst=out[nl.ds(128 * row, 128), nl.ds(512 * part, 512)], src=done)
    return out
"""


def test_wider_tiles_fit_other_shapes_also_in_two_steps() -> None:
    written, other = ((256, 4096), (128, 128)), arrays((384, 2048), (128, 128))
    expected = run(ANY_SHAPE, *other, chip="trn2")
    wider = {step: text for step, text in rewrites(ANY_SHAPE, written) if step.startswith("widen_tiles 1024")}
    assert len(wider) == 1
    for text in [*wider.values()]:
        wider |= {step: again for step, again in rewrites(text, written) if step.startswith("widen_tiles")}
    assert len(wider) > 1
    for step, text in wider.items():
        assert "4096" not in text, step
        found = run(text, *other, chip="trn2")
        assert np.linalg.norm(found - expected) < _TOLERANCE * np.linalg.norm(expected), step


def test_a_rewrite_of_a_whole_loop_fits_other_shapes() -> None:
    written, other = ((256, 2048), (128, 128)), arrays((384, 1024), (128, 128))
    expected = run(ANY_SHAPE, *other, chip="trn2")
    fitting = set()
    for step, text in rewrites(ANY_SHAPE, written):
        try:
            found = run(text, *other, chip="trn2")
        except KernelFailure:
            continue
        assert np.linalg.norm(found - expected) < _TOLERANCE * np.linalg.norm(expected), step
        fitting.add(step.partition(", line")[0])
    assert {"widen_tiles 2048 columns", "store_once 2048 columns", "pipeline_stages one iteration ahead"} <= fitting, (
        fitting
    )


def test_as_good_as_every_rewrite_is_offered_over_pythons_range_too() -> None:
    """Rules may only leave out loops whose iterations they can not prove to be independent."""
    offered = {name: len(moves(source, Launch(api_of(source), shapes))) for name, (source, shapes) in KERNELS.items()}
    over_range = {name: count for name, count in offered.items() if name.endswith(OVER_RANGE)}
    affine = sum(offered[name.removesuffix(OVER_RANGE)] for name in over_range)
    assert len(over_range) > 10 and sum(over_range.values()) >= 0.9 * affine
