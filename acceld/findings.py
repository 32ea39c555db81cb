"""Summarize an evaluation in one JSON object, for coding agents' tools, ``--json`` and the executor's tools.

The object has the latency and its share of the physical floor, the error and the reason for its tolerance, the
bottleneck, and the assumptions behind the latency. The functions are pure.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from acceld import figures
from acceld.chips import CHIPS
from acceld.evaluate.correctness.tolerance import allowed_because
from acceld.gains import verdict
from acceld.model import Correctness, Evaluation, Profile
from acceld.parsing import parse
from acceld.roofline import Floor, floor_of
from acceld.workloads import Workload, every_shape

Json = dict[str, Any]
SOURCE_CHARS = 60
"""Characters of a source line that are shown beside its number."""
MOST_LINES = 5
"""Number of lines, waits and notes of a kind that are shown."""
LEAST_US = 0.05
"""Microseconds below which a part of the latency is left out."""


def finding(evaluation: Evaluation, text: str, found: Workload | None, chip: str, cores: int = 1) -> Json:
    """Return the summary of an evaluation on ``cores`` cores of a chip.

    ``text`` is the kernel's source. ``found`` is the workload; without a workload (None) the summary has no floor.
    """
    answer: Json = {"status": str(evaluation.status), "on": core_words(chip, cores)}
    if evaluation.failure is not None:
        failure = evaluation.failure
        told = {"rule": failure.rule, "message": failure.message, "line": failure.line, "hint": failure.hint}
        answer["failure"] = {name: value for name, value in told.items() if value}
        if source := source_line(text, failure.line):
            answer["failure"]["source_line"] = source
    if evaluation.correctness is not None:
        answer |= {"gate": str(evaluation.correctness.gate)} | error_words(evaluation.correctness, found)
    profile = evaluation.profile
    if profile is None:
        return answer
    answer |= {
        "latency_us": _rounded(profile.latency_us),
        "source": str(profile.source),
        "interval_percent": profile.interval_percent,
        "api": profile.api,
    }
    answer |= floor_share(found, chip, profile.latency_us, cores, profile)
    answer["bound"] = profile.bound
    return answer | binds(profile, text) | notes(profile)


def core_words(chip: str, cores: int) -> str:
    """Return the chip with the number of its cores that run the kernel. The number is named because a chip has
    several cores, and latencies are for the cores that run the kernel.
    """
    if chip not in CHIPS:
        return chip
    of = f"of the {CHIPS[chip].cores_per_chip} cores of a {chip} chip"
    return (
        f"{chip}: one {of}"
        if cores == 1
        else f"{chip}: {cores} {of} (lnc={cores}; no validated interval, so any gain is a tie)"
    )


def floor_share(
    found: Workload | None, chip: str, latency_us: float | None, cores: int = 1, profile: Profile | None = None
) -> Json:
    """Return the physical floor on ``cores`` cores, and the floor as a percentage of ``latency_us``.

    The floor is that for the workload's precision. With a simulated ``profile``, ``floor_is`` also states the least
    latency that the performance model could predict for the same work. The object is empty if the workload declares no
    work.
    """
    floors = _floors(found, chip) if found is not None else []
    if not floors or found is None:
        return {}
    floor, weights = floors[0][1], [weight for weight, _ in floors]
    least_us = _mean([one.least_us / cores for _, one in floors], weights)
    what = floor.of
    if what == "products" and found.dtype == "float32":
        what = f"products at {found.precision}"
    if floor.counted and floor.least_us > floor.certain_us:
        what += " as the reference computes them (another algorithm may take less)"
    answer: Json = {
        "floor_us": _rounded(least_us),
        "floor_is": f"{what} on {'one core' if cores == 1 else f'{cores} cores'}",
    }
    if len(floors) > 1:
        answer["floor_is"] += ", weighted geometric mean over the shapes"
    if latency_us:
        answer["percent_of_floor"] = round(100 * least_us / latency_us, 1)
    params = profile.details.get("params") if profile is not None else None
    if params:
        around_us = params["kernel_start_us"] + params["kernel_end_us"] + (params["two_cores_us"] if cores > 1 else 0.0)
        least = _mean([around_us + params["latency_scale"] * one.least_us / cores for _, one in floors], weights)
        answer["floor_is"] += (
            f"; at least {_us(least)} simulated, with {around_us:g} µs of launch and end and the model's margin"
        )
    return answer


def _floors(found: Workload, chip: str) -> list[tuple[float, Floor]]:
    """Return the weight and the floor of each shape that a kernel of the workload must support, the main shape first.

    Return an empty list if the floor of one of the shapes is not known.
    """
    floors = [(shape.weight, floor_of(shaped, chip)) for shape, shaped in every_shape(found)]
    known = [(weight, floor) for weight, floor in floors if floor is not None]
    return known if len(known) == len(floors) else []


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted geometric mean of positive values."""
    total = sum(weight * math.log(value) for value, weight in zip(values, weights, strict=True))
    return math.exp(total / sum(weights))


