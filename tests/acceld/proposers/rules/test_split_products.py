"""Products of bfloat16 parts, pieces of wide tiles, and engines for single statements."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.model import Profile, Source
from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, current, legacy, run, sites

PRODUCT = legacy(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    total = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    turned = nl.zeros((2, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
    x_t = nl.ndarray((2, 2, nl.par_dim(128), 128), dtype=nl.float32, name="x_t", buffer=nl.sbuf)
    w_tile = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(2):
        w_tile[k, p, f] = nl.load(w[k, p, f])
    for row in nl.affine_range(2):
        for k in nl.affine_range(2):
            x_tile = nl.load(x[row, k, p, nl.arange(128)[None, :]])
            turned[row, k, p, nl.arange(128)[None, :]] = nisa.nc_transpose(x_tile)
            x_t[row, k, p, nl.arange(128)[None, :]] = nl.copy(turned[row, k, p, nl.arange(128)[None, :]])
            total[row, p, f] += nisa.nc_matmul(x_t[row, k, p, nl.arange(128)[None, :]], w_tile[k, p, f])
        nl.store(out[row, p, f], value=nl.copy(total[row, p, f]))
    return out
""",
)
PRODUCT_SHAPES = [(2, 2, 128, 128), (2, 128, 512)]
HALF = legacy(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    total = nl.zeros((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    x_tile = nl.ndarray((2, nl.par_dim(64), 128), dtype=nl.float32, buffer=nl.sbuf)
    w_tile = nl.ndarray((nl.par_dim(64), 512), dtype=nl.float32, buffer=nl.sbuf)
    w_tile[nl.arange(64)[:, None], f] = nl.load(w[nl.arange(64)[:, None], f])
    for row in nl.affine_range(2):
        x_tile[row, nl.arange(64)[:, None], nl.arange(128)[None, :]] = nl.load(x[row, nl.arange(64)[:, None], nl.arange(128)[None, :]])
        total[row, p, f] = nisa.nc_matmul(x_tile[row, nl.arange(64)[:, None], nl.arange(128)[None, :]], w_tile[nl.arange(64)[:, None], f])
        nl.store(out[row, p, f], value=nl.copy(total[row, p, f]))
    return out
""",
)
HALF_SHAPES = [(2, 64, 128), (64, 512)]


def error(before: str, after: str, shapes: list[tuple[int, ...]]) -> float:
    """Return the relative difference of two kernels' results in the L2 norm."""
    inputs = arrays(*shapes)
    expected, found = run(before, *inputs), run(after, *inputs, shuffle=3)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_a_float32_product_becomes_three_products_of_parts() -> None:
    after = applied("split_products", PRODUCT, PRODUCT_SHAPES)
    assert after.count("nc_matmul(x_t_") == 3 and "x_t[row, k" not in after and 'name="x_t"' not in after
    assert 1e-7 < error(PRODUCT, after, PRODUCT_SHAPES) < 1e-5


def test_parts_of_half_the_partitions_are_stacked() -> None:
    stacked = applied("split_products", HALF, HALF_SHAPES)
    assert stacked.count("nc_matmul") == 2 and "64 + nl.arange(64)" in stacked and "par_dim(128), 128)" in stacked
    assert 1e-7 < error(HALF, stacked, HALF_SHAPES) < 1e-5
    three = applied("split_products", HALF, HALF_SHAPES, variant=1)
    assert three.count("nc_matmul") == 3 and error(HALF, three, HALF_SHAPES) < 1e-5


OVERWRITTEN = HALF.replace("total = nl.zeros", "total = nl.ndarray")


def test_operands_whose_shape_is_computed_elsewhere_are_split_but_not_stacked() -> None:
    source = HALF.replace("(nl.par_dim(64), 512), dtype", "tile_of(512), dtype").replace(
        "@nki.jit", "def tile_of(columns):\n    return nl.par_dim(64), columns\n\n\n@nki.jit"
    )
    (site,) = sites("split_products", source, HALF_SHAPES)
    assert [variant.name for variant in site.variants] == ["three products"]
    assert error(source, applied("split_products", source, HALF_SHAPES), HALF_SHAPES) < 1e-5


def test_a_product_that_overwrites_its_buffer_becomes_a_sum_that_begins_with_zeros() -> None:
    for variant in (0, 1):
        after = applied("split_products", OVERWRITTEN, HALF_SHAPES, variant=variant)
        assert "total = nl.zeros(" in after and error(OVERWRITTEN, after, HALF_SHAPES) < 1e-5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total[row, p, f] = ", "total[1, p, f] = nl.copy(w_first[p, f])\n        total[row, p, f] = "),
        ("2, nl.par_dim(128), 512), dtype=nl.float32", "2, nl.par_dim(128), 512), dtype=nl.bfloat16"),
        ("total[row, p, f]", "total[0, p, f]"),  # one place for both iterations
    ],
)
def test_a_product_that_may_not_overwrite_all_of_its_place_stays(old: str, new: str) -> None:
    changed = OVERWRITTEN.replace(old, new)
    assert changed != OVERWRITTEN and sites("split_products", changed, HALF_SHAPES) == []


def test_products_into_constant_places_of_one_buffer_are_split() -> None:
    line = next(line for line in OVERWRITTEN.splitlines() if "total[row, p, f] = nisa" in line)
    other = line.replace("total[row", "total[2 + row")
    unrolled = OVERWRITTEN.replace(line, f"{line}\n{other}").replace("total = nl.ndarray((2,", "total = nl.ndarray((4,")
    assert error(unrolled, applied("split_products", unrolled, HALF_SHAPES), HALF_SHAPES) < 1e-5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total = nl.zeros", "total = nl.ndarray"),  # the first product would add to nothing known
        ("w_tile[k, p, f] = nl.load(w[k, p, f])", "w_tile[k, p, f] += nl.load(w[k, p, f])"),
        (
            "par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf",
            "par_dim(128), 512), dtype=nl.bfloat16, buffer=nl.sbuf",
        ),
        ("w_tile[k, p, f])\n        nl", "w_tile[k, p, f], is_moving_onezero=True)\n        nl"),
        ("    for row in", "    other = w_tile\n    for row in"),
    ],
)
def test_a_product_whose_parts_are_not_known_stays(old: str, new: str) -> None:
    assert old in PRODUCT
    assert sites("split_products", PRODUCT.replace(old, new), PRODUCT_SHAPES) == []


