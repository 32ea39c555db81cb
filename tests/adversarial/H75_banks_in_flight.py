# expect: pass
# workload: st_silu_current
# api: nki
# chip: trn2
"""Four banks of PSUM hold pieces at the same time."""

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
        banks = [nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum) for _ in range(4)]
        for number in range(4):
            nisa.activation(dst=banks[number], op=nl.sigmoid, data=tile[:, nl.ds(128 * number, 128)])
        for number in range(4):
            nisa.tensor_tensor(
                dst=done[:, nl.ds(128 * number, 128)],
                data1=banks[number],
                data2=tile[:, nl.ds(128 * number, 128)],
                op=nl.multiply,
            )
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=done)
    return out
