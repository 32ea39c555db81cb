"""``acceld config``: show each setting and where it was set, print the default file with comments, or trust a
folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

from acceld import config
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json, print_table
from acceld.errors import ConfigError, UsageError, nearest_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("show", "default", "path", "trust"),
        default="show",
        help="show: every value and its origin; default: the commented file; path: the files that are read; trust: let a "
        "folder's acceld.toml set keys that can send data elsewhere or run commands",
    )
    parser.add_argument(
        "which",
        nargs="?",
        metavar="KEY|DIR",
        help="with show: only this key or section, such as daemon.tcp or search; with trust: the folder that holds acceld.toml",
    )
    parser.add_argument("--changed", action="store_true", help="with show: only values that are not defaults")
    trust = parser.add_argument_group("with trust")
    trust.add_argument(
        "--history",
        action="store_true",
        help="DIR is a state folder (default: the one in use) that was copied, moved, or made by an older acceld",
    )
    trust.add_argument("--list", action="store_true", help="list trusted folders and state folders")
    trust.add_argument("--remove", action="store_true", help="take trust back")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the configuration, or trust a folder. Raise ConfigError (exit code 2) for an invalid file."""
    if arguments.what == "trust":
        from acceld.cli import trusting

        return trusting.run(arguments)
    if arguments.history or arguments.list or arguments.remove:
        raise UsageError(
            f"--history, --list and --remove work only with acceld config trust, not with {arguments.what}",
            hint="acceld config trust DIR",
        )
    if arguments.which and arguments.what != "show":
        raise UsageError(
            f"{arguments.what} takes no {arguments.which}",
            hint="acceld config show KEY, or acceld config trust DIR",
        )
    if arguments.what == "default":
        print(config.default_toml(), end="")
        return 0
    resolved = config.load()
    if arguments.what == "path":
        for path in resolved.files or (Path.cwd() / config.FILE_NAME,):
            print(path)
        return 0
    values = config.dotted(asdict(resolved.config))
    values |= {key: None for key in config.inferred_keys() if key not in resolved.origins}
    notes = {key: "the kernel decides" for key in config.inferred_keys() if key not in resolved.origins}
    notes |= _notes(resolved.config)
    if arguments.which:
        values = _chosen(values, arguments.which)
    rows = [
        (key, show(value), resolved.origins.get(key, "default"))
        for key, value in values.items()
        if not arguments.changed or key in resolved.origins
    ]
    if arguments.json:
        print_json(
            {
                "files": [str(path) for path in resolved.files],
                "values": {
                    key: {"value": values[key], "origin": origin} | ({"note": notes[key]} if key in notes else {})
                    for key, _, origin in rows
                },
            }
        )
    else:
        noted = [(key, text, "; ".join(filter(None, (origin, notes.get(key))))) for key, text, origin in rows]
        print_table(noted, ("key", "value", "from"))
    return 0


def _chosen(values: Mapping[str, object], which: str) -> dict[str, object]:
    """Return the values of the key or section ``which``. Raise UsageError, with the nearest name, if there is no such
    key or section.
    """
    found = {key: value for key, value in values.items() if key == which or key.startswith(f"{which}.")}
    if not found:
        if which.startswith("models."):
            keys = ", ".join(f.name for f in fields(config.ModelConfig))
            raise UsageError(
                f"no model {which.split('.')[1]!r} is configured",
                hint=f"a section [models.NAME] may have: {keys}; docs/models.md",
            )
        sections = {key.rpartition(".")[0] for key in values}
        raise UsageError(f"there is no key or section {which!r}", hint=nearest_of(which, [*values, *sections]))
    return found


def _notes(settings: config.Config) -> dict[str, str]:
    """Return a note on each setting that the configured models override, as a dict by key."""
    from acceld.proposers.llm.roles import RoleTable

    try:
        is_raised = settings.search.knowledge == "calls" and RoleTable.from_config(settings).all_warmed
    except ConfigError:  # no role has a model; another error is reported by `acceld doctor`
        return {}
    return {"search.knowledge": "full for NKI, because every model has a Messages API"} if is_raised else {}


def show(value: object) -> str:
    """Return a value in the syntax of acceld.toml."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return str(value)
