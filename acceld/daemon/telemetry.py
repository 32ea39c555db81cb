"""Export runs, model calls and evaluations as OpenTelemetry spans and metrics, if [telemetry] names an endpoint.

Everything is derived from events, so that the export never delays or changes a run. The attributes of calls have the
names of OpenTelemetry's conventions for generative AI. Texts of prompts, answers and kernels are never exported. The
export needs the extra ``otel``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from acceld.config import TelemetryConfig
from acceld.errors import ConfigError
from acceld.events import (
    BestChanged,
    CandidateEvaluated,
    CandidateStarted,
    Event,
    LlmCallFinished,
    LlmCallStarted,
    RunCreated,
    RunStateChanged,
)
from acceld.model import RunState
from acceld.store.database import Store

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, TracerProvider

log = logging.getLogger(__name__)

NAME = "acceld"
NANOSECONDS = 1_000_000_000
QUEUE_GAUGES = {
    "acceld.queue.waiting": ("waiting", "evaluations that wait for a slot"),
    "acceld.queue.slots_in_use": ("slots_in_use", "slots that evaluate something"),
    "acceld.queue.oldest_waiting": ("oldest_waiting_s", "seconds that the oldest waiting evaluation has waited"),
}

Statistics = Callable[[], Mapping[str, Any]]


class Telemetry:
    """Turn events into spans and metrics of two OpenTelemetry providers."""

    def __init__(self, traces: TracerProvider, metrics: MeterProvider, statistics: Statistics) -> None:
        self._tracer = traces.get_tracer(NAME)
        meter = metrics.get_meter(NAME)
        self._statistics = statistics
        self._runs: dict[int, Span] = {}
        self._calls: dict[int, Span] = {}
        self._evaluations: dict[int, Span] = {}
        self._evaluation_count = meter.create_counter("acceld.evaluations", unit="{evaluation}")
        self._durations = meter.create_histogram("acceld.evaluation.duration", unit="s")
        self._calling = meter.create_histogram("gen_ai.client.operation.duration", unit="s")
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", unit="{token}")
        self._cost = meter.create_counter("acceld.llm.cost", unit="USD")
        self._speedup = meter.create_histogram("acceld.run.speedup", unit="1")
        for name, (key, text) in QUEUE_GAUGES.items():
            unit = "s" if key.endswith("_s") else "{evaluation}"
            meter.create_observable_gauge(name, [self._observer(key)], unit=unit, description=text)
        self._started_at: dict[int, float] = {}

    def take(self, event: Event) -> None:
        """Add what one event says to the spans and metrics."""
        match event.data:
            case RunCreated() as made:
                self._begin(event, {"acceld.workload": made.workload, "acceld.proposer": made.proposer})
            case RunStateChanged(state, message):
                self._state(event, state, message)
            case LlmCallStarted(call, role, model):
                attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "acceld.role": role}
                self._calls[call] = self._child(event, f"chat {model}", attributes)
            case LlmCallFinished() as ended:
                self._called(event, ended)
            case CandidateStarted(candidate, device):
                attributes = {"acceld.candidate": f"c{candidate}", "acceld.device": device}
                self._evaluations[candidate] = self._child(event, "evaluate", attributes)
                self._started_at[candidate] = event.at
            case CandidateEvaluated() as evaluated:
                self._evaluated(event, evaluated)
            case BestChanged() as best if event.run in self._runs:
                reported: dict[str, str | float] = {"acceld.candidate": f"c{best.candidate}"}
                reported |= {"acceld.speedup": best.speedup} if best.speedup is not None else {}
                self._runs[event.run].add_event("best", reported, _ns(event.at))
            case _:
                pass

    def close(self) -> None:
        """End every open span."""
        for open_spans in (self._calls, self._evaluations, self._runs):
            for span in open_spans.values():
                span.end()
            open_spans.clear()

    def _begin(self, event: Event, attributes: Mapping[str, str]) -> Span | None:
        if event.run is None:
            return None
        if event.run not in self._runs:
            reported = {"acceld.run": f"r{event.run}", **attributes}
            self._runs[event.run] = self._tracer.start_span("run", attributes=reported, start_time=_ns(event.at))
        return self._runs[event.run]

    def _state(self, event: Event, state: RunState, message: str) -> None:
        span = self._begin(event, {})
        if span is None or event.run is None:
            return
        span.add_event(str(state), {"message": message} if message else {}, _ns(event.at))
        if RunState(state).ended:
            from opentelemetry.trace import Status, StatusCode

            if state == RunState.FAILED:
                span.set_status(Status(StatusCode.ERROR, message))
            span.end(_ns(event.at))
            del self._runs[event.run]

    def _called(self, event: Event, ended: LlmCallFinished) -> None:
        span = self._calls.pop(ended.call, None)
        attributes = {"gen_ai.request.model": ended.model, "acceld.role": ended.role, "acceld.outcome": ended.outcome}
        if span is not None:
            usage = {
                "gen_ai.usage.input_tokens": ended.input_tokens,
                "gen_ai.usage.output_tokens": ended.output_tokens,
                "gen_ai.usage.cache_read.input_tokens": ended.cached_tokens,
                "acceld.cost_usd": ended.cost_usd,
            }
            span.set_attributes({name: value for name, value in usage.items() if value is not None})
            span.set_attribute("acceld.outcome", ended.outcome)
            span.end(_ns(event.at))
        if ended.latency_s is not None:
            self._calling.record(ended.latency_s, attributes)
        for kind, count in (("input", ended.input_tokens), ("output", ended.output_tokens)):
            if count is not None:
                self._tokens.record(count, {**attributes, "gen_ai.token.type": kind})
        if ended.cost_usd is not None:
            self._cost.add(ended.cost_usd, attributes)

    def _evaluated(self, event: Event, evaluated: CandidateEvaluated) -> None:
        span = self._evaluations.pop(evaluated.candidate, None)
        attributes = {"acceld.status": str(evaluated.status), "acceld.gate": evaluated.gate or ""}
        if span is not None:
            span.set_attributes(attributes)
            if evaluated.latency_us is not None:
                span.set_attribute("acceld.latency_us", evaluated.latency_us)
                span.set_attribute("acceld.source", evaluated.source or "")
            span.end(_ns(event.at))
        started_at = self._started_at.pop(evaluated.candidate, None)
        if started_at is not None:
            self._durations.record(max(0.0, event.at - started_at), attributes)
        self._evaluation_count.add(1, attributes)
        if evaluated.speedup is not None:
            self._speedup.record(evaluated.speedup, {"acceld.source": evaluated.source or ""})

    def _child(self, event: Event, name: str, attributes: Mapping[str, str]) -> Span:
        from opentelemetry.trace import set_span_in_context

        parent = self._runs.get(event.run) if event.run is not None else None
        context = set_span_in_context(parent) if parent is not None else None
        return self._tracer.start_span(name, context, attributes=dict(attributes), start_time=_ns(event.at))

    def _observer(self, key: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation

            value = self._statistics().get(key)
            return [Observation(value)] if isinstance(value, int | float) else []

        return observe


def _ns(at: float) -> int:
    return int(at * NANOSECONDS)


async def export(store: Store, config: TelemetryConfig, statistics: Statistics) -> None:
    """Export new events until the caller cancels the task. Without an endpoint in [telemetry], return at once."""
    if not config.endpoint:
        return
    telemetry, shut_down = _exporting(config, statistics)
    try:
        async for event in store.subscribe(store.hub.last_seq):
            telemetry.take(event)
    finally:
        telemetry.close()
        shut_down()


def _exporting(config: TelemetryConfig, statistics: Statistics) -> tuple[Telemetry, Callable[[], None]]:
    """Return (telemetry to an OTLP endpoint, function that ends it). Raise ConfigError if the extra ``otel`` is
    missing.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ConfigError("[telemetry] needs OpenTelemetry", hint="pip install 'acceld[otel]'") from error
    resource = Resource.create({"service.name": NAME})
    base = config.endpoint.rstrip("/")
    traces = TracerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces")))
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(f"{base}/v1/metrics"), export_interval_millis=1000 * config.interval_s
    )
    metrics = MeterProvider([reader], resource=resource)

    def shut_down() -> None:
        traces.shutdown()
        metrics.shutdown()

    return Telemetry(traces, metrics, statistics), shut_down