def error_words(correctness: Correctness, found: Workload | None) -> Json:
    """Return the largest relative L2 error of the outputs, with its tolerance and the reason for that
    tolerance.
    """
    answer: Json = {"rel_l2": correctness.rel_l2, "tolerance": correctness.tolerance}
    if found is not None and correctness.tolerance:
        answer["tolerance_is"] = allowed_because(
            correctness.tolerance, found.tolerance, split=found.dtype == "float32" and found.precision != "fp32_strict"
        )
    return answer


def binds(profile: Profile, text: str) -> Json:
    """Return what determines the latency: the busiest engine, the time and kind of its work, its waits by line, and
    the fullest memories.
    """
    answer: Json = {}
    found = profile.details.get("binding")
    if found:
        waited = f"waits {_us(found['waits_us'])}" if found["waits_us"] >= LEAST_US else "never waits"
        shapes = profile.details.get("shapes")
        at = f"at {shapes[0]['shape']}, {_us(shapes[0]['latency_us'])}: " if shapes else ""
        answer["time"] = at + (
            f"{found['engine']}: busy {_us(found['busy_us'])}, {waited}, "
            f"starts after {_us(found['start_us'])}, {_us(found['end_us'])} after its last instruction; model's margin {_us(found['margin_us'])}"
        )
        answer["waits"] = [
            f"{found['engine']} at {_at(text, one['line'])} waits {_us(one['us'])} for {one['for_engine']} at {_at(text, one['for_line'])}"
            for one in found["waits"][:MOST_LINES]
            if one["us"] >= LEAST_US
        ]
        answer["start_up"] = [
            f"{one['engine']} {_us(one['us'])} at {_at(text, one['line'])}"
            for one in found["start"][:MOST_LINES]
            if one["us"] >= LEAST_US
        ]
    busy = sorted(profile.engines_us.items(), key=lambda item: -item[1])
    answer["busy_us"] = {name: round(us, 1) for name, us in busy if us >= LEAST_US}
    answer["hot_lines"] = [
        f"{one['engine']} {_us(one['busy_us'])} at {_at(text, one['line'])}"
        for one in profile.details.get("hot_spots", ())[:MOST_LINES]
    ]
    chip, counters = CHIPS.get(profile.chip), profile.counters
    if chip is not None and "sbuf_peak_bytes_per_partition" in counters:
        answer["peaks"] = (
            f"SBUF {_kib(counters['sbuf_peak_bytes_per_partition'])} of {chip.sbuf_bytes_per_partition // 1024} KiB a "
            f"partition, PSUM {counters.get('psum_peak_banks', 0):.0f} of {chip.psum_banks} banks"
        )
    return {name: value for name, value in answer.items() if value}


def notes(profile: Profile) -> Json:
    """Return the notes of a profile, and the unproven assumptions behind its latency."""
    said: Json = {
        "notes": [figures.cut(note, 240) for note in profile.notes[:MOST_LINES]],
        "unproven": [figures.cut(note, 240) for note in profile.details.get("unproven", ())[:MOST_LINES]],
    }
    return {name: value for name, value in said.items() if value}


