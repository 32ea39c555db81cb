"""Events as spans and metrics, collected in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from acceld.config import TelemetryConfig
from acceld.daemon.telemetry import Telemetry, export
from acceld.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateStarted,
    Event,
    LlmCallFinished,
    LlmCallStarted,
    RunStateChanged,
)
from acceld.model import RunState, Status
from tests.acceld.daemon.conftest import begun_store

HAPPENED: tuple[Any, ...] = (
    RunStateChanged(RunState.RUNNING),
    LlmCallStarted(5, "planner", "tiny"),
    LlmCallFinished(5, "planner", "tiny", "answered", 900, 100, 50, 0.002, 1.5),
    CandidateStarted(3, "simulator:0"),
    CandidateEvaluated(3, 9, Status.PASSED, 40.0, speedup=1.5, gate="strict", source="simulated"),
    BestChanged(3, 40.0, 1.5),
    CandidateStarted(4, "simulator:1"),
    RunStateChanged(RunState.FAILED, "no money"),
)


def reported(*, close: bool = True) -> tuple[dict[str, ReadableSpan], dict[str, list[float]]]:
    """Return the spans by name and each metric's values, for events that are one second apart."""
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traces, metrics = TracerProvider(), MeterProvider([reader])
    traces.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(traces, metrics, lambda: {"waiting": 4, "slots_in_use": 2, "sandbox_level": "L3"})
    for seq, data in enumerate(HAPPENED, 1):
        telemetry.take(Event(seq=seq, at=1000.0 + seq, run=12, data=data))
    if close:
        telemetry.close()
    values: dict[str, list[float]] = {}
    found = reader.get_metrics_data()
    assert found is not None
    for scope in found.resource_metrics[0].scope_metrics:
        for metric in scope.metrics:
            for point in metric.data.data_points:
                value = getattr(point, "value", None)
                values.setdefault(metric.name, []).append(point.sum if value is None else value)  # type: ignore[union-attr]
    metrics.shutdown()
    return {
        f"{span.name} {(span.attributes or {}).get('acceld.candidate', '')}".strip(): span
        for span in spans.get_finished_spans()
    }, values


def test_runs_calls_and_evaluations_are_spans_one_below_the_other() -> None:
    spans, _ = reported()
    run, call, evaluated = spans["run"], spans["chat tiny"], spans["evaluate c3"]
    assert run.attributes is not None and call.attributes is not None and evaluated.attributes is not None
    assert run.context is not None and call.parent is not None and evaluated.parent is not None
    assert call.parent.span_id == evaluated.parent.span_id == run.context.span_id
    assert run.attributes["acceld.run"] == "r12"
    assert (run.start_time, run.end_time) == (1001 * 10**9, 1008 * 10**9)
    assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "no money")
    assert [event.name for event in run.events] == ["running", "best", "failed"]
    assert call.attributes["gen_ai.usage.input_tokens"] == 900
    assert (evaluated.attributes["acceld.status"], evaluated.attributes["acceld.latency_us"]) == ("passed", 40.0)
    assert "evaluate c4" in spans, "what is under way ends with the daemon"


def test_figures_of_calls_results_and_the_queue_are_metrics() -> None:
    _, values = reported(close=False)
    assert values["acceld.evaluations"] == [1]
    assert values["acceld.evaluation.duration"] == [1.0]
    assert values["gen_ai.client.operation.duration"] == [1.5]
    assert sorted(values["gen_ai.client.token.usage"]) == [50, 900]
    assert values["acceld.llm.cost"] == [0.002]
    assert values["acceld.run.speedup"] == [1.5]
    assert (values["acceld.queue.waiting"], values["acceld.queue.slots_in_use"]) == ([4], [2])
    assert "acceld.queue.oldest_waiting" not in values


async def test_nothing_is_exported_unless_an_endpoint_is_configured(tmp_path: Path) -> None:
    async with begun_store(tmp_path) as store:
        async with asyncio.timeout(300):
            await export(store, TelemetryConfig(), dict)
