"""``acceld restart``: stop the daemon, then start it again. Unfinished runs continue."""

from __future__ import annotations

import argparse

from acceld.cli.commands import start
from acceld.cli.commands.stop import stop
from acceld.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    start.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Stop the state folder's daemon if it runs, start a new daemon, and return the exit code."""
    home = find_home(arguments.home)
    if home.is_served():
        stop(home, grace_s=None, timeout_s=60.0)
    return start.run(arguments)
