"""A data set that is made block by block is the one that is made at once, and programs run meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.evaluate.correctness import datasets, oracle
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.oracle import ByRows
from acceld.evaluate.sandbox.messages import pack, unpack
from acceld.evaluate.simulated.beside import Beside
from acceld.workloads import Workload, address_of, load_workload, make_inputs, reference_outputs
from acceld.workloads.rows import RowBlock, row_blocks, sampled

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
    folder: Path,
    loaded: Workload,
    inputs: Sequence[Any],
    blocks: Sequence[RowBlock],
    samples: Mapping[int, RowBlock] | None = None,
) -> tuple[Any, list[Errors]]:
    """Return the expected output and the floors of a data set that is made in these blocks."""
    folder.mkdir()
    writer = datasets.Writer(folder)
    writer.inputs(inputs)
    made = ByRows(loaded, "own", partial(reference_outputs, loaded), inputs, blocks).write(
        writer, samples or dict(enumerate(blocks))
    )
    assert not isinstance(made, str)
    writer.finish([(output.shape, output.dtype) for output in loaded.outputs], {"squares": made.squares})
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


@pytest.mark.parametrize("rows", [["M"], ["N"], ["N", "B"]])
def test_a_reference_is_computed_in_blocks_along_any_axis(tmp_path: Path, rows: list[str]) -> None:
    (tmp_path / "workload").mkdir()
    text = TOML.replace("DTYPE", "float32").replace('["B", "M"]\n[values]', f"{rows}\n[values]".replace("'", '"'))
    (tmp_path / "workload" / "workload.toml").write_text(text)
    (tmp_path / "workload" / "reference.py").write_text("def forward(x, g):\n    return x * g\n")
    loaded = load_workload(tmp_path / "workload")
    inputs, blocks = make_inputs(loaded, 3), row_blocks(loaded, most_elements=500)
    assert len(blocks) > 10 and loaded.rows == tuple(rows)
    whole, (floor,) = written(tmp_path / "whole", loaded, inputs, [RowBlock({})])
    parts, (by_rows,) = written(tmp_path / "parts", loaded, inputs, blocks)
    np.testing.assert_array_equal(parts, whole)
    assert by_rows.rel_l2 <= floor.rel_l2 * (1 + 1e-9) and by_rows.element <= 1.2 * floor.element
    kept = json.loads((tmp_path / "parts" / "meta.json").read_text())
    assert kept["squares"] == [pytest.approx(float(np.vdot(whole, whole)), rel=1e-12)]


def test_an_output_of_one_value_without_axes_is_written(tmp_path: Path) -> None:
    text = TOML.replace("DTYPE", "float32").replace('rows = ["B", "M"]\n', "")
    text = text.replace('[outputs.out]\nshape = ["B", "M", "N"]', "[outputs.out]\nshape = []")
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload" / "workload.toml").write_text(text)
    (tmp_path / "workload" / "reference.py").write_text("def forward(x, g):\n    return (x * g).mean()\n")
    loaded = load_workload(tmp_path / "workload")
    x, g = make_inputs(loaded, 3)
    found, _ = written(tmp_path / "whole", loaded, [x, g], row_blocks(loaded))
    assert found.shape == () and found == pytest.approx((x.astype(float) * g).mean())


SOFTMAX = """
import numpy as np

def forward(q, k):
    weight = np.exp(q @ k.T)
    return weight / weight.sum(axis=1, keepdims=True)
