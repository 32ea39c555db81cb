"""Places that single rules offer, and on what they depend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.errors import RuleRefused
from acceld.model import Profile, Source
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import as_before
from acceld.nki.source.reading import KernelModule
from acceld.nki.timing.timeline import timeline
from acceld.proposers.rules import rule_named
from acceld.proposers.rules.proposer import moves
from acceld.proposers.rules.records import Variant
from tests.acceld.proposers.rules import places
from tests.acceld.proposers.rules.kernels import (
    api_of,
    applied,
    apply_at,
    arrays,
    current,
    legacy,
    places_offered,
    places_refused,
    run,
    sites,
)


def test_chunks_of_a_tile_are_merged_under_a_row_mask() -> None:
    inputs, kept = arrays((4, 128, 1024)), np.arange(512).reshape(4, 128) < 500
    after = applied("widen_tiles", places.CHUNKS, [(4, 128, 1024)])
    np.testing.assert_allclose(run(after, *inputs)[kept], run(places.CHUNKS, *inputs)[kept])


def test_a_form_feed_in_a_comment_moves_no_edit() -> None:
    plain = applied("widen_tiles", places.CHUNKS, [(4, 128, 1024)])
    marked = applied("widen_tiles", places.CHUNKS.replace("# twice", "# twice\f\u2028"), [(4, 128, 1024)])
    assert marked == plain.replace("# twice", "# twice\f\u2028")


def test_a_masked_tail_moves_with_its_iteration() -> None:
    mask, shapes = ", mask=128 * row + p < 2000", places.REPEATED_WORK_SHAPES
    masked = places.REPEATED_WORK
    for old in (
        "row % 4, p, f]",
        "row, p, f], 2.0",
        "w_tile[block, p, f])\n            total",
        "axis=[1]",
        "value=total[block, row, p, 0]",
    ):
        head, call, tail = old.partition(")")
        masked = masked.replace(old, f"{head}{mask}{call}{tail}")
    inputs = arrays(*shapes)
    after = applied("group_iterations", masked, shapes, variant=1)
    before, grouped = (run(source, *inputs).reshape(3, 2048)[:, :2000] for source in (masked, after))
    np.testing.assert_allclose(grouped, before, rtol=2e-5)


def test_both_halves_of_the_dma_engines_work_side_by_side_on_stacked_tiles() -> None:
    specs = [TensorSpec(shape, "float32") for shape in places.FILL_SHAPES]
    filled = applied("fill_partitions", places.FILL_LOW, places.FILL_SHAPES)
    programs = (trace(one, specs, api="nki", chip="trn2") for one in (places.FILL_LOW, filled))
    before, after = (timeline(program).engines["dma"] for program in programs)
    assert after == pytest.approx(before / 2)


def test_the_tensor_engine_transposes_parts_in_two_passes_instead_of_three() -> None:
    shapes = [(2, 128, 512)]
    turned, inputs = applied("turn_parts", places.TURNED_PARTS, shapes), arrays(*shapes)
    programs = (
        trace(one, [TensorSpec(shapes[0], "float32")], api="nki", chip="trn2") for one in (places.TURNED_PARTS, turned)
    )
    before, after = (timeline(program).engines["tensor"] for program in programs)
    assert after == pytest.approx(before * 2 / 3)
    np.testing.assert_array_equal(run(turned, *inputs), run(places.TURNED_PARTS, *inputs))


def test_a_copy_that_reduces_what_it_writes_keeps_every_bit_and_leaves_the_scalar_engine_idle() -> None:
    shapes = [(2, 128, 512)]
    joined, inputs = applied("reduce_in_copy", places.PEAKS_CURRENT, shapes), arrays(*shapes)
    programs = [
        trace(one, [TensorSpec(shapes[0], "float32")], api="nki", chip="trn2") for one in (places.PEAKS_CURRENT, joined)
    ]
    before, after = (timeline(program).engines["scalar"] for program in programs)
    assert before > 0.0 == after
    np.testing.assert_array_equal(run(joined, *inputs), run(places.PEAKS_CURRENT, *inputs))


def test_tiles_of_float32_are_split_whatever_is_loaded_into_them() -> None:
    kernel = KernelModule(
        places.SPLIT_PRODUCT, Launch("nki_legacy", tuple(places.SPLIT_PRODUCT_SHAPES), ("bfloat16", "float32"))
    )
    assert places_offered(rule_named("split_products"), kernel)


@pytest.mark.parametrize(("chip", "offered"), [("trn1", ["gpsimd"]), ("trn2", ["gpsimd", "scalar"])])
def test_an_engine_is_offered_only_where_the_chip_has_the_instruction_on_it(chip: str, offered: list[str]) -> None:
    source = legacy(
        "x",
        """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, 0:512])
    result = nisa.tensor_scalar(data=tile, op0=nl.add, operand0=1.0)
    nl.store(out[0:128, 0:512], value=result)
    return out
