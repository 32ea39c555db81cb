"""A client that answers from a made-up history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from typing import Any

from acceld.errors import DaemonError
from acceld.events import Event, event_json
from acceld.gains import Verdict
from acceld.tui.console import ConsoleView
from acceld.tui.state import RunView
from tests.tui.scene import events_of, renumbered


class CannedClient:
    """Answers routes from folded events; requests to change something are kept in ``sent``."""

    read_only = False
    where = "canned"

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.sent: list[tuple[str, str, Mapping[str, Any] | None]] = []
        self.past = list(events) or history()
        self.future: asyncio.Queue[list[Event]] = asyncio.Queue()
        self.console = ConsoleView()
        for run in sorted({event.run for event in self.past if event.run}):
            self.console.open(run)
        for event in self.past:
            self.console.apply(event)
        self.extra: dict[str, Any] = {}

    async def get(self, path: str, **parameters: Any) -> Any:
        if path in self.extra:
            return self.extra[path]
        match path.strip("/").split("/"):
            case ["v1", "hello"]:
                return {"api": 1, "version": "0.1.0", "last_seq": self.console.seq}
            case ["v1", "runs"]:
                return {"runs": [self._run(run) for run in self.console.runs]}
            case ["v1", "runs", number]:
                return self._run(int(number))
            case ["v1", "runs", number, "plans"]:
                return {"plans": [vars_of(plan) for plan in self.console.views[int(number)].plans.values()]}
            case ["v1", "runs", number, "candidates"]:
                rows = [
                    vars_of(one) | {"evaluation": one.id} for one in self.console.views[int(number)].candidates.values()
                ]
                after = int(parameters.get("after") or 0)
                return {"candidates": [row for row in rows if row["id"] > after][: parameters.get("limit", 500)]}
            case ["v1", "candidates", number]:
                return self._candidate(int(number))
            case ["v1", "insights"]:
                return {"insights": INSIGHTS}
            case ["v1", "tables"]:
                return {"tables": TABLES}
            case ["v1", "history"]:
                return {"saved": SAVED}
            case ["v1", "queue"]:
                return {"queue": {"slots": 2, "sandbox_level": "L3"}, "running": [], "waiting": [], "devices": []}
            case ["v1", "costs"]:
                return self._costs(int(parameters["run"]))
            case ["v1", "events"]:
                return {"events": [event_json(e) for e in self.past if e.seq > parameters.get("after", 0)]}
            case ["v1", "runs", number, "events"]:
                found = [e for e in self.past if e.run == int(number) and e.seq > parameters.get("after", 0)]
                return {"events": found}
        raise DaemonError(f"no canned answer for {path}")

    def _run(self, number: int) -> dict[str, Any]:
        row = self.console.runs[number]
        view = self.console.views[number]
        spec = {name: getattr(row, name) for name in ("workload", "chip", "api", "backend", "proposer", "preset")}
        return {
            "id": number,
            **spec,
            "spec": {**spec, "search": view.search},
            "state": row.state,
            "message": row.message,
            "iteration": row.iteration,
            "baseline_latency_us": row.baseline_us,
            "best_latency_us": row.best_us,
            "speedup": row.speedup,
            "improved": row.verdict is Verdict.CERTAIN,
            "verdict": row.verdict,
            "tie_band": 34.0,
            "percent_of_peak_after": row.percent_of_peak,
            "candidates": row.candidates,
            "cost_usd": row.cost_usd,
            "created_at": row.created_at,
            "started_at": row.created_at + 0.5,
            "ended_at": row.ended_at,
            "baseline": view.baseline.id if view.baseline else None,
            "best": view.best.candidate if view.best else None,
            "beams": [
                {
                    "iteration": n,
                    "selected": list(beam),
                    "best": beam[0],
                    "best_latency_us": view.candidates[beam[0]].latency_us,
                    "speedup": view.candidates[beam[0]].speedup,
                    "improved": view.candidates[beam[0]].verdict is Verdict.CERTAIN,
                    "verdict": view.candidates[beam[0]].verdict,
                }
                for n, (_, beam) in sorted(view.beams.items())
            ],
        }

    def _candidate(self, number: int) -> dict[str, Any]:
        view = next(view for view in self.console.views.values() if number in view.candidates)
        one = view.candidates[number]
        plan = view.plans.get(one.plan or 0)
        rule, _, message = one.failure.partition(": ")
        passed = one.status == "passed"
        profile: dict[str, Any] = {
            "source": "simulated",
            "chip": view.chip,
            "latency_us": one.latency_us,
            "method": "compiler_legacy",
            "interval_percent": 12.0,
            "bound": one.bound,
            "engines_us": {"dma": (one.latency_us or 0) * 0.86, "pe": 121.0, "act": 96.5, "dve": 40.1},
            "counters": {
                "hbm_read_bytes": 33_554_432.0,
                "hbm_write_bytes": 16_777_216.0,
                "written_read_bytes": 67_108_864.0,
                "dma_descriptors": 65_536.0,
            },
            "notes": [],
            "details": {
                "hot_spots": [{"line": 9, "busy_us": 310.2}, {"line": 12, "busy_us": 88.0}],
                "figure_class": {
                    "hbm_read_bytes": "modelled",
                    "hbm_write_bytes": "modelled",
                    "written_read_bytes": "exact",
                    "dma_descriptors": "exact",
                },
            },
        }
        return {
            **vars_of(one),
            "run": view.id,
            "state": "done",
            "title": plan.title if plan else "",
            "rule": plan.rule if plan else "",
            "change_class": "dma",
            "plan_text": "The row loop loads gamma 32 times; it does not depend on the row.\nLoad it once before the loop.",
            "plan_line": 9,
            "interval_percent": 12.0,
            "failure_rule": rule or None,
            "failure_message": message or None,
            "failure_line": 9 if message else None,
            "text": SOURCE.replace("32", str(number % 7 + 20)),
            "parent_text": SOURCE if one.parent else None,
            "children": view.children.get(number, []),
            "calls": [
                {
                    "role": "executor",
                    "model": "gpt-oss-120b",
                    "outcome": "answered",
                    "input_tokens": 18_200,
                    "output_tokens": 2_100,
                    "cost_usd": 0.0312,
                }
            ]
            if one.parent
            else [],
            "insights_seen": [{"id": 38, "title": "Hoist loop-invariant loads", "speedup": 1.16}],
            "insights_taught": [],
            "lineage": [
                {
                    "id": n,
                    "iteration": view.candidates[n].iteration,
                    "latency_us": view.candidates[n].latency_us,
                    "speedup": view.candidates[n].speedup,
                    "parent_speedup": _step(view, n),
                    "title": view.plans[made_by].title if (made_by := view.candidates[n].plan) else "",
                    "source": "simulated",
                    "percent_of_peak": view.candidates[n].percent_of_peak,
                }
                for n in view.path(number)
            ],
            "evaluation_record": {
                "rel_l2": 1.1e-7,
                "tolerance": 2e-5,
                "seconds": {"trace": 0.12, "execute": 0.41},
                "log": "",
                "failure_rule": rule or None,
                "failure_message": message or None,
                "failure_line": 9 if message else None,
                "checks": [
                    {"name": f"own/seed {seed}", "passed": True, "rel_l2": 1.1e-7, "tolerance": 2e-5, "detail": ""}
                    for seed in range(3)
                ]
                if passed
                else [],
                "profile": profile if passed else None,
            },
        }

    def _costs(self, run: int) -> dict[str, Any]:
        view = self.console.views[run]
        rows = [
            {
                "role": role,
                "model": model,
                "calls": use.calls,
                "failed_calls": use.failed,
                "input_tokens": use.input_tokens,
                "cached_tokens": use.input_tokens * 2 // 3,
                "output_tokens": use.output_tokens,
                "cost_usd": use.cost_usd,
                "latency_s": use.latency_ms / 1000,
            }
            for (role, model), use in sorted(view.uses.items())
        ]
        iterations = [{"iteration": n, "cost_usd": 0.2 + 0.07 * (n % 3)} for n in range(1, view.iteration + 1)]
        return {"cost_usd": view.cost_usd, "by_model": rows, "by_iteration": iterations, "budget": {"cap_usd": 20.0}}

    async def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        self.sent.append((method, path, body))
        return ROWS if path == "/v1/query" else {}

    async def events(self, after: int) -> AsyncIterator[list[Event]]:
        while True:
            yield await self.future.get()

    async def close(self) -> None:
        """Do nothing."""


SOURCE = '''"""RMSNorm followed by a matrix product."""

import neuronxcc.nki.language as nl
from neuronxcc import nki


@nki.jit
def kernel(x, gamma, w):
    out = nl.ndarray((4096, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(32):  # tiles of 128 rows
        tile = nl.load(x[row * 128 : (row + 1) * 128, :])
        scale = nl.load(gamma)
        norm = nl.rsqrt(nl.mean(nl.square(tile), axis=1) + 1e-6)
        nl.store(out[row * 128 : (row + 1) * 128, :], nl.matmul(tile * norm * scale, w))
    return out
'''

INSIGHTS = [
    {
        "id": 38,
        "run": 3,
        "iteration": 4,
        "slow_candidate": 2001,
        "fast_candidate": 2006,
        "kind": "positive",
        "title": "Hoist loop-invariant loads",
        "strategy": "A load whose address does not depend on the loop is paid on "
        "every pass. Move it before the loop and keep the tile in SBUF; check that the pool still fits.",
        "slow": SOURCE,
        "fast": SOURCE.replace("    for row", "    scale = nl.load(gamma)\n    for row"),
        "speedup": 1.16,
        "chip": "trn1",
        "api": "nki_legacy",
        "dtype": "float32",
        "bound": "DMA",
        "source": "simulated",
        "uses": 11,
        "wins": 4,
        "losses": 7,
        "win_rate": 0.36,
        "change": "dma",
        "confirmations": 2,
        "held": [
            {
                "chip": "trn1",
                "api": "nki_legacy",
                "workload": "silu",
                "source": "simulated",
                "speedup": 1.16,
                "times": 2,
            },
            {
                "chip": "trn2",
                "api": "nki",
                "workload": "rmsnorm_bf16",
                "source": "simulated",
                "speedup": 1.1,
                "times": 1,
            },
        ],
        "pinned": True,
    },
    {
        "id": 31,
        "run": 2,
        "iteration": 2,
        "slow_candidate": 1001,
        "fast_candidate": 1004,
        "kind": "negative",
        "title": "Splitting rows below 512 bytes",
        "strategy": "Rows under 512 B halve the DMA rate.",
        "slow": SOURCE,
        "fast": SOURCE,
        "speedup": 1.31,
        "chip": "trn1",
        "api": "nki_legacy",
        "source": "simulated",
        "uses": 2,
        "wins": 0,
        "losses": 2,
        "win_rate": 0.0,
        "muted": True,
    },
]


def vars_of(record: Any) -> dict[str, Any]:
    """Return fields of a record with slots."""
    return {name: getattr(record, name) for name in record.__slots__}


@cache
def _history() -> tuple[Event, ...]:
    found = renumbered(events_of(1, iterations=2, width=2, seed=5, proposer="rules", ends="finished"), 1)
    first = len(found) + 1
    found += renumbered(events_of(2, iterations=2, seed=3, first_candidate=1001, ends="cancelled"), first)
    first = len(found) + 1
    found += renumbered(events_of(3, iterations=5, seed=11, first_candidate=2001), first)
    return tuple(found)


def history() -> list[Event]:
    """Return three runs: one that ended, one with a larger beam, and one that is active."""
    return list(_history())


def now() -> float:
    """Return a fixed time, ten minutes after the last event."""
    return _history()[-1].at + 600


TABLES = [
    {"name": "history", "columns": ["id", "workload", "chip", "speedup", "cost_usd", "created_at"]},
    {"name": "rewrites", "columns": ["run", "parent", "child", "speedup", "rule"]},
    {"name": "candidates", "columns": ["id", "run", "parent", "iteration", "state"]},
    {"name": "runs", "columns": ["id", "workload", "state", "speedup"]},
]
SAVED = [
    {"name": "best", "about": "the fastest kernel of each workload and chip", "sql": "SELECT * FROM history"},
    {"name": "failures", "about": "why candidates fail, the most frequent first", "sql": "SELECT rule FROM candidates"},
]
ROWS = {
    "columns": ["run", "workload", "speedup", "created_at", "message"],
    "rows": [
        ["r2", "rmsnorm_matmul", 1.7012345678, 1_790_000_000.0, None],
        ["r1", "nkibench/silu", 1.0, 1_790_000_060.5, "a text\nof two lines, " * 5],
    ],
    "truncated": False,
}


def _step(view: RunView, candidate: int) -> float | None:
    """Return the speed-up of a candidate over its parent."""
    node = view.candidates[candidate]
    parent = view.candidates.get(node.parent or 0)
    return parent.latency_us / node.latency_us if parent and parent.latency_us and node.latency_us else None
