"""``acceld config``: show each configured value and its origin, or the commented default file."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from acceld import config
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("show", "default", "path"),
        default="show",
        help="show: every value and its origin; default: the commented file; path: the files that are read",
    )
    parser.add_argument("--changed", action="store_true", help="only values that are not defaults")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the configuration. ConfigError (exit code 2) for an invalid file."""
    if arguments.what == "default":
        print(config.default_toml(), end="")
        return 0
    resolved = config.load()
    if arguments.what == "path":
        for path in resolved.files or (Path.cwd() / config.FILE_NAME,):
            print(path)
        return 0
    values = config.dotted(asdict(resolved.config))
    rows = [
        (key, show(value), resolved.origins.get(key, "default"))
        for key, value in values.items()
        if not arguments.changed or key in resolved.origins
    ]
    if arguments.json:
        print_json(
            {
                "files": [str(path) for path in resolved.files],
                "values": {key: {"value": values[key], "origin": origin} for key, _, origin in rows},
            }
        )
    else:
        print_table(rows, ("key", "value", "from"))
    return 0


def show(value: object) -> str:
    """Return a value in the syntax of acceld.toml."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return str(value)
