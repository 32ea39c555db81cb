"""Try twelve things, from inside a jail, that evaluated code must not be able to do.

The attempts run in the jailed child. :mod:`acceld.evaluate.sandbox.ladder` prepares their targets outside of
the jail and reads the results. An attempt that succeeds is reported as ``open``, with its effect.
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings.idna  # noqa: F401  # socket needs this module to connect, and a jail has no files to import it from
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

_PTRACE_ATTACH = 16
_OPEN = "open"
_BLOCKED = "blocked"
Scene = dict[str, Any]


def try_all(request: bytes, reply: int) -> None:
    """Make every attempt to get out of the jail. The answer is ``{ATTEMPT: [STATE, EFFECT]}`` as JSON."""
    scene: Scene = json.loads(request)
    results = {}
    for name, probe in PROBES.items():
        try:
            done = probe(scene)
            results[name] = (_OPEN, done) if done else (_BLOCKED, "nothing happened")
        except (OSError, MemoryError, LookupError, ValueError, RuntimeError, ImportError) as error:
            results[name] = (_BLOCKED, f"{type(error).__name__}: {error}"[:120])
    os.write(reply, json.dumps(results).encode())


def _network(scene: Scene) -> str:
    with socket.create_connection(("127.0.0.1", scene["port"]), timeout=1):
        return "reached a server on this machine"


def _unix_socket(scene: Scene) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        client.connect(scene["socket"])
        return "reached a unix socket of this user"


def _write_outside(scene: Scene) -> str:
    with open(os.path.join(scene["folder"], "written"), "w", encoding="ascii") as file:
        file.write("x")
    return "wrote a file outside of its jail"


def _read_home(scene: Scene) -> str:
    with open(scene["private"], encoding="ascii") as file:
        return "read a private file of this user" if file.read() else ""


def _environment(scene: Scene) -> str:
    for path in (f"/proc/{scene['pid']}/environ", f"/proc/{os.getppid()}/environ", "/proc/1/environ"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if scene["canary"].encode() in file.read():
                return "read the environment of the daemon"
    return "its own environment holds the daemon's" if scene["canary"] in repr(dict(os.environ)) else ""


def _signal(scene: Scene) -> str:
    os.kill(scene["victim"], signal.SIGUSR1)
    return "sent a signal to another process of this user"


def _trace_process(scene: Scene) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(_PTRACE_ATTACH, scene["victim"], None, None) == 0:
        return "attached to another process of this user"
    raise OSError(ctypes.get_errno(), "ptrace refused")


def _escape(scene: Scene) -> str:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(30)
        os._exit(0)
    return "made a detached process"


def _memory(scene: Scene) -> str:
    kept = bytearray(scene["memory_bytes"])
    return f"took {len(kept)} bytes"


def _processes(scene: Scene) -> str:
    made = 0
    for _ in range(scene["processes"] + 8):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        made += 1
    return f"made {made} processes"


def _files(scene: Scene) -> str:
    written = 0
    part = b"z" * (1 << 20)
    for number in range(2 * (scene["scratch_bytes"] >> 20)):
        with open(os.path.join(scene["scratch"], f"bomb{number}"), "wb") as file:
            file.write(part)
        written += 1
    return f"wrote {written} MiB"


def _execute(scene: Scene) -> str:
    # The program must not exist: a real program would replace this process and end the attempts.
    try:
        os.execv("/bin/acceld-no-such-program", ["x"])
    except FileNotFoundError:
        return "could start programs" if os.path.exists("/bin/sh") else ""


PROBES: dict[str, Callable[[Scene], str]] = {
    "network": _network,
    "unix_socket": _unix_socket,
    "write_outside": _write_outside,
    "read_private": _read_home,
    "environment": _environment,
    "signal": _signal,
    "ptrace": _trace_process,
    "execute": _execute,
    "files": _files,
    "memory": _memory,
    "escape": _escape,
    "processes": _processes,
}
"""Probes by name, in the order in which they are tried. Each returns the effect that it had, or an empty text if the
attempt was blocked.
"""
