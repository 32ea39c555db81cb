"""Draw the terminal UI's pictures for the documentation, from a real run.

Run: ``make pictures``. It searches on simulated Trainium 1 in an empty folder, opens the terminal UI on the finished
run and writes one SVG a screen to docs/pictures/.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.tui.app import ConsoleApp

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
WORKLOAD = "matmul_bf16"
SIZE = (132, 36)
SCREENS = {"runs": "1", "beam": "2", "candidate": "3", "profile": "7"}
"""Names of the pictures, and the keys that open their screens."""
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


async def draw(home: Home, folder: Path) -> list[Path]:
    """Write a picture of each screen on run r1 to ``folder``; return their paths."""
    app = ConsoleApp(HttpClient.of(home), run=1, notify="off")
    drawn = []
    async with app.run_test(size=SIZE) as pilot:
        for name, key in SCREENS.items():
            await pilot.press(key)
            await pilot.pause(2.0)  # requests, then a refresh
            path = folder / f"{name}.svg"
            path.write_text(without_fonts(app.export_screenshot(title="acceld attach r1")), encoding="utf-8")
            drawn.append(path)
    return drawn


def without_fonts(svg: str) -> str:
    """Remove the fonts that the picture would load from the network, so that the reader's monospace font is used."""
    return FONT.sub("", svg)


def main() -> int:
    """Search, draw and stop the daemon. Return the search's exit code if it fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="use the finished run r1 of this state folder instead of a new one")
    given = parser.parse_args().home
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="acceld-pictures-") as folder:
        home = Home(given or Path(folder) / ".acceld")
        acceld = (sys.executable, "-m", "acceld")
        words = ("start",) if given else ("optimize", WORKLOAD, "--preset", "quick", "--wait")
        done = subprocess.run([*acceld, *words, "--home", str(home.path)], check=False)
        if done.returncode:
            return done.returncode
        try:
            for path in asyncio.run(draw(home, PICTURES)):
                print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
        finally:
            subprocess.run([*acceld, "stop", "--home", str(home.path)], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
