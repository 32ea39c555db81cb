"""``acceld attach``: open the terminal UI on this folder's daemon, its history, a recorded run, or another
machine's daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from acceld import config
from acceld.cli.arguments import number_of
from acceld.cli.connect import reading
from acceld.cli.output import say
from acceld.cli.remote import RemoteDaemon
from acceld.errors import ConfigError, UsageError
from acceld.events import event_of
from acceld.home import find_home

PAGE = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "run", nargs="?", metavar="r12", help="what to open first: a run, its name, or a candidate c345"
    )
    parser.add_argument("--replay", action="store_true", help="play a run again, with a slider over its time")
    parser.add_argument("--remote", metavar="ssh://HOST[/DIR]", help="the daemon of another machine, through ssh")
    parser.add_argument("--theme", help="acceld, acceld-light, ansi-dark, ansi-light, or one of Textual's")


def run(arguments: argparse.Namespace) -> int:
    """Open the terminal UI, and return the exit code when the user has left it. The daemon keeps running."""
    in_browser = "WebDriver" in os.environ.get("TEXTUAL_DRIVER", "")
    if not in_browser and not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError(
            "the terminal UI needs a terminal",
            hint="for programs: acceld status --json, acceld runs --json, acceld show r12 --json, acceld logs -f",
        )
    if arguments.replay and not arguments.run:
        raise UsageError("--replay needs a run", hint="acceld attach r12 --replay; acceld runs lists the runs")
    calm_over_ssh()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(_client(arguments))
        number, candidate = asyncio.run(_asked(client, arguments.run)) if arguments.run else (None, None)
        return show(client, number, candidate, replay=arguments.replay, theme=arguments.theme, home=arguments.home)


def calm_over_ssh() -> None:
    """Set variables that make Textual draw fewer frames over ssh, unless the environment has them already."""
    if os.environ.get("SSH_CONNECTION"):
        os.environ.setdefault("TEXTUAL_FPS", "15")
        os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
        os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")


async def _asked(client: Any, text: str) -> tuple[int, int | None]:
    """Return the ids of the run and of the candidate that a text names: ``r12``, ``c345``, ``12`` or a run's name.

    The candidate's id is None if the text names a run. Raise UsageError if nothing has that id or name.
    """
    try:
        if re.fullmatch(r"c[0-9]{1,15}", text):
            candidate = number_of(text, "c")
            return (await client.get(f"/v1/candidates/{candidate}"))["run"], candidate
        if re.fullmatch(r"r?[0-9]{1,15}", text):
            return number_of(text, "r"), None
        rows = (await client.get("/v1/runs", name=text, limit=500))["runs"]
    finally:
        await client.close()
    named = [row["id"] for row in rows if row.get("name") == text]
    return (max(named), None) if named else (number_of(text, "r"), None)


def show(
    client: Any,
    number: int | None,
    candidate: int | None = None,
    *,
    replay: bool = False,
    theme: str | None = None,
    home: str | None = None,
) -> int:
    """Run the terminal UI until the user leaves it, and return the exit code."""
    from acceld.tui.app import ConsoleApp
    from acceld.tui.replay import Replay

    settings = config.load().config.tui
    recording = Replay(number, asyncio.run(_recorded(client, number))) if replay and number is not None else None
    app = ConsoleApp(
        client,
        run=number,
        candidate=candidate,
        replay=recording,
        refresh_hz=min(settings.refresh_hz, 4.0) if os.environ.get("SSH_CONNECTION") else settings.refresh_hz,
        theme=theme or settings.theme,
        keymap=keymap(settings.keys),
        columns=settings.columns,
        notify=settings.notify,
        apply=partial(_apply, client, home),
    )
    app.run()
    if app.return_code:
        return app.return_code
    if not client.read_only and not replay:
        say("detached; the daemon keeps running (acceld stop ends it)")
    return 0


async def _apply(client: Any, home: str | None, number: int, path: Path, even_if_tied: bool) -> str:
    """Write the best kernel of a run over a file, as ``acceld apply`` does, and return a message about that."""
    from acceld.cli.commands.apply import applied
    from acceld.watch.apply import check_win

    found = await client.get(f"/v1/runs/{number}")
    best = await client.get(f"/v1/candidates/{found['best']}")
    if not even_if_tied:
        check_win(found)
    text = await asyncio.to_thread(applied, path, best, found, home, even_if_tied)
    return text.partition("\n")[0]


def keymap(entries: tuple[str, ...]) -> dict[str, str]:
    """Return the key of each action from entries such as ``run.pause=f9``. Raise ConfigError for an entry of
    another form.
    """
    found = {}
    for entry in entries:
        name, sign, key = entry.partition("=")
        if not sign or not name.strip() or not key.strip():
            raise ConfigError(
                f"tui.keys: {entry!r} is not ACTION=KEY",
                hint="write it as 'run.pause=f9'; ? on a screen lists the actions",
            )
        found[name.strip()] = key.strip()
    return found


async def _recorded(client: Any, number: int) -> list[Any]:
    """Return all events of run ``number``."""
    events: list[Any] = []
    try:
        while True:
            after = events[-1].seq if events else 0
            page = (await client.get(f"/v1/runs/{number}/events", after=after, limit=PAGE))["events"]
            events += [event_of(row) for row in page]
            if len(page) < PAGE:
                break
    finally:
        await client.close()
    if not events:
        raise UsageError(f"r{number} has no events", hint="acceld runs lists the runs")
    return events


@contextlib.contextmanager
def _client(arguments: argparse.Namespace) -> Iterator[Any]:
    from acceld.http.client import Address, HttpClient

    if arguments.remote:
        with RemoteDaemon(arguments.remote) as remote:
            yield HttpClient.looked_up(remote.address)
        return
    home = find_home(arguments.home)
    if home.daemon() is not None:
        yield HttpClient.of(home)
        return
    with reading(arguments.home) as history:
        # The server over the file listens on its own socket, which the blocking client can use.
        served, where = history.client, f"{history.database}, read-only"
        history_only = Address(served.token, served.socket_path, where=where, read_only=True)
        yield HttpClient.of(home, otherwise=history_only)
