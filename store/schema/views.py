"""Define the views: slow-fast pairs, and views with the names of AccelOpt's schema and of flashinfer-bench."""

from __future__ import annotations

from acceld.model import FLASHINFER_STATUS

_FLASHINFER = "CASE e.status " + " ".join(
    f"WHEN '{ours}' THEN '{FLASHINFER_STATUS[ours]}'" for ours in FLASHINFER_STATUS
)

VIEWS = f"""
CREATE VIEW rewrites AS
SELECT c.run AS run, c.iteration AS iteration, c.parent AS parent, c.id AS child, c.plan AS plan,
       p.title AS title, p.rule AS rule, p.change_class AS change_class,
       before.latency_us AS parent_latency_us, c.latency_us AS child_latency_us,
       before.latency_us / c.latency_us AS speedup, c.status AS child_status, c.gate AS child_gate
FROM candidates c
JOIN candidates before ON before.id = c.parent
LEFT JOIN plans p ON p.id = c.plan
WHERE c.latency_us > 0 AND before.latency_us > 0;

CREATE VIEW kernels AS
SELECT c.id AS candidate, c.run AS run, c.source AS sha256, s.api AS api, s.entry AS entry, t.text AS text
FROM candidates c JOIN sources s ON s.sha256 = c.source JOIN texts t ON t.sha256 = s.text_sha256;

CREATE VIEW verdicts AS
SELECT c.id AS candidate, c.run AS run, r.workload AS workload, c.iteration AS iteration, c.parent AS parent,
       c.status AS status, {_FLASHINFER} END AS flashinfer_status, c.gate AS gate, c.latency_us AS latency_us,
       c.speedup AS speedup, e.percent_of_peak AS percent_of_peak,
       e.percent_of_attainable AS percent_of_attainable, e.failure_rule AS failure_rule,
       e.failure_message AS failure_message, e.failure_line AS failure_line, e.rel_l2 AS rel_l2,
       e.sandbox_level AS sandbox_level, f.source AS source, f.method AS method, f.bound AS bound
FROM candidates c JOIN runs r ON r.id = c.run
JOIN evaluations e ON e.id = c.evaluation
LEFT JOIN profiles f ON f.evaluation = e.id;

CREATE VIEW history AS
SELECT r.id AS id, r.name AS name, r.workload AS workload, r.chip AS chip, r.api AS api, r.backend AS backend,
       coalesce((SELECT f.source FROM candidates c JOIN profiles f ON f.evaluation = c.evaluation
                 WHERE c.id = coalesce(r.best, r.baseline)),
                CASE WHEN r.backend = 'simulator' THEN 'simulated' ELSE 'measured' END) AS source,
       r.proposer AS proposer, r.preset AS preset, r.seed AS seed, r.state AS state, r.message AS message,
       r.iteration AS iteration, r.best AS best, r.baseline_latency_us AS baseline_latency_us,
       r.best_latency_us AS best_latency_us, r.speedup AS speedup, r.percent_of_peak_before AS percent_of_peak_before,
       r.percent_of_peak_after AS percent_of_peak_after, t.candidates AS candidates, t.evaluated AS evaluated,
       t.passed AS passed, t.wins AS wins, t.insights AS insights, t.llm_calls AS llm_calls,
       CASE WHEN t.llm_calls = 0 OR t.unpriced_calls < t.llm_calls THEN t.cost_micro_usd / 1000000.0 END AS cost_usd,
       r.created_at AS created_at, r.started_at AS started_at, r.ended_at AS ended_at,
       r.ended_at - r.started_at AS seconds
FROM runs r JOIN run_totals t ON t.run = r.id;

CREATE VIEW costs AS
SELECT run, iteration, role, model, count(*) AS calls, sum(outcome IS NOT NULL AND outcome <> 'answered') AS failed_calls,
       sum(outcome IS NOT NULL AND cost_usd IS NULL) AS unpriced_calls, sum(input_tokens) AS input_tokens,
       sum(cached_tokens) AS cached_tokens, sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
FROM llm_calls GROUP BY run, iteration, role, model;

CREATE VIEW accelopt_definitions AS
SELECT name AS name, definition AS definition FROM workloads;

CREATE VIEW accelopt_workloads AS
SELECT DISTINCT r.workload || '@' || r.chip AS uuid, r.workload AS definition_name,
       json_object('chip', r.chip, 'backend', r.backend) AS workload
FROM runs r;

CREATE VIEW accelopt_solutions AS
SELECT c.id AS id, r.workload AS definition_name, c.parent AS parent_id,
       json_object('name', 'c' || c.id, 'definition', r.workload, 'author', r.proposer,
                   'spec', json_object('language', s.api, 'entry_point', c.filename || '::' || s.entry)) AS solution,
       1 AS hash_version, c.source AS solution_hash,
       json_object('run', c.run, 'iteration', c.iteration, 'plan', c.plan) AS evolve_metadata,
       s.api AS spec_language, r.proposer AS author
FROM candidates c JOIN runs r ON r.id = c.run JOIN sources s ON s.sha256 = c.source;

CREATE VIEW accelopt_profiles AS
SELECT e.id AS id, r.workload || '@' || r.chip AS workload_uuid, c.id AS solution_id,
       json_object('status', {_FLASHINFER} END, 'acceld_status', e.status, 'gate', e.gate, 'rel_l2', e.rel_l2) AS evaluation,
       json_object('backend', e.backend, 'method', f.method, 'sdk', f.sdk, 'source', f.source) AS benchmark_config,
       {_FLASHINFER} END AS eval_status, e.chip AS eval_hardware, e.latency_us / 1000.0 AS latency_ms,
       r.baseline_latency_us / 1000.0 AS reference_latency_ms, r.baseline_latency_us / e.latency_us AS speedup
FROM candidates c JOIN runs r ON r.id = c.run JOIN evaluations e ON e.id = c.evaluation
LEFT JOIN profiles f ON f.evaluation = e.id;

CREATE VIEW flashinfer_traces AS
SELECT r.workload AS definition, 'c' || c.id AS solution, {_FLASHINFER} END AS status,
       e.rel_l2 AS max_relative_error, e.latency_us / 1000.0 AS latency_ms,
       r.baseline_latency_us / 1000.0 AS reference_latency_ms,
       r.baseline_latency_us / e.latency_us AS speedup_factor, e.chip AS hardware, e.log AS log, e.created_at AS timestamp
FROM candidates c JOIN runs r ON r.id = c.run JOIN evaluations e ON e.id = c.evaluation;
"""

