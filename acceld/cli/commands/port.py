"""``acceld port``: rewrite a kernel of ``neuronxcc.nki`` for the current ``nki``, and compare both kernels.

The exit code is 7 if a part could not be ported, or if the kernels' results differ.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from acceld import config
from acceld.chips import API_CHIPS
from acceld.cli.arguments import add_json, add_launch
from acceld.cli.kernels import NOT_PASSED, parsed_kernel, workload_of
from acceld.cli.output import print_json, say, write_file
from acceld.errors import UsageError
from acceld.given_arguments import bare_arguments
from acceld.home import find_home
from acceld.kernel_files import api_of_file
from acceld.model import Kernel
from acceld.nki.errors import KernelFailure

if TYPE_CHECKING:
    from acceld.nki.port.comparison import Agreement
    from acceld.nki.port.rewriting import Ported
    from acceld.workloads import Arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("kernel", metavar="KERNEL.py", help="a kernel that imports neuronxcc.nki")
    parser.add_argument("--to", choices=("nki",), default="nki", help="the API to write (nki)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file for the port (default: KERNEL_nki.py beside KERNEL.py)"
    )
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--workload", help="trace both kernels with the shapes of this workload")
    shapes.add_argument("--arg", action="append", metavar="[NAME=]SHAPE:DTYPE", help="an argument, by name or in order")
    parser.add_argument(
        "--scalar", action="append", default=[], metavar="NAME=VALUE", help="with --arg: a number, true or false"
    )
    add_launch(parser)
    parser.add_argument("--chip", choices=API_CHIPS["nki"], default="trn2", help="the chip that the port is for (trn2)")
    parser.add_argument(
        "--no-data", action="store_true", help="trace and verify the port, but do not run both kernels on data"
    )
    add_json(parser)


@dataclass(frozen=True, slots=True)
class PortOutcome:
    """A ported kernel and its evaluation.

    ``problem`` is the reason why the port is not proved equal to the original; empty if it is proved equal.
    """

    ported: Ported
    problem: str = ""
    agreement: Agreement | None = None

    @property
    def holds(self) -> bool:
        """Tell whether every construct was ported, and the port is legal and equals the original on the data that were
        tried.
        """
        return not self.ported.findings and not self.problem


def run(arguments: argparse.Namespace) -> int:
    """Port the kernel, write the file, and print which parts are proven and which could not be ported."""
    settings = config.load().config
    path = Path(arguments.kernel)
    if path.suffix != ".py":
        raise UsageError(f"{path} is not a Python file", hint="give the file of a kernel that imports neuronxcc.nki")
    if api_of_file(path) == "nki":
        raise UsageError(
            f"{path} imports nki, so it is a kernel of the current API already", hint="use the file as it is"
        )
    found = None if arguments.arg else workload_of(path, arguments.workload, settings)
    kernel = parsed_kernel(
        path,
        api="nki_legacy",
        entry=arguments.entry or (found.entry if found and found.entry else ""),
        grid=arguments.grid or (found.grid if found else ()),
        lnc=max(arguments.lnc, found.lnc if found else 1),
    )
    if arguments.arg:
        values = bare_arguments(kernel, arguments.arg, arguments.scalar)
    elif found is not None:
        values = found.kernel_arguments()
    else:
        raise UsageError(
            f"{path} can not be traced without the shapes of its arguments",
            hint="give --workload, or --arg SHAPE:DTYPE for each argument",
        )
    outcome = asyncio.run(_port(kernel, values, arguments, settings.evaluate, find_home(arguments.home).prepare()))
    target = Path(arguments.output) if arguments.output else path.with_name(f"{path.stem}_nki.py")
    write_file(target, outcome.ported.text)
    if arguments.json:
        record = {
            "findings": [asdict(f) for f in outcome.ported.findings],
            "notes": [asdict(n) for n in outcome.ported.notes],
        }
        agreement = None if outcome.agreement is None else asdict(outcome.agreement)
        print_json(
            {"file": str(target), "holds": outcome.holds, "problem": outcome.problem, "agreement": agreement, **record}
        )
    else:
        _print(outcome, path, target)
    return 0 if outcome.holds else NOT_PASSED


async def _port(
    kernel: Kernel,
    values: Arguments,
    arguments: argparse.Namespace,
    settings: config.EvaluateConfig,
    state: Path,
) -> PortOutcome:
    from acceld.evaluate.simulated.programs import tracing
    from acceld.nki.entry import find_entry
    from acceld.nki.port.comparison import compare
    from acceld.nki.port.rewriting import Ported, Unported, as_one, rewrite
    from acceld.nki.port.values import Unportable
    from acceld.nki.verify.verifier import verify

    relaxed = replace(settings, strict_legality=False)
    chip = arguments.chip if arguments.chip in API_CHIPS["nki_legacy"] else API_CHIPS["nki_legacy"][-1]
    try:
        kernel = replace(kernel, text=as_one(kernel.text, kernel.filename, kernel.closure))
    except Unportable as error:
        return PortOutcome(Ported(kernel.text, (Unported(error.line, error.message, error.instead),), ()))
    async with tracing(relaxed, state) as tracer:
        facts = await tracer.facts(kernel, values, chip)
        ported = rewrite(kernel.text, find_entry(kernel.text, kernel.entry or None), facts)
        if ported.findings:
            return PortOutcome(ported)
        try:
            port = await tracer.program(
                replace(kernel, text=ported.text, api="nki", closure={}), values, arguments.chip
            )
        except KernelFailure as failure:
            return PortOutcome(ported, f"line {failure.line}: {failure.message} [{failure.rule}]")
        broken = verify(port)
        if broken:
            return PortOutcome(ported, f"line {broken[0].line}: {broken[0].message} [{broken[0].rule}]")
        if arguments.no_data:
            return PortOutcome(ported)
        agreement = compare(await tracer.program(kernel, values, chip), port)
    return PortOutcome(ported, "" if agreement.agrees else "its results differ from the original's", agreement)


def _print(outcome: PortOutcome, path: Path, target: Path) -> None:
    print(f"wrote {target}")
    for finding in outcome.ported.findings:
        instead = f": {finding.instead}" if finding.instead else ""
        print(f"{path}:{finding.line}: not ported: {finding.message}{instead}")
    if outcome.problem:
        print(f"{target}: {outcome.problem}")
    if outcome.agreement is not None:
        where = "" if outcome.agreement.inputs == "normal" else " of positive numbers"
        print(f"both run on the same data{where}: {outcome.agreement.rel_l2:.2g} relative L2")
    elif outcome.holds:
        print("traced and verified; not run on data")
    for note in outcome.ported.notes:
        say(f"note: {path}:{note.line}: {note.message}")
