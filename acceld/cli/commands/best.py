"""``acceld best``: print the best kernel of a run or workload."""

from __future__ import annotations

import argparse

from acceld.cli import best_kernels
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    best_kernels.add_arguments(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the text of the best kernel, or a JSON object about it, and return the exit code."""
    found = best_kernels.best_kernel(arguments.home, arguments.what, arguments.chip)
    if arguments.json:
        print_json(found.record())
    else:
        print(found.candidate["text"], end="")
    found.say()
    found.say_needs()
    return 0
