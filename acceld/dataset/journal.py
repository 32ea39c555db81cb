"""Keep the finished programs of a data set in a file in its folder, so that interrupted work continues where it ended."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from acceld.dataset.records import Program
from acceld.errors import UsageError

FILE = "work.sqlite"


class Journal:
    """The finished programs of a data set, by number. Only one process at a time can open a folder's journal."""

    def __init__(self, folder: Path, basis: Mapping[str, str]) -> None:
        """Open the journal of a folder; create the journal if the folder has none. ``basis`` names everything on which
        each program depends, such as the version of acceld.

        Raise UsageError if the folder holds something else, was begun with another basis, or is in use by another
        process.
        """
        place = folder / FILE
        if folder.is_file() or (folder.is_dir() and not place.exists() and any(folder.iterdir())):
            raise UsageError(f"{folder} is no data set that acceld began", hint="Give a new folder.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(f"can not write {folder}: {error.strerror}", hint="Give another folder.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise UsageError(
                f"another acceld works in {folder}", hint="Wait until the other acceld ends, or stop it."
            ) from error
        try:
            self._connection = sqlite3.connect(place)
            self._begin(folder, basis)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise UsageError(f"{place} can not be used: {error}", hint="Give a new folder.") from error
        except UsageError:
            self.close()
            raise

    def _begin(self, folder: Path, basis: Mapping[str, str]) -> None:
        with self._connection as connection:
            connection.execute("create table if not exists basis (name text primary key, value text not null)")
            connection.execute(
                "create table if not exists programs (number integer primary key, record text not null,"
                " lowering_s real not null, checking_s real not null, rewriting_s real not null)"
            )
            connection.executemany("insert or ignore into basis values (?, ?)", basis.items())
        begun = dict(self._connection.execute("select name, value from basis"))
        changed = [
            f"{name} {begun.get(name)}, not {value}" for name, value in basis.items() if begun.get(name) != value
        ]
        if changed:
            raise UsageError(
                f"{folder} was begun with {'; '.join(changed)}",
                hint="Use the same values again, or give a new folder.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, so that another process can open it."""
        self._connection.close()
        os.close(self._lock)

    def add(self, program: Program, seconds: Mapping[str, float]) -> None:
        """Store a finished program, and the seconds that each stage took, in one transaction."""
        spent = tuple(seconds.get(stage, 0.0) for stage in STAGES)
        with self._connection as connection:
            record = msgspec.json.encode(program).decode()
            connection.execute("insert into programs values (?, ?, ?, ?, ?)", (program.number, record, *spent))

    def numbers(self) -> dict[int, bool]:
        """Return the number of every finished program, with True if the program is in the data set and False if the
        program failed.
        """
        found = self._connection.execute("select number, json_array_length(record, '$.members') > 0 from programs")
        return {number: bool(made) for number, made in found}

    def pairs(self) -> dict[int, int]:
        """Return the number of pairs of each program that is in the data set, as a dict by the program's number."""
        found = "select number, json_array_length(record, '$.pairs') from programs"
        return dict(
            self._connection.execute(f"{found} where json_array_length(record, '$.members') > 0 order by number")
        )

    def programs(self) -> Iterator[Program]:
        """Yield the finished programs in the order of their numbers."""
        for (record,) in self._connection.execute("select record from programs order by number"):
            yield msgspec.json.decode(record, type=Program)

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each stage took for all programs together."""
        sums = ", ".join(f"coalesce(sum({stage}_s), 0.0)" for stage in STAGES)
        return dict(zip(STAGES, self._connection.execute(f"select {sums} from programs").fetchone(), strict=True))


STAGES = ("lowering", "checking", "rewriting")
"""Stages of making a program whose seconds are kept. Lowering and checking count the seconds of their child processes.
"""
