"""Run the command line: find the command, run it, and turn errors into messages and exit codes.

A command is a module ``acceld.cli.commands.<module>`` with ``add_arguments(parser)`` and ``run(arguments) ->
int``. Only the chosen command's module is imported, so that quick commands start quickly.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from acceld.cli.former import current_words
from acceld.cli.streams import NOT_WRITTEN, outlive_reader, print_anything, print_no_more
from acceld.errors import INTERRUPTED, AcceldError, UsageError, did_you_mean
from acceld.private_files import unusable

_COLLECTED = 50_000
"""Number of new objects after which Python collects garbage. The number is high because what a command imports is
needed until the command ends.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the name of its module, and its line in ``acceld --help``."""

    module: str
    group: str
    help: str
    paged: bool = False
    """True if the command can print more than a screen, which a pager then shows."""
    first: bool = False
    """True if ``acceld --help`` shows the command also without ``--all``."""
    endless: bool = False
    """True if the command prints until somebody ends it, so that it ends when nobody reads its output."""


COMMANDS: dict[str, Command] = {
    "optimize": Command(
        "optimize", "search", "search for a faster version of a workload's kernel or of a file", first=True
    ),
    "init": Command(
        "init", "search", "make a workload folder from a kernel, a reference or a PyTorch module", first=True
    ),
    "profile": Command("profile", "search", "check and time one kernel on the simulator, or many", first=True),
    "watch": Command("watch", "search", "report what each save of a kernel changes", first=True, endless=True),
    "suggest": Command(
        "suggest", "search", "show what the rewrite rules would change in a kernel; edits nothing", paged=True
    ),
    "workloads": Command("workloads", "search", "list workloads, or show one", paged=True),
    "model": Command("model", "search", "divide a model's step into regions; write a suite of their workloads"),
    "find": Command(
        "find", "search", "rank the operators of a captured profile by the time that a better kernel could save"
    ),
    "suite": Command("suite", "search", "optimize many kernels under one budget"),
    "ablate": Command("ablate", "search", "repeat a search with one setting changed at a time, at equal cost"),
    "port": Command("port", "search", "rewrite a kernel of neuronxcc.nki for the current nki, and compare both"),
    "runs": Command("runs", "history", "list runs, also by condition; search plans and errors", paged=True, first=True),
    "show": Command("show", "history", "show a run, a candidate, an insight or an evaluation", paged=True, first=True),
    "best": Command("best", "history", "print the best kernel of a run or workload", first=True),
    "apply": Command("apply", "history", "write the best kernel over your file, or to a new one", first=True),
    "attach": Command("attach", "history", "open the terminal UI", first=True),
    "query": Command("query", "history", "run SQL over the history, read-only", paged=True, first=True),
    "tree": Command("tree", "history", "show a run's candidates as a tree", paged=True),
    "diff": Command("diff", "history", "show the difference between two candidates", paged=True),
    "compare": Command("compare", "history", "compare runs, or two suites: gain, money, time", paged=True),
    "costs": Command("costs", "history", "show what models cost, by role, model, iteration or candidate", paged=True),
    "insights": Command(
        "insights", "history", "list the optimization memory; pin, mute or delete insights", paged=True
    ),
    "replay": Command("replay", "history", "repeat a run's decisions from its rows; exit code 1 if one differs"),
    "export": Command("export", "history", "write runs as a report, or as data sets for training or other tools"),
    "dataset": Command("dataset", "history", "make programs with checked slow-fast pairs of kernels, for training"),
    "import": Command("import_", "history", "read workloads and results of other projects"),
    "check": Command(
        "check",
        "check",
        "evaluate kernels again by the strict gate: files, winners, a branch; exit code 7 if one fails",
        first=True,
    ),
    "doctor": Command(
        "doctor", "check", "examine this machine, the settings, the database and the evaluator", first=True
    ),
    "calibrate": Command("calibrate", "check", "show the simulator's error on this machine, and correct it"),
    "stop": Command("stop", "daemon", "stop the daemon, with some seconds for its running evaluations", first=True),
    "start": Command("start", "daemon", "start the daemon; acceld optimize starts it by itself"),
    "restart": Command("restart", "daemon", "stop the daemon, then start it"),
    "status": Command("status", "daemon", "show what the daemon does now"),
    "hosts": Command("hosts", "daemon", "list the hosts of a fleet and why one is idle; drain a host"),
    "logs": Command("logs", "daemon", "print the daemon's log", endless=True),
    "service": Command("service", "daemon", "keep a daemon running with systemd"),
    "web": Command("web", "daemon", "serve the terminal UI to a browser, on loopback", endless=True),
    "db": Command("db", "daemon", "copy, restore, shrink or prune the history"),
    "clean": Command("clean", "daemon", "remove data sets and, with --all, all other data that can be made again"),
    "pause": Command("steer", "steer", "pause a run before its next step"),
    "resume": Command("steer", "steer", "continue a paused or failed run"),
    "cancel": Command("steer", "steer", "end a run once its running evaluations are done"),
    "pin": Command("steer", "steer", "keep a candidate in the beam"),
    "veto": Command("steer", "steer", "exclude a candidate from selection"),
    "hint": Command("steer", "steer", "send the planner a hint"),
    "budget": Command("steer", "steer", "change a run's cap in USD; a run that waits for it continues"),
    "mcp": Command("mcp", "agents", "serve tools for coding agents over the Model Context Protocol", endless=True),
    "skill": Command("skill", "agents", "write instructions for a coding agent: when and how to use acceld"),
    "config": Command("config", "setup", "show each setting and where it comes from; trust a folder's acceld.toml"),
    "completion": Command("completion", "setup", "print a completion script for bash, zsh or fish, or the man page"),
}
"""Every command, in the order of ``acceld --help --all``. ``former.py`` has the names of the previous version."""


class _Parser(argparse.ArgumentParser):
    """Argument parser that reports an error in one line, like acceld's other errors."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"^unrecognized arguments:.*?(--[a-z-]+)", message)
        near = did_you_mean(wrong[1], self._option_string_actions) if wrong else ""
        raise UsageError(message, hint=f"{near} {self.prog} --help lists its arguments".strip())


