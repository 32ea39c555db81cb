# expect: pass
# workload: st_silu
"""A kernel with a configuration that checks itself, and a trial of the kernel for whoever runs the file."""

from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@dataclass
class Tiling:
    """Tiling of the rows."""

    rows: int
    height: int = 128

    def __post_init__(self):
        assert self.rows % self.height == 0
        self.count = self.rows // self.height


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(Tiling(x.shape[0]).count):
        tile = nl.load(x[128 * row + p, f])
        nl.store(out[128 * row + p, f], value=nisa.activation(op=nl.silu, data=tile))
    return out


if __name__ == "__main__":
    import numpy as np

    x = np.random.rand(256, 512).astype(np.float32)
    try:
        assert np.allclose(nki.simulate_kernel(kernel, x), x / (1 + np.exp(-x)), atol=1e-5)
    except AssertionError as error:
        print("wrong", error)
