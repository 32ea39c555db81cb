"""A real daemon, the real ``acceld attach`` in a real terminal (tmux): the content of the screen is stored as text.

The history is made beforehand and its clock times stand still, so the daemon has nothing left to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.records import state_with_runs

GOLDENS = Path(__file__).parent / "terminal"
TMUX = shutil.which("tmux")
WAIT_S = 300.0

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._words = [str(TMUX), "-S", str(folder / "tmux.sock"), "-f", os.devnull]
        self._environment = environment

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            [*self._words, *words], env=self._environment, capture_output=True, text=True, check=False, timeout=300
        )
        return done.stdout

    def open(self, command: str, width: int, height: int) -> None:
        keep = ("start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";")  # a traceback stays on the screen
        self.tmux(*keep, "new-session", "-d", "-s", "acceld", "-x", str(width), "-y", str(height), command)

    def screen(self) -> str:
        return "\n".join(line.rstrip() for line in self.tmux("capture-pane", "-p", "-t", "acceld").splitlines())

    def until(self, text: str) -> str:
        """Return the screen once it shows ``text`` and no longer changes."""
        end, before = time.monotonic() + WAIT_S, ""
        while time.monotonic() < end:
            now = self.screen()
            if text in now and now == before:
                return now
            before = now
            time.sleep(0.25)
        raise AssertionError(f"no {text!r} on:\n{before}")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """Yield the console of a daemon with one finished run, at 80x24."""
    folder = tmp_path / "project"
    state_with_runs(folder)
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "XDG_STATE_HOME") if name in os.environ}
    environment = kept | {
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "LC_ALL": "C.UTF-8",
        "TEXTUAL_ANIMATIONS": "none",
    }
    acceld = [sys.executable, "-m", "acceld"]
    subprocess.run([*acceld, "start"], cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
    found = Terminal(tmp_path, environment)
    try:
        found.open(f"cd {folder} && {' '.join(acceld)} attach", 80, 24)
        yield found
    finally:
        found.tmux("kill-server")
        subprocess.run([*acceld, "stop"], cwd=folder, env=environment, check=False, capture_output=True, timeout=300)


def normalized(text: str) -> str:
    """Return the screen without the parts that differ between two days: times, ages, versions, the machine's sandbox."""
    text = re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", text)
    text = re.sub(r"daemon \S+ started, sandbox L\d", "daemon V started, sandbox L?", text)
    text = re.sub(r" +\d+[smhd]( *│)", r" age\1", text)
    return text.rstrip() + "\n"


@pytest.mark.slow
def test_a_session_at_three_sizes_looks_as_it_did(terminal: Terminal) -> None:
    terminal.until("daemon 0")
    shown = {"runs-80x24": terminal.until("Widen; A applies it")}
    for key, name, text in (("2", "beam-80x24", "best so far"), ("3", "candidate-80x24", "c2 source")):
        terminal.tmux("send-keys", "-t", "acceld", key)
        shown[name] = terminal.until(text)
    terminal.tmux("resize-window", "-t", "acceld", "-x", "120", "-y", "40")
    terminal.tmux("send-keys", "-t", "acceld", "2", "B")
    shown["beam-120x40"] = terminal.until("Change from")
    terminal.tmux("resize-window", "-t", "acceld", "-x", "160", "-y", "50")
    shown["beam-160x50"] = terminal.until("lineage")
    terminal.tmux("send-keys", "-t", "acceld", "p")
    assert "has ended" in terminal.until("has ended")
    terminal.tmux("send-keys", "-t", "acceld", "q")
    for name, screen in shown.items():
        file, found = GOLDENS / f"{name}.txt", normalized(screen)
        if os.environ.get("ACCELD_NEW_GOLDENS"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(found, encoding="utf-8")
        assert found == file.read_text(encoding="utf-8"), f"{name}; where it is right: ACCELD_NEW_GOLDENS=1"
