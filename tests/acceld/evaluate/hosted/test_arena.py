"""The memory that a worker shares with its referee."""

from __future__ import annotations

import faulthandler
import mmap
import os
from typing import Any

import numpy as np
import pytest

from acceld.evaluate.hosted.arena import GUARD_BYTES, Layout, close_pages, lay_out, lay_out_apart, memory_file

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


def test_pages_of_inputs_are_sealed_unless_the_kernel_may_change_them() -> None:
    layout = lay_out_apart(ARGUMENTS, OUTPUTS, np.random.default_rng(1), mutates=(1,))
    assert Layout.from_plain(layout.plain()) == layout
    for call in range(2):
        now = layout.at(call)
        x, mask, out = (*now.inputs, *now.outputs)
        sealed = [any(start <= one.offset < end for start, end in now.sealed) for one in (x, mask, out)]
        assert sealed == [True, False, False]
        assert any(start <= x.offset and x.offset + x.size_bytes <= end for start, end in now.sealed)


def test_a_process_can_neither_write_sealed_pages_nor_read_closed_ones() -> None:
    layout = lay_out_apart(ARGUMENTS, OUTPUTS, np.random.default_rng(1))
    (start, _), x, out = layout.closed[0], layout.inputs[0], layout.outputs[0]
    for write, address in ((False, x.offset), (True, out.offset), (True, x.offset), (False, start)):
        child = os.fork()
        if child == 0:
            faulthandler.disable()  # its report of the death that is wanted would look like one of this process
            memory = mmap.mmap(-1, layout.size_bytes)
            close_pages(layout, memory)
            if write:
                memory[address] = 1
            os._exit(memory[address] & 0)
        died = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert died == (address == start or (write and address == x.offset))
