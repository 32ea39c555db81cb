"""Data sets on disk stay below their cap, and one in use is never removed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld import home
from acceld.child import child
from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.errors import NONE
from acceld.evaluate.correctness.noise import Floors, NumpyFloor
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.simulated import children as children_module
from acceld.evaluate.simulated.children import Children, _disk_bytes
from acceld.home import dataset_folder
from acceld.workloads import load_workload
from tests.acceld.evaluate.test_evaluator import CONFIG, WORKLOADS

RECORD = {"seed": 1, "variant": "own", "floors": [[0.0, 0.0, 0.0]], "seconds": 0.0}
KIB = 1024


def written(folder: Path, name: str) -> Path:
    """Write a data set of 4 KiB of input and its expected output of 8 KiB."""
    ones = np.ones(KIB, np.float32)
    with datasets.begin(folder / name) as begun:
        writer = datasets.Writer(begun.partial)
        writer.inputs([ones])
        writer.expected(0, ones.shape, "float32")[...] = ones
        writer.finish([(ones.shape, "float32")], RECORD)
        found = begun.publish()
        assert found is not None
        os.close(found[1])
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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root, one = dataset_folder(tmp_path), _disk_bytes(found)
    cap_bytes = 3 * one + 64 * KIB  # the records beside the arrays take a little
    before: list[int] = []
    make = Children._make

    async def watched(self: Children, *args: Any) -> Any:
        before.append(datasets.size_bytes(root))
        return await make(self, *args)

    monkeypatch.setattr(Children, "_make", watched)
    level = (await probe_level()).level
    children = Children(replace(CONFIG, cache_gib=cap_bytes / 2**30), tmp_path, level)
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
    later = Children(replace(CONFIG, cache_gib=one / 2**31), tmp_path, level)
    await later.start()  # the cap was lowered meanwhile
    await later.stop()
    assert datasets.size_bytes(root) == 0


def test_all_state_folders_of_a_user_share_one_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shared = dataset_folder(tmp_path / "one")
    assert shared == dataset_folder(tmp_path / "other") == tmp_path / "cache" / "acceld" / "datasets"
    shared.chmod(0o777)
    assert dataset_folder(tmp_path / "one").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("why", ["a link", "a file", "no folder can be made", "a network file system"])
def test_a_cache_that_can_not_be_used_leaves_data_sets_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    place = tmp_path / "cache" / "acceld"
    place.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if why == "a link":
        (tmp_path / "theirs").mkdir()
        (place / "datasets").symlink_to(tmp_path / "theirs")
    elif why == "a file":
        (place / "datasets").touch()
    elif why == "no folder can be made":
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    else:
        monkeypatch.setattr(home, "file_system", lambda path: "nfs4")
    assert dataset_folder(tmp_path / "state") == tmp_path / "state" / "datasets"


def _shorter(folder: Path) -> None:
    os.truncate(folder / "input0.bin", KIB)


def _changed(folder: Path) -> None:
    with (folder / "expected0.bin").open("r+b") as file:
        file.write(b"\xff")


def _missing(folder: Path) -> None:
    (folder / "expected0.bin").unlink()


def _linked(folder: Path) -> None:
    (folder / "input0.bin").rename(folder.parent / "elsewhere")
    (folder / "input0.bin").symlink_to(folder.parent / "elsewhere")


def _unsigned(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    del meta["files"]
    (folder / "meta.json").write_text(json.dumps(meta))


def _cut(folder: Path) -> None:
    (folder / "meta.json").write_text('{"floors": 1')


def _odd(folder: Path) -> None:
    (folder / "meta.json").write_text("{}")


def _open(folder: Path) -> None:
    folder.chmod(0o777)


@pytest.mark.parametrize("damage", [_shorter, _changed, _missing, _linked, _unsigned, _cut, _odd, _open])
def test_a_damaged_set_is_not_used_and_is_made_again(
    tmp_path: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, "a")
    monkeypatch.setattr(datasets, "_proven", set())  # as in a process that did not write it
    with held(folder):
        pass
    monkeypatch.setattr(datasets, "_proven", set())
    damage(folder)
    assert datasets.hold(folder) is None
    written(tmp_path, "a")
    monkeypatch.setattr(datasets, "_proven", set())
    with held(folder):
        assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == ["a"]


def test_a_set_that_took_the_place_of_the_one_to_remove_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, "a")
    lock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        """Lock only after another process has removed the data set and written an equal one."""
        monkeypatch.setattr(fcntl, "flock", lock)
        assert datasets.remove(folder)
        assert written(tmp_path, "a") == folder
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert not datasets.remove(folder)
    with held(folder):
        assert datasets.read_inputs(folder)


PROCESS = """
import os, random, sys
from pathlib import Path
import numpy as np
from acceld.evaluate.correctness import datasets
root, mine = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
used = 0
for turn in range(60):
    name = mine.choice("abcdef")
    values = np.full(1024, ord(name), np.float32)
    found = datasets.hold(root / name)
    if found is None:
        with datasets.begin(root / name) as begun:
            writer = datasets.Writer(begun.partial)
            writer.inputs([values])
            writer.expected(0, values.shape, "float32")[...] = values
            writer.finish([(values.shape, "float32")], {"seed": 1, "variant": "own", "floors": [], "seconds": 0.0})
            found = begun.publish()
    if found is not None:
        datasets._proven.clear()
        datasets.trim(root, 30_000)
        assert np.array_equal(datasets.read_inputs(root / name)[0], values)
        assert np.array_equal(datasets.read_expected(root / name)[0][0], values)
        os.close(found[1])
        used += 1
