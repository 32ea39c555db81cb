"""The documentation of commands, keys, events, statuses and workloads is complete and current."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from acceld import config
from acceld.cli.main import COMMANDS, arguments_of
from acceld.events import EventKind
from acceld.model import KnowledgeLevel, MemoryPolicy, Status
from acceld.proposers.llm.prompts import CONTEXT, NAMES, SHARED, PromptFile
from acceld.proposers.rules import all_rules
from acceld.workloads import find_workloads

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_page_entry(name: str) -> None:
    assert f"### acceld {name}\n" in text("commands.md")


def documented_commands() -> list[str]:
    """Return every command line in a block of the pages, cut before a comment, pipe or redirection."""
    pages = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted(DOCS.glob("*.md"))]
    found = set()
    for page in pages:
        for language, block in re.findall(
            r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            if language not in ("", "console", "sh", "bash"):
                continue
            for line in block.replace("\\\n", " ").splitlines():
                if command := re.match(r"(?:\$ )?(acceld [a-z].*)", line):
                    found.add(command[1])
    return sorted(found)


@pytest.mark.parametrize("line", documented_commands())
def test_a_documented_command_is_understood(line: str) -> None:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if set(word) <= set("|<>;&"):
            break
        words.append(word)
    name, *rest = words[1:]
    assert name in COMMANDS
    if "--help" not in rest:
        arguments_of(name, rest)


def test_every_key_is_documented() -> None:
    page = text("configuration.md")
    assert not [key for key, _, _ in config.every_key() if f"`{key}`" not in page]


def test_every_event_and_status_is_documented() -> None:
    protocol, schema = text("protocol.md"), text("schema.md")
    assert not [kind for kind in EventKind if f"`{kind}`" not in protocol]
    pages = protocol + schema + text("integrity.md") + text("architecture.md")
    assert not [status for status in Status if status.value not in pages]


def test_every_placeholder_and_level_of_the_prompts_is_documented() -> None:
    page = text("prompts.md")
    rows = re.findall(r"^\| (`[^|]*`) \|[^\n]*\| ([^|\n]*) \|$", page, re.MULTILINE)
    listed = {(name, place) for names, places in rows for name in names.split(", ") for place in places.split(", ")}
    for prompt in (CONTEXT, *NAMES):
        given = PromptFile.load(ROOT / "prompts" / SHARED / f"{prompt}.md").placeholders
        assert {name for name, place in listed if place == prompt} == {f"`{name}`" for name in given}, prompt
    assert not [level for level in get_args(KnowledgeLevel) if f"\n| `{level}` | " not in page]
    assert not [policy for policy in get_args(MemoryPolicy) if f"\n| `{policy}` | " not in page]


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "AGENTS.md", *DOCS.glob("*.md")]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).is_file()
    ]
    assert not broken


def test_messages_point_to_pages_that_exist() -> None:
    sources = [path for package in ("acceld", "store", "tui") for path in (ROOT / package).rglob("*.py")]
    named = {page for path in sources for page in re.findall(r"docs/[\w-]+\.md", path.read_text(encoding="utf-8"))}
    assert named and not [page for page in named if not (ROOT / page).is_file()]


def test_every_page_begins_with_its_title() -> None:
    pages = [ROOT / "README.md", ROOT / "AGENTS.md", *DOCS.glob("*.md")]
    assert not [page.name for page in pages if not page.read_text(encoding="utf-8").startswith("# ")]


def test_what_agents_are_pointed_at_exists() -> None:
    named = re.findall(
        r"`((?:acceld|store|tui|prompts|workloads|tests|scripts)/[\w./]*)`",
        (ROOT / "AGENTS.md").read_text(encoding="utf-8"),
    )
    assert named and not [path for path in named if not (ROOT / path).exists()]


def test_readme_names_only_commands_and_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = " ".join(re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)) + " ".join(
        re.findall(r"`(acceld [^`]*)`", readme)
    )
    named = set(re.findall(r"\bacceld (\w+)", shown))
    assert named and not named - set(COMMANDS)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not [t for t in re.findall(r"`?make ([a-z-]+)`?", readme) if f"\n{t}:" not in makefile]


def test_nothing_speaks_of_the_machine_it_was_written_on() -> None:
    places = [str(place) for place in (ROOT, Path.home()) if len(place.parts) > 2]  # others can stand in any text
    here = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, places))})/") if places else re.compile("(?!)")
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = git.stdout.split("\0")
    names = [n for n in listed if n.endswith((".py", ".md", ".toml", ".tcss", "Makefile"))]
    found = [n for n in names if (ROOT / n).is_file() and here.search((ROOT / n).read_text(encoding="utf-8"))]
    assert not found


def test_every_workload_is_listed_with_its_family() -> None:
    families = {one.family for one in find_workloads().values()}
    page = text("workloads.md")
    assert not [family for family in families if family not in page]


def test_the_figures_of_the_changelog_are_counted() -> None:
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"{len(find_workloads(()))} workloads" in page
    words = {8: "eight", 9: "nine", 10: "ten", 11: "eleven", 12: "twelve"}
    kinds = Counter(type(rule).__module__.rpartition(".rules")[0] for rule in all_rules())
    for package, what in (("acceld.proposers", "NKI"), ("acceld.devices.cpu", "C"), ("acceld.devices.cuda", "Triton")):
        count = words.get(kinds[package], str(kinds[package]))
        assert re.search(rf"\b{count} (rewrite )?rules for {what}\b", page), (
            f"CHANGELOG.md: acceld has {count} rules for {what}"
        )


def test_every_rule_has_an_entry_in_the_page_of_rules() -> None:
    page = text("rules.md")
    for rule in all_rules():
        assert f"**`{rule.name}`.**" in page or f"| `{rule.name}` |" in page, (
            f"docs/rules.md has no entry for {rule.name}"
        )


def test_every_table_has_its_rows_directly_below_its_head() -> None:
    split = re.compile(r"^\|[-| :]+\|\n(?!\|)", re.MULTILINE)
    assert not [page.name for page in sorted((ROOT / "docs").glob("*.md")) if split.search(page.read_text("utf-8"))]
