"""Each rule: a kernel where it applies and is right, and kernels where it must refuse."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.errors import RuleRefused
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from acceld.proposers.rules.records import Variant
from tests.acceld.proposers.rules.kernels import (
    applied,
    apply_at,
    arrays,
    assert_same,
    current,
    legacy,
    line_of,
    run,
    sites,
)

TILE = (128, 1024)


# composite_activation

SILU = legacy(
    "x",
    """
    out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(1024)[None, :]
    x_tile = nl.load(x[p, f])
    # SiLU from its formula.
    decay = nisa.activation(op=nl.exp, data=x_tile, scale=-1.0)
    total = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)
    sigmoid = nisa.reciprocal(data=total)
    y_tile = nl.multiply(x_tile, sigmoid)
    nl.store(out[p, f], value=y_tile)
    return out
""",
)


def test_a_spelled_out_silu_becomes_one_activation() -> None:
    after = applied("composite_activation", SILU, [TILE])
    assert "op=nl.silu, data=x_tile" in after and "reciprocal" not in after and "# SiLU from its formula." in after
    assert_same(SILU, after, *arrays(TILE))


def test_a_spelled_out_silu_in_the_current_api_becomes_one_activation() -> None:
    before = current(
        "x",
        """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    x_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    decay = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    sigmoid = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    y_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x_tile, src=x)
    nisa.activation(dst=decay, op=nl.exp, data=x_tile, scale=-1.0)
    nisa.tensor_scalar(dst=total, data=decay, op0=nl.add, operand0=1.0)
    nisa.reciprocal(dst=sigmoid, data=total)
    nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=sigmoid, op=nl.multiply)
    nisa.dma_copy(dst=out, src=y_tile)
    return out
