# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Messages with types and dtypes; isinstance checks; match."""

import nki
import nki.isa as nisa
import nki.language as nl


def check(value, name):
    if not isinstance(value, int):
        raise TypeError(f"{name} is a {type(value)}")
    return value


def kind(op):
    match op:
        case "silu":
            return nl.silu
        case "gelu" | "gelu_tanh":
            return nl.gelu
        case other:
            raise ValueError(f"unknown {other!r} of {type(other)}")


@nki.jit
def kernel(x):
    width = check(8, "width")
    label = f"x: {x.dtype} {x.shape} {str(nl.float32)}"
    assert label, "dtype " + str(x.dtype)
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    op = kind("silu")
    for col in nl.affine_range(64):
        for row in range(2):
            tile = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(width * col, width)])
            nisa.activation(dst=tile, op=op, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(width * col, width)], src=tile)
    return out
