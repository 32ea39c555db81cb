"""Run the command line: find the command, run it, turn errors into messages and exit codes.

A command is a module ``acceld.cli.commands.<module>`` with ``add_arguments(parser)`` and ``run(arguments) -> int``.
Only the module of the chosen command is imported, so that ``acceld status`` starts quickly.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from acceld.cli.streams import print_anything
from acceld.errors import AcceldError, UsageError, did_you_mean

INTERRUPTED = 130
_COLLECTED = 50_000
"""New objects after which garbage is collected. What a command imports stays until it ends."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its module, and its line in the overview."""

    module: str
    group: str
    help: str
    paged: bool = False
    """True if the command can print more than a screen, which a pager then shows."""


COMMANDS: dict[str, Command] = {
    "optimize": Command("optimize", "search", "search for a faster version of a workload's kernel or of a file"),
    "profile": Command("profile", "search", "check and time one kernel on the simulator"),
    "evaluate": Command("evaluate", "search", "evaluate many kernels from a JSON lines file, for other programs"),
    "suggest": Command(
        "suggest", "search", "show what the rewrite rules would change in a kernel; edits nothing", paged=True
    ),
    "port": Command("port", "search", "rewrite a kernel of neuronxcc.nki for the current nki, and compare both"),
    "watch": Command("watch", "search", "report what each save of a kernel changes"),
    "workloads": Command("workloads", "search", "list workloads, or show one", paged=True),
    "init": Command("init", "search", "make a workload folder from a kernel of your own"),
    "runs": Command("runs", "history", "list runs", paged=True),
    "show": Command("show", "history", "show a run, a candidate, an insight or an evaluation", paged=True),
    "best": Command("best", "history", "print the best kernel of a run or workload; --apply writes it"),
    "history": Command("history", "history", "list runs by condition, run saved queries, search the text", paged=True),
    "insights": Command(
        "insights", "history", "list the optimization memory; pin, mute or delete insights", paged=True
    ),
    "tree": Command("tree", "history", "show a run's candidates as a tree", paged=True),
    "diff": Command("diff", "history", "show the difference between two candidates", paged=True),
    "compare": Command("compare", "history", "compare runs: gain, money, time", paged=True),
    "ablate": Command("ablate", "search", "repeat a search with one setting changed at a time, at equal cost"),
    "suite": Command("suite", "search", "optimize many kernels under one budget; compare two suites"),
    "costs": Command("costs", "history", "show what models cost, by role, model, iteration or candidate", paged=True),
    "replay": Command("replay", "history", "repeat a run's decisions from its rows; exit 1 on the first difference"),
    "report": Command("report", "history", "write a run as one HTML page, Markdown or pictures"),
    "export": Command("export", "history", "write the history as data sets for training or other tools"),
    "import": Command("import_", "history", "read workloads and results of other projects"),
    "verify": Command(
        "verify", "history", "evaluate stored winners again by the strict gate; 7 if one no longer holds"
    ),
    "ci": Command("ci", "history", "verify the kernels that a branch changed; 7 if one is wrong or too slow"),
    "calibrate": Command("calibrate", "history", "show the simulator's error on this machine, and correct it"),
    "query": Command("query", "history", "run SQL over the history, read-only", paged=True),
    "start": Command("start", "daemon", "start the daemon"),
    "stop": Command("stop", "daemon", "stop the daemon in order"),
    "restart": Command("restart", "daemon", "stop the daemon, then start it"),
    "status": Command("status", "daemon", "show what the daemon does now"),
    "hosts": Command("hosts", "daemon", "list the hosts of a fleet and why one is idle; drain a host"),
    "attach": Command("attach", "daemon", "open the terminal UI"),
    "tui": Command("attach", "daemon", "open the terminal UI, as attach does"),
    "logs": Command("logs", "daemon", "print the daemon's log"),
    "service": Command("service", "daemon", "keep a daemon running with systemd"),
    "check": Command("check", "setup", "check configuration, models, prompts and workloads; runs nothing"),
    "db": Command("db", "setup", "copy, check, shrink or prune the history"),
    "find": Command(
        "find", "search", "rank the operators of a captured profile by what a better kernel could give back"
    ),
    "clean": Command("clean", "setup", "remove data sets and, with --all, all other data that can be made again"),
    "mcp": Command("mcp", "agents", "serve tools for coding agents over the Model Context Protocol"),
    "skill": Command("skill", "agents", "write instructions for a coding agent: when and how to use acceld"),
    "web": Command("web", "daemon", "serve the terminal UI to a browser, on loopback"),
    "pause": Command("steer", "steer", "pause a run before its next step"),
    "resume": Command("steer", "steer", "continue a paused or failed run"),
    "cancel": Command("steer", "steer", "end a run once its running evaluations are done"),
    "pin": Command("steer", "steer", "keep a candidate in the beam"),
    "veto": Command("steer", "steer", "exclude a candidate from selection"),
    "hint": Command("steer", "steer", "send the planner a hint"),
    "budget": Command("steer", "steer", "change a run's cap in USD; a run that waits for it continues"),
    "completion": Command("completion", "setup", "print a completion script for bash, zsh or fish, or the man page"),
    "config": Command("config", "setup", "show the configuration and where each value comes from"),
    "trust": Command("trust", "setup", "trust a folder's acceld.toml, or a history from elsewhere"),
    "doctor": Command("doctor", "setup", "show what this machine offers, and what to install"),
    "selftest": Command("selftest", "setup", "try every known attack on this machine's own evaluator"),
}
"""Every command, in the order of the overview."""


