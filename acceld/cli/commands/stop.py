"""``acceld stop``: stop the daemon in an orderly way. The next daemon continues unfinished runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time

from acceld.cli.arguments import add_json, amount
from acceld.cli.output import answer, say
from acceld.client import Client
from acceld.errors import AcceldError, DaemonError
from acceld.home import Home, find_home, process_start
from acceld.model import RunState

HANG_S = 5.0
"""With ``--now``: seconds in which a daemon must answer, and then obey SIGTERM, before it is killed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--now", action="store_true", help="end running evaluations at once; kill a daemon that hangs")
    parser.add_argument("--timeout", type=amount, default=60.0, metavar="S", help="give up waiting after S seconds")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Stop the daemon, wait until it has ended, and return the exit code."""
    home = find_home(arguments.home)
    unfinished = _unfinished(home)
    pid = stop(home, grace_s=0.0 if arguments.now else None, timeout_s=arguments.timeout)
    if unfinished and not arguments.json:
        say(f"{', '.join(f'r{run}' for run in unfinished)} will go on when a daemon starts again")
    return answer(arguments, {"stopped": pid, "home": str(home.path)}, f"stopped (pid {pid})")


def _unfinished(home: Home) -> list[int]:
    """Return the ids of the runs that the next daemon continues; an empty list if the daemon does not answer."""
    with contextlib.suppress(AcceldError):
        listed = Client(home, timeout_s=HANG_S).get("/v1/runs", limit=500)["runs"]
        return sorted(one["id"] for one in listed if one["state"] in (RunState.QUEUED, RunState.RUNNING))
    return []


def stop(home: Home, *, grace_s: float | None, timeout_s: float) -> int:
    """Stop the daemon of a state folder, wait until it has ended, and return its pid.

    Running evaluations get ``grace_s`` seconds (None: as configured). With 0, a daemon that neither answers nor obeys
    SIGTERM is killed. Raise DaemonError if no daemon runs, or if it has not ended after ``timeout_s`` seconds.
    """
    reported = home.daemon()
    if reported is None:
        raise DaemonError(
            f"no daemon runs for {home.path}, so there is nothing to stop",
            hint="--home DIR names the state folder of another daemon",
        )
    pid: int = reported["pid"]
    now, hangs = grace_s == 0, False
    asked = Client(home, timeout_s=HANG_S) if now else Client(home)
    try:
        asked.send("POST", "/v1/stop", {} if grace_s is None else {"grace_s": grace_s})
    except DaemonError:
        hangs = now
        if process_start(pid) == reported["process_started"]:
            os.kill(
                pid, signal.SIGTERM
            )  # a daemon that does not answer, or speaks another protocol, still obeys signals
    deadline = time.monotonic() + (HANG_S if hangs else timeout_s)
    while home.is_served() or process_start(pid) == reported["process_started"]:
        if time.monotonic() > deadline:
            if hangs and process_start(pid) == reported["process_started"]:
                say(f"the daemon (pid {pid}) hangs and is killed; nothing that was acknowledged is lost")
                os.kill(pid, signal.SIGKILL)
                deadline, hangs = time.monotonic() + timeout_s, False
                continue
            raise DaemonError(
                f"the daemon (pid {pid}) has not ended within {timeout_s:g} s",
                hint=f"acceld stop --now, or as the last resort: kill -9 {pid} (nothing that was acknowledged is lost)",
            )
        time.sleep(0.02)
    return pid
