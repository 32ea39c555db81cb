"""Check the kernels that a branch changed, for CI. The exit code is 7 if a kernel is wrong or too slow.

``regressions.toml`` names the kernels and how much slower each may become::

    most_percent = 5.0              # of every kernel below

    [[kernel]]
    path = "kernels/*.py"           # a glob from the repository's top
    workload = "workloads/silu"     # a folder from there, or a name; default: the folder the file is in
    most_percent = 10.0
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import fnmatch
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from acceld import config, figures
from acceld.cli.checks.winners import MOST_PERCENT, WinnerCheck, WinnerResult, file_case, results_on
from acceld.cli.connect import connected
from acceld.cli.kernels import NOT_PASSED
from acceld.cli.output import print_json, print_table, say, write_file
from acceld.client import Client
from acceld.errors import AcceldError, ConfigError, UsageError, nearest_of
from acceld.home import find_home
from acceld.markup import literal
from acceld.model import Evaluation
from acceld.targets import SIMULATOR

ANSWER_S = 1800.0
LINES = 3
"""Number of lines with a changed cost that are annotated."""
LEAST_PERCENT = 1.0
"""A source line is annotated if its cost grew by more than this percentage of the kernel's latency."""
KEYS = ("path", "workload", "most_percent")


@dataclass(frozen=True, slots=True)
class Allowance:
    """One entry of regressions.toml: kernel files, their workload, and how much slower they may become."""

    path: str
    workload: str | None
    most_percent: float


