# expect: truthful
# workload: st_rope
# at_least: 0.6
"""Doubled and halved again before each tensor_tensor."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray((128, 32768), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    h = nl.arange(64)[:, None]
    w = nl.arange(2048)[None, :]
    f = nl.arange(512)[None, :]
    for tile in nl.affine_range(16):
        x_tile = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
        out_tile = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
        x_tile[p, w] = nl.load(x[p, 2048 * tile + w])
        lower = nl.load(x[64 + h, 2048 * tile + w])
        cos_tile = nl.load(cos[h, 2048 * tile + w])
        sin_tile = nl.load(sin[h, 2048 * tile + w])
        for k in nl.affine_range(4):
            upper_cos = nisa.tensor_tensor(
                nisa.tensor_scalar(
                    data=x_tile[h, 512 * k + f], op0=nl.multiply, operand0=2.0, op1=nl.multiply, operand1=0.5
                ),
                cos_tile[h, 512 * k + f],
                op=nl.multiply,
            )
            lower_sin = nisa.tensor_tensor(
                nisa.tensor_scalar(
                    data=lower[h, 512 * k + f], op0=nl.multiply, operand0=2.0, op1=nl.multiply, operand1=0.5
                ),
                sin_tile[h, 512 * k + f],
                op=nl.multiply,
            )
            upper_sin = nisa.tensor_tensor(
                nisa.tensor_scalar(
                    data=x_tile[h, 512 * k + f], op0=nl.multiply, operand0=2.0, op1=nl.multiply, operand1=0.5
                ),
                sin_tile[h, 512 * k + f],
                op=nl.multiply,
            )
            lower_cos = nisa.tensor_tensor(
                nisa.tensor_scalar(
                    data=lower[h, 512 * k + f], op0=nl.multiply, operand0=2.0, op1=nl.multiply, operand1=0.5
                ),
                cos_tile[h, 512 * k + f],
                op=nl.multiply,
            )
            out_tile[h, 512 * k + f] = nisa.tensor_tensor(
                nisa.tensor_scalar(data=upper_cos, op0=nl.multiply, operand0=2.0, op1=nl.multiply, operand1=0.5),
                lower_sin,
                op=nl.subtract,
            )
            out_tile[64 + h, 512 * k + f] = nisa.tensor_tensor(
                nisa.tensor_scalar(data=upper_sin, op0=nl.multiply, operand0=2.0, op1=nl.multiply, operand1=0.5),
                lower_cos,
                op=nl.add,
            )
        nl.store(out[p, 2048 * tile + w], value=out_tile[p, w])
    return out
