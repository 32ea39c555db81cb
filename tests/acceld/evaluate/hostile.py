"""Define tasks that a zygote under test runs in its jail; each takes the request and a descriptor for the answer."""

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Callable


def echo(request: bytes, reply: int) -> None:
    os.write(reply, request)


def draw(request: bytes, reply: int) -> None:
    import numpy as np

    os.write(reply, np.random.random(4).tobytes())


def nap(request: bytes, reply: int) -> None:
    time.sleep(0.1)
    os.write(reply, request)


def leave_at_once(request: bytes, reply: int) -> None:
    os._exit(0)


def crash(request: bytes, reply: int) -> None:
    ctypes.string_at(0)


def kill_itself(request: bytes, reply: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(request: bytes, reply: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


def spin(request: bytes, reply: int) -> None:
    while True:
        pass


def escape(request: bytes, reply: int) -> None:
    """Start five double-forked descendants in their own sessions; each holds the reply open and ignores signals."""
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                hang(request, reply)
            os._exit(0)
    os.write(reply, b"escaped")
    if request == b"linger":
        time.sleep(0.7)
    if request == b"stay":
        hang(request, reply)


def bomb(request: bytes, reply: int) -> None:
    made = 0
    while True:
        try:
            if os.fork() == 0:
                time.sleep(60)
        except OSError:
            time.sleep(0.001)
            continue
        made += 1


def allocate(request: bytes, reply: int) -> None:
    kept = []
    try:
        while True:
            kept.append(b"x" * (16 << 20))
    except MemoryError:
        count = len(kept)
        kept.clear()
        os.write(reply, f"refused after {count * 16} MiB".encode())


def allocate_in_children(request: bytes, reply: int) -> None:
    for _ in range(4):
        if os.fork() == 0:
            kept = []
            while True:
                kept.append(b"x" * (8 << 20))
                time.sleep(0.005)
    time.sleep(60)


def allocate_shared(request: bytes, reply: int) -> None:
    kept = []
    while True:
        kept.append(mmap.mmap(-1, 8 << 20))  # shared pages, which no limit of a process counts
        kept[-1].write(b"x" * (8 << 20))


def flood(request: bytes, reply: int) -> None:
    try:
        while True:
            os.write(reply, b"y" * (1 << 20))
    except OSError:
        os._exit(7)


def descriptors(request: bytes, reply: int) -> None:
    found = []
    for number in range(256):
        try:
            os.fstat(number)
            found.append(number)
        except OSError:
            pass
    os.write(reply, repr(found).encode())


def environment(request: bytes, reply: int) -> None:
    os.write(reply, repr(dict(os.environ)).encode())


def look_around(request: bytes, reply: int) -> None:
    """List, in the wide jail, the things that can be reached beyond the given ones."""
    import json
    import socket

    reported: dict[str, str] = {"processes": str(sorted(int(one) for one in os.listdir("/proc") if one.isdigit()))}
    attempts: dict[str, Callable[[], object]] = {
        "network": lambda: socket.socket(socket.AF_INET),
        "unix": lambda: socket.socket(socket.AF_UNIX),
        "pair of other kind": lambda: socket.socketpair(socket.AF_INET, socket.SOCK_STREAM),
        "home": lambda: os.listdir("/root"),
        "kernel": lambda: open("/proc/sys/kernel/core_pattern", "w").close(),
        "signal": lambda: os.kill(int(request), signal.SIGUSR1),
        "passwd": lambda: open("/etc/passwd", "w").close(),
        "device": lambda: os.open("/dev/mem", os.O_RDONLY),
    }
    for name, attempt in attempts.items():
        try:
            reported[name] = f"open: {attempt()}"
        except OSError as error:
            reported[name] = f"refused: {error.strerror}"
    os.write(reply, json.dumps(reported).encode())
