"""Write a report as one HTML file, for light and dark screens and for paper. It has no script and loads nothing."""

from __future__ import annotations

import difflib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from acceld import figures
from acceld.model import OWN_ORACLE, PRESETS, SEARCH_OPTIONS
from acceld.report import svg
from acceld.report.endings import why
from acceld.report.facts import RunFacts
from acceld.roofline import peak_source

STYLE = """
:root { --paper: #fbfaf7; --ink: #23272e; --faint: #6b7480; --line: #e2ded5; --card: #f4f2ed; --good: #3b7a2c;
  --bad: #b03a3e; --main: #2f6592; --soft: #b9c6d2; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --ink: #d5d9e0; --faint: #8f9fb3; --line: #2a3039;
  --card: #191d23; --good: #8fbf7f; --bad: #d9777a; --main: #7aa2c8; --soft: #48566a; } }
@media print { :root { --paper: #fff; --ink: #000; --faint: #555; --line: #ccc; --card: #fff; --good: #245c19;
  --bad: #8e2a2e; --main: #2f6592; --soft: #b9c6d2; } details::details-content { content-visibility: visible; display: block; block-size: auto; }
  pre { white-space: pre-wrap; } section { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 860px; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.05rem; margin: 2.25rem 0 .6rem; }
.headline { font-size: 1.25rem; margin: .75rem 0; } .headline b { color: var(--good); } .headline.same b { color: var(--faint); }
.faint, figcaption { color: var(--faint); } figcaption { font-size: .85rem; margin-top: .3rem; }
figure { margin: 0; } svg { width: 100%; height: auto; display: block; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .6rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .6rem .8rem; }
.card b { display: block; font-size: 1.15rem; } .card span { color: var(--faint); font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; } td, th { text-align: left; padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; } th { color: var(--faint); font-weight: 500; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .7rem .9rem; overflow-x: auto;
  font: 12.5px/1.5 ui-monospace, monospace; margin: .4rem 0; }
.add { color: var(--good); } .del { color: var(--bad); } .hunk { color: var(--main); }
"""


