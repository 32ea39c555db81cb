"""``acceld skill``: install the instructions that tell a coding agent when and how to use acceld."""

from __future__ import annotations

import argparse
import filecmp
import shutil
from pathlib import Path

from acceld.cli.output import say
from acceld.errors import UsageError
from acceld.resources import data_folder

FOLDERS = {
    "claude": ".claude/skills",
    "codex": ".codex/skills",
    "kiro": ".kiro/skills",
    "agents": ".agents/skills",
}
"""Each agent's folder of skills, relative to the project or, with ``--user``, to the home folder."""
NAME = "acceld"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("action", choices=("install",), help="what to do")
    parser.add_argument("--for", dest="agent", choices=tuple(FOLDERS), default="claude", help="default: claude")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for all of your projects, not this folder alone")
    where.add_argument("--to", metavar="DIR", help="another folder of skills")


def run(arguments: argparse.Namespace) -> int:
    """Copy the skill's folder to where the agent reads skills. An earlier version of the skill is replaced;
    other files stay.
    """
    base = Path.home() if arguments.user else Path.cwd()
    target = (Path(arguments.to) if arguments.to else base / FOLDERS[arguments.agent]) / NAME
    source = data_folder("skills") / NAME
    if target.is_symlink() or (target.exists() and not _is_ours(target)):
        raise UsageError(
            f"{target} exists and is not acceld's skill", hint="move that folder away, or choose another one with --to"
        )
    if target.exists() and not _differ(source, target):
        say(f"{target} is current")
        return 0
    shutil.rmtree(target, ignore_errors=True)
    try:
        shutil.copytree(source, target)
    except OSError as error:
        raise UsageError(
            f"can not write {target}: {error.strerror or error}", hint="choose another folder with --to"
        ) from error
    print(target)
    say(
        "to give the agent acceld's tools, enter `acceld mcp` in its MCP settings; without these tools the agent uses acceld's commands"
    )
    return 0


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder contains acceld's skill."""
    try:
        return f"\nname: {NAME}\n" in (folder / "SKILL.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _differ(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    if names != sorted(path.name for path in other.iterdir()):
        return True
    _, different, broken = filecmp.cmpfiles(one, other, names, shallow=False)
    return bool(different or broken)