""",
    )
    after = applied("composite_activation", before, [(128, 512)])
    assert "nisa.activation(dst=y_tile, op=nl.silu, data=x_tile)" in after
    assert "sigmoid" not in after and "decay" not in after


def test_sigmoid_and_rsqrt_are_recognized() -> None:
    sigmoid = SILU.replace("y_tile = nl.multiply(x_tile, sigmoid)", "y_tile = nl.multiply(sigmoid, 2.0)")
    after = applied("composite_activation", sigmoid, [TILE])
    assert "op=nl.sigmoid" in after
    assert_same(sigmoid, after, *arrays(TILE))
    root = SILU.replace("op=nl.exp, data=x_tile, scale=-1.0", "op=nl.sqrt, data=x_tile, scale=3.0")
    root = root.replace("    total = nisa.tensor_scalar(data=decay, op0=nl.add, operand0=1.0)\n", "")
    root = root.replace("reciprocal(data=total)", "reciprocal(data=decay)")
    after = applied("composite_activation", root, [TILE])
    assert "op=nl.rsqrt, data=x_tile, scale=3.0" in after
    assert_same(root, after, np.abs(arrays(TILE)[0]) + np.float32(0.1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("operand0=1.0)", "operand0=2.0)"),  # not 1 + exp(-x)
        ("scale=-1.0", "scale=-2.0"),
        ("nl.multiply(x_tile, sigmoid)", "nl.multiply(x_tile, nl.add(sigmoid, total))"),  # another reader
        ("    y_tile =", "    x_tile[p, f] = nl.add(x_tile, 1.0)\n    y_tile ="),  # x changes in between
        ("data=decay, op0", "data=decay[p, f], op0"),  # not provably the same tile
        ("reciprocal(data=total)", "reciprocal(data=total, mask=f < 1000)"),  # masked tail
        ("    total =", "    other = decay\n    total ="),  # alias
    ],
)
def test_what_is_not_provably_a_silu_stays(old: str, new: str) -> None:
    changed = SILU.replace(old, new)
    assert changed != SILU
    assert not [site for site in sites("composite_activation", changed, [TILE]) if site.key == "silu"]


SQUARE = SILU.replace("nl.multiply(x_tile, sigmoid)", "nl.multiply(small, x_tile)").replace(
    "    y_tile =", "    small = nisa.tensor_scalar(data=x_tile, op0=nl.multiply, operand0=0.25)\n    y_tile ="
)


def test_a_scaled_square_is_one_activation() -> None:
    names = [site.key for site in sites("composite_activation", SQUARE, [TILE])]
    after = applied("composite_activation", SQUARE, [TILE], names.index("square"))
    assert "nisa.activation(op=nl.square, data=x_tile, scale=0.5)" in after and "small" not in after
    assert_same(SQUARE, after, *arrays(TILE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("operand0=0.25", "operand0=-0.25"),  # no real root
        ("operand0=0.25", "operand0=x_tile[p, 0]"),  # no number
        ("nl.multiply(small, x_tile)", "nl.multiply(small, decay)"),
        ("    y_tile =", "    x_tile[p, f] = nl.add(x_tile, 1.0)\n    y_tile ="),
        ("operand0=0.25)", "operand0=0.25, mask=f < 1000)"),
    ],
)
def test_what_is_not_provably_a_square_stays(old: str, new: str) -> None:
    changed = SQUARE.replace(old, new)
    assert changed != SQUARE
    assert not [site for site in sites("composite_activation", changed, [TILE]) if site.key == "square"]


# widen_tiles

CHUNKS = legacy(
    "x",
    """
    out = nl.ndarray((4, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    wide = nl.arange(1024)[None, :]
    f = nl.arange(512)[None, :]
    half = nl.ndarray((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    x_tile = nl.ndarray((4, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    y_tile = nl.ndarray((4, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        x_tile[i, p, wide] = nl.load(x[i, p, wide], mask=128 * i + p < 500)
        for c in nl.affine_range(2):
            # twice, then squared
            half[i, c, p, f] = nisa.tensor_scalar(data=x_tile[i, p, 512 * c + f], op0=nl.multiply, operand0=2.0, mask=128 * i + p < 500)
            y_tile[i, p, 512 * c + f] = nl.multiply(half[i, c, p, f], half[i, c, p, f], mask=128 * i + p < 500)
        nl.store(out[i, p, wide], value=y_tile[i, p, wide], mask=128 * i + p < 500)
    return out
""",
)


def test_chunks_of_a_tile_are_merged_under_a_row_mask() -> None:
    after = applied("widen_tiles", CHUNKS, [(4, 128, 1024)])
    assert "for c in" not in after and "(4, 1, nl.par_dim(128), 1024)" in after and "# twice, then squared" in after
    inputs = arrays((4, 128, 1024))
    kept = np.arange(512).reshape(4, 128) < 500
    np.testing.assert_allclose(run(after, *inputs)[kept], run(CHUNKS, *inputs)[kept])


def test_a_loop_over_tiles_takes_larger_steps() -> None:
    before = legacy(
        "x",
        """
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for t in nl.affine_range(4):
        tile = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
        tile[p, f] = nl.load(x[p, 512 * t + f])
        root = nl.exp(tile[p, f])
        nl.store(out[p, 512 * t + f], value=root)
    return out
""",
    )
    (site,) = sites("widen_tiles", before, [(128, 2048)])
    assert {variant.parameters["factor"] for variant in site.variants} == {2, 4}
    for variant in range(len(site.variants)):
        after = applied("widen_tiles", before, [(128, 2048)], variant=variant)
        assert "nl.arange(512)[None, :]\n    f_" in after or "nl.arange(2048)" in after or "nl.arange(1024)" in after
        assert_same(before, after, *arrays((128, 2048)))


@pytest.mark.parametrize(
    ("rows", "first", "columns"),
    [
        ("0:128", "0:128", "nl.ds(128 * t, 128)"),
        ("nl.ds(0, 128)", "nl.ds(0, 128)", "128 * t : 128 * t + 128"),
        ("nl.arange(128)[:, None]", "nl.arange(128)[None, :]", "128 * t + nl.arange(128)[None, :]"),
    ],
)
def test_as_many_partitions_as_a_step_has_columns_stay_as_many(rows: str, first: str, columns: str) -> None:
    before = legacy(
        "x",
        f"""
    out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(8):
        tile = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
        tile[{rows}, {first}] = nl.load(x[{rows}, {columns}])
        root = nl.exp(tile[{rows}, {first}])
        nl.store(out[{rows}, {columns}], value=root)
    return out
""",
    )
    assert_same(before, applied("widen_tiles", before, [(128, 1024)]), *arrays((128, 1024)))


def test_an_index_that_may_be_the_partitions_is_no_step() -> None:
    flat = CHUNKS.replace("x_tile[i, p, 512 * c + f]", "row[nl.ds(512 * c, 512)]")
    assert sites("widen_tiles", flat, [(4, 128, 1024)]) == []


def test_a_form_feed_in_a_comment_moves_no_edit() -> None:
    plain = applied("widen_tiles", CHUNKS, [(4, 128, 1024)])
    marked = applied("widen_tiles", CHUNKS.replace("# twice", "# twice\f\u2028"), [(4, 128, 1024)])
    assert marked == plain.replace("# twice", "# twice\f\u2028")


def test_a_named_tile_width_grows() -> None:
    before = legacy(
        "x",
        """
    width = 512
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(width)[None, :]
    for start in range(0, 2048, width):
        nl.store(out[p, start + f], value=nl.exp(nl.load(x[p, start + f])))
    return out
""",
    )
    after = applied("widen_tiles", before, [(128, 2048)])
    assert "width = 2048" in after
    assert_same(before, after, *arrays((128, 2048)))


def test_a_named_tile_width_grows_beside_a_name_of_a_part_that_is_bound_again() -> None:
    before = legacy(
        "x",
        """
    width = 512
    out = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    low, high = nl.arange(64)[:, None], 64 + nl.arange(64)[:, None]
    f = nl.arange(width)[None, :]
    for start in range(0, 2048, width):
        both = nl.ndarray((128, width), dtype=nl.float32, buffer=nl.sbuf)
        part = both[low, f]
        part = nl.exp(nl.load(x[low, start + f]))
        nl.store(out[low, start + f], value=part)
        nl.store(out[high, start + f], value=nl.exp(nl.load(x[high, start + f])))
    return out
""",
    )
    after = applied("widen_tiles", before, [(128, 2048)])
    assert "width = 2048" in after
    assert_same(before, after, *arrays((128, 2048)))
    assert not sites("widen_tiles", before.replace("part = both[low, f]", "part = both[low, f + 1]"), [(128, 2048)])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("data=x_tile[i, p, 512 * c + f]", "data=x_tile[i, p, f]"),  # the same columns in every step
        ("mask=128 * i + p < 500)\n            y_tile", "mask=512 * c + f < 1000)\n            y_tile"),  # masked tail
        ("data=x_tile[i, p, 512 * c + f]", "data=x_tile[i, p, 512 * c + 1 * f // 1]"),  # not understood
        ("nl.affine_range(2)", "nl.affine_range(count)"),  # unknown trips
        ("            # twice", "            keep = half\n            # twice"),  # alias
        ("nl.store(out[i, p, wide]", "nl.copy(half[i, 0, p, f])\n        nl.store(out[i, p, wide]"),  # read elsewhere
        ("= nl.multiply(half[i, c, p, f]", "+= nl.multiply(half[i, c, p, f]"),  # running sum
        ("data=x_tile[i, p, 512 * c + f]", "data=x_tile[c, p, 512 * c + f]"),  # another tile for each step
        ("half = nl.ndarray((4, 2, nl.par_dim(128), 512)", "half = nl.ndarray(parts.shape"),  # no shape to change
    ],
)
def test_steps_that_can_not_be_merged_stay(old: str, new: str) -> None:
    changed = CHUNKS.replace(old, new).replace("kernel(x)", "kernel(x, parts)")
    assert CHUNKS.replace(old, new) != CHUNKS
    assert sites("widen_tiles", changed, [(4, 128, 1024), (4, 2, 128, 512)]) == []


def test_a_step_in_psum_does_not_grow_beyond_a_bank() -> None:
    changed = CHUNKS.replace("half = nl.ndarray((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)",
                             "half = nl.zeros((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)")  # fmt: skip
    assert sites("widen_tiles", changed, [(4, 128, 1024)]) == []
    line = 1 + changed[: changed.index("for c in")].count("\n")
    with pytest.raises(RuleRefused, match="1024 columns are more than the 512 of a PSUM bank"):
        apply_at("widen_tiles", changed, line, Variant("1024 columns", {"factor": 2}))


# transpose_once

PRODUCT = legacy(
    "x, w",
    """
    out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    x_tile = nl.load(x[p, nl.arange(256)[None, :]])
    for column in nl.affine_range(2):
        total = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            w_tile = nl.load(w[128 * k + p, 512 * column + f])
            total += nl.matmul(x_tile[p, 128 * k + c], w_tile)
        nl.store(out[p, 512 * column + f], value=nl.copy(total))
    return out
""",
)
PRODUCT_SHAPES = [(128, 256), (256, 1024)]


def test_a_repeated_hidden_transpose_moves_before_its_loop() -> None:
    after = applied("transpose_once", PRODUCT, PRODUCT_SHAPES)
    assert "x_tile_t = nl.ndarray((2, nl.par_dim(128), 128)" in after and "transpose_x=True" in after
    inputs = arrays(*PRODUCT_SHAPES)
    np.testing.assert_allclose(run(after, *inputs), inputs[0] @ inputs[1], rtol=1e-4, atol=1e-4)
    assert_same(PRODUCT, after, *inputs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x_tile[p, 128 * k + c], w_tile", "x_tile[p, 64 * k + 64 * column + c], w_tile"),  # depends on both loops
        ("            w_tile =", "            x_tile[p, c] = nl.load(x[p, c])\n            w_tile ="),  # written in it
        ("nl.matmul(x_tile[p, 128 * k + c], w_tile)", "nl.matmul(x_tile[p, 128 * k + c], w_tile, transpose_x=True)"),
        ("], w_tile)", "], w_tile, mask=f < 500)"),  # masked
        ("    for column", "    view = x_tile\n    for column"),  # alias
        ("nl.affine_range(2):\n        total", "nl.sequential_range(2):\n        total"),  # may depend on order
        ("], w_tile)", "], w_tile)\n            at = 128 * k + c"),  # an index name of the loop
    ],
)
def test_transposes_that_may_differ_stay(old: str, new: str) -> None:
    changed = PRODUCT.replace(old, new)
    if "at = " in new:
        changed = changed.replace("            w_tile =", "            at = 128 * k + c\n            w_tile =")
        changed = changed.replace("nl.matmul(x_tile[p, 128 * k + c]", "nl.matmul(x_tile[p, at]")
    assert changed != PRODUCT
    assert sites("transpose_once", changed, PRODUCT_SHAPES) == []


# reduce_in_activation

SUM = legacy(
    "x",
    """
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(1024)[None, :]
    one = nl.arange(1)[None, :]
    x_tile = nl.load(x[p, f])
    power = nisa.activation(op=nl.exp, data=x_tile, scale=0.5)
    total = nisa.tensor_reduce(nl.add, data=power, axis=[1])
    nl.store(out[p, one], value=total)
    return out
""",
)


def test_a_sum_comes_out_of_the_activation() -> None:
    after = applied("reduce_in_activation", SUM, [TILE])
    assert "activation_reduce(op=nl.exp" in after and "tensor_reduce" not in after
    assert_same(SUM, after, *arrays(TILE))
    product = SUM.replace("nisa.activation(op=nl.exp, data=x_tile, scale=0.5)", "nl.multiply(x_tile, x_tile)")
    squared = applied("reduce_in_activation", product, [TILE])
    assert "op=nl.square, data=x_tile" in squared
    assert_same(product, squared, *arrays(TILE))
    language = SUM.replace("nisa.activation(op=nl.exp, data=x_tile, scale=0.5)", "nl.square(x_tile)")
    language = language.replace("nisa.tensor_reduce(nl.add, data=power, axis=[1])", "nl.sum(power, axis=[1])")
    assert_same(language, applied("reduce_in_activation", language, [TILE]), *arrays(TILE))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tensor_reduce(nl.add", "tensor_reduce(nl.max"),  # the engine only adds
        ("data=power, axis", "data=x_tile, axis"),  # not what the activation wrote
        ("data=power, axis=[1]", "data=power, axis=[1], mask=p < 100"),  # masked
        ("data=power, axis=[1]", "data=power, axis=[1], negate=True"),
        ("    total =", "    power[p, f] = nl.add(power, 1.0)\n    total ="),  # changed in between
        ("    total =", "    other = power\n    total ="),  # alias
    ],
)
def test_other_reductions_stay(old: str, new: str) -> None:
    changed = SUM.replace(old, new)
    assert changed != SUM
    assert sites("reduce_in_activation", changed, [TILE]) == []


# consume_psum

FROM_PSUM = legacy(
    "x, w, y",
    """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    x_tile = nl.load(x[p, c])
    w_tile = nl.load(w[p, f])
    y_tile = nl.load(y[p, f])
    product = nisa.nc_matmul(x_tile, w_tile)
    copied = nl.copy(product)
    result = nl.multiply(copied, y_tile)
    nl.store(out[p, f], value=result)
    return out
""",
)
FROM_PSUM_SHAPES = [(128, 128), (128, 512), (128, 512)]


def test_elementwise_work_reads_psum_without_a_copy() -> None:
    after = applied("consume_psum", FROM_PSUM, FROM_PSUM_SHAPES)
    assert "nl.multiply(product, y_tile)" in after and "nl.copy" not in after
    assert_same(FROM_PSUM, after, *arrays(*FROM_PSUM_SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value=result", "value=copied"),  # a store can not read PSUM
        ("nl.multiply(copied, y_tile)", "nl.multiply(copied, copied)"),  # two operands in PSUM
        ("nl.multiply(copied, y_tile)", "nl.multiply(copied, product)"),
        ("nl.copy(product)", "nl.copy(product, dtype=nl.bfloat16)"),  # rounds
        ("nl.multiply(copied, y_tile)", "nl.multiply(copied, y_tile, mask=f < 100)"),  # other mask
        ("    result =", "    view = copied\n    result ="),  # alias
    ],
)
def test_copies_out_of_psum_that_are_needed_stay(old: str, new: str) -> None:
    changed = FROM_PSUM.replace(old, new)
    assert changed != FROM_PSUM
    assert sites("consume_psum", changed, FROM_PSUM_SHAPES) == []


# fold_scalars

FOLDS = legacy(
    "x, y",
    """
    out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(1024)[None, :]
    x_tile = nl.load(x[p, f])
    y_tile = nl.load(y[p, f])
    twice = nisa.tensor_scalar(data=x_tile, op0=nl.multiply, operand0=2.0)
    more = nisa.tensor_scalar(data=twice, op0=nl.subtract, operand0=1.0, reverse0=True)
    half = nisa.tensor_scalar(data=y_tile, op0=nl.multiply, operand0=0.5)
    power = nisa.activation(op=nl.exp, data=half)
    small = nisa.tensor_scalar(data=power, op0=nl.multiply, operand0=0.25)
    result = nl.subtract(more, small)
    nl.store(out[p, f], value=result)
    return out
""",
)


def test_each_fold_is_right() -> None:
    shapes = [TILE, TILE]
    found = sites("fold_scalars", FOLDS, shapes)
    assert {site.variants[0].name for site in found} == {"tensor_scalar", "activation_scale", "scalar_tensor_tensor"}
    for number in range(len(found)):
        assert_same(FOLDS, applied("fold_scalars", FOLDS, shapes, site=number), *arrays(*shapes))


QUOTIENT = FOLDS.replace("nl.subtract(more, small)", "nl.multiply(x_tile, inverse)").replace(
    "    result =", "    inverse = nisa.reciprocal(data=power)\n    result ="
)


def test_a_product_with_a_reciprocal_is_a_quotient() -> None:
    shapes = [TILE, TILE]
    names = [site.variants[0].name for site in sites("fold_scalars", QUOTIENT, shapes)]
    after = applied("fold_scalars", QUOTIENT, shapes, names.index("divide"))
    assert "nisa.tensor_tensor(data1=x_tile, data2=power, op=nl.divide)" in after and "reciprocal" not in after
    assert_same(QUOTIENT, after, *arrays(*shapes))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nl.multiply(x_tile, inverse)", "nl.add(x_tile, inverse)"),
        ("nl.multiply(x_tile, inverse)", "nl.multiply(inverse, inverse)"),
        ("nl.multiply(x_tile, inverse)", "nl.multiply(x_tile, inverse, mask=f < 1000)"),  # masked tail
        ("    result =", "    power[p, f] = nl.add(power, 1.0)\n    result ="),  # operand changes in between
        ("    result =", "    view = inverse\n    result ="),  # alias
    ],
)
def test_other_uses_of_a_reciprocal_stay(old: str, new: str) -> None:
    changed = QUOTIENT.replace(old, new)
    assert changed != QUOTIENT
    found = sites("fold_scalars", changed, [TILE, TILE])
    assert "divide" not in {site.variants[0].name for site in found}


def test_folds_can_follow_each_other() -> None:
    source, shapes = FOLDS, [TILE, TILE]
    for _ in range(3):
        source = applied("fold_scalars", source, shapes)
    assert source.count("nisa.tensor_scalar") < FOLDS.count("nisa.tensor_scalar") - 1
    assert_same(FOLDS, source, *arrays(*shapes))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nl.subtract(more, small)", "nl.subtract(more, twice)"),  # another reader
        ("    more =", "    x_tile[p, f] = nl.add(x_tile, 1.0)\n    more ="),  # operand changes in between
        ("data=x_tile, op0=nl.multiply, operand0=2.0", "data=x_tile, op0=nl.multiply, operand0=2.0, mask=f < 9"),
        ("operand0=2.0)", "operand0=2.0, dtype=nl.bfloat16)"),  # rounds in between
        ("    more =", "    view = twice\n    more ="),  # alias
    ],
)
def test_a_pair_that_is_not_alone_is_not_folded(old: str, new: str) -> None:
    changed = FOLDS.replace(old, new)
    assert changed != FOLDS
    line = 1 + changed[: changed.index("    more =")].count("\n")
    assert not [site for site in sites("fold_scalars", changed, [TILE, TILE]) if site.line == line]


# place_engine


def test_copies_get_an_engine() -> None:
    for variant in (0, 1):
        after = applied("place_engine", FROM_PSUM, FROM_PSUM_SHAPES, variant=variant)
        assert "nisa.tensor_copy(src=product, engine=nisa." in after
        assert_same(FROM_PSUM, after, *arrays(*FROM_PSUM_SHAPES))


def test_a_copy_that_has_an_engine_keeps_it() -> None:
    chosen = FROM_PSUM.replace("nl.copy(product)", "nisa.tensor_copy(product, engine=nisa.vector_engine)")
    assert [site for site in sites("place_engine", chosen, FROM_PSUM_SHAPES) if site.key != "alone"] == []


# hoist_loads


def test_loads_that_a_loop_repeats_move_before_it() -> None:
    kept = applied("hoist_loads", REPEATED, REPEATED_SHAPES)
    assert "w_tile_kept = nl.ndarray((2, nl.par_dim(128), 512)" in kept
    assert kept.index("nl.load(w") < kept.index("for row in")
    assert_same(REPEATED, kept, *arrays(*REPEATED_SHAPES))


def test_loads_move_in_the_current_api_too() -> None:
    before = current(
        "x, w",
        """
    out = nl.ndarray((4, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(4):
        for k in nl.affine_range(2):
            x_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            w_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            y_tile = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[row, 0:128, nl.ds(256 * k, 256)])
            nisa.dma_copy(dst=w_tile, src=w[0:128, nl.ds(256 * k, 256)])
            nisa.tensor_tensor(dst=y_tile, data1=x_tile, data2=w_tile, op=nl.multiply)
            nisa.dma_copy(dst=out[row, 0:128, nl.ds(256 * k, 256)], src=y_tile)
    return out
""",
    )
    shapes = [(4, 128, 512), (128, 512)]
    after = applied("hoist_loads", before, shapes)
    assert "w_tile_kept = nl.ndarray((128, 2, 256)" in after and "data2=w_tile_kept[0:128, k, 0:256]" in after
    assert_same(before, after, *arrays(*shapes))


REPEATED = legacy(
    "x, w",
    """
    out = nl.ndarray((4, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(4):
        for k in nl.affine_range(2):
            x_tile = nl.load(x[row, p, 512 * k + f])
            w_tile = nl.load(w[p, 512 * k + f])
            nl.store(out[row, p, 512 * k + f], value=nl.multiply(x_tile, w_tile))
    return out
""",
)
REPEATED = REPEATED.replace("value=nl.multiply(x_tile, w_tile)", "value=y_tile").replace(
    "            nl.store", "            y_tile = nl.multiply(x_tile, w_tile)\n            nl.store"
)
REPEATED_SHAPES = [(4, 128, 1024), (128, 1024)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("w[p, 512 * k + f]", "w[p, 256 * k + 128 * row + f]"),  # depends on the loop
        ("w[p, 512 * k + f]", "w[p, 512 * k + f], mask=f < 500"),  # masked tail
        ("w[p, 512 * k + f]", "out[0, p, 512 * k + f]"),  # the kernel writes it
        ("            y_tile", "            w_tile = nl.add(w_tile, 1.0)\n            y_tile"),  # changed in the loop
        ("            y_tile", "            other = w_tile\n            y_tile"),  # alias
        ("nl.affine_range(2)", "nl.affine_range(count)"),  # unknown trips
        ("            w_tile = nl.load(w[p, 512 * k + f])", "            at = 512 * k + f\n            w_tile = nl.load(w[p, at])"),
    ],
)  # fmt: skip
def test_loads_that_may_differ_stay(old: str, new: str) -> None:
    changed = REPEATED.replace(old, new)
    assert changed != REPEATED
    assert sites("hoist_loads", changed, REPEATED_SHAPES) == []


def test_tiles_that_do_not_fit_are_not_kept() -> None:
    large = REPEATED.replace("nl.affine_range(2)", "nl.affine_range(100)")
    assert sites("hoist_loads", large, [(4, 128, 51200), (128, 51200)]) == []


# interchange_loops

NEST = legacy(
    "x, y",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    total = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for step in nl.affine_range(3):
        for tile in nl.affine_range(2):
            x_tile = nl.load(x[tile, p, f])
            y_tile = nl.load(y[step, p, f])
            total[tile, p, f] += nl.multiply(x_tile, y_tile)
    for tile in nl.affine_range(2):
        nl.store(out[tile, p, f], value=total[tile, p, f])
    return out
""",
)
NEST_SHAPES = [(2, 128, 512), (3, 128, 512)]


def test_parallel_loops_change_places() -> None:
    after = applied("interchange_loops", NEST, NEST_SHAPES)
    assert after.index("for tile in nl.affine_range(2)") < after.index("for step in nl.affine_range(3)")
    assert_same(NEST, after, *arrays(*NEST_SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nl.affine_range(3)", "nl.sequential_range(3)"),  # order may matter
        ("+= nl.multiply(x_tile, y_tile)", "+= nl.multiply(x_tile, total[tile, p, f])"),  # loop-carried value
        ("    for step in nl.affine_range(3):\n", "    for step in nl.affine_range(3):\n        z_tile = nl.load(y[step, p, f])\n"),
        ("            y_tile =", "            alias = total\n            y_tile ="),
        ("            y_tile =", "            last = nl.copy(x_tile)\n            y_tile ="),
    ],
)  # fmt: skip
def test_loops_that_are_not_perfectly_parallel_stay(old: str, new: str) -> None:
    changed = NEST.replace(old, new)
    if "last" in new:
        changed = changed.replace("value=total[tile, p, f]", "value=last")
    assert changed != NEST
    assert sites("interchange_loops", changed, NEST_SHAPES) == []


def test_loops_whose_iterations_read_a_sum_of_their_own_change_places() -> None:
    text = """
    out = nl.ndarray((2, 3, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    total = nl.zeros((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for m in nl.affine_range(2):
        for n in nl.affine_range(3):
            for k in nl.affine_range(2):
                left = nl.load(x[m, k, p, c])
                right = nl.load(y[n, k, p, f])
                total[m, n, p, f] += nisa.nc_matmul(left, right)
            made = nl.copy(total[m, n, p, f])
            nl.store(out[m, n, p, f], value=made)
    return out
"""
    own, shapes = legacy("x, y", text), [(2, 2, 128, 128), (3, 2, 128, 512)]
    after = applied("interchange_loops", own, shapes)
    assert after.index("for n in") < after.index("for m in")
    assert_same(own, after, *arrays(*shapes))
    shared = own.replace("total[m, n, p, f]", "total[m, n // 2, p, f]")
    assert sites("interchange_loops", shared, shapes) == []


# fuse_nests

HANDOVER = legacy(
    "x, w",
    """
    out = nl.ndarray((4, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    w_tile = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    made = nl.ndarray((4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.ndarray((2, 4, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    most = nl.ndarray((4, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for block in nl.affine_range(2):
        w_tile[block, p, f] = nl.load(w[p, 512 * block + f])
        for row in nl.affine_range(4):
            # what the second nest needs
            x_tile = nl.load(x[row, p, 512 * block + f])
            made[row, block, p, f] = nl.multiply(x_tile, w_tile[block, p, f])
            part[block, row, p, 0] = nisa.tensor_reduce(nl.max, data=made[row, block, p, f], axis=[1])
            most[row, p, 0] = nl.loop_reduce(part[block, row, p, 0], op=np.max, loop_indices=[block])
    for line in nl.affine_range(4):
        for block in nl.affine_range(2):
            shifted = nl.subtract(made[line, block, p, f], most[line, p, 0])
            nl.store(out[line, p, 512 * block + f], value=shifted)
    return out
""",
)
HANDOVER_SHAPES = [(4, 128, 1024), (128, 1024)]


def test_producer_and_consumer_share_a_loop() -> None:
    after = applied("fuse_nests", HANDOVER, HANDOVER_SHAPES, variant=2)
    assert "for line in" not in after and after.count("for row in") == 1 and "# what the second nest needs" in after
    inputs = arrays(*HANDOVER_SHAPES)
    scaled = inputs[0] * inputs[1]
    np.testing.assert_allclose(run(after, *inputs), scaled - scaled.max(axis=2, keepdims=True), rtol=1e-6)
    assert_same(HANDOVER, after, *inputs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("made[line, block, p, f]", "made[3 - line, block, p, f]"),  # another iteration's part
        ("nl.affine_range(4):\n            # what", "nl.sequential_range(4):\n            # what"),
        ("for line in nl.affine_range(4)", "for line in nl.affine_range(3)"),  # other trips
        ("made[line, block, p, f], most", "made[line, block, p, f], most[0, p, 0] if False else most"),
        ("    for line in", "    view = made\n    for line in"),  # alias
        ("    for line in", "    check = nl.copy(made[0, 0, p, f])\n    nl.store(out[0, p, f], value=check)\n    for line in"),
    ],
)  # fmt: skip
def test_nests_that_need_more_than_one_part_stay_apart(old: str, new: str) -> None:
    changed = HANDOVER.replace(old, new)
    assert changed != HANDOVER
    assert sites("fuse_nests", changed, HANDOVER_SHAPES) == []


def test_a_value_without_room_for_every_iteration_is_not_moved() -> None:
    """w_tile in one place is overwritten by the next block, so the nests can not be reordered."""
    changed = HANDOVER.replace("w_tile = nl.ndarray((2, nl.par_dim", "w_tile = nl.ndarray((nl.par_dim")
    changed = changed.replace("w_tile[block, p, f]", "w_tile[p, f]")
    assert sites("fuse_nests", changed, HANDOVER_SHAPES) == []


BLOCKS = legacy(
    "x",
    """
    out = nl.ndarray((8, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    made = nl.ndarray((8, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for block in nl.affine_range(2):
        for row in nl.affine_range(4):
            x_tile = nl.load(x[4 * block + row, p, f])
            made[4 * block + row, p, f] = nl.multiply(x_tile, 2.0)
    # two parts of a block
    for half in nl.affine_range(4):
        for row in nl.affine_range(2):
            y_tile = nl.exp(made[2 * half + row, p, f])
            nl.store(out[2 * half + row, p, f], value=y_tile)
    return out
""",
)
BLOCKS_SHAPES = [(8, 128, 512)]


def test_a_consumer_with_more_iterations_goes_by_parts_of_the_producer_s() -> None:
    after = applied("fuse_nests", BLOCKS, BLOCKS_SHAPES)
    assert after.count("for block in") == 1 and "    for half_part in nl.affine_range(2):" in after
    assert "made[2 * (2 * block + half_part) + row, p, f]" in after and "# two parts of a block" in after
    assert_same(BLOCKS, after, *arrays(*BLOCKS_SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "made[2 * half + row, p, f])",
            "made[2 * half - row + 1, p, f])\n            z_tile = nl.exp(made[7 - 2 * half, p, f])",
        ),
        ("nl.exp(made[2 * half + row", "nl.exp(made[half + row"),  # parts of two blocks
        ("nl.exp(made[2 * half + row", "nl.exp(made[2 * half + 2 * row"),
        ("for half in nl.affine_range(4)", "for half in nl.sequential_range(4)"),
        ("for half in nl.affine_range(4)", "for half in nl.affine_range(3)"),
        ("    # two parts", "    view = made\n    # two parts"),  # alias
    ],
)
def test_a_consumer_that_reads_across_blocks_stays_apart(old: str, new: str) -> None:
    changed = BLOCKS.replace(old, new)
    assert changed != BLOCKS
    assert sites("fuse_nests", changed, BLOCKS_SHAPES) == []


def test_the_innermost_loops_can_stay_apart() -> None:
    square = BLOCKS.replace("4 * block + row", "block, row").replace("2 * half + row", "half, row")
    square = square.replace("half in nl.affine_range(4)", "half in nl.affine_range(2)")
    square = square.replace("row in nl.affine_range(2)", "row in nl.affine_range(4)")
    square = square.replace("ndarray((8, nl.par_dim", "ndarray((2, 4, nl.par_dim").replace("((8, 128", "((2, 4, 128")
    shapes = [(2, 4, 128, 512)]
    deep, less, outer = (applied("fuse_nests", square, shapes, variant=number) for number in range(3))
    assert deep.count("for row in") == 1 and less.count("for row in") == 2 and less == outer
    assert_same(square, deep, *arrays(*shapes))
    assert_same(square, less, *arrays(*shapes))


@pytest.mark.parametrize("rule", ["composite_activation", "transpose_once", "reduce_in_activation", "consume_psum",
                                  "fold_scalars", "interchange_loops", "fuse_nests", "widen_tiles", "place_engine",
                                  "hoist_loads", "hoist_work", "group_iterations", "swap_operands", "split_products",
                                  "tile_columns", "pipeline_stages", "keep_on_chip", "fill_partitions"])  # fmt: skip
def test_a_place_without_the_pattern_is_refused_with_a_reason(rule: str) -> None:
    with pytest.raises(RuleRefused, match=r"line 3|no copy"):
        apply_at(rule, legacy("x", "    return x\n"), 3, Variant("any", {"factor": 2, "depth": 1}))


# keep_on_chip

SCRATCH = legacy(
    "x, y",
    """
    out = nl.ndarray((4, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    wide = nl.arange(1024)[None, :]
    kept = nl.ndarray((4, 128, 1024), dtype=nl.float32, buffer=nl.private_hbm)
    for row in nl.affine_range(4):
        x_tile = nl.load(x[row, p, wide])
        doubled = nisa.tensor_scalar(data=x_tile, op0=nl.multiply, operand0=2.0)
        nl.store(kept[row, p, wide], value=doubled)
    for row in nl.affine_range(4):
        again = nl.load(kept[row, p, wide])
        y_tile = nl.load(y[row, p, wide])
        for half in nl.affine_range(2):
            result = nl.add(again[p, 512 * half + f], y_tile[p, 512 * half + f])
            nl.store(out[row, p, 512 * half + f], value=result)
    return out
""",
)
SCRATCH_SHAPES = [(4, 128, 1024), (4, 128, 1024)]


def test_what_is_stored_only_to_be_loaded_stays_in_sbuf() -> None:
    after = applied("keep_on_chip", SCRATCH, SCRATCH_SHAPES)
    assert "kept = nl.ndarray((nl.par_dim(128), 4, 1024), dtype=nl.float32, buffer=nl.sbuf)" in after
    assert "kept[p, row, wide] = nisa.tensor_scalar(" in after and "nl.add(kept[p, row, (512 * half + f)]," in after
    assert "nl.load(kept" not in after and "nl.store(kept" not in after
    assert_same(SCRATCH, after, *arrays(*SCRATCH_SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("doubled = nisa", "kept_tile = nl.ndarray((nl.par_dim(128), 1024), dtype=nl.float32)\n        kept_tile[p, wide] = nisa"),
        ("again[p, 512 * half + f], y_tile[p, 512 * half + f]", "again[0:128, nl.ds(512 * half, 512)], y_tile[0:128, nl.ds(512 * half, 512)]"),
    ],
)  # fmt: skip
def test_tiles_that_have_to_stay_are_copied(old: str, new: str) -> None:
    before = SCRATCH.replace(old, new).replace(
        "value=doubled", "value=kept_tile[p, wide]" if "kept_tile" in new else "value=doubled"
    )
    after = applied("keep_on_chip", before, SCRATCH_SHAPES)
    assert "nl.copy(" in after and "private_hbm" not in after
    assert_same(before, after, *arrays(*SCRATCH_SHAPES))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("nl.store(kept[row, p, wide], value=doubled)", "nl.store(kept[row, p, wide], value=doubled, mask=wide < 512)", "mask"),
        ("    return out\n", "    return out, kept\n", "used other than"),
        ("again = nl.load(kept[row, p, wide])", "again = nl.load(kept[p // 32, p % 32 + row, wide])", "partitions"),
        ("value=doubled", "value=doubled + 1.0", "no tile"),
    ],
)  # fmt: skip
def test_a_tensor_that_others_see_or_read_otherwise_stays_in_hbm(old: str, new: str, reason: str) -> None:
    changed = SCRATCH.replace(old, new)
    assert changed != SCRATCH and sites("keep_on_chip", changed, SCRATCH_SHAPES) == []
    (site,) = rule_named("keep_on_chip").refusals(KernelModule(changed, "nki_legacy", SCRATCH_SHAPES))
    assert reason in site.precondition


# hoist_work

REPEATED_WORK = legacy(
    "x, w",
    """
    out = nl.ndarray((3, 16, 128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(4096)[None, :]
    w_tile = nl.ndarray((3, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    x_tile = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    twice = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((3, 16, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for block in nl.affine_range(3):
        w_tile[block, p, f] = nl.load(w[block, p, f])
        for row in nl.affine_range(16):
            # the same for every block
            x_tile[block, row, p, f] = nl.load(x[row // 4, row % 4, p, f])
            twice[block, row, p, f] = nl.multiply(x_tile[block, row, p, f], 2.0)
            product[block, row, p, f] = nl.multiply(twice[block, row, p, f], w_tile[block, p, f])
            total[block, row, p, 0] = nisa.tensor_reduce(nl.add, data=product[block, row, p, f], axis=[1])
            nl.store(out[block, row, p, 0], value=total[block, row, p, 0])
    return out
""",
)
REPEATED_WORK_SHAPES = [(4, 4, 128, 4096), (3, 128, 4096)]


def test_work_that_a_loop_repeats_is_done_before_it() -> None:
    after = applied("hoist_work", REPEATED_WORK, REPEATED_WORK_SHAPES)
    assert (
        "twice = nl.ndarray((16, nl.par_dim(128), 4096)" in after and "twice[row, p, f], w_tile[block, p, f]" in after
    )
    assert after.index("# the same for every block") < after.index("for block in") and after.count("for row in") == 2
    assert_same(REPEATED_WORK, after, *arrays(*REPEATED_WORK_SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row % 4, p, f])", "block, p, f])"),  # depends on the loop
        ("row % 4, p, f])", "row % 4, p, f], mask=128 * block + p < 300)"),  # masked tail
        (
            "= nl.multiply(x_tile[block, row, p, f], 2.0)",
            "+= nl.multiply(x_tile[block, row, p, f], 2.0)",
        ),  # running sum
        ("x_tile[block, row, p, f], 2.0)", "w_tile[block, p, f], 2.0)"),  # what the rest makes
        ("    for block in", "    other = twice\n    for block in"),  # alias
        ("    for block in nl.affine_range(3)", "    for block in nl.sequential_range(3)"),  # carries what it likes
        (
            "    return out",
            "    nl.store(out[0, 0, p, 0], value=twice[0, 0, p, 0])\n    return out",
        ),  # used after the loop
    ],
)
def test_work_that_may_differ_between_iterations_stays(old: str, new: str) -> None:
    changed = REPEATED_WORK.replace(old, new)
    assert changed != REPEATED_WORK
    assert not [site for site in sites("hoist_work", changed, REPEATED_WORK_SHAPES) if site.key == "block"]


def test_a_tile_in_one_place_is_a_reason_to_leave_work_where_it_is() -> None:
    changed = REPEATED_WORK.replace("twice[block, row, p, f]", "twice").replace(
        "    twice = nl.ndarray((3, 16, nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)\n", ""
    )
    with pytest.raises(
        RuleRefused, match=r"line \d+ makes twice, a tile of this loop, for line \d+, .* declare twice before the loop"
    ):
        apply_at("hoist_work", changed, line_of(changed, "for block in"), Variant("before the loop"), "block")


# group_iterations


def test_groups_of_an_inner_loop_come_outermost_and_what_they_share_before_the_middle_loop() -> None:
    (site,) = sites("group_iterations", REPEATED_WORK, REPEATED_WORK_SHAPES)
    assert [variant.parameters["size"] for variant in site.variants] == [8, 4, 2]
    after = applied("group_iterations", REPEATED_WORK, REPEATED_WORK_SHAPES, variant=1)
    assert after.index("for row_group in nl.affine_range(4)") < after.index("twice[4 * row_group + row_in_group")
    assert "x[row_group, row_in_group, p, f]" in after
    assert after.index("= nl.multiply(x_tile") < after.index("for block in") < after.index("= nl.multiply(twice")
    inputs = arrays(*REPEATED_WORK_SHAPES)
    for variant in (0, 2):
        assert_same(
            REPEATED_WORK, applied("group_iterations", REPEATED_WORK, REPEATED_WORK_SHAPES, 0, variant), *inputs
        )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("for block in nl.affine_range", "for block in nl.sequential_range", "block is a sequential_range"),
        ("            twice[", "            view = w_tile\n            twice[", "not understood|another name"),  # alias
        ("w_tile[block, p, f] = nl.load", "w_tile[block, p, f] += nl.load", "w_tile is a running sum"),
        ("total[block, row, p, 0]", "total[block, 0, p, 0]", "total has no place for every iteration of block and row"),
        (
            "    return out",
            "    nl.store(out[0, 0, p, 0], value=w_tile[0, p, 0])\n    return out",
            "outside of the loops",
        ),
        ("nl.load(w[block, p, f])", "nl.multiply(total[0, 0, p, 0], 2.0)", "it uses what the inner loop writes"),
    ],
)
def test_nests_that_carry_values_are_not_regrouped(old: str, new: str, reason: str) -> None:
    changed = REPEATED_WORK.replace(old, new)
    assert changed != REPEATED_WORK and sites("group_iterations", changed, REPEATED_WORK_SHAPES) == []
    with pytest.raises(RuleRefused, match=reason):
        apply_at("group_iterations", changed, line_of(changed, "for block in"), Variant("groups", {"size": 4}), "row",
                 REPEATED_WORK_SHAPES)  # fmt: skip


