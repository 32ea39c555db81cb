"""Tiles that a kernel places by hand: one address is one memory."""

from __future__ import annotations

import pytest

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir import codec
from acceld.nki.ir.program import Program, Space
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify

_LEGACY = """
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

def sbuf(at, columns=512, tiles=()):
    return ncc.sbuf.mod_alloc(base_addr=at, num_free_tiles=tiles)

@nki.jit
def kernel(x):
    out = nl.ndarray((1024, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    shape = (nl.par_dim(128), 512)
    def tile(at, kind=None):
        return nl.ndarray(shape, dtype=nl.float32, buffer=sbuf(at) if kind is None else kind)
BODY
    return out
"""
_CURRENT = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((1024, 512), dtype=nl.float32, buffer=nl.shared_hbm)
BODY
    return out
"""


def _program(body: str, *, current: bool = False) -> Program:
    text = (_CURRENT if current else _LEGACY).replace("BODY", "\n".join(f"    {line}" for line in body.splitlines()))
    api, chip = ("nki", "trn2") if current else ("nki_legacy", "trn1")
    return trace(text, [TensorSpec((1024, 512), "float32")], api=api, chip=chip)


_EACH = """for i in nl.affine_range(8):
    one, two = tile({one}), tile({two})
    one[p, f] = nl.load(x[128 * i + p, f])
    two[p, f] = nisa.activation(op=nl.exp, data=one[p, f])
    {between}
    nl.store(out[128 * i + p, f], value={stored}[p, f])"""
_BLOCKS = """blocks = nl.ndarray((8, nl.par_dim(128), 512), dtype=nl.float32, buffer=sbuf(0, tiles=({tiles},)))
for i in nl.affine_range(8):
    blocks[i, p, f] = nl.load(x[128 * i + p, f])
    {within}
{after}"""
_PIECES = """ones = tile(0)
ones[p, f] = nl.load(x[p, f])
for i in nl.affine_range(8):
    one = tile({one})
    if i > 3:
        one[p, f] = nl.load(x[128 * i + p, f])
    else:
        one[p, f] = nisa.activation(op=nl.exp, data=nl.load(x[128 * i + p, f]))
    nl.store(out[128 * i + p, f], value=nisa.tensor_tensor(one[p, f], ones[p, f], op=nl.add))"""
_BANKS = """for i in nl.affine_range(8):
    left = nl.load(x[128 * i + p, nl.arange(128)[None, :]])
    one = tile(0, ncc.psum.mod_alloc(base_bank={one}))
    two = tile(0, ncc.psum.mod_alloc(base_bank={two}))
    one[p, f] = nisa.nc_matmul(left, nl.load(x[p, f]))
    two[p, f] = nisa.nc_matmul(left, nl.load(x[128 + p, f]))
    nl.store(out[128 * i + p, f], value=nisa.tensor_copy(one[p, f]))
    nl.store(out[128 * i + p, f], value=nisa.tensor_copy(two[p, f]))"""
_NOW = """for i in range(8):
    one = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, {one}))
    two = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, address=(0, {two}))
    nisa.dma_copy(dst=one, src=x[128 * i : 128 * i + 128, :])
    nisa.activation(dst=two, op=nl.exp, data=one)
    nisa.dma_copy(dst=out[128 * i : 128 * i + 128, :], src={stored})"""
_STORE = "nl.store(out[128 * i + p, f], value=blocks[{}, p, f])"
_LATER = "for i in nl.affine_range(8):\n    " + _STORE.format("i")

LIVES = [
    (_EACH.format(one=0, two=2048, between="pass", stored="two"), False, False),
    (_EACH.format(one=0, two=0, between="pass", stored="two"), False, False),  # the other one is no longer needed
    (_EACH.format(one=0, two=0, between="pass", stored="one"), False, True),
    (_EACH.format(one=0, two=2044, between="pass", stored="one"), False, True),  # the last element
    (_EACH.format(one=0, two=2044, between="one[p, f] = nl.copy(two[p, f])", stored="one"), False, False),
    (_BLOCKS.format(tiles=8, within="pass", after=_LATER), False, False),
    (_BLOCKS.format(tiles=2, within=_STORE.format("i"), after=""), False, False),
    (_BLOCKS.format(tiles=2, within="pass", after=_LATER), False, True),
    (_PIECES.format(one=2048), False, False),
    (_PIECES.format(one=1024), False, True),
    (_BANKS.format(one=0, two=1), False, False),
    (_BANKS.format(one=0, two=0), False, True),
    (_NOW.format(one=0, two=2048, stored="two"), True, False),
    (_NOW.format(one=0, two=0, stored="two"), True, False),
    (_NOW.format(one=0, two=0, stored="one"), True, True),
]


@pytest.mark.parametrize(("body", "current", "refused"), LIVES)
def test_two_tiles_at_one_address_are_a_finding_while_both_are_in_use(body: str, current: bool, refused: bool) -> None:
    program = _program(body, current=current)
    assert {finding.rule for finding in verify(program)} == ({"overlapping_lives"} if refused else set())
    assert codec.decode(codec.encode(program)) == program


def test_the_finding_names_both_tiles_and_the_line_that_overwrites() -> None:
    (finding, *_) = verify(_program(_EACH.format(one=0, two=0, between="pass", stored="one")))
    assert (finding.line, finding.message) == (
        22,
        "tile 2 is used after line 20 has written tile 3 to the same address of SBUF",
    )


def test_blocks_have_the_addresses_that_they_rotate_through() -> None:
    program = _program(_BLOCKS.format(tiles=2, within=_STORE.format("i"), after=""))
    (blocks,) = [buffer for buffer in program.buffers if buffer.space is not Space.HBM]
    assert (blocks.address, blocks.blocks) == (None, ((0, 0), (0, 2048)) * 4)


def test_blocks_keep_their_addresses_in_bytes() -> None:
    text = """for part in range(2):
    blocks = nl.ndarray((8, nl.par_dim(128), 512), dtype=nl.float32, buffer=sbuf(8192 * part, tiles=(2,)))
    for i in nl.affine_range(8):
        blocks[i, p, f] = nl.load(x[128 * i + p, f])
        nl.store(out[128 * i + p, f], value=blocks[i, p, f])"""
    program = codec.decode(codec.encode(_program(text)))
    assert [b.blocks[0] for b in program.buffers if b.blocks] == [(0, 0), (0, 8192)]


def _us(body: str, *, current: bool = False) -> float:
    found = timeline(_program(body, current=current)).latency_us
    assert found is not None
    return found


def test_a_tile_waits_until_its_place_is_free() -> None:
    one, two, four = (_us(_BLOCKS.format(tiles=n, within=_STORE.format("i"), after="")) for n in (1, 2, 4))
    free = _us(
        "for i in nl.affine_range(8):\n    one = nl.load(x[128 * i + p, f])\n    nl.store(out[128 * i + p, f], value=one)"
    )
    assert one > 1.2 * two > 1.2 * four >= free * 0.99


@pytest.mark.parametrize("current", [False, True])
def test_tiles_that_share_one_place_take_longer_than_tiles_that_the_compiler_places(current: bool) -> None:
    text = _NOW if current else _EACH
    placed = _us(text.format(one=0, two=0, between="pass", stored="two"), current=current)
    body = text.format(one=0, two=0, between="pass", stored="two")
    free = body.replace(", address=(0, 0)", "").replace(
        "tile(0)", "nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)"
    )
    assert placed > 1.2 * _us(free, current=current)


_SUMS = """one, total = nl.load(x[p, f]), nl.load(x[128 + p, f])
for i in nl.static_range(8):
    held = tile(0, ncc.psum.mod_alloc(base_bank=i % {banks}))
    held[p, f] = nisa.activation(op=nl.exp, data=one, scale=0.1 * i)
    total[p, f] = nisa.tensor_tensor(total, held[p, f], op=nl.add)
nl.store(out[p, f], value=total)"""


def test_a_bank_of_psum_that_is_read_is_not_written() -> None:
    assert _us(_SUMS.format(banks=1)) > 1.2 * _us(_SUMS.format(banks=2))
