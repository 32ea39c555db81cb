# expect: pass
# workload: st_silu
# api: nki
# chip: trn2
"""Properties with setters, decorators with arguments, class attributes, methods as values."""

import nki
import nki.isa as nisa
import nki.language as nl


class Plan:
    made = 0

    def __init__(self):
        self._width = 8
        Plan.made += 1

    @property
    def width(self):
        return self._width

    @width.setter
    def width(self, value):
        self._width = value

    @property
    def rows(self):
        return [k for k in range(2)]

    def halve(self):
        self._width //= 2
        return self


def times(n):
    def decorate(function):
        def called(*args):
            result = args[0]
            for _ in range(n):
                result = function(result)
            return result

        return called

    return decorate


@times(2)
def doubled(n):
    return 2 * n


@nki.jit
def kernel(x):
    plan = Plan()
    plan.width = 16
    plan.halve()
    assert plan.width == 8 and Plan.made == 1 and plan.rows == [0, 1] and doubled(4) == 16
    again = plan.halve
    assert again() is plan and plan.width == 4
    plan.width = 8
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        for row in plan.rows:
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