CURRENT = current(
    "x, w",
    """
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in nl.affine_range(2):
        x_t = nl.ndarray((128, 2, 128), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(2):
            x_tile = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            w_tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x[row, k, 0:128, 0:128])
            nisa.dma_copy(dst=w_tile, src=w[k, 0:128, 0:512])
            nisa.nc_transpose(dst=turned, data=x_tile)
            nisa.tensor_copy(dst=x_t[0:128, k, 0:128], src=turned)
            nisa.nc_matmul(dst=total, stationary=x_t[0:128, k, 0:128], moving=w_tile, accumulate=k > 0)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=result)
    return out
""",
)


@pytest.mark.parametrize("accumulate", [", accumulate=k > 0", ""])
def test_parts_of_the_current_api_add_to_the_first_product(accumulate: str) -> None:
    before = CURRENT.replace(", accumulate=k > 0", accumulate)
    after = applied("split_products", before, PRODUCT_SHAPES)
    assert f"moving=w_tile_hi{accumulate})" in after and after.count("accumulate=True") == 2
    assert "data1=turned, data2=x_t_hi[0:128, k, 0:128]" in after and "x_t = " not in after
    assert 1e-7 < error(before, after, PRODUCT_SHAPES) < 1e-5


@pytest.mark.parametrize("tile", ["x_tile", "x_tile[0:64, 0:128]", "x_tile[:, 0:128]"])
def test_parts_of_half_the_partitions_are_stacked_in_the_current_api(tile: str) -> None:
    before = current(
        "x, w",
        f"""
    out = nl.ndarray((2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    w_tile = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=w_tile, src=w[0:64, 0:512])
    for row in nl.affine_range(2):
        x_tile = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst={tile}, src=x[row, 0:64, 0:128])
        nisa.nc_matmul(dst=total, stationary={tile}, moving=w_tile[0:64, nl.ds(0, 512)])
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[row, 0:128, 0:512], src=result)
    return out
""",
    )
    stacked, three = (applied("split_products", before, HALF_SHAPES, variant=variant) for variant in range(2))
    assert stacked.count("nc_matmul") == 2 and "x_tile_hi = nl.ndarray((128, 128)" in stacked
    assert "moving=w_tile_hi[0:128, nl.ds(0, 512)]" in stacked and three.count("nc_matmul") == 3
    assert all(1e-7 < error(before, after, HALF_SHAPES) < 1e-5 for after in (stacked, three))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("512), dtype=nl.float32, buffer=nl.psum", "512), dtype=nl.bfloat16, buffer=nl.psum"),
        ("accumulate=k > 0", "accumulate=k > 0, perf_mode=nisa.matmul_perf_mode.double_row"),
        ("    return out", "    other = x_t\n    return out"),
        (
            "512), dtype=nl.float32, buffer=nl.sbuf)\n            nisa",
            "512), dtype=nl.bfloat16, buffer=nl.sbuf)\n            nisa",
        ),
    ],
)
def test_a_product_of_the_current_api_whose_parts_are_not_known_stays(old: str, new: str) -> None:
    assert old in CURRENT
    assert sites("split_products", CURRENT.replace(old, new), PRODUCT_SHAPES) == []


