"""No rewrite of an accepted kernel of the current API is refused, at any version: baselines, their other forms, every rule."""

from __future__ import annotations

import pytest

from acceld.nki.frontend.tracing import TensorSpec
from acceld.nki.source.launches import Launch
from acceld.nki.source.names import with_shapes_written_out
from acceld.proposers.rules.proposer import refusals as refused_places
from acceld.proposers.rules.proposer import suggestions
from acceld.workloads import find_workloads
from scripts.judged_rewrites import AS_WRITTEN, PORTED, Form, forms, judged, lowered
from tests.acceld.proposers.rules.kernels import current

WORKLOADS = find_workloads()
NAMES = sorted(name for name, one in WORKLOADS.items() if {"nki", "nki_legacy"} & one.baselines.keys())
QUICK = ("rmsnorm_bf16", "silu")
"""Workloads whose kernels are traced in a moment."""
LOWERED_ONLY = ("rmsnorm_h128", "fused_add_rmsnorm_h7168", "gemm_n28672_k4096")
"""Workloads without a kernel of NKI whose reference is lowered to a short one."""


NAMED_SHAPES = current(
    "x",
    """
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for row in range(2):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), :])
        index = nl.ndarray((128, 32), dtype=nl.uint16, buffer=nl.sbuf)
        block = nl.ndarray(index.shape, dtype=nl.uint16, buffer=nl.sbuf)
        nisa.iota(dst=block, pattern=[[16, 32]], offset=0, channel_multiplier=0)
        nisa.iota(dst=index, pattern=[[0, 32]], offset=0, channel_multiplier=1)
        nisa.tensor_scalar(dst=index, data=index, op0=nl.bitwise_and, operand0=15)
        nisa.tensor_tensor(dst=index, data1=index, data2=block, op=nl.add)
        moved = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.local_gather(dst=moved, src_buffer=tile, index=index, num_elem_per_idx=1, num_valid_indices=512)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), :], src=moved)
    return out
""",
)
ARGUMENTS_SHAPE = current(
    "x, w",
    """
    out = nl.ndarray((512, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=kept, src=w)
    for row in nl.affine_range(4):
        tile = nl.ndarray(w.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * row, 128), 0:512])
        made = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            nisa.nc_matmul(dst=made, stationary=tile[:, nl.ds(128 * k, 128)], moving=kept)
        done = nl.ndarray(w.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=done, src=made)
        nisa.dma_copy(dst=out[nl.ds(128 * row, 128), 0:512], src=done)
    return out
""",
)

NAMED_BY_LOOPS = current(
    "x",
    """
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for col in nl.affine_range(64):
        for row in range(2):
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf, name=f"n{col}_{row}")
            nisa.dma_copy(dst=tile, src=x[128 * row : 128 * row + 128, nl.ds(8 * col, 8)])
            nisa.activation(dst=tile, op=nl.silu, data=tile)
            nisa.dma_copy(dst=out[128 * row : 128 * row + 128, nl.ds(8 * col, 8)], src=tile)
    return out
""",
)


def refusals(form: Form) -> list[str]:
    """Return the words by which versions of NKI refuse a form of a kernel, or its rewrites."""
    return [f"{row.nki}: {one}" for row in judged(form) for one in (row.words, *row.refused) if one]


@pytest.mark.parametrize("name", QUICK)
def test_no_rewrite_of_a_small_baseline_is_refused(name: str) -> None:
    assert [one for form in forms(WORKLOADS[name]) for one in refusals(form)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_no_rewrite_of_a_baseline_is_refused(name: str) -> None:
    assert [one for form in forms(WORKLOADS[name]) for one in refusals(form)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *LOWERED_ONLY])
def test_no_rewrite_of_a_lowered_kernel_is_refused(name: str) -> None:
    found = list(lowered(WORKLOADS[name]))
    assert found and not any(form.absent for form in found)
    assert [one for form in found for one in refusals(form)] == []


def test_every_legacy_baseline_has_a_port() -> None:
    assert all(not form.absent for name in QUICK for form in forms(WORKLOADS[name]) if form.form == PORTED)


@pytest.mark.parametrize(
    ("text", "shapes", "rule"),
    [
        (NAMED_SHAPES, [(256, 512)], "hoist_work"),
        (ARGUMENTS_SHAPE, [(512, 512), (128, 512)], "pipeline_stages"),
        (NAMED_BY_LOOPS, [(256, 512)], "widen_tiles"),
    ],
)
def test_no_rewrite_is_refused_if_tiles_have_the_shape_of_another_or_the_name_of_a_loop(
    text: str, shapes: list[tuple[int, ...]], rule: str
) -> None:
    specs = tuple(TensorSpec(shape, "float32") for shape in shapes)
    form = Form("", AS_WRITTEN, text, "", specs, "trn2", 1, ())
    assert refusals(form) == []
    assert any(one.rule == rule for one in (*suggestions(text, form.launch), *refused_places(text, form.launch)))


def test_rules_read_tiles_of_unknown_shape() -> None:
    assert suggestions(ARGUMENTS_SHAPE, Launch("nki")) is not None


def test_extents_are_written_out_if_they_are_known_where_the_tile_is_declared() -> None:
    body = """
    shape = (128, 512)
    a = nl.ndarray(shape, nl.float32)
    b = nl.ndarray(a.shape, nl.float32)
    for i in range(2):
        c = nl.ndarray(b.shape, nl.float32)
        wide = (128, 2 * i)
        d = nl.ndarray(wide, nl.float32)
    for wide in ((128, 4), (128, 8)):
        e = nl.ndarray(wide, nl.float32)
    return c
"""
    written = with_shapes_written_out(current("x", body))
    assert written.count("nl.ndarray((128, 512), nl.float32)") == 3
    assert written.count("nl.ndarray(wide, nl.float32)") == 2, "wide has several values"
