"""``acceld optimize``: submit a search to the daemon, and with ``--wait`` show its progress and outcome."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from acceld import config
from acceld.cli.arguments import CONFIGURED, add_json, add_target, amount, count, natural, span
from acceld.cli.kernels import parsed_kernel, place_of, workload_folders
from acceld.cli.output import print_json, say
from acceld.client import Client
from acceld.errors import INTERRUPTED, AcceldError, BudgetError, DaemonError, UsageError
from acceld.home import Home, find_home
from acceld.kernel_files import api_of_file, is_reference, read, syntax_error
from acceld.model import (
    BUDGET_PREFIX,
    PRESETS,
    PROPOSERS,
    SEARCH_OPTIONS,
    Kernel,
    KnowledgeLevel,
    MemoryPolicy,
    RunSpec,
    RunState,
    SearchParameters,
    StrategyName,
)
from acceld.targets import SIMULATOR, Choice

WAITS_S = 10.0
"""Least time in seconds between two questions for what the daemon waits for."""
RUNS_SHOWN = 4
"""Greatest number of runs that are named as those before a new run."""
BACKEND_START_S = 900.0
"""Deadline in seconds for starting a device's backend."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = (
        "%(prog)s [options] [WORKLOAD|REF.py|KERNEL.py]"  # the usage line that argparse makes would list forty options
    )
    parser.add_argument(
        "target", metavar="WORKLOAD|REF.py|KERNEL.py", nargs="?", help="a workload, a numpy reference, or a kernel file"
    )
    parser.add_argument("--wait", action="store_true", help="follow the run; Ctrl-C detaches")
    parser.add_argument("--name", default="", help="a name for the run")
    parser.add_argument("--dry-run", action="store_true", help="estimate calls, money and time, and start nothing")
    parser.add_argument(
        "--show-prompts", action="store_true", help="print the prompts that models would get, and send nothing"
    )
    add_json(parser)
    what = parser.add_argument_group("what is optimized")
    what.add_argument("--workload", help="the workload that a kernel file is checked against")
    what.add_argument("--entry", help="name of the kernel function in the file")
    what.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=SHAPE:DTYPE",
        help="with REF.py: the shape and type of an array argument; repeat it for each, in order",
    )
    what.add_argument(
        "--scalar", action="append", default=[], metavar="NAME=VALUE", help="a number argument, with REF.py"
    )
    what.add_argument(
        "--from-reference",
        nargs="?",
        const="",
        metavar="REF.py",
        help="start from a numpy reference: models write the first kernel, or acceld lowers the reference for rules",
    )
    where = parser.add_argument_group("for which chip, on which backend")
    add_target(where, backend=f"backend that evaluates them {CONFIGURED}")
    add_option(where, "host", str, "NAME")
    where.add_argument(
        "--screen",
        choices=("off", "simulator"),
        help="on a device: skip candidates that the simulator finds clearly slower",
    )
    who = parser.add_argument_group("who proposes changes")
    who.add_argument(
        "--proposer", choices=tuple(PROPOSERS), help="rewrite rules, language models, both, or a program of yours"
    )
    who.add_argument(
        "--no-planner",
        dest="planner",
        action="store_false",
        default=None,
        help="the executor works straight from the kernel",
    )
    who.add_argument("--memory", choices=get_args(MemoryPolicy), help=option_text("memory"))
    who.add_argument("--knowledge", choices=get_args(KnowledgeLevel), help=option_text("knowledge"))
    add_option(who, "fixer_steps", natural, "N")
    add_option(who, "polish", natural, "N")
    ends = parser.add_argument_group("when it ends")
    add_option(ends, "time_limit_s", span, "S")
    add_option(ends, "candidates", count, "N")
    add_option(ends, "iterations", count, "N")
    add_option(ends, "patience", natural, "N")
    add_option(ends, "target_percent", span, "P")
    add_option(ends, "budget_usd", amount, "USD")
    add_option(ends, "fixer_usd", amount, "USD")
    add_option(ends, "max_usd_per_percent", amount, "USD")
    search = parser.add_argument_group("how it searches")
    search.add_argument("--preset", choices=tuple(PRESETS), help="beam width, plans, attempts and iterations")
    search.add_argument(
        "--strategy",
        choices=get_args(StrategyName),
        help=option_text("strategy") + " (default: tune with rules on the simulator, else beam)",
    )
    add_option(search, "beam_width", count, "B", flag="--beam")
    add_option(search, "plans", count, "N")
    add_option(search, "attempts", count, "K")
    add_option(search, "seed", natural, "N")


