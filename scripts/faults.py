"""Run the fault tests for longer than the test suite does: hundreds of kills, full disks, power cuts,
simultaneous starts, and hours of runs.

``make faults`` runs all but the last. ``scripts/faults.py --only F01,F03 --rounds 50 --json`` chooses, and ``--only F20
--hours 2`` runs the last. The exit code is 1 if a limit of docs/reliability.md is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acceld.store.changes.runs import write_notice

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from acceld.client import Client
from acceld.home import DaemonLock, Home
from acceld.http.client import HttpClient
from acceld.http.server import Server
from acceld.store.database import Store
from acceld.store.maintenance import backup, check, size_bytes
from acceld.store.schema.migrations import SCHEMA_VERSION
from tests.faults import jobs
from tests.faults.harness import client_of, fill_disk, kill_daemons, kill_migrations, kill_writers, start
from tests.faults.power import cut_power
from tests.store import records

Result = tuple[bool, dict[str, Any]]


def kill_a_writer(folder: Path, rounds: int) -> Result:
    """Kill, by kill -9, a process that writes to the database, and check the database."""
    found = kill_writers(folder, rounds)
    return found.lost == 0 and found.damaged == 0 and found.reopen_s < 1, vars(found)


def kill_a_daemon(folder: Path, rounds: int) -> Result:
    """Kill a daemon during a run by kill -9. Its model and its device are scripted."""
    found = kill_daemons(folder, max(3, rounds // 10))
    return found.state == "finished" and not found.repeated and not found.problems, vars(found)


def kill_the_real_daemon(folder: Path, rounds: int) -> Result:
    """Kill a real daemon with kill -9 during a search; its children must end within 2 s."""
    home, rng = Home(folder / ".acceld"), random.Random(1)
    environment = os.environ | {"XDG_RUNTIME_DIR": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    kills, run, slowest_s, survivors = max(3, rounds // 10), 0, 0.0, 0
    for life in range(kills + 1):
        daemon = start("acceld.daemon.process", "--home", str(home.path), environment=environment)
        client = client_of(home)
        if not run:
            run = client.send("POST", "/v1/runs", {"workload": "silu", "preset": "quick"})["id"]
        if life == kills:
            ended = _wait_for_end(client, run)
            daemon.send_signal(signal.SIGTERM)
            daemon.communicate(timeout=60)
            break
        time.sleep(rng.uniform(0.5, 12))
        children = _descendants(daemon.pid)
        daemon.kill()
        daemon.communicate(timeout=30)
        began = time.monotonic()
        while (alive := [pid for pid in children if _lives(pid)]) and time.monotonic() - began < 5:
            time.sleep(0.01)
        slowest_s, survivors = max(slowest_s, time.monotonic() - began), survivors + len(alive)
    report = check(home.database)
    repeated = _count(
        home.database, "SELECT count(*) FROM (SELECT 1 FROM evaluations GROUP BY key HAVING count(*) > 1)"
    )
    reported = {
        "kills": kills,
        "state": ended,
        "repeated": repeated,
        "survivors": survivors,
        "slowest_end_s": slowest_s,
    }
    return ended == "finished" and not repeated and not survivors and slowest_s < 2 and not report.problems, reported


def kill_jobs(folder: Path, rounds: int) -> Result:
    """Kill zygotes, supervisors and workers of the sandbox at random while they evaluate."""
    found = asyncio.run(jobs.kill_jobs(rounds))
    reported = vars(found) | {"ends": dict(found.ends)}
    return not found.wrong and not found.left and found.descriptors <= 2, reported


def end_trees(folder: Path, rounds: int) -> Result:
    """End process trees, each of six processes that ignore signals and leave their session."""
    slowest_s = asyncio.run(jobs.end_trees(max(5, rounds // 4)))
    return slowest_s <= 0.25, {"trees": max(5, rounds // 4), "slowest_s": slowest_s}


def set_off_bombs(folder: Path, rounds: int) -> Result:
    """Run jobs that exhaust memory, processes, processor time or output, beside honest jobs."""
    found = asyncio.run(jobs.set_off_bombs(max(2, rounds // 20)))
    ended = not any("status 0" in text for text in found.ends.values())
    return ended and not found.neighbor_failures and found.grown_bytes < 64 << 20, vars(found)


def stall_a_listener(folder: Path, rounds: int) -> Result:
    """Connect five listeners to the events, one of which reads nothing. Memory must stay bounded, and the other
    four must get every event.
    """
    events, size = 300 * max(50, rounds), 1000

    async def go() -> dict[str, Any]:
        store = await asyncio.to_thread(Store.open, folder / "acceld.db")
        server = Server(store, None, socket_path=folder / "s", token="t" * 64)
        await server.start()
        reader, writer = await asyncio.open_unix_connection(str(folder / "s"))
        writer.write(
            b"GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Authorization: Bearer " + b"t" * 64 + b"\r\n\r\n"
        )
        await reader.readline()  # from here on this connection reads nothing

        async def listen() -> int:
            client, seen, missed = HttpClient(socket_path=folder / "s", token="t" * 64), 0, 0
            async for batch in client.events(0):
                missed += sum(event.seq != seen + 1 + place for place, event in enumerate(batch))
                seen = batch[-1].seq
                if seen >= events:
                    break
            await client.close()
            return missed

        listeners = [asyncio.create_task(listen()) for _ in range(4)]
        grown, before = 0, 0
        for _ in range(events // 500):
            await asyncio.gather(*(store.change(write_notice, None, "info", "x" * size) for _ in range(500)))
            before = before or _rss(os.getpid())  # memory taken for the first page of events is not growth
            grown = max(grown, _rss(os.getpid()) - before)
        missed = sum(await asyncio.gather(*listeners))
        writer.close()
        await server.stop()
        await store.close()
        return {"events": events, "bytes": events * size, "grown_bytes": grown, "missed": missed}

    reported = asyncio.run(go())
    return reported["grown_bytes"] < 32 << 20 and not reported["missed"], reported


def look_for_keys(folder: Path, rounds: int) -> Result:
    """Kill a daemon that has API keys in its environment, and search for the keys where they should not be."""
    home, canaries = Home(folder / ".acceld"), [f"sk-canary-{os.urandom(16).hex()}" for _ in range(2)]
    environment = os.environ | {"XDG_RUNTIME_DIR": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    environment |= dict(zip(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), canaries, strict=True))
    hits, looked, lives = set[str](), 0, max(3, rounds // 20)
    for life in range(lives):
        daemon = start("acceld.daemon.process", "--home", str(home.path), environment=environment)
        client = client_of(home)
        if not life:
            client.send("POST", "/v1/runs", {"workload": "silu", "preset": "quick"})
        end = time.monotonic() + 4
        while time.monotonic() < end:
            for pid in _descendants(daemon.pid):
                looked += 1
                hits.update(f"/proc/PID/{name}" for name in ("environ", "cmdline") if _holds(pid, name, canaries))
            time.sleep(0.05)
        hits.update({"the daemon's cmdline"} if _holds(daemon.pid, "cmdline", canaries) else ())
        daemon.kill()
        daemon.communicate(timeout=30)
    files = [path for path in folder.rglob("*") if path.is_file()]
    hits.update(
        str(path.relative_to(folder)) for path in files if any(one.encode() in path.read_bytes() for one in canaries)
    )
    reported = {"lives": lives, "files": len(files), "looks_at_children": looked, "hits": sorted(hits)}
    return looked > 0 and not hits, reported


def cut_the_power(folder: Path, rounds: int) -> Result:
    """Simulate power cuts: writes that were not synced are lost, torn or kept, at random."""
    found = cut_power(folder, rounds)
    if found is None:
        return True, {"skipped": "needs the package apsw"}
    return found["full_lost"] == 0 and found["full_corrupt"] == 0 and found["normal_corrupt"] == 0, found


def fill_the_disk(folder: Path, rounds: int) -> Result:
    """Simulate a full disk, by limits on the size of files."""
    slowest_s, good = 0.0, True
    sizes = [800_000 + 12_345 * number for number in range(max(5, rounds // 10))]
    for size in sizes:
        place = folder / str(size)
        place.mkdir()
        found = fill_disk(place, size)
        good &= found.readable >= found.acknowledged and found.stored == found.written and not found.problems
        slowest_s = max(slowest_s, found.recovered_s)
    return good and slowest_s <= 5, {"sizes": len(sizes), "slowest_recovery_s": slowest_s}


def start_together(folder: Path, rounds: int) -> Result:
    """Start many processes for one state folder at the same moment."""
    import multiprocessing

    home = Home(folder / ".acceld")
    home.prepare()
    fork = multiprocessing.get_context("fork")
    wrong = 0
    for _ in range(rounds):
        gate, answers = fork.Barrier(8), fork.Queue()
        processes = [fork.Process(target=_try_lock, args=(home, gate, answers)) for _ in range(8)]
        for process in processes:
            process.start()
        won = sum(answers.get(timeout=60) for _ in processes)
        for process in processes:
            process.join()
        wrong += won != 1
    return wrong == 0, {"rounds": rounds, "processes": 8, "not_exactly_one": wrong}


def migrate_killed(folder: Path, rounds: int) -> Result:
    """Kill a migration of the database at each of its statements."""
    path = folder / "acceld.db"

    async def fill() -> None:
        store = await asyncio.to_thread(Store.open, path)
        await records.small_run(store)
        await store.close()

    asyncio.run(fill())
    steps = kill_migrations(path)
    whole_or_not = {(SCHEMA_VERSION, 0, 0), (SCHEMA_VERSION + 1, 1, 1)}
    good = all(sound and (version, whole, some) in whole_or_not for _, version, sound, whole, some in steps)
    copies = len(list((folder / "backups").glob("*.db")))
    return good and copies > 0, {"statements": len(steps), "copies": copies}


def copy_under_load(folder: Path, rounds: int) -> Result:
    """Copy the database while rows are written. Measure the time of a copy, and what it costs the writer."""

    async def go() -> dict[str, Any]:
        store = await asyncio.to_thread(Store.open, folder / "acceld.db")
        while size_bytes(store.path) < 100 << 20:
            await asyncio.gather(
                *(store.change(write_notice, None, "info", os.urandom(8000).hex()) for _ in range(200))
            )
        stop, slowest_s = False, 0.0

        async def write() -> None:
            nonlocal slowest_s
            while not stop:
                began = time.monotonic()
                await store.change(write_notice, None, "info", "x" * 500)
                slowest_s = max(slowest_s, time.monotonic() - began)
                await asyncio.sleep(0.005)

        writing = asyncio.create_task(write())
        took = []
        for number in range(3):
            began = time.monotonic()
            await asyncio.to_thread(backup, store.path, folder / f"{number}.db")
            took.append(time.monotonic() - began)
        stop = True
        await writing
        size = size_bytes(store.path)
        await store.close()
        problems = [problem for number in range(3) for problem in check(folder / f"{number}.db").problems]
        return {"bytes": size, "slowest_copy_s": max(took), "writer_stall_s": slowest_s, "problems": problems}

    reported = asyncio.run(go())
    per_200_mb = reported["slowest_copy_s"] * (200 << 20) / reported["bytes"]
    return not reported["problems"] and per_200_mb <= 2 and reported["writer_stall_s"] <= 0.25, reported


def soak(folder: Path, rounds: int, hours: float = 2.0) -> Result:
    """Run a daemon for hours, with a scripted model and a scripted device. Memory, descriptors and files must not grow."""
    home = Home(folder / ".acceld")
    environment = os.environ | {"XDG_RUNTIME_DIR": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    environment["SCRIPTED_S"] = "0.002"
    daemon = start("tests.acceld.daemon.scripted", "--home", str(home.path), environment=environment)
    client, samples, end = client_of(home), list[tuple[int, int]](), time.monotonic() + hours * 3600
    while time.monotonic() < end:
        run = client.send("POST", "/v1/runs", {"workload": "silu", "preset": "quick"})["id"]
        _wait_for_end(client, run)
        samples.append((_rss(daemon.pid), len(os.listdir(f"/proc/{daemon.pid}/fd"))))
    wal = home.database.with_name("acceld.db-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    daemon.send_signal(signal.SIGTERM)
    daemon.communicate(timeout=60)
    half = samples[len(samples) // 2 :]
    slope = _slope([(number / 1000, rss / 2**20) for number, (rss, _) in enumerate(half)])
    fds = half[-1][1] - half[0][1]
    reported = {
        "runs": len(samples), "hours": hours, "rss_mb_per_1000_runs": slope, "descriptors": fds, "wal_bytes": wal_bytes
    }  # fmt: skip
    return slope < 2 and fds <= 2 and wal_bytes < 64 << 20, reported


FAULTS: dict[str, tuple[Callable[..., Result], ...]] = {
    "F01": (kill_a_writer, kill_a_daemon, kill_the_real_daemon),
    "F02": (cut_the_power,),
    "F03": (fill_the_disk,),
    "F05": (kill_jobs,),
    "F06": (end_trees,),
    "F07": (set_off_bombs,),
    "F14": (look_for_keys,),
    "F15": (stall_a_listener,),
    "F16": (start_together,),
    "F17": (migrate_killed,),
    "F18": (copy_under_load,),
    "F20": (soak,),
}


def main() -> int:
    """Run the chosen faults; print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(name for name in FAULTS if name != "F20"))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--hours", type=float, default=2.0, help="of the soak")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)  # SQLite's and asyncio's messages about killed parts are expected here
    missed, reported = 0, []
    for name in asked.only.split(","):
        for fault in FAULTS[name]:
            with tempfile.TemporaryDirectory(prefix="acceld-faults-") as folder:
                began = time.monotonic()
                more = {"hours": asked.hours} if fault is soak else {}
                good, found = fault(Path(folder), asked.rounds, **more)
            missed += not good
            took = round(time.monotonic() - began, 1)
            reported.append({"fault": name, "what": fault.__doc__, "held": good, "seconds": took, "found": found})
            if not asked.json:
                print(f"{name}  {'held  ' if good else 'MISSED'}  {took:7.1f} s  {fault.__doc__}  {found}", flush=True)
    if asked.json:
        print(json.dumps({"version": 1, "faults": reported, "missed": missed}, indent=2))
    return 1 if missed else 0


def _wait_for_end(client: Client, run: int, timeout_s: float = 900) -> str:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        state: str = client.get(f"/v1/runs/{run}")["state"]
        if state in ("finished", "failed", "cancelled"):
            return state
        time.sleep(0.1)
    return "not ended"


def _descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def _holds(pid: int, name: str, canaries: list[str]) -> bool:
    try:
        data = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return False
    return any(one.encode() in data for one in canaries)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _slope(points: list[tuple[float, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def _try_lock(home: Home, gate: Any, answers: Any) -> None:
    from acceld.errors import DaemonError

    gate.wait()
    try:
        lock = DaemonLock(home)
        lock.announce(Path("/x"), "1")
    except DaemonError:
        gate.wait()
        answers.put(0)
        return
    gate.wait()
    answers.put(1)
    lock.release()


def _count(path: Path, sql: str) -> int:
    from acceld.store.connection import connect_reader

    connection = connect_reader(path)
    try:
        value: int = connection.execute(sql).fetchone()[0]
        return value
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
