"""Data sets on disk stay below their cap, and one in use is never removed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.errors import NONE
from acceld.evaluate.correctness.noise import Floors, NumpyFloor
from acceld.evaluate.sandbox.jail import Jail
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.simulated import children as children_module
from acceld.evaluate.simulated.children import Children, _disk_bytes
from acceld.workloads import load_workload
from tests.acceld.evaluate.test_evaluator import CONFIG, WORKLOADS

RECORD = {"seed": 1, "variant": "own", "floors": [[0.0, 0.0, 0.0]], "seconds": 0.0}
KIB = 1024


def written(folder: Path, name: str) -> Path:
    """Write a data set of 4 KiB of input and its expected output of 8 KiB."""
    ones = np.ones(KIB, np.float32)
    with datasets.writing(folder / name, datasets.partial_of(folder / name)) as writer:
        writer.inputs([ones])
        writer.expected(0, ones.shape)[...] = ones
        writer.finish([(ones.shape, "float32")], RECORD)
    return folder / name


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    found = datasets.hold(folder)
    assert found is not None
    yield
    os.close(found[1])


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_sets_used_a_moment_ago_count_like_any_other(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        written(tmp_path, name)
    assert datasets.size_bytes(tmp_path) > 3 * 12 * KIB
    with held(tmp_path / "a"):
        pass  # the newest from now on
    assert datasets.trim(tmp_path, 20 * KIB) < 20 * KIB
    assert names(tmp_path) == {"a"}


def test_a_set_in_use_stays_and_goes_afterwards(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path, name)
    with held(tmp_path / "a"):
        datasets.trim(tmp_path, 0)
        assert names(tmp_path) == {"a"}
        assert datasets.remove(tmp_path / "a") is False
    datasets.trim(tmp_path, 0)
    assert names(tmp_path) == set()


def test_what_a_killed_writer_left_behind_goes_first(tmp_path: Path) -> None:
    written(tmp_path, "a")
    left = tmp_path / ".b.0123abcd"
    left.mkdir()
    (left / "input0.bin").write_bytes(bytes(KIB))
    datasets.trim(tmp_path, 1 << 30)
    assert names(tmp_path) == {"a"}


async def test_the_cap_holds_before_a_set_is_written_and_after_the_judge_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load_workload(WORKLOADS / "st_matmul")
    root, one = tmp_path / "datasets", _disk_bytes(found)
    cap_bytes = 3 * one + 64 * KIB  # the records beside the arrays take a little
    before: list[int] = []
    make = Children._make

    async def watched(self: Children, *args: Any) -> Any:
        before.append(datasets.size_bytes(root))
        return await make(self, *args)

    monkeypatch.setattr(Children, "_make", watched)
    level = (await probe_level()).level
    children = Children(replace(CONFIG, cache_gib=cap_bytes / 2**30), root, level)
    await children.start()
    try:
        for seed in range(6):
            async with children.data_set(found, "own", seed) as data:
                assert isinstance(data, datasets.DataSet) and data.folder.is_dir()
                assert datasets.size_bytes(root) <= cap_bytes
    finally:
        await children.stop()
    assert 0 < datasets.size_bytes(root) <= cap_bytes
    assert len(before) == 6 and max(before) <= cap_bytes - one
    later = Children(replace(CONFIG, cache_gib=one / 2**31), root, level)
    await later.start()  # the cap was lowered meanwhile
    await later.stop()
    assert datasets.size_bytes(root) == 0


async def test_a_data_set_waits_while_no_file_can_grow_and_the_statistics_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, root = load_workload(WORKLOADS / "st_matmul"), tmp_path / "datasets"
    room = asyncio.Event()
    make = Jail

    def jail(**limits: Any) -> Any:
        return make(**limits | ({} if room.is_set() or "write_paths" not in limits else {"output_bytes": KIB}))

    monkeypatch.setattr(children_module, "Jail", jail)
    monkeypatch.setattr(children_module, "ROOM_S", 0.01)
    children = Children(CONFIG, root, (await probe_level()).level)
    await children.start()

    async def use() -> Path:
        async with children.data_set(found, "own", 1) as data:
            assert isinstance(data, datasets.DataSet)
            return data.folder

    using = asyncio.create_task(use())
    try:
        while not children.waits_for:  # noqa: ASYNC110 - no event is set for it
            await asyncio.sleep(0.01)
        assert children.waits_for == "a data set of st_matmul can not be written: File too large"
        await asyncio.sleep(0.05)
        assert not using.done()
        room.set()
        assert (await using).is_dir()
        assert children.waits_for == ""
    finally:
        using.cancel()
        await children.stop()


def test_noise_is_kept_in_memory_until_the_disk_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, floors = load_workload(WORKLOADS / "st_matmul"), Floors(tmp_path / "floors")
    own, other = NumpyFloor(refused="one"), NumpyFloor(refused="two")
    write = Path.write_text

    def full(path: Path, *words: Any, **options: Any) -> int:
        write(path, "", encoding="ascii")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        floors.learn_numpy(found, "own", own)
        assert floors.learn_kernel(found, "nki", "trn2", "own", [NONE], [NONE]) == (NONE,)
    assert list((tmp_path / "floors").iterdir()) == []
    assert floors.of_numpy(found, "own") == own
    assert floors.of_kernel(found, "nki", "trn2", "own") == (NONE,)
    floors.learn_numpy(found, "special", other)
    assert Floors(tmp_path / "floors").of_numpy(found, "own") == own, "written with the next one"
