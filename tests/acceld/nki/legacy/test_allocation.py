"""Explicit placement through ``nki.compiler``, and block dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acceld.nki.errors import LegalityError, UnsupportedCall
from acceld.nki.ir.program import Space

KERNEL = """
import neuronxcc.nki.compiler as ncc

@ncc.skip_middle_end_transformations
@ncc.enable_stack_allocator(log_level=20)
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray({shape}, dtype=x.dtype, buffer={place})
    {body}
    return out
"""
WHOLE = "t[...] = nl.load(x)\n    nl.store(out, t)"
BLOCKS = "for i in nl.affine_range(4):\n        t[i] = nl.load(x[:, nl.ds(i * 8, 8)])\n        nl.store(out[:, nl.ds(i * 8, 8)], t[i])"


def kernel(place: str, shape: str = "x.shape", body: str = WHOLE) -> str:
    return KERNEL.format(place=place, shape=shape, body=body)


def placed(program: Any) -> list[Any]:
    return [buffer.address for buffer in program.buffers if buffer.space is not Space.HBM]


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("ncc.sbuf.mod_alloc(base_addr=1024)", (0, 1024)),
        ("ncc.sbuf.mod_alloc(base_addr=64, base_partition=32)", (32, 64)),
        ("ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, 4096 + len(idx)))", (0, 4096)),
        ("ncc.sbuf.auto_alloc()", None),
        ("ncc.psum.mod_alloc(base_bank=3)", (0, 3 * 2048)),
        ("ncc.psum.alloc(lambda idx, pdim_size, fdim_size: (2, 0, 128))", (0, 2 * 2048 + 128)),
        ("ncc.psum.auto_alloc()", None),
        ("nl.psum", None),
    ],
)
def test_a_tensor_in_one_piece_has_its_address(
    run_kernel: Any, trace_kernel: Any, random: Any, place: str, address: Any
) -> None:
    x = random(64, 32)
    assert address in placed(trace_kernel(kernel(place), x))
    np.testing.assert_array_equal(run_kernel(kernel(place), x), x)


def test_a_directive_that_the_latency_ignores_is_noted_with_its_line(trace_kernel: Any, random: Any) -> None:
    source, x = kernel("nl.sbuf"), random(64, 32)
    program = trace_kernel(source, x)
    noted = [one.line for one in program.notices if "skip_middle_end" in one.text]
    load = next(instruction.line for instruction, _ in program.walk())
    lines = source.splitlines()
    between = lines.index("    t[...] = nl.load(x)") - lines.index("@ncc.skip_middle_end_transformations")
    assert noted == [load - between]
    plain = trace_kernel(source.replace("@ncc.skip_middle_end_transformations\n", ""), x)
    assert not any("skip_middle_end" in one.text for one in plain.notices)


def test_blocks_that_share_places_have_no_one_address(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    source = kernel("ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,))", "(4, par_dim(64), 8)", BLOCKS)
    x = random(64, 32)
    assert placed(trace_kernel(source, x)) == [None]
    np.testing.assert_array_equal(run_kernel(source, x), x)


@pytest.mark.parametrize(
    ("place", "shape", "rule"),
    [
        ("ncc.sbuf.mod_alloc(base_addr=196600)", "x.shape", "allocation"),
        ("ncc.sbuf.mod_alloc(base_addr=0, base_partition=96)", "x.shape", "allocation"),
        ("ncc.sbuf.mod_alloc(base_addr=100000, num_free_tiles=(8,))", "(8, par_dim(64), 4096)", "allocation"),
        ("ncc.psum.mod_alloc(base_bank=8)", "x.shape", "allocation"),
        ("ncc.psum.mod_alloc(base_bank=0, base_addr=2000)", "x.shape", "psum_bank"),
    ],
)
def test_a_place_outside_of_the_chip_is_refused(
    trace_kernel: Any, random: Any, place: str, shape: str, rule: str
) -> None:
    with pytest.raises(LegalityError) as caught:
        trace_kernel(kernel(place, shape), random(64, 32))
    assert (caught.value.rule, caught.value.line) == (rule, 15)


def test_tiles_across_partitions_are_unsupported_by_name(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(UnsupportedCall, match="across partitions"):
        trace_kernel(kernel("ncc.sbuf.mod_alloc(base_addr=0, num_par_tiles=(2,))"), random(64, 32))


def test_block_dimensions_are_refused_by_option(trace_kernel: Any, random: Any, strict_options: Any) -> None:
    source = kernel("nl.sbuf", "(4, par_dim(64), 8)", BLOCKS)
    assert trace_kernel(source, random(64, 32))
    with pytest.raises(LegalityError) as caught:
        trace_kernel(source, random(64, 32), options=strict_options)
    assert caught.value.rule == "block_dim"


def test_zeros_with_block_dimensions_are_one_memset_a_block(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    source = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.zeros((3, 2, par_dim(16), 8), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        for j in nl.affine_range(2):
            nl.store(out[i, j], t[i, j])
    return out
"""
    x = random(3, 2, 16, 8)
    assert not run_kernel(source, x).any()
    memset, loops = next((i, loops) for i, loops in trace_kernel(source, x).walk() if i.op == "memset")
    assert memset.dsts[0].shape == (16, 8)
    assert [loop.trips for loop in loops] == [3, 2]
