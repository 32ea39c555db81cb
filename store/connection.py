"""Open connections: one that writes and checkpoints, and any number that only read.

SQLite from 3.7.0 to 3.51.2 can corrupt a database when two connections write or checkpoint the same write-ahead log at
once. So exactly one read-write connection exists, which a lock beside the file ensures. Readers open the file with
``mode=ro``, which never checkpoints.
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
APPLICATION_ID = 0x61636C64
"""``acld``: identifies acceld's databases to ``file`` and :func:`check_version`."""
NEWEST_SCHEMA = 10
"""The newest schema version of this acceld: the number of its migrations."""
READER_LIMIT_S = 5.0
"""Limit in seconds on a reader's snapshot, because an old snapshot keeps the write-ahead log from being reset."""


class WriterLock:
    """The right to write one database, held while this object is open."""

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
        """Give the right to write back, so that another process can take it."""
        os.close(self._descriptor)


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"can not write {path.parent}: {error.strerror}",
        hint="acceld needs a folder it may write: use --home DIR, or change the folder's permissions.",
    )


def refuse_other_kinds(path: Path) -> None:
    """Raise StoreError if something other than a file lies at the path, such as a folder."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise StoreError(
            f"{path} is {kind}, and acceld keeps its database there",
            hint="Move it away, or use another state folder: --home DIR.",
        )


def refuse_emptied(path: Path) -> None:
    """Raise StoreError for an empty file with copies beside it, because a new database there would hide a loss."""
    copies = path.parent / "backups"
    if path.exists() and not path.stat().st_size and not _logged(path) and any(copies.glob("*.db")):
        raise StoreError(
            f"{path} is empty, and there are copies of it in {copies}",
            hint="`acceld db restore FILE` replaces it by a copy; delete the empty file to start a new history.",
        )


def _logged(path: Path) -> bool:
    """Return True if there are changes in the write-ahead log."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def refuse_damaged(path: Path) -> None:
    """Raise StoreError if the log that a killed process left does not fit the file: the file was replaced, or the log
    is torn or was deleted.

    The check is read-only, because a writer that closes would write the log into the file.
    """
    index = path.with_name(path.name + "-shm")
    log = path.with_name(path.name + "-wal")
    if path.exists() and index.exists() and not log.exists():  # SQLite deletes the index before the log
        raise StoreError(
            f"{log} was deleted after a daemon was killed: what was written last is missing in {path.name}",
            hint=f"`acceld db restore FILE` replaces it by a copy (see {path.parent / 'backups'}); delete {index} to go "
            "on without what is missing.",
        )
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
    """Return the only read-write connection. Raise StoreError if the file can not be opened or is not a database."""
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
    """Return the file's schema version. Raise StoreError for a version newer than ``newest``, and for another program's
    database.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if version > newest:
        raise StoreError(
            f"{path} has schema version {version}; this acceld knows {newest}",
            hint="It was written by a newer acceld: upgrade acceld, or use another state folder with --home.",
        )
    if tables and application not in (0, APPLICATION_ID):
        raise StoreError(f"{path} is a database of another program", hint="Use another state folder with --home.")
    return version


def connect_reader(path: Path) -> sqlite3.Connection:
    """Return a connection that can only read. Raise StoreError if there is no database that this acceld can read."""
    refuse_other_kinds(path)
    if not path.exists():
        raise StoreError(f"there is no database at {path}", hint="Nothing has run here yet: acceld optimize WORKLOAD.")
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
            raise StoreError(f"{path} holds no history", hint="Nothing has run here yet: acceld optimize WORKLOAD.")
    except sqlite3.Error as error:
        raise opening_error(path, error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def damage(path: Path, error: sqlite3.Error) -> StoreError | None:
    """Return the error for a damaged file; None if ``error`` means something else."""
    text = str(error)
    if "not a database" not in text and "malformed" not in text:
        return None
    copies = path.parent / "backups"
    hint = f"`acceld db restore FILE` replaces it by a copy and keeps the damaged file; copies are in {copies}."
    if not any(copies.glob("*.db")):
        hint = f"`acceld db restore FILE` replaces it by a copy; {copies} holds none. Move it away to begin anew."
    return StoreError(f"{path} is damaged or no database: {text}", hint=hint)


def opening_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return the error for a failed opening, with advice."""
    hint = "Check the folder's permissions and free space."
    return damage(path, error) or StoreError(f"can not open {path}: {error}", hint=hint)