def option_text(name: str) -> str:
    """Return the help text of the search parameter ``name``."""
    return str(SEARCH_OPTIONS[name].metadata["doc"])


def add_option(
    group: argparse._ActionsContainer, name: str, kind: Callable[[str], Any], metavar: str, *, flag: str = ""
) -> None:
    """Add the flag of a search parameter: ``flag`` if it is given, else ``--`` with the parameter's name."""
    flag = flag or "--" + name.replace("_", "-")
    group.add_argument(flag, dest=name, type=kind, metavar=metavar, help=option_text(name))


def run(arguments: argparse.Namespace) -> int:
    """Submit the run, and return the exit code. With ``--wait``, follow the run until it ends."""
    from acceld.cli.connect import connected

    if arguments.dry_run and arguments.show_prompts:
        raise UsageError(
            "--dry-run and --show-prompts print different things: use one of them",
            hint="both send nothing: --dry-run estimates what the run would cost, --show-prompts prints the prompts",
        )
    spec, settings = specification(arguments)
    if arguments.dry_run:
        from acceld.cli.dry_run import dry_run

        return dry_run(spec, settings, find_home(arguments.home), as_json=arguments.json)
    if arguments.show_prompts:
        from acceld.cli.show_prompts import show_prompts

        return show_prompts(spec, settings, find_home(arguments.home), as_json=arguments.json)
    home, client = connected(arguments.home)
    # Before it accepts a run the daemon starts the run's backend: on a device that compiles and runs a known kernel.
    patient = client if spec.backend == SIMULATOR else Client(home, timeout_s=BACKEND_START_S)
    submitted = patient.send("POST", "/v1/runs", as_body(spec) | {"settings": settings_of(spec, settings)})
    if not arguments.wait:
        if arguments.json:
            print_json({"run": submitted["id"], "state": submitted["state"], "database": str(home.database)})
        else:
            print(f"r{submitted['id']}")
            say(f"submitted; follow it with: acceld show r{submitted['id']}, or: acceld attach")
            say_turn(client, submitted["id"])
        return 0
    return follow(home, client, submitted["id"], as_json=arguments.json)


def specification(arguments: argparse.Namespace) -> tuple[RunSpec, config.Config]:
    """Return the run that the arguments ask for, and the configuration that it uses.

    Raise UsageError, WorkloadError or ConfigError if there can be no such run.
    """
    from acceld.cli.reference import lowered_root
    from acceld.workloads import workload

    asked = arguments.api or (api_of_file(Path(arguments.target)) if arguments.target else None)
    flags = {"search.preset": arguments.preset, "search.proposer": arguments.proposer, "search.api": asked}
    flags |= {"search.chip": arguments.chip, "devices.backend": arguments.backend, "devices.screen": arguments.screen}
    resolved = config.load(flags=flags)
    settings = resolved.config
    target = arguments.target or arguments.from_reference
    path = Path(target) if target else None
    asked_for = {"chip": arguments.chip, "backend": arguments.backend}
    where = place_of(resolved, path, None, api=arguments.api, **asked_for)
    root, name = _target(arguments, where, settings.evaluate)
    found = workload(name, workload_folders(settings))
    if root is None and arguments.from_reference == "":
        where = place_of(resolved, None, found, api=arguments.api, unwritten=True, **asked_for)
    writes_first = arguments.from_reference is not None and PROPOSERS[settings.search.proposer].writes_first
    if not writes_first:
        if arguments.from_reference == "":
            raise UsageError(
                "rewrite rules only change kernels: they can not write the first kernel of a workload",
                hint="--proposer llm lets models write it; acceld optimize REF.py lowers a reference to a kernel",
            )
        if root is None and not found.baselines and not (path and is_reference(path)):
            where = place_of(resolved, None, found, api=arguments.api, **asked_for)
            root = lowered_root(found, where.api, hidden=True)
        if root is None and not found.baselines:
            raise UsageError(
                f"workload {found.name} has no kernel to begin with, and its reference could not be lowered to one",
                hint="--proposer llm lets models write the first kernel",
            )
        api = arguments.api if root is None else root.api
        where = place_of(resolved, None if root is None else path, found, api=api, **asked_for)
    elif arguments.from_reference and where.api in found.baselines:
        # The folder was made from the reference, so its kernels are lowered kernels. One of them is a root, in addition to
        # the first kernels that models write.
        root = parsed_kernel(found.baselines[where.api], api=where.api, entry=found.entry or "")
    elif not arguments.from_reference and where.api not in found.baselines:
        root = lowered_root(found, where.api, hidden=False)
    spec = RunSpec(
        workload=found.name,
        workload_folder=str(found.folder.resolve()),
        chip=where.chip,
        api=where.api,
        backend=where.backend,
        proposer=settings.search.proposer,
        preset=settings.search.preset,
        search=parameters(arguments, resolved, where.backend, writes_first=writes_first),
        root=root,
        name=arguments.name,
    )
    return spec, settings


