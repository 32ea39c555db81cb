"""Limits that differ from chip to chip, where front ends and rules must agree on them."""

from __future__ import annotations

import pytest

from acceld.chips import CHIPS
from acceld.nki.errors import LegalityError
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.programs import Kernel, at

PLACED = """
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=200 * 1024))
    t[...] = nl.load(x)
    nl.store(out, t)
    return out
"""
SIZES = """
import nki
import nki.language as nl

@nki.jit
def kernel(x):
    sizes = nl.tile_size
    n = (sizes.{name}) // {unit}
    out = nl.ndarray((1, n), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
    nl.store(out[0:1, 0:1], tile)
    return out
"""


def test_an_explicit_place_reaches_as_far_as_the_chips_sbuf() -> None:
    arguments = [TensorSpec((128, 8), "float32")]
    assert verify(trace(PLACED, arguments, chip="trn2")) == ()
    with pytest.raises(LegalityError, match="out of bound") as refused:
        trace(PLACED, arguments, chip="trn1")
    assert refused.value.rule == "allocation"


@pytest.mark.parametrize(
    ("name", "chip", "size"),
    [
        ("sbuf_size_bytes", "trn2", 28 * 2**20),
        ("sbuf_size_bytes", "trn3", 32 * 2**20),
        ("sbuf_fmax_bytes", "trn2", 224 * 1024),
        ("total_available_sbuf_size", "trn3", 256 * 1024),
        ("psum_bank_fmax_bytes", "trn3", 2048),
        ("pmax", "trn2", 128),
    ],
)
def test_tile_sizes_are_the_chips(name: str, chip: str, size: int) -> None:
    source = SIZES.format(name=name, unit=1 if size < 1024 else 1024)
    program = trace(source, [TensorSpec((1, 1), "float32")], api="nki", chip=chip)
    assert program.buffers[program.outputs[0]].shape == (1, size if size < 1024 else size // 1024)


def product(chip: str, columns: int, address: tuple[int, int] | None = None) -> list[str]:
    kernel = Kernel("nki", chip)
    left, right = kernel.loaded((128, 128)), kernel.loaded((128, columns))
    result, out = kernel.psum((128, columns), address=address), kernel.output((128, columns))
    kernel.op("matmul", at(result), (at(left), at(right)), accumulate="no")
    tile = kernel.sbuf((128, columns))
    kernel.op("copy", at(tile), at(result))
    kernel.op("dma_copy", at(out), at(tile))
    return sorted({finding.rule for finding in verify(kernel.finish())})


def test_a_product_fills_one_bank_and_from_neuroncore_v4_on_all_of_psum() -> None:
    assert product("trn2", 512) == []
    assert product("trn2", 513) == ["matmul_shape", "psum_bank"]
    assert product("trn3", 4096) == []
    assert product("trn3", 4097) == ["matmul_shape", "psum_bank", "psum_capacity"]


@pytest.mark.parametrize("chip", ["trn2", "trn3"])
def test_psum_banks_hold_2_kib_a_partition_on_every_chip(chip: str) -> None:
    assert CHIPS[chip].psum_bank_bytes * CHIPS[chip].psum_banks == 16 * 1024
    assert product(chip, 256, address=(0, 2048)) == []
    assert product(chip, 256, address=(0, 1024)) == ["psum_bank"]


def test_hbm_is_the_chips_share_of_a_core() -> None:
    source = PLACED.replace("200 * 1024", "0")
    large = [TensorSpec((13 * 2**20, 256), "float32")]
    with pytest.raises(LegalityError, match="more than 12 GiB"):
        trace(source, large, chip="trn2")
    with pytest.raises(LegalityError, match="Allocated memory out of bound"):
        trace(source, large, chip="trn1")
