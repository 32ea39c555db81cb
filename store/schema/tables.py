"""Define the tables of schema version 1. docs/schema.md describes every column."""

from __future__ import annotations

TABLES = """
CREATE TABLE texts (
    sha256 TEXT PRIMARY KEY,
    text TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE sources (
    sha256 TEXT PRIMARY KEY,
    text_sha256 TEXT NOT NULL REFERENCES texts(sha256),
    api TEXT NOT NULL,
    entry TEXT NOT NULL,
    grid TEXT NOT NULL,
    lnc INTEGER NOT NULL,
    closure TEXT NOT NULL,
    created_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE workloads (
    name TEXT PRIMARY KEY,
    definition TEXT NOT NULL,
    registered_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    workload TEXT NOT NULL,
    workload_folder TEXT NOT NULL,
    chip TEXT NOT NULL,
    api TEXT NOT NULL,
    backend TEXT NOT NULL,
    proposer TEXT NOT NULL,
    preset TEXT NOT NULL,
    seed INTEGER NOT NULL,
    search TEXT NOT NULL,
    root_sha256 TEXT REFERENCES sources(sha256),
    root_filename TEXT,
    root_trusted INTEGER,
    state TEXT NOT NULL,
    message TEXT NOT NULL DEFAULT '',
    iteration INTEGER NOT NULL DEFAULT 0,
    baseline INTEGER REFERENCES candidates(id),
    best INTEGER REFERENCES candidates(id),
    baseline_latency_us REAL,
    best_latency_us REAL,
    speedup REAL,
    percent_of_peak_before REAL,
    percent_of_peak_after REAL,
    percent_of_attainable_before REAL,
    percent_of_attainable_after REAL,
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL
);
CREATE INDEX runs_by_workload ON runs(workload, chip, speedup);
CREATE INDEX runs_by_state ON runs(state);

CREATE TABLE iterations (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    iteration INTEGER NOT NULL,
    beam TEXT NOT NULL,
    started_at REAL NOT NULL,
    ended_at REAL,
    best INTEGER REFERENCES candidates(id),
    best_latency_us REAL,
    speedup REAL,
    PRIMARY KEY (run, iteration)
) WITHOUT ROWID;

CREATE TABLE beams (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    iteration INTEGER NOT NULL,
    place INTEGER NOT NULL,
    candidate INTEGER NOT NULL REFERENCES candidates(id),
    PRIMARY KEY (run, iteration, place)
) WITHOUT ROWID;

CREATE TABLE plans (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    iteration INTEGER NOT NULL,
    parent INTEGER NOT NULL REFERENCES candidates(id),
    number INTEGER NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    change_class TEXT NOT NULL,
    rule TEXT NOT NULL,
    line INTEGER NOT NULL,
    insights TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (run, iteration, parent, number)
);

CREATE TABLE attempts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    plan INTEGER NOT NULL REFERENCES plans(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    fix_of INTEGER REFERENCES attempts(id),
    text_sha256 TEXT REFERENCES texts(sha256),
    reason TEXT NOT NULL,
    created_at REAL NOT NULL
);
CREATE UNIQUE INDEX attempts_once ON attempts(plan, number, ifnull(fix_of, 0));

CREATE TABLE candidates (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    iteration INTEGER NOT NULL,
    parent INTEGER REFERENCES candidates(id),
    plan INTEGER REFERENCES plans(id),
    attempt INTEGER REFERENCES attempts(id),
    source TEXT NOT NULL REFERENCES sources(sha256),
    filename TEXT NOT NULL,
    trusted INTEGER NOT NULL,
    place INTEGER NOT NULL,
    plan_number INTEGER NOT NULL,
    attempt_number INTEGER NOT NULL,
    fix_number INTEGER NOT NULL,
    state TEXT NOT NULL,
    device TEXT NOT NULL DEFAULT '',
    evaluation INTEGER REFERENCES evaluations(id),
    status TEXT,
    gate TEXT,
    latency_us REAL,
    speedup REAL,
    parent_speedup REAL,
    created_at REAL NOT NULL,
    started_at REAL,
    ended_at REAL
);
CREATE INDEX candidates_by_run ON candidates(run, iteration, place, plan_number, attempt_number, fix_number);
CREATE INDEX candidates_by_plan ON candidates(plan);
CREATE INDEX candidates_by_parent ON candidates(parent);
CREATE INDEX candidates_by_source ON candidates(source);
CREATE INDEX candidates_by_evaluation ON candidates(evaluation);
CREATE INDEX candidates_open ON candidates(state) WHERE state IN ('queued', 'running');
CREATE UNIQUE INDEX candidates_once ON candidates(attempt) WHERE attempt IS NOT NULL;

CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    workload TEXT NOT NULL,
    backend TEXT NOT NULL,
    chip TEXT NOT NULL,
    status TEXT NOT NULL,
    gate TEXT,
    source_sha256 TEXT NOT NULL,
    program_sha256 TEXT NOT NULL,
    failure_rule TEXT,
    failure_message TEXT,
    failure_line INTEGER,
    failure_hint TEXT,
    rel_l2 REAL,
    tolerance REAL,
    worst_row REAL,
    accelopt_verdict INTEGER,
    latency_us REAL,
    percent_of_peak REAL,
    percent_of_attainable REAL,
    sandbox_level TEXT NOT NULL,
    seconds TEXT NOT NULL,
    log TEXT NOT NULL,
    reused INTEGER NOT NULL,
    created_at REAL NOT NULL
);
CREATE INDEX evaluations_by_key ON evaluations(key);
CREATE INDEX evaluations_by_program ON evaluations(program_sha256, workload);

CREATE TABLE checks (
    evaluation INTEGER NOT NULL REFERENCES evaluations(id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    passed INTEGER NOT NULL,
    rel_l2 REAL,
    tolerance REAL,
    detail TEXT NOT NULL,
    PRIMARY KEY (evaluation, number)
) WITHOUT ROWID;

CREATE TABLE profiles (
    evaluation INTEGER PRIMARY KEY REFERENCES evaluations(id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    chip TEXT NOT NULL,
    api TEXT NOT NULL,
    latency_us REAL,
    method TEXT NOT NULL,
    sdk TEXT NOT NULL,
    resolution_us REAL NOT NULL,
    interval_percent REAL,
    bound TEXT NOT NULL,
    engines_us TEXT NOT NULL,
    counters TEXT NOT NULL,
    notes TEXT NOT NULL
);

CREATE TABLE profile_details (
    evaluation INTEGER PRIMARY KEY REFERENCES profiles(evaluation) ON DELETE CASCADE,
    details TEXT NOT NULL
);

CREATE TABLE samples (
    evaluation INTEGER NOT NULL REFERENCES profiles(evaluation) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    latency_us REAL NOT NULL,
    PRIMARY KEY (evaluation, number)
) WITHOUT ROWID;

CREATE TABLE llm_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    run INTEGER REFERENCES runs(id) ON DELETE CASCADE,
    iteration INTEGER NOT NULL,
    parent INTEGER,
    plan INTEGER,
    attempt INTEGER,
    role TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    prompt_sha256 TEXT NOT NULL,
    system_sha256 TEXT NOT NULL REFERENCES texts(sha256),
    user_sha256 TEXT NOT NULL REFERENCES texts(sha256),
    parameters TEXT NOT NULL,
    reserved_usd REAL,
    started_at REAL NOT NULL,
    ended_at REAL,
    outcome TEXT,
    error TEXT NOT NULL DEFAULT '',
    answer TEXT,
    reasoning TEXT,
    answered_by TEXT NOT NULL DEFAULT '',
    request_id TEXT NOT NULL DEFAULT '',
    finish_reason TEXT NOT NULL DEFAULT '',
    input_tokens INTEGER,
    cached_tokens INTEGER,
    cache_written_tokens INTEGER,
    output_tokens INTEGER,
    reasoning_tokens INTEGER,
    price TEXT,
    cost_usd REAL,
    estimated INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    first_token_s REAL,
    latency_s REAL
);
CREATE INDEX llm_calls_by_run ON llm_calls(run, id);
CREATE INDEX llm_calls_by_key ON llm_calls(key);
CREATE INDEX llm_calls_open ON llm_calls(id) WHERE outcome IS NULL;
CREATE INDEX llm_calls_by_time ON llm_calls(started_at);

CREATE TABLE insights (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER,
    iteration INTEGER NOT NULL,
    slow_candidate INTEGER,
    fast_candidate INTEGER,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    strategy TEXT NOT NULL,
    slow TEXT NOT NULL,
    fast TEXT NOT NULL,
    speedup REAL NOT NULL,
    chip TEXT NOT NULL,
    api TEXT NOT NULL,
    sdk TEXT NOT NULL,
    dtype TEXT NOT NULL,
    bound TEXT NOT NULL,
    tags TEXT NOT NULL,
    source TEXT NOT NULL,
    novelty REAL NOT NULL,
    uses INTEGER NOT NULL,
    wins INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    muted INTEGER NOT NULL,
    withdrawn INTEGER NOT NULL,
    created_at REAL NOT NULL,
    changed_at REAL NOT NULL
);
CREATE INDEX insights_by_run ON insights(run);

CREATE TABLE insight_uses (
    insight INTEGER NOT NULL REFERENCES insights(id) ON DELETE CASCADE,
    plan INTEGER NOT NULL REFERENCES plans(id) ON DELETE CASCADE,
    run INTEGER NOT NULL,
    outcome TEXT,
    ratio REAL,
    PRIMARY KEY (insight, plan)
) WITHOUT ROWID;
CREATE INDEX insight_uses_by_plan ON insight_uses(plan);

CREATE TABLE journal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER REFERENCES runs(id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    data TEXT NOT NULL,
    result TEXT,
    tries INTEGER NOT NULL DEFAULT 1,
    created_at REAL NOT NULL,
    ended_at REAL,
    UNIQUE (kind, key)
);
CREATE INDEX journal_open ON journal(run) WHERE state = 'intent';

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    run INTEGER,
    data TEXT NOT NULL
);
CREATE INDEX events_by_run ON events(run, seq);

CREATE TABLE steering (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    action TEXT NOT NULL,
    arguments TEXT NOT NULL,
    by TEXT NOT NULL,
    created_at REAL NOT NULL,
    applied_at REAL,
    result TEXT NOT NULL DEFAULT ''
);
CREATE INDEX steering_open ON steering(run) WHERE applied_at IS NULL;

CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL,
    text TEXT NOT NULL,
    by TEXT NOT NULL,
    created_at REAL NOT NULL
);
CREATE INDEX notes_by_subject ON notes(subject);

CREATE TABLE run_totals (
    run INTEGER PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE,
    plans INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    no_code INTEGER NOT NULL DEFAULT 0,
    candidates INTEGER NOT NULL DEFAULT 0,
    evaluated INTEGER NOT NULL DEFAULT 0,
    passed INTEGER NOT NULL DEFAULT 0,
    wins INTEGER NOT NULL DEFAULT 0,
    insights INTEGER NOT NULL DEFAULT 0,
    llm_calls INTEGER NOT NULL DEFAULT 0,
    failed_calls INTEGER NOT NULL DEFAULT 0,
    unpriced_calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cost_micro_usd INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE run_statuses (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    status TEXT NOT NULL,
    candidates INTEGER NOT NULL,
    PRIMARY KEY (run, status)
) WITHOUT ROWID;

CREATE TABLE failure_totals (
    workload TEXT NOT NULL,
    chip TEXT NOT NULL,
    status TEXT NOT NULL,
    rule TEXT NOT NULL,
    evaluations INTEGER NOT NULL,
    last_evaluation INTEGER NOT NULL,
    PRIMARY KEY (workload, chip, status, rule)
) WITHOUT ROWID;

CREATE TABLE rule_totals (
    rule TEXT NOT NULL,
    workload TEXT NOT NULL,
    candidates INTEGER NOT NULL DEFAULT 0,
    passed INTEGER NOT NULL DEFAULT 0,
    wins INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (rule, workload)
) WITHOUT ROWID;

CREATE TABLE model_totals (
    model TEXT NOT NULL,
    role TEXT NOT NULL,
    calls INTEGER NOT NULL DEFAULT 0,
    failed_calls INTEGER NOT NULL DEFAULT 0,
    unpriced_calls INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    cost_micro_usd INTEGER NOT NULL DEFAULT 0,
    latency_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (model, role)
) WITHOUT ROWID;

CREATE TABLE evaluation_keys (
    key TEXT PRIMARY KEY,
    workload TEXT NOT NULL,
    chip TEXT NOT NULL,
    evaluations INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    least_latency_us REAL,
    greatest_latency_us REAL,
    last_evaluation INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX evaluation_keys_repeated ON evaluation_keys(
    evaluations, passed, least_latency_us, greatest_latency_us, workload, chip, last_evaluation
) WHERE evaluations > 1;
"""

