"""Print what ``acceld watch`` reports, and read its keys."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console as RichConsole
from rich.text import Text

from acceld.alerts import Alert, Manner, announcement
from acceld.cli.output import JSON_VERSION, say
from acceld.cli.streams import writes_unicode
from acceld.errors import UsageError
from acceld.watch.apply import apply, check_drop_in, restore, seen, seen_as
from acceld.watch.deltas import Delta, title_of
from acceld.watch.tiers import SaveResult, Watched

if TYPE_CHECKING:
    from acceld.watch.watcher import Watcher

GLYPHS = {True: "✓", False: "✗", None: "·"}
INDENT = "    "
"""Beginning of each further line of a result."""
DISAGREEMENTS = "disagreements.jsonl"
"""File in the state folder for measured latencies that lie outside the predicted interval."""


class WatchConsole:
    """Printer of a block of lines for each save: its time and file, then each result when it is known.

    Files with the same name are shown with their folders.
    """

    def __init__(self, stream: TextIO, paths: Sequence[Path], *, as_json: bool, notify: Manner, kept: Path) -> None:
        self._stream, self._json, self._notify, self._kept = stream, as_json, notify, kept
        self._names = short_names(paths)
        self._live = stream.isatty() and not as_json
        self._screen = RichConsole(file=stream, no_color=None if self._live else True)
        self._heading: tuple[Path, int] | None = None
        self._figure = ""
        """Title of the figure whose change was printed last."""
        self._checking = False
        self._applied: dict[Path, tuple[Path, str]] = {}
        """Backup of each file that was overwritten last, and the sha256 of the text written."""

    def step(self, step: SaveResult) -> None:
        """Print one result of a save. A failure and the result of a search also ring the bell."""
        self._ring(step)
        if step.stage == "disagrees":
            self._keep(step)
        if self._json:
            reported = {
                "version": JSON_VERSION,
                "path": str(step.path),
                "stage": step.stage,
                "text": step.text,
                "good": step.good,
                "seconds": round(step.seconds, 3),
                "generation": step.generation,
                **step.data,
            }
            line = json.dumps(reported, ensure_ascii=not writes_unicode(self._stream), default=str)
            print(line, file=self._stream, flush=True)
        else:
            self._in_block(step)

    def _in_block(self, step: SaveResult) -> None:
        """Print a result below the heading of its save, which has the time and the file."""
        heading = (step.path, step.generation)
        self._wipe()
        if heading != self._heading:
            self._heading, self._figure = heading, ""
            name = self._names.get(step.path, step.path.name)
            self._print(Text(f"{time.strftime('%H:%M:%S')}  {name}", style="bold"))
        if step.stage == "delta":
            what, before, after, change = Delta(
                step.data["name"], title_of(step.data["name"]), step.data["before"], step.data["after"], True
            ).columns
            title, self._figure = "" if what == self._figure else what, what
            self._print(
                Text(f"    {title:<24} {before:>10} -> {after:>10}  {change:>7}  against {step.data['against']}")
            )
            return
        style = {True: "green", False: "red", None: ""}[step.good]
        line = Text(f"  {GLYPHS[step.good]} ", style=style).append(f"{step.text}", style if step.good is False else "")
        if step.data.get("memory"):
            line.append(f"   {step.data['memory']}", "dim")
        self._print(line.append(f"   {step.seconds:.1f} s", "dim"), len(INDENT))
        for more in step.data.get("more", ()):
            self._print(Text(f"{INDENT}{more}", style="dim"), len(INDENT))
        if step.stage == "predicted" and self._live:
            self._check()

    def say(self, text: str) -> None:
        """Print a message on its own line. A line that says that a check is running is printed again below the
        message.
        """
        checking = self._checking
        self._wipe()
        self._stream.flush()
        say(text)
        if checking:
            self._check()

    def _check(self) -> None:
        """Print a line that says that a check on data is running."""
        self._stream.write("  … checking on data")
        self._stream.flush()
        self._checking = True

    def _wipe(self) -> None:
        """Erase the line that says that a check on data is running."""
        if self._checking:
            self._stream.write("\r\x1b[2K")
            self._checking = False

    def _print(self, line: Text, start: int = 0) -> None:
        """Print a line. On a terminal it is broken between words, and further lines begin at column ``start``."""
        if self._live:
            first, rest = line[:start], line[start:]
            parts = rest.wrap(self._screen, max(20, self._screen.width - start))
            for at, part in enumerate(parts):
                part.rstrip()
                line = (first if at == 0 else Text(" " * start)) + part
                self._screen.print(line, soft_wrap=True, highlight=False)
        else:
            self._screen.print(line, soft_wrap=True, highlight=False)

    def _ring(self, step: SaveResult) -> None:
        if sys.stderr.isatty() and (step.good is False or step.stage == "optimized"):
            alert = Alert("end", f"{step.path.name}: {step.text}")
            sys.stderr.write(announcement(alert, self._notify, in_tmux="TMUX" in os.environ))
            sys.stderr.flush()

    def _keep(self, step: SaveResult) -> None:
        """Append a measured latency to the file ``DISAGREEMENTS`` of the state folder, if it lies outside the
        predicted interval.
        """
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._kept / DISAGREEMENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), "path": str(step.path), **step.data}, ensure_ascii=False) + "\n")

    def diffs(self, files: Iterable[Watched]) -> None:
        """Print the newest faster kernel of each file as a diff."""
        for _, base, best in _wins(files, self.say):
            self._wipe()
            for line in difflib.unified_diff(base.splitlines(), best.splitlines(), "yours", "best", lineterm=""):
                print(line, file=self._stream)

    def apply(self, files: Iterable[Watched], watcher: Watcher) -> None:
        """Write the newest faster kernel of each file over the file."""
        for one, base, best in _wins(files, self.say):
            assert one.kernel is not None
            try:
                check_drop_in(one.path, replace(one.kernel, text=best, filename=one.path.name), one.run)
                backup = apply(one.path, best, seen_as(one.path, base))
            except UsageError as error:
                self.say(str(error))
                continue
            self._applied[one.path] = (backup, seen(one.path))
            watcher.wrote(one.path)
            self.say(f"{one.path} written; the former text is in {backup.name}; u restores it")

    def undo(self, watcher: Watcher) -> None:
        """Put back the files that were overwritten last, unless they were edited since."""
        if not self._applied:
            self.say("nothing to undo: no file was overwritten")
        for path, (backup, written_sha256) in list(self._applied.items()):
            try:
                restore(path, backup, written_sha256)
            except UsageError as error:
                self.say(f"{path.name} is unchanged: {error}")
                continue
            del self._applied[path]
            watcher.wrote(path)
            self.say(f"{path} is restored")


def short_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return for each path the shortest end that tells it from the other paths."""
    names = {}
    for path in paths:
        parts = 1
        while parts < len(path.parts) and any(
            other != path and other.parts[-parts:] == path.parts[-parts:] for other in paths
        ):
            parts += 1
        names[path] = str(Path(*path.parts[-parts:]))
    return names


def _wins(files: Iterable[Watched], tell: Callable[[str], None]) -> Iterator[tuple[Watched, str, str]]:
    """Yield each file that has a faster kernel, with the text that the search began with and the faster text.

    For a file without a faster kernel, ``tell`` is called with a message.
    """
    for one in files:
        if one.best is None:
            tell(f"{one.path.name}: nothing better has been found yet")
        else:
            yield one, *one.best


@contextlib.contextmanager
def single_keys(act: Callable[[str], None]) -> Iterator[bool]:
    """Call ``act`` with each pressed key while the block runs. Yield False if standard input is no terminal."""
    if not sys.stdin.isatty():
        yield False
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()
    tty.setcbreak(descriptor)

    def typed() -> None:
        for key in os.read(descriptor, 64).decode("utf-8", "ignore"):
            act(key)

    loop.add_reader(descriptor, typed)
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
