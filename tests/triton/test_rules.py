"""Each rule for Triton on the baselines: what it makes of them is still right, under Triton's interpreter."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

with pytest.MonkeyPatch.context() as patch:
    # Triton decides on import whether its own functions are interpreted.
    patch.setitem(os.environ, "TRITON_INTERPRET", "1")
    pytest.importorskip("triton")

from acceld.nki.source.launches import Launch
from acceld.proposers.rules.proposer import rewrite, suggestions
from acceld.workloads import workload

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore")]
WORKLOADS = (
    "gemm_n28672_k4096",
    "fused_add_rmsnorm_h7168",
    "rmsnorm_h128",
    "gqa_paged_decode_h32_kv4_d128",
    "mla_paged_decode_h16_ckv512_kpe64",
    "mla_paged_prefill_causal_h16_ckv512_kpe64",
)


def rewritten(text, chain):
    """``text`` after the first variant of each rule in ``chain``."""
    for rule in chain:
        site = next(one for one in suggestions(text, Launch("triton")) if one.rule == rule)
        text = rewrite(text, Launch("triton"), site, site.variants[0])
    return text


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_rule_that_applies_keeps_the_answer(name, tmp_path, monkeypatch):
    from interpreter import error_of
    from small import small_shapes

    one = workload(name)
    text, small = one.baselines["triton"].read_text(), small_shapes(name)[-1]
    seen = set()
    for site in suggestions(text, Launch("triton")):
        if site.rule in seen and site.rule != "block_sizes":
            continue
        seen.add(site.rule)
        changed = rewrite(text, Launch("triton"), site, site.variants[0])
        assert changed != text
        assert error_of(changed, small, tmp_path, monkeypatch) < 1e-6, (site.rule, site.variants[0].name)
    assert len(seen) >= 3


@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("gemm_n28672_k4096", ("block_sizes", "grid_order", "launch_options")),
        ("gemm_n28672_k4096", ("split_reduction", "block_sizes", "launch_options")),
        ("gemm_n28672_k4096", ("persistent", "block_sizes")),
        ("fused_add_rmsnorm_h7168", ("keep_row", "rows_per_program", "launch_options")),
        ("rmsnorm_h128", ("rows_per_program", "block_sizes", "persistent")),
        ("mla_paged_decode_h16_ckv512_kpe64", ("split_reduction", "block_sizes")),
        ("moe_fp8_ds_routing_e32_h7168_i2048", ("fused_epilogue", "block_sizes", "launch_options")),
    ],
)
def test_rules_compose(name, chain, tmp_path, monkeypatch):
    from interpreter import error_of
    from small import small_shapes

    one = workload(name)
    changed = rewritten(one.baselines["triton"].read_text(), chain)
    assert error_of(changed, small_shapes(name)[0], tmp_path, monkeypatch) < 1e-6


@pytest.mark.parametrize(
    ("chain", "launches"),
    [
        ((), 2),
        (("fused_epilogue",), 1),
        (("fused_epilogue", "block_sizes", "launch_options"), 1),
        (("fused_epilogue", "split_reduction"), 2),
    ],
)
def test_an_epilogue_in_the_product_computes_what_two_launches_do(chain, launches, tmp_path, monkeypatch):
    from interpreter import outputs_of

    changed = rewritten((Path(__file__).parent / "two_launches.py").read_text(), chain)
    assert changed.count("[grid](") + changed.count("[(triton.cdiv") == launches
    rng = np.random.default_rng(7)
    a, b, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((45, 70), (37, 70), (37,)))
    (found,) = outputs_of(changed, "run", [a, b, bias], tmp_path, monkeypatch)
    wanted = np.maximum(a.astype(np.float64) @ b.T + bias, 0)
    assert np.linalg.norm(found - wanted) < 1e-6 * np.linalg.norm(wanted)


@pytest.mark.parametrize("distribution", ["scaled_up", "row_scaled", "special"])
def test_split_attention_survives_extreme_scores(distribution, tmp_path, monkeypatch):
    from interpreter import error_of
    from small import small_shapes

    name = "mla_paged_prefill_causal_h16_ckv512_kpe64"
    one = workload(name)
    changed = rewritten(one.baselines["triton"].read_text(), ["split_reduction"])
    assert error_of(changed, small_shapes(name)[0], tmp_path, monkeypatch, distribution=distribution) < 1e-3
