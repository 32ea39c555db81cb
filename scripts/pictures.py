"""Draw the pictures of the terminal UI for the documentation, from a real run.

``make pictures`` runs this. It runs the search of `make run` in an empty folder, opens the terminal UI on
the finished run, and writes one SVG for each screen to docs/pictures/. With ``--all FOLDER`` it writes every
screen, in three sizes and three themes, to that folder.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME, TerminalTheme

from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.tui.app import ConsoleApp
from acceld.tui.client import Client

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SEARCH = ("optimize", "silu", "--api", "nki", "--preset", "quick", "--wait")
SIZE = (132, 36)
SCREENS = {"runs": "1", "beam": "2", "candidate": "3", "profile": "7"}
"""Names of the pictures, and the keys that open their screens."""
OTHERS = {
    "diff": "2 B 3 d",
    "queue": "4",
    "memory": "5",
    "costs": "6",
    "logs": "8",
    "query": "9 ctrl+r",
    "new": "1 plus",
    "help": "1 question_mark",
}
SIZES = ((80, 24), (120, 40), (200, 50))
THEMES = ("acceld", "acceld-light", "ansi-dark", "ansi-light")
LIGHT = TerminalTheme(
    (255, 255, 255),
    (0, 0, 0),
    [(0, 0, 0), (170, 0, 0), (0, 110, 0), (150, 100, 0), (0, 70, 170), (140, 0, 140), (0, 115, 130), (190, 190, 190)],
)
"""Colors of a light terminal."""
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


async def draw(
    client: Client, folder: Path, screens: Mapping[str, str], size: tuple[int, int] = SIZE, theme: str = THEMES[0]
) -> list[Path]:
    """Write a picture of each screen on run r1 to a folder, and return the paths."""
    app = ConsoleApp(client, run=1, notify="off", theme=theme)
    drawn = []
    async with app.run_test(size=size) as pilot:
        for name, keys in screens.items():
            await pilot.press("escape", *keys.split())
            await pilot.pause(2.0)  # requests, then a refresh
            path = folder / f"{name}.svg"
            path.write_text(without_fonts(screenshot(app, "acceld attach r1")), encoding="utf-8")
            drawn.append(path)
    return drawn


def screenshot(app: ConsoleApp, title: str) -> str:
    """Return the screen as SVG, on a light background for the theme ``ansi-light`` and on a dark one for
    others.
    """
    width, height = app.size
    console = Console(width=width, height=height, file=StringIO(), force_terminal=True, record=True, safe_box=False)
    console.print(app.screen._compositor.render_update(full=True, screen_stack=app._background_screens))
    return console.export_svg(title=title, theme=LIGHT if app.theme == "ansi-light" else SVG_EXPORT_THEME)


def without_fonts(svg: str) -> str:
    """Return an SVG without the fonts that it would load from the network: the reader's monospace font is used
    instead.
    """
    return FONT.sub("", svg)


async def draw_all(make_client: Callable[[], Client], folder: Path) -> list[Path]:
    """Write a picture of every screen in each size and theme, and return the paths."""
    drawn = []
    for theme in THEMES:
        for width, height in SIZES:
            place = folder / f"{theme}-{width}x{height}"
            place.mkdir(parents=True, exist_ok=True)
            drawn += await draw(make_client(), place, SCREENS | OTHERS, (width, height), theme)
    return drawn


def main() -> int:
    """Run the search, draw the pictures and stop the daemon. Return the exit code of the search if it fails,
    else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="use the finished run r1 of this state folder instead of a new one")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write every screen in every size and theme there")
    asked = parser.parse_args()
    given = asked.home
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="acceld-pictures-") as folder:
        home = Home(given or Path(folder) / ".acceld")
        acceld = (sys.executable, "-m", "acceld")
        words = ("start",) if given else SEARCH
        done = subprocess.run([*acceld, *words, "--home", str(home.path)], check=False)
        if done.returncode:
            return done.returncode
        try:
            client = partial(HttpClient.of, home)
            drawn = draw_all(client, asked.all) if asked.all else draw(client(), PICTURES, SCREENS)
            for path in asyncio.run(drawn):
                print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
        finally:
            subprocess.run([*acceld, "stop", "--home", str(home.path)], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