@dataclass(frozen=True, slots=True)
class Changed:
    """A kernel file that the branch changed, with the slow-down that is allowed.

    ``broken`` is the reason why the kernel can not be evaluated; empty if it can be evaluated.
    """

    path: PurePosixPath
    case: WinnerCheck | None
    broken: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Check the kernels that the branch changed, and print the results. Return 7 if a kernel is wrong or too slow, else
    0.
    """
    resolved = config.load(flags={"search.chip": arguments.chip, "search.api": arguments.api})
    settings = resolved.config
    top = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel").strip())
    budgets = read_budgets(Path(arguments.budget) if arguments.budget else top / "regressions.toml")
    changed = list(_changed(top, arguments, budgets, resolved))
    cases = [one.case for one in changed if one.case is not None]
    client = None
    if any(case.backend != SIMULATOR for case in cases):
        client = Client(connected(arguments.home)[0], timeout_s=ANSWER_S)
    state = find_home(arguments.home).prepare()
    evaluated = iter(asyncio.run(results_on(cases, settings.evaluate, state, None, client)) if cases else ())
    found = [(one, next(evaluated) if one.case is not None else None) for one in changed]
    if arguments.annotate:
        for one, result in found:
            for line in annotated(one, result):
                print(line)
    if arguments.summary:
        write_file(Path(arguments.summary), markdown(found, arguments.against))
    if arguments.json:
        print_json({"holds": all(_holds(result) for _, result in found), "kernels": [_record(*one) for one in found]})
    elif not arguments.annotate:
        print_table([_row(*one) for one in found], HEADERS, right=frozenset({2, 3, 4, 5}))
    say(f"{figures.many(len(found), 'kernel')} changed since {arguments.against}")
    return 0 if all(_holds(result) for _, result in found) else NOT_PASSED


def read_budgets(path: Path) -> list[Allowance]:
    """Return the entries of a regressions.toml; an empty list if the file does not exist. Raise ConfigError
    for an invalid file.
    """
    if not path.is_file():
        return []
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}", hint="docs/agents.md has an example of this file") from error
    every = raw.pop("most_percent", MOST_PERCENT)
    entries = raw.pop("kernel", [])
    if raw:
        name = next(iter(raw))
        raise ConfigError(f"{path}: unknown key {name!r}", hint=nearest_of(name, ("most_percent", "kernel")))
    found = []
    for place, entry in enumerate(entries, 1):
        where = f"{path}: kernel {place}"
        for name in entry:
            if name not in KEYS:
                raise ConfigError(f"{where}: unknown key {name!r}", hint=nearest_of(name, KEYS))
        if not isinstance(entry.get("path"), str) or not isinstance(entry.get("workload", ""), str):
            raise ConfigError(
                f"{where}: path is missing, or path or workload is not a text",
                hint='such as path = "kernels/mine.py" and workload = "silu"',
            )
        percent = entry.get("most_percent", every)
        if isinstance(percent, bool) or not isinstance(percent, int | float) or percent < 0:
            raise ConfigError(
                f"{where}: most_percent = {percent!r} is not a number of at least 0",
                hint="write a percentage, such as most_percent = 5.0",
            )
        found.append(Allowance(entry["path"], entry.get("workload"), float(percent)))
    return found


def _changed(
    top: Path, arguments: argparse.Namespace, budgets: Sequence[Allowance], resolved: config.Resolved
) -> Iterator[Changed]:
    """Yield each kernel file that the branch changed, if regressions.toml names it or a workload.toml lies
    beside it.
    """
    base = _git(top, "merge-base", arguments.against, "HEAD").strip()
    names = _git(top, "diff", "-z", "--name-only", "--diff-filter=ACMR", base, "--").split("\0")
    before = set(_git(top, "ls-tree", "-rz", "--name-only", base).split("\0"))
    for name in filter(None, names):
        path = PurePosixPath(name)
        budget = next((one for one in budgets if fnmatch.fnmatchcase(name, one.path)), None)
        if path.suffix not in (".py", ".c") or (budget is None and not _is_kernel(top / path)):
            continue
        workload = budget.workload if budget else None
        if workload is not None and (top / workload / "workload.toml").is_file():
            workload = str(top / workload)
        try:
            case = file_case(
                top / path,
                resolved,
                workload=workload,
                against=base if name in before else None,
                api=arguments.api,
                chip=arguments.chip,
            )
        except AcceldError as error:
            yield Changed(path, None, str(error))
            continue
        most_percent = budget.most_percent if budget else MOST_PERCENT
        yield Changed(path, replace(case, name=name, most_percent=most_percent))


def _is_kernel(path: Path) -> bool:
    return (path.parent / "workload.toml").is_file() and path.name != "reference.py"


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        hint = {
            "merge-base": "fetch the base branch with its history (fetch-depth: 0), or name another: --against REV",
            "rev-parse": "run the command in the repository of the kernels: --changed asks git which kernels changed",
        }.get(words[0], "")
        raise UsageError(f"git {words[0]}: {done.stderr.strip() or 'failed'}", hint=hint)
    return done.stdout


def _holds(result: WinnerResult | None) -> bool:
    return result is not None and result.holds


def annotated(one: Changed, result: WinnerResult | None) -> Iterator[str]:
    """Yield GitHub's workflow commands for a result: the failure at its line, or each line whose cost grew."""
    file = str(one.path)
    if result is None:
        yield command("error", one.broken, file=file, title="this kernel can not be evaluated")
        return
    failure = result.evaluation.failure
    if failure is not None:
        text = f"{failure.message}\n{failure.hint}".rstrip()
        yield command("error", text, file=file, line=failure.line, title=f"{result.evaluation.status}: {failure.rule}")
        return
    if result.change_percent is None:
        return
    allowed = result.case.most_percent or 0.0
    change = f"{result.change_percent:+.1f} % latency"
    if not result.holds:
        text = f"{change}; at most {allowed:+g} % is allowed. {result.reason}".rstrip()
        yield command("error", text, file=file, title="slower than allowed")
    for line, engine, before_us, now_us in grown(result):
        was = "not among the costliest lines of the kernel" if before_us is None else figures.duration(before_us)
        text = f"{engine}: {was} before, {figures.duration(now_us)} now"
        kind = "notice" if result.holds else "warning"
        yield command(kind, text, file=file, line=line, title=f"cost of this line ({change} of the kernel)")


