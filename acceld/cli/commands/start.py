"""``acceld start``: start the daemon of a state folder."""

from __future__ import annotations

import argparse

from acceld.cli.arguments import add_json, amount
from acceld.cli.output import answer, say
from acceld.daemon.launch import launch
from acceld.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--foreground", action="store_true", help="stay in this terminal, log to it; Ctrl-C stops")
    parser.add_argument(
        "--idle-exit", type=amount, metavar="S", help="end the daemon after S seconds without runs and clients"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Start the daemon, and return the exit code. If a daemon runs already, that is an error."""
    home = find_home(arguments.home)
    if arguments.foreground:
        from acceld.daemon.process import main

        words = ["--home", str(home.path), "--foreground"]
        return main(words if arguments.idle_exit is None else [*words, "--idle-exit", str(arguments.idle_exit)])
    reported = launch(home, idle_exit_s=arguments.idle_exit)
    if not arguments.json:
        say(f"log: {home.log_file}")
    serves = f"acceld {reported['version']} serves {home.path} as pid {reported['pid']}"
    return answer(arguments, reported | {"home": str(home.path)}, serves)
