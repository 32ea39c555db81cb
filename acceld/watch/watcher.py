"""What happens after a save, tier by tier, the cheap ones first; each is told as soon as it is known."""

from __future__ import annotations

import asyncio
import difflib
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from acceld import figures
from acceld.errors import AcceldError, UsageError
from acceld.kernel_files import load_kernel
from acceld.model import Evaluation, Gate, Kernel, Status
from acceld.watch.deltas import deltas, new_notes
from acceld.watch.files import MANY, SavedFiles
from acceld.watch.hashes import Hashes, hashes
from acceld.watch.policy import Policy
from acceld.watch.rebase import rebased

SHOWN_DELTAS = 6


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a save led to. ``stage`` names it for programs."""

    path: Path
    stage: str
    text: str
    good: bool | None = None
    """True and False are news; None is neither."""
    seconds: float = 0.0
    """Since the save was noticed."""
    generation: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)


class Judge(Protocol):
    """Judges a kernel before everything else; a bad kernel is a value."""

    async def __call__(self, kernel: Kernel, gate: Gate) -> Evaluation: ...


class Optimizer(Protocol):
    """Starts searches. AcceldError where it can not."""

    async def start(self, kernel: Kernel, usd: float | None) -> int:
        """The run that was started."""
        ...

    async def cancel(self, run: int) -> None:
        """End a run whose kernel has been edited since."""
        ...


@dataclass
class Watched:
    """One kernel file and what was last known of it."""

    path: Path
    api: str
    contract: tuple[Path, ...] = ()
    """Reference and workload files: a change there is a new interface."""
    entry: str = ""
    hashes: Hashes | None = None
    last: Evaluation | None = None
    head: tuple[str, Evaluation] | None = None
    """Hash of the committed version, and its timing."""
    kernel: Kernel | None = None
    run: int | None = None
    best: tuple[str, str] | None = None
    """Base and best text of the newest win."""
    generation: int = 0
    seen: dict[str, Evaluation] = field(default_factory=dict)
    """Verdicts by canonical and interface hash, so that going back costs nothing."""


class Watcher:
    """Watches kernel files and tells what each save changes."""

    def __init__(
        self,
        files: list[Watched],
        judge: Judge,
        tell: Callable[[Step], None],
        *,
        policy: Policy | None = None,
        optimizer: Optimizer | None = None,
        quiet_s: float = 0.3,
        validate: Callable[[Path], str] | None = None,
        settings: tuple[Path, ...] = (),
    ) -> None:
        self.files = {watched.path.resolve(): watched for watched in files}
        self.paused = False
        self._judge, self._tell = judge, tell
        self._policy, self._optimizer = policy or Policy(), optimizer
        self._validate, self._settings = validate, settings
        self._tasks: dict[Path, asyncio.Task[None]] = {}
        self._closures: dict[Path, set[Path]] = {}
        self._saved = SavedFiles(self._all_files(), quiet_s=quiet_s)

    async def run(self) -> None:
        """Judge what is there, then follow saves until cancelled."""
        try:
            self.start()
            async for batch in self._saved.batches():
                self._take(batch)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def start(self) -> None:
        """Judge every file as it is."""
        for watched in self.files.values():
            self._start(watched)

    async def settled(self) -> None:
        """Wait for everything that the saves so far have started."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def wrote(self, path: Path) -> None:
        """A file was written by acceld itself."""
        self._saved.wrote(path)

    async def optimize(self, watched: Watched) -> None:
        """Start a search from the file as it is, within the caps."""
        refusal = self._policy.refusal(time.monotonic())
        if self._optimizer is None or watched.kernel is None:
            refusal = refusal or "no daemon to search with"
        if refusal:
            self._tell(Step(watched.path, "not_optimized", refusal, generation=watched.generation))
            return
        assert self._optimizer is not None and watched.kernel is not None
        try:
            if watched.run is not None:
                await self._optimizer.cancel(watched.run)
            watched.run = await self._optimizer.start(watched.kernel, self._policy.usd_per_save)
        except AcceldError as error:
            self._tell(Step(watched.path, "not_optimized", error.message, False, generation=watched.generation))
            return
        self._policy.started(time.monotonic())
        data = {"run": watched.run}
        self._tell(Step(watched.path, "optimizing", f"r{watched.run} searches", None, 0.0, watched.generation, data))

    def _all_files(self) -> set[Path]:
        found = set(self._settings)
        for path, watched in self.files.items():
            found |= {path, *watched.contract, *self._closure(watched)}
        return found

    def _closure(self, watched: Watched) -> set[Path]:
        try:
            kernel = load_kernel(watched.path, api=watched.api)
        except UsageError:
            return self._closures.get(watched.path, set())
        from acceld.kernel_files import package_root

        root = package_root(watched.path)
        self._closures[watched.path] = {root / name for name in kernel.closure}
        return self._closures[watched.path]

    def _take(self, batch: frozenset[Path]) -> None:
        if len(batch) > MANY:
            self.paused = True
            first = next(iter(self.files.values()))
            self._tell(Step(first.path, "paused", f"{len(batch)} files changed at once; press p to go on", None))
            return
        for path in batch & {one.resolve() for one in self._settings}:
            refusal = self._validate(path) if self._validate else ""
            text = f"{path.name} rejected, the old one stays: {refusal}" if refusal else f"{path.name} is valid"
            self._tell(Step(path, "settings", text, not refusal))
        if self.paused:
            return
        self._saved.watch(self._all_files())
        for path, watched in self.files.items():
            parts = {path, *(one.resolve() for one in watched.contract), *self._closures.get(watched.path, ())}
            if batch & {one.resolve() for one in parts}:
                self._start(watched)

    def _start(self, watched: Watched) -> None:
        """Judge the newest state; what an older one was waiting for is dropped."""
        running = self._tasks.get(watched.path)
        if running is not None and not running.done():
            running.cancel()
        watched.generation += 1
        self._tasks[watched.path] = asyncio.create_task(
            self._follow(watched, watched.generation), name=f"save {watched.generation} of {watched.path.name}"
        )

    async def _follow(self, watched: Watched, generation: int) -> None:
        started = time.monotonic()

        def tell(stage: str, text: str, good: bool | None = None, **data: Any) -> None:
            self._tell(Step(watched.path, stage, text, good, time.monotonic() - started, generation, data))

        try:
            kernel = load_kernel(watched.path, api=watched.api, entry=watched.entry)
            contract = "\0".join(path.read_text("utf-8", "replace") for path in watched.contract if path.is_file())
            now = hashes(kernel.text, kernel.closure, kernel.entry, contract)
        except SyntaxError as error:
            tell("syntax", f"line {error.lineno}: {error.msg}", False, line=error.lineno)
            return
        except UsageError as error:
            tell("unreadable", error.message, False)
            return
        before, watched.hashes = watched.hashes, now
        if before is not None and (before.canonical, before.interface) == (now.canonical, now.interface):
            tell("unchanged", "same meaning: nothing to do")
            return
        if before is not None and before.interface != now.interface:
            tell("interface", "the interface changed: earlier timings no longer compare")
            watched.last = watched.best = None
        watched.kernel = kernel
        known = watched.seen.get(now.canonical + now.interface)
        if known is not None:
            tell("seen", f"seen before: {_latency(known)}", known.status is Status.PASSED)
            watched.last = known
            return
        try:
            await self._tiers(watched, kernel, now, tell)
        except UsageError as error:
            tell("unusable", error.message, False)

    async def _tiers(self, watched: Watched, kernel: Kernel, now: Hashes, tell: Callable[..., None]) -> None:
        timed = await self._judge(kernel, Gate.TIMING)
        if timed.profile is None:
            failure = timed.failure
            line = f"line {failure.line}: " if failure and failure.line else ""
            hint = f" ({failure.hint})" if failure and failure.hint else ""
            text = f"{line}{failure.message}{hint}" if failure else timed.status.value
            tell(timed.status.value, text, False, line=failure.line if failure else 0)
            return
        await self._compare(watched, timed, tell)
        judged = await self._judge(kernel, Gate.SEARCH)
        watched.seen[now.canonical + now.interface] = judged
        if judged.status is not Status.PASSED:
            failure = judged.failure
            tell(judged.status.value, failure.message if failure else judged.status.value, False)
            return
        assert judged.correctness is not None
        tell("correct", f"correct: error {judged.correctness.rel_l2:.1e} of {judged.correctness.tolerance:.1e}", True)
        watched.last = judged
        await self._carry_over(watched, kernel, judged, tell)
        if self._policy.mode == "auto":
            await self.optimize(watched)
        elif self._policy.mode == "ask" and self._optimizer is not None:
            tell("ask", "press enter to optimize from here")

    async def _compare(self, watched: Watched, timed: Evaluation, tell: Callable[..., None]) -> None:
        assert timed.profile is not None
        tell("legal", "parses and is legal", None)
        committed = await self._committed(watched)
        against = (("the last save", watched.last), ("git HEAD", committed))
        for name, other in against:
            if other is None or other.profile is None:
                continue
            found = deltas(other.profile, timed.profile)
            for one in found[:SHOWN_DELTAS]:
                data = {"name": one.name, "before": one.before, "after": one.after, "exact": one.exact}
                tell("delta", f"{one.text} against {name}", None, against=name, **data)
        known = watched.last or committed
        for note in new_notes(known.profile if known else None, timed.profile):
            tell("warning", note, False)
        base = watched.last or committed
        text, good = _latency(timed), None
        if base is not None and base.latency_us and timed.latency_us:
            ratio = base.latency_us / timed.latency_us
            good = ratio > 1.005 if abs(ratio - 1) > 0.005 else None
            text = f"{figures.duration(base.latency_us)} -> {text}, {figures.speedup(ratio)}"
        tell("predicted", text, good, latency_us=timed.latency_us, interval_percent=timed.profile.interval_percent)
        if watched.last is None:
            watched.last = timed

    async def _committed(self, watched: Watched) -> Evaluation | None:
        """The timing of the version in git HEAD, made once a commit; None without one."""
        words = ["git", "-C", str(watched.path.parent), "show", f"HEAD:./{watched.path.name}"]
        try:
            shown = await asyncio.to_thread(subprocess.run, words, capture_output=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if shown.returncode:
            return None
        text = shown.stdout.decode("utf-8", "replace")
        assert watched.kernel is not None
        kernel = Kernel(
            text, watched.api, watched.entry, filename=watched.path.name, trusted=True, closure=watched.kernel.closure
        )
        if watched.head is None or watched.head[0] != kernel.sha256:
            if text == watched.kernel.text:
                return None
            watched.head = (kernel.sha256, await self._judge(kernel, Gate.TIMING))
        return watched.head[1]

    async def _carry_over(
        self, watched: Watched, kernel: Kernel, judged: Evaluation, tell: Callable[..., None]
    ) -> None:
        """Try the earlier win on the edited file before anything is spent."""
        if watched.best is None:
            return
        text = rebased(*watched.best, kernel.text)
        if text is None or text == kernel.text:
            tell("carried", "the earlier win touches the edited lines; it can not be carried over")
            return
        again = await self._judge(
            Kernel(text, kernel.api, kernel.entry, filename=kernel.filename, trusted=True, closure=kernel.closure),
            Gate.SEARCH,
        )
        if (
            again.status is Status.PASSED
            and again.latency_us
            and judged.latency_us
            and again.latency_us < judged.latency_us
        ):
            ratio = judged.latency_us / again.latency_us
            diff = "".join(difflib.unified_diff(kernel.text.splitlines(True), text.splitlines(True), "yours", "best"))
            tell("carried", f"the earlier win still holds on your edit: {figures.speedup(ratio)}", True, diff=diff)
            watched.best = (kernel.text, text)
        else:
            tell("carried", f"the earlier win no longer holds: {again.status.value}")


def _latency(evaluation: Evaluation) -> str:
    profile = evaluation.profile
    if profile is None:
        return evaluation.status.value
    return figures.latency(profile.latency_us, profile.source, profile.chip, profile.interval_percent)
