"""Tensors in tiles and blocks, and the configuration objects of NKI 0.7."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.ir.program import Program
from acceld.nki.verify.verifier import verify

HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl
from nki.compiler import AddressRotation, CompileConfig, SpecializationConfig

@nki.jit(compile_config=CompileConfig(address_rotation=AddressRotation.DISABLE))
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
"""
BY_TILE = """
    source, target = nl.tiles(x, tile_shape=(128, 256)), nl.tiles(out, tile_shape=(128, 256))
    assert source.shape == (3, 3) and source.index_step_elements == (128, 256)
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            one = source[i, j]
            tile = nl.ndarray(one.element_shape, dtype=one.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=one.data)
            nisa.dma_copy(dst=target[i, j].data, src=tile)
    return out
"""
BY_BLOCK = """
    source, target = (nl.blocks(a, tile_shape=(128, 128), block_shape=(1, 2)) for a in (x, out))
    assert source.shape == (3, 3) and source.block_shape == (1, 2) and source[2, 2].is_remainder
    for i in range(3):
        for j in range(3):
            into, of = nl.tiles(target[i, j]), nl.tiles(source[i, j])
            for k in range(of.shape[1]):
                tile = nl.ndarray(of[0, k].element_shape, dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=of[0, k].data)
                nisa.dma_copy(dst=into[0, k].data, src=tile)
    return out
"""
ON_CHIP = """
    source, target = nl.tiles(x, tile_shape=(128, 256)), nl.tiles(out, tile_shape=(128, 256))
    held = nl.alloc_tiles(tile_shape=(128, 256), element_shape=x.shape, buffer=nl.sbuf, dtype=x.dtype)
    assert held.shape == source.shape and not held.is_data_representable and held[1, :].is_data_representable
    for i in range(3):
        nisa.dma_copy(dst=held[i, :].data, src=source[i, :].data)
    for i in range(3):
        for j in range(3):
            nisa.dma_copy(dst=target[i, j].data, src=held[i, j].data)
    return out
"""
PREFIX = """
    source, target = nl.tiles(x, tile_shape=(100, 60)), nl.tiles(out, tile_shape=(100, 60))
    assert source.shape == (2, 1, 2) and source[0].shape == (1, 2) and source[0].element_shape == (100, 90)
    held = nl.alloc_blocks(tile_shape=(100, 60), block_shape=(1, 2), element_shape=(100, 90), buffer=nl.sbuf, dtype=x.dtype)
    for b in range(2):
        nisa.dma_copy(dst=held[0, 0].data, src=source[b, 0, :].data)
        nisa.dma_copy(dst=target[b].data, src=held.data)
    return out
"""


def traced(body: str, shape: tuple[int, ...], nki: str | None = None) -> Program:
    return trace(
        HEAD + body, [TensorSpec(shape, "float32")], api="nki", chip="trn2", entry="kernel",
        options=TraceOptions(nki=nki),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "shape"),
    [(BY_TILE, (300, 640)), (BY_BLOCK, (300, 640)), (ON_CHIP, (300, 640)), (PREFIX, (2, 100, 90))],
)
def test_a_kernel_moves_each_tile_of_a_grid(body: str, shape: tuple[int, ...]) -> None:
    program = traced(body, shape, "0.7")
    assert verify(program) == ()
    given = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    assert np.array_equal(execute(program, [given])[0], given)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("nl.tiles(x, tile_shape=(128, 256))[3, 0]", "index 3 is outside of the 3 tiles"),
        ("nl.tiles(x, tile_shape=(128, 256))[0:3:2]", "step 1"),
        ("nl.tiles(x, tile_shape=(0, 256))", "tile_shape"),
        ("nl.tiles(x)", "tile_shape is None"),
        ("nl.blocks(x, tile_shape=(128, 256), block_shape=(2,))", "as many sizes"),
        ("nl.alloc_tiles(tile_shape=(128, 256), element_shape=x.shape, buffer=nl.sbuf, dtype=x.dtype).data", "one row"),
    ],
)
def test_a_wrong_grid_is_refused_with_its_remedy(body: str, said: str) -> None:
    with pytest.raises(KernelFailure) as caught:
        traced(f"    {body}\n    return out\n", (300, 640))
    assert said in f"{caught.value.message} {caught.value.hint}" and caught.value.line == 10


def test_grids_and_configurations_exist_from_0_7_on() -> None:
    with pytest.raises(KernelFailure, match=r"NKI 0\.6 refuses it"):
        traced(BY_TILE, (300, 640), "0.6")