SCAN = legacy(
    "x, y, a",
    """
    out = nl.ndarray((2, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((2, nl.par_dim(128), 4096), dtype=nl.float32)
    for block in nl.affine_range(2):
        x_tile = nl.load(x[block, 0:128, 0:4096])
        factor = nl.load(a[block, 0:128, 0:1])
        decay = nisa.activation(op=nl.exp, data=x_tile, scale=factor)
        y_row = nl.load(y[0:1, 0:4096])
        y_tile = y_row.broadcast_to((128, 4096))
        state = nisa.tensor_tensor_scan(decay, y_tile, initial=0.5, op0=np.multiply, op1=np.add)
        product = nisa.tensor_tensor(state, x_tile, op=nl.multiply)
        total[block, 0:128, 0:4096] += product
    for block in nl.affine_range(2):
        nl.store(out[block, 0:128, 0:4096], value=total[block, 0:128, 0:4096])
    return out
""",
)
SCAN_SHAPES = [(2, 128, 4096), (1, 4096), (2, 128, 1)]


def test_a_scan_goes_on_from_piece_to_piece() -> None:
    inputs = [one * np.float32(0.05) for one in arrays(*SCAN_SHAPES)]
    for variant in (0, 1):
        after = applied("tile_columns", SCAN, SCAN_SHAPES, variant=variant)
        assert "sequential_range(" in after and "initial=last_column" in after
        assert after.index("factor = ") < after.index("sequential_range(")
        assert_same(SCAN, after, *inputs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nisa.tensor_tensor(state, x_tile, op=nl.multiply)", "nl.softmax(state)"),
        ("x[block, 0:128, 0:4096])", "x[block, 0:128, 0:4096], mask=nl.arange(128)[:, None] < 100)"),
        ("initial=0.5", "initial=factor"),
        ("    return out", "    nl.store(out[0, 0:128, 0:4096], value=state)\n    return out"),
        ("op=nl.multiply)\n", "op=nl.multiply)\n        peak = nl.max(product, axis=[1])\n"),
    ],
)
def test_work_that_does_not_go_column_by_column_is_not_cut(old: str, new: str) -> None:
    assert old in SCAN
    assert sites("tile_columns", SCAN.replace(old, new), SCAN_SHAPES) == []


def test_products_without_a_common_operand_are_split_alone_too() -> None:
    second = HALF.split("buffer=nl.shared_hbm)\n", 1)[1].replace("total", "more").replace("_tile", "_half")
    second = second.replace("x[row", "y[row").replace("w[", "v[").replace("out[row, p", "out[2 + row, p")
    source = PRODUCT.replace(
        "(2, 128, 512), dtype=nl.float32, buffer=nl.shared", "(4, 128, 512), dtype=nl.float32, buffer=nl.shared"
    )
    source = source.replace("kernel(x, w)", "kernel(x, w, y, v)").replace(
        "    return out\n", second.replace("    p = nl.arange(128)[:, None]\n    f = nl.arange(512)[None, :]\n", "")
    )
    shapes = [*PRODUCT_SHAPES, *HALF_SHAPES]
    found = sites("split_products", source, shapes)
    assert [(site.key, [one.name for one in site.variants]) for site in found] == [
        ("", ["three products"]),
        ("alone", ["three products"]),
        ("alone", ["stacked", "three products"]),
    ]
    first = applied("split_products", source, shapes, site=1)
    assert "w_tile_hi" in first and "w_half_hi" not in first
    assert 0 < error(source, first, shapes) < 1e-5
    other = applied("split_products", source, shapes, site=2)
    assert "w_tile_hi" not in other and "w_half_hi" in other
    assert 0 < error(source, other, shapes) < 1e-5


@pytest.mark.parametrize("tile", ["dtype=x.dtype", "dtype=nl.float32"])
@pytest.mark.parametrize(("dtype", "offered"), [("float32", True), ("bfloat16", False)])
def test_only_operands_of_float32_are_split(dtype: str, offered: bool, tile: str) -> None:
    source = PRODUCT.replace("128), dtype=nl.float32, name", f"128), {tile}, name")
    kernel = KernelModule(source, "nki_legacy", PRODUCT_SHAPES, (dtype, "float32"))
    found = rule_named("split_products").sites(kernel, None)
    assert bool(found) is (offered or tile == "dtype=nl.float32")


