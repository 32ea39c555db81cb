"""``acceld watch``: tell what each save of a kernel changes; search again only when asked, or within caps."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from acceld import config
from acceld.alerts import Alert, Manner, announcement
from acceld.cli.output import say
from acceld.errors import AcceldError, DaemonError, UsageError
from acceld.home import Home, find_home
from acceld.model import Evaluation, Gate, Kernel
from acceld.targets import APIS, CHIPS, SIMULATOR, TARGETS, Choice, choose

GLYPHS = {True: "✓", False: "✗", None: "·"}
MEASURING_S = 1800.0
"""Longest wait for a measurement, with what stands before it in the queue."""
DISAGREEMENTS = "disagreements.jsonl"
"""File in the state folder with what the model got wrong beyond its band."""
HELP = "enter or o: optimize   d: diff of the best   A: apply it   p: pause   q: leave"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to watch, what to judge by, and what a save may start."""
    parser.add_argument("paths", nargs="+", metavar="KERNEL.py", help="kernel files, or folders with a workload.toml")
    parser.add_argument("--workload", help="judge them by this workload (default: the workload.toml beside each)")
    parser.add_argument("--entry", default="", help="name of the kernel function")
    parser.add_argument("--backend", choices=tuple(TARGETS), help="where the daemon measures what passes")
    parser.add_argument("--chip", choices=CHIPS)
    parser.add_argument("--api", choices=APIS)
    parser.add_argument("--mode", choices=("ask", "auto", "off"), help="what a save that passes may start")
    parser.add_argument("--usd-per-save", type=float, default=0.5, metavar="USD", help="cap of a search (default 0.50)")
    parser.add_argument("--usd-per-hour", type=float, default=5.0, metavar="USD", help="cap of an hour (default 5.00)")
    parser.add_argument("--apply", action="store_true", help="write a better kernel over the file, keeping a backup")
    parser.add_argument("--once", action="store_true", help="judge what is there and end")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Watch until interrupted."""
    settings = config.load(flags={"watch.mode": arguments.mode}).config
    default = Choice(settings.devices.backend, settings.search.api, settings.search.chip)
    where = choose(default, backend=arguments.backend, api=arguments.api, chip=arguments.chip)
    return asyncio.run(_watch(arguments, settings, where, find_home(arguments.home)))


async def _watch(arguments: argparse.Namespace, settings: config.Config, where: Choice, home: Home) -> int:
    from acceld.evaluate.evaluator import Judge
    from acceld.watch.policy import Policy
    from acceld.watch.settings import SettingsFiles
    from acceld.watch.tiers import Step
    from acceld.watch.watcher import Watcher

    files = [_watched(Path(path), arguments, settings, where.api) for path in arguments.paths]
    judge = Judge(settings.evaluate, home.path)
    console = _Console(sys.stdout, as_json=arguments.json, notify=settings.tui.notify, kept=home.path)
    optimizer = _Runs(home, files, settings, where, console) if home.daemon() is not None else None
    device = None
    if where.backend != SIMULATOR:
        if optimizer is None:
            raise DaemonError("devices are lent by the daemon, and none runs", hint="acceld start, then again.")
        device = optimizer.measured
    policy = Policy(settings.watch.mode, settings.watch.runs_per_hour, arguments.usd_per_save, arguments.usd_per_hour)
    bad = 0

    def tell(step: Step) -> None:
        nonlocal bad
        bad += step.good is False
        console.step(step)

    async def judged(kernel: Kernel, gate: Gate) -> Evaluation:
        from acceld.evaluate.base import EvaluationRequest, Priority

        found = next(one.workload for one in files if one.watched.path.name == Path(kernel.filename).name)
        return await judge.evaluate(
            EvaluationRequest(
                kernel=kernel,
                workload=found.name,
                workload_folder=str(found.folder),
                chip=where.chip,
                gate=gate,
                priority=Priority.PERSON,
            )
        )

    watcher = Watcher(
        [one.watched for one in files],
        judged,
        tell,
        policy=policy,
        optimizer=optimizer,
        quiet_s=settings.watch.debounce_ms / 1000,
        settings=SettingsFiles(Path.cwd(), settings),
        device=device,
        simulated=where.chip in TARGETS[SIMULATOR].chips.get(where.api, ()),
    )
    if optimizer is not None:
        optimizer.apply, optimizer.watcher = arguments.apply, watcher
    await judge.start()
    try:
        if arguments.once:
            watcher.start()
            await watcher.settled()
            return 7 if bad else 0
        names = ", ".join(one.watched.path.name for one in files)
        say(f"watching {names} on {where.chip}{' by ' + where.backend if device else ''}; a save is judged at once")
        await _until_left(watcher, [one.watched for one in files], console)
        return 0
    finally:
        if optimizer is not None:
            await optimizer.close()
        await judge.stop(0.0)


async def _until_left(watcher: Any, files: list[Any], console: _Console) -> None:
    """Follow saves and keys until one of them is q."""
    left = asyncio.Event()
    following = asyncio.create_task(watcher.run())
    acting: set[asyncio.Task[None]] = set()

    def act(key: str) -> None:
        match key:
            case "\r" | "\n" | "o":
                for one in files:
                    task = asyncio.get_running_loop().create_task(watcher.optimize(one))
                    acting.add(task)
                    task.add_done_callback(acting.discard)
            case "d":
                console.diffs(files)
            case "A":
                console.apply(files, watcher)
            case "p":
                watcher.paused = not watcher.paused
                say("paused" if watcher.paused else "going on")
            case "q" | "\x03":
                left.set()
            case "?" | "h":
                say(HELP)
            case _:
                pass

    with _keys(act) as has_keys:
        if has_keys:
            say(HELP)
        leaving = asyncio.create_task(left.wait())
        await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
    for task in (leaving, following):
        task.cancel()
    found = await asyncio.gather(following, leaving, return_exceptions=True)
    if isinstance(found[0], Exception):
        raise found[0]


class _File:
    """A watched file with the workload it is judged by."""

    def __init__(self, watched: Any, workload: Any) -> None:
        self.watched, self.workload = watched, workload


def _watched(path: Path, arguments: argparse.Namespace, settings: config.Config, api: str) -> _File:
    from acceld.watch.tiers import Watched
    from acceld.workloads import load_workload, workload

    folders = [Path(folder) for folder in settings.paths.workloads]
    path = path.resolve()
    if path.is_dir():
        found = load_workload(path)
        if api not in found.baselines:
            raise UsageError(
                f"{path} has no kernel for API {api}", hint=f"It has {', '.join(found.baselines) or 'none'}."
            )
        path = found.baselines[api]
    elif not path.is_file():
        raise UsageError(f"there is no file {path}")
    elif arguments.workload:
        found = workload(arguments.workload, folders)
    elif (path.parent / "workload.toml").is_file():
        found = load_workload(path.parent)
    else:
        raise UsageError(
            f"{path} has nothing to be judged by",
            hint=f"give --workload, or make a workload of it: acceld init {path} --arg SHAPE:DTYPE",
        )
    contract = tuple(p for p in (found.folder / "workload.toml", found.folder / "reference.py") if p.is_file())
    return _File(Watched(path, api, contract, arguments.entry), found)


class _Console:
    """Prints steps as they land."""

    def __init__(self, stream: TextIO, *, as_json: bool, notify: Manner, kept: Path) -> None:
        self._stream, self._json, self._notify, self._kept = stream, as_json, notify, kept

    def step(self, step: Any) -> None:
        """One line; what fails and what a search found rings."""
        self._ring(step)
        if step.stage == "disagrees":
            self._keep(step)
        if self._json:
            told = {
                "version": 1,
                "path": str(step.path),
                "stage": step.stage,
                "text": step.text,
                "good": step.good,
                "seconds": round(step.seconds, 3),
                "generation": step.generation,
                **step.data,
            }
            print(json.dumps(told, ensure_ascii=False, default=str), file=self._stream, flush=True)
            return
        line = f"{GLYPHS[step.good]} {step.path.name:<18} {step.seconds:6.2f} s  {step.text}"
        print(line, file=self._stream, flush=True)

    def _ring(self, step: Any) -> None:
        if sys.stderr.isatty() and (step.good is False or step.stage == "optimized"):
            alert = Alert("end", f"{step.path.name}: {step.text}")
            sys.stderr.write(announcement(alert, self._notify, in_tmux="TMUX" in os.environ))
            sys.stderr.flush()

    def _keep(self, step: Any) -> None:
        """Where the model and the chip disagree, for ``acceld calibrate``."""
        self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._kept / DISAGREEMENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), "path": str(step.path), **step.data}, ensure_ascii=False) + "\n")

    def diffs(self, files: list[Any]) -> None:
        """The newest win of each file as a diff."""
        import difflib

        for one in files:
            if one.best is None:
                say(f"{one.path.name}: nothing better has been found yet")
                continue
            base, best = one.best
            for line in difflib.unified_diff(base.splitlines(), best.splitlines(), "yours", "best", lineterm=""):
                print(line, file=self._stream)

    def apply(self, files: list[Any], watcher: Any) -> None:
        """Write the newest win of each file over it."""
        from acceld.watch.apply import apply, check_drop_in

        for one in files:
            if one.best is None:
                say(f"{one.path.name}: nothing better has been found yet")
                continue
            base, best = one.best
            try:
                check_drop_in(one.path, replace(one.kernel, text=best, filename=one.path.name))
                backup = apply(one.path, best, hashlib.sha256(base.encode()).hexdigest())
            except UsageError as error:
                say(str(error))
                continue
            watcher.wrote(one.path)
            say(f"{one.path} written; the old one is {backup.name}")


class _Runs:
    """Searches by the daemon, and what comes of them."""

    def __init__(
        self, home: Home, files: list[_File], settings: config.Config, where: Choice, console: _Console
    ) -> None:
        from acceld.http.client import HttpClient

        self.apply = False
        self.watcher: Any = None
        self._client = HttpClient.of(home)
        self._patient = HttpClient.of(home, timeout_s=MEASURING_S)
        self._home, self._files, self._settings, self._where, self._console = home, files, settings, where, console
        self._following: dict[int, asyncio.Task[None]] = {}

    async def start(self, kernel: Kernel, usd: float | None) -> int:
        """Start a search from the text as it is."""
        found = next(one for one in self._files if one.watched.path.name == Path(kernel.filename).name)
        spec = {
            "workload": found.workload.name,
            "workload_folder": str(found.workload.folder),
            "backend": self._where.backend,
            "chip": self._where.chip,
            "api": kernel.api,
            "proposer": self._settings.search.proposer,
            "preset": "quick",
            "name": f"watch {kernel.filename}",
            "search": {"budget_usd": usd} if self._settings.search.proposer == "llm" else {},
            "root": _body(kernel),
        }
        number = int((await self._client.send("POST", "/v1/runs", spec))["id"])
        self._following[number] = asyncio.create_task(self._follow(number, found.watched, kernel.text))
        return number

    async def measured(self, kernel: Kernel, gate: Gate) -> Evaluation:
        """The daemon's verdict on its device; a person's saves go before everything else."""
        from acceld.watch.answers import evaluation_from

        found = next(one for one in self._files if one.watched.path.name == Path(kernel.filename).name)
        asked = {
            "workload": found.workload.name,
            "workload_folder": str(found.workload.folder),
            "backend": self._where.backend,
            "chip": self._where.chip,
            "gate": gate.value,
            "kernel": _body(kernel),
        }
        return evaluation_from(await self._patient.send("POST", "/v1/evaluations", asked))

    async def cancel(self, run: int) -> None:
        """End a search whose kernel was edited since."""
        task = self._following.pop(run, None)
        if task is not None and not task.done():
            task.cancel()
            with contextlib.suppress(AcceldError):
                await self._client.send("POST", f"/v1/runs/{run}/actions", {"action": "cancel"})

    async def close(self) -> None:
        """Let go of the daemon; the searches go on."""
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)
        await self._client.close()
        await self._patient.close()

    async def _follow(self, run: int, watched: Any, base: str) -> None:
        from acceld.watch.tiers import Step

        async for batch in self._client.follow(0, run):
            states = [event.data.get("state") for event in batch if event.kind == "run_state" and event.run == run]
            if any(state in ("finished", "cancelled", "failed") for state in states):
                break
        row = await self._client.get(f"/v1/runs/{run}")
        if not row["best"] or row["best"] == row["baseline"]:
            self._console.step(Step(watched.path, "optimized", f"r{run}: nothing faster ({row['message']})"))
            return
        text = (await self._client.get(f"/v1/candidates/{row['best']}"))["text"]
        watched.best = (base, text)
        place = self._home.path / "best" / watched.path.name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
        told = f"r{run}: {row['speedup']:.2f}x, in {place}; d shows the diff, A writes it"
        self._console.step(Step(watched.path, "optimized", told, True, data={"run": run, "speedup": row["speedup"]}))
        if self.apply:
            self._console.apply([watched], self.watcher)


def _body(kernel: Kernel) -> dict[str, Any]:
    """A kernel as the daemon takes it."""
    return {
        "text": kernel.text,
        "api": kernel.api,
        "entry": kernel.entry,
        "grid": list(kernel.grid),
        "lnc": kernel.lnc,
        "filename": kernel.filename,
        "closure": dict(kernel.closure),
    }


@contextlib.contextmanager
def _keys(act: Any) -> Iterator[bool]:
    """Hand single keys to ``act`` while standard input is a terminal."""
    if not sys.stdin.isatty():
        yield False
        return
    import os
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, lambda: [act(key) for key in os.read(descriptor, 64).decode("utf-8", "ignore")])
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
