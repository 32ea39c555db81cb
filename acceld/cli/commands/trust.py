"""``acceld trust DIR``: let a folder's acceld.toml set keys that can send data elsewhere or run commands."""

from __future__ import annotations

import argparse
from pathlib import Path

from acceld.cli.arguments import add_json
from acceld.cli.output import answer, say
from acceld.trust import distrust, trust, trusted_folders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", nargs="?", metavar="DIR", help="the folder that holds acceld.toml")
    parser.add_argument("--list", action="store_true", help="list trusted folders")
    parser.add_argument("--remove", action="store_true", help="take trust back")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trust a folder, remove its trust, or list trusted folders."""
    if arguments.folder is None or arguments.list:
        folders = sorted(map(str, trusted_folders()))
        return answer(arguments, {"trusted": folders}, "\n".join(folders) or "no folder is trusted")
    folder = Path(arguments.folder)
    if arguments.remove:
        was = distrust(folder)
        done = f"{folder.resolve()} is no longer trusted" if was else f"{folder.resolve()} was not trusted"
    else:
        done = f"trusted {trust(folder)} as it is now"
        say("When the file changes, it has to be trusted again.")
    return answer(arguments, {"folder": str(folder.resolve()), "trusted": not arguments.remove}, done)
