"""A release has one version, and the changelog's newest section is of it."""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path

from scripts.dist import VERSIONS, interpreters, newest_section, version

ROOT = Path(__file__).parents[2]


def test_version_changelog_and_classifiers_agree() -> None:
    assert version() == installed("acceld")
    assert newest_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) in ("Unreleased", version())


def test_the_newest_section_is_read_without_its_date() -> None:
    assert newest_section("# Changelog\n\n## 1.2.0 (2026-11-23)\n\n## 1.1.0\n") == "1.2.0"
    assert newest_section("# Changelog\n") == ""


def test_named_interpreters_are_taken_and_others_are_one_a_version() -> None:
    assert interpreters(["/a/python"]) == ["/a/python"]
    found = [Path(path).name for path in interpreters(())]
    assert found and len(found) == len(set(found)) <= len(VERSIONS)