"""


def test_an_argument_that_every_block_needs_is_given_whole(tmp_path: Path) -> None:
    text = TOML.replace("DTYPE", "float32").replace('["B", "M"]\n[values]', '["M"]\n[values]')
    text = text.replace('["B", "M", "N"]', '["M", "N"]').replace("[arguments.g]", "[arguments.k]")
    text = text.replace('shape = ["N"]', 'shape = ["M", "N"]\nwhole = true').replace("[arguments.x]", "[arguments.q]")
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload" / "workload.toml").write_text(text.replace("N = 50", "N = 37"))
    (tmp_path / "workload" / "reference.py").write_text(SOFTMAX)
    loaded = load_workload(tmp_path / "workload")
    inputs = [0.3 * one for one in make_inputs(loaded, 3)]
    blocks = row_blocks(loaded, most_elements=200)
    assert len(blocks) > 5 and [one.whole for one in loaded.arguments] == [False, True]
    whole, _ = written(tmp_path / "whole", loaded, inputs, [RowBlock({})])
    parts, _ = written(tmp_path / "parts", loaded, inputs, blocks)
    np.testing.assert_allclose(parts, whole, rtol=1e-13)


def test_a_reference_that_changes_its_inputs_in_place_changes_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload" / "workload.toml").write_text(TOML.replace("DTYPE", "float32"))
    (tmp_path / "workload" / "reference.py").write_text("def forward(x, g):\n    x *= g\n    return x\n")
    loaded = load_workload(tmp_path / "workload")
    inputs = make_inputs(loaded, 3)
    before = inputs[0].copy()
    for name, blocks in (("whole", [RowBlock({})]), ("parts", row_blocks(loaded, most_elements=500))):
        found, _ = written(tmp_path / name, loaded, inputs, blocks)
        np.testing.assert_array_equal(inputs[0], before)
        np.testing.assert_allclose(found, before.astype(np.float64) * inputs[1])


def test_a_sample_of_rows_has_the_noise_of_all_rows_and_never_more(tmp_path: Path) -> None:
    text = TOML.replace("DTYPE", "float32").replace("M = 37", "M = 2000")
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload" / "workload.toml").write_text(text)
    (tmp_path / "workload" / "reference.py").write_text(REFERENCE)
    loaded = load_workload(tmp_path / "workload")
    blocks = row_blocks(loaded, most_elements=5000)
    for seed in range(5):
        inputs = make_inputs(loaded, 30 + seed)
        samples = sampled(loaded, blocks, 20_000, np.random.default_rng(seed))
        rows = [len(range(2000)[one.slices["M"]]) for one in samples.values()]
        assert len(samples) == 8 and sum(rows) >= 400
        assert all(block.slices["B"] == blocks[number].slices["B"] for number, block in samples.items())
        _, (floor,) = written(tmp_path / f"all{seed}", loaded, inputs, blocks)
        _, (found,) = written(tmp_path / f"some{seed}", loaded, inputs, blocks, samples)
        assert 0.9 * floor.rel_l2 < found.rel_l2 < floor.rel_l2
        assert 0.7 * floor.worst_row < found.worst_row < floor.worst_row
        assert 0.0 < found.element < floor.element


def test_rows_of_a_small_output_are_all_in_the_sample(tmp_path: Path) -> None:
    loaded = normalization(tmp_path / "workload", "float32")
    blocks = row_blocks(loaded, most_elements=500)
    assert sampled(loaded, blocks, 1000, np.random.default_rng(1)) == dict(enumerate(blocks))


@pytest.mark.parametrize("turned", [False, True])
def test_inputs_are_drawn_into_their_files_if_the_kernel_takes_them_so(tmp_path: Path, turned: bool) -> None:
    (tmp_path / "workload").mkdir()
    (tmp_path / "workload" / "workload.toml").write_text("drawn = true\n" + TOML.replace("DTYPE", "float32"))
    changed = "\ndef transform_to_nki_inputs(inputs):\n    return [inputs[0][:, :, ::-1], inputs[1]]\n"
    (tmp_path / "workload" / "reference.py").write_text(REFERENCE + changed * turned)
    loaded, folder = load_workload(tmp_path / "workload"), tmp_path / "set"
    request = {
        "workload": str(loaded.folder), "seed": 77, "variant": "own", "folder": str(folder),
        "floors": None, "closely": False, "split": False, "least": [1e-6, 1e-6, 1e-3],
    }  # fmt: skip
    folder.mkdir()
    begun = []
    made = oracle._make(loaded, request, partial(reference_outputs, loaded), lambda: begun.append(True))
    assert made == {} and begun == [True]
    wanted = make_inputs(loaded, 77)
    found = datasets.read_inputs(folder)
    np.testing.assert_array_equal(found[0], wanted[0][:, :, ::-1] if turned else wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])
    np.testing.assert_allclose(datasets.read_expected(folder)[0][0], reference_outputs(loaded, wanted)[0])


def test_a_reference_that_is_infinite_in_one_block_refuses_the_data_set(tmp_path: Path) -> None:
    loaded = normalization(tmp_path / "workload", "float32")
    inputs = make_inputs(loaded, 3)
    inputs[0][2, 30] = 0
    with datasets.begin(tmp_path / "set") as begun:
        blocks = row_blocks(loaded, 500)
        by_rows = ByRows(loaded, "own", partial(reference_outputs, loaded), inputs, blocks)
        writer = datasets.Writer(begun.partial)
        assert by_rows.write(writer, dict(enumerate(blocks))) == "the reference is not finite on these inputs"
        assert begun.publish() is None
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("float64", [True, False])
def test_a_reference_computed_by_blocks_is_that_of_the_whole(tmp_path: Path, dtype: str, float64: bool) -> None:
    loaded = normalization(tmp_path / "workload", dtype)
    inputs, blocks = make_inputs(loaded, 3), row_blocks(loaded, most_elements=500)
    (whole,) = reference_outputs(loaded, inputs, float64)
    (parts,) = oracle._by_blocks(blocks, loaded, inputs, float64)
    assert parts.dtype == whole.dtype and whole.dtype.name == ("float64" if float64 else dtype)
    np.testing.assert_allclose(parts.astype(np.float64), whole.astype(np.float64), rtol=1e-6)


def test_an_error_that_nobody_expects_is_sent_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    made = normalization(tmp_path / "one", "float32")
    monkeypatch.setattr(oracle, "_make", failing)
    with (tmp_path / "reply").open("w+b") as reply:
        oracle.make(pack(address_of(made)), reply.fileno())
        reply.seek(0)
        answer, _ = unpack(reply.read())
    assert answer["error"] == f"making a data set of {made.folder} failed: RuntimeError: can't start new thread"
