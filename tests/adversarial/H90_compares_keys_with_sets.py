# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Keys of dicts compared with sets."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    config = {"rows": 2, "width": 8, "op": "silu"}
    assert config.keys() >= {"rows", "width"} and {"rows"} <= config.keys() and {"rows"} < config.keys()
    assert config.keys() == {"op", "rows", "width"} and not config.keys().isdisjoint({"op", "x"})
    assert config.keys() - {"op", "rows"} == {"width"} and "op" in config.keys() | {"z"}
    assert sorted(config.keys() ^ {"op", "z"}) == ["rows", "width", "z"] and ("rows", 2) in config.items()
    assert set(config) == set(config.keys()) == {*config} and len({**config, "z": 1}) == 4
    assert list(reversed(config.keys()))[0] == "op" and [*config.keys()][0] == "rows"
    assert any(one == "op" for one in config) and all(isinstance(one, str) for one in config.keys())
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
