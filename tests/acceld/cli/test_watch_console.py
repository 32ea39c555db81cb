"""Lines that a watch prints for a save."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import cast

import pytest

from acceld.cli.watch_console import WatchConsole, short_names
from acceld.model import Kernel
from acceld.watch.tiers import SaveResult, Watched
from acceld.watch.watcher import Watcher


def test_files_of_one_name_are_distinguished_by_their_folders(tmp_path: Path) -> None:
    silu, rope, other = tmp_path / "silu" / "kernel.py", tmp_path / "rope" / "kernel.py", tmp_path / "mine.py"
    shown = io.StringIO()
    console = WatchConsole(shown, [silu, rope, other], as_json=False, notify="off", kept=tmp_path)
    for path in (silu, rope, other):
        console.step(SaveResult(path, "legal", "parses and is legal"))
    assert [line.split()[1] for line in shown.getvalue().splitlines()[::2]] == [
        "silu/kernel.py",
        "rope/kernel.py",
        "mine.py",
    ]


def test_a_save_is_one_block_with_aligned_figures(tmp_path: Path) -> None:
    path, shown = tmp_path / "kernel.py", io.StringIO()
    console = WatchConsole(shown, [path], as_json=False, notify="off", kept=tmp_path)
    console.step(SaveResult(path, "legal", "parses and is legal", generation=2))
    figures = {"before": 32e6, "after": 16e6, "exact": True, "against": "git HEAD"}
    console.step(SaveResult(path, "delta", "", generation=2, data={"name": "hbm_read_bytes", **figures}))
    console.step(SaveResult(path, "delta", "", generation=2, data={"name": "instruction_count", **figures}))
    console.step(SaveResult(path, "predicted", "1.02 ms", True, generation=2, data={"memory": "SBUF 41 %, PSUM 25 %"}))
    console.step(SaveResult(path, "legal", "parses and is legal", generation=3))
    heading, legal, read, count, predicted, second, _ = shown.getvalue().splitlines()
    assert heading.endswith("  kernel.py") and second.endswith("  kernel.py")
    assert legal.startswith("  · parses and is legal")
    assert read.index("->") == count.index("->") and "-50 %" in read and "against git HEAD" in read
    assert predicted.startswith("  ✓ 1.02 ms   SBUF 41 %, PSUM 25 %")


def test_both_changes_of_one_figure_stand_under_its_one_title(tmp_path: Path) -> None:
    path, shown = tmp_path / "kernel.py", io.StringIO()
    console = WatchConsole(shown, [path], as_json=False, notify="off", kept=tmp_path)
    for before, against in ((8.0, "the last save"), (2.0, "git HEAD")):
        data = {"name": "instruction_count", "before": before, "after": 4.0, "exact": True, "against": against}
        console.step(SaveResult(path, "delta", "", generation=2, data=data))
    _, first, second = shown.getvalue().splitlines()
    assert first.split()[0] == "instructions" and "-50 %  against the last save" in first
    assert second.split()[0] == "2" and "+100 %  against git HEAD" in second
    assert first.index("->") == second.index("->")


def test_a_message_never_shares_a_row_with_the_check_that_is_under_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    path, shown = tmp_path / "kernel.py", Terminal()
    console = WatchConsole(shown, [path], as_json=False, notify="off", kept=tmp_path)
    console.step(SaveResult(path, "predicted", "1.02 ms", generation=2))
    assert shown.getvalue().endswith("  … checking on data")
    console.say("paused")
    assert "paused" in capsys.readouterr().err
    assert shown.getvalue().endswith("  … checking on data\r\x1b[2K  … checking on data")


def test_on_a_terminal_lines_break_between_words_under_their_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "40")
    path, shown = tmp_path / "kernel.py", Terminal()
    console = WatchConsole(shown, [path], as_json=False, notify="off", kept=tmp_path)
    console.step(
        SaveResult(path, "incorrect_numerical", "output 0: relative L2 error 1.72 exceeds 1e-05", False, generation=2)
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()).splitlines()[1:]
    assert plain == ["  ✗ output 0: relative L2 error 1.72", "    exceeds 1e-05   0.0 s"]


class Wrote:
    """A watcher that only takes note of what acceld wrote itself."""

    def __init__(self) -> None:
        self.paths: list[Path] = []

    def wrote(self, path: Path) -> None:
        self.paths.append(path)


def test_what_was_applied_can_be_taken_back_unless_it_was_edited_since(tmp_path: Path) -> None:
    path, watcher = tmp_path / "kernel.py", Wrote()
    console = WatchConsole(io.StringIO(), [path], as_json=False, notify="off", kept=tmp_path)
    old, better = "def kernel(x):\n    return x + 0\n", "def kernel(x):\n    return x\n"
    for edited, after in (("", old), ("# mine\n", better + "# mine\n")):
        path.write_text(old, encoding="utf-8")
        one = Watched(path, "nki", entry="kernel", kernel=Kernel(old, "nki", "kernel", filename=path.name))
        one.best = (old, better)
        console.apply([one], cast("Watcher", watcher))
        assert path.read_text(encoding="utf-8") == better
        path.write_text(better + edited, encoding="utf-8")
        console.undo(cast("Watcher", watcher))
        assert path.read_text(encoding="utf-8") == after
        assert bool(list(tmp_path.glob("*.bak"))) == bool(edited), "the copy goes with the undo"
    assert watcher.paths == [path] * 3


def test_names_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    paths = [Path("/a/x/silu/kernel.py"), Path("/a/y/silu/kernel.py"), Path("/a/y/rope/other.py")]
    assert list(short_names(paths).values()) == ["x/silu/kernel.py", "y/silu/kernel.py", "other.py"]