""",
    )
    profile = Profile(Source.SIMULATED, chip, "nki_legacy", 10.0, "test")
    (site,) = sites("place_engine", source, [(128, 512)], profile)
    assert [one.name for one in site.variants] == offered


@pytest.mark.parametrize("rule", sorted({place.rule for place in places.PLACES}))
def test_a_place_without_the_pattern_is_refused(rule: str) -> None:
    with pytest.raises(RuleRefused, match="line 3"):
        apply_at(rule, legacy("x", "    return x\n"), 3, Variant("any", {"factor": 2, "depth": 1}))


def test_work_that_depends_on_the_loop_through_what_it_reads_is_no_refused_place() -> None:
    every, once = places.DRAIN_FED, places.DRAIN_FED.replace("src=x[row,", "src=x[0,")
    kernels = [KernelModule(one, Launch("nki", tuple(places.DRAIN_FED_SHAPES))) for one in (every, once)]
    found = [
        [(one.line, one.obstacle[:25]) for one in places_refused(rule_named("hoist_work"), one)] for one in kernels
    ]
    assert found == [[], [(13, "tile_t is made in line 22")]]


def test_a_kernel_with_a_transposing_transfer_can_be_rewritten_further() -> None:
    shapes = [(2, 128, 512), (128, 4, 512)]
    by_transfer = applied("turn_by_transfer", places.TURNED_ROWS, shapes)
    ahead, inputs = applied("pipeline_stages", by_transfer, shapes), arrays(*shapes)
    assert "nl.sequential_range(1)" in ahead
    np.testing.assert_array_equal(run(ahead, *inputs), run(by_transfer, *inputs))


def test_iterations_outside_of_a_pipelined_loop_are_rewritten_alone() -> None:
    shapes = [(4, 128, 512), (128, 4, 512)]
    four = places.TURNED_ROWS.replace("(2, 128, 512)", "(4, 128, 512)").replace("affine_range(2)", "affine_range(4)")
    declared = "            x_t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)\n"
    assert declared in four
    four = four.replace(declared, "").replace(
        "        # blocks", f"{declared.removeprefix('    ').replace('(128, 128)', '(128, 4, 128)')}        # blocks"
    )
    four = four.replace(
        "dst=x_t, src=turned)\n", "dst=x_t[0:128, k, 0:128], src=turned)\n        for k in nl.affine_range(4):\n"
    )
    four = four.replace("stationary=x_t,", "stationary=x_t[0:128, k, 0:128],")
    by_transfer, inputs = applied("turn_by_transfer", four, shapes), arrays(*shapes)
    found = sites("pipeline_stages", by_transfer, shapes)
    names = [[variant.name.partition(" of line")[0] for variant in site.variants] for site in found]
    assert ["two ahead"] in names, "one iteration is too short for what goes through HBM"
    ahead = applied("pipeline_stages", by_transfer, shapes, site=names.index(["two ahead"]))
    assert "nl.sequential_range(2)" in ahead and "turned_at0 =" in ahead and "turned_at1 =" in ahead
    early = sites("turn_on_engine", ahead, shapes)
    assert len(early) == 2, "not for the transposes in the loop"
    once = applied("turn_on_engine", ahead, shapes)
    twice = applied("turn_on_engine", once, shapes)
    assert twice.count("nisa.nc_transpose") == 2 and twice.count("nisa.dma_transpose") == 1
    for text in (ahead, once, twice):
        np.testing.assert_allclose(run(text, *inputs), run(four, *inputs), rtol=1e-5, atol=1e-4)


MADE = """        scaled = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scaled, data=x_tile, op0=nl.multiply, operand0=0.5)
"""
LOADED = "".join(line for line in places.TURNED_ROWS.splitlines(keepends=True) if line not in MADE).replace(
    "data=scaled", "data=x_tile"
)
"""Blocks of a tile that a transfer loads, turned one by one on the tensor engine."""


@pytest.mark.parametrize(
    ("source", "dtypes", "block"),
    [
        (LOADED, ("float32", "float32"), "src=x[row, 0:128, 128 * k : 128 * k + 128]"),
        (LOADED, ("bfloat16", "float32"), "x_tile_kept"),
        (LOADED.replace("x[row, 0:128, 0:512]", "x[row, 0:128, 512:1024]"), ("float32", "float32"), "x_tile_kept"),
        (
            LOADED.replace(
                "dst=x_t, src=turned)",
                "dst=x_t, src=turned)\n            nisa.dma_copy(dst=x[row, 0:128, 0:128], src=x_t)",
            ),
            ("float32", "float32"),
            "x_tile_kept",
        ),
        (places.TURNED_ROWS, ("float32", "float32"), "scaled_kept"),
    ],
    ids=["loaded", "of another type", "not the first columns", "changed argument", "made"],
)
def test_a_loaded_tile_is_turned_from_where_it_is_loaded(source: str, dtypes: tuple[str, ...], block: str) -> None:
    shapes = ((2, 128, 1024 if "1024" in source else 512), (128, 4, 512))
    (turned,) = (
        move.apply() or "" for move in moves(source, Launch("nki", shapes, dtypes)) if move.rule == "turn_by_transfer"
    )
    assert block in turned
    assert ("src=x[row, 0:128, 0:512]" not in turned) == (block.startswith("src=x") or "512:1024" in source)
    inputs = arrays(*shapes)
    np.testing.assert_array_equal(run(turned, *inputs), run(source, *inputs))


def test_the_examples_of_the_documentation_suit_its_rule() -> None:
    page = (Path(__file__).parents[4] / "docs" / "rules.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"Example": places.Example, "tiled": places.tiled, "current": current}
    for start in ("```python\n", '```python title="places.py"\n'):
        exec(page.partition(start)[2].partition("```")[0], names)  # noqa: S102  # our own documentation
    rule = names["RULE"]
    assert {api_of(one.source) for one in names["PLACES"]} == rule.apis
    for one in names["PLACES"]:
        kernel, inputs = KernelModule(one.source, Launch(api_of(one.source), one.shapes)), arrays(*one.shapes)
        (site,) = places_offered(rule, kernel)
        assert np.array_equal(run(rule.apply(kernel, site, site.variants[0]), *inputs), run(one.source, *inputs))
        for old, new in one.stays:
            assert old in one.source
            changed = KernelModule(one.source.replace(old, new), Launch(api_of(one.source), one.shapes))
            assert not places_offered(rule, changed) and places_refused(rule, changed)


def test_the_second_example_of_the_documentation_swaps_an_instruction_in_both_apis() -> None:
    page = (Path(__file__).parents[4] / "docs" / "rules.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"Example": places.Example, "tiled": places.tiled, "current": current}
    for start in ("```python\n", '```python title="find"\n', '```python title="places.py"\n'):
        exec(page.partition(start)[2].partition("```")[0], names)  # noqa: S102  # our own documentation
    rule = type("Squared", (names["CopyOnce"],), {"find": names["find"]})()
    squares = {
        "nl.copy(second)": "third = nisa.activation(op=nl.square, data=second)",
        "nisa.tensor_copy(dst=third, src=second)": "nisa.activation(dst=third, op=nl.square, data=second)",
    }
    products = (
        "nl.multiply(second, second)",
        "nisa.tensor_tensor(dst=third, data1=second, data2=second, op=nl.multiply)",
    )
    for one, (old, square), product in zip(names["PLACES"], squares.items(), products, strict=True):
        source, api = one.source.replace(old, product), api_of(one.source)
        kernel, inputs = KernelModule(source, Launch(api, one.shapes, ("float32",))), arrays(*one.shapes)
        (site,) = places_offered(rule, kernel)
        after = rule.apply(kernel, site, site.variants[0])
        assert square in after and np.array_equal(run(after, *inputs), run(source, *inputs))
        narrow = source.replace(
            "second = nl.ndarray((128, 512), dtype=nl.float32", "second = nl.ndarray((128, 512), dtype=x.dtype"
        )
        (refused,) = places_refused(rule, KernelModule(narrow, Launch(api, one.shapes, ("bfloat16",))))
        assert refused.obstacle.endswith("squares second, which may not be float32: declare second as float32")


def _obstacle(rule: str, source: str, shapes: Sequence[tuple[int, ...]]) -> str:
    """Return what the rule says of the one place that it refuses."""
    (refused,) = places_refused(rule_named(rule), KernelModule(source, Launch(api_of(source), tuple(shapes))))
    return refused.obstacle


def test_a_transpose_that_stays_has_one_reason() -> None:
    shapes, lines = [(2, 128, 4, 128), (3, 128, 4, 512)], places.TURNED_BLOCKS.splitlines(keepends=True)
    (load,) = (line for line in lines if "dst=x_tile" in line)
    lines.remove(load)
    behind = next(at for at, line in enumerate(lines) if "dst=made, src=product" in line)
    lines.insert(behind, load)
    late = "".join(lines)
    assert _obstacle("transpose_once", late, shapes) == (
        f"line {behind + 1} loads after loop k, which uses x_tile: move the load before loop k"
    )
    (turn,) = (line for line in lines if "nc_transpose" in line)
    named = places.TURNED_BLOCKS.replace(turn, f"                at = 1 * k\n{turn.replace(', k,', ', at,')}")
    said = _obstacle("transpose_once", named, shapes)
    assert "an index uses a name that is assigned inside loop n: write the expression in place of the name" in said


def test_a_tile_with_a_second_name_is_not_said_to_be_outside_of_sbuf() -> None:
    source = places.SPLIT_CURRENT.replace("    return out", "    other = x_t\n    return out")
    said = _obstacle("split_products", source, places.SPLIT_PRODUCT_SHAPES)
    assert "x_t may be changed, or its tile may get a second name (an alias), in line" in said and "SBUF" not in said


def test_the_rule_of_the_documentation_works_as_it_stands() -> None:
    page = (Path(__file__).parents[4] / "docs" / "rules.md").read_text(encoding="utf-8")
    text = page.partition("```python\n")[2].partition("```")[0]
    assert len([line for line in text.splitlines() if line.strip() and not line.startswith("from ")]) <= 30
    names: dict[str, Any] = {}
    exec(compile(text, "copy_once.py", "exec"), names)  # noqa: S102  # our own documentation
    twice = places.FROM_PSUM.replace(
        "copied = nl.copy(product)", "first = nl.copy(product)\n    copied = nl.copy(first)"
    )
    rule, kernel = names["RULE"], KernelModule(twice, Launch("nki_legacy", tuple(places.FROM_PSUM_SHAPES)))
    (site,) = places_offered(rule, kernel)
    after = rule.apply(kernel, site, site.variants[0])
    assert "copied = nl.copy(product)" in after and "first" not in after
    read = KernelModule(
        twice.replace("value=result", "value=first"), Launch("nki_legacy", tuple(places.FROM_PSUM_SHAPES))
    )
    assert [one.obstacle for one in places_refused(rule, read)] == [
        "first is also read in line 20: compute it again for that line, into another tile"
    ]


def test_a_tile_that_is_loaded_before_the_loop_keeps_its_name_and_its_shape() -> None:
    body = """
    rows, d = x.shape
    out = nl.ndarray((rows, d), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // 128):
        # the weights
        g = nl.ndarray((128, d), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=g, src=w.ap(pattern=[[0, 128], [1, d]], offset=0))
        t = nl.ndarray((128, d), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[i * 128 : (i + 1) * 128, :])
        nisa.tensor_tensor(dst=t, data1=t, data2=g, op=nl.multiply)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, :], src=t)
    return out
