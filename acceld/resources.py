"""Find acceld's own files: prompts and workloads, in a checkout or in an installed wheel.

A wheel holds them under ``acceld/_data/``; a checkout has them beside the package. ``ACCELD_DATA`` names another folder
that holds both.
"""

from __future__ import annotations

import os
from pathlib import Path

from acceld.errors import AcceldError

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Return the folder called ``name``: ``prompts`` or ``workloads``. Raise AcceldError if the installation
    lacks it.
    """
    override = os.environ.get("ACCELD_DATA")
    places = [Path(override)] if override else [_PACKAGE.parent, _PACKAGE / "_data"]
    for place in places:
        folder = place / name
        if folder.is_dir() and (override or place != _PACKAGE.parent or (place / "pyproject.toml").is_file()):
            return folder
    raise AcceldError(
        f"acceld's {name} are missing: looked in {' and '.join(str(place / name) for place in places)}",
        hint="Install acceld again, or set ACCELD_DATA to a folder that holds prompts/ and workloads/.",
    )


def workloads_folder() -> Path:
    """Return the folder of acceld's own workloads."""
    return data_folder("workloads")


def prompts_folder() -> Path:
    """Return the folder of acceld's own prompts."""
    return data_folder("prompts")


def docs_folder() -> Path:
    """Return the folder of acceld's own pages, as Markdown."""
    return data_folder("docs")