def _target(arguments: argparse.Namespace, where: Choice, settings: config.EvaluateConfig) -> tuple[Kernel | None, str]:
    if arguments.from_reference:
        if arguments.target or arguments.workload:
            raise UsageError(
                "--from-reference names the reference to optimize, so no workload or kernel file can be given too",
                hint="acceld optimize --from-reference REF.py",
            )
        return None, _reference(arguments, Path(arguments.from_reference), where, settings)
    if arguments.target and not arguments.workload and is_reference(Path(arguments.target)):
        return None, _reference(arguments, Path(arguments.target), where, settings)
    if arguments.arg or arguments.scalar:
        raise _no_reference(arguments.target)
    if arguments.target is None:
        raise UsageError(
            "nothing to optimize is named",
            hint=f"acceld optimize {arguments.workload} begins with that workload's own kernel"
            if arguments.workload
            else "give a workload (acceld workloads lists them), a kernel file or a reference",
        )
    path = Path(arguments.target)
    if path.suffix not in (".py", ".c"):
        if arguments.workload:
            raise UsageError(
                f"--workload works only with a kernel file, and {arguments.target} is not one",
                hint=f"acceld optimize KERNEL.py --workload {arguments.workload}, or leave --workload out",
            )
        return None, arguments.target
    kernel = parsed_kernel(path, api=where.api, entry=arguments.entry or "")
    if arguments.workload:
        return kernel, arguments.workload
    if (path.parent / "workload.toml").is_file():
        return kernel, str(path.parent)
    raise UsageError(
        f"{path} has no workload to check it against",
        hint=f"name one with --workload, or make one: acceld init {path} --reference REF.py --arg NAME=SHAPE:DTYPE ...",
    )


def _no_reference(target: str | None) -> UsageError:
    """Return the error about ``--arg`` or ``--scalar`` beside a target that is no reference."""
    problem, path = "no reference is named", Path(target or "")
    if path.suffix == ".py":
        if (wrong := syntax_error(read(path), path)) is not None:
            return wrong
        problem = f"{path} is a kernel" if api_of_file(path) else f"{path} has no function forward"
    elif target is not None:
        problem = f"{target} is no file of a reference"
    return UsageError(
        f"--arg and --scalar describe the arguments of a reference, and {problem}",
        hint="acceld optimize REF.py --arg ..., where REF.py defines forward in numpy",
    )


def _reference(arguments: argparse.Namespace, path: Path, where: Choice, settings: config.EvaluateConfig) -> str:
    """Make a workload from a reference, with first kernels that are lowered from it, and return the workload's
    folder. Inputs on which the simulated first kernel is wrong are refused in the workload's file, with a note.
    """
    from acceld import drafts
    from acceld.cli.declared import judged_at, say_judged
    from acceld.cli.reference import reference_workload
    from acceld.given_arguments import by_forward
    from acceld.workloads import load_workload

    given = [drafts.parse_argument(text, place) for place, text in enumerate(arguments.arg)]
    given += [drafts.parse_scalar(text) for text in arguments.scalar]
    state = find_home(arguments.home).prepare()

    def judge(folder: Path) -> Callable[[Path], None]:
        made = load_workload(folder)
        if where.backend != SIMULATOR or where.api not in made.baselines:
            return lambda _: None
        kernel = parsed_kernel(made.baselines[where.api], api=where.api, entry=made.entry or "")
        say(f"trying the first kernel of {path} on the inputs that its new workload declares: about a minute at most")
        found = asyncio.run(judged_at(where, kernel, folder, settings, state))
        return lambda at: say_judged(found, at, where.api)

    return str(reference_workload(path, by_forward(path, given), state / "workloads", judge))


def parameters(
    arguments: argparse.Namespace, resolved: config.Resolved, backend: str, *, writes_first: bool = False
) -> SearchParameters:
    """Return the search parameters. Flags win over the configuration, which wins over the preset."""
    from acceld.daemon.specs import configured_search

    settings = resolved.config.search
    given = {name: value for name in SEARCH_OPTIONS if (value := getattr(arguments, name, None)) is not None}
    given.pop("screen", None)  # ``--screen`` belongs to the device, and is in the configuration already
    given["from_reference"] = writes_first
    return configured_search(given, resolved.config, resolved.origins, settings.preset, settings.proposer, backend)


