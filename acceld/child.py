"""Start child processes of this interpreter so that they import acceld and nothing from the user's folders.

Python puts the current folder, or the script's folder, first on ``sys.path``. From there a file ``queue.py`` of a
cloned repository would be imported and could read the daemon's keys. Every child that runs Python is described by
:func:`child`; a test refuses any other start.

This file is also the script that a child runs: it finds acceld beside itself, then runs the module that its first
argument names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

PATH = "PYTHONPATH"


@dataclass(frozen=True, slots=True)
class Child:
    """Command line and environment that start one child process."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def child(*words: str, environment: Mapping[str, str] | None = None) -> Child:
    """Return the command and environment for a child process of this interpreter. ``words`` are a module of acceld and
    its arguments, or options of the interpreter such as ``-c``.

    The child imports acceld from the place where this process imported it. Other packages come from PYTHONPATH and from
    the interpreter, never from the current folder: relative entries are removed from PYTHONPATH, because they lie below
    the current folder. ``environment`` is the child's environment except for PYTHONPATH (default: that of this
    process).
    """
    script = () if words[0].startswith("-") else (os.path.abspath(__file__),)
    return Child(
        (sys.executable, "-P", *script, *words), with_safe_path(os.environ if environment is None else environment)
    )


def with_safe_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with this process's PYTHONPATH without relative entries; without PYTHONPATH if no
    entry is left.
    """
    kept = [entry for entry in os.environ.get(PATH, "").split(os.pathsep) if os.path.isabs(entry)]
    found = {name: value for name, value in environment.items() if name != PATH}
    return {**found, PATH: os.pathsep.join(kept)} if kept else found


def _run() -> None:
    """Run the module that the first argument names, with the acceld that this file belongs to."""
    import runpy

    root, library = os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.dirname(os.__file__)
    place = 1 + max(at for at, entry in enumerate(sys.path) if entry in (library, os.path.join(library, "lib-dynload")))
    # After the standard library, so that its modules come first; before installed packages, because another version of
    # acceld may be one of them.
    sys.path.insert(place, root)
    name = sys.argv.pop(1)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run()
