"""Moves change a kernel's text and keep its results, or say which line keeps it as it is."""

from __future__ import annotations

import pytest

from acceld.errors import RuleRefused
from acceld.nki.source.launches import Launch
from acceld.nki.source.moves import expanded
from acceld.nki.source.reading import KernelModule
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, current

SHAPES = [(4, 128, 128), (128, 512)]
STAGES = current(
    "x, w",
    """
    out = nl.ndarray((4, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w)
    for row in nl.affine_range(4):
        x_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[row, 0:128, 0:128])
        for k in nl.affine_range(1):
            nisa.nc_matmul(dst=product, stationary=x_tile, moving=w_tile[0:128, 0:512], accumulate=k > 0)
        # what follows waits for the product
        nisa.activation(dst=made, op=nl.tanh, data=product[0:128, 0:512])
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=made)
    return out
""",
)


def loop_of(text: str) -> tuple[KernelModule, str]:
    kernel = KernelModule(text, Launch("nki", tuple(SHAPES)))
    return kernel, expanded(kernel, kernel.loops[0], ["product", "x_tile"], 2)


def test_tiles_of_an_iteration_get_places_that_iterations_take_in_turn() -> None:
    _, text = loop_of(STAGES)
    assert "    product = nl.ndarray((128, 2, 512), dtype=nl.float32, buffer=nl.psum)\n    x_tile = " in text
    assert "dst=x_tile[0:128, row % 2, 0:128], src=x[row, 0:128, 0:128]" in text
    assert "data=product[0:128, row % 2, 0:512]" in text
    assert_same(STAGES, text, *arrays(*SHAPES))


@pytest.mark.parametrize(("offset", "moved"), [("", ""), (", offset=128", " + 128"), (", offset=0", "")])
def test_a_pattern_of_a_tile_counts_the_elements_of_all_places(offset: str, moved: str) -> None:
    text = STAGES.replace(
        "data=product[0:128, 0:512]", f"data=product.ap(pattern=[[512, 128], [128, 3], [1, 128]]{offset})"
    )
    text = text.replace("dst=made,", "dst=made[0:128, 0:384],").replace(
        "dst=out[row, 0:128, 0:512], src=made", "dst=out[row, 0:128, 0:384], src=made[0:128, 0:384]"
    )
    _, changed = loop_of(text)
    assert f"data=product.ap(pattern=[[1024, 128], [128, 3], [1, 128]], offset=(row % 2) * 512{moved})" in changed
    assert_same(text, changed, *arrays(*SHAPES))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "data=product[0:128, 0:512]",
            "data=product.ap(pattern=[[512, 128], [1, 512]], offset=row)",
            "line 20 reads product by a pattern whose first step or offset is not known",
        ),
        (", accumulate=k > 0", "", "the product in line 18 does not say whether it adds"),
        (
            "        made = ",
            "        view = x_tile\n        made = ",
            "x_tile, declared in line 13, is used in a way that is not",
        ),
        (
            "        x_tile = nl.ndarray((128, 128)",
            "        x_tile = nl.ndarray((128, 40000)",
            "^2 copies of x_tile for loop row take 312 KiB of SBUF in each partition, more than half",
        ),
        (
            "product = nl.ndarray((128, 512)",
            "product = nl.ndarray((128, 384)",
            "^2 copies of product, declared in line 14, do not fit into banks of PSUM, because a copy of 1536 bytes",
        ),
        (
            "    return out",
            "    nisa.dma_copy(dst=out[0, 0:128, 0:128], src=x_tile)\n    return out",
            "x_tile, declared in line 13",
        ),
    ],
)
def test_a_move_that_is_not_proven_says_which_line_keeps_it(old: str, new: str, reason: str) -> None:
    changed = STAGES.replace(old, new, 1)
    assert changed != STAGES
    with pytest.raises(RuleRefused, match=reason.replace("(", r"\(")):
        loop_of(changed)


@pytest.mark.parametrize("site", [0, 1])
def test_stages_of_the_current_api_run_ahead_with_tiles_in_turn(site: int) -> None:
    after = applied("pipeline_stages", STAGES, SHAPES, site=site)
    assert "for row in nl.sequential_range(3):" in after and "(row + 1) % 2" in after
    assert_same(STAGES, after, *arrays(*SHAPES))
