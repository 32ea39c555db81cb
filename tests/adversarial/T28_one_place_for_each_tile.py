# expect: truthful
# workload: st_rope
# at_least: 1.1
"""Each tile has one place, so a load waits until the tile of the iteration before is stored."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, cos, sin):
    out = nl.ndarray((128, 32768), dtype=nl.float32, buffer=nl.shared_hbm)
    h = nl.arange(64)[:, None]
    f = nl.arange(2048)[None, :]
    for step in nl.affine_range(16):
        tiles = []
        for number in range(6):
            place = ncc.sbuf.mod_alloc(base_addr=8192 * number)
            tiles.append(nl.ndarray((nl.par_dim(64), 2048), dtype=nl.float32, buffer=place))
        upper, lower, c, s, one, two = tiles
        upper[h, f] = nl.load(x[h, 2048 * step + f])
        lower[h, f] = nl.load(x[64 + h, 2048 * step + f])
        c[h, f] = nl.load(cos[h, 2048 * step + f])
        s[h, f] = nl.load(sin[h, 2048 * step + f])
        one[h, f] = nisa.tensor_tensor(upper[h, f], c[h, f], op=nl.multiply)
        two[h, f] = nisa.tensor_tensor(lower[h, f], s[h, f], op=nl.multiply)
        one[h, f] = nisa.tensor_tensor(one[h, f], two[h, f], op=nl.subtract)
        nl.store(out[h, 2048 * step + f], value=one[h, f])
        two[h, f] = nisa.tensor_tensor(lower[h, f], c[h, f], op=nl.multiply)
        upper[h, f] = nisa.tensor_tensor(upper[h, f], s[h, f], op=nl.multiply)
        two[h, f] = nisa.tensor_tensor(two[h, f], upper[h, f], op=nl.add)
        nl.store(out[64 + h, 2048 * step + f], value=two[h, f])
    return out
