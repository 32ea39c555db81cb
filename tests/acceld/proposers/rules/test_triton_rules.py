"""Rules for Triton: where they apply, the source they write, and where they must refuse."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from acceld.devices.cuda.rules import MODULES
from acceld.errors import RuleRefused
from acceld.nki.source.launches import Launch
from acceld.proposers.rules import all_rules
from acceld.proposers.rules.proposer import rewrite, suggestions
from acceld.proposers.rules.records import Site
from acceld.workloads import find_workloads, workload
from tests.properties import one_in

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"
GEMM = workload("gemm_n28672_k4096").baselines["triton"].read_text()
ROW = workload("rmsnorm_h128").baselines["triton"].read_text()
SUM = workload("fused_add_rmsnorm_h7168").baselines["triton"].read_text()
DECODE = workload("gqa_paged_decode_h32_kv4_d128").baselines["triton"].read_text()
PREFILL = workload("gqa_paged_prefill_causal_h32_kv4_d128").baselines["triton"].read_text()
TWO = (Path(__file__).parents[3] / "triton" / "two_launches.py").read_text()


def sites(text: str, rule: str) -> list[Site]:
    return [one for one in suggestions(text, Launch("triton")) if one.rule == rule]


def first(text: str, rule: str, variant: int = 0, key: str = "") -> str:
    site = next(site for site in sites(text, rule) if site.key.startswith(key))
    changed = rewrite(text, Launch("triton"), site, site.variants[variant])
    ast.parse(changed)
    return changed


def test_every_rule_of_the_family_has_a_reason_a_source_and_its_api() -> None:
    rules = [rule for rule in all_rules() if "triton" in rule.apis]
    assert len(rules) == len(MODULES) == len({rule.name for rule in rules})
    for rule in rules:
        assert rule.reason and rule.source and rule.apis == {"triton"}


@pytest.mark.parametrize(
    "name",
    one_in(3, sorted((name for name, one in find_workloads().items() if "triton" in one.baselines), reverse=True)),
)
def test_every_variant_of_every_site_of_a_baseline_is_python(name: str) -> None:
    text = workload(name).baselines["triton"].read_text()
    found = suggestions(text, Launch("triton"))
    assert len({one.rule for one in found}) >= 3
    for one in found:
        assert one.variants and one.precondition and one.plan
        for variant in one.variants:
            changed = rewrite(text, Launch("triton"), one, variant)
            assert changed != text
            ast.parse(changed)


def test_a_block_size_changes_with_the_grid_that_follows_it() -> None:
    changed = first(GEMM, "block_sizes", key="BLOCK_M")
    assert "triton.cdiv(m_size, 128), triton.cdiv(n_size, 64)" in changed and "BLOCK_M=128" in changed
    tiles = first(GEMM, "block_sizes", 1, key="tiles")
    assert "triton.cdiv(m_size, 128), triton.cdiv(n_size, 256)" in tiles
    assert "BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_warps=8" in tiles


def test_a_block_size_given_by_name_changes_where_it_is_bound() -> None:
    named = GEMM.replace("    grid = ", "    size = 64\n    grid = ").replace("BLOCK_M=64", "BLOCK_M=size")
    changed = first(named.replace("cdiv(m_size, 64)", "cdiv(m_size, size)"), "block_sizes", key="BLOCK_M")
    assert "size = 128" in changed and "cdiv(m_size, size)" in changed and "BLOCK_M=size" in changed


@pytest.mark.parametrize(
    ("change", "key"),
    [
        # a load of the range without a mask
        (("mask=(n[None, :] < n_size) & (k[:, None] < k_size), other=0.0", ""), "BLOCK_N"),
        # a mask that does not know the range
        (("(m[:, None] < m_size) & (k[None, :] < k_size)", "(k[None, :] < k_size)"), "BLOCK_M"),
        # a grid that does not say how it follows
        (("triton.cdiv(m_size, 64)", "(m_size + 63) // 64"), "BLOCK_M"),
        # a size that is not written out
        (("BLOCK_M=64", "BLOCK_M=min(64, m_size)"), "BLOCK_M"),
        # a name bound twice
        (("BLOCK_M=64", "BLOCK_M=size"), "BLOCK_M"),
    ],
)
def test_block_sizes_that_can_not_be_proven_stay(change: tuple[str, str], key: str) -> None:
    text = GEMM.replace(*change).replace("    grid = ", "    size = 64\n    size = 32\n    grid = ")
    assert text != GEMM
    assert not [site for site in sites(text, "block_sizes") if site.key.startswith((key, "tiles"))]


def test_launch_options_are_changed_or_added() -> None:
    assert "num_warps=8" in first(GEMM, "launch_options", key="num_warps")
    assert "num_warps=4, num_stages=4)" in first(GEMM, "launch_options", key="num_stages")
    assert not [site for site in sites(ROW, "launch_options") if site.key.startswith("num_stages")], "no loop loads"


def test_stages_need_a_loop_that_loads() -> None:
    text = """import torch