def page(runs: Sequence[RunFacts], version: str) -> str:
    """Return one HTML document with a report on each run."""
    title = runs[0].title if len(runs) == 1 else f"{len(runs)} runs"
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += _several(runs) if len(runs) > 1 else []
    for facts in runs:
        if len(runs) > 1:
            parts.append(f"<h1 id='r{facts.number}'>r{facts.number}: {escape(facts.title)}</h1>")
        parts += _one(facts)
    parts.append(f'<p class="faint">acceld {escape(version)}</p>')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>acceld: {escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


TWO_MODELS = "These runs were timed by different versions or calibrations of the performance model; their latencies do not compare."


def headline(facts: RunFacts) -> str:
    """Return the run's outcome in one sentence, with the speed-up's interval and label."""
    o = facts.outcome
    if o["best_latency_us"] is None:
        return f"Nothing passed: {o['message'] or 'no reason given'}."
    before = figures.latency(o["baseline_latency_us"], o["source"], o["chip"], o["baseline_interval_percent"])
    after = figures.latency(o["best_latency_us"], o["source"], o["chip"], o["interval_percent"])
    gain = _gained(o)
    if not o["improved"]:
        return f"Nothing clearly faster: {gain}, {before} to {after}."
    turns = f" Interleaved: {figures.paired(o['paired'])}." if o["paired"] else ""
    return f"{gain} faster: {before} to {after}.{turns}"


def _gained(o: Mapping[str, Any]) -> str:
    """Return a run's speed-up with its uncertainty. The word ``tie`` marks a speed-up that is no win."""
    return figures.gained(o["speedup"], o["verdict"], o["tie_band"], o["tie_reason"])


def _several(runs: Sequence[RunFacts]) -> Iterable[str]:
    rows = [(f.title, f.outcome["percent_of_peak_before"], f.outcome["percent_of_peak_after"]) for f in runs]
    yield _section(
        "Percent of peak", _figure(svg.peak_bars(rows), "Before (light) and after, each against the peaks of its chip.")
    )
    sources = {facts.outcome["source"] for facts in runs}
    if len(sources) > 1:
        yield "<p><b>Simulated and measured runs stand side by side here; their latencies do not compare.</b></p>"
    if len({facts.outcome["model"] for facts in runs if facts.outcome["model"]}) > 1:
        yield f"<p><b>{TWO_MODELS}</b></p>"
    table = [
        (
            f"<a href='#r{f.number}'>r{f.number}</a>",
            escape(f.title),
            figures.duration(f.outcome["baseline_latency_us"]),
            figures.duration(f.outcome["best_latency_us"]),
            figures.brief_gain(f.outcome["speedup"], f.outcome["verdict"]),
            "yes" if f.improved else "no",
            f.outcome["source"],
        )
        for f in runs
    ]
    heads = ("run", "workload", "baseline", "best", "speed-up", "clearly faster", "source")
    yield _section("Runs", _table(heads, table, numbers={2, 3, 4}, raw={0}))


def _one(facts: RunFacts) -> Iterable[str]:
    o, run = facts.outcome, facts.run
    yield f'<p class="headline{"" if facts.improved else " same"}"><b>{escape(headline(facts))}</b></p>'
    if lost := why(facts.outcome):
        yield f"<p>{escape(lost)}</p>"
    label = "Simulated: no chip ran this." if o["source"] == "simulated" else "Measured on the device."
    yield f'<p class="faint">{label} Method {escape(o["method"] or "unknown")}, API {escape(o["api"])}, proposals by {escape(o["proposer"])}.</p>'
    if o["timed_again"]:
        yield f'<p class="faint">{escape(o["timed_again"])}.</p>'
    if o["has_reference"] is False:
        yield f'<p class="faint">No reference: results are evaluated {escape(OWN_ORACLE)}.</p>'
    cards = [
        (figures.brief_gain(o["speedup"], o["verdict"]), "speed-up"),
        (
            f"{figures.percent(o['percent_of_peak_before'])} → {figures.percent(o['percent_of_peak_after'])}",
            "of peak",
        ),
        (str(sum(o["counts"].values())), f"candidates, {o['counts']['passed']} passed"),
        (figures.usd(facts.costs.get("cost_usd")), f"model cost, {facts.costs.get('calls') or 0} calls"),
        (figures.elapsed(o["elapsed_s"]), "elapsed"),
    ]
    yield (
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{escape(b)}</b><span>{escape(s)}</span></div>' for b, s in cards)
        + "</div>"
    )
    peaks = [
        ("of peak", o["percent_of_peak_before"], o["percent_of_peak_after"]),
        ("of attainable", o["percent_of_attainable_before"], o["percent_of_attainable_after"]),
    ]
    if any(after is not None for _, _, after in peaks):
        caption = f"Before (light) and after, of {peak_source(o['chip'])}. Bound before: {o['bound_before'] or 'unknown'}; after: {o['bound_after'] or 'unknown'}."
        if beyond := figures.beyond_peak(max(share or 0 for _, *shares in peaks for share in shares)):
            caption += f" {beyond[0].upper()}{beyond[1:]}."
        yield _section("Percent of peak", _figure(svg.peak_bars(peaks), caption))
    yield from _progress(facts)
    nodes = [
        (c["id"], c["parent"], c["iteration"], c["speedup"] if c["latency_us"] else None) for c in facts.candidates
    ]
    drawn = svg.tree(nodes, run["best"])
    if drawn:
        yield _section("Candidates", _figure(drawn, "A dot a candidate; the line leads from the baseline to the best."))
    yield from _steps(facts)
    yield from _failures(facts)
    if facts.insights:
        rows = [
            (i["title"], i["kind"], figures.speedup(i["speedup"]), str(i["uses"]), _rate(i), i["strategy"])
            for i in facts.insights
        ]
        yield _section(
            "Insights", _table(("insight", "kind", "gain", "used", "won", "strategy"), rows, numbers={2, 3, 4})
        )
    yield from _steering(facts)
    yield from _costs(facts)
    yield from _environment(facts)


def _steering(facts: RunFacts) -> Iterable[str]:
    """Yield what people did to the run. These actions are not part of the command that starts the same search."""
    rows = [(figures.moment(event["at"]), *steered(event["data"])) for event in facts.steering]
    if rows:
        yield _section("Steering", _table(("when", "by", "action", "result"), rows))


def steered(data: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return (who acted, the action with its arguments, its result) for an action on a run."""
    arguments = {key: value for key, value in data.items() if key not in ("action", "by", "result")}
    told = ", ".join(f"{key} {value}" for key, value in arguments.items())
    return str(data.get("by") or ""), f"{data['action']}{': ' + told if told else ''}", str(data.get("result") or "")


def _progress(facts: RunFacts) -> Iterable[str]:
    base = facts.outcome["baseline_latency_us"]
    if not base:
        return
    points, best = [(0.0, 1.0)], 1.0
    spent, by_cost = 0.0, [(0.0, 1.0)]
    money = {row["iteration"]: row.get("cost_usd") or 0.0 for row in facts.costs.get("by_iteration") or ()}
    for beam in facts.run.get("beams") or ():
        spent += money.get(beam["iteration"], 0.0)
        if beam.get("speedup") and beam["speedup"] > best:
            best = beam["speedup"]
            points.append((float(beam["iteration"]), best))
            by_cost.append((spent, best))
    end = float(facts.run["iteration"])
    yield _section(
        "Best so far",
        _figure(
            svg.steps(points, "iteration", "speed-up", end, counted=True), "Speed-up over the baseline by iteration."
        ),
    )
    if spent:
        yield _figure(svg.steps(by_cost, "USD spent", "speed-up", spent), "The same by money spent.")


def _steps(facts: RunFacts) -> Iterable[str]:
    wins = facts.outcome["wins"]
    if wins:
        rows = [
            (
                f"c{w['candidate']}",
                f"{w['title'] or w['rule'] or ''}{figures.crossed(w['partner'])}",
                w["change_class"],
                figures.duration(w["latency_us"]),
                figures.brief_gain(w["speedup"], w["verdict"]),
            )
            for w in wins
        ]
        yield _section(
            "What won" if facts.improved else "The steps to the best kernel",
            _table(("candidate", "change", "class", "latency", "over its parent"), rows, numbers={3, 4}),
        )
    best, base = facts.best, facts.baseline
    if best and base and best["id"] != base["id"]:
        lines = difflib.unified_diff(
            base["text"].splitlines(), best["text"].splitlines(), "baseline", f"c{best['id']}", lineterm=""
        )
        yield _section("The winning diff", f"<pre>{_diff(lines)}</pre>")
        record = best.get("evaluation_record") or {}
        checks = record.get("checks") or ()
        if checks:
            good = sum(1 for check in checks if check["passed"])
            worst = (
                f", greatest relative L2 error {record['rel_l2']:.1e} of {record['tolerance']:.1e}"
                if record.get("rel_l2") is not None
                else ""
            )
            yield f"<p>Correctness: {good} of {len(checks)} checks passed at the {escape(str(best.get('gate')))} gate{worst}.</p>"
        yield f"<details><summary>The best kernel, c{best['id']}</summary><pre>{escape(best['text'])}</pre></details>"


def _diff(lines: Iterable[str]) -> str:
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    return "\n".join(f'<span class="{kinds.get(line[:1], "")}">{escape(line)}</span>' for line in lines)


def _failures(facts: RunFacts) -> Iterable[str]:
    children = [c for c in facts.candidates if c["parent"] is not None]
    counts = Counter(c["status"] or "waiting" for c in children)
    if not counts:
        return
    yield _section("What became of the candidates", _figure(svg.shares(dict(counts.most_common())), "By status."))
    reasons = Counter((c["status"], c["failure_rule"]) for c in children if c["failure_rule"])
    if reasons:
        first = {(c["status"], c["failure_rule"]): c for c in reversed(children) if c["failure_rule"]}
        rows = [
            (
                status,
                rule,
                str(number),
                f"c{first[status, rule]['id']}: {(first[status, rule]['failure_message'] or '')[:160]}",
            )
            for (status, rule), number in reasons.most_common(12)
        ]
        yield _table(("status", "rule", "times", "for example"), rows, numbers={2})
    doubtful = [c for c in children if c["status"] in ("suspect", "rejected")]
    if doubtful:
        rows2 = [
            (f"c{c['id']}", c["status"], figures.duration(c["latency_us"]), c["failure_message"] or "")
            for c in doubtful[:20]
        ]
        yield _section("Refused", _table(("candidate", "status", "claimed", "why"), rows2, numbers={2}))


def _costs(facts: RunFacts) -> Iterable[str]:
    rows = [
        (
            r["role"],
            r["model"],
            str(r["calls"]),
            str(r["failed_calls"]),
            f"{r['input_tokens'] or 0:,}",
            f"{r['output_tokens'] or 0:,}",
            figures.usd(r["cost_usd"]),
        )
        for r in facts.costs.get("by_model") or ()
    ]
    if rows:
        yield _section(
            "Model calls",
            _table(
                ("role", "model", "calls", "failed", "tokens in", "tokens out", "USD"), rows, numbers={2, 3, 4, 5, 6}
            ),
        )


def _environment(facts: RunFacts) -> Iterable[str]:
    o, run = facts.outcome, facts.run
    record = (facts.best or facts.baseline or {}).get("evaluation_record") or {}
    profile = record.get("profile") or {}
    search = run.get("search") or {}
    rows = [
        ("chip and API", f"{run['chip']}, {run['api']}, backend {run['backend']}"),
        ("timing", f"{profile.get('method') or 'unknown'}{', SDK ' + profile['sdk'] if profile.get('sdk') else ''}"),
        ("sandbox", str(record.get("sandbox_level") or "unknown")),
        ("search", ", ".join(f"{key} {value}" for key, value in search.items() if value not in (None, "", 0))),
        ("state", f"{o['state']}: {o['message']}" if o["message"] else o["state"]),
        ("source of the best", (facts.best or {}).get("sha256") or "none"),
    ]
    words, settings, further = command(run, facts.baseline or {})
    body = _table(("", ""), rows) + f"<p>To do it again:</p><pre>{escape(words)}</pre>"
    if settings:
        body += f"<p>with these settings in acceld.toml:</p><pre>{escape(settings)}</pre>"
    if further:
        told = json.dumps({"search": further})
        body += f"<p>with these parameters, which only POST /v1/runs takes:</p><pre>{escape(told)}</pre>"
    yield _section("Environment", body)


_FLAGS = {"beam_width": "--beam"}
_SETTINGS = {"show_simulated": "search", "tools": "llm.executor"}
"""Search parameters that have no flag, with the table of acceld.toml that sets them."""
_NO_FLAG = frozenset({"top_k", "memory_size", "t_pos", "t_neg", "own_insights"})
"""Search parameters that neither a flag nor acceld.toml sets."""


def command(run: Mapping[str, Any], baseline: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return what starts the same search: (command, lines of acceld.toml, other parameters by name).

    The command has every option that differs from the preset. The lines of acceld.toml set what has no option. The
    other parameters are those that neither can set. Lines and other parameters are often empty.
    """
    target = [run["workload"]]
    if run.get("root_sha256"):
        target = [str(baseline.get("filename") or "kernel.py"), "--workload", run["workload"]]
    words = ["acceld", "optimize", *target, "--chip", run["chip"], "--api", run["api"]]
    if run["backend"] != "simulator":
        words += ["--backend", run["backend"]]
    words += ["--preset", run["preset"], "--proposer", run["proposer"], "--seed", str(run["seed"])]
    preset = PRESETS.get(run["preset"], PRESETS["standard"])
    settings, further = [], {}
    for name, value in (run.get("search") or {}).items():
        if name == "seed" or name not in SEARCH_OPTIONS or value == getattr(preset, name):
            continue
        if name in _SETTINGS:
            settings.append(f"[{_SETTINGS[name]}]\n{name} = {json.dumps(value)}")
        elif name in _NO_FLAG:
            further[name] = value
        elif name == "planner":
            words.append("--no-planner")
        elif name == "screen":
            words += ["--screen", "simulator" if value else "off"]
        elif name == "from_reference":
            words.append("--from-reference")
        elif value is not None:
            words += [_FLAGS.get(name, f"--{name.replace('_', '-')}"), str(value)]
    if run.get("name"):
        words += ["--name", run["name"]]
    return shlex.join(words), "\n".join(settings), further


def _rate(insight: Any) -> str:
    rate = insight.get("win_rate")
    return f"{100 * rate:.0f} %" if rate is not None else "—"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int] = (), raw: Iterable[int] = ()
) -> str:
    right, whole = set(numbers), set(raw)
    head = (
        "".join(f"<th{' class=n' if i in right else ''}>{escape(h)}</th>" for i, h in enumerate(heads))
        if any(heads)
        else ""
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if i in right else ''}>{cell if i in whole else escape(cell)}</td>"
            for i, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"
