"""Find and manage the state folder. Standard library only.

The folder holds ``acceld.db`` (history), ``token`` (which clients send), ``daemon.json`` (about the running
daemon), ``daemon.lock``, ``log/acceld.log``, ``backups/``, and ``origin``, the proof that this user made or
trusted the folder. Only the folder's owner has access. One daemon serves a folder at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld import origins
from acceld.errors import AcceldError, DaemonError, UsageError
from acceld.private_files import (
    is_locked,
    is_shared,
    other_owner,
    private_folder,
    user_folder,
    write_private,
)

FOLDER = ".acceld"
DATASETS = "datasets"
IGNORE = ".gitignore"
SOCKET_LIMIT = 107
"""Limit in bytes on the path of a unix socket."""

NETWORK_FILE_SYSTEMS = frozenset(
    "nfs nfs4 cifs smb smbfs smb3 ncpfs afs 9p ceph fuse.sshfs fuse.s3fs fuse.rclone fuse.glusterfs glusterfs lustre "
    "gpfs beegfs fuse.ceph orangefs pvfs2 fuse.gcsfuse fuse.mount-s3 davfs fuse.davfs2".split()
)
"""Network file systems. Their locks and their order of writes are not reliable enough for a write-ahead log."""


@dataclass(frozen=True, slots=True)
class Home:
    """A state folder, by its path."""

    path: Path

    @property
    def database(self) -> Path:
        """Return the path of the database."""
        return self.path / "acceld.db"

    @property
    def token_file(self) -> Path:
        """Return the path of the file with the token that clients send."""
        return self.path / "token"

    @property
    def daemon_file(self) -> Path:
        """Return the path of the file about the daemon: pid, socket, version, start. The file exists while a daemon
        runs.
        """
        return self.path / "daemon.json"

    @property
    def lock_file(self) -> Path:
        """Return the path of the file that the daemon keeps locked."""
        return self.path / "daemon.lock"

    @property
    def log_file(self) -> Path:
        """Return the path of the daemon's log. Rotated files are beside it."""
        return self.path / "log" / "acceld.log"

    @property
    def playbook(self) -> Path:
        """Return the path of the file with a person's rules for planners. acceld reads it, and never writes it."""
        return self.path / "playbook.md"

    @property
    def backups(self) -> Path:
        """Return the folder for backup copies of the database."""
        return self.path / "backups"

    @property
    def datasets(self) -> Path:
        """Return the folder of data sets (inputs and reference outputs), which is made private at each call. Missing
        data sets are made again.
        """
        return dataset_folder(self.path)

    @property
    def made_again(self) -> tuple[Path, ...]:
        """Return the folders in the state folder that may be deleted, because acceld makes their files again: noise
        floors, compiled kernels.
        """
        return self.path / "floors", self.path / "neuron"

    def socket(self) -> Path:
        """Return the path for the socket of a new daemon. The path lies in the user's runtime folder, which is created,
        because a socket's path has to be short.
        """
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12] + ".sock"
        for folder in _runtime_folders():
            if len(os.fsencode(folder / name)) <= SOCKET_LIMIT and private_folder(folder):
                return folder / name
        raise AcceldError(
            "there is no folder for the daemon's socket",
            hint="Set XDG_RUNTIME_DIR to a short path of a folder that is yours alone.",
        )

    def prepare(self) -> Path:
        """Make the folder if it is missing, check that it can be used, and return its path.

        Call this before you write to the folder or execute something from it. Raise UsageError if the folder
        can not be written, lies on a network file system, or has content that this user neither made nor
        trusts.
        """
        kind = file_system(self.path)
        if kind in NETWORK_FILE_SYSTEMS:
            raise UsageError(
                f"{self.path} is on a network file system ({kind}), where a database can be damaged",
                hint="Use a folder on a local disk: --home DIR.",
            )
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is a file, not a state folder", hint="give a folder: --home DIR")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(self.path, 0o700)
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            with self._making():
                self._own()
                ignore = self.path / IGNORE
                if not (ignore.exists() and ignore.stat().st_size):  # a full disk leaves an empty file
                    ignore.write_text("*\n")
            for folder in (self.log_file.parent, self.backups):
                folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            other = other_owner(self.path)
            raise UsageError(
                f"can not use {self.path} as state folder: {error.strerror}"
                + (f"; it belongs to {other}" if other else ""),
                hint="acceld needs a folder that it may write: --home DIR.",
            ) from error
        return self.path

    @contextlib.contextmanager
    def _making(self) -> Iterator[None]:
        """Keep other processes from creating the same state folder, for the duration of the block."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _own(self) -> None:
        """Record in an empty folder that this user made it. Raise UsageError for a folder with content that this
        user neither made nor trusts.
        """
        if origins.is_ours(self.path):
            return
        if any(entry.name != IGNORE for entry in self.path.iterdir()):
            raise foreign(self.path)
        origins.adopt(self.path)

    def daemon(self) -> dict[str, Any] | None:
        """Return what the running daemon wrote about itself; None if no daemon runs.

        The call never delays the start of a daemon. Raise PermissionError if this user can not look into the folder,
        so that it is unknown whether a daemon runs.
        """
        try:
            record: dict[str, Any] = json.loads(self.daemon_file.read_text())
        except (OSError, ValueError) as error:
            if isinstance(error, PermissionError) and not os.access(self.path, os.X_OK):
                raise
            return None
        return record if self.is_served() else None

    def is_served(self) -> bool:
        """Tell whether a daemon serves the folder now."""
        return is_locked(self.lock_file)

    def token(self) -> str:
        """Return the token that clients send. Raise DaemonError if its file can not be read."""
        try:
            return self.token_file.read_text().strip()
        except OSError as error:
            raise DaemonError(
                f"can not read {self.token_file}: {error.strerror}",
                hint="Only the user who started the daemon can talk to it.",
            ) from error


def foreign(folder: Path) -> UsageError:
    """Return the error that says that this user neither made nor trusts a state folder."""
    return UsageError(
        f"{folder} is not known to be yours: it came with a checkout, was copied or moved, or an older acceld made it",
        hint="Its runs would go on and its kernels be executed. Look at it: acceld runs. To trust it as it is: "
        f"acceld config trust --history {folder}. To use another: --home DIR.",
    )


def find_home(explicit: str | os.PathLike[str] | None = None, folder: Path | None = None) -> Home:
    """Return the state folder at ``explicit``.

    Without ``explicit`` it is the nearest ``.acceld`` in ``folder`` (default: the current folder) or above it, except in
    shared folders above, such as /tmp. If there is no such folder, the result is ``.acceld`` in
    ``folder``, which is not made yet.
    """
    if explicit:
        return Home(Path(explicit).expanduser().absolute())
    if os.environ.get("ACCELD_HOME"):
        return Home(Path(os.environ["ACCELD_HOME"]).expanduser().absolute())
    here = (folder or Path.cwd()).absolute()
    for parent in (here, *here.parents):
        if _is_ours(parent / FOLDER) and (parent == here or not is_shared(parent)):
            return Home(parent / FOLDER)
    return Home(here / FOLDER)


def dataset_folder(state: Path) -> Path:
    """Return the folder for data sets, made private: a folder in the user's cache, which all state folders
    share.

    The folder lies in the state folder instead if the cache is on a network file system, where locks do not work
    reliably, or if other users have access to the cache.
    """
    shared = user_folder("XDG_CACHE_HOME", ".cache") / DATASETS
    with contextlib.suppress(OSError):  # the next line checks if the folder can be used
        shared.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    usable = file_system(shared) not in NETWORK_FILE_SYSTEMS and private_folder(shared) and os.access(shared, os.W_OK)
    return shared if usable else state / DATASETS


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder belongs to this user, and not to another user of a shared place such as /tmp."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


class DaemonLock:
    """Lock on a state folder that only one daemon holds. The system releases it when the process ends, in
    whatever way.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        try:
            self._descriptor = os.open(home.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"can not write {home.path}: {error.strerror}", hint="Use a folder that you may write: --home DIR."
            ) from error
        # A client that checks for a daemon holds a shared lock for an instant.
        for _ in range(50):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                record = _recorded(home)
                if record is not None:
                    break
                time.sleep(0.02)
        os.close(self._descriptor)
        who = f" (pid {record['pid']})" if record else ""
        raise DaemonError(
            f"a daemon{who} already serves {home.path}",
            hint="acceld status shows it, acceld stop ends it; --home DIR uses another folder.",
        )

    def new_token(self) -> str:
        """Write and return a new token for clients. Earlier tokens are refused from then on."""
        token = secrets.token_hex(32)
        write_private(self._home.token_file, token + "\n")
        return token

    def announce(self, socket: Path, version: str) -> dict[str, Any]:
        """Write ``daemon.json``, by which clients find the daemon, and return its content. Call it once the
        socket exists.
        """
        record = {
            "pid": os.getpid(),
            "process_started": process_start(os.getpid()),
            "started_at": time.time(),
            "version": version,
            "socket": str(socket),
        }
        write_private(self._home.daemon_file, json.dumps(record) + "\n")
        return record

    def release(self) -> None:
        """Remove the files by which clients find the daemon, and release the lock."""
        record = _recorded(self._home)
        if record is None or record["pid"] == os.getpid():  # otherwise another daemon serves a new folder at this path
            self._home.daemon_file.unlink(missing_ok=True)
        os.close(self._descriptor)


def _recorded(home: Home) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(home.daemon_file.read_text())
    except (OSError, ValueError):
        return None
    return record if process_start(record.get("pid", 0)) == record.get("process_started") else None


def process_start(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot. The start tells the process from a later process with
    the same pid.

    Return None if there is no such process, or if it has ended and only waits for its parent to collect its exit
    code.
    """
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *values = stat_line.rpartition(")")[2].split()
    return None if state in "ZX" else int(values[18])


def _runtime_folders() -> list[Path]:
    folders = []
    if os.environ.get("XDG_RUNTIME_DIR"):
        folders.append(Path(os.environ["XDG_RUNTIME_DIR"]) / "acceld")
    return [*folders, Path(f"/tmp/acceld-{os.getuid()}")]


def file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds (or will hold) ``path``; empty if unknown.

    ``mounts`` is the text of a ``mountinfo`` file, by default this process's own.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text()
        except OSError:
            return ""
    resolved = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        mount = left.split()[4].encode().decode("unicode_escape")
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind
