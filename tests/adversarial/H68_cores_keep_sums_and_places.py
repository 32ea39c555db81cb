# expect: pass
# workload: st_softmax
# api: nki
# chip: trn2
# lnc: 2
"""Each core keeps a place in a register and a sum in accumulators while it waits for the other core."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(axis=0)
    place = nisa.register_alloc(128 * core)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    negative = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.ap([[512, 128], [1, 512]], scalar_offset=place, indirect_dim=0))
    nisa.tensor_reduce(dst=negative, op=nl.maximum, data=tile, axis=1, negate=True)
    for half in range(2):
        part = tile[:, nl.ds(256 * half, 256)]
        command = nisa.reduce_cmd.reduce if half else nisa.reduce_cmd.reset_reduce
        nisa.activation(
            dst=part, op=nl.exp, data=part, bias=negative, reduce_op=nl.add, reduce_res=total, reduce_cmd=command
        )
        nisa.core_barrier(data=out, cores=(0, 1))
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
    nisa.dma_copy(dst=out.ap([[512, 128], [1, 512]], scalar_offset=place, indirect_dim=0), src=tile)
    return out
