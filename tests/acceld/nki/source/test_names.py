"""Names that stand for parts of tiles, dtypes and indices: spelled out with the same program, or left alone."""

from __future__ import annotations

import pytest

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import program_hash
from acceld.nki.source.launches import Launch
from acceld.nki.source.names import spelled_out
from acceld.nki.source.normal import as_before
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules.proposer import moves, rewrite, suggestions
from acceld.proposers.rules.suggested import suggested
from tests.acceld.proposers.rules.kernels import arrays, legacy, run

BODY = """
    kind = nl.float32
    out = nl.ndarray((128, 1024), dtype=kind, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for block in nl.affine_range(4):
        first = 256 * block
        part = tile[0:128, nl.ds(first, 256)]  # one block
        squares = nl.square(part, dtype=kind)
        nl.store(out[0:128, first : first + 256], value=squares)
    return out
"""
KERNEL = legacy("x", BODY)
SHAPES = ((128, 1024),)


def digest(source: str) -> str:
    return program_hash(
        trace(source, [TensorSpec(shape, "float32") for shape in SHAPES], api="nki_legacy", chip="trn1")
    )


def test_views_dtypes_and_indices_of_loops_are_spelled_out_on_the_same_lines() -> None:
    spelled = spelled_out(KERNEL)
    assert digest(spelled) == digest(KERNEL)
    lines = spelled.splitlines()
    assert len(lines) == len(KERNEL.splitlines())
    assert "        # first = 256 * block" in lines
    assert "        squares = nl.square(tile[0:128, nl.ds(256 * block, 256)], dtype=nl.float32)" in lines
    assert "        nl.store(out[0:128, 256 * block : (256 * block) + 256], value=squares)" in lines
    assert spelled_out(spelled) == spelled


def test_names_come_back_where_a_rewrite_left_their_lines_alone() -> None:
    spelled = spelled_out(KERNEL)
    assert as_before(KERNEL, spelled) == KERNEL
    changed = spelled.replace("nl.square(", "nl.exp(")
    assert changed != spelled
    back = as_before(KERNEL, changed)
    assert digest(back) == digest(changed)
    lines = back.splitlines()
    assert "        first = 256 * block" in lines, "its other uses are as they were"
    assert "        nl.store(out[0:128, first : first + 256], value=squares)" in lines
    assert "        # part = tile[0:128, nl.ds(256 * block, 256)]  # one block" in lines, "the rewrite used the value"
    assert spelled_out(back) == changed


def test_a_name_does_not_come_back_where_it_would_have_another_value() -> None:
    spelled = spelled_out(KERNEL)
    store = "        nl.store(out[0:128, 256 * block : (256 * block) + 256], value=squares)"
    split = spelled.replace(store, f"    for block in nl.affine_range(4):\n{store}")
    assert split != spelled
    back = as_before(KERNEL, split)
    assert spelled_out(back) == spelled_out(split) and store in back.splitlines()


def test_a_named_range_is_spelled_out_with_the_views_that_it_makes() -> None:
    named = KERNEL.replace(
        "        part = tile[0:128, nl.ds(first, 256)]  # one block",
        "        here = nl.ds(first, 256)\n        part = tile[0:128, here]",
    )
    spelled = spelled_out(named)
    assert digest(spelled) == digest(named)
    lines = spelled.splitlines()
    assert "        # here = nl.ds(256 * block, 256)" in lines
    assert "        squares = nl.square(tile[0:128, nl.ds(256 * block, 256)], dtype=nl.float32)" in lines


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("        squares =", "        first = 128\n        squares ="),  # bound again
        ("        squares =", "        first += 0\n        squares ="),
        ("        squares =", "        for first in nl.affine_range(2):\n            pass\n        squares ="),
        ("    return out", "    rest = first\n    return out"),  # used after its block
        ("        squares =", "        offset = lambda: first\n        squares ="),  # used at another time
        ("        first =", "        first = 1 if block else 0\n        first ="),
    ],
)
def test_a_name_with_another_meaning_somewhere_is_left_alone(before: str, after: str) -> None:
    changed = KERNEL.replace(before, after, 1)
    assert changed != KERNEL and "        first = 256 * block\n" in spelled_out(changed)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tile = nl.load(x)", "tile = [nl.load(x)]"),  # an element of a list, which may be exchanged
        ("        squares =", "        tile = nl.load(x)\n        squares ="),
        ("nl.square(part,", "nl.square(part[0:128, 0:256],"),  # a part of a part
    ],
)
def test_a_view_is_left_alone_where_it_may_be_another_tile(before: str, after: str) -> None:
    changed = KERNEL.replace(before, after, 1)
    assert changed != KERNEL and "        part = tile[" in spelled_out(changed)