def test_a_masked_tail_moves_with_its_iteration() -> None:
    masked = REPEATED_WORK.replace("row % 4, p, f])", "row % 4, p, f], mask=128 * row + p < 2000)")
    masked = masked.replace("row, p, f], 2.0)", "row, p, f], 2.0, mask=128 * row + p < 2000)")
    masked = masked.replace(
        "w_tile[block, p, f])\n            total", "w_tile[block, p, f], mask=128 * row + p < 2000)\n            total"
    )
    masked = masked.replace("axis=[1])", "axis=[1], mask=128 * row + p < 2000)")
    masked = masked.replace(
        "value=total[block, row, p, 0])", "value=total[block, row, p, 0], mask=128 * row + p < 2000)"
    )
    after = applied("group_iterations", masked, REPEATED_WORK_SHAPES, variant=1)
    assert "mask=128 * (4 * row_group + row_in_group) + p < 2000" in after
    inputs = arrays(*REPEATED_WORK_SHAPES)
    before, grouped = (run(source, *inputs).reshape(3, 2048)[:, :2000] for source in (masked, after))
    np.testing.assert_allclose(grouped, before, rtol=2e-5)


def test_what_fits_on_chip_is_not_regrouped() -> None:
    small = REPEATED_WORK.replace("4096", "512")
    assert sites("group_iterations", small, [(4, 4, 128, 512), (3, 128, 512)]) == []
