"""``acceld costs``: show what models cost, by role, model, iteration, candidate or failure. A cost without a
known price is ``?``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_json
from acceld.cli.connect import history_file, reading, records, run_number
from acceld.cli.output import print_json, print_pairs, print_table, say
from acceld.errors import UsageError

BY = ("role", "model", "iteration", "candidate", "failure")
FIGURES = ("calls", "failed_calls", "input_tokens", "cached_tokens", "output_tokens")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", nargs="?", metavar="r12", help="one run, by id or name (default: all runs)")
    parser.add_argument("--by", choices=BY, default="role", help="the groups that costs are summed by (default: role)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the costs, and return the exit code."""
    number = run_number(arguments.home, arguments.run) if arguments.run else None
    if arguments.by in ("iteration", "candidate", "failure") and number is None:
        raise UsageError(
            f"costs by {arguments.by} need a run, and no run is named", hint="acceld costs r12 --by " + arguments.by
        )
    with reading(arguments.home) as history:
        found: dict[str, Any] = history.get("/v1/costs", run=number)
    if arguments.by == "iteration":
        lines = found["by_iteration"]
    elif arguments.by == "candidate":
        lines = records(arguments.home, BY_CANDIDATE, (number,))
    elif arguments.by == "failure":
        lines = records(arguments.home, BY_FAILURE, (number,))
    else:
        lines = grouped(found["by_model"], arguments.by)
    if arguments.json:
        print_json({"costs": found, "by": arguments.by, "lines": lines})
        return 0
    if not found["calls"]:
        say("no model was asked: nothing was spent. Rules are free; --proposer llm asks models (docs/model-costs.md)")
        return 0
    print_pairs(
        [
            ("models", usd(found["cost_usd"], found["unpriced_calls"])),
            ("calls", f"{found['calls']}, {found['failed_calls']} failed, {found['unpriced_calls']} without a price"),
            (
                "tokens",
                f"{found['input_tokens']} in ({found['cached_tokens']} cached, {cached_percent(found)}), {found['output_tokens']} out",
            ),
            ("under way", usd(found["reserved_usd"])),
            *([("uncertain", _uncertain(found))] if found["uncertain_calls"] else []),
        ]
    )
    if arguments.by == "model" and number is not None:
        _print_gains(arguments.home, number)
    if lines:
        columns = [name for name in (*FIGURES, "tries", "repaired") if name in lines[0]]
        shares = "cached_tokens" in columns
        rows = [
            [
                str(line[arguments.by]),
                *(str(line[name] or 0) for name in columns),
                *([cached_percent(line)] if shares else []),
                usd(line["cost_usd"]),
            ]
            for line in lines
        ]
        headers = [
            arguments.by,
            *(name.replace("_", " ") for name in columns),
            *(["hit rate"] if shares else []),
            "USD",
        ]
        print()
        print_table(rows, headers, right=frozenset(range(1, len(headers))))
    return 0


def _uncertain(found: Mapping[str, Any]) -> str:
    """Return a sentence on the money that a provider may have billed for calls whose answers never arrived.

    Caps count this money; the table of costs does not.
    """
    calls = found["uncertain_calls"]
    return f"up to {usd(found['uncertain_usd'])} more, for {figures.many(calls, 'call')} that ended before their answers arrived; caps count this amount"


def _print_gains(home: str | None, run: int) -> None:
    """Print each model's gain in each role, and how often a role with ``choice = "gain"`` would draw it."""
    from acceld.search.choice import shares, yields
    from acceld.store.reads.records import load_candidates, load_plans, priced_calls

    with history_file(home) as connection:
        calls, plans = priced_calls(connection, run), load_plans(connection, run)
        candidates = load_candidates(connection, run)
    rows = []
    for role in ("planner", "executor", "fixer"):
        found = yields(calls, plans, candidates, role, before=len(candidates) + 1)
        drawn = shares(dict.fromkeys(found, 1.0), found)
        for name, one in sorted(found.items()):
            rate = f"{one.gain / one.cost_usd:.3g}" if one.cost_usd else "-"
            rows.append([role, name, str(one.calls), f"{one.gain:.3f}", rate, f"{100 * drawn[name]:.0f} %"])
    print()
    print_table(rows, ["role", "model", "calls", "gain (log2)", "per USD", "share"], right=frozenset({2, 3, 4, 5}))


