"""Write files and make folders to which only their owner has access. Standard library only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from acceld.errors import UsageError


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, and replace an existing one atomically. Raises UsageError if
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
            f"can not write {path}: {error.strerror}", hint="Make room there, or use a folder elsewhere: --home DIR."
        ) from error


def read_private(path: Path) -> str:
    """Return the text of a file that belongs to this user and that nobody else can write. Any other file, and a
    link, gives an empty text.
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


def user_folder(variable: str, default: str) -> Path:
    """Return acceld's folder in a base folder of the user. ``variable`` names it, such as ``XDG_STATE_HOME``;
    ``default`` is its path below the home folder if the variable is not set.
    """
    given = os.environ.get(variable, "")
    home = os.path.expanduser("~")
    base = Path(given) if os.path.isabs(given) else Path(home if os.path.isabs(home) else "/nonexistent") / default
    return base / "acceld"
