"""``acceld suggest``: show the changes that the rewrite rules would make to a kernel. No file is edited."""

from __future__ import annotations

import argparse
from pathlib import Path

from acceld import config, figures
from acceld.cli.arguments import add_json, add_target
from acceld.cli.kernels import NOT_PASSED, baseline_of, parsed_kernel, place_of, workload_folders, workload_of
from acceld.cli.output import print_json, say
from acceld.errors import UsageError
from acceld.kernel_files import api_of_file
from acceld.workloads import Workload, workload


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
    """Print each rewrite that applies, with its line, proven precondition, expected effect and diff; then the
    refused rewrites.
    """
    path = Path(arguments.kernel)
    asked = arguments.api or api_of_file(path)
    resolved = config.load(flags={"search.chip": arguments.chip, "search.api": asked})
    found = _workload(arguments, path, resolved.config)
    is_file = path.suffix in (".py", ".c")
    api = place_of(resolved, path, found, api=arguments.api, chip=arguments.chip).api
    if not is_file:
        assert found is not None
        path = baseline_of(found, api)
    from acceld.proposers.rules.records import reason_at
    from acceld.proposers.rules.suggested import refused, suggested

    shapes, dtypes = (found.kernel_facts, found.kernel_dtypes) if found else ((), ())
    text = parsed_kernel(path, api=api, exit_code=NOT_PASSED).text
    entry = (found.entry or "") if found else ""
    suggestions = suggested(text, api, arguments.rule, shapes, dtypes, entry=entry)
    places = refused(text, api, arguments.rule, shapes, dtypes, entry=entry)
    if arguments.json:
        print_json({"kernel": str(path), "api": api, "suggestions": suggestions, "refused": places})
        return 0
    for one in suggestions:
        low, high = one["gain_percent"]
        print(f"{path}:{one['line']}: {one['rule']}: {one['plan']}")
        print(f"  holds: {one['precondition']}")
        print(f"  expected: {low:.0f} to {high:.0f} % less time ({one['reason']})")
        print(_indented(one["diff"]) + "\n")
    for place in places:
        print(f"{path}:{place['line']}: {place['rule']} refuses: {reason_at(place['line'], place['reason'])}")
    print(end="", flush=True)
    say(
        f"{figures.many(len(suggestions), 'suggestion')}, {figures.many(len(places), 'place')} refused; nothing was changed. acceld optimize tries and checks them."
    )
    return 0


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
