"""What ``acceld watch`` prints, and the single keys it takes."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from acceld.alerts import Alert, Manner, announcement
from acceld.cli.output import JSON_VERSION, say
from acceld.errors import UsageError
from acceld.watch.apply import apply, check_drop_in
from acceld.watch.tiers import Step, Watched

if TYPE_CHECKING:
    from acceld.watch.watcher import Watcher

GLYPHS = {True: "✓", False: "✗", None: "·"}
DISAGREEMENTS = "disagreements.jsonl"
"""File in the state folder with what the model got wrong beyond its band."""


class WatchConsole:
    """Prints steps as they land, each with its file's name, with the folder where two files have one name."""

    def __init__(self, stream: TextIO, paths: Sequence[Path], *, as_json: bool, notify: Manner, kept: Path) -> None:
        self._stream, self._json, self._notify, self._kept = stream, as_json, notify, kept
        times = Counter(path.name for path in paths)
        self._names = {
            path: path.name if times[path.name] == 1 else f"{path.parent.name}/{path.name}" for path in paths
        }

    def step(self, step: Step) -> None:
        """One line; what fails and what a search found rings."""
        self._ring(step)
        if step.stage == "disagrees":
            self._keep(step)
        if self._json:
            told = {
                "version": JSON_VERSION,
                "path": str(step.path),
                "stage": step.stage,
                "text": step.text,
                "good": step.good,
                "seconds": round(step.seconds, 3),
                "generation": step.generation,
                **step.data,
            }
            line = json.dumps(told, ensure_ascii=False, default=str)
        else:
            name = self._names.get(step.path, step.path.name)
            line = f"{GLYPHS[step.good]} {name:<18} {step.seconds:6.2f} s  {step.text}"
        print(line, file=self._stream, flush=True)

    def _ring(self, step: Step) -> None:
        if sys.stderr.isatty() and (step.good is False or step.stage == "optimized"):
            alert = Alert("end", f"{step.path.name}: {step.text}")
            sys.stderr.write(announcement(alert, self._notify, in_tmux="TMUX" in os.environ))
            sys.stderr.flush()

    def _keep(self, step: Step) -> None:
        """Keep a prediction that a measurement contradicts, for ``acceld calibrate``."""
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._kept / DISAGREEMENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), "path": str(step.path), **step.data}, ensure_ascii=False) + "\n")

    def diffs(self, files: Iterable[Watched]) -> None:
        """The newest win of each file as a diff."""
        for _, base, best in _wins(files):
            for line in difflib.unified_diff(base.splitlines(), best.splitlines(), "yours", "best", lineterm=""):
                print(line, file=self._stream)

    def apply(self, files: Iterable[Watched], watcher: Watcher) -> None:
        """Write the newest win of each file over it."""
        for one, base, best in _wins(files):
            assert one.kernel is not None
            try:
                check_drop_in(one.path, replace(one.kernel, text=best, filename=one.path.name))
                backup = apply(one.path, best, hashlib.sha256(base.encode()).hexdigest())
            except UsageError as error:
                say(str(error))
                continue
            watcher.wrote(one.path)
            say(f"{one.path} written; the old one is {backup.name}")


def _wins(files: Iterable[Watched]) -> Iterator[tuple[Watched, str, str]]:
    """Files with the base and the text of their newest win; says so of those that have none."""
    for one in files:
        if one.best is None:
            say(f"{one.path.name}: nothing better has been found yet")
        else:
            yield one, *one.best


@contextlib.contextmanager
def single_keys(act: Callable[[str], None]) -> Iterator[bool]:
    """Hand single keys to ``act`` while standard input is a terminal; whether it is one."""
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
