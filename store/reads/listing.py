"""Read rows as objects for JSON: for the HTTP API, and for commands that read the file.

A long list is read in pages: up to ``limit`` rows after a given id. docs/protocol.md describes the keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from acceld.errors import StoreError
from acceld.gains import Verdict, candidate_verdict, verdict
from acceld.store.reads import records
from acceld.store.reads.records import full_text, insights_found, texts
from acceld.store.rows import insight_of, load, the_row

Json = dict[str, Any]

_RUN = """
SELECT r.id, r.name, r.workload, r.chip, r.api, r.backend, r.proposer, r.preset, r.seed, r.state, r.message, r.iteration,
  json_extract(r.search, '$.iterations') AS iterations, json_extract(r.search, '$.beam_width') AS beam_width,
  r.baseline, r.best, r.baseline_latency_us, r.best_latency_us, r.speedup, r.improved, r.tie_band, r.timed_again,
  json_extract(r.basis, '$.model') AS model, r.percent_of_peak_before,
  r.percent_of_peak_after, r.percent_of_attainable_before, r.percent_of_attainable_after, r.created_at, r.started_at,
  r.ended_at, r.exit_code, json_extract(r.search, '$.budget_usd') AS budget_usd,
  t.plans, t.attempts, t.no_code, t.candidates, t.evaluated, t.passed, t.wins, t.insights,
  t.llm_calls, t.failed_calls, t.unpriced_calls, t.input_tokens, t.cached_tokens, t.output_tokens,
  CASE WHEN t.unpriced_calls > 0 AND t.unpriced_calls = t.llm_calls THEN NULL
    ELSE t.cost_micro_usd / 1000000.0 END AS cost_usd,
  coalesce((SELECT f.source FROM candidates c JOIN profiles f ON f.evaluation = c.evaluation
    WHERE c.id = coalesce(r.best, r.baseline)),
    CASE WHEN r.backend = 'simulator' THEN 'simulated' ELSE 'measured' END) AS source