def with_signed_values(words: Sequence[str]) -> list[str]:
    """Return the words with ``--sort`` and ``-COLUMN`` joined, because argparse would take ``-COLUMN`` for an option."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--sort" and re.fullmatch("-[a-z_]+", word):
            found[-1] = f"--sort={word}"
        else:
            found.append(word)
    return found


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the argument parser of the command called ``name``."""
    command = COMMANDS[name]
    parser = _Parser(
        prog=f"acceld {name}", description=command.help[0].upper() + command.help[1:] + ".", allow_abbrev=False
    )
    parser.add_argument("--home", metavar="DIR", help="state folder (default: the nearest .acceld upward)")
    if command.paged:
        parser.add_argument("--no-pager", action="store_true", help="print to the terminal, however long it is")
    importlib.import_module(f"acceld.cli.commands.{command.module}").add_arguments(parser)
    return parser


def arguments_of(name: str, words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command. Options may stand between its positional arguments."""
    return parser_of(name).parse_intermixed_args(with_signed_values(words))


def overview(*, every: bool) -> str:
    """Return the text of ``acceld --help``: the commands to begin with; with ``every``, all commands."""
    shown = {name: command for name, command in COMMANDS.items() if every or command.first}
    width = max(map(len, shown))
    lines = ["usage: acceld COMMAND [options]", "", "Makes accelerator kernels faster."]
    group = ""
    for name, command in sorted(shown.items(), key=lambda item: list(GROUPS).index(item[1].group)):
        if command.group != group:
            group = command.group
            lines += ["", f"{GROUPS[group]}:"]
        lines.append(f"  {name:{width}}  {command.help}")
    more = "" if every else f"acceld --help --all lists all {len(COMMANDS)} commands. "
    return "\n".join([*lines, "", f"{more}acceld COMMAND --help has details; every command that prints has --json."])


GROUPS = {
    "search": "Make a kernel faster",
    "history": "Look at what was found",
    "check": "Check",
    "daemon": "Daemon and files",
    "steer": "Steer a run",
    "agents": "For coding agents",
    "setup": "Set up",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv``, and return its exit code. Output that can not be written is an error."""
    print_anything()
    outlive_reader("stderr")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        print_no_more()
        return 0
    except OSError as error:
        if error.errno not in NOT_WRITTEN or error.filename is not None:
            raise
        print_no_more()
        print(f"acceld {words[0]}: its output can not be written: {error.strerror}", file=sys.stderr)
        return 1


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview(every="--all" in words))
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(f"acceld {version('acceld')}")
        return 0
    gc.set_threshold(_COLLECTED)
    atexit.register(gc.freeze)  # Python does not search the remaining objects for garbage when it exits
    (name, *rest), message = current_words(words[0], words[1:])
    if message:
        print(message, file=sys.stderr)
    if name.startswith("-"):
        print(f"acceld: the option {name} stands before the command", file=sys.stderr)
        print(
            "Options follow the command: acceld COMMAND [options]; acceld --help lists the commands.", file=sys.stderr
        )
        return 2
    if name not in COMMANDS:
        print(f"acceld: there is no command {name!r}. {did_you_mean(name, COMMANDS)}".rstrip(), file=sys.stderr)
        print("acceld --help --all lists them.", file=sys.stderr)
        return 2
    if not COMMANDS[name].paged and not COMMANDS[name].endless:
        outlive_reader("stdout")
    try:
        arguments = arguments_of(name, rest)
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
    except OSError as error:
        refused = unusable(error)
        if refused is None:
            raise
        print(f"acceld {name}: {refused}", file=sys.stderr)
        return refused.exit_code
    except Exception as error:
        if type(error).__module__ != "sqlite3":
            raise
        # The error classes are not imported: most commands never open the history.
        print(
            f"acceld {name}: the history can not be read: {error}\n  `acceld doctor database` has details.",
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
