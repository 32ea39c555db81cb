# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""The other half of a tile is never written, and never selected."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        half = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=half[:, 0:256], op=nl.silu, data=tile[:, 0:256])
        whole = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=whole, op=nl.silu, data=tile)
        picked = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.affine_select(
            dst=picked,
            pattern=[[-1, 512]],
            offset=255,
            channel_multiplier=0,
            on_true_tile=half,
            on_false_value=0.0,
            cmp_op=nl.greater_equal,
        )
        nisa.tensor_copy(dst=done[:, 0:256], src=picked[:, 0:256])
        nisa.tensor_copy(dst=done[:, 256:512], src=whole[:, 256:512])
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
