"""Inputs that are indices, shapes other than the declared ones, and the names of flashinfer-bench."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from acceld.errors import WorkloadError
from acceld.workloads import (
    Workload,
    find_workloads,
    hidden_shapes,
    kernel_inputs,
    load_workload,
    make_inputs,
    reference_outputs,
    workload,
)

PAGED = "gqa_paged_prefill_causal_h32_kv4_d128"
TRITON = sorted(name for name, one in find_workloads().items() if one.family == "triton")

TOML = """
description = "sums of parts"
[values]
PARTS = 4
TOTAL = 40
[arguments.first]
shape = ["PARTS + 1"]
dtype = "int32"
distribution = { kind = "indptr", low = 2, high = "TOTAL // 2" }
[arguments.second]
shape = ["PARTS + 1"]
dtype = "int32"
distribution = { kind = "indptr", over = "first", high = "TOTAL" }
[arguments.pages]
shape = ["TOTAL"]
dtype = "int32"
distribution = { kind = "permutation", high = "TOTAL + 3" }
[arguments.x]
shape = ["TOTAL"]
[outputs.out]
shape = ["TOTAL"]
[distributions]
own = "declared"
scaled_up = "declared"
scaled_down = "declared"
shifted = "declared"
integers = "declared"
row_scaled = "declared"
sparse = "declared"
special = "declared"
[[hidden]]
TOTAL = 24
"""


def written(folder: Path, toml: str = TOML) -> Workload:
    (folder / "workload.toml").write_text(toml, encoding="utf-8")
    (folder / "reference.py").write_text("def forward(first, second, pages, x):\n    return x\n", encoding="utf-8")
    return load_workload(folder)


@pytest.mark.parametrize("distribution", ["own", "scaled_up", "integers"])
def test_indices_are_drawn_validly_and_no_distribution_changes_them(tmp_path: Path, distribution: str) -> None:
    first, second, pages, _ = make_inputs(written(tmp_path), 7, distribution)
    assert first.dtype == np.int32 and first[0] == 0 and first[-1] == 20 and (np.diff(first) >= 2).all()
    assert second[0] == 0 and second[-1] == 40 and (np.diff(second) >= np.diff(first)).all()
    assert len(set(pages.tolist())) == 40 and pages.min() >= 0 and pages.max() < 43
    assert np.array_equal(first, make_inputs(written(tmp_path), 7)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('high = "TOTAL // 2"', "high = 5"), "high = 5 is too low: the settings low and over ask for 4 parts with"),
        (('"TOTAL + 3"', '"TOTAL - 1"'), "has 40 elements, and there are only 39 distinct numbers below 39"),
        (('over = "first"', 'over = "pages"'), "must name an argument before"),
    ],
)
def test_indices_that_can_not_be_drawn_are_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    broken = written(tmp_path, TOML.replace(*change))
    with pytest.raises(WorkloadError, match=message):
        make_inputs(broken, 1)


def test_a_hidden_shape_is_the_same_workload_with_other_extents(tmp_path: Path) -> None:
    one = written(tmp_path)
    (other,) = hidden_shapes(one)
    assert other.argument("x").shape == (24,) and one.argument("x").shape == (40,)
    assert other.hash != one.hash and other.name == one.name
    assert reference_outputs(other, make_inputs(other, 1))[0].shape == (24,)


def test_a_hidden_shape_names_known_symbols_only(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="TOTALS"):
        written(tmp_path, TOML.replace("TOTAL = 24", "TOTALS = 24"))


@pytest.mark.parametrize("name", TRITON)
def test_a_triton_workload_names_its_public_definition_axis_by_axis(name: str) -> None:
    one = workload(name)
    public = one.definition
    assert public is not None and one.hidden and one.work is not None and one.baselines["triton"].is_file()
    extents = {a.name: a.shape for a in one.arguments if not a.is_scalar} | {o.name: o.shape for o in one.outputs}
    named = {array: tuple(public.axes[axis] for axis in axes) for array, axes in public.shapes.items()}
    assert named == extents


@pytest.mark.parametrize("name", TRITON)
def test_hidden_shapes_differ_in_free_axes_only(name: str) -> None:
    one = workload(name)
    assert one.definition is not None
    for other in hidden_shapes(one):
        assert other.definition is not None
        fixed = one.definition.axes.keys() - one.definition.free
        assert all(one.definition.axes[axis] == other.definition.axes[axis] for axis in fixed)
        assert other.definition.axes != one.definition.axes


@pytest.mark.parametrize("name", [name for name in TRITON if not name.startswith(("gemm", "moe"))])
def test_a_triton_workloads_reference_is_finite_in_its_small_shapes(name: str) -> None:
    for one in hidden_shapes(workload(name)):
        for distribution in ("own", "special", "sparse"):
            inputs = make_inputs(one, 5, distribution)
            assert len(kernel_inputs(one, inputs)) == len(one.arguments)
            assert all(np.isfinite(output).all() for output in reference_outputs(one, inputs))


def test_experts_are_chosen_by_groups_and_weighted_without_their_bias() -> None:
    values = {"SEQ": 6, "EXPERTS": 64, "LOCAL": 32, "HIDDEN": 128, "INTER": 128}
    small = load_workload(workload("moe_fp8_ds_routing_e32_h7168_i2048").folder, values)
    for distribution in ("own", "special", "sparse"):
        inputs = make_inputs(small, 5, distribution)
        (found,) = reference_outputs(small, inputs)
        logits, bias, x, x_scale, first, first_scale, second, second_scale, offset, scaling = (
            one.astype(np.float64) if isinstance(one, np.ndarray) else one for one in inputs
        )
        for token in range(6):
            score = 1 / (1 + np.exp(-logits[token]))
            group = (score + bias).reshape(8, 8)
            strong = sorted(range(8), key=lambda one: -sum(sorted(group[one])[-2:]))[:4]
            chosen = sorted((e for e in range(64) if e // 8 in strong), key=lambda e: -(score + bias)[e])[:8]
            wanted = np.zeros(128)
            for expert in (e - offset for e in chosen if offset <= e < offset + 32):
                both = first_scale[expert].repeat(128) * (first[expert] @ x[token] * x_scale[0, token])
                active = both[:128] * both[128:] / (1 + np.exp(-both[128:]))
                share = scaling * score[expert + offset] / score[chosen].sum()
                wanted += share * second_scale[expert, 0, 0] * (second[expert] @ active)
            assert np.allclose(found[token], wanted, rtol=1e-9, atol=1e-12)


def test_causal_attention_ignores_later_keys() -> None:
    small = hidden_shapes(workload(PAGED))[0]
    inputs = make_inputs(small, 11)
    before = reference_outputs(small, inputs)[0]
    position = {argument.name: number for number, argument in enumerate(small.arguments)}
    ends, pages = inputs[position["kv_indptr"]], inputs[position["kv_indices"]]
    changed = inputs[position["v_cache"]].copy()
    changed[pages[ends[1] - 1]] += 1
    inputs[position["v_cache"]] = changed
    after = reference_outputs(small, inputs)[0]
    own = slice(0, int(inputs[position["qo_indptr"]][1]))
    assert np.array_equal(before[own][:-1], after[own][:-1])
    assert not np.allclose(before[own][-1], after[own][-1])
    assert np.array_equal(before[own.stop :], after[own.stop :])
