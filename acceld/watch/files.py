"""Notice saves of some files, in whatever way an editor writes them.

Folders are watched, not files, because many editors save by replacing the file: then a watch on the old file sees
nothing more. Changes are collected until nothing changed for ``quiet_s`` seconds (a formatter runs after the editor),
at most for ``longest_s``.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from watchfiles import DefaultFilter, awatch

APPEARS_S = 1.0
"""Seconds that a file may be missing or empty during a save."""
LOOK_S = 0.05
FOLDER_S = 0.5
"""Seconds between checks that the watched folders are still the same."""
EMPTY = hashlib.sha256(b"").hexdigest()
MANY = 20
"""Greatest number of files that one save changes. A larger change is a checkout, not a save."""


class SavedFiles:
    """Notice watched files whose content changed or that are gone, and yield them in batches."""

    def __init__(self, files: Iterable[Path], *, quiet_s: float = 0.3, longest_s: float = 2.0) -> None:
        self._quiet_s, self._longest_s = quiet_s, longest_s
        self._files: set[Path] = set()
        self._seen: dict[Path, str] = {}
        self._folders_changed = asyncio.Event()
        self.watch(files)

    def watch(self, files: Iterable[Path]) -> None:
        """Watch these files, and no others, from now on. The present content of a new file is not reported."""
        wanted = {file.resolve() for file in files}
        folders = {file.parent for file in self._files}
        for file in wanted - self._files:
            self._seen[file] = digest(file)
        self._files = wanted
        if {file.parent for file in wanted} - folders:
            self._folders_changed.set()

    def wrote(self, file: Path) -> None:
        """Record that acceld itself wrote a file, so that the watch does not report the change as a save."""
        self._seen[file.resolve()] = digest(file)

    async def batches(self) -> AsyncIterator[frozenset[Path]]:
        """Yield each batch of files whose content differs from the content that was seen last."""
        changes: asyncio.Queue[set[Path]] = asyncio.Queue()
        notifier = asyncio.create_task(self._notify(changes))
        try:
            while True:
                first = asyncio.create_task(changes.get())
                await asyncio.wait({first, notifier}, return_when=asyncio.FIRST_COMPLETED)
                if notifier.done():
                    first.cancel()
                    await notifier
                touched = set(await first)
                until = time.monotonic() + self._longest_s
                while (left := until - time.monotonic()) > 0:
                    try:
                        touched |= await asyncio.wait_for(changes.get(), min(self._quiet_s, left))
                    except TimeoutError:
                        break
                changed = frozenset([file for file in sorted(touched) if await self._changed(file)])
                if changed:
                    yield changed
        finally:
            notifier.cancel()
            with suppress(asyncio.CancelledError):
                await notifier

    async def _notify(self, changes: asyncio.Queue[set[Path]]) -> None:
        while True:
            self._folders_changed.clear()
            folders = {file.parent for file in self._files}
            watched = {folder: known for folder in folders if (known := _identity(folder)) is not None}
            changes.put_nowait({file for file in self._files if file.is_file()})  # saved while nothing was watched
            looking = asyncio.create_task(self._look(folders, watched))
            try:
                async for found in awatch(
                    *watched,
                    recursive=False,
                    step=50,
                    watch_filter=DefaultFilter(),
                    stop_event=self._folders_changed,
                    rust_timeout=500,
                    yield_on_timeout=False,
                ):
                    touched = {Path(name) for _, name in found} & self._files
                    if touched:
                        changes.put_nowait(touched)
            finally:
                looking.cancel()
            if not self._folders_changed.is_set():
                return

    async def _look(self, folders: set[Path], watched: Mapping[Path, tuple[int, int]]) -> None:
        """Wait until a watched folder is replaced by a new folder of the same name, and make :meth:`batches` watch
        the new folder.
        """
        while all(_identity(folder) == watched.get(folder) for folder in folders):  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(FOLDER_S)
        self._folders_changed.set()

    async def _changed(self, file: Path) -> bool:
        """Return True if a file's content is new. A file that is missing or empty may be in the middle of a save, so
        wait a moment first.
        """
        now = digest(file)
        for _ in range(round(APPEARS_S / LOOK_S)):
            if now not in ("", EMPTY):
                break
            await asyncio.sleep(LOOK_S)
            now = digest(file)
        if now == self._seen.get(file):
            return False
        self._seen[file] = now
        return True


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return (device, inode) of a folder; None if it does not exist."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def digest(file: Path) -> str:
    """Return the hash of a file's content; "" if the file can not be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
