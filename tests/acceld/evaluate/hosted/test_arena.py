"""The memory that a worker shares with its referee."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from acceld.evaluate.hosted.arena import GUARD_BYTES, Layout, lay_out, memory_file

ARGUMENTS: list[dict[str, Any]] = [
    {"name": "x", "shape": [3, 5], "dtype": "float32"},
    {"name": "scale", "value": 2.0},
    {"name": "mask", "shape": [7], "dtype": "bool"},
]
OUTPUTS: list[dict[str, Any]] = [{"name": "out", "shape": [3, 5], "dtype": "float32"}]


def test_every_byte_is_an_element_or_guarded() -> None:
    layout = lay_out(ARGUMENTS, OUTPUTS)
    covered = np.zeros(layout.size_bytes, np.int32)
    for slot in (*layout.inputs, *layout.outputs):
        covered[slot.offset : slot.offset + slot.size_bytes] += 1
    for start, end in layout.guards():
        covered[start:end] += 1
    assert (covered == 1).all()
    assert all(end - start >= GUARD_BYTES for start, end in layout.guards())


def test_scalars_take_no_place_and_a_layout_survives_json() -> None:
    layout = lay_out(ARGUMENTS, OUTPUTS)
    assert [slot.name for slot in layout.inputs] == ["x", "mask"]
    assert layout.input_bytes == 4 * 15 + 7
    assert Layout.from_plain(layout.plain()) == layout


def test_a_memory_file_can_neither_shrink_nor_grow() -> None:
    descriptor = memory_file("test", 8192)
    try:
        for size in (0, 16384):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)