FROM runs r JOIN run_totals t ON t.run = r.id
"""

SORTS = {
    "id": "r.id",
    "speedup": "r.improved DESC, r.speedup",
    "cost": "t.cost_micro_usd",
    "candidates": "t.candidates",
    "created": "r.created_at",
}
"""Names by which runs may be sorted, each with its SQL."""


def run_rows(
    connection: sqlite3.Connection,
    *,
    workload: str = "",
    chip: str = "",
    state: str = "",
    name: str = "",
    sort: str = "id",
    limit: int = 100,
    offset: int = 0,
) -> list[Json]:
    """Return one page of the runs: newest first, or greatest first by ``sort`` (a key of ``SORTS``).

    ``workload``, ``chip`` and ``state`` may each be several words with commas between them. Raise StoreError
    for an unknown ``sort``.
    """
    if sort not in SORTS:
        raise StoreError(f"runs can not be sorted by {sort!r}", hint=f"Sort by one of {', '.join(SORTS)}.")
    where, values = ["1"], list[Any]()
    for column, value in (("workload", workload), ("chip", chip), ("state", state)):
        if value:
            words = value.split(",")
            where.append(f"r.{column} IN ({', '.join('?' * len(words))})")
            values += words
    if name:
        where.append("r.name = ?")  # not split, because a name may have commas
        values.append(name)
    sql = f"{_RUN} WHERE {' AND '.join(where)} ORDER BY {SORTS[sort]} DESC NULLS LAST, r.id DESC LIMIT ? OFFSET ?"
    return [_with_flags(row) for row in connection.execute(sql, (*values, limit, offset))]


def _with_flags(row: sqlite3.Row) -> Json:
    """Return a row as an object for JSON: columns that mean yes or no become True or False, and a verdict is added to
    each speed-up.
    """
    flags = {name: bool(row[name]) for name in _FLAGS if name in row.keys() and row[name] is not None}  # noqa: SIM118  a row's own `in` looks at values
    return dict(row) | flags | _verdicts(row, row["source"])


_FLAGS = ("improved", "parent_improved")


def _verdicts(row: sqlite3.Row, source: str) -> dict[str, Verdict | None]:
    """Return the verdict (a win, likely or a tie) on each speed-up of a row: over the baseline and, for a candidate,
    over its parent.
    """
    if "parent_improved" not in row.keys():  # noqa: SIM118  a row's own `in` looks at values
        return {"verdict": verdict(row["speedup"], row["improved"], row["tie_band"], source)}
    return {f"{over}verdict": candidate_verdict(dict(row), over, source) for over in ("", "parent_")}


def run_row(connection: sqlite3.Connection, run: int) -> Json:
    """Return one run with its parameters, statuses, iterations and notes. Raise NotFoundError if there is no
    such run.
    """
    row = the_row(connection, "run", run, f"{_RUN} WHERE r.id = ?")
    raw = connection.execute(
        "SELECT search, workload_folder, root_sha256, basis FROM runs WHERE id = ?", (run,)
    ).fetchone()
    statuses = connection.execute("SELECT status, candidates FROM run_statuses WHERE run = ?", (run,))
    iterations = connection.execute(
        "SELECT i.*, c.improved, c.tie_band FROM iterations i LEFT JOIN candidates c ON c.id = i.best WHERE i.run = ? "
        "ORDER BY i.iteration",
        (run,),
    ).fetchall()
    selected: dict[int, list[int]] = {}
    for place in connection.execute("SELECT iteration, candidate FROM beams WHERE run = ? ORDER BY place", (run,)):
        selected.setdefault(place["iteration"], []).append(place["candidate"])
    notes = connection.execute("SELECT text, by, created_at FROM notes WHERE subject = ?", (f"r{run}",))
    return _with_flags(row) | {
        "search": load(raw["search"]),
        "basis": load(raw["basis"]),
        "workload_folder": raw["workload_folder"],
        "root_sha256": raw["root_sha256"],
        "statuses": {status["status"]: status["candidates"] for status in statuses},
        "beams": [
            {
                "iteration": line["iteration"],
                "parents": load(line["beam"]),
                "selected": selected.get(line["iteration"], []),
                "best": line["best"],
                "best_latency_us": line["best_latency_us"],
                "speedup": line["speedup"],
                "improved": None if line["improved"] is None else bool(line["improved"]),
                "verdict": verdict(line["speedup"], line["improved"], line["tie_band"], row["source"]),
                "started_at": line["started_at"],
                "ended_at": line["ended_at"],
            }
            for line in iterations
        ],
        "notes": [dict(note) for note in notes],
    }


_CANDIDATE = """
SELECT c.id, c.run, c.iteration, c.parent, c.plan, c.attempt, c.source AS sha256, c.place, c.plan_number AS plan_index,
  c.attempt_number AS attempt_index, c.fix_number AS fix, c.state, c.device, c.evaluation, c.status, c.gate, c.latency_us,
  c.speedup, c.improved, c.tie_band, c.parent_speedup, c.parent_improved, c.created_at, c.started_at, c.ended_at, p.title, p.rule, p.change_class,
  json_extract(p.data, '$.variants[' || c.attempt_number || '].name') AS change,
  p.partner, e.percent_of_peak, e.percent_of_attainable, e.program_sha256, e.failure_rule, e.failure_message, e.failure_line,
  f.source, f.bound, f.interval_percent
