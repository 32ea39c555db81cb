"""``acceld suggest``: show the changes that the rewrite rules would make to a kernel. No file is edited."""

from __future__ import annotations

import argparse
from pathlib import Path

from acceld import config, figures
from acceld.chips import CURRENT_API
from acceld.cli.arguments import add_json, add_target
from acceld.cli.kernels import NOT_PASSED, baseline_of, parsed_kernel, place_of, workload_folders, workload_of
from acceld.cli.output import print_json, say
from acceld.errors import DeadlineError, UsageError
from acceld.kernel_files import api_of_file
from acceld.model import Kernel
from acceld.workloads import Workload, workload

TRACED = ("nki", "nki_legacy")
"""APIs of kernels that acceld can trace and verify without running them on a device."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "kernel", metavar="KERNEL.py|KERNEL.c|WORKLOAD", help="a kernel file, or a workload for its baseline"
    )
    add_target(parser)
    parser.add_argument(
        "--workload", help="the workload with the shapes of a file's arguments (default: workload.toml beside it)"
    )
    parser.add_argument("--rule", metavar="NAME", help="only this rule")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print whether the kernel runs; then each rewrite that applies, with its line, proven precondition, expected
    effect and diff; then the refused rewrites.
    """
    path = Path(arguments.kernel)
    asked = arguments.api or api_of_file(path)
    resolved = config.load(flags={"search.chip": arguments.chip, "search.api": asked})
    found = _workload(arguments, path, resolved.config)
    is_file = path.suffix in (".py", ".c")
    where = place_of(resolved, path, found, api=arguments.api, chip=arguments.chip)
    api = where.api
    lowered = None
    if not is_file:
        from acceld.cli.reference import first_kernel

        assert found is not None
        lowered = first_kernel(found, api)
        path = lowered[0] if lowered else baseline_of(found, api)
    from acceld.nki.source.launches import Launch, launch_of
    from acceld.proposers.rules.records import reason_at
    from acceld.proposers.rules.suggested import refused, suggested

    settings = {"entry": found.entry or "", "grid": found.grid, "lnc": found.lnc} if found else {}
    kernel = lowered[1] if lowered else parsed_kernel(path, api=api, exit_code=NOT_PASSED, **settings)
    fault = _fault(kernel, found, where.chip, resolved.config.evaluate) if found and api in TRACED else None
    launch = launch_of(kernel, found.kernel_facts, found.kernel_dtypes) if found else Launch(api)
    suggestions, places = (make(kernel.text, launch, arguments.rule) for make in (suggested, refused))
    if arguments.json:
        print_json({"kernel": str(path), "api": api, "fault": fault, "suggestions": suggestions, "refused": places})
        return 0
    if fault:
        print(f"{path} does not run, so mend this first: {fault}\n")
    elif found is None and api in TRACED:
        print(f"{path} was read and not traced, because no workload names shapes: it may not run. {_next(path)}\n")
    for one in suggestions:
        low, high = one["gain_percent"]
        print(f"{path}:{one['line']}: {one['rule']}: {one['plan']}")
        print(f"  holds: {one['precondition']}")
        print(f"  expected: {low:.0f} to {high:.0f} % less time ({one['reason']})")
        print(_indented(one["diff"]) + "\n")
    for place in places:
        print(f"{path}:{place['line']}: {place['rule']} refuses: {reason_at(place['line'], place['reason'])}")
    print(end="", flush=True)
    if found is not None and not (suggestions or fault or arguments.rule) and api == CURRENT_API:
        say(
            "if rules can not read all of this kernel, acceld optimize also writes a plain kernel out from its trace, in which rules may find places"
        )
    say(
        f"{figures.many(len(suggestions), 'suggestion')}, {figures.many(len(places), 'place')} refused; nothing was changed. acceld optimize tries and checks them."
    )
    return 0


def _next(path: Path) -> str:
    return f"acceld profile {path} --arg SHAPE:DTYPE says whether it runs; acceld init {path} makes a workload."


def _fault(kernel: Kernel, found: Workload, chip: str, settings: config.EvaluateConfig) -> str | None:
    """Return why a kernel can not run on its workload's arguments, with the line and the remedy; None if nothing was
    found.
    """
    import asyncio
    import tempfile

    from acceld.evaluate.simulated.programs import traced_program
    from acceld.nki.errors import KernelFailure
    from acceld.nki.verify.verifier import verify

    try:
        with tempfile.TemporaryDirectory(prefix="acceld-") as folder:
            program = asyncio.run(traced_program(kernel, found.kernel_arguments(), chip, settings, Path(folder)))
    except KernelFailure as failure:
        fault: KernelFailure | None = failure
    except DeadlineError:
        return None
    else:
        fault = next(iter(verify(program)), None)
    if fault is None:
        return None
    remedy = f" ({fault.hint})" if fault.hint else ""
    return f"line {fault.line}: {fault.message}{remedy}" if fault.line else f"{fault.message}{remedy}"


def _workload(arguments: argparse.Namespace, path: Path, settings: config.Config) -> Workload | None:
    """Return the named workload, or the one in the file's folder; None if there is neither."""
    if path.suffix not in (".py", ".c"):
        if arguments.workload:
            raise UsageError(
                f"--workload works only with a kernel file, and {arguments.kernel} is not one",
                hint=f"acceld suggest KERNEL.py --workload {arguments.workload}, or leave --workload out",
            )
        return workload(arguments.kernel, workload_folders(settings))
    return workload_of(path, arguments.workload, settings)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
