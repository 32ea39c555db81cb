"""Run the daemon of one state folder (``--home DIR``) in this process. Commands start the process through ``launch``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import resource
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld.errors import AcceldError, DaemonError
from acceld.home import FOLDER, DaemonLock, Home

if TYPE_CHECKING:
    from acceld.daemon.parts import PartsMaker
    from acceld.daemon.service import Daemon

log = logging.getLogger(__name__)

COLLECTED = 50_000
"""Number of new objects after which Python collects garbage. The number is high because rules keep the trees of the
kernels that they read, which a collection would search in vain.
"""
_PR_SET_DUMPABLE = 4
_OPEN_FILES = 256
"""Number of open files that a daemon needs: its own files, four for each child process and one for each client (an
estimate with room).
"""
_ADDRESSES = 1 << 30
"""Bytes of addresses that a daemon needs: a daemon that had only started used 652 MB (measured), searches need more."""


def main(arguments: list[str] | None = None, make_parts: PartsMaker | None = None) -> int:
    """Serve a state folder until the daemon is asked to stop, and return an exit code."""
    parser = argparse.ArgumentParser(prog="acceld-daemon")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--idle-exit", type=float, default=None, metavar="S")
    parser.add_argument("--ready-fd", type=int, default=None)
    parser.add_argument("--foreground", action="store_true")
    asked = parser.parse_args(arguments)
    mask = os.umask(0o077)
    try:
        return serve(
            Home(asked.home.absolute()),
            idle_exit_s=asked.idle_exit,
            ready_fd=asked.ready_fd,
            foreground=asked.foreground,
            make_parts=make_parts,
        )
    except AcceldError as error:
        report(asked.ready_fd, {"error": {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}})
        logging.getLogger(__name__).error("%s", error)
        sys.stderr.write(f"acceld: {error}\n")
        return error.exit_code
    finally:
        os.umask(mask)  # a command that refuses to start may go on in the same process


def serve(
    home: Home,
    *,
    idle_exit_s: float | None,
    ready_fd: int | None,
    foreground: bool,
    make_parts: PartsMaker | None = None,
) -> int:
    """Lock the state folder, and serve it until the daemon is asked to stop. Return 0. Raise AcceldError if the folder
    can not be served.
    """
    home.prepare()
    lock = DaemonLock(home)
    try:
        keep_to_itself()
        allow_open_files()
        check_addresses()
        gc.disable()  # imported objects stay, so looking for garbage among them only delays the start
        from acceld import config
        from acceld.daemon.logs import log_to
        from acceld.daemon.secrets import redactor, take_keys
        from acceld.daemon.service import Daemon

        folder = home.path.parent if home.path.name == FOLDER else Path.cwd()
        resolved = config.load(folder)
        keys = take_keys(resolved.config)
        log_to(home.log_file, resolved.config.daemon.log_level, also_stderr=foreground, redact=redactor(keys))
        socket_path = home.socket()
        lock.new_token()
        if make_parts is None:
            from acceld.daemon.build import build_parts

            make_parts = build_parts
        gc.set_threshold(COLLECTED)
        gc.enable()
        daemon = Daemon(
            home,
            resolved.config,
            make_parts,
            socket_path=socket_path,
            keys=keys,
            listening=lambda: lock.announce(socket_path, version("acceld")),
            idle_exit_s=idle_exit_s,
            folder=folder,
            configured=frozenset(resolved.origins),
            files=resolved.files,
        )
        asyncio.run(_serve(daemon, ready_fd))
        return 0
    finally:
        lock.release()


async def _serve(daemon: Daemon, ready_fd: int | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop, None, f"signal {signal.Signals(number).name}")
    loop.add_signal_handler(signal.SIGHUP, log.info, "SIGHUP: the configuration is read again by acceld restart")
    serving = asyncio.create_task(daemon.run())
    ready = asyncio.create_task(daemon.ready.wait())
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    if daemon.ready.is_set():
        log.info("serving %s as pid %d", daemon.home.path, os.getpid())
        report(ready_fd, {"ready": True})
    ready.cancel()
    try:
        await serving
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, AcceldError):
            raise error from group
        raise


def report(descriptor: int | None, reported: dict[str, Any]) -> None:
    """Tell the starting process, once, how the start went. Do nothing without a descriptor."""
    if descriptor is None:
        return
    with contextlib.suppress(OSError):  # the starting process may have ended
        os.write(descriptor, json.dumps(reported).encode() + b"\n")
        os.close(descriptor)


def allow_open_files() -> None:
    """Raise this process's soft limit on open files to what a daemon needs. Raise DaemonError if the hard limit is
    lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _OPEN_FILES:
        raise DaemonError(
            f"this process may open {hard} files, and a daemon needs {_OPEN_FILES}",
            hint="Raise the limit where acceld is started: ulimit -n 1024, or LimitNOFILE=1024 in the unit of a service.",
        )
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES if hard == resource.RLIM_INFINITY else hard, hard))


def check_addresses() -> None:
    """Raise DaemonError if the limit on this process's address space (``ulimit -v``) is too low for a daemon."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft < _ADDRESSES:
        raise DaemonError(
            f"this process may use {soft >> 20} MiB of addresses, and a daemon needs {_ADDRESSES >> 20}",
            hint="Raise the limit where acceld is started: ulimit -v unlimited, or LimitAS=infinity in the unit of a service. "
            "To bound the memory itself, use MemoryMax= in the unit, or the limit of a container.",
        )


def keep_to_itself() -> None:
    """Turn off core files, and hide this process's memory and environment from the user's other processes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
