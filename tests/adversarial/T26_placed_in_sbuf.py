# expect: truthful
# workload: st_rope
# at_least: 0.6
"""Halves and doubles into tiles that it places in SBUF by hand: they can not be left in PSUM."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
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
            half0 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=65536))
            half0[h, f] = nisa.tensor_scalar(data=x_tile[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            upper_cos = nisa.tensor_tensor(half0, cos_tile[h, 512 * k + f], op=nl.multiply)
            half1 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=67584))
            half1[h, f] = nisa.tensor_scalar(data=lower[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            lower_sin = nisa.tensor_tensor(half1, sin_tile[h, 512 * k + f], op=nl.multiply)
            half2 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=69632))
            half2[h, f] = nisa.tensor_scalar(data=x_tile[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            upper_sin = nisa.tensor_tensor(half2, sin_tile[h, 512 * k + f], op=nl.multiply)
            half3 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=71680))
            half3[h, f] = nisa.tensor_scalar(data=lower[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            lower_cos = nisa.tensor_tensor(half3, cos_tile[h, 512 * k + f], op=nl.multiply)
            twice_upper_cos = nl.ndarray(
                (nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=73728)
            )
            twice_upper_cos[h, f] = nisa.tensor_scalar(data=upper_cos, op0=nl.multiply, operand0=2.0)
            twice_lower_sin = nl.ndarray(
                (nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=75776)
            )
            twice_lower_sin[h, f] = nisa.tensor_scalar(data=lower_sin, op0=nl.multiply, operand0=2.0)
            out_tile[h, 512 * k + f] = nisa.tensor_tensor(twice_upper_cos, twice_lower_sin, op=nl.subtract)
            twice_upper_sin = nl.ndarray(
                (nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=77824)
            )
            twice_upper_sin[h, f] = nisa.tensor_scalar(data=upper_sin, op0=nl.multiply, operand0=2.0)
            twice_lower_cos = nl.ndarray(
                (nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=79872)
            )
            twice_lower_cos[h, f] = nisa.tensor_scalar(data=lower_cos, op0=nl.multiply, operand0=2.0)
            out_tile[64 + h, 512 * k + f] = nisa.tensor_tensor(twice_upper_sin, twice_lower_cos, op=nl.add)
        nl.store(out[p, 2048 * tile + w], value=out_tile[p, w])
    return out
