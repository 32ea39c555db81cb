"""Write a report on runs as an HTML page, as Markdown, or as pictures, for ``acceld export``."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

from acceld.cli.connect import reading, run_numbers
from acceld.cli.output import print_json, say, write_file
from acceld.errors import UsageError

PAPER = "#fbfaf7"
"""Background of a picture."""


def run(arguments: argparse.Namespace) -> int:
    """Write the report."""
    from acceld.report.facts import gather
    from acceld.report.markdown import markdown
    from acceld.report.page import page

    if not arguments.runs:
        raise UsageError(
            "a report needs a run, and no run is named", hint="acceld export r12; acceld runs lists the runs"
        )
    if arguments.output and arguments.format in ("md", "json"):
        raise UsageError(
            f"the format {arguments.format} is printed, so it takes no -o",
            hint=f"acceld export {' '.join(arguments.runs)} --format {arguments.format} > {arguments.output}",
        )
    numbers = run_numbers(arguments.home, arguments.runs)
    with reading(arguments.home) as history:
        runs = [gather(history.get, number, redact=arguments.redact) for number in numbers]
    if arguments.format == "json":
        print_json({"runs": [{"run": facts.run, "outcome": facts.outcome, "costs": facts.costs} for facts in runs]})
    elif arguments.format == "md":
        print(markdown(runs), end="")
    elif arguments.format == "png":
        return _pictures(page(runs, version("acceld")), Path(arguments.output or "pictures"))
    else:
        place = Path(arguments.output or f"report-{'-'.join(f'r{number}' for number in numbers)}.html")
        write_file(place, page(runs, version("acceld")))
        if arguments.json:
            print_json({"format": "html", "file": str(place), "runs": len(runs)})
        say(f"wrote {place} ({place.stat().st_size / 1000:.0f} kB)")
    return 0


def _pictures(html: str, folder: Path) -> int:
    """Write each figure of an HTML page to a picture file, and return the exit code."""
    import re

    from acceld.report.svg import standalone

    try:
        import cairosvg  # type: ignore[import-not-found,import-untyped,unused-ignore]  # optional
    except (ImportError, OSError) as error:  # OSError: cairosvg is installed, but not libcairo, which it loads
        raise UsageError(
            "pictures need the package cairosvg, because acceld draws figures as SVG and has no renderer of its own",
            hint="pip install cairosvg; without it: acceld export r12, whose page any browser prints to PDF",
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"can not write to {folder}: {error.strerror}", hint="-o DIR names a folder") from error
    for number, drawing in enumerate(re.findall(r"<svg.*?</svg>", html, re.DOTALL), 1):
        place = folder / f"figure-{number}.png"
        cairosvg.svg2png(bytestring=standalone(drawing, PAPER).encode(), write_to=str(place), output_width=1440)
        say(f"wrote {place}")
    return 0
