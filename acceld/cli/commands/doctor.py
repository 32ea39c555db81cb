"""``acceld doctor``: examine this machine, the settings, the database, or the evaluator under attack."""

from __future__ import annotations

import argparse
from pathlib import Path

from acceld.chips import API_CHIPS
from acceld.cli.arguments import add_json, count
from acceld.errors import UsageError, did_you_mean

SETTINGS = ("config", "models", "prompts", "workloads")
PARTS = (*SETTINGS, "database", "selftest")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="config, models, prompts, workloads: read them and list every problem, sending nothing; database: check the "
        "history; selftest: try every known attack on the evaluator. Default: what this machine offers, and what to install",
    )
    add_json(parser)
    settings = parser.add_argument_group("with models or workloads")
    settings.add_argument(
        "--call",
        action="store_true",
        help="ask each model one tiny question, which is paid for: price, latency, refused settings",
    )
    settings.add_argument(
        "--admit",
        nargs="*",
        metavar="WORKLOAD",
        help="also examine these workloads, or all: whether a constant output passes, and whether every input matters",
    )
    database = parser.add_argument_group("with database")
    database.add_argument("--quick", action="store_true", help="leave out the slow part of the integrity check")
    attacks = parser.add_argument_group("with selftest")
    attacks.add_argument("--attacks", metavar="DIR", type=Path, help="a folder of further attacks")
    attacks.add_argument("--backend", choices=("simulator", "cpu"), default="simulator", help="backend to attack")
    attacks.add_argument("--only", metavar="GLOB", default="", help="only attacks whose id matches, such as 'F*'")
    attacks.add_argument("--repeats", metavar="N", type=count, default=1, help="try each attack N times")
    trial = parser.add_argument_group("on a Trainium machine")
    trial.add_argument(
        "--neuron", action="store_true", help="try each step of compiling and running a kernel, and write a report"
    )
    trial.add_argument(
        "--from",
        dest="report",
        metavar="REPORT",
        type=Path,
        help="read a report that --neuron wrote, and print which settings to change",
    )
    trial.add_argument(
        "--api",
        choices=tuple(API_CHIPS),
        default="",
        help="with --neuron: API of the kernel (default: by this machine's chip and software)",
    )
    trial.add_argument(
        "--target",
        choices=("trn1", "trn2", "trn3"),
        default="",
        help="with --neuron: chip to compile for (default: the machine's chip)",
    )
    trial.add_argument("--lnc", type=int, choices=(1, 2), default=1, help="physical cores in a logical core")
    trial.add_argument("--out", type=Path, default=Path("acceld-neuron-report.json"), help="the report's file")


def run(arguments: argparse.Namespace) -> int:
    """Examine the parts that are named; without names, the machine. Return 1 if a part has a problem, 2 if a setting is
    wrong, 4 if only API keys of models are missing or refused.
    """
    for part in arguments.parts:
        if part not in PARTS:
            raise UsageError(
                f"there is no part {part!r}. {did_you_mean(part, PARTS)}".rstrip(),
                hint=f"the parts are {', '.join(PARTS)}; a kernel is checked by acceld check KERNEL.py",
            )
    alone = {"database", "selftest"} & set(arguments.parts)
    if alone and len(arguments.parts) > 1:
        raise UsageError(
            f"{min(alone)} can not be examined together with other parts", hint=f"acceld doctor {min(alone)}"
        )
    if "database" in alone:
        from acceld.cli.diagnosis import database

        return database.run(arguments)
    if "selftest" in alone:
        from acceld.cli.diagnosis import attacks

        return attacks.run(arguments)
    if arguments.parts or arguments.call or arguments.admit is not None:
        from acceld.cli.diagnosis import settings

        return settings.run(arguments, arguments.parts or SETTINGS)
    from acceld.cli.diagnosis import machine

    return machine.run(arguments)
