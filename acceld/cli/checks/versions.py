"""List which versions of the package ``nki`` refuse a kernel's file, and why. The file is parsed, and not run."""

from __future__ import annotations

import argparse
from pathlib import Path

from acceld.chips import NKI_VERSIONS
from acceld.cli.kernels import NOT_PASSED, parsed_kernel
from acceld.cli.output import print_json, print_table, say
from acceld.config import load
from acceld.errors import UsageError
from acceld.kernel_files import api_of_file
from acceld.nki.frontend.versions import BEFORE_ALL
from acceld.targets import nki_version
from acceld.trust import trusted_folders


def run(arguments: argparse.Namespace) -> int:
    """Print what each version of ``nki`` refuses in a file's kernels. Return 7 if the version that ``--nki`` names
    refuses something.

    In a file without a kernel, the functions that call NKI are read.
    """
    from acceld.nki.entry import entry_in, parse
    from acceld.nki.frontend.current.reading import absent_names, file_needs, functions_for_nki, names_needed

    path = Path(arguments.what)
    kernel = parsed_kernel(path, api="nki", entry=arguments.entry)
    if api_of_file(path) == "nki_legacy":
        raise UsageError(
            f"{path} is a kernel of neuronxcc.nki, which ends with SDK 2.29",
            hint=f"acceld port {path} rewrites it for nki",
        )
    asked = nki_version(arguments.nki or load(trusted_folders=trusted_folders()).config.evaluate.nki)
    tree = parse(kernel.text, str(path))
    entries = [entry_in(tree, kernel.entry)] if kernel.entry else functions_for_nki(tree)
    absent = [need for entry in entries for need in absent_names(tree, entry)]
    nowhere = {(need.line, need.what) for need in absent}
    named = [need for need in names_needed(tree) if (need.line, need.what) not in nowhere]
    reached = [need for entry in entries for need in file_needs(tree, entry)]
    needs = list(dict.fromkeys([*reached, *named, *absent]))
    broken = {version: [need for need in needs if not need.life.covers(version)] for version in NKI_VERSIONS}
    refused = any(need.life.certain for need in broken[asked])
    if arguments.json:
        listed = [
            {
                "nki": version,
                "ok": not any(need.life.certain for need in found),
                "breaks": [
                    {"line": n.line, "what": n.what, "instead": n.life.instead, "certain": n.life.certain}
                    for n in found
                ],
            }
            for version, found in broken.items()
        ]
        print_json({"ok": not refused, "nki": asked, "checked": ["names", "syntax"], "versions": listed})
        return NOT_PASSED if refused else 0
    rows = []
    for version, found in broken.items():
        if not found:
            rows.append([version, "", "ok", ""])
        for need in sorted(found, key=lambda one: one.line):
            shown = need.what if need.life.certain else f"{need.what} (uncertain, so it counts as a note)"
            shown += " (in no version)" if need.life.until == BEFORE_ALL else ""
            rows.append([version, str(need.line), shown, need.life.instead])
    print_table(rows, ["nki", "line", "what breaks", "write instead"])
    say(
        "checked: the names, options and Python statements of the file, for each version of nki. Not checked: shapes, types, "
        f"memory and results, because the kernel was not traced. Next: acceld profile {path} --nki {asked} --arg SHAPE:DTYPE traces "
        f"the kernel; acceld init {path} makes a workload, by which acceld check also compares results"
    )
    return NOT_PASSED if refused else 0
