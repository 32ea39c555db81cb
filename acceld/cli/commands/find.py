"""``acceld find``: rank the operators of a captured profile by the time that a better kernel could save."""

from __future__ import annotations

import argparse
import json
import keyword
import re
import textwrap
from dataclasses import asdict
from pathlib import Path

from acceld import figures
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json, print_pairs, print_table, say
from acceld.devices.neuron.tools.captured import UNNAMED, Captured, OperatorCost, read_captured
from acceld.errors import UsageError

_SHOWN_OPCODES = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "profile", metavar="PROFILE", help="the Parquet folder of Neuron Explorer, or a full profile as JSON"
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows of each table (default: 10)")
    parser.add_argument("--init", metavar="REF.py", help="write a reference to fill in for the first operator")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the figures of the profiled program and its operators. Raise UsageError for a file that is no
    profile.
    """
    if arguments.top < 1:
        raise UsageError(f"--top must be at least 1, not {arguments.top}")
    captured = read_captured(Path(arguments.profile))
    if arguments.init:
        _write(Path(arguments.init), arguments.profile, captured)
    if arguments.json:
        print_json(_plain(captured, arguments.top))
        return 0
    _print(captured, arguments)
    return 0


def _print(captured: Captured, arguments: argparse.Namespace) -> None:
    found = captured.summary
    busy = ", ".join(
        f"{engine} {figures.percent(100 * us / found.total_us)}" for engine, us in found.engines_us.items()
    )
    pairs = [
        ("profile", f"{captured.chip}, {captured.cores} core{'s' * (captured.cores > 1)}, {_versions(captured)}"),
        ("time", f"{figures.duration(found.total_us)}, measured when the profile was captured"),
    ]
    pairs += [("busy", busy)] if busy else []
    if found.throttled_percent is not None and found.throttled_percent < 99.95:
        pairs.append(
            ("throttled", f"the tensor engine was held at {figures.percent(found.throttled_percent)} of its rate")
        )
    pairs += [("warning", text) for text in captured.warnings]
    print_pairs(pairs)
    print()
    _table("operator", captured.operators, captured, arguments.top)
    if captured.lines:
        print()
        _table("source line", captured.lines, captured, arguments.top)
    if len(captured.operators) == 1:
        print()
        rows = [
            [engine, opcode, str(count), figures.duration(us)]
            for engine, opcode, count, us in captured.opcodes[:_SHOWN_OPCODES]
        ]
        print_table(rows, ("engine", "opcode", "count", "sum of times"), right=frozenset({2, 3}))
    print("\nnext:")
    for line in _next(captured, arguments):
        print(f"  {line}")


def _table(what: str, ranked: tuple[OperatorCost, ...], captured: Captured, most: int) -> None:
    total = captured.summary.total_us
    rows = [
        [
            figures.cell(one.name),
            figures.duration(one.time_us),
            figures.percent(100 * one.time_us / total),
            figures.duration(one.least_us),
            one.bound,
            figures.duration(one.gain_us),
            str(one.instructions),
        ]
        for one in ranked[:most]
    ]
    print_table(
        rows,
        (what, "time", "of all", "least", "bound by", "to gain", "instructions"),
        right=frozenset({1, 2, 3, 5, 6}),
    )
    if len(ranked) > most:
        print(f"and {len(ranked) - most} more: --top {len(ranked)}")


def _next(captured: Captured, arguments: argparse.Namespace) -> list[str]:
    if len(captured.operators) == 1 and captured.operators[0].name == UNNAMED:
        hint = ["compile with NKI_DEBUG_INFO=True and capture again: then source lines have names"]
    else:
        hint = []
    if not arguments.init:
        return [*hint, f"acceld find {arguments.profile} --init ref.py   a reference to fill in for the first operator"]
    given = " ".join(f"--arg {name}={shape}:{dtype}" for name, shape, dtype in _inputs(captured))
    return [
        *hint,
        f"write the formula into {arguments.init}",
        f"acceld optimize {arguments.init} {given or '--arg NAME=SHAPE:DTYPE'} --chip {captured.chip}",
    ]


def _inputs(captured: Captured) -> list[tuple[str, str, str]]:
    """Return the name, the shape and the type of each input of the program. Each name is made into a Python identifier
    of its own.
    """
    found: dict[str, tuple[str, str, str]] = {}
    for one in captured.tensors:
        if one.role == "IN":
            name = re.sub(r"\W", "_", one.name)
            name = name if name.isidentifier() and not keyword.iskeyword(name) else f"x_{name}"
            while name in found:
                name += "_"
            found[name] = (name, "x".join(map(str, one.shape)), one.dtype)
    return list(found.values())


def _write(place: Path, profile: str, captured: Captured) -> None:
    first, inputs = captured.operators[0], _inputs(captured)
    alone = len(captured.operators) == 1
    name = "the whole program" if alone and first.name == UNNAMED else first.name
    outputs = [
        f"{one.name} {'x'.join(map(str, one.shape))} {one.dtype}" for one in captured.tensors if one.role == "OUT"
    ]
    whole = "" if alone else " of the whole program; keep those of this operator"
    told_error = f"write the formula of {name}"
    told = [
        f"Compute {name}.",
        "",
        (
            f"Found in {profile}: {figures.duration(first.time_us)} of {figures.duration(captured.summary.total_us)} on"
            f" {captured.chip}; least time {figures.duration(first.least_us)} by {first.bound},"
            f" {first.hbm_bytes:,} bytes of HBM."
        ),
        f"Inputs{whole}: " + (", ".join(f"{name} {shape} {dtype}" for name, shape, dtype in inputs) or "not recorded."),
        f"Outputs{whole}: " + (", ".join(outputs) or "not recorded."),
    ]
    # The lines become a docstring, which a quotation mark in a name would end.
    told = [line.replace("\\", "\\\\").replace('"', "'") for line in told]
    wrapped = [part for line in told for part in (textwrap.wrap(line, 110) or [""])]
    text = "\n".join(
        [
            f'"""{wrapped[0]}',
            *wrapped[1:],
            '"""',
            "",
            "import numpy as np",
            "",
            "",
            f"def forward({', '.join(name for name, _, _ in inputs) or '*arrays'}):",
            f"    raise NotImplementedError({json.dumps(told_error)})",  # a person replaces this line by the formula
            "",
        ]
    )
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{place} exists already", hint="give another file: acceld find replaces no file") from error
    except OSError as error:
        raise UsageError(f"{place}: {error.strerror}", hint="give a file in a folder that exists") from error
    say(f"wrote {place}")


def _versions(captured: Captured) -> str:
    found = captured.summary.versions
    told = [f"{name.removesuffix('_version').replace('_', ' ')} {found[name]}" for name in found]
    return ", ".join(told) or "versions not recorded"


def _plain(captured: Captured, most: int) -> dict[str, object]:
    def ranked(found: tuple[OperatorCost, ...]) -> list[dict[str, object]]:
        return [
            {
                "name": one.name,
                "time_us": one.time_us,
                "least_us": one.least_us,
                "gain_us": one.gain_us,
                "bound": one.bound,
                "engines_us": dict(one.engines_us),
                "hbm_bytes": one.hbm_bytes,
                "flops": one.flops,
                "spill_bytes": one.spill_bytes,
                "instructions": one.instructions,
            }
            for one in found[:most]
        ]

    return {
        "chip": captured.chip,
        "cores": captured.cores,
        "total_us": captured.summary.total_us,
        "source": "measured",
        "engines_us": dict(captured.summary.engines_us),
        "versions": dict(captured.summary.versions),
        "operators": ranked(captured.operators),
        "lines": ranked(captured.lines),
        "tensors": [asdict(one) | {"dtype": one.dtype} for one in captured.tensors],
        "warnings": list(captured.warnings),
    }
