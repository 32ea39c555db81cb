"""A reason of `widen_tiles` to refuse is true: a kernel in which a person did what it says is rewritten."""

from __future__ import annotations

import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import arrays, current, places_offered, places_refused, run

STEPS = current(
    "x, b",
    """
    out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        for c in nl.affine_range(4):
            x_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[nl.ds(128 * i, 128), nl.ds(256 * c, 256)])
            nisa.activation(dst=y_tile, op=nl.silu, data=x_tile)
            nisa.dma_copy(dst=out[nl.ds(128 * i, 128), nl.ds(256 * c, 256)], src=y_tile)
    return out
""",
)
SHAPES = ((256, 1024), (1, 1024))
_ACTIVATION = "            nisa.activation(dst=y_tile, op=nl.silu, data=x_tile)\n"
_LOOP = "        for c in nl.affine_range(4):\n"
_STORE = "            nisa.dma_copy(dst=out[nl.ds(128 * i, 128), nl.ds(256 * c, 256)], src=y_tile)\n"
_TILE = "            {} = nl.ndarray((128, {}), dtype=nl.float32, buffer=nl.sbuf)\n"
_WIDE = "        {} = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)\n"
_MAXIMUM = "            nisa.tensor_reduce(dst={}, op=nl.maximum, data={}, axis=1)\n"
_SCALED = "            nisa.tensor_scalar(dst=y_tile, data={}, op0=nl.multiply, operand0={})\n"


def steps(*lines: str) -> str:
    """Return the kernel with other work in place of the activation."""
    return STEPS.replace(_ACTIVATION, "".join(lines))


@pytest.mark.parametrize(
    ("refused", "reason", "followed"),
    [
        pytest.param(
            STEPS.replace("nl.affine_range(4)", "nl.sequential_range(4)"),
            "write affine_range if they are independent",
            STEPS,
            id="a loop in order",
        ),
        pytest.param(
            steps(_TILE.format("top", 1), _MAXIMUM.format("top", "x_tile"), _ACTIVATION),
            "tensor_reduce is not element-wise: move it to a loop of its own, and let the tiles that pass between the two loops have "
            "the columns of all iterations",
            STEPS.replace(_LOOP, _WIDE.format("kept") + _LOOP)
            .replace("dst=x_tile, src", "dst=kept[0:128, nl.ds(256 * c, 256)], src")
            .replace("data=x_tile", "data=kept[0:128, nl.ds(256 * c, 256)]")
            .replace(
                _STORE,
                _STORE
                + _LOOP.replace(" c ", " d ")
                + _TILE.format("top", 1)
                + _MAXIMUM.format("top", "kept[0:128, nl.ds(256 * d, 256)]"),
            ),
            id="a reduction between",
        ),
        pytest.param(
            steps("            nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=table, op=nl.add)\n").replace(
                "    for i in",
                "    table = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)\n"
                "    nisa.dma_copy(dst=table, src=x[0:128, 0:256])\n    for i in",
            ),
            "table has the same columns in every step: before the loop, repeat them in a tile of 1024 columns, and use its columns "
            "from 256 * c on",
            steps(
                "            nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=table[0:128, nl.ds(256 * c, 256)], op=nl.add)\n"
            ).replace(
                "    for i in",
                "    table = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)\n"
                "    for d in range(4):\n"
                "        nisa.dma_copy(dst=table[0:128, nl.ds(256 * d, 256)], src=x[0:128, 0:256])\n    for i in",
                1,
            ),
            id="a table for every step",
        ),
        pytest.param(
            steps(_SCALED.format("x_tile", "x_tile[0:128, 0:1]")),
            "a part of x_tile is used, whose columns move in a wider tile: use all columns of x_tile, or a tile of its own for the part",
            steps(
                _TILE.format("first", 1),
                "            nisa.dma_copy(dst=first, src=x[nl.ds(128 * i, 128), 0:1])\n",
                _SCALED.format("x_tile", "first"),
            ),
            id="a part of a tile",
        ),
        pytest.param(
            steps(_ACTIVATION, _TILE.format("row", 256)).replace(
                _STORE,
                "            nisa.dma_copy(dst=row, src=nl.broadcast_to(b[0:1, nl.ds(256 * c, 256)], x_tile.shape))\n"
                + _STORE,
            ),
            "is a view that the rule does not understand: index the tile itself, or broadcast it by nl.broadcast_to with a shape in numbers",
            steps(_ACTIVATION, _TILE.format("row", 256)).replace(
                _STORE,
                "            nisa.dma_copy(dst=row, src=nl.broadcast_to(b[0:1, nl.ds(256 * c, 256)], (128, 256)))\n"
                + _STORE,
            ),
            id="a broadcast to a shape that is not written out",
        ),
        pytest.param(
            STEPS.replace(_STORE, _STORE.replace("256 * c, 256", "256 * (c // 1), 256")),
            "the columns of out are not 256 from 256 * c on",
            STEPS,
            id="an index with a quotient",
        ),
    ],
)
def test_a_kernel_that_follows_the_advice_is_rewritten(refused: str, reason: str, followed: str) -> None:
    launch, rule = Launch("nki", SHAPES), rule_named("widen_tiles")
    before = KernelModule(refused, launch)
    assert not places_offered(rule, before)
    assert any(reason in one.obstacle for one in places_refused(rule, before)), places_refused(rule, before)
    given = arrays(*SHAPES)
    expected = run(followed, *given)
    made = [one for one in rule.find(KernelModule(followed, launch), None) if one.rewrite is not None]
    assert made
    for one in made:
        assert one.rewrite is not None
        for variant in one.site.variants:
            assert abs(run(one.rewrite(variant), *given) - expected).max() < 1e-5


def test_a_loop_over_rows_is_no_loop_over_columns() -> None:
    rule = rule_named("widen_tiles")
    whole = STEPS.replace(_LOOP, "").replace("            ", "        ").replace("256 * c, 256", "0, 1024")
    for source in (whole.replace("(128, 256)", "(128, 1024)"), STEPS):
        assert not places_refused(rule, KernelModule(source, Launch("nki", SHAPES)))
