"""Send the requests of ``acceld watch`` to the daemon: searches, and measurements on its devices."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from acceld.cli.kernels import plain
from acceld.config import Config
from acceld.errors import AcceldError
from acceld.events import RunStateChanged
from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.model import PROPOSERS, Evaluation, Gate, Kernel, waits_for_remedy
from acceld.report.endings import why
from acceld.targets import Choice
from acceld.watch.answers import evaluation_from
from acceld.watch.tiers import SaveResult, Watched

MEASURING_S = 1800.0
"""Deadline of a measurement in seconds, including its wait in the queue."""


class WatchRuns:
    """Searches and measurements that ``acceld watch`` asks of the daemon.

    ``report`` is called with each step of a search, and ``won`` with each file for which a faster kernel was
    found.
    """

    def __init__(self, home: Home, settings: Config, where: Choice, report: Callable[[SaveResult], None]) -> None:
        self.won: Callable[[Watched], None] = lambda watched: None
        self._client = HttpClient.of(home)
        self._patient = HttpClient.of(home, timeout_s=MEASURING_S)
        self._home, self._settings, self._where, self._report = home, settings, where, report
        self._following: dict[int, asyncio.Task[None]] = {}

    def reachable(self) -> bool:
        """Tell whether a daemon runs now."""
        return self._home.daemon() is not None

    async def start(self, watched: Watched, kernel: Kernel, usd: float | None) -> int:
        """Start a search from a file's present text, and return the run's id. ``usd`` is its cap (None: no cap
        of its own).
        """
        proposer = self._settings.search.proposer
        spec = self._asked(watched) | {
            "api": kernel.api,
            "proposer": proposer,
            "preset": "quick",
            "name": f"watch {kernel.filename}",
            "search": {"budget_usd": usd} if PROPOSERS[proposer].uses_models else {},
            "root": plain(kernel),
        }
        number = int((await self._client.send("POST", "/v1/runs", spec))["id"])
        self._following[number] = asyncio.create_task(self._follow(number, watched, kernel.text))
        return number

    async def measured(self, watched: Watched, kernel: Kernel, gate: Gate) -> Evaluation:
        """Return the evaluation of a kernel on the daemon's device. A person's saves go before all other
        requests.
        """
        asked = self._asked(watched) | {"gate": gate.value, "kernel": plain(kernel)}
        return evaluation_from(await self._patient.send("POST", "/v1/evaluations", asked))

    async def cancel(self, run: int) -> None:
        """Cancel a search, because its kernel was edited."""
        task = self._following.pop(run, None)
        if task is not None and not task.done():
            task.cancel()
            with contextlib.suppress(AcceldError):
                await self._client.send("POST", f"/v1/runs/{run}/actions", {"action": "cancel"})

    async def close(self) -> None:
        """Disconnect from the daemon. Its searches continue."""
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)
        await self._client.close()
        await self._patient.close()

    def _asked(self, watched: Watched) -> dict[str, Any]:
        return {
            "workload": watched.workload,
            "workload_folder": watched.workload_folder,
            "backend": self._where.backend,
            "chip": self._where.chip,
        }

    async def _follow(self, run: int, watched: Watched, base: str) -> None:
        async for batch in self._client.follow(0, run):
            states = [one.data for one in batch if isinstance(one.data, RunStateChanged) and one.run == run]
            if any(one.state.ended or waits_for_remedy(one.state, one.message) for one in states):
                break
        row = await self._client.get(f"/v1/runs/{run}")
        result = await self._client.get(f"/v1/runs/{run}/outcome")
        if not (row["best"] and result["improved"]):
            told = why(result) or row["message"]
            self._report(
                SaveResult(watched.path, "optimized", f"r{run}: {told}; acceld show r{run} says what to try next")
            )
            return
        text = (await self._client.get(f"/v1/candidates/{row['best']}"))["text"]
        watched.best = (base, text)
        place = self._home.path / "best" / f"{watched.workload.replace('/', '_')}_{watched.path.name}"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
        reported = (
            f"r{run}: {row['speedup']:.2f}x, in {place}; press d to see the diff, A to write the kernel over your file"
        )
        self._report(
            SaveResult(
                watched.path,
                "optimized",
                reported,
                True,
                data={"run": run, "speedup": row["speedup"], "improved": True, "tie_band": row["tie_band"]},
            )
        )
        self.won(watched)
