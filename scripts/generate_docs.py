"""Write the pages of the documentation that are made from the code.

They are: commands, configuration, the floors in integrity.md, simulated NKI functions, and prompts. ``python
scripts/generate_docs.py`` writes them; ``--check`` exits with 1 if a page is not current.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def commands_page() -> str:
    """Return the page with every command and its options."""
    os.environ["COLUMNS"] = "100"
    from acceld.cli.main import COMMANDS, GROUPS, parser_of

    lines = [
        "# Commands",
        "",
        "Data goes to stdout, messages to stderr. Every command that prints has `--json`, whose answer has a `version`. Long answers on a",
        "terminal go through a pager: `ACCELD_PAGER`, then `PAGER`, else `less`; `--no-pager`, an empty name or `cat` means no pager.",
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | done, also when nothing better was found |",
        "| 1 | failed |",
        "| 2 | usage or configuration |",
        "| 3 | no daemon, or one that does not answer |",
        "| 4 | credentials |",
        "| 5 | budget |",
        "| 7 | the kernel did not pass (profile, init, check) |",
        "| 8 | device or toolchain missing |",
        "| 124 | a deadline passed |",
        "| 130 | interrupted or detached, or the run was cancelled |",
    ]
    for group, title in GROUPS.items():
        members = [name for name, command in COMMANDS.items() if command.group == group]
        if members:
            lines += ["", f"## {title}"]
        for name in members:
            lines += ["", f"### acceld {name}", "", "```", parser_of(name).format_help().rstrip(), "```"]
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """Return the page with every section and key of the configuration."""
    from acceld import config

    lines = [
        "# Configuration",
        "",
        "A value is taken from the first of these that sets it:",
        "",
        "1. a flag of the command;",
        "2. the variable `ACCELD_<SECTION>_<KEY>`;",
        "3. the nearest `acceld.toml`, in the current folder or above it;",
        "4. the user's own `acceld.toml` in the XDG config folder;",
        "5. the default.",
        "",
        "Unknown keys are errors, in variables too. `acceld config show` says where each value comes from, `acceld config show KEY` that of one",
        "key or section. Keys marked * may be set by a project's file only after `acceld config trust DIR`: a cloned repository must not send",
        "a key to a stranger or run a command.",
        "",
        "A running daemon reads a file again when you save it, or trust it with `acceld config trust`.",
        "`acceld optimize` refuses a run if the daemon's configuration differs from its own in a key that the run depends on: models,",
        "roles, budgets, prompts, the program, folders of workloads. It names these keys, and the files that each of the two reads.",
        "",
        "A key without a default is not set. `acceld config default > acceld.toml` writes a file with every key to start from.",
    ]
    keys = list(config.every_key())
    for section, purpose in config.every_section():
        lines += [
            "",
            f"## [{section}]",
            "",
            purpose.replace("``", "`"),
            "",
            "| key | default | meaning |",
            "|---|---|---|",
        ]
        for key, default, doc in keys:
            if key.rpartition(".")[0] == section:
                mark = " *" if config.needs_trust(key) else ""
                shown = "" if default in (None, "", ()) else f"`{default}`"
                lines.append(f"| `{key}`{mark} | {shown} | {doc} |")
    return "\n".join(lines) + "\n"


def surface_page() -> str:
    """Return the page with every documented function of both NKI APIs, and whether the simulator supports it."""
    from acceld.nki.frontend.current.lifetimes import versions_text
    from acceld.nki.frontend.current.surface import LATER_ARGUMENTS, UNDOCUMENTED, surface
    from acceld.nki.frontend.legacy.surface import SURFACE

    lines = [
        "# NKI functions in the simulator",
        "",
        "Every documented function of the two API generations: `neuronxcc.nki` as of SDK 2.26, `nki` as of NKI 0.6 (SDK 2.32), and",
        "what the public pages of NKI 0.7 (SDK 2.33) name beyond it. The names of 0.6 are from the source of its pages. Those of 0.7",
        "are from its public pages of single functions and the beginning of its release notes (SDK 2.33.1): it may have more. No later",
        "version was found. A function that is not supported is refused by name, with the kernel's line. The last column has the version",
        "of NKI that names a function first, if it is not the first version, and the last one that has it, if there is one.",
    ]
    for module, states in {**SURFACE, **surface()}.items():
        supported = sorted(name for name, state in states.items() if state == "supported")
        others = {name: state for name, state in sorted(states.items()) if state != "supported"}
        documented = [name for name, state in states.items() if state != UNDOCUMENTED]
        lines += ["", f"## {module}", "", f"{len(supported)} of {len(documented)} supported.", ""]
        lines += ["| function | state | versions |", "|---|---|---|"]
        current = not module.startswith("neuronxcc")
        for name, state in (dict.fromkeys(supported, "supported") | others).items():
            version = versions_text(name) if current else ""
            lines.append(f"| `{name}` | {state} | {version} |")
        if module in LATER_ARGUMENTS:
            lines += ["", textwrap.fill(LATER_ARGUMENTS[module], 118, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


EXAMPLES = ("silu", "rmsnorm_matmul", "conv2d_maxpool_small")


def prompts_page() -> str:
    """Return the page with the prompts for three workloads, as ``--show-prompts`` prints them."""
    from acceld.cli.show_prompts import requests_of
    from acceld.config import Config, LlmConfig, ModelConfig, RoleConfig
    from acceld.home import Home
    from acceld.model import Gate, RunSpec, SearchParameters
    from acceld.workloads import workload

    role = RoleConfig(models=("m",))
    settings = Config(models={"m": ModelConfig(input_usd_per_mtok=0, output_usd_per_mtok=0)}, llm=LlmConfig(role, role))
    search = SearchParameters(fixer_steps=2, memory="fifo")
    lines = [
        "# Prompts as they are sent",
        "",
        "Read here what models get, before you ask them. `--show-prompts` prints the same for a workload of yours; [Prompts](prompts.md) says",
        "what each part is. The system text is the same for planner, executor and fixer; only its first appearance is printed.",
    ]
    for name in EXAMPLES:
        spec = RunSpec(name, workload_folder=str(workload(name).folder), proposer="llm", search=search)
        shown: set[str] = set()
        lines += ["", f"## {name}"]
        with tempfile.TemporaryDirectory() as folder:
            requests = asyncio.run(requests_of(spec, settings, Home(Path(folder)), workload(name), Gate.TIMING))
        for request in requests:
            parts = [("user", request.user)]
            if request.system not in shown:
                parts.insert(0, ("system", request.system))
                shown.add(request.system)
            for part, text in parts:
                lines += ["", f"### {name}: {request.role}, {part}", "", "~~~~text", text, "~~~~"]
    return "\n".join(lines) + "\n"


FLOOR_BEGIN, FLOOR_END = "<!-- floor: begin -->", "<!-- floor: end -->"


def integrity_page() -> str:
    """Return the page on integrity, with the physical floor and the fastest published latency of each public workload."""
    from acceld.roofline import floor_of
    from acceld.workloads.discovery import find_workloads

    head, _, rest = (DOCS / "integrity.md").read_text(encoding="utf-8").partition(FLOOR_BEGIN)
    lines = ["| workload | transfers us | matrix products us | elements us | fastest published us | times the floor |"]
    lines.append("|---|---|---|---|---|---|")
    for name, one in find_workloads().items():
        floor = floor_of(one, "trn1")
        if one.family != "nkibench" or floor is None:
            continue
        best = min(anchor.latency_us for anchor in one.anchors if anchor.chip == "trn1")
        parts = (floor.transfers_us, floor.products_us, floor.elements_us)
        shown = [f"**{part:,.0f}**" if part == floor.least_us else f"{part:,.0f}" for part in parts]
        lines.append(f"| `{name}` | {' | '.join(shown)} | {best:,.0f} | {best / floor.least_us:.2f} |")
    return "\n".join([head + FLOOR_BEGIN, "", *lines, "", FLOOR_END]) + rest.partition(FLOOR_END)[2]


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "integrity.md": integrity_page,
    "nki_surface.md": surface_page,
    "prompts-printed.md": prompts_page,
}


def main() -> int:
    """Write the pages, or check them. Return 1 if a checked page is not current."""
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if "--check" in sys.argv:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"not current: {', '.join(stale)}; run python scripts/generate_docs.py", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
