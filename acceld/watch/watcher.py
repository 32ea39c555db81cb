"""Watch kernel files, evaluate each save, cheap checks first, and report each result at once."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from acceld import figures
from acceld.errors import AcceldError, UsageError
from acceld.kernel_files import load_kernel, package_root
from acceld.model import Evaluation, Kernel, Source, Status
from acceld.watch.files import MANY, SavedFiles
from acceld.watch.hashes import Hashes, hashes
from acceld.watch.policy import Policy
from acceld.watch.rebase import rebased
from acceld.watch.settings import SettingsFiles
from acceld.watch.tiers import Evaluate, SaveResult, Tiers, Watched, carried, latency_text


class Optimizer(Protocol):
    """Interface by which the watcher starts and ends searches. Methods raise AcceldError if they fail."""

    def reachable(self) -> bool:
        """Return True if a search could start now."""
        ...

    async def start(self, watched: Watched, kernel: Kernel, usd: float | None) -> int:
        """Start a search from ``kernel`` with a cap of ``usd``, and return its run's id."""
        ...

    async def cancel(self, run: int) -> None:
        """End a run, because its kernel was edited after the run began."""
        ...


class Watcher:
    """Watch kernel files, and report the changes of each save."""

    def __init__(
        self,
        files: list[Watched],
        predict: Evaluate,
        report: Callable[[SaveResult], None],
        *,
        policy: Policy | None = None,
        optimizer: Optimizer | None = None,
        quiet_s: float = 0.3,
        settings: SettingsFiles | None = None,
        device: Evaluate | None = None,
        simulated: bool = True,
    ) -> None:
        """Prepare the watcher. ``device`` evaluates a kernel by measuring it on a device.

        With ``simulated`` False a save is only measured, not predicted.
        """
        self.files = {watched.path.resolve(): watched for watched in files}
        self.paused = False
        self._report = report
        self._ladder = Tiers(predict, device, simulated=simulated)
        self._policy, self._optimizer = policy or Policy(), optimizer
        self._settings = settings
        self._settings_files: set[Path] = set()
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._closures: dict[Path, set[Path]] = {}
        self._by_many = False
        """True if too many files changed at once and paused the watch. The next save ends such a pause."""
        self._missed: set[Path] = set()
        """Files saved during a pause, which are evaluated after it."""
        self._saved = SavedFiles(self._all_files(), quiet_s=quiet_s)

    async def run(self) -> None:
        """Evaluate the watched files as they are, then each save, until the caller cancels the task."""
        try:
            self.start()
            async for batch in self._saved.batches():
                self._take(batch)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def start(self) -> None:
        """Evaluate every watched file as it is."""
        for watched in self.files.values():
            self._start(watched)

    async def settled(self) -> None:
        """Wait until every evaluation that earlier saves started has ended."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def toggle_pause(self) -> None:
        """Pause the watch; if the watch is paused, resume it and evaluate the files that were saved meanwhile."""
        self._by_many, self.paused = False, not self.paused
        if not self.paused:
            self._evaluate()

    def wrote(self, path: Path) -> None:
        """Record that acceld itself wrote a file, so that the change is not taken for a save."""
        self._saved.wrote(path)

    async def optimize(self, watched: Watched) -> None:
        """Start a search from the present text of a file, if the caps allow it. A search from an earlier text of the
        file is ended.
        """
        refusal = self._policy.refusal(time.monotonic())
        if self._optimizer is None or watched.kernel is None:
            refusal = refusal or "no daemon to search with"
        if refusal:
            self._report(SaveResult(watched.path, "not_optimized", refusal, generation=watched.generation))
            return
        assert self._optimizer is not None and watched.kernel is not None
        try:
            if watched.run is not None:
                await self._optimizer.cancel(watched.run)
            watched.run = await self._optimizer.start(watched, watched.kernel, self._policy.usd_per_save)
        except AcceldError as error:
            text = f"{error.message}; {error.hint}" if error.hint else error.message
            self._report(SaveResult(watched.path, "not_optimized", text, False, generation=watched.generation))
            return
        self._policy.started(time.monotonic())
        data = {"run": watched.run}
        self._report(
            SaveResult(watched.path, "optimizing", f"r{watched.run} searches", None, 0.0, watched.generation, data)
        )

    def _all_files(self) -> set[Path]:
        if self._settings is not None:
            self._settings_files = self._settings.files()
        found = set(self._settings_files)
        for path, watched in self.files.items():
            found |= {path, *watched.contract, *self._closure(watched)}
        return found

    def _closure(self, watched: Watched) -> set[Path]:
        try:
            kernel = load_kernel(watched.path, api=watched.api)
        except UsageError:
            return self._closures.get(watched.path, set())
        root = package_root(watched.path, kernel.text)
        self._closures[watched.path] = {root / name for name in kernel.closure}
        return self._closures[watched.path]

    def _take(self, batch: frozenset[Path]) -> None:
        self._missed |= batch
        if len(batch) > MANY:
            self.paused = self._by_many = True
            first = next(iter(self.files.values()))
            text = f"{len(batch)} files changed at once: paused until the next save, or p"
            self._report(SaveResult(first.path, "paused", text, None))
            return
        saved = batch
        if self._by_many:
            self.paused = self._by_many = False
            saved = frozenset(self._missed)
        if self._settings is not None:
            for found in self._settings.check(saved & self._settings_files):
                self._report(SaveResult(found.path, "settings", found.text, None if found.good else False))
        if not self.paused:
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate each watched kernel if the file, or a module or workload that it uses, was saved since the last
        call.
        """
        batch, self._missed = self._missed, set()
        self._saved.watch(self._all_files())
        for path, watched in self.files.items():
            parts = {path, *(one.resolve() for one in watched.contract), *self._closures.get(watched.path, ())}
            if batch & {one.resolve() for one in parts}:
                self._start(watched)

    def _start(self, watched: Watched) -> None:
        """Evaluate a file's newest text. Evaluations of its older texts that have not ended are cancelled."""
        running = self._tasks.get(watched.path)
        if running is not None and not running.done():
            running.cancel()
        watched.generation += 1
        self._tasks[watched.path] = asyncio.create_task(
            self._follow(watched, watched.generation), name=f"save {watched.generation} of {watched.path.name}"
        )

    async def _follow(self, watched: Watched, generation: int) -> None:
        started = time.monotonic()

        def report(stage: str, text: str, good: bool | None = None, **data: Any) -> None:
            self._report(SaveResult(watched.path, stage, text, good, time.monotonic() - started, generation, data))

        try:
            kernel = load_kernel(watched.path, api=watched.api, entry=watched.entry)
            contract = "\0".join(path.read_text("utf-8", "replace") for path in watched.contract if path.is_file())
            now = hashes(kernel.text, kernel.closure, kernel.entry, contract, python=watched.api != "c")
        except SyntaxError as error:
            report("syntax", f"line {error.lineno}: {error.msg}", False, line=error.lineno)
            return
        except UsageError as error:
            if watched.path.is_file():
                report("unreadable", error.message, False)
            else:
                text = f"{watched.path.name} was deleted, moved or renamed; watching goes on when it is back"
                report("gone", text, False)
            return
        before, watched.hashes = watched.hashes, now
        if before is not None and (before.canonical, before.interface) == (now.canonical, now.interface):
            report("unchanged", "the code's meaning has not changed: nothing to do")
            return
        if before is not None and before.interface != now.interface:
            parts = ["the signature"] if before.signature != now.signature else []
            if before.contract != now.contract:
                parts += [" or ".join(sorted(one.name for one in watched.contract))]
            report("interface", f"{' and '.join(parts)} changed: earlier timings are not comparable")
            watched.last = watched.measured = watched.best = None
        watched.kernel = kernel
        known = watched.seen.get(now.canonical + now.interface)
        if known is not None:
            report("seen", f"evaluated before: {latency_text(known)}", known.status is Status.PASSED)
            if known.profile is not None and known.profile.source is Source.MEASURED:
                watched.measured = known
            else:
                watched.last = known
            return
        try:
            await self._tiers(watched, kernel, now, report)
        except UsageError as error:
            report("unusable", error.message, False)

    async def _tiers(self, watched: Watched, kernel: Kernel, now: Hashes, report: Callable[..., None]) -> None:
        evaluated = await self._ladder.evaluated(watched, kernel, report)
        if evaluated is None:
            return
        watched.seen[now.canonical + now.interface] = evaluated
        if evaluated.status is not Status.PASSED:
            return
        await self._carry_over(watched, kernel, evaluated, report)
        if self._policy.mode == "auto":
            await self.optimize(watched)
        elif self._policy.mode == "ask" and self._optimizer is not None and self._optimizer.reachable():
            report("ask", "press enter to optimize from here")

    async def _carry_over(
        self, watched: Watched, kernel: Kernel, evaluated: Evaluation, report: Callable[..., None]
    ) -> None:
        """Apply the earlier win to the edited file, and evaluate the result. Unlike a search, this costs nothing."""
        if watched.best is None:
            return
        text = rebased(*watched.best, kernel.text)
        if text is None or text == kernel.text:
            report("carried", "the earlier win changes the edited lines, so it can not be repeated")
            return
        try:
            again = await self._ladder.result(watched, replace(kernel, text=text))
        except AcceldError as error:
            report("carried", f"the earlier win could not be evaluated: {error.message}")
            return
        found = carried(evaluated, again)
        if found is not None and found.improved:
            diff = "".join(difflib.unified_diff(kernel.text.splitlines(True), text.splitlines(True), "yours", "best"))
            report(
                "carried", f"the earlier win still holds on your edit: {figures.speedup(found.ratio)}", True, diff=diff
            )
            watched.best = (kernel.text, text)
        else:
            why = "it is a tie, or slower" if again.status is Status.PASSED else again.status.value
            report("carried", f"the earlier win no longer holds: {why}")
