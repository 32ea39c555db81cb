"""Every way editors save: real files, a real watch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from acceld.watch.files import SavedFiles


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def atomic(path: Path, text: str) -> None:
    part = path.with_suffix(".tmp")
    part.write_text(text)
    os.replace(part, path)


def vim(path: Path, text: str) -> None:
    backup = path.with_name(path.name + "~")
    os.replace(path, backup)
    path.write_text(text)
    backup.unlink()


def truncate(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.flush()
        file.write(text)


def with_formatter(path: Path, text: str) -> None:
    path.write_text(text + "  ")
    path.write_text(text)


async def reported(saved: SavedFiles, act: Callable[[], None], count: int = 1) -> list[frozenset[Path]]:
    """Return the batches that follow from ``act``; wait for ``count`` of them, then a little longer."""
    found: list[frozenset[Path]] = []

    async def collect() -> None:
        async for batch in saved.batches():
            found.append(batch)  # noqa: PERF401  # one by one, to be seen while it goes on

    task = asyncio.create_task(collect())
    await asyncio.sleep(0.3)
    act()
    for _ in range(6000):
        await asyncio.sleep(0.05)
        if len(found) >= count:
            break
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


@pytest.mark.parametrize("save", [in_place, atomic, vim, truncate, with_formatter])
async def test_a_save_is_reported_once_and_the_next_one_too(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("a = 0\n")
    saved = SavedFiles([file], quiet_s=0.1)
    assert await reported(saved, lambda: save(file, "a = 1\n")) == [{file}]
    assert await reported(saved, lambda: save(file, "a = 2\n")) == [{file}]


async def test_files_saved_together_are_one_batch_and_others_are_ignored(tmp_path: Path) -> None:
    one, two, other = (tmp_path / name for name in ("kernel.py", "helper.py", "notes.txt"))
    for file in (one, two):
        file.write_text("a = 0\n")
    saved = SavedFiles([one, two], quiet_s=0.2)

    def save() -> None:
        for file in (other, one, two):
            atomic(file, "a = 1\n")

    assert await reported(saved, save) == [{one, two}]


async def test_the_same_bytes_and_our_own_writing_are_no_save(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("a = 0\n")
    saved = SavedFiles([file], quiet_s=0.05)

    def act() -> None:
        atomic(file, "a = 0\n")
        atomic(file, "a = 1\n")
        saved.wrote(file)

    collected = asyncio.create_task(reported(saved, act, count=1))
    await asyncio.sleep(1.2)
    atomic(file, "a = 2\n")
    assert await collected == [{file}]


async def test_a_folder_that_is_replaced_is_still_watched(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    path = folder / "kernel.py"
    path.write_text("old")
    saved, found = SavedFiles([path], quiet_s=0.1), list[frozenset[Path]]()

    async def collect() -> None:
        async for batch in saved.batches():
            found.append(batch)  # one by one, to be seen while it goes on

    task = asyncio.create_task(collect())
    await asyncio.sleep(0.3)
    folder.rename(tmp_path / "aside")
    await asyncio.sleep(0.8)  # as a checkout of another branch: the folder is away for a while
    folder.mkdir()
    for text in ("after the checkout", "and again"):
        path.write_text(text)
        before = len(found)
        for _ in range(6000):
            await asyncio.sleep(0.05)
            if len(found) > before:
                break
        assert found[before:] == [frozenset({path})], text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
