"""Print a run's outcome as a table, for ``acceld optimize --wait`` and ``acceld show r12``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from acceld import figures
from acceld.cli.output import print_pairs, say
from acceld.gains import Verdict
from acceld.model import OWN_ORACLE, RunState, Source
from acceld.proposers.rules.records import reason_at
from acceld.report.endings import applying, deciding, is_written_out, next_steps, why
from acceld.roofline import peak_source

_SHAPES_ALONE = (
    "the workload's shapes: the best kernel was written out from a trace, because rules can not read the baseline"
)
REASONS_SHOWN = 2
REASONS_OF_A_TIE = 5
"""Greatest number of reasons for refused proposals that are shown after a run that gained nothing."""


def screening(counts: dict[str, int]) -> str:
    """Return a line that counts the candidates that were not measured on a device, because the simulator predicted
    them to be clearly slower.
    """
    text = f"{counts['dropped']} not measured, as the simulator finds them clearly slower than their parents"
    if counts["measured"]:
        text += f"; of {counts['measured']} measured nevertheless {counts['wrong']} were faster"
    return text


def print_outcome(result: dict[str, Any], best_file: str | None, database: str, *, listed: bool = False) -> None:
    """Print a run's outcome as a table, then what to do next. ``listed`` says that the caller prints the
    candidates too.
    """

    def latency(key: str, interval: str) -> str:
        return figures.latency(result[key], result["source"], result["chip"], result[interval])

    def before_after(key: str, note: str) -> str:
        before, after = result[f"{key}_before"], result[f"{key}_after"]
        why = figures.beyond_peak(max(before or 0, after or 0))
        return "\n".join(filter(None, (f"{figures.percent(before)} → {figures.percent(after)}{note}", why)))

    bound = [result[key] for key in ("bound_before", "bound_after") if result[key]]
    counts = figures.counted(result["counts"]) or "none"
    wins = [
        f"{win['rule'] or win['title'] or 'rewrite'}{figures.crossed(win['partner'])}"
        + (f"  {figures.brief_gain(win['speedup'], win['verdict'])}" if win["speedup"] else "")
        for win in result["wins"]
    ]
    lost, ended = why(result), RunState(result["state"]).ended
    printed = f"acceld best r{result['run']} prints it" if result["best"] is not None else "—"
    pairs = [
        ("run", f"r{result['run']} {result['state']}" + (f": {result['message']}" if result["message"] else "")),
        ("workload", f"{result['workload']}  ({result['api']}, {result['chip']}, proposals by {result['proposer']})"),
        ("baseline", latency("baseline_latency_us", "baseline_interval_percent")),
        ("best", latency("best_latency_us", "interval_percent")),
        (
            "speed-up",
            figures.gained(*(result[key] for key in ("speedup", "verdict", "tie_band", "tie_reason"))),
        ),
        *([("not certain" if result["verdict"] == Verdict.LIKELY else "no win", lost)] if lost else []),
        *([("by shape", "\n".join(map(_at_shape, result["shapes"])))] if result.get("shapes") else []),
        *([("interleaved", figures.paired(result["paired"]))] if result["paired"] else []),
        *([("note", result["timed_again"])] if result["timed_again"] else []),
        *([("measured by", result["method"])] if result["source"] == Source.MEASURED else []),
        *(
            (f"of {name}", before_after(key, note))
            for name, key, note in (
                ("peak", "percent_of_peak", f"  ({peak_source(result['chip'])})"),
                ("attainable", "percent_of_attainable", ""),
            )
            if result[f"{key}_before"] is not None or result[f"{key}_after"] is not None
        ),
        *([("bound by", " → ".join(dict.fromkeys(bound)))] if bound else []),
        ("candidates", counts),
        (
            "refused",
            _refused(
                result["refusals"],
                len(result["refusals"]) if listed else REASONS_OF_A_TIE if lost else REASONS_SHOWN,
                result["baseline"],
            ),
        ),
        ("rewrites", "\n".join(wins) or ("nothing was faster" if ended and result["baseline_latency_us"] else "—")),
        *([("only for", _SHAPES_ALONE)] if is_written_out(result) else []),
        *([("notes", "\n".join(result["notes"]))] if result.get("notes") else []),
        *([("to measure", one)] if (one := deciding(result)) else []),
        *(
            []
            if result["has_reference"] is not False
            else [("evaluated", f"{OWN_ORACLE}: the workload has no reference")]
        ),
        *([("screened", screening(result["screened"]))] if result.get("screened") else []),
        ("elapsed", figures.elapsed(result["elapsed_s"])),
        ("best kernel", best_file or printed),
        ("database", database),
    ]
    if not sys.stdout.isatty():
        print_pairs(pairs)
    else:
        _rich_table(pairs)
    if lost:
        own = f"acceld show r{result['run']}" if listed else ""
        _say_next(step for step in next_steps(result, database) if step[0] != own)
    elif result["best"] is not None:
        show = f"acceld show c{result['best']}"
        ways = [(show, "the best kernel's checks, profile and diff")]
        if deciding(result):
            ways.append((f"acceld check r{result['run']} --on device", "measure the steps that are not certain"))
        if result["improved"]:
            ways.append(applying(result, database))
        _say_next([*ways, ("acceld attach", "the terminal UI")])


def _say_next(steps: Iterable[tuple[str, str]]) -> None:
    """Print the suggested commands, each with a text on what the command does."""
    listed = list(steps)
    width = max((len(command) for command, _ in listed), default=0)
    if listed:
        say("\nnext:")
    for command, about in listed:
        say(f"  {command:<{width}}  {about}")


def _at_shape(one: dict[str, Any]) -> str:
    """Return, as text, the speed-up and the latencies at one shape. Earlier rows of the table say whether latencies are
    simulated.
    """
    latencies = f"{figures.duration(one['baseline_latency_us'])} → {figures.duration(one['best_latency_us'])}"
    return f"{one['shape']}: {figures.speedup(one['speedup'])}  ({latencies}, weight {one['weight']:g})"


def _refused(refusals: list[dict[str, Any]], most: int, baseline: int | None) -> str:
    """Return the number of proposals that gave no kernel, with at most ``most`` of the most frequent reasons.

    Lines count in the baseline's source, or in that of the candidate that is named with them.
    """
    if not refusals:
        return "none"
    shown = []
    for one in refusals[:most]:
        title, reason = one["title"] or one["rule"] or "no code", one["reason"].splitlines()[0]
        ending = re.search(r", line (\d+)$", title)  # a rule's title ends with its line, which the reason may repeat
        place = f" of c{one['parent']}" if ending and one["parent"] != baseline else ""
        times = f" ({one['count']} times)" if one["count"] > 1 else ""
        shown.append(f"{title}{place}: {reason_at(int(ending[1]), reason) if ending else reason}{times}")
    count = sum(one["count"] for one in refusals)
    such_as = ", such as" if len(refusals) > most else ":"
    return "\n".join([f"{figures.many(count, 'proposal')} without code{such_as}", *shown])


def _rich_table(pairs: list[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(value))
    Console().print(table)
