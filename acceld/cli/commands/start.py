"""``acceld start``: start the daemon of a state folder."""

from __future__ import annotations

import argparse

from acceld.cli.numbers import amount
from acceld.cli.output import print_json, say
from acceld.daemon.launch import ensure, launch
from acceld.home import Home, find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How it runs."""
    parser.add_argument("--foreground", action="store_true", help="stay in this terminal, log to it; Ctrl-C stops")
    parser.add_argument("--idle-exit", type=amount, metavar="S", help="end after S seconds without runs and clients")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Start; where one runs already, say so and fail."""
    home = find_home(arguments.home)
    if arguments.foreground:
        from acceld.daemon.process import main

        words = ["--home", str(home.path), "--foreground"]
        return main(words if arguments.idle_exit is None else [*words, "--idle-exit", str(arguments.idle_exit)])
    told = launch(home, idle_exit_s=arguments.idle_exit)
    if arguments.json:
        print_json(told | {"home": str(home.path)})
    else:
        print(f"acceld {told['version']} serves {home.path} as pid {told['pid']}")
        say(f"log: {home.log_file}")
    return 0


def ensure_daemon(home: Home, *, idle_exit_s: float | None = None) -> None:
    """Start a daemon where none runs; it ends by itself after ``idle_exit_s``."""
    if home.daemon() is None:
        say(f"starting a daemon for {home.path}")
    ensure(home, idle_exit_s=idle_exit_s)
