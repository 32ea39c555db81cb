"""The price of a transfer or a copy follows from its own tiles, and from what their bits are."""

import pytest

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.timing.timeline import timeline

_HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    scratch = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.hbm)
    place = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    big = nl.ndarray((128, 512, 2), dtype=nl.float32, buffer=nl.sbuf)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[0:128, :])
    nisa.dma_copy(dst=out[128:256, :], src=tile)
    nisa.iota(dst=place, pattern=[[0, 1]], offset=0, channel_multiplier=1)
"""
_END = """
    nisa.dma_copy(dst=out[0:128, :], src=tile)
    return out
"""


def latency_us(*lines: str) -> float:
    """Return the latency of a kernel of the current API with these lines."""
    text = _HEAD + "".join(f"    {line}\n" for line in lines) + _END
    latency = timeline(trace(text, [TensorSpec((256, 512), "float32")], api="nki", chip="trn2")).latency_us
    assert latency is not None
    return latency


_ROUND_TRIP = (
    "nisa.dma_copy(dst=scratch[128:256, :], src=tile)",
    "tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
    "nisa.dma_copy(dst=tile, src=scratch[128:256, :])",
)
_GATHER = ("nisa.dma_copy(dst=tile, src=x.ap([[512, 128], [1, 512]], vector_offset=place, indirect_dim=0))",)
_STRIDED = ("nisa.dma_copy(dst=big[:, :, 0:1], src=x[0:128, :].reshape((128, 512, 1)))",)
_BROADCAST = ("nisa.dma_copy(dst=tile, src=x.ap([[0, 128], [1, 512]]))",)
_DENSE = (
    "dense = nl.ndarray((128, 512, 1), dtype=nl.float32, buffer=nl.sbuf)",
    "nisa.dma_copy(dst=dense, src=x[0:128, :].reshape((128, 512, 1)))",
)


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        (("nisa.dma_copy(dst=out[128:256, :], src=tile)",), _ROUND_TRIP * 8),
        (_BROADCAST, _GATHER * 8),
        (_DENSE, _STRIDED * 8),
    ],
    ids=["stores that are read back", "gathers", "strided tiles"],
)
def test_an_instruction_costs_the_same_after_a_cheaper_one_with_equal_axes(
    cheap: tuple[str, ...], dear: tuple[str, ...]
) -> None:
    assert latency_us(*cheap, *dear) >= latency_us(*dear)


def test_a_gather_of_rows_moves_whole_rows() -> None:
    assert latency_us() < latency_us(*_GATHER) < latency_us() + 10


_COPIES = (
    "for n in range(40):",
    "    other = nl.ndarray(half.shape, dtype=half.dtype, buffer=nl.sbuf)",
    "    nisa.tensor_copy(dst=other, src=half, engine=nisa.vector_engine)",
    "    half = other",
)
_BACK = (
    "tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
    "nisa.tensor_copy(dst=tile, src=half.view(nl.float32), engine=nisa.vector_engine)",
)
_HALF = "half = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)"


@pytest.mark.parametrize(
    "halves",
    [
        ("half = tile.view(nl.bfloat16)",),
        (_HALF, "nisa.dma_copy(dst=half, src=tile.view(nl.bfloat16))"),
        (_HALF, "nisa.dma_copy(dst=half, src=x.view(nl.bfloat16)[0:128, :])"),
        (
            _HALF,
            "nisa.memset(dst=half, value=1.0)",
            "other = nl.ndarray((128, 1024), dtype=nl.bfloat16, buffer=nl.sbuf)",
            "nisa.tensor_copy(dst=other, src=half, engine=nisa.vector_engine)",
            "half = tile.view(nl.bfloat16)",
        ),
    ],
    ids=["on chip", "through a transfer", "from HBM", "after a copy of bfloat16"],
)
def test_copies_of_halves_of_float32_are_no_faster_than_copies_of_float32(halves: tuple[str, ...]) -> None:
    assert latency_us(*halves, *_COPIES, *_BACK) > latency_us("half = tile", *_COPIES, "tile = half")


def test_bfloat16_that_was_unpacked_or_is_packed_keeps_the_fast_rate() -> None:
    plain = latency_us(_HALF, "nisa.memset(dst=half, value=1.0)", *_COPIES)
    unpacked = latency_us(_HALF, "nisa.dma_copy(dst=half, src=tile.view(nl.bfloat16))", *_COPIES)
    packed = latency_us(_HALF, "nisa.memset(dst=half, value=1.0)", *_COPIES, *_BACK)
    assert max(unpacked, packed) < plain + 10


@pytest.mark.parametrize("look", ["tile.view(nl.bfloat16)", "tile.view(nl.bfloat16).view(nl.uint8)"])
def test_a_tile_is_loaded_again_only_after_the_readers_of_its_views(look: str) -> None:
    def read(seen: str) -> float:
        loop = (
            "for turn in range(20):",
            "    nisa.dma_copy(dst=tile, src=x[0:128, :])",
            f"    seen = {seen}",
            "    last = nl.ndarray(seen.shape, dtype=nl.float32, buffer=nl.sbuf)",
            "    nisa.activation(dst=last, op=nl.copy, data=seen)",
        )
        return latency_us(*loop)

    assert read(look) > read("tile")


def test_a_tile_is_written_through_a_view_only_after_the_readers_of_the_tile() -> None:
    def written(target: str, source: str, times: int) -> float:
        loop = (
            "other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
            "nisa.memset(dst=other, value=0.0)",
            "for turn in range(20):",
            f"    for part in range({times}):",
            f"        nisa.tensor_copy(dst={target}, src={source}, engine=nisa.vector_engine)",
            "    last = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
            "    nisa.activation(dst=last, op=nl.exp, data=other)",
        )
        return latency_us(*loop)

    viewed = written("other.view(nl.uint16)", "tile.view(nl.uint16)", 1)
    assert viewed == pytest.approx(written("other", "tile", 2), rel=0.05)


@pytest.mark.parametrize(
    "slow",
    [
        "nisa.tensor_tensor(dst=last, data1=tile, data2=tile, op=nl.add, engine=nisa.gpsimd_engine)",
        "nisa.reciprocal(dst=last, data=tile)",
    ],
)
def test_a_tile_is_loaded_again_only_after_all_of_its_readers(slow: str) -> None:
    quick = "nisa.activation(dst=other, op=nl.exp, data=tile)"

    def read(*readers: str) -> float:
        loop = (
            "last = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
            "other = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
            "for turn in range(20):",
            "    nisa.dma_copy(dst=tile, src=x[0:128, :])",
            *(f"    {reader}" for reader in readers),
        )
        return latency_us(*loop)

    assert read(slow, quick) == pytest.approx(read(quick, slow))
