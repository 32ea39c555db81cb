"""Manage the list of folders whose acceld.toml may set keys that send data elsewhere or run commands.

Trust holds for the file's present content. If its bytes change, for example by ``git pull``, the user has to
trust it again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from acceld.errors import UsageError
from acceld.private_files import write_private

FILE_NAME = "acceld.toml"


def trust_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the file that lists the user's trusted folders."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    return Path(base) / "acceld" / "trusted.json"


def trusted_folders(environ: Mapping[str, str] | None = None) -> frozenset[Path]:
    """Return the folders whose acceld.toml the user has trusted and nobody has changed since."""
    return frozenset(Path(folder) for folder, digest in _read(trust_file(environ)).items() if _digest(folder) == digest)


def trust(folder: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Trust the acceld.toml in ``folder`` as it is now, and return its path. Raise UsageError if the folder has no
    acceld.toml.
    """
    folder = folder.resolve()
    digest = _digest(folder)
    if digest is None:
        raise UsageError(f"there is no {FILE_NAME} in {folder}", hint=f"Give the folder that holds your {FILE_NAME}.")
    _write(trust_file(environ), _read(trust_file(environ)) | {str(folder): digest})
    return folder / FILE_NAME


def distrust(folder: Path, environ: Mapping[str, str] | None = None) -> bool:
    """Withdraw the trust in a folder. Return True if it was trusted before."""
    known = _read(trust_file(environ))
    found = known.pop(str(folder.resolve()), None) is not None
    _write(trust_file(environ), known)
    return found


def _digest(folder: str | Path) -> str | None:
    try:
        return hashlib.sha256((Path(folder) / FILE_NAME).read_bytes()).hexdigest()
    except OSError:
        return None


def _read(path: Path) -> dict[str, str]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(path: Path, known: dict[str, str]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"can not write {path}: {error.strerror}", hint="XDG_CONFIG_HOME=DIR names another place."
        ) from error
    write_private(path, json.dumps(known, indent=2) + "\n")