_TIME = "strftime('%Y-%m-%dT%H:%M:%fZ', {}, 'unixepoch')"
"""SQL: seconds since the epoch as text in UTC with milliseconds. ``{}`` stands for the column."""


def _first(name: str) -> str:
    """Return the SQL that creates this view as in schema version 1."""
    (made,) = (part.strip() for part in VIEWS.split("\n\n") if f"CREATE VIEW {name} AS" in part)
    return made


def _with_times(name: str, *columns: str) -> str:
    """Return the SQL that replaces a view of schema version 1. The new view shows the given columns of times as ISO
    texts.
    """
    made = _first(name)
    for column in columns:
        source, _, shown = column.partition(" AS ")
        made = made.replace(column, f"{_TIME.format(source)} AS {shown}")
    return f"DROP VIEW {name};\n{made}\n"


VIEWS_WITH_TIMES = _with_times(
    "history", "r.created_at AS created_at", "r.started_at AS started_at", "r.ended_at AS ended_at"
) + _with_times("flashinfer_traces", "e.created_at AS timestamp")
"""Schema version 2: times in views are text in ISO 8601."""

VIEW_OF_RESULTS = f"DROP VIEW verdicts;\n{_first('verdicts').replace('VIEW verdicts', 'VIEW results')}\n"
"""Schema version 5: the view ``verdicts`` (candidates with their evaluations) is renamed to ``results``."""

_HISTORY_WITH_TIMES = VIEWS_WITH_TIMES.partition("DROP VIEW flashinfer_traces")[0]

VIEWS_OF_WINS = (
    f"DROP VIEW rewrites;\n{_first('rewrites')}\nDROP VIEW results;\n{_first('verdicts').replace('VIEW verdicts', 'VIEW results')}\n"
    f"{_HISTORY_WITH_TIMES}"
)
for _old, _new in (
    (
        "before.latency_us / c.latency_us AS speedup,",
        "before.latency_us / c.latency_us AS speedup, c.parent_improved AS improved,",
    ),
    ("c.speedup AS speedup,", "c.speedup AS speedup, c.improved AS improved, c.tie_band AS tie_band,"),
    (
        "r.speedup AS speedup,",
        "r.speedup AS speedup, r.improved AS improved, r.tie_band AS tie_band, json_extract(r.basis, '$.model') AS model,",
    ),
):
    assert VIEWS_OF_WINS.count(_old) == 1, "each view is changed once"
    VIEWS_OF_WINS = VIEWS_OF_WINS.replace(_old, _new)
"""Schema version 8: rewrites, results and history say which speed-ups are wins, and the performance model of each run."""
