"""Simulated power cuts below SQLite: what was not synced is lost, torn at a sector, or kept, at random.

Needs the package apsw, with which a virtual file system can be written in Python. The pragmas are those of
the store. The write-ahead log's index is kept in memory (exclusive locking), which changes nothing about what is synced.
"""

from __future__ import annotations

import importlib
import random
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR = 512


@dataclass
class Disk:
    """One file: its content that is certainly on the disk, and the writes since the last sync."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(offset, bytes), or (size, None) for a truncation."""

    def sync(self) -> None:
        """Move all writes to the disk."""
        for write in self.pending:
            apply(self.durable, write)
        self.pending.clear()

    def after_the_cut(self, rng: random.Random) -> bytes:
        """Return the files that a reboot finds."""
        image = bytearray(self.durable)
        for offset, data in self.pending:
            kind = rng.random()
            if kind < 0.4:
                continue
            if data is not None and kind < 0.6:
                data = data[: rng.randrange(0, len(data) + 1, SECTOR)]
            apply(image, (offset, data))
        return bytes(image)


def apply(image: bytearray, write: tuple[int, bytes | None]) -> None:
    """Carry out one write or truncation."""
    offset, data = write
    if data is None:
        del image[offset:]
        return
    if len(image) < offset + len(data):
        image.extend(bytes(offset + len(data) - len(image)))
    image[offset : offset + len(data)] = data


def cut_power(folder: Path, rounds: int, seed: int = 0) -> dict[str, Any] | None:
    """Cut the power at a random write of each round, for FULL and for NORMAL. Return what was lost or damaged; None
    without apsw.
    """
    try:
        apsw = importlib.import_module("apsw")
    except ImportError:
        return None
    reported: dict[str, Any] = {"rounds": rounds, "sqlite": apsw.sqlite_lib_version()}
    for mode in ("FULL", "NORMAL"):
        lost = corrupt = 0
        for number in range(rounds):
            rng = random.Random(f"{seed} {mode} {number}")
            acknowledged, images = _write_until_cut(apsw, folder / f"{mode}{number}.db", mode, rng)
            stored, sound = _reboot(folder, images)
            lost += stored < acknowledged
            corrupt += not sound
        reported |= {f"{mode.lower()}_lost": lost, f"{mode.lower()}_corrupt": corrupt}
    return reported


def _write_until_cut(apsw: Any, path: Path, mode: str, rng: random.Random) -> tuple[int, dict[str, bytes]]:
    """Write until the power is cut. Return the number of commits acknowledged before the cut, and each file as found
    after a reboot.
    """
    disks: dict[str, Disk] = {}
    state = {"left": rng.randrange(20, 400), "acknowledged": 0}
    found: dict[str, Any] = {}

    def tick() -> None:
        state["left"] -= 1
        if state["left"] == 0:
            found["acknowledged"] = state["acknowledged"]
            found["images"] = {name: disk.after_the_cut(rng) for name, disk in disks.items()}

    class File(apsw.VFSFile):  # type: ignore[misc]
        """A file that records its writes."""

        def __init__(self, base: str, name: Any, flags: Any) -> None:
            text = name.filename() if hasattr(name, "filename") else str(name)
            self.disk = disks.setdefault(Path(text).name, Disk())
            super().__init__(base, name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:
            super().xWrite(data, offset)
            self.disk.pending.append((offset, bytes(data)))
            tick()

        def xTruncate(self, size: int) -> None:
            super().xTruncate(size)
            self.disk.pending.append((size, None))
            tick()

        def xSync(self, flags: int) -> None:
            super().xSync(flags)
            tick()
            self.disk.sync()

    class Vfs(apsw.VFS):  # type: ignore[misc]
        """A file system of SQLite that opens such files."""

        def __init__(self, name: str) -> None:
            super().__init__(name, "")

        def xOpen(self, name: Any, flags: Any) -> Any:
            return File("", name, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:
            super().xDelete(filename, syncdir)
            disks.pop(Path(filename).name, None)

    vfs = Vfs(f"cut {path.name}")
    connection = apsw.Connection(str(path), vfs=vfs.vfs_name if hasattr(vfs, "vfs_name") else f"cut {path.name}")
    for pragma in (
        "locking_mode = EXCLUSIVE",
        "journal_mode = WAL",
        f"synchronous = {mode}",
        "wal_autocheckpoint = 20",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
    number = 0
    while state["left"] > 0:
        number += 1
        connection.execute("INSERT INTO rows VALUES (?, ?)", (number, "x" * rng.randrange(10, 6000)))
        if state["left"] > 0:
            state["acknowledged"] = number
    connection.close()
    return found["acknowledged"], found["images"]


def _reboot(folder: Path, images: dict[str, bytes]) -> tuple[int, bool]:
    """Return the rows after the cut, and True if the file is sound."""
    place = folder / "reboot"
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    main = ""
    for name, image in images.items():
        if image and not name.endswith("-shm"):
            (place / name).write_bytes(image)
        if name.endswith(".db"):
            main = name
    connection = sqlite3.connect(place / main)
    try:
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        has = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'rows'").fetchone()[0]
        stored = connection.execute("SELECT ifnull(max(number), 0) FROM rows").fetchone()[0] if has else 0
    except sqlite3.DatabaseError:
        return 0, False
    finally:
        connection.close()
    return stored, sound
