"""Tiles that several results share: told apart on the same lines, and joined again where a rewrite left them alone."""

from __future__ import annotations

import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.lives import with_own_tiles
from acceld.nki.source.normal import as_before, normalized
from acceld.proposers.rules.proposer import moves, rewrite, suggestions
from tests.acceld.proposers.rules.kernels import arrays, current, run

BODY = """
    out = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        x_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x[nl.ds(128 * i, 128), 0:256])
        t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=t, data1=x_tile, data2=x_tile, op=nl.multiply)

        # the sum of the squares
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, data=t, op=nl.add, axis=1)
        # scaled
        nisa.tensor_scalar(dst=t, data=x_tile, op0=nl.multiply, operand0=total)

        nisa.activation(dst=t, op=nl.tanh, data=t)
        nisa.dma_copy(dst=out[nl.ds(128 * i, 128), 0:256], src=t[0:128, 0:256])
    return out
"""
KERNEL = current("x", BODY)
SHAPES = ((512, 256),)


def test_each_result_gets_a_tile_on_the_same_lines() -> None:
    own = with_own_tiles(KERNEL)
    lines = own.splitlines()
    assert len(lines) == len(KERNEL.splitlines())
    declared = "nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)"
    assert f"        t_2 = {declared}" in lines, "in the place of a blank line"
    assert f"        t_3 = {declared}" in lines
    assert "        nisa.activation(dst=t_3, op=nl.tanh, data=t_2)" in lines
    assert "        nisa.dma_copy(dst=out[nl.ds(128 * i, 128), 0:256], src=t_3[0:128, 0:256])" in lines
    given = arrays(*SHAPES)
    assert run(own, *given).tobytes() == run(KERNEL, *given).tobytes()
    assert with_own_tiles(own) == own
    assert as_before(KERNEL, normalized(KERNEL)) == KERNEL


def test_a_comment_moves_behind_the_declaration_that_takes_its_line() -> None:
    own = with_own_tiles(current("x", BODY.replace("\n\n", "\n")))
    assert "        t_2 = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)  # scaled" in own.splitlines()


DENSE = current("x", "\n".join(line for line in BODY.split("\n") if line.strip() and "#" not in line))
"""No line is left for a declaration."""


def test_without_a_free_line_a_declaration_stands_behind_another_one() -> None:
    declared = "nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)"
    assert f"        t = {declared}; t_2 = {declared}; t_3 = {declared}\n" in with_own_tiles(DENSE)
    assert as_before(DENSE, normalized(DENSE)) == DENSE


def test_every_rewrite_of_a_dense_kernel_is_right_and_declares_each_tile_on_its_line() -> None:
    given = arrays(*SHAPES)
    expected = run(DENSE, *given)
    made = {move.step: move.apply() for move in moves(DENSE, Launch("nki", SHAPES))}
    assert any(step.startswith("reduce_in_activation") for step in made)
    for step, source in made.items():
        assert source is not None and ";" not in as_before(DENSE, source), step
        assert abs(run(source, *given) - expected).max() < 1e-5, step


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("dst=t, data=x_tile", "dst=t[0:128, 0:256], data=x_tile"),  # perhaps a part
        ("buffer=nl.sbuf)\n        nisa.tensor_tensor", 'buffer=nl.sbuf, name="t")\n        nisa.tensor_tensor'),
        ("        # scaled", "        other = t"),
        ("        # scaled", "        print(f'{t}')"),
        ("operand0=total)", "operand0=total, mask=total)"),
    ],
)
def test_a_tile_that_may_not_be_written_whole_stays_shared(before: str, after: str) -> None:
    source = KERNEL.replace(before, after)
    assert source != KERNEL
    scaled = [line for line in with_own_tiles(source).splitlines() if "nisa.tensor_scalar" in line]
    assert scaled == [line for line in source.splitlines() if "nisa.tensor_scalar" in line]


def test_rules_see_through_a_shared_tile_and_leave_the_rest_of_it_alone() -> None:
    site = next(one for one in suggestions(KERNEL, Launch("nki", SHAPES)) if one.rule == "reduce_in_activation")
    changed = rewrite(KERNEL, Launch("nki", SHAPES), site, site.variants[0])
    assert "activation_reduce(dst=t, op=nl.square" in changed and "t_2" not in changed
    assert changed.index("total = nl.ndarray") < changed.index("activation_reduce")
    given = arrays(*SHAPES)
    assert abs(run(changed, *given) - run(KERNEL, *given)).max() < 1e-5


def test_every_rewrite_of_a_kernel_with_a_shared_tile_is_right() -> None:
    given = arrays(*SHAPES)
    expected = run(KERNEL, *given)
    made = {move.step: move.apply() for move in moves(KERNEL, Launch("nki", SHAPES))}
    assert len(made) > 2
    for step, source in made.items():
        assert source is not None and abs(run(source, *given) - expected).max() < 1e-5, step
        if step.startswith("place_engine"):
            back = as_before(KERNEL, source)
            assert "t_2" not in back and "t_3" not in back, "the changed line has the shared tile again"
            assert run(back, *given).tobytes() == run(source, *given).tobytes()