def as_body(spec: RunSpec) -> dict[str, Any]:
    """Return the run as the body of a request to the daemon."""
    body = asdict(spec)
    if spec.root is None:
        del body["root"]
    else:
        body["root"]["closure"] = dict(spec.root.closure)
    return body


def settings_of(spec: RunSpec, settings: config.Config) -> dict[str, Any]:
    """Return the settings on which the run depends, for the daemon to compare with its own. The daemon refuses the run
    if its own settings differ, so that no run uses other settings than its author sees.
    """
    from acceld.watch.settings import digests

    return {"digests": digests(settings, spec), "files": [str(path) for path in config.load().files]}


def follow(home: Home, client: Client, run_id: int, *, as_json: bool) -> int:
    """Show the run until it ends, then its outcome, and return the exit code. Ctrl-C ends this command only; the run
    continues.
    """
    from acceld.cli.outcome import print_outcome
    from acceld.cli.progress import progress_for
    from acceld.events import RunStateChanged

    waits = say_turn(client, run_id)
    progress = progress_for(run_id)
    try:
        for event in client.follow(run_id, wait_s=1.0, lost=say, quiet=_Waits(client).look):
            progress.update(event)
            if waits and isinstance(event.data, RunStateChanged) and event.data.state is RunState.RUNNING:
                say(f"r{run_id} begins")
                waits = False
    except DaemonError as error:
        raise DaemonError(
            f"r{run_id} can not be followed: {error.message}",
            hint=f"the run continues when a daemon starts again: acceld start, then acceld show r{run_id}",
        ) from error
    except KeyboardInterrupt:
        progress.close()
        say(f"detached; r{run_id} goes on. Follow it with: acceld attach, end it with: acceld cancel r{run_id}")
        return INTERRUPTED
    finally:
        progress.close()
    result = client.get(f"/v1/runs/{run_id}/outcome")
    best_file = write_best(home, client, result)
    if as_json:
        print_json(result | {"best_kernel": best_file, "database": str(home.database)})
    else:
        print_outcome(result, best_file, str(home.database))
    if result["state"] == RunState.PAUSED and result["message"].startswith(BUDGET_PREFIX):
        say(f"r{run_id} waits for a higher cap: acceld budget r{run_id} USD raises it, and the run continues")
        return BudgetError.exit_code
    if result["state"] == RunState.PAUSED:
        say(f"r{run_id} is paused, and all its results are stored: acceld resume r{run_id} continues it")
        return int(result["exit_code"]) or 1
    return int(result["exit_code"])


class _Waits:
    """Tell a person what the daemon waits for, such as room on a disk or the first host of a fleet."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._told: set[str] = set()
        self._next_s = 0.0

    def look(self) -> None:
        """Print what the daemon waits for now, each text once. Ask the daemon at most every ``WAITS_S`` seconds."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + WAITS_S
        with suppress(AcceldError):  # the events tell that the daemon has gone
            for text in self._client.get("/v1/status")["waits_for"]:
                if text not in self._told:
                    self._told.add(text)
                    say(f"the daemon waits: {text}")


def say_turn(client: Client, run_id: int) -> bool:
    """Say for which runs a run waits, and return True. Return False if the run does not wait for its turn."""
    ahead: list[int] = client.get(f"/v1/runs/{run_id}")["steering"].get("ahead", [])
    if not ahead:
        return False
    first = f"r{ahead[0]}"
    runs = ", ".join(f"r{run}" for run in ahead[:RUNS_SHOWN])
    more = f" and {len(ahead) - RUNS_SHOWN} more" if len(ahead) > RUNS_SHOWN else ""
    say(
        f"r{run_id} waits for its turn behind {runs}{more}: acceld show {first} says what {first} does, acceld cancel "
        f"{first} ends it; daemon.runs sets how many runs search at the same time"
    )
    return True


def write_best(home: Home, client: Client, result: dict[str, Any]) -> str | None:
    """Write the best kernel to a file in the state folder, and return the file's path.

    Return None if no candidate passed, or if the file can not be written; the history has the kernel in any
    case.
    """
    if result["best"] is None:
        return None
    from acceld.workloads import BASELINE_FILES

    folder = home.path / "best"
    best = client.get(f"/v1/candidates/{result['best']}")
    path = folder / f"r{result['run']}_{Path(result['workload']).name}{Path(BASELINE_FILES[result['api']]).suffix}"
    partial = path.with_name(f".{path.name}.partial")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        partial.write_text(best["text"], encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        say(f"{path} can not be written: {error.strerror}; the history has the kernel: acceld best r{result['run']}")
        return None
    return str(path)