class _Parser(argparse.ArgumentParser):
    """Parser that reports an error in one line, like all other errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help lists its arguments")


def with_signed_values(words: Sequence[str]) -> list[str]:
    """Return the words with ``--sort -COLUMN`` joined, because argparse would read two options."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--sort" and re.fullmatch("-[a-z_]+", word):
            found[-1] = f"--sort={word}"
        else:
            found.append(word)
    return found


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    command = COMMANDS[name]
    parser = _Parser(
        prog=f"acceld {name}", description=command.help[0].upper() + command.help[1:] + ".", allow_abbrev=False
    )
    parser.add_argument("--home", metavar="DIR", help="state folder (default: the nearest .acceld upward)")
    if command.paged:
        parser.add_argument("--no-pager", action="store_true", help="print to the terminal, however long it is")
    importlib.import_module(f"acceld.cli.commands.{command.module}").add_arguments(parser)
    return parser


def overview() -> str:
    """Return the text of ``acceld --help``."""
    width = max(map(len, COMMANDS))
    lines = ["usage: acceld COMMAND [options]", "", "Makes accelerator kernels faster."]
    group = ""
    for name, command in sorted(COMMANDS.items(), key=lambda item: list(GROUPS).index(item[1].group)):
        if command.group != group:
            group = command.group
            lines += ["", f"{GROUPS[group]}:"]
        lines.append(f"  {name:{width}}  {command.help}")
    return "\n".join([*lines, "", "acceld COMMAND --help has details; every command that prints has --json."])


GROUPS = {
    "search": "Optimize",
    "history": "Look back",
    "daemon": "Daemon",
    "steer": "Steer a run",
    "agents": "For coding agents",
    "setup": "Set up and check",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv``, and return its exit code."""
    print_anything()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(f"acceld {version('acceld')}")
        return 0
    gc.set_threshold(_COLLECTED)
    atexit.register(gc.freeze)  # what is left is not searched for garbage once more
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        print(f"acceld: there is no command {name!r}. {did_you_mean(name, COMMANDS)}".rstrip(), file=sys.stderr)
        print("acceld --help lists them.", file=sys.stderr)
        return 2
    try:
        arguments = parser_of(name).parse_args(with_signed_values(rest))
        command = importlib.import_module(f"acceld.cli.commands.{COMMANDS[name].module}")
        if not COMMANDS[name].paged or arguments.no_pager:
            return int(command.run(arguments))
        from acceld.cli.pager import paged

        with paged():
            return int(command.run(arguments))
    except AcceldError as error:
        print(f"acceld {name}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if type(error).__module__ != "sqlite3":
            raise
        # The error classes are not imported: most commands never open the history.
        print(f"acceld {name}: the history can not be read: {error}\n  `acceld db check` has details.", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