def test_rules_see_through_names_of_views() -> None:
    found = suggestions(KERNEL, Launch("nki_legacy", SHAPES))
    site = next(site for site in found if site.rule == "place_engine" or site.rule == "widen_tiles")
    changed = rewrite(KERNEL, Launch("nki_legacy", SHAPES), site, site.variants[0])
    (x,) = arrays(*SHAPES)
    assert (run(changed, x) == run(KERNEL, x)).all()


def test_a_kernel_among_other_functions_is_found_by_its_entry() -> None:
    other = KERNEL.replace("def kernel(", "def second(").partition("@nki.jit")[2]
    both = f"{KERNEL.replace('def kernel(', 'def first(')}\n\n@nki.jit{other}"
    assert not moves(both, Launch("nki_legacy", SHAPES))
    assert moves(both, Launch("nki_legacy", SHAPES, entry="second"))
    assert suggested(both, Launch("nki_legacy", SHAPES, entry="second"))


def test_an_argument_in_another_shape_has_that_shape() -> None:
    body = BODY.replace("nl.load(x)", "nl.load(flat)").replace(
        "    tile =", "    flat = x.reshape((128, 1024))\n    tile ="
    )
    kernel = KernelModule(legacy("x", body), Launch("nki_legacy", ((1024, 128),)))
    assert kernel.shapes["flat"] == (128, 1024) and kernel.space_of("flat") == "hbm"
    assert not kernel.ambiguous & {"x", "flat"}
    twice = KernelModule(legacy("x", body.replace("nl.load(flat)", "nl.load(x)")), Launch("nki_legacy", ((1024, 128),)))
    assert "flat" not in twice.shapes


@pytest.mark.parametrize(
    ("module", "parameters", "shapes", "trips"),
    [
        ("BLOCKS = 4\n", "x", SHAPES, 4),
        ("BLOCKS = 4\nBLOCKS = 8\n", "x", SHAPES, None),
        ("", "x, BLOCKS=4", SHAPES, 4),
        ("", "x, BLOCKS=4", (), None),  # a caller may give another number
        ("LIMIT = 512\nBLOCKS = min(LIMIT, 4)\n", "x", SHAPES, 4),
    ],
)
def test_numbers_of_the_module_and_defaults_are_known(
    module: str, parameters: str, shapes: tuple[tuple[int, ...], ...], trips: int | None
) -> None:
    source = module + legacy(parameters, BODY.replace("affine_range(4)", "affine_range(BLOCKS)"))
    assert KernelModule(source, Launch("nki_legacy", shapes)).loops[0].trips == trips


@pytest.mark.parametrize("change", ["blocks += 1", "if True:\n        blocks = 2"])
def test_a_number_that_changes_is_not_known(change: str) -> None:
    body = f"\n    blocks = 4\n    {change}" + BODY.replace("affine_range(4)", "affine_range(blocks)")
    assert KernelModule(legacy("x", body), Launch("nki_legacy", SHAPES)).loops[0].trips is None


def test_names_of_a_files_integers_count_as_numbers() -> None:
    rows = "ROWS = 128\n" + legacy("x", BODY.replace("first = 256 * block", "first = 2 * ROWS * block"))
    assert "nl.store(out[0:128, 2 * ROWS * block : (2 * ROWS * block) + 256], value=squares)" in spelled_out(rows)
    assert digest(spelled_out(rows)) == digest(rows)
    twice = "ROWS = 64\n" + rows
    assert "# first" not in spelled_out(twice), "a name that is assigned twice may change"


def test_a_view_that_nothing_uses_is_no_statement() -> None:
    idle = KERNEL.replace(
        "        first = 256 * block\n", "        first = 256 * block\n        idle = tile[0:128, 0:64]\n"
    )
    assert idle != KERNEL
    assert "        # idle = tile[0:128, 0:64]\n" in spelled_out(idle)
    assert as_before(idle, spelled_out(idle)) == idle
