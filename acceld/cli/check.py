"""``acceld check``: read configuration, models, prompts and workloads, and say what is wrong; runs and sends nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from acceld.cli.output import print_json, print_table
from acceld.config import Config, load
from acceld.errors import AcceldError
from acceld.trust import trusted_folders

PARTS = ("config", "models", "prompts", "workloads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to check."""
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help="of " + ", ".join(PARTS))
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each thing that was read; exit 2 where one is wrong."""
    found = list(_findings(arguments.parts or list(PARTS)))
    wrong = [finding for finding in found if finding[2]]
    if arguments.json:
        keys = ("part", "name", "problem")
        print_json({"ok": not wrong, "checked": [dict(zip(keys, finding, strict=True)) for finding in found]})
    else:
        rows = [[part, name, problem or "ok"] for part, name, problem in found]
        print_table(rows, ["part", "name", "state"])
    return 2 if wrong else 0


def _findings(parts: list[str]) -> Iterator[tuple[str, str, str]]:
    """Part, name and problem (empty where all is well) of each thing."""
    try:
        resolved = load(trusted_folders=trusted_folders())
    except AcceldError as error:
        yield "config", "acceld.toml", str(error)
        return
    if "config" in parts:
        yield from (("config", str(path), "") for path in resolved.files or ())
        if not resolved.files:
            yield "config", "defaults", ""
    readers: dict[str, Callable[[Config], Iterator[tuple[str, str]]]] = {
        "models": _models,
        "prompts": _prompts,
        "workloads": _workloads,
    }
    for part, reader in readers.items():
        if part in parts:
            yield from ((part, name, problem) for name, problem in reader(resolved.config))


def _models(config: Config) -> Iterator[tuple[str, str]]:
    from acceld.llm.settings import ModelSettings
    from acceld.proposers.roles import RoleTable

    for name, section in config.models.items():
        try:
            ModelSettings.from_config(name, section, config.llm).key()
            yield name, ""
        except (AcceldError, ValueError) as error:
            yield name, str(error)
    if config.models:
        try:
            RoleTable.from_config(config)
            yield "roles", ""
        except AcceldError as error:
            yield "roles", str(error)


def _prompts(config: Config) -> Iterator[tuple[str, str]]:
    from acceld.proposers.prompts import APIS, PromptLibrary
    from acceld.resources import prompts_folder

    library = PromptLibrary([*map(Path, config.paths.prompts), prompts_folder()])
    for api in APIS:
        yield api, "; ".join(library.check([api]))


def _workloads(config: Config) -> Iterator[tuple[str, str]]:
    from acceld.workloads import load_workload
    from acceld.workloads.discovery import workload_folders

    for name, folder in sorted(workload_folders(config.paths.workloads).items()):
        try:
            load_workload(folder)
            yield name, ""
        except AcceldError as error:
            yield name, str(error)
