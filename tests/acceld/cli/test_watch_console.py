"""What a watch prints of a save."""

from __future__ import annotations

import io
from pathlib import Path

from acceld.cli.watch_console import WatchConsole, short_names
from acceld.watch.tiers import Step


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    silu, rope, other = tmp_path / "silu" / "kernel.py", tmp_path / "rope" / "kernel.py", tmp_path / "mine.py"
    shown = io.StringIO()
    console = WatchConsole(shown, [silu, rope, other], as_json=False, notify="off", kept=tmp_path)
    for path in (silu, rope, other):
        console.step(Step(path, "legal", "parses and is legal"))
    assert [line.split()[1] for line in shown.getvalue().splitlines()] == [
        "silu/kernel.py",
        "rope/kernel.py",
        "mine.py",
    ]


def test_names_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    paths = [Path("/a/x/silu/kernel.py"), Path("/a/y/silu/kernel.py"), Path("/a/y/rope/other.py")]
    assert list(short_names(paths).values()) == ["x/silu/kernel.py", "y/silu/kernel.py", "other.py"]
