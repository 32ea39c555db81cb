"""``acceld check``: evaluate kernels by the checks that a winner has to pass, or list which versions of nki refuse
them.

The command takes one kernel file, the best kernels of runs, or the kernels that a branch changed. The exit code is 7 if
a kernel fails.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from acceld import config
from acceld.chips import NKI_VERSIONS
from acceld.cli.arguments import add_json, add_target
from acceld.cli.checks.winners import is_file
from acceld.cli.kernels import workload_of
from acceld.errors import UsageError, no_file
from acceld.kernel_files import api_of_file

CONFIGURED = "configured"
BASE = "origin/main"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "what",
        nargs="?",
        metavar="r12|WORKLOAD|KERNEL.py",
        help="the best kernel of a run (r12, or the run's name) or of a workload's fastest run, or a kernel file",
    )
    many = parser.add_argument_group("several kernels")
    many.add_argument(
        "--all",
        action="store_true",
        dest="every",
        help="the best kernel of every run, oldest first; the history then marks kernels that no longer hold; use it after an update of the SDK",
    )
    many.add_argument(
        "--workload",
        help="the best kernel of every run of this workload; with KERNEL.py: the workload to check the file against",
    )
    many.add_argument(
        "--changed", action="store_true", help="the kernel files that the branch changed since --against, for CI"
    )
    parser.add_argument(
        "--against",
        metavar="REV",
        help=f"with a file: also compare the latency with that of a revision in git; with --changed: the base ({BASE})",
    )
    parser.add_argument(
        "--max-regression",
        type=float,
        metavar="PERCENT",
        help="greatest slow-down in percent (5); for a win measured on a device: how much smaller its gain may be now",
    )
    parser.add_argument(
        "--on",
        choices=("simulator", "device"),
        default="simulator",
        help="device: measure a simulated run's fastest kernels, and show the predictions beside the results (a measured run's kernels are always measured again)",
    )
    parser.add_argument("--top", type=int, default=5, metavar="M", help="with --on device: how many kernels (5)")
    add_target(parser, backend="with --on device: default by the run's API")
    add_json(parser)
    branch = parser.add_argument_group("with --changed")
    branch.add_argument("--budget", metavar="FILE", help="default: regressions.toml at the repository's top")
    branch.add_argument("--annotate", action="store_true", help="print annotations as GitHub reads them")
    branch.add_argument("--summary", metavar="FILE", help="write the table to this file as Markdown")
    versions = parser.add_argument_group("versions of the package nki")
    versions.add_argument(
        "--nki",
        nargs="?",
        const=CONFIGURED,
        choices=(CONFIGURED, *NKI_VERSIONS),
        metavar="VERSION",
        help="with a file: list what each version refuses in it, without running it; VERSION decides the exit code "
        f"({', '.join(NKI_VERSIONS)}; default: as acceld.toml says)",
    )
    versions.add_argument("--entry", default="", help="with --nki: name of the kernel function, or Class.name")


def run(arguments: argparse.Namespace) -> int:
    """Check the kernels that the arguments name. Return 7 if a kernel does not pass, or is slower than allowed."""
    if arguments.changed:
        if arguments.what or arguments.every or arguments.nki:
            raise UsageError(
                "--changed finds the kernels itself: it takes no kernel, no --all and no --nki",
                hint=f"acceld check --changed --against {arguments.against or BASE}",
            )
        if other := _given(arguments, "workload", "max_regression", "on"):
            raise UsageError(
                f"--changed takes no {other}",
                hint="regressions.toml names each kernel's workload and how much slower it may become (docs/agents.md)",
            )
        from acceld.cli.checks import branch

        arguments.against = arguments.against or BASE
        return branch.run(arguments)
    if other := _given(arguments, "budget", "annotate", "summary"):
        raise UsageError(f"{other} works only with --changed", hint="acceld check --changed")
    if _of_versions(arguments):
        from acceld.cli.checks import versions

        arguments.nki = None if arguments.nki == CONFIGURED else arguments.nki
        return versions.run(arguments)
    from acceld.cli.checks import winners

    return winners.run(arguments)


def _given(arguments: argparse.Namespace, *names: str) -> str:
    """Return those of the options ``names`` that were given, as ``--option, --option``; empty if none was
    given.
    """
    values = {name: getattr(arguments, name) for name in names}
    given = [
        name for name, value in values.items() if value is not None and value is not False and value != "simulator"
    ]
    return ", ".join(f"--{name.replace('_', '-')}" for name in given)


def _of_versions(arguments: argparse.Namespace) -> bool:
    """Tell whether the command compares a kernel file with versions of nki.

    That is so if ``--nki`` or ``--entry`` is given, or if the file has no workload by which it could be
    evaluated.
    """
    if arguments.nki or arguments.entry:
        if arguments.what is None or not is_file(arguments.what):
            raise UsageError(
                "--nki and --entry work only with a kernel file, and no file is named",
                hint="acceld check KERNEL.py --nki 0.7",
            )
        return True
    if arguments.what is None or not is_file(arguments.what) or arguments.workload:
        return False
    path = Path(arguments.what)
    if not path.is_file():
        raise no_file(path, hint="acceld check takes a kernel's file, or a run: acceld check r12")
    if workload_of(path, None, config.load().config) is not None:
        return False
    if path.suffix == ".ipynb" or api_of_file(path) == "nki":
        return True
    port = f"; acceld port {path} rewrites it for nki" if api_of_file(path) == "nki_legacy" else ""
    raise UsageError(
        f"{path} has no workload to check it against, and no workload.toml is beside it",
        hint=f"acceld check {path} --workload NAME (acceld workloads lists them), or acceld init {path} --reference REF.py --arg NAME=SHAPE:DTYPE makes one{port}",
    )
