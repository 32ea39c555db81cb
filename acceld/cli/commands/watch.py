"""``acceld watch``: report what each save of a kernel changed. A search starts on request, or by itself within
caps.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acceld import config
from acceld.cli.arguments import add_target, amount
from acceld.cli.kernels import SUFFIXES, baseline_of, place_of, workload_folders, workload_of
from acceld.cli.kernels import evaluated as evaluated_by
from acceld.cli.output import say
from acceld.errors import DaemonError, UsageError, no_file
from acceld.home import Home, find_home
from acceld.model import Evaluation, Gate, Kernel
from acceld.targets import SIMULATOR, TARGETS, Choice

if TYPE_CHECKING:
    from acceld.cli.watch_console import WatchConsole
    from acceld.watch.tiers import SaveResult, Watched
    from acceld.watch.watcher import Watcher

HELP = """enter or o: optimize   d: diff of the best   A: apply the best   u: undo that
p: pause or go on   ?: these keys   q: leave"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "paths", nargs="+", metavar="KERNEL.py", help="kernel files, folders with a workload.toml, or workloads"
    )
    parser.add_argument(
        "--workload",
        help="the workload that the kernels are evaluated by (default: the workload.toml beside each kernel)",
    )
    parser.add_argument("--entry", default="", help="name of the kernel function")
    add_target(parser, backend="where the daemon measures kernels that pass")
    parser.add_argument(
        "--mode",
        choices=("ask", "auto", "off"),
        help="after a save that passes: ask before a search, start one at once, or none",
    )
    parser.add_argument(
        "--usd-per-save", type=amount, default=0.5, metavar="USD", help="cap of a search (default 0.50)"
    )
    parser.add_argument("--usd-per-hour", type=amount, default=5.0, metavar="USD", help="cap of an hour (default 5.00)")
    parser.add_argument("--apply", action="store_true", help="write a better kernel over the file, keeping a backup")
    parser.add_argument("--once", action="store_true", help="evaluate the present files once, then end")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Watch the files until the user leaves, and return the exit code."""
    resolved = config.load(flags={"watch.mode": arguments.mode})
    settings = resolved.config
    files = [_watched(Path(path), arguments, resolved) for path in arguments.paths]
    places = {(where.backend, where.chip) for _, where in files}
    if len(places) > 1:
        shown = ", ".join(f"{one.path} on {where.chip} by {where.backend}" for one, where in files)
        raise UsageError(
            f"one watch evaluates on one chip: {shown}",
            hint="give --chip, or watch each kernel by a command of its own",
        )
    watched = [one for one, _ in files]
    return asyncio.run(_watch(arguments, settings, watched, files[0][1], find_home(arguments.home)))


async def _watch(
    arguments: argparse.Namespace, settings: config.Config, files: list[Watched], where: Choice, home: Home
) -> int:
    from acceld.cli.watch_console import WatchConsole, short_names
    from acceld.cli.watch_runs import WatchRuns
    from acceld.evaluate.interface import started
    from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
    from acceld.watch.policy import Policy
    from acceld.watch.settings import SettingsFiles
    from acceld.watch.watcher import Watcher

    state = home.prepare()
    console = WatchConsole(
        sys.stdout,
        [one.path for one in files],
        as_json=arguments.json,
        notify=settings.tui.notify,
        kept=state,
    )
    runs = WatchRuns(home, settings, where, console.step)
    measures = where.backend != SIMULATOR
    if measures and arguments.once and home.daemon() is None:
        raise DaemonError(
            "measuring on a device needs a daemon, and no daemon runs", hint="acceld start, then the same command again"
        )
    bad = 0

    def report(step: SaveResult) -> None:
        nonlocal bad
        bad += step.good is False
        console.step(step)

    async with started(SimulatedEvaluator(settings.evaluate, state)) as evaluator:

        async def evaluated(watched: Watched, kernel: Kernel, gate: Gate) -> Evaluation:
            place = {"workload": watched.workload, "folder": watched.workload_folder, "chip": where.chip}
            return await evaluated_by(evaluator, kernel, gate, **place)

        watcher = Watcher(
            files,
            evaluated,
            report,
            policy=Policy(
                "off"
                if arguments.once and settings.watch.mode == "ask"
                else settings.watch.mode,  # with --once nobody is there to answer
                settings.watch.runs_per_hour,
                arguments.usd_per_save,
                arguments.usd_per_hour,
            ),
            optimizer=runs,
            quiet_s=settings.watch.debounce_ms / 1000,
            settings=SettingsFiles(Path.cwd(), settings),
            device=runs.measured if measures else None,
            simulated=where.chip in TARGETS[SIMULATOR].chips.get(where.api, ()),
        )
        if arguments.apply:
            runs.won = lambda watched: console.apply([watched], watcher)
        try:
            if arguments.once:
                watcher.start()
                await watcher.settled()
                return 7 if bad else 0
            names = ", ".join(short_names([one.path for one in files]).values())
            say(
                f"watching {names} on {where.chip}{' by ' + where.backend if measures else ''}; a save is evaluated at once"
            )
            await _until_left(watcher, files, console)
            return 0
        finally:
            await runs.close()


async def _until_left(watcher: Watcher, files: Sequence[Watched], console: WatchConsole) -> None:
    """Evaluate saved files and obey pressed keys until the user presses q."""
    from acceld.cli.watch_console import single_keys

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
            case "u":
                console.undo(watcher)
            case "p":
                watcher.toggle_pause()
                console.say(
                    "paused: saves are evaluated after the next p"
                    if watcher.paused
                    else "going on: saves are evaluated at once"
                )
            case "q" | "\x03":
                left.set()
            case "?" | "h":
                console.say(HELP)
            case _:
                pass

    with single_keys(act) as has_keys:
        if has_keys:
            say(HELP)
        leaving = asyncio.create_task(left.wait())
        await asyncio.wait({following, leaving}, return_when=asyncio.FIRST_COMPLETED)
    for task in (leaving, following):
        task.cancel()
    found = await asyncio.gather(following, leaving, return_exceptions=True)
    if isinstance(found[0], Exception):
        raise found[0]


def _watched(path: Path, arguments: argparse.Namespace, resolved: config.Resolved) -> tuple[Watched, Choice]:
    """Return the file ``path`` with the workload by which it is evaluated, and the backend, the API and the chip of the
    evaluation.
    """
    from acceld.watch.tiers import Watched
    from acceld.workloads import load_workload, workload

    if not path.exists() and path.suffix not in SUFFIXES:
        path = workload(str(path), workload_folders(resolved.config)).folder
    path = path.resolve()
    found = load_workload(path) if path.is_dir() else None
    if found is None and not path.is_file():
        raise no_file(path, hint="Give a kernel's file, or a folder with a workload.toml (acceld init makes one).")
    found = found or workload_of(path, arguments.workload, resolved.config)
    if found is None:
        raise UsageError(
            f"{path} has no workload to be evaluated by",
            hint=f"give --workload, or make one: acceld init {path} with --reference REF.py or --arg NAME=SHAPE:DTYPE",
        )
    where = place_of(resolved, path, found, api=arguments.api, chip=arguments.chip, backend=arguments.backend)
    if path.is_dir():
        path = baseline_of(found, where.api)
    folder = found.folder.resolve()  # absolute, because the judge runs in another folder
    contract = tuple(p for p in (folder / "workload.toml", folder / "reference.py") if p.is_file())
    return Watched(path, where.api, found.name, str(folder), contract, arguments.entry), where
