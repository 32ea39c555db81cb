"""Record, for ``acceld config trust``, whom the user trusts: a folder whose acceld.toml may send data elsewhere or run
commands, or a state folder that somebody else made.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from acceld import origins
from acceld.cli.output import answer, say
from acceld.errors import StoreError, UsageError
from acceld.home import Home, find_home
from acceld.trust import distrust, trust, trusted_folders


def run(arguments: argparse.Namespace) -> int:
    """Trust a folder or a history, withdraw that trust, or list what is trusted. Return the exit code."""
    if arguments.list or (arguments.which is None and not arguments.history):
        folders, histories = sorted(map(str, trusted_folders())), list(map(str, origins.trusted_histories()))
        text = "\n".join(folders + histories) or "no folder is trusted"
        return answer(arguments, {"trusted": folders, "histories": histories}, text)
    if arguments.history:
        return _history(arguments, find_home(arguments.which or arguments.home))
    folder = Path(arguments.which)
    if arguments.remove:
        was = distrust(folder)
        done = f"{folder.resolve()} is no longer trusted" if was else f"{folder.resolve()} was not trusted"
    else:
        done = f"trusted {trust(folder)} as it is now"
        say("When the file changes, it has to be trusted again.")
    return answer(arguments, {"folder": str(folder.resolve()), "trusted": not arguments.remove}, done)


def _history(arguments: argparse.Namespace, home: Home) -> int:
    """Trust a state folder with its present content, or withdraw the trust. Return the exit code.

    Raise UsageError if the folder does not exist, is a link, or belongs to another user.
    """
    if arguments.remove:
        was = origins.disown(home.path)
        done = f"{home.path} is no longer trusted" if was else f"{home.path} was not trusted"
        return answer(arguments, {"history": str(home.path), "trusted": False}, done)
    if not home.path.is_dir() or home.path.is_symlink() or home.path.stat().st_uid != os.getuid():
        raise UsageError(
            f"{home.path} is no folder, or a link, or belongs to another user",
            hint="Give the folder that holds acceld.db.",
        )
    if not origins.is_ours(home.path):
        origins.adopt(home.path)
    home.prepare()
    unfinished = _unfinished(home)
    if unfinished:
        say(f"{', '.join(f'r{run}' for run in unfinished)} will go on when a daemon starts; acceld cancel ends a run")
    return answer(
        arguments,
        {"history": str(home.path), "trusted": True, "unfinished": unfinished},
        f"trusted {home.path}: its runs go on and its kernels are executed",
    )


def _unfinished(home: Home) -> list[int]:
    """Return the ids of the runs that a daemon would continue; an empty list if the history can not be read."""
    from acceld.store.connection import connect_reader

    with contextlib.suppress(StoreError), contextlib.closing(connect_reader(home.database)) as connection:
        found = connection.execute("SELECT id FROM runs WHERE state IN ('queued', 'running') ORDER BY id")
        return [row["id"] for row in found]
    return []