import triton
import triton.language as tl


@triton.jit
def fill(out, BLOCK: tl.constexpr):
    for step in range(4):
        offsets = step * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.zeros((BLOCK,), tl.float32))


def run(x):
    out = torch.empty_like(x)
    fill[(1,)](out, BLOCK=128)
    return out
"""
    keys = {site.key for site in sites(text, "launch_options")}
    assert keys == {"num_warps/0"}, "a loop that only stores has nothing to load ahead"
    loading = text.replace("tl.zeros((BLOCK,), tl.float32)", "tl.load(out + offsets)")
    assert "num_stages/0" in {site.key for site in sites(loading, "launch_options")}


def test_an_order_of_programs_is_a_permutation(tmp_path: Path) -> None:
    lines = [line.strip() for line in first(GEMM, "grid_order").splitlines()]
    start = lines.index("order = tile_m + tile_n * tl.num_programs(0)")
    body = "\n    ".join(lines[start : start + 6]).replace("tl.minimum", "min")
    body = body.replace("tl.num_programs(0)", "x").replace("tl.num_programs(1)", "y")
    (tmp_path / "order.py").write_text(f"def place(tile_m, tile_n, x, y):\n    {body}\n    return tile_m, tile_n\n")
    place = runpy.run_path(str(tmp_path / "order.py"))["place"]
    for x, y in ((5, 7), (16, 3), (1, 9), (8, 8)):
        everywhere = {(m, n) for m in range(x) for n in range(y)}
        assert {place(m, n, x, y) for m, n in everywhere} == everywhere


@pytest.mark.parametrize(
    "change",
    [
        ("    m = tile_m * BLOCK_M", "    again = tl.program_id(0)\n    m = tile_m * BLOCK_M"),
        ("    m = tile_m * BLOCK_M", "    across = tl.num_programs(1)\n    m = tile_m * BLOCK_M"),
        ("grid = (triton.cdiv(m_size, 64), triton.cdiv(n_size, 64))", "grid = (triton.cdiv(m_size, 64), 1, 2)"),
    ],
)
def test_an_order_is_left_alone_where_numbers_mean_more(change: tuple[str, str]) -> None:
    assert sites(GEMM, "grid_order") and not sites(GEMM.replace(*change), "grid_order")


def test_rows_become_a_second_axis_with_a_mask_over_them() -> None:
    changed = first(ROW, "rows_per_program", 2)
    assert "row = (row_tile * ROWS + tl.arange(0, ROWS))[:, None]" in changed
    assert "column = tl.arange(0, BLOCK)[None, :]" in changed and "axis=1, keep_dims=True" in changed
    assert changed.count("& (row < row_count)") == 2, "the load and the store of a row; not the weights"
    assert "rmsnorm[(triton.cdiv(rows, 8),)]" in changed and "row_count=rows, ROWS=8" in changed


@pytest.mark.parametrize(
    "change",
    [
        ("tl.sum(value * value, axis=0)", "tl.sum(tl.cumsum(value, axis=0), axis=0)"),
        ("    inside = column < width", "    inside = column < width\n    if row > 3:\n        return"),
        ("tl.store(out + row * width + column", "tl.store(out + column"),
        ("value * scale * gain", "value[None, :] * scale * gain"),
        ("rmsnorm[(rows,)]", "rmsnorm[(rows, 2)]"),
    ],
)
def test_rows_that_may_meet_stay_alone(change: tuple[str, str]) -> None:
    assert change[0] in ROW and not sites(ROW.replace(*change), "rows_per_program")


def test_a_row_is_read_once() -> None:
    changed = first(SUM, "keep_row")
    assert "for first" not in changed and changed.count("tl.load(x +") == 1 and changed.count("tl.load(residual +") == 1
    assert "BLOCK=triton.next_power_of_2(width), num_warps=8" in changed


@pytest.mark.parametrize(
    "change",
    [
        # stored to what is loaded from
        (
            "add_rmsnorm[(rows,)](hidden_states, residual, weight, output,",
            "add_rmsnorm[(rows,)](output, residual, weight, output,",
        ),
        # another length in the second loop
        (
            "    for first in range(0, width, BLOCK):\n        column = first + tl.arange(0, BLOCK)\n        inside = column < width\n        value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)\n        value += tl.load(residual + row * width + column, mask=inside, other=0.0).to(tl.float32)\n        gain",
            "    for first in range(0, eps, BLOCK):\n        column = first + tl.arange(0, BLOCK)\n        inside = column < width\n        value = 0.0\n        gain",
        ),
        # a load that is not masked
        ("weight + column, mask=inside, other=0.0", "weight + column"),
    ],
)
def test_a_row_that_can_not_be_kept_stays_in_pieces(change: tuple[str, str]) -> None:
    assert change[0] in SUM and not sites(SUM.replace(*change), "keep_row")


def test_what_is_read_again_after_a_change_is_loaded_again() -> None:
    text = SUM.replace(
        "        squares += value * value\n", "        squares += value * value\n        value = value * 2\n"
    )
    changed = first(text, "keep_row")
    assert changed.count("tl.load(x +") == 2


def test_attention_is_split_into_parts_that_are_joined() -> None:
    changed = first(DECODE, "split_reduction", 1)
    assert "def decode_parts(" in changed and "def decode_join(" in changed and "def decode(" not in changed
    assert (
        "decode_parts[(batch, kv_heads, 8)](partial" in changed and "decode_join[(batch, kv_heads,)](partial" in changed
    )
    assert changed.count('float("-inf"), dtype') == 1, "only the join starts at minus infinity"
    assert not sites(changed, "split_reduction"), "once"
    assert sites(PREFILL, "split_reduction"), "the loop that looks for a sequence is none of it"


def test_a_product_is_split_along_k() -> None:
    changed = first(GEMM, "split_reduction")
    assert "acc += tl.load(mine" in changed and "SPLITS=4" in changed


@pytest.mark.parametrize(
    "change",
    [
        # the running total is read by something else
        ("        peak = new_peak\n", "        other = total * 2\n        peak = new_peak\n"),
        # the sum is not scaled with the peak
        ("total = total * shrink + tl.sum", "total = total + tl.sum"),
        # the accumulator starts elsewhere
        ("acc = tl.zeros((ROWS, DIM), dtype=tl.float32)", "acc = tl.full((ROWS, DIM), 1.0, dtype=tl.float32)"),
        # the loop stores
        ("        peak = new_peak\n", "        tl.store(lse, 0.0)\n        peak = new_peak\n"),
        # the step is no constant
        ("range(start, end, BLOCK)", "range(start, end, 32)"),
    ],
)
def test_a_loop_that_carries_anything_else_is_not_split(change: tuple[str, str]) -> None:
    assert change[0] in DECODE and not sites(DECODE.replace(*change), "split_reduction")


def test_a_persistent_kernel_takes_tile_after_tile() -> None:
    changed = first(GEMM, "persistent")
    assert "for tile in range(tl.program_id(0), tile_count, tl.num_programs(0)):" in changed
    assert "tile_m = tile % tiles_across" in changed and "tile_n = tile // tiles_across" in changed
    assert "matmul[(min((triton.cdiv(m_size, 64)) * (triton.cdiv(n_size, 64)), 528),)]" in changed
    assert not sites(changed, "persistent") and not sites(PREFILL, "persistent"), "it returns early"


def test_a_source_without_launches_is_refused_with_the_reason() -> None:
    with pytest.raises(RuleRefused, match="launches no function"):
        suggestions(HEAD + "def f(x):\n    pass\n", Launch("triton"))
    with pytest.raises(RuleRefused, match="not Python"):
        suggestions("def f(:\n", Launch("triton"))


def test_a_site_of_another_source_is_refused() -> None:
    for rule in ("keep_row", "split_reduction", "rows_per_program", "grid_order", "persistent"):
        source = next(text for text in (GEMM, ROW, SUM, DECODE) if sites(text, rule))
        site = sites(source, rule)[0]
        other = next(text for text in (ROW, GEMM, PREFILL) if not sites(text, rule))
        with pytest.raises(RuleRefused):
            rewrite(other, Launch("triton"), site, site.variants[0])


def test_an_epilogue_moves_to_the_end_of_what_it_reads() -> None:
    changed = first(TWO, "fused_epilogue")
    assert "matmul_bias_relu[grid](" in changed and "def bias_relu" not in changed and "product =" not in changed
    assert "c_tile = acc.to(a.dtype.element_ty)" in changed, "rounded as in memory"
    assert "# the same for every row" in changed and "column =" not in changed and "row =" not in changed
    assert changed.count("tl.store(") == 1 and "num_warps=4" in changed and "num_warps=8" not in changed
    assert not sites(changed, "fused_epilogue")


@pytest.mark.parametrize(
    "change",
    [
        # the array between is returned, read by a third launch, or memory that somebody else sees
        ("return C", "return product"),
        ("product = torch.empty((m_size, n_size), dtype=A.dtype, device=A.device)", "product = A.view(m_size, n_size)"),
        ("    C = torch", "    matmul[grid](A, B, product, m_size, n_size, k_size)\n    C = torch"),
        # other programs, other tiles, other places, other masks
        ("bias_relu[grid]", "bias_relu[(triton.cdiv(m_size, 32), triton.cdiv(n_size, 16))]"),
        ("HEIGHT=32", "HEIGHT=16"),
        (
            "x + row[:, None] * columns + column[None, :], mask",
            "x + row[:, None] * columns + (column ^ 1)[None, :], mask",
        ),
        ("x + row[:, None] * columns", "x + row[:, None] * rows"),
        ("row = tl.program_id(0)", "row = tl.program_id(1)"),
        (
            "inside = (row[:, None] < rows) & (column[None, :] < columns)",
            "inside = row[:, None] + column[None, :] >= 0",
        ),
        ("C, m_size, n_size, HEIGHT", "C, m_size - 1, n_size, HEIGHT"),
        # elements meet each other
        ("tl.maximum(y, 0.0)", "(y - tl.max(y, axis=0)[None, :])"),
        ("tl.maximum(y, 0.0)", "tl.cumsum(y, axis=0)"),
        ("tl.load(bias + column,", "tl.load(bias + y.to(tl.int32),"),
        # what the first kernel still reads, or what the second one reads too, is written
        ("product, bias, C, m_size", "product, bias, A, m_size"),
        ("product, bias, C, m_size", "product, product, C, m_size"),
        # a store in a loop, an early return, a change of the host's between the two
        (
            "        acc += tl.dot(x, y)\n",
            "        acc += tl.dot(x, y)\n        tl.store(c + m[:, None] + n[None, :], acc)\n",
        ),
        ("    acc = tl.zeros", "    if m_size < 3:\n        return\n    acc = tl.zeros"),
        ("    C = torch", "    m_size = m_size - 1\n    C = torch"),
        # a type of the array that nothing in the kernel has
        (
            "product = torch.empty((m_size, n_size), dtype=A.dtype",
            "product = torch.empty((m_size, n_size), dtype=torch.int8",
        ),
    ],
)
def test_launches_that_are_not_proven_to_hand_over_stay_two(change: tuple[str, str]) -> None:
    assert change[0] in TWO and not sites(TWO.replace(*change), "fused_epilogue")


def test_an_array_between_launches_keeps_the_type_it_had() -> None:
    changed = first(
        TWO.replace(
            "product = torch.empty((m_size, n_size), dtype=A.dtype",
            "product = torch.empty((m_size, n_size), dtype=torch.float16",
        ),
        "fused_epilogue",
    )
    assert "c_tile = acc.to(tl.float16)" in changed


def test_the_two_launches_of_experts_become_one() -> None:
    text = workload("moe_fp8_ds_routing_e32_h7168_i2048").baselines["triton"].read_text()
    changed = first(text, "fused_epilogue")
    assert "gate_up_swiglu[" in changed and "gate = torch" not in changed and "up = torch" not in changed


def test_a_size_in_a_grid_that_two_launches_share_stays() -> None:
    assert {site.key for site in sites(TWO, "block_sizes")} == {"BLOCK_K/0"}