print(used)
"""


def test_many_processes_share_sets_below_one_cap(tmp_path: Path) -> None:
    starts = [child("-c", PROCESS, str(tmp_path), str(seed)) for seed in range(4)]
    running = [
        subprocess.Popen(one.command, env=one.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for one in starts
    ]
    ended = [one.communicate() for one in running]
    assert [one.returncode for one in running] == [0] * 4, ended
    assert all(int(out) > 30 for out, _ in ended)
    assert datasets.trim(tmp_path, 30_000) <= 30_000
    assert not [name for name in names(tmp_path) if name.startswith(".")]


async def test_a_reference_can_write_into_its_own_data_set_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = (await probe_level()).level
    if level < Level.L2:
        pytest.skip("nothing confines a reference below L2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    victim = written(dataset_folder(tmp_path), "victim")
    shutil.copytree(WORKLOADS / "st_matmul", tmp_path / "workload")
    with (tmp_path / "workload" / "reference.py").open("a") as file:
        file.write(
            "\nforward_ = forward\n"
            "def forward(*inputs):\n"
            "    import shutil\n"
            f"    for work in (lambda: open({str(victim / 'input0.bin')!r}, 'wb'),\n"
            f"                 lambda: open({str(victim.parent / 'new')!r}, 'wb'),\n"
            f"                 lambda: shutil.rmtree({str(victim)!r})):\n"
            "        try:\n"
            "            work()\n"
            "        except OSError:\n"
            "            continue\n"
            "        raise ValueError('it was written')\n"
            "    return forward_(*inputs)\n"
        )
    children = Children(CONFIG, tmp_path, level)
    await children.start()
    try:
        async with children.data_set(load_workload(tmp_path / "workload"), "own", 1) as data:
            assert isinstance(data, datasets.DataSet)
    finally:
        await children.stop()
    monkeypatch.setattr(datasets, "_proven", set())
    with held(victim):
        pass


async def test_a_workload_in_another_folder_shares_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    children, folders = Children(CONFIG, tmp_path, (await probe_level()).level), set()
    await children.start()
    try:
        for name in ("one", "other", "one"):
            shutil.copytree(WORKLOADS / "st_matmul", tmp_path / name, dirs_exist_ok=True)
            async with children.data_set(load_workload(tmp_path / name), "own", 1) as data:
                assert isinstance(data, datasets.DataSet)
                folders.add(data.folder)
    finally:
        await children.stop()
    assert len(folders) == 2


@pytest.mark.parametrize(("full", "why"), [("file", "File too large"), ("folder", "No space left on device")])
async def test_a_data_set_waits_while_the_disk_has_no_room_and_the_statistics_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str, why: str
) -> None:
    found, root = load_workload(WORKLOADS / "st_matmul"), tmp_path / "datasets"
    room = asyncio.Event()  # each case has a seed of its own, because data sets are kept for all tests
    make, begin = Jail, datasets.begin

    def jail(**limits: Any) -> Any:
        return make(**limits | ({} if room.is_set() or "write_paths" not in limits else {"output_bytes": KIB}))

    def no_folder(folder: Path) -> datasets.Begun:
        if room.is_set():
            return begin(folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    if full == "file":
        monkeypatch.setattr(children_module, "Jail", jail)
    else:
        monkeypatch.setattr(datasets, "begin", no_folder)
    monkeypatch.setattr(children_module, "ROOM_S", 0.01)
    children = Children(CONFIG, root, (await probe_level()).level)
    await children.start()

    async def use() -> Path:
        async with children.data_set(found, "own", len(full)) as data:
            assert isinstance(data, datasets.DataSet)
            return data.folder

    using = asyncio.create_task(use())
    try:
        while not children.waits_for:  # noqa: ASYNC110 - no event is set for it
            await asyncio.sleep(0.01)
        assert children.waits_for == f"a data set of st_matmul can not be written in {children._root}: {why}"
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


def test_what_is_expected_of_a_narrow_output_is_kept_in_float32(tmp_path: Path) -> None:
    third = np.full(KIB, 1 / 3)
    for dtype, kept in (("bfloat16", "float32"), ("float16", "float32"), ("float32", "float64")):
        with datasets.begin(tmp_path / dtype) as begun:
            writer = datasets.Writer(begun.partial)
            writer.inputs([third.astype(np.float32)])
            writer.expected(0, third.shape, dtype)[...] = third
            writer.finish([(third.shape, dtype)], RECORD)
            ((expected, of_kernel),) = datasets.read_expected(begun.partial)
            assert (expected.dtype.name, of_kernel) == (kept, dtype)
            assert expected.nbytes == datasets.expected_bytes(KIB, dtype)
            np.testing.assert_allclose(expected, third, rtol=6e-8)