def test_a_loaded_operand_has_the_dtype_of_its_tensor() -> None:
    source = PRODUCT.replace(
        "    w_tile = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)\n", ""
    )
    source = source.replace("w_tile[k, p, f] = nl.load(w[k, p, f])", "pass")
    source = source.replace("            total[row", "            w_tile = nl.load(w[k, p, f])\n            total[row")
    source = source.replace("w_tile[k, p, f])", "w_tile[p, f])")
    kernel = KernelModule(source, "nki_legacy", PRODUCT_SHAPES, ("float32", "bfloat16"))
    (refused,) = rule_named("split_products").refusals(kernel)
    assert refused.precondition.endswith("w_tile is bfloat16")
    assert sites("split_products", source, PRODUCT_SHAPES)


ADDED = legacy(
    "x, y",
    """
    out = nl.ndarray((2, 128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(2048)[None, :]
    total = nl.zeros((nl.par_dim(128), 4096), dtype=nl.float32, buffer=nl.sbuf)
    for step in nl.affine_range(3):
        for half in nl.affine_range(2):
            x_tile = nl.load(x[step, 0:128, 2048 * half:2048 * half + 2048])
            y_tile = nl.load(y[p, f])
            product = nisa.tensor_tensor(x_tile, y_tile, op=nl.multiply)
            total[p, 2048 * half + f] += product
    for half in nl.affine_range(2):
        nl.store(out[half, p, f], value=total[p, 2048 * half + f])
    return out
""",
)
ADDED_SHAPES = [(3, 128, 4096), (128, 2048)]


def test_the_columns_of_a_wider_sum_are_taken_by_pieces_from_where_they_begin() -> None:
    (site,) = sites("tile_columns", ADDED, ADDED_SHAPES)
    assert [one.name for one in site.variants] == ["1024 columns", "512 columns"]
    after = applied("tile_columns", ADDED, ADDED_SHAPES)
    assert "total[p, 2048 * half + 1024 * half_piece + nl.arange(1024)[None, :]] += product" in after
    assert "2048 * half + 1024 * half_piece:2048 * half + 1024 * half_piece + 1024" in after
    assert_same(ADDED, after, *arrays(*ADDED_SHAPES))


def test_an_operand_that_is_broadcast_in_place_is_broadcast_by_pieces() -> None:
    source = ADDED.replace("nl.load(y[p, f])", "nl.load(y[nl.arange(1)[:, None], f])")
    source = source.replace("(x_tile, y_tile,", "(x_tile, y_tile.broadcast_to((128, 2048)),")
    shapes = [ADDED_SHAPES[0], (1, 2048)]
    after = applied("tile_columns", source, shapes)
    assert "y_tile.broadcast_to((128, 1024))" in after
    assert_same(source, after, *arrays(*shapes))


@pytest.mark.parametrize(
    "operand", ["nl.softmax(y_tile)", "nl.max(y_tile, axis=[1])", "y_tile.broadcast_to((128, 4096))"]
)
def test_an_operand_that_is_computed_in_place_is_not_cut(operand: str) -> None:
    source = ADDED.replace("(x_tile, y_tile,", f"(x_tile, {operand},")
    assert source != ADDED
    assert sites("tile_columns", source, ADDED_SHAPES) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total[p, 2048 * half + f] += product", "total[p, 2048 * half + f] = nl.multiply(product, total[p, f])"),
        ("total[p, 2048 * half + f] += product", "total[p, 2048 * half + f] = nl.multiply(product, total[p, 7])"),
        (
            "        for half in nl.affine_range(2):",
            "        for half in nl.affine_range(2):\n            g = 2048 * half + f",
        ),
    ],
)
def test_a_tile_that_is_read_at_other_columns_than_it_is_written_at_is_not_cut(old: str, new: str) -> None:
    changed = ADDED.replace(old, new, 1)
    if "g =" in new:
        changed = changed.replace("total[p, 2048 * half + f] +=", "total[p, g] +=")
    assert changed != ADDED
    assert sites("tile_columns", changed, ADDED_SHAPES) == []


def test_a_statement_on_two_tiles_can_go_to_gpsimd_and_one_with_a_number_to_the_scalar_engine() -> None:
    source = legacy(
        "x, y",
        """
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    x_tile = nl.load(x[0:128, 0:512])
    y_tile = nl.load(y[0:128, 0:512])
    product = nl.multiply(x_tile, y_tile)
    result = nisa.tensor_scalar(data=product, op0=nl.add, operand0=1.0)
    nl.store(out[0:128, 0:512], value=result)
    return out
""",
    )
    shapes = [(128, 512), (128, 512)]
    found = sites("place_engine", source, shapes)
    assert [site.variants[0].name for site in found] == ["gpsimd", "gpsimd"]
    on_gpsimd = applied("place_engine", source, shapes)
    on_scalar = applied("place_engine", source, shapes, site=1, variant=1)
    assert "engine=nisa.gpsimd_engine" in on_gpsimd and "operand0=1.0, engine=nisa.scalar_engine" in on_scalar
    assert_same(source, on_gpsimd, *arrays(*shapes))


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
