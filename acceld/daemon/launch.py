"""Start the daemon's process from a command. This module imports nothing heavy."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Any

from acceld.child import child
from acceld.errors import AcceldError, DaemonError
from acceld.home import Home

START_S = 30.0


def launch(home: Home, *, idle_exit_s: float | None = None, timeout_s: float = START_S) -> dict[str, Any]:
    """Start a daemon in the background, wait until it serves, and return its self-description.

    Raise AcceldError with the daemon's own message and exit code if the daemon does not start.
    """
    home.prepare()
    reading, writing = os.pipe()
    words = ["acceld.daemon.process", "--home", str(home.path), "--ready-fd", str(writing)]
    if idle_exit_s is not None:
        words += ["--idle-exit", str(idle_exit_s)]
    output = os.open(home.log_file.parent / "daemon.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        start = child(*words)
        process = subprocess.Popen(
            start.command,
            env=start.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(writing,),
            cwd=home.path.parent if home.path.parent.is_dir() else None,
        )
        os.close(writing)
        reported = _wait(reading, timeout_s)
    finally:
        os.close(output)
        os.close(reading)
    ended = _ended(process) if reported is None else None
    process.returncode = 0  # else Popen warns that the daemon still runs
    if reported is None:
        how = f"no answer within {timeout_s:g} s" if ended is None else f"it ended with status {ended}"
        raise DaemonError(
            f"the daemon did not start: {_last_words(home) or how}", hint=f"{home.log_file} may have the reason."
        )
    if "error" in reported:
        error = AcceldError(reported["error"]["message"], hint=reported["error"]["hint"])
        error.exit_code = reported["error"]["exit_code"]
        raise error
    serving = home.daemon()
    if serving is None:
        raise DaemonError("the daemon started and ended at once", hint=f"{home.log_file} has the reason.")
    return serving


def ensure(home: Home, *, idle_exit_s: float | None = None, timeout_s: float = START_S) -> dict[str, Any]:
    """Return the self-description of the daemon of ``home``. Start a daemon if none runs.

    Raise DaemonError if a running daemon does not answer, and the errors of :func:`launch`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if (reported := home.daemon()) is not None and _answers(home):
            return reported
        if not home.is_served():
            try:
                return launch(home, idle_exit_s=idle_exit_s, timeout_s=timeout_s)
            except AcceldError as error:
                if error.exit_code != DaemonError.exit_code or not home.is_served():
                    raise  # otherwise another process started a daemon at the same moment
        if time.monotonic() > deadline:
            raise DaemonError(
                f"the daemon of {home.path} does not answer",
                hint="On a busy machine wait, then give the same command again; if that does not help, acceld restart",
            )
        time.sleep(0.05)


def _answers(home: Home) -> bool:
    from acceld.client import Client

    try:
        Client(home, timeout_s=5.0).get("/v1/hello")
    except DaemonError as error:
        if "speaks protocol" in error.message:
            raise
        return False
    return True


def _wait(descriptor: int, timeout_s: float) -> dict[str, Any] | None:
    """Return one line of JSON that arrives at a descriptor; None if the other end closes it, or no line comes within
    ``timeout_s``.
    """
    deadline, raw = time.monotonic() + timeout_s, b""
    while not raw.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(descriptor, 65536)
        if not part:
            return None
        raw += part
    reported: dict[str, Any] = json.loads(raw)
    return reported


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Return the process's exit status; None if it still runs."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(1.0)
    return None


def _last_words(home: Home) -> str:
    try:
        lines = (home.log_file.parent / "daemon.out").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
