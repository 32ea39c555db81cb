"""Kernels of neuronxcc.nki rewritten for the current API, compared with the originals on data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest

from acceld.nki.entry import find_entry
from acceld.nki.frontend.tracing import Argument, TensorSpec, trace
from acceld.nki.port.comparison import Agreement, compare
from acceld.nki.port.facts import Facts, observe
from acceld.nki.port.rewriting import Ported, rewrite
from acceld.nki.verify.verifier import verify
from acceld.workloads import ArraySpec
from acceld.workloads.discovery import find_workloads, workload

PRELUDE = """\
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.language import par_dim

"""
SMALL = ("mamba", "rmsnorm_bf16", "add_rmsnorm_matmul", "conv2d_maxpool_small")
QUICK = ("add_rmsnorm_matmul", "conv2d_maxpool_small")
"""Workloads whose baselines are compared on data in seconds."""


def ported(body: str, arguments: Sequence[Argument], entry: str | None = None) -> Ported:
    source = PRELUDE + textwrap.dedent(body)
    facts = observe(source, arguments, entry=entry, chip="trn2")
    return rewrite(source, find_entry(source, entry), Facts.decode(facts.encode()))


def agreement(body: str, *arguments: Argument, chip: str = "trn2") -> tuple[Agreement, Ported]:
    made = ported(body, arguments)
    assert made.findings == ()
    original = trace(PRELUDE + textwrap.dedent(body), arguments, chip="trn2")
    port = trace(made.text, arguments, api="nki", chip=chip)
    assert verify(port) == ()
    return compare(original, port), made


def test_a_tensor_tensor_that_repeats_a_column_becomes_a_tensor_scalar() -> None:
    body = """
    @nki.jit
    def kernel(x, b):
        out = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x)
        column = nl.ndarray((128, 1, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(src=b, dst=column)
        both = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.sbuf)
        both[:, 0:2, :] = nisa.tensor_tensor(t[:, 0:2, :], column, op=nl.add)
        both[:, 2:4, :] = nisa.tensor_tensor(column, t[:, 2:4, :], op=nl.subtract)
        nl.store(out, both)
        return out
    """
    found, made = agreement(body, TensorSpec((128, 4, 8), "float32"), TensorSpec((128, 1, 1), "float32"))
    assert found.rel_l2 == 0.0
    assert made.text.count("nisa.tensor_scalar(") == 2 and "tensor_tensor" not in made.text


def test_block_dimensions_become_tiles_of_their_loops_and_free_axes() -> None:
    body = '''
    @nki.jit
    def kernel(x):
        """Doubles and adds."""
        out = nl.ndarray((512, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        kept = nl.ndarray((2, 2, par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                # one tile a block
                kept[i, j, nl.arange(128)[:, None], nl.arange(256)[None, :]] = nl.load(
                    x[256 * i + 128 * j + nl.arange(128)[:, None], nl.arange(256)[None, :]]
                )  # from HBM
            for k in nl.affine_range(2):
                nl.store(
                    out[256 * i + 128 * k + nl.arange(128)[:, None], nl.arange(256)[None, :]],
                    value=nl.add(kept[i, k, nl.arange(128)[:, None], nl.arange(256)[None, :]], 1.0),
                )
        return out
    '''
    found, made = agreement(body, TensorSpec((512, 256), "float32"))
    assert found.rel_l2 == 0
    assert "nl.ndarray((128, 2, 256)" in made.text, "the inner block stays on the free axis, the outer is the loop's"
    assert "# one tile a block" in made.text and "# from HBM" in made.text
    assert "neuronxcc" not in made.text and "par_dim" not in made.text and "arange" not in made.text


def test_masks_become_shorter_slices() -> None:
    body = """
    @nki.jit
    def kernel(x, n=300):
        out = nl.ndarray((300, 200), dtype=nl.float32, buffer=nl.shared_hbm)
        rows, columns = nl.mgrid[0:128, 0:200]
        for i in nl.affine_range(3):
            inside = i * 128 + rows < n
            tile = nl.load(x[i * 128 + rows, columns], mask=inside)
            tile = nl.exp(tile, mask=inside)
            nl.store(out[i * 128 + rows, columns], tile, mask=inside)
        return out
    """
    found, made = agreement(body, TensorSpec((300, 200), "float32"))
    assert found.rel_l2 == 0
    assert "min(128," in made.text and "mask" not in made.text


def test_products_accumulate_and_loop_reductions_are_written_out() -> None:
    body = """
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        parts = nl.ndarray((4, par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        whole = nl.ndarray((par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(4):
            left = nl.load(a[128 * k : 128 * k + 128, :])
            right = nl.load(b[nl.ds(128 * k, 128), :])
            total += nisa.nc_matmul(left, right)
            parts[k, :, :] = nisa.tensor_reduce(np.add, data=right, axis=[1], keepdims=True)
            whole[nl.arange(128)[:, None], 0] = nl.loop_reduce(parts[k], op=np.add, loop_indices=[k])
        nl.store(out, value=nl.copy(total) * whole - 2)
        return out
    """
    found, _ = agreement(body, TensorSpec((512, 128), "float32"), TensorSpec((512, 512), "float32"))
    assert found.rel_l2 == 0


def test_divisions_become_products_with_reciprocals() -> None:
    body = """
    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        a = nl.load(x)
        b = nl.add(nl.square(nl.load(y)), 1.0)
        c = nl.divide(a, b)
        d = nl.divide(c, nl.sum(b, axis=[1], keepdims=True))
        e = nl.add(3.0 / b, nl.mean(b, axis=[1]))
        f = d / 7.0
        g = nisa.tensor_scalar(b, np.divide, 2.0, reverse0=True)
        h = nisa.tensor_tensor(g, b, op=np.divide)
        h /= 2.0
        k = nl.floor(nl.multiply(h, 10.0))
        nl.store(out, nl.add(nl.add(nl.add(nl.add(c, d), e), nl.add(f, h)), k))
        return out
    """
    found, made = agreement(body, TensorSpec((128, 64), "float32"), TensorSpec((128, 64), "float32"))
    assert found.agrees
    assert "divide" not in made.text


def test_a_remainder_is_listed_with_what_to_write() -> None:
    body = """
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.mod(nl.load(x), 3.0))
        return out
    """
    (finding,) = ported(body, (TensorSpec((128, 64), "float32"),)).findings
    assert "no engine computes" in str(finding) and "reciprocal" in str(finding)


def test_what_a_helper_computes_is_ported_with_the_kernel() -> None:
    body = """
    def scaled(tile, factor):
        return nl.multiply(tile, factor)

    def never(tile):
        return nl.add(tile, 1)

    @nki.jit
    def kernel(x, wide=False):
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        if wide:
            tile = nl.load(x[0:128, 0:128])
        else:
            tile = nl.load(x)
        nl.store(out, scaled(tile, 3.0))
        return out
    """
    found, made = agreement(body, TensorSpec((128, 64), "float32"))
    assert found.rel_l2 == 0
    assert "def never" not in made.text
    assert 'assert False, "not ported' in made.text
    assert len(made.notes) == 2


def test_positions_become_patterns_and_overlapping_windows_access_patterns() -> None:
    body = """
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 30), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        p, w, k = nl.mgrid[0:128, 0:30, 0:3]
        windows = nl.max(tile[p, w + k], axis=[2])
        i, j = nl.mgrid[0:128, 0:30]
        kept = nisa.affine_select(pred=(i >= j), on_true_tile=windows, on_false_value=0.0)
        count = nisa.iota(nl.arange(30)[None, :] + nl.arange(128)[:, None], dtype=nl.float32)
        nl.store(out[i, j], nl.add(kept, count))
        return out
    """
    found, made = agreement(body, TensorSpec((128, 32), "float32"))
    assert found.rel_l2 == 0
    assert ".ap(" in made.text and "channel_multiplier" in made.text


def test_a_mask_over_two_axes_together_is_listed_with_its_line_and_what_to_write() -> None:
    body = """
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:128, 0:64]
        tile = nl.load(x[i, j], mask=(i + j < 100))
        nl.store(out[i, j], tile, mask=(i + j < 100))
        return out
    """
    made = ported(body, [TensorSpec((128, 64), "float32")])
    lines = (PRELUDE + textwrap.dedent(body)).splitlines()
    assert [lines[finding.line - 1].split("(")[0].strip() for finding in made.findings] == [
        "tile = nl.load",
        "nl.store",
    ]
    assert all(finding.instead for finding in made.findings)


def arguments_of(name: str) -> list[Argument]:
    return [
        TensorSpec(one.shape, one.dtype) if isinstance(one, ArraySpec) else one
        for one in workload(name).kernel_arguments()
    ]


def port_of(name: str) -> tuple[str, Ported]:
    found = workload(name)
    text = found.baselines["nki_legacy"].read_text(encoding="utf-8")
    facts = observe(text, arguments_of(name), entry=found.entry, grid=found.grid, chip="trn2")
    return text, rewrite(text, find_entry(text, found.entry), facts)


LEGACY = sorted(name for name in find_workloads() if "nki_legacy" in workload(name).baselines)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LEGACY]
)
def test_every_legacy_baseline_is_ported_whole_and_legal(name: str) -> None:
    text, made = port_of(name)
    found = workload(name)
    assert made.findings == ()
    port = trace(made.text, arguments_of(name), api="nki", chip="trn2", entry=found.entry, grid=found.grid)
    assert verify(port) == ()
    if name in SMALL:
        original = trace(text, arguments_of(name), chip="trn2", entry=found.entry, grid=found.grid)
        assert compare(original, port).agrees
