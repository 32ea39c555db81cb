# expect: truthful
# workload: st_rope
# at_least: 0.6
"""Halves and doubles beside eight tiles that hold every bank of PSUM by address."""

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
    spare = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.hbm)
    first = nl.load(cos[h, f])
    bank0 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
    bank0[h, f] = nl.copy(first)
    bank1 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=1))
    bank1[h, f] = nl.copy(first)
    bank2 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=2))
    bank2[h, f] = nl.copy(first)
    bank3 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=3))
    bank3[h, f] = nl.copy(first)
    bank4 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=4))
    bank4[h, f] = nl.copy(first)
    bank5 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=5))
    bank5[h, f] = nl.copy(first)
    bank6 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=6))
    bank6[h, f] = nl.copy(first)
    bank7 = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=7))
    bank7[h, f] = nl.copy(first)
    for tile in nl.affine_range(16):
        x_tile = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
        out_tile = nl.ndarray((nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
        x_tile[p, w] = nl.load(x[p, 2048 * tile + w])
        lower = nl.load(x[64 + h, 2048 * tile + w])
        cos_tile = nl.load(cos[h, 2048 * tile + w])
        sin_tile = nl.load(sin[h, 2048 * tile + w])
        for k in nl.affine_range(4):
            half0 = nisa.tensor_scalar(data=x_tile[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            upper_cos = nisa.tensor_tensor(half0, cos_tile[h, 512 * k + f], op=nl.multiply)
            half1 = nisa.tensor_scalar(data=lower[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            lower_sin = nisa.tensor_tensor(half1, sin_tile[h, 512 * k + f], op=nl.multiply)
            half2 = nisa.tensor_scalar(data=x_tile[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            upper_sin = nisa.tensor_tensor(half2, sin_tile[h, 512 * k + f], op=nl.multiply)
            half3 = nisa.tensor_scalar(data=lower[h, 512 * k + f], op0=nl.multiply, operand0=0.5)
            lower_cos = nisa.tensor_tensor(half3, cos_tile[h, 512 * k + f], op=nl.multiply)
            twice_upper_cos = nisa.tensor_scalar(data=upper_cos, op0=nl.multiply, operand0=2.0)
            twice_lower_sin = nisa.tensor_scalar(data=lower_sin, op0=nl.multiply, operand0=2.0)
            out_tile[h, 512 * k + f] = nisa.tensor_tensor(twice_upper_cos, twice_lower_sin, op=nl.subtract)
            twice_upper_sin = nisa.tensor_scalar(data=upper_sin, op0=nl.multiply, operand0=2.0)
            twice_lower_cos = nisa.tensor_scalar(data=lower_cos, op0=nl.multiply, operand0=2.0)
            out_tile[64 + h, 512 * k + f] = nisa.tensor_tensor(twice_upper_sin, twice_lower_cos, op=nl.add)
        nl.store(out[p, 2048 * tile + w], value=out_tile[p, w])
    nl.store(spare[h, f], value=nl.copy(bank0[h, f]))
    nl.store(spare[h, f], value=nl.copy(bank1[h, f]))
    nl.store(spare[h, f], value=nl.copy(bank2[h, f]))
    nl.store(spare[h, f], value=nl.copy(bank3[h, f]))
    nl.store(spare[h, f], value=nl.copy(bank4[h, f]))
    nl.store(spare[h, f], value=nl.copy(bank5[h, f]))
    nl.store(spare[h, f], value=nl.copy(bank6[h, f]))
    nl.store(spare[h, f], value=nl.copy(bank7[h, f]))
    return out