SEARCH_INDEXES = """
CREATE VIRTUAL TABLE plans_search USING fts5(title, text, content='plans', content_rowid='id', tokenize='porter');
CREATE TRIGGER plans_search_insert AFTER INSERT ON plans BEGIN
    INSERT INTO plans_search(rowid, title, text) VALUES (new.id, new.title, new.text);
END;
CREATE TRIGGER plans_search_delete AFTER DELETE ON plans BEGIN
    INSERT INTO plans_search(plans_search, rowid, title, text) VALUES ('delete', old.id, old.title, old.text);
END;

CREATE VIRTUAL TABLE insights_search USING fts5(
    title, strategy, tags, content='insights', content_rowid='id', tokenize='porter'
);
CREATE TRIGGER insights_search_insert AFTER INSERT ON insights BEGIN
    INSERT INTO insights_search(rowid, title, strategy, tags) VALUES (new.id, new.title, new.strategy, new.tags);
END;
CREATE TRIGGER insights_search_delete AFTER DELETE ON insights BEGIN
    INSERT INTO insights_search(insights_search, rowid, title, strategy, tags)
    VALUES ('delete', old.id, old.title, old.strategy, old.tags);
END;
CREATE TRIGGER insights_search_update AFTER UPDATE OF title, strategy, tags ON insights BEGIN
    INSERT INTO insights_search(insights_search, rowid, title, strategy, tags)
    VALUES ('delete', old.id, old.title, old.strategy, old.tags);
    INSERT INTO insights_search(rowid, title, strategy, tags) VALUES (new.id, new.title, new.strategy, new.tags);
END;

CREATE VIRTUAL TABLE failures_search USING fts5(
    failure_rule, failure_message, content='evaluations', content_rowid='id', tokenize='porter'
);
CREATE TRIGGER failures_search_insert AFTER INSERT ON evaluations WHEN new.failure_rule IS NOT NULL BEGIN
    INSERT INTO failures_search(rowid, failure_rule, failure_message)
    VALUES (new.id, new.failure_rule, new.failure_message);
END;
CREATE TRIGGER failures_search_delete AFTER DELETE ON evaluations WHEN old.failure_rule IS NOT NULL BEGIN
    INSERT INTO failures_search(failures_search, rowid, failure_rule, failure_message)
    VALUES ('delete', old.id, old.failure_rule, old.failure_message);
END;
"""

HOSTS = """
CREATE TABLE hosts (
    name TEXT PRIMARY KEY,
    instance_type TEXT NOT NULL,
    chip TEXT NOT NULL,
    sdk TEXT NOT NULL,
    driver TEXT NOT NULL,
    slots INTEGER NOT NULL,
    usd_per_hour REAL,
    seen_at REAL NOT NULL
) WITHOUT ROWID;

CREATE VIEW host_costs AS
SELECT h.name AS host, h.instance_type AS instance_type, c.run AS run, count(*) AS evaluations,
       sum(c.ended_at - c.started_at) / 3600.0 AS slot_hours, h.usd_per_hour AS usd_per_hour,
       sum(c.ended_at - c.started_at) / 3600.0 * h.usd_per_hour / h.slots AS usd
FROM hosts h JOIN candidates c ON c.device = h.name AND c.ended_at IS NOT NULL GROUP BY h.name, c.run;
"""
"""Schema version 3: the hosts of a fleet, and what each run used of them.

A slot of a host costs the host's price per hour divided by its number of slots.
"""
