"""Measure the terminal UI at 100,000 candidates and 1,000 events a second: echo, processor time, memory.

The real application runs without a terminal. In place of the daemon, a client sends it batches of events at a
steady rate. Echo is the time from a key press to the end of the refresh that shows its effect. ``make
bench-tui`` runs this.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pty
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from acceld.events import Event, EventKind
from acceld.tui.app import ConsoleApp
from acceld.tui.widgets.lines import LineList

RUN = 1
BATCH_S = 0.05
STARTS = 5
KEYS = ("down", "up", "pagedown", "pageup", "down", "down", "up")


class Firehose:
    """Client that serves a run of ``candidates`` rows, and then ``rate`` events a second."""

    read_only = False
    where = "bench"

    def __init__(self, candidates: int, rate: int, seconds: float) -> None:
        self.candidates, self.rate, self.seconds = candidates, rate, seconds
        self.sent = 0
        self._draw = random.Random(0)
        self._rows = [self._row(number) for number in range(1, candidates + 1)]

    def _row(self, number: int) -> dict[str, Any]:
        passed = number == 1 or self._draw.random() < 0.6
        latency_us = 800.0 / (1 + number / self.candidates) * self._draw.uniform(0.95, 1.3) if number > 1 else 800.0
        return {
            "id": number,
            "parent": None if number == 1 else max(1, number // 16),
            "plan": number,
            "iteration": number // 200,
            "sha256": f"{number:08x}",
            "state": "done",
            "status": "passed" if passed else "incorrect_numerical",
            "latency_us": latency_us if passed else None,
            "speedup": 800.0 / latency_us if passed else None,
            "percent_of_peak": 40.0,
        }

    async def get(self, path: str, **parameters: Any) -> Any:
        """Answer the requests of the Beam screen."""
        run = {
            "id": RUN,
            "workload": "bench",
            "chip": "trn1",
            "api": "nki_legacy",
            "backend": "simulator",
            "proposer": "rules",
            "preset": "paper",
            "state": "running",
            "message": "",
            "iteration": 16,
            "iterations": 16,
            "baseline": 1,
            "best": self.candidates,
            "baseline_latency_us": 800.0,
            "best_latency_us": 400.0,
            "speedup": 2.0,
            "candidates": self.candidates,
            "cost_usd": 0.0,
            "created_at": 0.0,
            "search": {"iterations": 16},
        }
        if path == "/v1/hello":
            return {"api": 1, "last_seq": 10}
        if path == "/v1/runs":
            return {"runs": [run]}
        if path == f"/v1/runs/{RUN}":
            return run
        if path.endswith("/candidates"):
            after = parameters.get("after") or 0
            return {"candidates": self._rows[after : after + parameters["limit"]]}
        if path.startswith("/v1/candidates/"):
            text = "\n".join(f"    line_{number} = nl.load(x[{number}])" for number in range(80))
            parent_text = text.replace("line_7", "row_7")
            return {"id": int(path.rpartition("/")[2]), "parent": 1, "text": text, "parent_text": parent_text}
        return {"plans": [], "events": []}

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Accept an action, without any effect."""
        return {}

    async def events(self, after: int) -> AsyncIterator[list[Event]]:
        """Yield a batch of events every 50 ms."""
        seq, number = after, self.candidates
        started = time.monotonic()
        while (now := time.monotonic() - started) < self.seconds:
            batch = []
            while self.sent < now * self.rate:
                seq, self.sent = seq + 1, self.sent + 1
                match self.sent % 4:
                    case 1:
                        number += 1
                        parent = self._draw.randrange(1, self.candidates)
                        data: dict[str, Any] = {"candidate": number, "parent": parent, "plan": number, "iteration": 16}
                        batch.append(Event(EventKind.CANDIDATE_WRITTEN, RUN, data, seq, now))
                    case 2:
                        batch.append(Event(EventKind.CANDIDATE_QUEUED, RUN, {"candidate": number}, seq, now))
                    case 3:
                        data = {"candidate": number, "device": f"sim{number % 2}"}
                        batch.append(Event(EventKind.CANDIDATE_STARTED, RUN, data, seq, now))
                    case _:
                        data = {"candidate": number, "status": "passed", "latency_us": 500.0, "speedup": 1.6}
                        batch.append(Event(EventKind.CANDIDATE_EVALUATED, RUN, data, seq, now))
            if batch:
                yield batch
            await asyncio.sleep(BATCH_S)
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Do nothing: no connection is open."""


async def measure(candidates: int, rate: int, seconds: float) -> dict[str, float]:
    """Run the application for ``seconds`` and press keys meanwhile. Return the figures."""
    client = Firehose(candidates, rate, seconds)
    app = ConsoleApp(client, run=RUN)
    echoes: list[float] = []
    costs: list[float] = []
    async with app.run_test(size=(120, 40)):
        while app.session.run_view is None or len(app.session.run_view.candidates) < candidates:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.05)
        app.switch_mode("beam")
        await asyncio.sleep(1.0)
        tree = app.screen.query_one("#tree", LineList)
        memory_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, cpu = time.monotonic(), time.process_time()
        place = 0
        while time.monotonic() - began < seconds:
            pressed, pressed_cpu = time.monotonic(), time.process_time()
            getattr(tree, "action_move" if "page" not in KEYS[place] else "action_page")(
                -1 if KEYS[place] in ("up", "pageup") else 1
            )
            shown = asyncio.Event()
            app.call_after_refresh(shown.set)
            await asyncio.wait_for(shown.wait(), 30.0)
            echoes.append(time.monotonic() - pressed)
            costs.append(time.process_time() - pressed_cpu)
            place = (place + 1) % len(KEYS)
            await asyncio.sleep(0.05)
        elapsed = time.monotonic() - began
        used = time.process_time() - cpu
        shown_candidates = len(app.session.run_view.candidates)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_kib
    return {
        "candidates": shown_candidates,
        "events_per_s": client.sent / elapsed,
        "echo_ms_p50": 1000 * statistics.median(echoes),
        "echo_ms_p95": 1000 * statistics.quantiles(echoes, n=20)[-1],
        "echo_cpu_ms_p50": 1000 * statistics.median(costs),
        "echo_cpu_ms_p95": 1000 * statistics.quantiles(costs, n=20)[-1],
        "cpu_cores": used / elapsed,
        "memory_mib": (memory_kib + grown_kib) / 1024,
        "grown_mib": grown_kib / 1024,
    }


def starts() -> dict[str, float]:
    """Return the seconds that ``acceld restart`` takes, and those until ``acceld attach`` draws its first
    picture: medians of five.
    """
    acceld, restarts, pictures = [sys.executable, "-m", "acceld"], [], []
    with tempfile.TemporaryDirectory() as folder:
        environ = os.environ | {"XDG_RUNTIME_DIR": folder, "TERM": "xterm-256color"}
        (Path(folder) / ".acceld").mkdir()
        subprocess.run([*acceld, "start"], cwd=folder, env=environ, check=True, capture_output=True)
        for _ in range(STARTS):
            began = time.monotonic()
            subprocess.run([*acceld, "restart"], cwd=folder, env=environ, check=True, capture_output=True)
            restarts.append(time.monotonic() - began)
            ours, theirs = pty.openpty()
            termios.tcsetwinsize(theirs, (40, 120))
            began, shown = time.monotonic(), b""
            process = subprocess.Popen(
                [*acceld, "attach"], cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
            )
            while b"Candidate" not in shown:
                shown += os.read(ours, 65536)
            pictures.append(time.monotonic() - began)
            process.kill()
            process.wait()
            os.close(ours)
            os.close(theirs)
        subprocess.run([*acceld, "stop"], cwd=folder, env=environ, check=True, capture_output=True)
    return {"restart_s": statistics.median(restarts), "attach_s": statistics.median(pictures)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--starts", action="store_true", help="only how long restart and attach take")
    arguments = parser.parse_args()
    if arguments.starts:
        for name, value in starts().items():
            print(f"{name:<16} {value:12.2f}")
        return
    for name, value in asyncio.run(measure(arguments.candidates, arguments.rate, arguments.seconds)).items():
        print(f"{name:<16} {value:12.2f}")


if __name__ == "__main__":
    main()
