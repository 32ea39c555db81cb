"""A data set that is made block by block is the one that is made at once, and programs run meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.oracle import ByRows
from acceld.evaluate.simulated.beside import Beside
from acceld.workloads import Workload, load_workload, make_inputs, reference_outputs
from acceld.workloads.rows import RowBlock, row_blocks

TOML = """
description = "a normalization of rows"
rows = ["B", "M"]
[values]
B = 3
M = 37
N = 50
[arguments.x]
shape = ["B", "M", "N"]
dtype = "DTYPE"
[arguments.g]
shape = ["N"]
dtype = "DTYPE"
[outputs.out]
shape = ["B", "M", "N"]
dtype = "DTYPE"
[distributions]
own = "declared"
scaled_up = { refused = "not needed" }
scaled_down = { refused = "not needed" }
shifted = { refused = "not needed" }
integers = { refused = "not needed" }
row_scaled = "declared"
sparse = { refused = "not needed" }
special = { refused = "not needed" }
"""
REFERENCE = """
import numpy as np

def forward(x, g):
    return x * g / np.sqrt(np.mean(np.square(x), axis=2, keepdims=True))
"""


def normalization(folder: Path, dtype: str) -> Workload:
    folder.mkdir()
    (folder / "workload.toml").write_text(TOML.replace("DTYPE", dtype))
    (folder / "reference.py").write_text(REFERENCE)
    return load_workload(folder)


def written(
    folder: Path, loaded: Workload, inputs: Sequence[Any], blocks: Sequence[RowBlock]
) -> tuple[Any, list[Errors]]:
    """Return the expected output and the floors of a data set that is made in these blocks."""
    with datasets.writing(folder, datasets.partial_of(folder)) as writer:
        writer.inputs(inputs)
        every = dict(enumerate(blocks))
        made = ByRows(loaded, "own", partial(reference_outputs, loaded), inputs, blocks).write(writer, every)
        assert not isinstance(made, str)
        writer.finish([(output.shape, output.dtype) for output in loaded.outputs], {})
    return np.array(datasets.read_expected(folder)[0][0]), made.floors


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", ["own", "row_scaled"])
def test_blocks_of_rows_make_the_data_set_of_the_whole(tmp_path: Path, dtype: str, variant: str) -> None:
    loaded = normalization(tmp_path / "workload", dtype)
    inputs, blocks = make_inputs(loaded, 3, variant), row_blocks(loaded, most_elements=500)
    assert len(blocks) == 3 * 4
    whole, (floor,) = written(tmp_path / "whole", loaded, inputs, row_blocks(loaded))
    parts, (by_rows,) = written(tmp_path / "parts", loaded, inputs, blocks)
    np.testing.assert_allclose(parts, whole, rtol=1e-14)
    assert by_rows.plain() == pytest.approx(floor.plain(), rel=1e-6) and floor.finite


def test_a_reference_that_is_infinite_in_one_block_refuses_the_data_set(tmp_path: Path) -> None:
    loaded = normalization(tmp_path / "workload", "float32")
    inputs = make_inputs(loaded, 3)
    inputs[0][2, 30] = 0
    with datasets.writing(tmp_path / "set", datasets.partial_of(tmp_path / "set")) as writer:
        blocks = row_blocks(loaded, 500)
        by_rows = ByRows(loaded, "own", partial(reference_outputs, loaded), inputs, blocks)
        assert by_rows.write(writer, dict(enumerate(blocks))) == "the reference is not finite on these inputs"
    assert list(tmp_path.iterdir()) == [tmp_path / "workload"]


async def test_a_trial_begins_with_the_inputs_and_ends_after_the_expected_outputs(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def attempt(complete: int, folder: int) -> str:
        began.set()
        assert await asyncio.to_thread(os.read, complete, 1) == b""
        return str(os.listdir(folder))

    beside = Beside(attempt)
    (tmp_path / "partial").mkdir()
    async with beside.following(tmp_path / "partial") as begun:
        os.write(begun, b".")
        await began.wait()
        (tmp_path / "partial" / "expected").touch()
        (tmp_path / "partial").rename(tmp_path / "complete")
    assert await beside.result() == "['expected']"
    await beside.end()


async def test_a_trial_whose_data_set_fails_is_ended_and_one_that_never_began_has_no_result(tmp_path: Path) -> None:
    ended: list[str] = []

    async def attempt(complete: int, folder: int) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return "never"

    beside = Beside(attempt)
    async with beside.following(tmp_path) as begun:
        os.write(begun, b".")
        await asyncio.sleep(0.05)
    await beside.end()
    assert ended == ["ended"]
    late = Beside(attempt)
    async with late.following(tmp_path / "gone") as begun:
        os.write(begun, b".")
        await asyncio.sleep(0.05)
    assert await late.result() is None
