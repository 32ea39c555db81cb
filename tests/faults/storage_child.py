"""A process that writes to a store until it is killed, or until its disk is full: ``python -m tests.faults.storage_child``.

``write PATH`` prints the number and the text of each event once it is acknowledged. ``full PATH BYTES`` lets no file grow beyond
``BYTES`` until it is told ``more`` on standard input, and prints what happens.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import sys

from acceld.store.changes.runs import write_notice
from acceld.store.database import Store
from acceld.store.reads.records import load_events


async def write(path: str) -> None:
    """Write from several writers at once, for ever."""
    store = await asyncio.to_thread(Store.open, path)

    async def notices(name: str) -> None:
        for number in itertools.count():
            text = f"{os.getpid()}-{name}-{number}"
            seq = await store.change(write_notice, None, "info", f"{text} {'x' * 500}")
            sys.stdout.write(f"{seq} {text}\n")
            sys.stdout.flush()

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(notices(str(number)))


async def full(path: str, limit: int) -> None:
    """Write until storage is degraded, wait for the signal, and end when all waiting rows are written."""
    store = await asyncio.to_thread(Store.open, path)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    acknowledged = 0
    pending: set[asyncio.Task[int]] = set()
    while not store.writer.degraded:
        pending.add(asyncio.create_task(store.change(write_notice, None, "info", "x" * 4000)))
        done, pending = await asyncio.wait(pending, timeout=0.02)
        acknowledged += len(done)
    sys.stdout.write(f"degraded {acknowledged}\n")
    sys.stdout.flush()
    readable = len(await store.read(load_events, limit=100_000))
    sys.stdout.write(f"readable {readable}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    started = asyncio.get_running_loop().time()
    await asyncio.gather(*pending)
    await store.change(write_notice, None, "info", "after")
    sys.stdout.write(f"recovered {asyncio.get_running_loop().time() - started:.2f} {acknowledged + len(pending)}\n")
    sys.stdout.flush()
    await store.close()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        asyncio.run(write(sys.argv[2]))
    else:
        asyncio.run(full(sys.argv[2], int(sys.argv[3])))