def cached_percent(line: Mapping[str, Any]) -> str:
    """Return the percentage of prompt tokens that came from the provider's cache; ``-`` if no prompt tokens were
    counted.
    """
    read = line["input_tokens"] or 0
    return f"{100.0 * (line['cached_tokens'] or 0) / read:.0f} %" if read else "-"


def grouped(lines: Sequence[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return the sums of the lines with the same value of ``by``. A group's cost is None if no line has a known
    cost.
    """
    groups: dict[str, dict[str, Any]] = {}
    for line in lines:
        group = groups.setdefault(line[by], {by: line[by], **dict.fromkeys(FIGURES, 0), "cost_usd": None})
        for name in FIGURES:
            group[name] += line[name] or 0
        if line["cost_usd"] is not None:
            group["cost_usd"] = (group["cost_usd"] or 0.0) + line["cost_usd"]
    return sorted(groups.values(), key=lambda group: -(group["cost_usd"] or 0.0))


def usd(cost: float | None, unpriced_calls: int = 0) -> str:
    """Format a cost: ``1.2345``, ``?`` if it is unknown, ``1.2345 + ?`` if some calls have no known price."""
    if cost is None:
        return "?"
    return f"{cost:.4f} + ?" if unpriced_calls else f"{cost:.4f}"


BY_CANDIDATE = (
    "SELECT 'c' || c.id AS candidate, count(l.id) AS calls, sum(l.outcome <> 'answered') AS failed_calls, "
    "sum(l.input_tokens) AS input_tokens, sum(l.cached_tokens) AS cached_tokens, "
    "sum(l.output_tokens) AS output_tokens, sum(l.cost_usd) AS cost_usd "
    "FROM candidates c JOIN attempts a ON a.id = c.attempt "
    "JOIN llm_calls l ON l.run = c.run AND l.plan = a.plan AND l.attempt = a.number "
    "AND ifnull(json_extract(l.parameters, '$.tags.step'), 0) = c.fix_number "
    "WHERE c.run = ? GROUP BY c.id ORDER BY sum(l.cost_usd) DESC, c.id"
)
"""SQL: executor and fixer calls by candidate, most expensive first."""

BY_FAILURE = (
    "WITH failed AS (SELECT c.id, c.run, c.plan, c.attempt, c.attempt_number, c.fix_number, "
    "coalesce(nullif(e.failure_rule, ''), c.status) AS failure FROM candidates c "
    "JOIN evaluations e ON e.id = c.evaluation WHERE c.run = ? AND c.parent IS NOT NULL), "
    "tried AS (SELECT f.failure, f.id, a.id AS attempt, k.status AS after, "
    "(SELECT sum(l.cost_usd) FROM llm_calls l WHERE l.run = f.run AND l.role = 'fixer' AND l.plan = f.plan "
    "AND l.attempt = f.attempt_number AND json_extract(l.parameters, '$.tags.step') = f.fix_number + 1) AS cost_usd "
    "FROM failed f JOIN attempts a ON a.fix_of = f.attempt LEFT JOIN candidates k ON k.attempt = a.id) "
    "SELECT failure, count(*) AS tries, sum(ifnull(after IN ('passed', 'untested'), 0)) AS repaired, "
    "sum(cost_usd) AS cost_usd FROM tried GROUP BY failure ORDER BY tries DESC, failure"
)
"""SQL: repairs by class of failure: the number that was tried, the number that passed, and their cost."""
