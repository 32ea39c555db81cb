"""Notes on forms that compile wrongly, on programs that compile slowly, and on tiles that do not fit together."""

from __future__ import annotations

import pytest

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.verify.doubts import doubts

LEGACY = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n"
ROWS = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 256), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((128, 256), dtype=nl.float32, buffer=nl.{buffer})
    for i in nl.{loop}(4):
        {line}
    nl.store(out, acc)
    return out
"""
PRODUCT = (
    "acc += nl.matmul(nl.load(x[i * 128:(i + 1) * 128, 0:128]), nl.load(x[i * 128:(i + 1) * 128, :]), transpose_x=True)"
)
RELAY = """
@nki.jit
def kernel(w):
    out = nl.ndarray(w.shape, dtype=w.dtype, buffer=nl.shared_hbm)
    keep = nl.ndarray((4, nl.par_dim(128), 512), dtype=w.dtype, buffer=nl.sbuf)
    {before}
    for i in nl.{loop}(4):
        {inside}
        tmp[...] = nl.load(w[i, :, :])
        for j in nl.affine_range(4):
            keep[i, :, nl.ds(j * 128, 128)] = tmp[:, nl.ds(j * 128, 128)]
    for i in nl.affine_range(4):
        nl.store(out[i, :, :], keep[i, :, :])
    return out
"""
TILE = "tmp = nl.ndarray((nl.par_dim(128), 512), dtype=w.dtype, buffer=nl.sbuf)"
CURRENT = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    c = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=c, src=x)
{body}
    nisa.dma_copy(dst=out, src=c)
    return out
"""


def noted(source: str, *shape: int, api: str = "nki_legacy", nki: str | None = None) -> list[str]:
    """Return the notes on a kernel of one argument."""
    chip = "trn2" if api == "nki" else "trn1"
    return [one.text for one in doubts(trace(source, [TensorSpec(shape, "float32")], api=api, chip=chip), nki)]


@pytest.mark.parametrize(
    ("buffer", "loop", "line", "count"),
    [
        ("sbuf", "affine_range", "acc += nl.load(x[i * 128:(i + 1) * 128, :])", 1),
        ("sbuf", "affine_range", "acc[...] += nl.load(x[i * 128:(i + 1) * 128, :])", 1),
        ("sbuf", "sequential_range", "acc += nl.load(x[i * 128:(i + 1) * 128, :])", 0),
        ("psum", "affine_range", PRODUCT, 0),
        ("sbuf", "affine_range", "t = nl.load(x[i * 128:(i + 1) * 128, :]); t += 1.0; acc += t", 1),
    ],
)
def test_an_update_in_place_in_an_affine_loop_is_noted_unless_a_product_does_it(
    buffer: str, loop: str, line: str, count: int
) -> None:
    found = noted(LEGACY + ROWS.format(buffer=buffer, loop=loop, line=line), 512, 256)
    assert len(found) == count
    assert all("updated in place in nl.affine_range" in text for text in found)


@pytest.mark.parametrize(
    ("before", "inside", "loop", "count"),
    [
        (TILE, "pass", "sequential_range", 1),
        ("pass", TILE, "sequential_range", 0),
        (TILE, "pass", "static_range", 0),
    ],
)
def test_a_tile_beside_a_sequential_loop_that_is_rewritten_in_it_is_noted(
    before: str, inside: str, loop: str, count: int
) -> None:
    found = noted(LEGACY + RELAY.format(before=before, inside=inside, loop=loop), 4, 128, 512)
    assert len(found) == count
    assert all("issue 1045" in text for text in found)


def tiles(number: int, width: int, memory: str) -> str:
    lines = [
        f"l = []\nfor j in range({number}):",
        f"    q = nl.ndarray((128, {width}), dtype=nl.float32, buffer=nl.{memory})",
    ]
    lines += ["    nisa.memset(dst=q, value=1.0)", "    l.append(q)", "for q in l:"]
    lines += ["    nisa.tensor_copy(dst=c, src=q[:, 0:64])"]
    return CURRENT.format(body="\n".join(f"    {one}" for one in "\n".join(lines).splitlines()))


@pytest.mark.parametrize(
    ("number", "width", "memory", "version", "said"),
    [
        (8, 8000, "sbuf", "0.6", "NKI 0.6 refuses that"),
        (8, 8000, "sbuf", "0.7", "NKI 0.7 spills"),
        (6, 8000, "sbuf", "0.6", ""),
        (10, 512, "psum", "0.6", "psum has 16384: NKI 0.6 refuses that"),
        (8, 512, "psum", "0.6", ""),
    ],
)
def test_tiles_that_are_alive_at_once_and_do_not_fit_are_noted_by_version(
    number: int, width: int, memory: str, version: str, said: str
) -> None:
    found = noted(tiles(number, width, memory), 128, 64, api="nki", nki=version)
    assert len(found) == bool(said)
    assert all(said in text for text in found)


def test_tiles_one_after_the_other_fit() -> None:
    body = "for j in range(20):\n    q = nl.ndarray((128, 8000), dtype=nl.float32, buffer=nl.sbuf)\n"
    body += "    nisa.memset(dst=q, value=1.0)\n    nisa.tensor_copy(dst=c, src=q[:, 0:64])"
    source = CURRENT.format(body="\n".join(f"    {one}" for one in body.splitlines()))
    assert noted(source, 128, 64, api="nki", nki="0.6") == []


@pytest.mark.parametrize(("trips", "count"), [(1200, 1), (100, 0)])
def test_a_program_of_very_many_instructions_after_unrolling_is_noted(trips: int, count: int) -> None:
    body = f"for i in nl.affine_range({trips}):\n    for j in nl.affine_range(1000):\n        nisa.tensor_copy(dst=c, src=c)"
    source = CURRENT.format(body="\n".join(f"    {one}" for one in body.splitlines()))
    found = noted(source, 128, 64, api="nki", nki="0.6")
    assert len(found) == count
    assert all("1.2 million instructions" in text for text in found)
