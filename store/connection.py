"""Open connections: one that writes and checkpoints, and any number that only read.

SQLite 3.7.0 to 3.51.2 can corrupt a database if two connections write or checkpoint the same write-ahead log at
once. So only one read-write connection may exist. A lock on a file beside the database ensures this. Readers
open the database with ``mode=ro``, which never checkpoints.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from acceld.errors import StoreError
from acceld.private_files import is_locked

BUSY_TIMEOUT_MS = 5000
JOURNAL_LIMIT_BYTES = 64 << 20
APPLICATION_ID = 0x61636C64
"""``acld``: identifies acceld's databases to ``file`` and :func:`check_version`."""
NEWEST_SCHEMA = 10
"""The newest schema version of this acceld: the number of its migrations."""
READER_LIMIT_S = 5.0
"""Longest time in seconds for which a reader may hold a snapshot. An old snapshot keeps the write-ahead log
from being reset.
"""


class WriterLock:
    """Exclusive lock of the one process that writes a database.

    The lock is taken when the object is made, which raises StoreError if another process has the lock.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot_write(path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreError(
                    f"another process writes {path}",
                    hint="A daemon has the file open (acceld status shows the daemon): use that daemon, or end it with acceld stop.",
                ) from error
            raise _cannot_write(path, error) from error

    def release(self) -> None:
        """Release the lock, so that another process can write the database."""
        os.close(self._descriptor)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"can not write {path.parent}: {error.strerror}",
        hint="acceld needs a folder it may write: use --home DIR, or change the folder's permissions.",
    )


def refuse_other_kinds(path: Path) -> None:
    """Raise StoreError if the path is something other than a regular file, such as a folder."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise StoreError(
            f"{path} is {kind}, but acceld keeps its database there",
            hint=f"Move {path.name} away, or use another state folder: --home DIR.",
        )


def refuse_emptied(path: Path) -> None:
    """Raise StoreError if the database file is empty although backups lie beside it.

    A new database in this file would hide that a history was lost.
    """
    copies = path.parent / "backups"
    if path.exists() and not path.stat().st_size and not _logged(path) and any(copies.glob("*.db")):
        raise StoreError(
            f"{path} is empty, and there are copies of it in {copies}",
            hint="`acceld db restore FILE` replaces the file by a copy. To start a new history, delete the empty file.",
        )


def _logged(path: Path) -> bool:
    """Return True if the write-ahead log has changes that may not be in the database file yet."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def refuse_without_log(path: Path, *, holds_lock: bool) -> None:
    """Raise StoreError if somebody deleted the write-ahead log, but not the log's index. ``holds_lock`` says that the
    caller holds the :class:`WriterLock`.

    Connections that only read check this too: they would begin a log of their own, and delete the index when they close.
    """
    index = path.with_name(path.name + "-shm")
    log = path.with_name(path.name + "-wal")
    if path.exists() and index.exists() and not log.exists():  # SQLite deletes the index before the log
        if not holds_lock and is_locked(_lock_of(path)):
            raise StoreError(
                f"{log} was deleted while a daemon uses {path.name}",
                hint="acceld stop ends the daemon, which writes all changes into the file. Delete nothing else.",
            )
        raise StoreError(
            f"{log} was deleted after a daemon was killed, so the newest changes are missing in {path.name}",
            hint=f"`acceld db restore FILE` replaces the database by a copy (copies lie in {path.parent / 'backups'}). To go on without "
            f"the newest changes, delete {index}.",
        )


def refuse_damaged(path: Path) -> None:
    """Raise StoreError if the write-ahead log of a killed process does not fit the database file.

    This happens if the file was replaced, or if the log is torn or was deleted. The check opens the file
    read-only, because a connection that may write would copy the log into the file when it closes.
    """
    refuse_without_log(path, holds_lock=True)
    if not _logged(path):
        return
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise opening_error(path, error) from error
    finally:
        connection.close()
    if found != "ok":
        raise opening_error(path, sqlite3.DatabaseError(f"malformed: {found.splitlines()[-1]}"))


def connect_writer(path: Path) -> sqlite3.Connection:
    """Return the read-write connection of this process. The caller has to hold the :class:`WriterLock`.

    Raise StoreError if the file can not be opened or is not a database.
    """
    refuse_other_kinds(path)
    refuse_damaged(path)
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


def check_version(connection: sqlite3.Connection, path: Path, newest: int = NEWEST_SCHEMA) -> int:
    """Return the schema version of the database file; 0 for a new file.

    Raise StoreError if the version is newer than ``newest``, or if the database belongs to another program.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if version > newest:
        raise StoreError(
            f"{path} has schema version {version}, but this acceld knows none above {newest}",
            hint="A newer acceld wrote the file: upgrade acceld, or use another state folder with --home DIR.",
        )
    if tables and application not in (0, APPLICATION_ID):
        raise StoreError(f"{path} is the database of another program", hint="Use another state folder with --home DIR.")
    return version


def connect_reader(path: Path) -> sqlite3.Connection:
    """Return a connection that can only read. Raise StoreError if there is no database, or if this acceld can not read
    it.
    """
    refuse_other_kinds(path)
    if not path.exists():
        raise StoreError(
            f"there is no database at {path}",
            hint="Nothing has run in this state folder yet: start with acceld optimize WORKLOAD.",
        )
    refuse_without_log(path, holds_lock=False)
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    wal = path.with_name(path.name + "-wal")
    if not os.access(path.parent, os.W_OK) and not wal.exists():
        address += "&immutable=1"  # a read-only folder without a log: nothing can be writing it
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA query_only = ON")
        if not check_version(connection, path):
            refuse_emptied(path)
            raise StoreError(
                f"{path} holds no history",
                hint="Nothing has run in this state folder yet: start with acceld optimize WORKLOAD.",
            )
    except sqlite3.Error as error:
        raise opening_error(path, error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def damage(path: Path, error: sqlite3.Error) -> StoreError | None:
    """Return an error with advice if ``error`` says that the file is damaged or not a database; otherwise None."""
    text = str(error)
    if "not a database" not in text and "malformed" not in text:
        return None
    copies = path.parent / "backups"
    hint = f"`acceld db restore FILE` replaces the file by a copy and keeps the damaged file; copies lie in {copies}."
    if not any(copies.glob("*.db")):
        hint = f"`acceld db restore FILE` would replace the file by a copy, but {copies} holds no copy. To begin anew, move {path.name} away."
    return StoreError(f"{path} is damaged or is not a database: {text}", hint=hint)


def opening_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return the StoreError, with advice, for an ``error`` that SQLite raised while the file was opened."""
    hint = "Check the folder's permissions and free space."
    return damage(path, error) or StoreError(f"can not open {path}: {error}", hint=hint)