FROM candidates c LEFT JOIN plans p ON p.id = c.plan LEFT JOIN evaluations e ON e.id = c.evaluation
LEFT JOIN profiles f ON f.evaluation = c.evaluation
"""


def candidate_rows(
    connection: sqlite3.Connection, run: int, *, after: int = 0, limit: int = 500, status: str = "", iteration: int = -1
) -> list[Json]:
    """Return one page of a run's candidates in the order of their ids, without their sources.

    ``status`` may be several statuses with commas between them. An ``iteration`` below 0 means all iterations.
    """
    where, values = "c.run = ? AND c.id > ?", list[Any]([run, after])
    if status:
        words = status.split(",")
        where += f" AND c.status IN ({', '.join('?' * len(words))})"
        values += words
    if iteration >= 0:
        where += " AND c.iteration = ?"
        values.append(iteration)
    found = connection.execute(f"{_CANDIDATE} WHERE {where} ORDER BY c.id LIMIT ?", (*values, limit))
    return [_with_flags(row) for row in found]


def candidate_row(connection: sqlite3.Connection, candidate: int) -> Json:
    """Return one candidate with all that is known of it: source, parent's source, plan, evaluation, model
    calls, insights, ancestors, children and notes.

    Raise NotFoundError if there is no such candidate.
    """
    row = the_row(connection, "candidate", candidate, f"{_CANDIDATE} WHERE c.id = ?")
    record = records.load_candidate(connection, candidate)
    parent_text = None
    if record.parent is not None:
        parent_text = connection.execute("SELECT text FROM kernels WHERE candidate = ?", (record.parent,)).fetchone()[0]
    plan = connection.execute("SELECT * FROM plans WHERE id = ?", (record.plan,)).fetchone()
    seen = connection.execute(
        "SELECT i.id, i.title, i.kind, i.speedup, u.outcome FROM insight_uses u JOIN insights i ON i.id = u.insight "
        "WHERE u.plan = ?",
        (record.plan,),
    )
    taught = connection.execute(
        "SELECT id, title, kind, speedup FROM insights WHERE slow_candidate = ? OR fast_candidate = ?",
        (candidate, candidate),
    )
    notes = connection.execute("SELECT text, by, created_at FROM notes WHERE subject = ?", (f"c{candidate}",))
    return _with_flags(row) | {
        "filename": record.kernel.filename,
        "api": record.kernel.api,
        "entry": record.kernel.entry,
        "grid": list(record.kernel.grid),
        "lnc": record.kernel.lnc,
        "trusted": record.kernel.trusted,
        "closure": dict(record.kernel.closure),
        "text": record.kernel.text,
        "parent_text": parent_text,
        "plan_text": plan["text"] if plan else None,
        "plan_line": plan["line"] if plan else None,
        "evaluation_record": evaluation_row(connection, record.evaluation.id) if record.evaluation else None,
        "calls": call_rows(connection, candidate=candidate),
        "insights_seen": [dict(item) for item in seen],
        "insights_taught": [dict(item) for item in taught],
        "children": [r["id"] for r in connection.execute("SELECT id FROM candidates WHERE parent = ?", (candidate,))],
        "lineage": lineage(connection, candidate),
        "notes": [dict(note) for note in notes],
    }


def tree(connection: sqlite3.Connection, run: int) -> Json:
    """Return the tree of a run: ``nodes``, and the ids of the baseline, the best candidate and the newest beam.

    A node is a list with these values of a candidate: id, parent, iteration, status, latency in us, speed-up, gate,
    plan, title, second parent of a crossover, 1 if the candidate is faster than the baseline beyond a tie, 1 if the
    candidate is faster than its parent beyond a tie, verdict on the speed-up over the baseline, verdict on the speed-up
    over the parent. Raise NotFoundError if there is no such run.
    """
    row = the_row(
        connection,
        "run",
        run,
        "SELECT baseline, best, CASE WHEN backend = 'simulator' THEN 'simulated' ELSE 'measured' END AS source "
        "FROM runs WHERE id = ?",
    )
    nodes = connection.execute(
        "SELECT c.id, c.parent, c.iteration, c.status, c.latency_us, c.speedup, c.gate, c.plan, p.title, "
        "p.partner, c.improved, c.parent_improved, c.parent_speedup, c.tie_band "
        "FROM candidates c LEFT JOIN plans p ON p.id = c.plan WHERE c.run = ? ORDER BY c.id",
        (run,),
    )
    newest = connection.execute(
        "SELECT candidate FROM beams WHERE run = ? AND iteration = "
        "(SELECT max(iteration) FROM beams WHERE run = ?) ORDER BY place",
        (run, run),
    )
    return {
        "nodes": [[*node[:-2], *_verdicts(node, row["source"]).values()] for node in nodes],
        "baseline": row["baseline"],
        "best": row["best"],
        "source": row["source"],
        "beam": [place["candidate"] for place in newest],
    }


def counts(connection: sqlite3.Connection) -> Json:
    """Return the number of runs in each state."""
    return dict(connection.execute("SELECT state, count(*) FROM runs GROUP BY state").fetchall())


def waiting(connection: sqlite3.Connection, state: str, limit: int = 200) -> list[Json]:
    """Return the candidates of active runs that are in ``state`` (``queued`` or ``running``), oldest first, at most
    ``limit``.
    """
    found = connection.execute(
        "SELECT c.id AS candidate, c.run, c.device, c.created_at, c.started_at, p.title FROM candidates c "
        "JOIN runs r ON r.id = c.run LEFT JOIN plans p ON p.id = c.plan "
        "WHERE c.state = ? AND r.state IN ('running', 'paused') ORDER BY c.id LIMIT ?",
        (state, limit),
    )
    return [dict(row) for row in found]


def open_calls(connection: sqlite3.Connection, limit: int = 200) -> list[Json]:
    """Return the model calls of active runs that have no outcome yet, oldest first, at most ``limit``."""
    found = connection.execute(
        "SELECT l.id AS call, l.run, l.role, l.model, l.started_at FROM llm_calls l JOIN runs r ON r.id = l.run "
        "WHERE l.outcome IS NULL AND r.state IN ('running', 'paused') ORDER BY l.id LIMIT ?",
        (limit,),
    )
    return [dict(row) for row in found]


def lineage(connection: sqlite3.Connection, candidate: int) -> list[Json]:
    """Return ``candidate`` and its ancestors, the baseline first, each with its latency and the title of its plan."""
    found = connection.execute(
        "WITH RECURSIVE chain(id, parent, depth) AS ("
        "  SELECT id, parent, 0 FROM candidates WHERE id = ? UNION ALL "
        "  SELECT c.id, c.parent, depth + 1 FROM candidates c JOIN chain ON c.id = chain.parent WHERE depth < 10000) "
        "SELECT c.id, c.iteration, c.latency_us, c.speedup, c.improved, c.tie_band, c.parent_speedup, c.parent_improved, c.status, p.title, p.rule, "
        "p.partner, e.percent_of_peak, f.source FROM chain JOIN candidates c ON c.id = chain.id LEFT JOIN plans p ON p.id = c.plan "
        "LEFT JOIN evaluations e ON e.id = c.evaluation LEFT JOIN profiles f ON f.evaluation = c.evaluation "
        "ORDER BY chain.depth DESC",
        (candidate,),
    )
    return [_with_flags(row) for row in found]


def evaluation_row(connection: sqlite3.Connection, evaluation: int) -> Json:
    """Return one evaluation with its checks, profile, counters, timeline and samples.

    Raise NotFoundError if there is no such evaluation.
    """
    row = the_row(connection, "evaluation", evaluation, "SELECT * FROM evaluations WHERE id = ?")
    checks = connection.execute("SELECT * FROM checks WHERE evaluation = ? ORDER BY number", (evaluation,)).fetchall()
    profile = connection.execute("SELECT * FROM profiles WHERE evaluation = ?", (evaluation,)).fetchone()
    whole = connection.execute("SELECT details FROM profile_details WHERE evaluation = ?", (evaluation,)).fetchone()
    samples = connection.execute("SELECT latency_us FROM samples WHERE evaluation = ? ORDER BY number", (evaluation,))
    shown = dict(profile) if profile else None
    if shown is not None:
        for name in ("engines_us", "counters", "notes"):
            shown[name] = load(shown[name])
        shown["samples_us"] = [sample["latency_us"] for sample in samples]
        shown["details"] = load(whole["details"]) if whole else {}
    return dict(row) | {
        "seconds": load(row["seconds"]),
        "checks": [
            {name: check[name] for name in ("name", "rel_l2", "tolerance", "detail")}
            | {"passed": bool(check["passed"])}
            for check in checks
        ],
        "profile": shown,
    }


def plan_rows(connection: sqlite3.Connection, run: int, *, after: int = 0, limit: int = 500) -> list[Json]:
    """Return one page of a run's plans in the order of their ids.

    A plan has the number of its attempts, the number of its attempts without code, and the ids of its
    candidates.
    """
    found = connection.execute(
        "SELECT p.*, (SELECT count(*) FROM attempts a WHERE a.plan = p.id) AS attempts, "
        "(SELECT count(*) FROM attempts a WHERE a.plan = p.id AND a.text_sha256 IS NULL) AS no_code, "
        "(SELECT group_concat(id) FROM candidates c WHERE c.plan = p.id) AS children "
        "FROM plans p WHERE p.run = ? AND p.id > ? ORDER BY p.id LIMIT ?",
        (run, after, limit),
    )
    return [
        {key: value for key, value in dict(row).items() if key not in ("insights", "data", "children", "number")}
        | {
            "index": row["number"],
            "insights": load(row["insights"]),
            "children": [int(number) for number in (row["children"] or "").split(",") if number],
        }
        for row in found
    ]


_CALL = (
    "SELECT id, run, iteration, parent, plan, attempt, role, provider, model, answered_by, outcome, error, request_id, "
    "finish_reason, input_tokens, cached_tokens, cache_written_tokens, output_tokens, reasoning_tokens, cost_usd, "
    "uncertain_usd, estimated, reserved_usd, retries, first_token_s, latency_s, started_at, ended_at FROM llm_calls "
)


def call_rows(
    connection: sqlite3.Connection,
    *,
    run: int | None = None,
    candidate: int | None = None,
    after: int = 0,
    limit: int = 500,
) -> list[Json]:
    """Return model calls without their texts: those for a candidate, those of a run, or those of all runs.

    A ``candidate`` selects every call for its plan, its attempt and its fixes. Without ``candidate``, one page is returned.
    """
    if candidate is not None:
        found = connection.execute(
            f"{_CALL} WHERE id IN (SELECT l.id FROM llm_calls l JOIN candidates c ON c.id = ? WHERE l.run = c.run "
            "AND l.iteration = c.iteration AND l.parent = c.parent AND CASE WHEN l.plan IS NULL "
            "THEN json_extract(l.parameters, '$.tags.index') = c.plan_number "  # the plan had no id at the time of the call
            "ELSE l.plan = c.plan AND l.attempt = c.attempt_number "
            "AND ifnull(json_extract(l.parameters, '$.tags.step'), 0) <= c.fix_number END) ORDER BY id",
            (candidate,),
        )
    elif run is not None:
        found = connection.execute(f"{_CALL} WHERE run = ? AND id > ? ORDER BY id LIMIT ?", (run, after, limit))
    else:
        found = connection.execute(f"{_CALL} WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [dict(row) for row in found]


def call_row(connection: sqlite3.Connection, call: int) -> Json:
    """Return one model call with its prompts and the raw answer. Raise NotFoundError if there is no such call."""
    row = the_row(connection, "call", call, "SELECT * FROM llm_calls WHERE id = ?")
    found = texts(connection, [row["system_sha256"], row["user_sha256"]])
    return dict(row) | {
        "parameters": load(row["parameters"]),
        "price": load(row["price"]),
        "system": found[row["system_sha256"]],
        "user": found[row["user_sha256"]],
    }


def insight_row(connection: sqlite3.Connection, insight: int) -> Json:
    """Return one insight with the plans to which it was shown. Raise NotFoundError if there is no such insight."""
    row = the_row(connection, "insight", insight, "SELECT * FROM insights WHERE id = ?")
    uses = connection.execute(
        "SELECT u.plan, u.run, u.outcome, u.ratio, p.title FROM insight_uses u JOIN plans p ON p.id = u.plan "
        "WHERE u.insight = ? ORDER BY u.plan",
        (insight,),
    )
    saved = savings(connection, [insight]).get(insight)
    return _insight(row) | {"saved": saved, "used_by": [dict(use) for use in uses]}


def insight_rows(
    connection: sqlite3.Connection, *, run: int | None = None, chip: str = "", matching: str = "", limit: int = 200
) -> list[Json]:
    """Return insights, newest first. ``matching`` are words that must all occur in the insight."""
    found = insights_found(connection, {"run": run, "chip": chip or None}, matching, True, limit)
    rows = [_insight(row) for row in found]
    saved = savings(connection, [row["id"] for row in rows if row["wins"]])
    return [row | {"saved": saved.get(row["id"])} for row in rows]


_WON = (
    "SELECT u.insight, u.run, min(c.id) AS candidate, c.latency_us, r.workload, r.chip, r.api, r.backend "
    "FROM insight_uses u JOIN candidates c ON c.plan = u.plan AND c.status = 'passed' AND c.parent_improved "
    "JOIN runs r ON r.id = u.run WHERE u.outcome = 'win' AND u.insight IN ({}) GROUP BY u.insight, u.run"
)
_WITHOUT = (
    "SELECT (SELECT count(*) FROM candidates c WHERE c.run = r.id AND c.parent IS NOT NULL AND c.id <= ifnull("
    "(SELECT min(f.id) FROM candidates f WHERE f.run = r.id AND f.status = 'passed' AND f.latency_us <= :latency), c.id)) "
    "FROM runs r WHERE r.workload = :workload AND r.chip = :chip AND r.api = :api AND r.backend = :backend "
    "AND r.id <> :run AND r.proposer IN ('llm', 'both') AND r.ended_at IS NOT NULL "
    "AND r.id NOT IN (SELECT run FROM insight_uses WHERE insight = :insight)"
)
_MADE = "SELECT count(*) FROM candidates WHERE run = ? AND parent IS NOT NULL AND id <= ?"


def savings(connection: sqlite3.Connection, insights: Sequence[int]) -> dict[int, Json]:
    """Return, for each insight, how many ``candidates`` it saved, and with how many ``runs`` this was compared.

    For example, a plan that cites the insight won with the 5th candidate of its run. Other runs on the same problem,
    whose models did not see the insight, needed 9, 12 and 20 candidates for a kernel as fast. Their median is 12, so
    the insight saved 12 - 5 candidates. If no kernel of another run was as fast, all candidates of that run count. An
    insight has no entry if there are no runs to compare with.
    """
    found: dict[int, Json] = {}
    marks = ", ".join("?" * len(insights))
    for won in connection.execute(_WON.format(marks), insights).fetchall():
        asked = {name: won[name] for name in ("insight", "run", "workload", "chip", "api", "backend")}
        without = sorted(row[0] for row in connection.execute(_WITHOUT, asked | {"latency": won["latency_us"]}))
        without = [count for count in without if count]
        if not without:
            continue
        (needed,) = connection.execute(_MADE, (won["run"], won["candidate"])).fetchone()
        entry = found.setdefault(won["insight"], {"candidates": 0, "runs": 0})
        entry["candidates"] += without[len(without) // 2] - needed
        entry["runs"] += len(without)
    return found


def _insight(row: sqlite3.Row) -> Json:
    flags = {name: bool(row[name]) for name in ("pinned", "muted", "withdrawn")}
    decided = row["wins"] + row["losses"]
    lists = {name: load(row[name]) for name in ("tags", "operations", "held")}
    win_rate = row["wins"] / decided if decided else None
    return dict(row) | flags | lists | {"confirmations": insight_of(row).confirmations, "win_rate": win_rate}


_SUMMED = ("calls", "failed_calls", "unpriced_calls", "input_tokens", "cached_tokens", "output_tokens")


def costs(connection: sqlite3.Connection, run: int | None = None) -> Json:
    """Return the costs of a run, or of all runs: totals, by role and model, and for one run by iteration.

    ``cost_usd`` is None if no price is known. Raise NotFoundError if there is no such run.
    """
    cap = None
    if run is not None:
        row = the_row(connection, "run", run, "SELECT json_extract(search, '$.budget_usd') FROM runs WHERE id = ?")
        cap = row[0]
    lines = [dict(row) for row in _by_model(connection, run)]
    for line in lines:
        if line["calls"] == line["unpriced_calls"]:
            line["cost_usd"] = None
    known = [line["cost_usd"] for line in lines if line["cost_usd"] is not None]
    reserved_usd = connection.execute(
        "SELECT ifnull(sum(reserved_usd), 0.0) FROM llm_calls WHERE outcome IS NULL AND (?1 IS NULL OR run = ?1)",
        (run,),
    ).fetchone()[0]
    uncertain = connection.execute(
        "SELECT ifnull(sum(uncertain_usd), 0.0), count(*) FROM llm_calls WHERE uncertain_usd > 0 AND (?1 IS NULL OR run = ?1)",
        (run,),
    ).fetchone()
    return {
        "run": run,
        "budget": {"cap_usd": cap, "spent_usd": sum(known) + reserved_usd + uncertain[0]},
        "uncertain_usd": uncertain[0],
        "uncertain_calls": uncertain[1],
        "cost_usd": sum(known) if known or not lines else None,
        "reserved_usd": reserved_usd,
        **{name: sum(line[name] for line in lines) for name in _SUMMED},
        "by_model": lines,
        "by_iteration": [] if run is None else [dict(row) for row in _by_iteration(connection, run)],
    }


def _by_model(connection: sqlite3.Connection, run: int | None) -> sqlite3.Cursor:
    if run is None:
        return connection.execute(
            "SELECT model, role, calls, failed_calls, unpriced_calls, input_tokens, cached_tokens, output_tokens, "
            "reasoning_tokens, cost_micro_usd / 1000000.0 AS cost_usd, latency_ms / 1000.0 AS latency_s "
            "FROM model_totals ORDER BY cost_micro_usd DESC"
        )
    return connection.execute(
        "SELECT model, role, count(*) AS calls, sum(outcome <> 'answered') AS failed_calls, "
        "count(*) - count(cost_usd) AS unpriced_calls, sum(input_tokens) AS input_tokens, "
        "sum(cached_tokens) AS cached_tokens, sum(output_tokens) AS output_tokens, "
        "sum(reasoning_tokens) AS reasoning_tokens, sum(cost_usd) AS cost_usd, sum(latency_s) AS latency_s "
        "FROM llm_calls WHERE run = ? AND outcome IS NOT NULL GROUP BY model, role ORDER BY cost_usd DESC",
        (run,),
    )


def _by_iteration(connection: sqlite3.Connection, run: int) -> sqlite3.Cursor:
    return connection.execute(
        "SELECT iteration, count(*) AS calls, sum(cost_usd) AS cost_usd, sum(input_tokens) AS input_tokens, "
        "sum(output_tokens) AS output_tokens FROM llm_calls WHERE run = ? AND outcome IS NOT NULL "
        "GROUP BY iteration ORDER BY iteration",
        (run,),
    )


def search(connection: sqlite3.Connection, words: str, limit: int = 50) -> list[Json]:
    """Return the plans, insights and failures in which all ``words`` occur, each with an extract of its text.

    Each kind has at most ``limit`` hits, the newest first. A hit on the plan of a crossover also has its second
    parent.
    """
    found: list[Json] = []
    for kind, table, partner in (
        ("plan", "plans_search", "(SELECT partner FROM plans WHERE id = s.rowid)"),
        ("insight", "insights_search", "NULL"),
        ("failure", "failures_search", "NULL"),
    ):
        found += [
            {"kind": kind, "id": row["rowid"], "title": row[1], "partner": row["partner"], "extract": row["extract"]}
            for row in connection.execute(
                f"SELECT s.rowid, s.*, {partner} AS partner, snippet({table}, 1, '[', ']', '…', 24) AS extract FROM {table} s "
                f"WHERE {table} MATCH ? ORDER BY s.rowid DESC LIMIT ?",
                (full_text(words), limit),
            )
        ]
    return found


def host_rows(connection: sqlite3.Connection) -> list[Json]:
    """Return every host that is stored, each with the hours of its slots that all runs used, and their cost in USD."""
    rows = connection.execute(
        "SELECT h.*, coalesce(sum(c.slot_hours), 0.0) AS slot_hours, sum(c.usd) AS usd FROM hosts h "
        "LEFT JOIN host_costs c ON c.host = h.name GROUP BY h.name ORDER BY h.name"
    )
    return [dict(row) for row in rows]
