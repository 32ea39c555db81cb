"""Constants of chips agree with each other and with documented peaks."""

import dataclasses
import re

import pytest

from acceld.chips import CHIPS, DMA_SOURCES, ChipSpec, chip_spec
from acceld.errors import UsageError


@pytest.mark.parametrize("chip", CHIPS.values(), ids=list(CHIPS))
def test_bfloat16_peak_is_the_array_times_its_clock(chip: ChipSpec) -> None:
    assert 2 * 128 * 128 * chip.tensor_ghz / 1000 == pytest.approx(chip.matmul_tflops["bfloat16"], rel=0.01)


@pytest.mark.parametrize(("name", "gib"), [("trn1", 24), ("trn2", 28), ("trn3", 32)])
def test_sbuf_is_as_large_as_documented(name: str, gib: int) -> None:
    assert CHIPS[name].sbuf_bytes == gib * 2**20
    assert CHIPS[name].psum_bytes_per_partition == 16 * 1024


@pytest.mark.parametrize("chip", CHIPS.values(), ids=list(CHIPS))
def test_long_rows_reach_at_least_the_practical_rate(chip: ChipSpec) -> None:
    row_us = max(chip.dma_descriptor_us + 32768 / chip.dma_wire_bytes_per_us, 32768 / chip.dma_long_row_bytes_per_us)
    assert 0.99 * chip.dma_practical_bytes_per_us < 32768 / row_us < chip.dma_wire_bytes_per_us
    assert chip.dma_bytes_per_us < chip.hbm_bytes_per_us


def test_trn1_moves_272_gigabytes_a_second() -> None:
    assert CHIPS["trn1"].dma_bytes_per_us == 272_000


def test_an_unknown_chip_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="trn2"):
        chip_spec("trn22")


def test_a_chip_can_not_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CHIPS["trn1"].tensor_ghz = 3.0  # type: ignore[misc]


def test_every_dma_rate_of_every_chip_says_where_it_is_from() -> None:
    rates = {field.name for field in dataclasses.fields(ChipSpec) if field.name.startswith("dma_")} - {"dma_engines"}
    for name in CHIPS:
        assert set(DMA_SOURCES[name]) == rates
        assert all(re.match("documented|derived|fitted|assumed", source) for source in DMA_SOURCES[name].values())