"""
    source, shapes = current("x, w", body), ((512, 256), (256,))
    (move,) = moves(source, Launch("nki", shapes, ("float32",) * 2), only="hoist_loads")
    text = as_before(source, move.apply() or "")
    assert sorted(text.splitlines()) == sorted(
        line[4:] if line.lstrip().startswith(("# the w", "g =", "nisa.dma_copy(dst=g")) else line
        for line in source.splitlines()
    )
    assert text.index("dst=g") < text.index("for i in")
    wide = arrays((256, 512), (512,))
    assert run(text, *wide).tobytes() == run(source, *wide).tobytes(), "it still fits other shapes"


RETURNED_OPERAND = current(
    "x, w",
    """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    right = loaded(w[0:128, 0:512])
    nisa.nc_matmul(dst=total, stationary=left, moving=right)
    done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=done, src=total)
    nisa.dma_copy(dst=out, src=done)
    return out
""",
).replace(
    "@nki.jit",
    """def loaded(part):
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=part)
    return tile


@nki.jit""",
)


def test_a_product_of_a_tile_that_a_function_returns_is_split_once_its_body_is_in_place_of_the_call() -> None:
    shapes = [(128, 128), (128, 512)]
    assert not sites("split_products", RETURNED_OPERAND, shapes)
    tile = "    right = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\n"
    load = "    nisa.dma_copy(dst=right, src=w[0:128, 0:512])\n"
    written = RETURNED_OPERAND.replace("    right = loaded(w[0:128, 0:512])\n", tile + load)
    inputs = arrays(*shapes)
    after, before = run(applied("split_products", written, shapes), *inputs), run(RETURNED_OPERAND, *inputs)
    assert np.linalg.norm(after - before) < 3e-5 * np.linalg.norm(before)