def grown(result: WinnerResult) -> list[tuple[int, str, float | None, float]]:
    """Return the lines that keep an engine busy for longer than before: line, engine, microseconds before,
    microseconds now.

    A profile lists only a kernel's costliest lines. The microseconds before are None if the line is new, or if the
    earlier profile does not list it.
    """
    before, now, case = result.before, result.evaluation, result.case
    if before is None or case.other is None:
        return []
    earlier = {(line, engine): busy_us for line, engine, busy_us in _costs(before)}
    former = former_lines(case.other.text, case.kernel.text)
    least_us = (now.latency_us or 0.0) * LEAST_PERCENT / 100
    found = [
        (line, engine, earlier.get((former.get(line, 0), engine)), busy_us) for line, engine, busy_us in _costs(now)
    ]
    worse = [one for one in found if one[3] - (one[2] or 0.0) > least_us]
    return sorted(worse, key=lambda one: (one[2] or 0.0) - one[3])[:LINES]


def former_lines(old: str, new: str) -> dict[int, int]:
    """Return the old line number for each line number of the new text. An edited line has the number of the
    line that it replaces; an added line is missing.
    """
    was_lines, now_lines = ([line.strip() for line in text.splitlines()] for text in (old, new))
    blocks = difflib.SequenceMatcher(None, was_lines, now_lines, autojunk=False).get_opcodes()
    return {
        1 + now: 1 + was
        for _, first, end, new_first, new_end in blocks
        for was, now in zip(range(first, end), range(new_first, new_end), strict=False)
    }


def _costs(evaluation: Evaluation) -> Iterator[tuple[int, str, float]]:
    for spot in evaluation.profile.details.get("hot_spots", ()) if evaluation.profile else ():
        yield spot["line"], spot["engine"], spot["busy_us"]


def command(kind: str, text: str, *, file: str, line: int = 0, title: str = "") -> str:
    """Return a workflow command of GitHub. Its values are escaped so that they can not begin another command."""
    values = {"file": file} | ({"line": str(line)} if line else {}) | ({"title": title} if title else {})
    reported = ",".join(f"{name}={_escaped(value, property=True)}" for name, value in values.items())
    return f"::{kind} {reported}::{_escaped(text)}"


def _escaped(text: str, *, property: bool = False) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text


HEADERS = ("kernel", "status", "before", "now", "change", "allowed", "")


def _row(one: Changed, result: WinnerResult | None) -> tuple[str, ...]:
    if result is None:
        return str(one.path), "not evaluated", "—", "—", "—", "—", one.broken.splitlines()[0]
    failure = result.evaluation.failure
    why = f"{failure.rule}: {failure.message}".splitlines()[0] if failure else result.reason
    profile = result.evaluation.profile
    latency = figures.latency(profile.latency_us, profile.source, profile.chip) if profile else "—"
    return (
        str(one.path),
        str(result.evaluation.status),
        figures.duration(result.before_us),
        latency,
        "—" if result.change_percent is None else f"{result.change_percent:+.1f} %",
        f"{result.case.most_percent:+g} %",
        "holds" if result.holds else why or "slower than allowed",
    )


def markdown(found: Sequence[tuple[Changed, WinnerResult | None]], against: str) -> str:
    """Return the results as a Markdown table."""
    if not found:
        return f"No kernel changed since {literal(against)}.\n"
    lines = [
        f"### Kernels changed since {literal(against)}",
        "",
        "| " + " | ".join((*HEADERS[:-1], "result")) + " |",
        "|---" * 7 + "|",
    ]
    for one, result in found:
        path, status, *compared, reason = _row(one, result)
        lines.append("| " + " | ".join((literal(path), literal(status), *compared, literal(reason))) + " |")
    return "\n".join(lines) + "\n"


def _record(one: Changed, result: WinnerResult | None) -> dict[str, Any]:
    if result is None:
        return {"path": str(one.path), "status": None, "holds": False, "error": one.broken}
    failure = result.evaluation.failure
    return {
        "path": str(one.path),
        "status": str(result.evaluation.status),
        "holds": result.holds,
        "before_us": result.before_us,
        "latency_us": result.evaluation.latency_us,
        "change_percent": result.change_percent,
        "most_percent": result.case.most_percent,
        "lines": [
            {"line": line, "engine": engine, "before_us": before_us, "now_us": now_us}
            for line, engine, before_us, now_us in grown(result)
        ],
        "failure": failure and {"rule": failure.rule, "message": failure.message, "line": failure.line},
    }
