"""Names that several tiles, loops or numbers share: told apart on the same lines, and joined again after a rewrite."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import as_before, normalized, with_former_names
from acceld.nki.source.scopes import with_own_names
from acceld.proposers.rules.proposer import moves, refusals
from tests.acceld.proposers.rules.kernels import arrays, current, run

BODY = """
    out = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.hbm)
    for i in range(4):
        t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[128 * i:128 * i + 128, 0:256])
        y = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=y, op=nl.exp, data=t)
        nisa.dma_copy(dst=kept[128 * i:128 * i + 128, 0:256], src=y)
    for i in range(x.shape[0] // 128):
        t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=kept[128 * i:128 * i + 128, 0:256])
        w = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=w, src=x[0:128, 0:256])
        y = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=y, data1=t, data2=w, op=nl.multiply)
        nisa.dma_copy(dst=out[128 * i:128 * i + 128, 0:256], src=y)
    return out
"""
KERNEL = current("x", BODY)
SHAPES = ((512, 256),)


def test_each_tile_and_each_loop_gets_a_name_of_its_own_on_the_same_lines() -> None:
    own = with_own_names(KERNEL)
    lines = own.splitlines()
    assert len(lines) == len(KERNEL.splitlines())
    assert "    for i_2 in range(x.shape[0] // 128):" in lines
    assert "        nisa.dma_copy(dst=t_2, src=kept[128 * i_2:128 * i_2 + 128, 0:256])" in lines
    assert "        nisa.tensor_tensor(dst=y_2, data1=t_2, data2=w, op=nl.multiply)" in lines
    assert "        nisa.activation(dst=y, op=nl.exp, data=t)" in lines, "where a name occurs first it stays"
    assert "i_2" not in with_own_names(KERNEL.replace("x.shape[0] // 128", "4")), "the same range, so the same variable"
    given = arrays(*SHAPES)
    assert run(own, *given).tobytes() == run(KERNEL, *given).tobytes()
    assert with_own_names(own) == own
    assert as_before(KERNEL, normalized(KERNEL)) == KERNEL


def test_rules_find_the_same_places_as_with_names_of_their_own_and_write_the_names_of_the_source() -> None:
    start = KERNEL.rindex("    for i in range(")
    second = KERNEL[start:].replace("=t", "=loaded").replace(" t =", " loaded =")
    apart = KERNEL[:start] + second.replace("=y", "=made").replace(" y =", " made =")
    assert "made = nl.ndarray" in apart and "loaded = nl.ndarray" in apart
    offered = {move.step: move for move in moves(KERNEL, Launch("nki", SHAPES))}
    assert offered.keys() == {move.step for move in moves(apart, Launch("nki", SHAPES))}
    assert {"fuse_nests", "hoist_loads"} <= {move.rule for move in offered.values()}
    (given,) = arrays(*SHAPES)
    for step, move in offered.items():
        text = move.apply()
        assert text is not None, step
        np.testing.assert_allclose(run(text, given), run(KERNEL, given), rtol=2e-5, err_msg=step)
    hoisted = next(move.apply() for move in offered.values() if move.rule == "hoist_loads") or ""
    assert "t_2" in hoisted
    written = as_before(KERNEL, hoisted)
    assert "_2" not in written and run(written, given).tobytes() == run(hoisted, given).tobytes()


@pytest.mark.parametrize(
    "body",
    [
        BODY.replace("    return out", "    nisa.memset(dst=t, value=0.0)\n    return out"),  # used behind both
        BODY.replace("src=x[0:128, 0:256]", "src=x[0:128, 0:256], name=f'{t.shape}'"),  # in a text that is put together
        BODY.replace(
            "        t = nl", "        if i:\n            pass\n        while i < 0:\n            i = 1\n        t = nl"
        ),
        BODY.replace("src=x[0:128, 0:256]", "src=next(x[0:128, 0:t.shape[1]] for _ in range(1))"),
        BODY.replace("    return out", "    return locals()['out']"),
    ],
    ids=["used behind its scopes", "in an f-string", "jumps", "in a generator", "asked for by name"],
)
def test_a_name_with_a_meaning_that_depends_on_what_ran_before_stays(body: str) -> None:
    own = with_own_names(current("x", body))
    assert "t_2" not in own


def test_a_second_meaning_in_the_same_block_begins_with_its_assignment() -> None:
    source = "def kernel(x):\n    a = 1\n    b = a\n    a = 2\n    for a in range(b):\n        c = a\n    return x\n"
    assert with_own_names(source) == source.replace("a = 2", "a_2 = 2").replace("for a", "for a_3").replace(
        "c = a", "c = a_3"
    )


def test_a_parameter_keeps_its_name() -> None:
    source = "def kernel(x):\n    for x in range(2):\n        y = x\n    for x in range(3):\n        y = x\n"
    assert "x_2" not in with_own_names(source) and "y_2" in with_own_names(source)


def test_words_about_the_normal_form_have_the_names_of_the_source() -> None:
    assert with_former_names(KERNEL, normalized(KERNEL), "t_2 is read, w and y too") == "t is read, w and y too"
    assert all("_2" not in one.obstacle + one.plan for one in refusals(KERNEL, Launch("nki", SHAPES)))
