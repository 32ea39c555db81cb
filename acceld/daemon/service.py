"""Run the daemon: build the parts, own the task group, answer the routes, start and stop in order.

The daemon starts store, recovery, parts (models), evaluator, server and runs, in this order. The daemon stops in this
order: runs take no further step, running evaluations get their grace period, calls are cancelled, children end, the
server closes, the store closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from acceld.config import Config
from acceld.daemon import interruption, outside, specs, steering
from acceld.daemon.hooks import run_hooks
from acceld.daemon.parts import FleetControl, Parts, PartsMaker
from acceld.daemon.reload import STAGE, follow_settings
from acceld.daemon.runs import RunQueue
from acceld.daemon.secrets import redactor
from acceld.daemon.telemetry import export
from acceld.errors import AcceldError, StoreError, UsageError
from acceld.evaluate.correctness import datasets
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.events import REFUSED, DaemonStarted, DaemonStopped, Watch
from acceld.home import DATASETS, Home
from acceld.http.answers import ConflictError
from acceld.http.server import Server
from acceld.model import Candidate, Evaluation, Gate, Kernel, Run, RunSpec, RunState, Status, shown_state
from acceld.search.control import LASTING, RunControl
from acceld.search.teacher import withdraw
from acceld.store.changes.insights import change_insight
from acceld.store.changes.runs import (
    add_note,
    create_run,
    recover_runs,
    settle_steering,
    write_event,
    write_notice,
    write_steered,
    write_steering,
)
from acceld.store.changes.tree import keep_evaluation, write_evaluation
from acceld.store.connection import JOURNAL_LIMIT_BYTES
from acceld.store.database import Store
from acceld.store.maintenance import size_bytes
from acceld.store.reads import listing
from acceld.store.reads.records import load_candidate, load_run, run_state
from acceld.targets import SIMULATOR
from acceld.watch.apply import apply, check_drop_in, check_win, compared_with_file, holds, known_as, written
from acceld.watch.settings import SettingsFiles, Validation, digests

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

VERSION = version("acceld")

RESERVE_BYTES = 64 << 20
RESERVE_NEEDS_BYTES = 1 << 30
"""Least free space at which a reserve file is kept."""
STORAGE_S = 5.0
"""Seconds after which the start gives up on a change, and a new run gets an answer, if storage does not work."""
WATCH_S = 5.0
IDLE_LOOK_S = 0.5


class Daemon:
    """Serve one state folder. ``await run()`` returns once :meth:`stop` was called and everything has ended.

    Implements :class:`acceld.http.control.Control`.
    """

    def __init__(
        self,
        home: Home,
        config: Config,
        make_parts: PartsMaker,
        *,
        socket_path: Path,
        keys: Mapping[str, str] | None = None,
        listening: Callable[[], object] = lambda: None,
        idle_exit_s: float | None = None,
        folder: Path | None = None,
        configured: Collection[str] = (),
        files: Collection[Path] = (),
    ) -> None:
        """Prepare the daemon. ``configured`` are the dotted keys that the configuration sets, in the files ``files``.

        ``folder`` is the folder in which acceld.toml was looked for. If it is given, the daemon follows saves of the
        settings.
        """
        self.home = home
        self._config, self._configured = config, configured
        self._make_parts = make_parts
        self._socket_path = socket_path
        self._keys = dict(keys or {})
        self._listening = listening
        self._idle_exit_s = idle_exit_s
        self._settings = None if folder is None else SettingsFiles(folder, config, tuple(files))
        self._started_at = time.time()
        self._started = time.monotonic()
        self._state = "starting"
        self._clients = 0
        self._touched = time.monotonic()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stop_reason = ""
        self._grace_s = config.daemon.grace_s
        self._remeasuring: set[int] = set()
        self._beginning: set[asyncio.Future[int]] = set()
        self.ready = asyncio.Event()
        self.store: Store
        self._parts: Parts
        self._runs: RunQueue
        self._tasks: asyncio.TaskGroup
        self._hooks: asyncio.Task[None]
        self._following: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Start, serve until asked to stop, and stop in order.

        If the start fails, the parts that had started are ended, and then the error is raised.
        """
        free = (await asyncio.to_thread(shutil.disk_usage, self.home.path)).free
        if self.home.path / DATASETS != await asyncio.to_thread(lambda: self.home.datasets):
            # Earlier releases kept data sets in this folder.
            await asyncio.to_thread(datasets.trim, self.home.path / DATASETS, 0)
        reserve = RESERVE_BYTES if free > RESERVE_NEEDS_BYTES else 0
        redact = redactor(self._keys)
        self.store = await asyncio.to_thread(Store.open, self.home.database, reserve_bytes=reserve, redact=redact)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.store.close)
            unfinished = await self._stored(
                self.store.change(recover_runs, "the daemon ended while this was under way")
            )
            if self.store.migrated_from is not None:
                text = f"The history was brought to a newer schema; its former content is in {self.store.migrated_from}"
                await self.store.change(write_notice, None, "info", text)
            self._parts = await self._make_parts(self._config, self.home, self.store, self._keys)
            stack.push_async_callback(self._parts.close)
            await self._parts.evaluator.start()
            stack.push_async_callback(self._parts.evaluator.stop, 0.0)
            server = Server(
                self.store,
                self,
                socket_path=self._socket_path,
                token=await asyncio.to_thread(self.home.token),
                tcp=self._config.daemon.tcp,
                log_file=self.home.log_file,
            )
            stack.push_async_callback(server.stop)
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._runs = RunQueue(
                    self.store, self._parts.make_search, tasks, at_once=self._config.daemon.runs, changed=self._touch
                )
                inode = await asyncio.to_thread(_inode, self.home.path)  # before a client can know of this daemon
                await server.start()
                await asyncio.to_thread(self._listening)
                await self._stored(self._greet())
                for run in unfinished:
                    if await self.store.read(run_state, run) is not RunState.PAUSED:
                        await self._runs.take_up(run)
                watching = tasks.create_task(_guarded("watching the state folder", self._watch, inode))
                self._hooks = self._start_hooks()
                heeding = None
                if await asyncio.to_thread(interruption.on_ec2):
                    heeding = tasks.create_task(_guarded("asking for spot notices", self._heed_interruption))
                statistics = self._parts.evaluator.statistics
                exporting = tasks.create_task(
                    _guarded("telemetry", export, self.store, self._config.telemetry, statistics)
                )
                if self._settings is not None:
                    following = _guarded(
                        "following the settings", follow_settings, self._settings, self.store, self._take
                    )
                    self._following = tasks.create_task(following)
                self._state = "running"
                self.ready.set()
                await self._stop.wait()
                watching.cancel()
                if heeding is not None:
                    heeding.cancel()
                await self._wind_down()
                self._hooks.cancel()
                exporting.cancel()
                if self._following is not None:
                    self._following.cancel()

    async def _stored(self, change: Awaitable[T]) -> T:
        """Make a change in the store during the start, and return its result. Raise StoreError if the database can not
        be written.
        """
        changing = asyncio.ensure_future(change)
        while not (await asyncio.wait({changing}, timeout=STORAGE_S))[0]:
            # A later change waits for storage, and the status says so. A daemon that has not started can not show a
            # status.
            if self.store.writer.degraded:
                changing.cancel()
                raise StoreError(
                    f"{self.home.database} can not be written: {self.store.writer.degraded}",
                    hint="Nothing is lost. Make room on that disk, or see what is wrong with it, and start again.",
                )
        return changing.result()

    def _start_hooks(self) -> asyncio.Task[None]:
        return self._tasks.create_task(_guarded("hooks", run_hooks, self.store, self._config.hooks))

    def _take(self, found: Validation) -> None:
        """Use changed settings that passed their validation."""
        if self._parts.reload is not None:
            self._parts.reload(found)
        if found.config is None:
            return
        old, self._config, self._configured = self._config, found.config, found.configured
        if old.hooks != self._config.hooks and self._state == "running":
            self._hooks.cancel()
            self._hooks = self._start_hooks()

    async def _greet(self) -> None:
        level = str(self._parts.evaluator.statistics().get("sandbox_level", ""))
        await self.store.change(write_event, DaemonStarted(VERSION, os.getpid(), level))

    async def _wind_down(self) -> None:
        self._state = "stopping"
        log.info("stopping: %s", self._stop_reason)
        self._runs.hold()
        ending = asyncio.create_task(self._parts.evaluator.stop(self._grace_s))
        hurrying = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({ending, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        await self._runs.stop()
        await ending
        with contextlib.suppress(AcceldError, TimeoutError):  # a full disk must not prevent the stop
            async with asyncio.timeout(2):
                await self.store.change(write_event, DaemonStopped(self._stop_reason))

    async def _watch(self, inode: int | None) -> None:
        """Watch over the daemon's surroundings.

        Stop the daemon when it has been idle for too long, or when the state folder was replaced: ``inode`` is the
        folder's inode number at the start. Warn about a growing write-ahead log and a filling disk.
        """
        looked, warned = time.monotonic(), ""
        while True:
            await asyncio.sleep(IDLE_LOOK_S)
            if await asyncio.to_thread(_inode, self.home.path) != inode:
                self.stop(0.0, f"{self.home.path} was deleted")
                return
            if not await asyncio.to_thread(self.home.daemon_file.exists):
                with contextlib.suppress(AcceldError):  # no room, or the folder is gone, too
                    await asyncio.to_thread(self._listening)  # clients find the daemon by this file
            if self._runs.busy or self._clients or self._remeasuring:
                self._touch()
            idle_s = time.monotonic() - self._touched
            if self._idle_exit_s is not None and idle_s >= self._idle_exit_s:
                self.stop(None, f"nothing to do for {self._idle_exit_s:g} s")
            if time.monotonic() - looked < WATCH_S:
                continue
            looked = time.monotonic()
            trouble = await asyncio.to_thread(self._storage_trouble)
            if trouble and trouble != warned and not self.store.writer.degraded:
                await self.store.change(
                    write_notice, None, "warning", trouble, "acceld doctor database, acceld db prune --older 30d"
                )
            warned = trouble

    async def _heed_interruption(self) -> None:
        """Stop in order when EC2 takes the spot instance back. The next daemon continues the runs."""
        reported = await interruption.notice()
        hint = "Nothing is lost: start acceld on the next machine with this state folder, and its runs go on."
        await self.store.change(write_notice, None, "warning", reported, hint)
        self.stop(None, reported)

    def _storage_trouble(self) -> str:
        wal = self.home.database.with_name(self.home.database.name + "-wal")
        if wal.exists() and wal.stat().st_size > JOURNAL_LIMIT_BYTES:
            return "the write-ahead log has grown beyond 64 MiB, because a reader keeps an old state of the database open: end long queries"
        if shutil.disk_usage(self.home.path).free < RESERVE_BYTES:
            return f"less than {RESERVE_BYTES >> 20} MiB of disk are free for {self.home.path}"
        return ""

    def _touch(self) -> None:
        self._touched = time.monotonic()

    # Requests of the routes.

    def hello(self) -> dict[str, Any]:
        """Return the daemon's identity: version, process, state folder, and the names of its models."""
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "home": str(self.home.path),
            "models": sorted(self._config.models),
        }

    def hindrances(self) -> list[str]:
        """Return the reasons for which the daemon takes no run now; [] if it takes runs."""
        reasons = [] if self._state == "running" else [f"the daemon is {self._state}"]
        return [*reasons, *filter(None, [self.store.writer.degraded])]

    async def status(self) -> dict[str, Any]:
        """Return what the daemon does now: runs, queue, storage, cost, and what it waits for."""
        writer = self.store.writer
        counts = await self.store.read(listing.counts)
        active = await self.store.read(listing.run_rows, state="running,paused,queued", limit=50)
        wal = self.home.database.with_name(self.home.database.name + "-wal")
        storage = await asyncio.to_thread(
            lambda: {
                "bytes": size_bytes(self.home.database),
                "wal_bytes": wal.stat().st_size if wal.exists() else 0,
                "free_bytes": shutil.disk_usage(self.home.path).free,
                "data_bytes": datasets.size_bytes(self.home.datasets),
                "data_cap_bytes": self._config.evaluate.cache_bytes,
            }
        )
        statistics = self._parts.evaluator.statistics()
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self._started,
            "home": str(self.home.path),
            "state": self._state,
            "idle_exit_s": self._idle_exit_s,
            "clients": self._clients,
            "runs": {state.value: counts.get(state.value, 0) for state in RunState},
            "active": [row | {"state": shown_state(row["state"], True, self._cancelling(row["id"]))} for row in active],
            "queue": statistics,
            "storage": storage | {"waiting": writer.waiting(), "degraded": writer.degraded},
            "waits_for": self._waits_for(),
            "cost_usd": (await self.store.read(listing.costs))["cost_usd"],
            "last_seq": self.store.hub.last_seq,
        }

    async def queue(self) -> dict[str, Any]:
        """Return the running and waiting evaluations, the model calls under way, and the devices."""
        return {
            "queue": self._parts.evaluator.statistics(),
            "degraded": self.store.writer.degraded,
            "waits_for": self._waits_for(),
            "running": await self.store.read(listing.waiting, "running"),
            "waiting": await self.store.read(listing.waiting, "queued"),
            "calls": await self.store.read(listing.open_calls),
            "devices": self._parts.evaluator.statistics().get("devices", []),
        }

    def _waits_for(self) -> list[str]:
        return [text for text in (self.store.writer.degraded, *_waits(self._parts.evaluator.statistics())) if text]

    def _cancelling(self, run: int) -> bool:
        control = self._runs.asked(run)
        return control is not None and control.cancelled

    async def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts of the fleet, each with its cost; [] without a fleet."""
        hosts: Any = self._parts.evaluator.statistics().get("hosts", [])
        prices = {row["name"]: row for row in await self.store.read(listing.host_rows)}
        unknown = {"usd_per_hour": None, "slot_hours": 0.0, "usd": None}
        return [{**host, **{k: prices.get(host["host"], unknown)[k] for k in unknown}} for host in hosts]

    async def doctor_of(self, host: str) -> list[dict[str, Any]]:
        """Return what ``acceld doctor`` finds on a host's devices. Raise UsageError without a fleet or for an unknown host."""
        return [asdict(one) for one in await self._fleet().doctor(host)]

    async def change_host(self, host: str, action: str) -> None:
        """Drain a host if ``action`` is ``drain``, else give it work again. Raise UsageError for an unknown host."""
        self._touch()
        await (self._fleet().drain(host) if action == "drain" else self._fleet().undrain(host))

    def _fleet(self) -> FleetControl:
        if self._parts.fleet is None:
            raise UsageError(
                "this daemon has no fleet", hint="devices.cluster names the Ray cluster of a fleet (docs/fleet.md)"
            )
        return self._parts.fleet

    async def submit(self, spec: Mapping[str, Any]) -> int:
        """Start a run, and return its id.

        Raise UsageError for a specification that can not be used, ConflictError if the daemon is stopping.
        """
        if self._state == "stopping":
            raise ConflictError(
                "the daemon is stopping and takes no more work",
                hint="wait until it has ended, then start another: acceld start",
            )
        self._touch()
        self._refuse_without_room()
        asked = {key: value for key, value in spec.items() if key != "settings"}
        await self._read_settings()
        wanted = await asyncio.to_thread(specs.run_spec, asked, self._config, self._configured)
        if "settings" in spec and self._settings is not None:
            specs.refuse_other_settings(spec["settings"], digests(self._config, wanted), self._settings.read)
        await self._parts.check(wanted)
        beginning = asyncio.ensure_future(self._begin(wanted))
        self._beginning.add(beginning)
        beginning.add_done_callback(self._begun)
        while not (await asyncio.wait({beginning}, timeout=STORAGE_S))[0]:
            if self.store.writer.degraded:
                raise StoreError(
                    f"the run is not stored yet: {self.store.writer.degraded}",
                    hint="Make room on that disk. The run then begins by itself, so do not start it again.",
                )
        return beginning.result()

    def _begun(self, beginning: asyncio.Future[int]) -> None:
        self._beginning.discard(beginning)
        if not beginning.cancelled():
            beginning.exception()  # marks the error as seen: the caller of submit may have stopped waiting

    async def _begin(self, wanted: RunSpec) -> int:
        """Store a run, put it into the queue, and return its id."""
        run = await self.store.change(create_run, wanted)
        await self._runs.take_up(run.id)
        return run.id

    def _refuse_without_room(self) -> None:
        """Raise StoreError if nothing can be stored now, because a request would wait for storage without an answer."""
        if self.store.writer.degraded:
            raise StoreError(
                f"the daemon can not store anything now ({self.store.writer.degraded}), so nothing was changed",
                hint="Make room on that disk, then give the command again. Runs go on by themselves once there is room.",
            )

    async def _read_settings(self) -> None:
        """Read settings that were saved or trusted a moment ago, so that the next run uses them."""
        if self._settings is None:
            return
        used = self._settings.settings
        path = self._settings.read[-1] if self._settings.read else self.home.path
        found = await asyncio.to_thread(self._settings.configuration, path)
        if found.good and self._settings.settings != used:
            self._take(found)
            await self.store.change(write_event, Watch(str(found.path), STAGE, found.text, True))

    async def act(self, run: int, action: str, arguments: Mapping[str, Any], by: str) -> str:
        """Steer a run for the person or program ``by``, and return a message about the action. Raise AcceldError if the
        action is refused.
        """
        self._touch()
        self._refuse_without_room()
        steering.check(action, arguments)
        record = await self.store.read(load_run, run)
        candidate = None
        if "candidate" in arguments:
            candidate = await self.store.read(load_candidate, arguments["candidate"])
            if candidate.run != run:
                raise UsageError(
                    f"c{candidate.id} is a candidate of r{candidate.run}, not of r{run}",
                    hint=f"acceld tree r{run} lists its candidates",
                )
        if action in LASTING:
            return await self._steer(record, candidate, action, arguments, by)
        entry = await self.store.change(write_steering, run, action, arguments, by)
        try:
            result = await self._do(run, action, arguments, by)
        except AcceldError as error:
            await self.store.change(settle_steering, entry, f"{REFUSED}{error.message}")
            raise
        await self.store.change(settle_steering, entry, result)
        return result

    async def _steer(
        self, record: Run, candidate: Candidate | None, action: str, arguments: Mapping[str, Any], by: str
    ) -> str:
        """Apply an action that changes the further decisions of a run, and return a message about it."""
        run = record.id
        try:
            steering.refuse_idle(action, record.spec, candidate)
            control = self._runs.control(run)
            if control is None and action != "budget":
                raise ConflictError(f"r{run} is not active", hint="Start another: acceld optimize.")
        except AcceldError as error:
            await self.store.change(write_steered, run, action, arguments, by, f"{REFUSED}{error.message}")
            raise
        result = (control or RunControl()).steer(action, arguments)
        if action == "budget" and self._parts.set_budget is not None:
            self._parts.set_budget(run, float(arguments["usd"]))
        # no await between the change and this submission: decisions are submitted to the same queue (search/control.py)
        await self.store.change(write_steered, run, action, arguments, by, result)
        return result

    async def _do(self, run: int, action: str, arguments: Mapping[str, Any], by: str) -> str:
        match action:
            case "pause":
                return await self._runs.pause(run, at_once=bool(arguments.get("at_once")))
            case "resume":
                return await self._runs.resume(run)
            case "cancel":
                return await self._runs.cancel(run)
            case "note":
                candidate = arguments.get("candidate")
                await self.store.change(add_note, f"c{candidate}" if candidate else f"r{run}", arguments["text"], by)
                return "noted"
            case "remeasure":
                what = f"measuring c{arguments['candidate']} again"
                self._tasks.create_task(_guarded(what, self._remeasure, run, arguments["candidate"]))
                return f"measuring c{arguments['candidate']} again"
            case "apply":
                even_if_tied = bool(arguments.get("even_if_tied"))
                return await self._apply(run, Path(arguments["path"]), arguments["expected_sha256"], even_if_tied)
        raise AssertionError(f"no action {action}")

    async def _remeasure(self, run: int, number: int) -> None:
        if number in self._remeasuring:
            return
        self._remeasuring.add(number)
        try:
            candidate, record = await self.store.read(load_candidate, number), await self.store.read(load_run, run)
            request = replace(_asked_by_a_person(candidate, record, Gate.STRICT), run=run, candidate=number)
            if record.baseline is not None:
                baseline = await self.store.read(load_candidate, record.baseline)
                latency_us = baseline.evaluation.latency_us if baseline.evaluation else None
                request = replace(request, canary=baseline.kernel, host=record.spec.search.host)
                if latency_us and number != record.baseline and record.spec.backend != SIMULATOR:
                    request = replace(request, against=(baseline.kernel,), against_us=(latency_us,))
            evaluation = await self._parts.evaluator.evaluate(request)
            await self.store.change(
                write_evaluation,
                candidate,
                evaluation,
                workload=record.spec.workload,
                backend=record.spec.backend,
                chip=record.spec.chip,
                key=request.key,
            )
            if evaluation.status is not Status.PASSED and (gone := await withdraw(self.store, number)):
                text = f"c{number} does not pass any more ({evaluation.status}): {len(gone)} insights it taught are withdrawn"
                await self.store.change(write_notice, run, "warning", text, f"acceld show c{number}")
        except AcceldError as error:
            await self.store.change(
                write_notice, run, "error", f"c{number} could not be measured again: {error.message}", error.hint
            )
        finally:
            self._remeasuring.discard(number)

    async def _apply(self, run: int, path: Path, expected_sha256: str, even_if_tied: bool) -> str:
        """Write a run's best kernel over a file, and return a message with the gain and the backup's path.

        The file must be as the person last saw it (``expected_sha256``). The kernel must be a drop-in replacement for
        it, pass an evaluation now, and be a certain or likely gain over the baseline; ``even_if_tied`` allows a tie
        too.
        """
        record = await self.store.read(load_run, run)
        if record.best is None:
            raise ConflictError(
                f"r{run} has no kernel that passed", hint=f"acceld show r{run} says why its candidates failed"
            )
        if not path.is_absolute():
            raise UsageError(f"path = {str(path)!r} is not absolute", hint="give the whole path of the file, from / on")
        row = await self.store.read(listing.run_row, run)
        if not even_if_tied:
            check_win(row)
        best = await self.store.read(load_candidate, record.best)
        if await asyncio.to_thread(holds, path, best.kernel.text):
            raise ConflictError(f"{path} already is c{best.id}; nothing was written")
        await asyncio.to_thread(check_drop_in, path, best.kernel, run)
        tried = await self._parts.evaluator.evaluate(_asked_by_a_person(best, record, Gate.TIMING))
        if tried.profile is None:
            why = tried.failure.message if tried.failure else tried.status.value
            raise ConflictError(f"c{best.id} does not pass now: {why}", hint=f"acceld check r{run}")

        async def evaluate(kernel: Kernel, gate: Gate) -> Evaluation:
            return await self._parts.evaluator.evaluate(replace(_asked_by_a_person(best, record, gate), kernel=kernel))

        text = await asyncio.to_thread(path.read_text, "utf-8-sig")
        known = await self.store.read(_known_as, text)
        gained = await compared_with_file(
            path, text, known, row, best.kernel, tried, evaluate, even_if_tied=even_if_tied
        )
        backup = await asyncio.to_thread(apply, path, best.kernel.text, expected_sha256)
        return written(best.id, gained, path, backup)

    def steering(self, run: int) -> dict[str, Any]:
        """Return what people have asked of a run, until the run's end is stored; {} for any other run."""
        control = self._runs.asked(run)
        return steering.shown(control) | {"ahead": self._runs.ahead(run)} if control else {}

    async def evaluate(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate one kernel now, and return the evaluation as JSON-able data. The kernel becomes no candidate."""
        self._touch()
        request = await asyncio.to_thread(outside.request_of, asked, self._config)
        evaluation = await self._parts.evaluator.evaluate(request)
        if request.backend != SIMULATOR:
            # A prediction can be repeated at any time; a measurement is kept, for calibration.
            where = {"workload": request.workload, "backend": request.backend, "chip": request.chip}
            await self.store.change(keep_evaluation, evaluation, **where, key=request.key)
        return outside.answer(asked, request, evaluation)

    async def change_insight(self, insight: int, changes: Mapping[str, Any]) -> None:
        """Pin, mute, withdraw or edit an insight."""
        self._touch()
        self._refuse_without_room()
        texts = {name: value for name, value in changes.items() if name not in ("pinned", "muted", "withdrawn")}
        if texts:
            await self.store.change(change_insight, insight, "edited", **texts)
        for flag in ("pinned", "muted", "withdrawn"):
            if flag in changes:
                await self.store.change(change_insight, insight, flag, **{flag: changes[flag]})

    async def forget_insight(self, insight: int) -> None:
        """Delete an insight."""
        await self.store.change(change_insight, insight, "deleted")

    def stop(self, grace_s: float | None, reason: str = "asked to") -> None:
        """Begin to stop in order. A second call skips the grace period of running evaluations."""
        if self._stop.is_set():
            self._hurry.set()
        if grace_s is not None:
            self._grace_s = grace_s
        self._stop_reason = self._stop_reason or reason
        self._state = "stopping"
        self._stop.set()

    def client_came(self) -> None:
        """Count a client that opened a websocket. A daemon with clients is not idle."""
        self._clients += 1
        self._touch()

    def client_left(self) -> None:
        """Stop counting a client that closed its websocket."""
        self._clients -= 1
        self._touch()

    def touched(self) -> None:
        """Record a request, so that the daemon does not count as idle."""
        self._touch()


def _waits(statistics: Mapping[str, Any]) -> list[str]:
    """Return what evaluators wait for, in words, from their statistics."""
    own: list[Any] = [statistics.get("waits_for"), *map(_waits, (statistics.get("backends") or {}).values())]
    return [text for one in own for text in ([one] if isinstance(one, str) else one or []) if text]


def _inode(folder: Path) -> int | None:
    """Return the inode of a folder; None if the folder does not exist."""
    try:
        return folder.stat().st_ino
    except FileNotFoundError:
        return None


async def _guarded(what: str, work: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run a background task. If it fails, log the error; everything else continues."""
    try:
        await work(*args, **kwargs)
    except Exception:  # housekeeping may fail in any way, and must not end the runs
        log.exception("%s failed", what)


def _known_as(connection: sqlite3.Connection, text: str) -> list[dict[str, Any]]:
    return list(map(dict, connection.execute(*known_as(text))))


def _asked_by_a_person(candidate: Candidate, record: Run, gate: Gate) -> EvaluationRequest:
    """Return a request to evaluate a stored candidate's kernel before all others. The evaluation does not change the
    candidate.
    """
    return EvaluationRequest(
        kernel=candidate.kernel,
        workload=record.spec.workload,
        workload_folder=record.spec.workload_folder,
        backend=record.spec.backend,
        chip=record.spec.chip,
        gate=gate,
        priority=Priority.PERSON,
    )