def moved(before: Profile | None, after: Profile | None, text: str) -> str:
    """Return why one latency differs from another: the parts of the time that changed, the largest change
    first, as one text.

    ``text`` is the source of the kernel of ``after``. The result is empty if a profile is missing.
    """
    if before is None or after is None or not before.latency_us or not after.latency_us:
        return ""
    first, second = before.details.get("binding"), after.details.get("binding")
    if not first or not second:
        return ""
    changes: list[tuple[float, str]] = []
    if first["engine"] == second["engine"]:
        engine = second["engine"]
        changes.append((second["busy_us"] - first["busy_us"], f"{engine} is busy"))
        longest = next(iter(second["waits"]), None)
        whom = f", longest for {longest['for_engine']} at {_at(text, longest['for_line'])}" if longest else ""
        changes.append((second["waits_us"] - first["waits_us"], f"{engine} waits{whom}"))
        changes.append((second["start_us"] - first["start_us"], f"before {engine} starts"))
        changes.append((second["end_us"] - first["end_us"], f"after {engine}'s last"))
    else:
        for engine in dict.fromkeys((first["engine"], second["engine"])):
            was, now = before.engines_us.get(engine, 0.0), after.engines_us.get(engine, 0.0)
            changes.append((now - was, f"{engine} is busy"))
    told = [f"{us:+.1f} µs {what}" for us, what in sorted(changes, key=lambda one: -abs(one[0])) if abs(us) >= LEAST_US]
    switched = ""
    if first["engine"] != second["engine"]:
        longest = next(iter(second["waits"]), None)
        whom = f" for {longest['for_engine']} at {_at(text, longest['for_line'])}" if longest else ""
        switched = f"binds: {first['engine']} before, {second['engine']} now, which now waits {_us(second['waits_us'])}{whom}; "
    total = after.latency_us - before.latency_us
    return f"{total:+.1f} µs: {switched}{'; '.join(told) or 'nothing on the path of the busiest engine'}"


def worth(found: Mapping[str, Any]) -> Json:
    """Return a speed-up and its verdict, with the rule :data:`acceld.gains.RULE`, from the figures of a run or
    an outcome.
    """
    return {
        "speedup": None if found["speedup"] is None else round(found["speedup"], 4),
        "verdict": verdict(found["speedup"], found["improved"], found["tie_band"], found["source"]),
        "tie_band": found["tie_band"],
    }


def brief(answer: Mapping[str, Any]) -> str:
    """Return a summary in one line, for lists."""
    if answer.get("latency_us") is None:
        failure = answer.get("failure") or {}
        line = f" l.{failure['line']}" if failure.get("line") else ""
        return f"{answer['status']}{line}: {failure.get('message', '')}" if failure else str(answer["status"])
    share = f" {answer['percent_of_floor']:.0f} % of floor" if "percent_of_floor" in answer else ""
    right = "" if answer["status"] == "passed" else f" {answer['status']}"
    return f"{answer['latency_us']:.1f} µs{share}{right}"


def source_line(text: str, line: int, most: int = SOURCE_CHARS) -> str:
    """Return a line of a source without indentation, cut to ``most`` characters; empty if there is no such line. A simple
    statement that begins on the line is returned whole, with its further lines joined.
    """
    lines = text.splitlines()
    if not 0 < line <= len(lines):
        return ""
    begun = lines[line - 1].strip()
    if begun.endswith(("(", "[", "{", ",", "\\")):
        begun = _statement(text, line) or begun
    return figures.cut(begun, most)


@lru_cache(maxsize=256)
def _statement(text: str, line: int) -> str:
    """Return the simple statement that begins on a line, on one line; empty if there is none."""
    try:
        nodes = ast.walk(parse(text))
    except (SyntaxError, ValueError):
        return ""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return) and node.lineno == line:
            return ast.unparse(node)
    return ""


def lines_of(answer: Mapping[str, Any]) -> list[str]:
    """Return a summary as lines of text for a prompt."""
    said = []
    for name, value in answer.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {one}" for key, one in value.items())
        if isinstance(value, Sequence) and not isinstance(value, str):
            said += [f"{name}: {one}" for one in value]
        elif value is not None:
            said.append(f"{name}: {value}")
    return said


def _at(text: str, line: int) -> str:
    source = source_line(text, line)
    return f"l.{line} `{source}`" if source else f"l.{line}"


def _kib(size_bytes: float) -> str:
    return f"{size_bytes / 1024:.{0 if size_bytes >= 1024 or not size_bytes else 1}f}"


def _us(us: float) -> str:
    return f"{us:.1f} µs"


def _rounded(us: float | None) -> float | None:
    return None if us is None else round(us, 2)
