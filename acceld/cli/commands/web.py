"""``acceld web``: serve the terminal UI to a browser on this machine, behind a token that works once."""

from __future__ import annotations

import argparse

from acceld.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--port", type=int, default=7432, help="port of the page, on loopback (default 7432)")
    parser.add_argument(
        "run", nargs="?", metavar="r12", help="what to open first: a run, its name, or a candidate c345"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted, and return the exit code."""
    try:
        from acceld.cli.web_server import serve
    except ModuleNotFoundError as error:
        raise UsageError("the package textual-serve is not installed", hint="pip install 'acceld[web]'") from error
    return serve(arguments.home, arguments.port, arguments.run)
