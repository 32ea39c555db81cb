"""``acceld stop``: stop the daemon in an orderly way. The next daemon continues unfinished runs."""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import Any

from acceld.cli.arguments import add_json, amount
from acceld.cli.output import answer, say
from acceld.client import Client
from acceld.errors import DaemonError, StoreError
from acceld.home import Home, find_home, process_start
from acceld.model import RunState

HANG_S = 5.0
"""Seconds in which a daemon must answer; else it gets SIGTERM. With ``--now``, seconds in which it must obey SIGTERM, too;
else it is killed.
"""
TOLD_S = 10.0
"""Seconds between two messages about a daemon that has not ended yet."""
_LOOK_S = 0.02


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--now", action="store_true", help="end running evaluations at once; kill a daemon that hangs")
    parser.add_argument("--timeout", type=amount, default=60.0, metavar="S", help="give up waiting after S seconds")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Stop the daemon, wait until it has ended, and return the exit code."""
    home = find_home(arguments.home)
    pid, unfinished = stop(home, grace_s=0.0 if arguments.now else None, timeout_s=arguments.timeout)
    if unfinished and not arguments.json:
        say(f"{', '.join(f'r{run}' for run in unfinished)} will go on when a daemon starts again")
    return answer(arguments, {"stopped": pid, "home": str(home.path)}, f"stopped (pid {pid})")


def stop(home: Home, *, grace_s: float | None, timeout_s: float) -> tuple[int, list[int]]:
    """Stop the daemon of a state folder, and wait until it has ended. Return its pid, and the ids of the runs that the
    next daemon continues.

    Running evaluations get ``grace_s`` seconds (None: as configured). With 0, a daemon that neither answers nor obeys
    SIGTERM is killed. Raise DaemonError if no daemon runs, or if it has not ended after ``timeout_s`` seconds.
    """
    waiting = _Waiting(timeout_s)
    while (reported := home.daemon()) is None:
        if not home.is_served():
            raise DaemonError(
                f"no daemon runs for {home.path}, so there is nothing to stop",
                hint="--home DIR names the state folder of another daemon",
            )
        waiting.look(
            f"a daemon that starts or ends in {home.path}",
            failed=f"a daemon holds {home.path}, and has not begun to serve it within {timeout_s:g} s",
            hint="acceld logs shows what the daemon does",
        )
    pid: int = reported["pid"]
    unfinished, hangs = list[int](), False
    try:
        client = Client(home, timeout_s=HANG_S)
        unfinished = _unfinished(client)
        client.send("POST", "/v1/stop", {} if grace_s is None else {"grace_s": grace_s})
    except DaemonError:  # the daemon ends just now, does not answer, or speaks another protocol
        hangs = grace_s == 0
        if process_start(pid) == reported["process_started"]:
            os.kill(pid, signal.SIGTERM)
    waiting, may_finish = _Waiting(HANG_S if hangs else timeout_s), bool(unfinished) and grace_s != 0
    while _serves(home, reported):
        if hangs and waiting.is_over and process_start(pid) == reported["process_started"]:
            say(f"the daemon (pid {pid}) hangs and is killed; nothing that was acknowledged is lost")
            os.kill(pid, signal.SIGKILL)
            waiting, hangs = _Waiting(timeout_s), False
        waiting.look(
            f"the end of the daemon (pid {pid})"
            + ("; running evaluations may finish, and acceld stop --now ends them at once" if may_finish else ""),
            failed=f"the daemon (pid {pid}) has not ended within {timeout_s:g} s",
            hint=f"acceld stop --now, or as the last resort: kill -9 {pid} (nothing that was acknowledged is lost)",
        )
    return pid, unfinished


def _unfinished(client: Client) -> list[int]:
    """Return the ids of the runs that the next daemon continues; an empty list if the history can not be read."""
    try:
        listed = client.get("/v1/runs", state="queued,running", limit=500)["runs"]
    except StoreError:
        return []
    return sorted(one["id"] for one in listed if one["state"] in (RunState.QUEUED, RunState.RUNNING))


def _serves(home: Home, reported: dict[str, Any]) -> bool:
    """Tell whether the daemon that reported itself still runs, not another daemon that was started since.

    The lock counts too, because the process of a daemon in a container can not be seen from outside.
    """
    if process_start(reported["pid"]) == reported["process_started"]:
        return True
    return home.is_served() and (home.daemon() or reported)["process_started"] == reported["process_started"]


class _Waiting:
    """A wait of at most ``timeout_s`` seconds that tells a person what it waits for."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s, self._began, self._tell_at_s = timeout_s, time.monotonic(), 1.0

    @property
    def is_over(self) -> bool:
        """Return True if the time is over."""
        return time.monotonic() - self._began > self._timeout_s

    def look(self, what: str, *, failed: str, hint: str) -> None:
        """Wait for a moment before the next look. Print what is waited for after a second, and then now and then.

        Raise DaemonError with the message ``failed`` if the time is over.
        """
        passed_s = time.monotonic() - self._began
        if passed_s > self._timeout_s:
            raise DaemonError(failed, hint=hint)
        if passed_s >= self._tell_at_s:
            self._tell_at_s += TOLD_S
            say(f"waiting for {what} ({passed_s:.0f} s)")
        time.sleep(_LOOK_S)
