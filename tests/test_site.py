"""The documentation site builds without a warning, has every page in its navigation, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SETTINGS = ROOT / "zensical.toml"
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\ssrc=[\"']?(https?:)?//|<link\b[^>]*\shref=[\"']?(https?:)?//"
)


def pages(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from pages(value)
    else:
        for entry in nav:
            yield from pages(entry)


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of ``folder`` as ``make docs`` does."""
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean", "-f", "zensical.toml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the pages and their settings."""
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(SETTINGS, tmp_path)
    return tmp_path


def test_every_page_stands_in_the_navigation_once() -> None:
    listed = list(pages(tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["project"]["nav"]))
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md"))


def labels(nav: Any) -> Iterator[tuple[str, str]]:
    """Yield each name in a navigation with its page."""
    for entry in nav:
        for name, value in entry.items():
            if isinstance(value, str):
                yield name, value
            else:
                yield from labels(value)


def test_a_page_has_one_name_in_its_title_and_in_the_navigation() -> None:
    nav = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))["project"]["nav"]
    titles = {page: (DOCS / page).read_text(encoding="utf-8").splitlines()[0] for _, page in labels(nav)}
    assert {page: f"# {name}" for name, page in labels(nav)} == titles


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(copy: Path) -> None:
    done = build(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout + done.stderr
    built = list((copy / "build" / "site").rglob("*.html"))
    assert len(built) > len(list(DOCS.glob("*.md")))  # and the page for what is not there
    assert not [page.name for page in built if LOADED.search(page.read_text(encoding="utf-8"))]


def test_a_broken_link_or_anchor_fails_the_build(tmp_path: Path) -> None:
    settings, pages = SETTINGS.read_text(encoding="utf-8"), tmp_path / "docs"
    short, found = re.subn(r"(?ms)^nav = \[$.*?^\]$", 'nav = ["index.md", "other.md"]', settings)
    assert found == 1
    (tmp_path / SETTINGS.name).write_text(short, encoding="utf-8")
    pages.mkdir()
    (pages / "index.md").write_text("# One\n\n[x](other.md)\n\n[x](nowhere.md)\n\n[x](other.md#nowhere)\n")
    (pages / "other.md").write_text("# Other\n")
    done = build(tmp_path)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "page does not exist" in said and "anchor does not exist" in said and "2 issues found" in said


def test_pictures_are_there_and_load_no_fonts() -> None:
    shown = {
        (page.parent / path).resolve()
        for page in [ROOT / "README.md", *DOCS.glob("*.md")]
        for path in PICTURE.findall(page.read_text(encoding="utf-8"))
    }
    assert shown and not [path for path in shown if not path.is_file()]
    drawn = set((DOCS / "pictures").glob("*.svg"))
    assert drawn <= shown, "a picture that no page shows"
    assert not [path.name for path in drawn if "@font-face" in path.read_text(encoding="utf-8")]
