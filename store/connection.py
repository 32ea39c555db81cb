"""Connections: one that writes and owns checkpoints, and any number that only read.

SQLite from 3.7.0 to 3.51.2 can corrupt a database when two connections write or checkpoint the same write-ahead log
at once. So exactly one read-write connection exists (a lock beside the file makes sure), and readers open the file
with ``mode=ro``, which never checkpoints.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from acceld.errors import StoreError

BUSY_TIMEOUT_MS = 5000
JOURNAL_LIMIT_BYTES = 64 << 20
READER_LIMIT_S = 5.0
"""No reader holds a snapshot longer: an old snapshot keeps the write-ahead log from being reset."""


class WriterLock:
    """The right to write one database, held as long as this object is open."""

    def __init__(self, path: Path) -> None:
        place = path.with_name(path.name + ".lock")
        try:
            self._descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot_write(path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreError(
                    f"another process writes {path}",
                    hint="Let the running daemon do it (acceld status), or stop it first (acceld stop).",
                ) from error
            raise _cannot_write(path, error) from error

    def release(self) -> None:
        """Give the right up."""
        os.close(self._descriptor)


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"can not write {path.parent}: {error.strerror}",
        hint="acceld needs a folder it may write: use --home DIR, or change the folder's permissions.",
    )


def connect_writer(path: Path) -> sqlite3.Connection:
    """The one read-write connection. StoreError where the file can not be opened or is no database."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        os.chmod(path, 0o600)
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
    except sqlite3.Error as error:
        raise opening_error(path, error) from error
    except OSError as error:
        raise _cannot_write(path, error) from error
    if mode != "wal":
        connection.close()
        raise StoreError(
            f"{path.parent} can not hold a database with a write-ahead log (journal mode {mode})",
            hint="Use a state folder on a local disk: --home DIR.",
        )
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that can only read. StoreError where there is no database."""
    if not path.exists():
        raise StoreError(f"there is no database at {path}", hint="Nothing has run here yet: acceld optimize WORKLOAD.")
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    wal = path.with_name(path.name + "-wal")
    if not os.access(path.parent, os.W_OK) and not wal.exists():
        address += "&immutable=1"  # a read-only folder without a log: nobody can be writing it
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        raise opening_error(path, error) from error
    return connection


def opening_error(path: Path, error: sqlite3.Error) -> StoreError:
    """What went wrong while opening, and what to do."""
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return StoreError(
            f"{path} is damaged or no database: {text}",
            hint=f"Move it away and start again, or restore a copy from {path.parent / 'backups'}.",
        )
    return StoreError(f"can not open {path}: {text}", hint="Check the folder's permissions and free space.")
