"""Record which state folders this user made or trusts. The record lies outside of these folders.

A cloned repository may contain an ``.acceld`` whose runs would continue with the user's money and whose kernels would
be executed. So each state folder has a secret in its file ``origin``, and the user's own folder (``XDG_STATE_HOME``)
has the secret's hash beside the state folder's path. A folder from elsewhere, a copied folder and a moved folder lack
such a record until the user trusts them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from acceld.errors import UsageError
from acceld.private_files import private_folder, read_private, user_folder, write_private

MARK = "origin"


def records() -> Path:
    """Return the folder that holds one file for each trusted state folder."""
    return user_folder("XDG_STATE_HOME", ".local/state") / "histories"


def is_ours(folder: Path) -> bool:
    """Tell whether this user made or trusted the state folder at its present path."""
    secret, recorded = read_private(folder / MARK).strip(), _read(_record_of(folder)).get("sha256")
    return bool(secret) and isinstance(recorded, str) and hmac.compare_digest(_digest(secret), recorded)


def adopt(folder: Path) -> None:
    """Record a state folder as the user's: write a new secret into the folder, and the secret's hash into acceld's own
    folder of the user.

    Raise UsageError if a file can not be written.
    """
    if not can_adopt():
        raise UsageError(
            f"{records()}, where acceld notes which state folders are yours, can not be made or is not yours alone",
            hint="XDG_STATE_HOME=DIR names another place.",
        )
    secret, record = secrets.token_hex(32), _record_of(folder)
    write_private(record, json.dumps({"folder": os.path.realpath(folder), "sha256": _digest(secret)}) + "\n")
    write_private(folder / MARK, secret + "\n")


def can_adopt() -> bool:
    """Make the folder with the records. Return True if only this user has access to it."""
    folder = records()
    with contextlib.suppress(OSError):  # the next line reports the failure
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return private_folder(folder)


def disown(folder: Path) -> bool:
    """Withdraw the trust in a state folder. Return True if it was trusted before."""
    known = is_ours(folder)
    _record_of(folder).unlink(missing_ok=True)
    return known


def trusted_histories() -> list[Path]:
    """Return the state folders that this user made or trusted and that still exist."""
    return sorted(folder for folder in _recorded() if is_ours(folder))


def _recorded() -> Iterator[Path]:
    for record in records().iterdir() if records().is_dir() else ():
        if isinstance(folder := _read(record).get("folder"), str):
            yield Path(folder)


def _record_of(folder: Path) -> Path:
    return records() / f"{_digest(os.path.realpath(folder))[:32]}.json"


def _read(record: Path) -> dict[str, object]:
    try:
        value = json.loads(read_private(record))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()
