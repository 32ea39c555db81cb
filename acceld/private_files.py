"""Write files, look at locks, and make folders, to which only their owner has access. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import resource
import stat
from pathlib import Path

from acceld.errors import AcceldError, UsageError

NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of the system that say that this user may not read or write a file."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of the system that say that a disk, a quota or a limit leaves no room for a file."""
TOO_MANY = (errno.EMFILE, errno.ENFILE)
"""Errors of the system that say that too many files are open."""


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, and replace an existing one atomically. Raise UsageError if
    that fails.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(
            f"can not write {path}: {error.strerror}",
            hint="Make room there, or make the folder writable, or use another folder: --home DIR.",
        ) from error


def read_private(path: Path) -> str:
    """Return the text of a file that belongs to this user and that nobody else can write; empty for any other file,
    and for a link.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, errors="replace") as stream:
        info = os.fstat(stream.fileno())
        mine = stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o022
        return stream.read() if mine else ""


def private_folder(folder: Path) -> bool:
    """Make a folder that only its owner can use, or withdraw other users' access to an existing one.

    Return False if the folder belongs to another user, is a link, or can not be made.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            return False
        if stat.S_IMODE(info.st_mode) != 0o700:
            os.chmod(folder, 0o700)
    except OSError:
        return False
    return True


def is_shared(folder: Path) -> bool:
    """Tell whether a folder is shared by all users, as /tmp is, so that a file there may be another user's.

    A user's own folder counts as shared only with the sticky bit: on some file systems every folder is writable for all.
    """
    with contextlib.suppress(OSError):
        found = folder.stat()
        shared = found.st_mode & stat.S_ISVTX or found.st_uid != os.getuid()
        return bool(found.st_mode & stat.S_IWOTH and shared)
    return False


def is_locked(path: Path) -> bool:
    """Tell whether a process holds the exclusive lock of a file. Return False if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def unusable(error: OSError) -> AcceldError | None:
    """Return the error for a file that this user may not use, a full disk, or too many open files, with the remedy.

    Return None for an error of another kind, or for one that names no file.
    """
    if error.errno in TOO_MANY:
        return AcceldError(
            f"this process may open {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} files, which is not enough",
            hint="Raise the limit where acceld is started: ulimit -n 1024.",
        )
    if error.filename is None:
        return None
    if error.errno in NO_ROOM:
        return AcceldError(
            f"no room for {os.fsdecode(error.filename)}: {error.strerror}",
            hint="Make room on that disk, and give the command again. acceld clean removes data that acceld makes again.",
        )
    return no_access(error) if error.errno in NO_ACCESS else None


def no_access(error: OSError) -> UsageError:
    """Return the error that says which file or folder this user may not use, who owns it, and what to do.

    ``error`` is one of NO_ACCESS and names the file.
    """
    other = other_owner(Path(os.fsdecode(error.filename)))
    who = f"Run the command as {other}, to whom it belongs, or name" if other else "Change its permissions, or name"
    return UsageError(
        f"no access to {os.fsdecode(error.filename)}: {error.strerror}",
        hint=f"{who} a place that you may use; --home DIR names another state folder.",
    )


def other_owner(path: Path) -> str:
    """Return the name of the owner of a path, or of its nearest folder that can be looked at; an empty text if this
    process's user is the owner.
    """
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            owner = place.stat().st_uid
            return "" if owner == os.geteuid() else user_name(owner)
    return ""


def user_name(number: int) -> str:
    """Return the name of the user with this number; ``user 1000`` if the user has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container's user often has no entry
        return f"user {number}"


def user_folder(variable: str, default: str) -> Path:
    """Return acceld's folder in a base folder of the user. ``variable`` names it, such as ``XDG_STATE_HOME``;
    ``default`` is its path below the home folder if the variable is not set.
    """
    given = os.environ.get(variable, "")
    home = os.path.expanduser("~")
    base = Path(given) if os.path.isabs(given) else Path(home if os.path.isabs(home) else "/nonexistent") / default
    return base / "acceld"
