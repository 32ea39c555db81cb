"""Give statuses, states and events the words and symbols that screens show. A word stands beside each symbol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.text import Text

from acceld import figures
from acceld.events import (
    AttemptFailed,
    BeamSelected,
    BestChanged,
    BudgetLevel,
    CandidateEvaluated,
    CandidateQueued,
    CandidateStarted,
    CandidateWritten,
    DaemonStarted,
    DaemonStopped,
    DeviceState,
    Event,
    InsightChanged,
    InsightWritten,
    IterationStarted,
    LlmCallFinished,
    LlmCallStarted,
    Notice,
    PlanWritten,
    RunCreated,
    RunStateChanged,
    Steered,
    TimedAgain,
    Tuning,
    Watch,
)
from acceld.gains import worth
from acceld.model import RunState, Status
from acceld.tui.palette import Palette
from acceld.tui.state import ANSWERED, CandidateView

STATE_GLYPHS: Mapping[str, str] = {
    "queued": "·",
    "running": "▶",
    "paused": "‖",
    "finished": "✓",
    "cancelling": "⊘",
    "cancelled": "⊘",
    "failed": "✗",
    "stopped": "■",
    "idle": "·",
    "busy": "▶",
    "lost": "✗",
    "sick": "✗",
}
STATE_SENTENCES: Mapping[RunState, str] = {
    RunState.QUEUED: "waits for its turn",
    RunState.RUNNING: "runs",
    RunState.PAUSED: "paused",
    RunState.FINISHED: "finished",
    RunState.CANCELLED: "cancelled",
    RunState.FAILED: "failed",
}


def status_word(candidate: CandidateView) -> str:
    """Return a candidate's status with its symbol: ``✓ passed``, ``≠ wrong``, ``▶ running``."""
    if candidate.status is not None:
        return figures.status(candidate.status)
    return {"running": "▶ running", "queued": "· queued"}.get(candidate.phase, "· written")


def state_word(state: str) -> str:
    """Return the state of a run or a device with its symbol, such as ``▶ running``."""
    return f"{STATE_GLYPHS.get(state, '·')} {state}"


def clock(at: float) -> str:
    """Return a time as ``10:14:02`` in UTC, so that recordings look the same in every time zone."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") if at else "--:--:--"


def age(seconds: float) -> str:
    """Return an age as ``9h``, ``12m``, ``4s``."""
    if seconds < 60:
        return f"{max(0, int(seconds))}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m"
    return f"{int(seconds // 3600)}h" if seconds < 48 * 3600 else f"{int(seconds // 86400)}d"


def tokens(count: int) -> str:
    """Return a number of tokens as ``412``, ``18.2k``, ``3.1M``."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def level_of(event: Event) -> str:
    """Return the level of an event: ``info``, ``warning`` or ``error``."""
    match event.data:
        case Notice(level):
            return level
        case RunStateChanged(RunState.FAILED) | DeviceState(state="lost" | "sick"):
            return "error"
        case CandidateEvaluated(status=Status.SUSPECT):
            return "warning"
        case LlmCallFinished(outcome=outcome) if outcome != ANSWERED:
            return "warning"
        case BudgetLevel(percent=percent) if percent >= 80:
            return "warning"
    return "info"


def sentence(event: Event) -> str:
    """Return one line that says what an event reports, without the event's time and run."""
    return " ".join(_sentence(event).splitlines())


def _sentence(event: Event) -> str:
    match event.data:
        case RunCreated() as run:
            return f"run created: {run.workload} on {run.chip}, proposals by {run.proposer}, preset {run.preset}"
        case RunStateChanged(state, message):
            return STATE_SENTENCES[state] + (f": {message}" if message else "")
        case IterationStarted(iteration, beam):
            return f"iteration {iteration} starts from {_ids(beam)}"
        case Tuning(candidate, timed, limit, elapsed_s, ended):
            done = f"{figures.many(timed, 'kernel')} timed" if ended else f"{timed} of {limit} kernels timed"
            return f"tuning c{candidate}: {done}, {figures.elapsed(elapsed_s)}"
        case PlanWritten() as plan:
            titled = plan.title or plan.rule or "untitled"
            return f"plan for c{plan.parent}: {titled}{figures.crossed(plan.partner)}"
        case AttemptFailed(reason=reason):
            return f"no code: {reason}"
        case CandidateWritten(candidate, parent):
            return f"c{candidate} written" + (f" from c{parent}" if parent else " (baseline)")
        case CandidateQueued(candidate):
            return f"c{candidate} queued"
        case CandidateStarted(candidate, device):
            return f"c{candidate} on {device or 'a device'}"
        case CandidateEvaluated() as evaluated:
            return _result(evaluated)
        case BeamSelected(iteration, beam, speedup=speedup):
            return f"iteration {iteration} keeps {_ids(beam)}, best {figures.speedup(speedup)}"
        case BestChanged() as best:
            latency = figures.brief_latency(best.latency_us, best.source or "simulated")
            if best.speedup == 1.0:
                return f"c{best.candidate} is the baseline: {latency}"
            return f"new best c{best.candidate}: {latency}, {figures.brief_gain(best.speedup, worth(best.verdict, best.improved))}"
        case TimedAgain(text=text):
            return text
        case InsightWritten() as insight:
            return f"insight i{insight.insight}: {insight.title} ({figures.speedup(insight.speedup)})"
        case InsightChanged(number, what):
            return f"insight i{number} {what}"
        case LlmCallStarted(_, role, model):
            return f"{role} asks {model}"
        case LlmCallFinished() as call:
            used = f"{tokens(call.input_tokens or 0)} in, {tokens(call.output_tokens or 0)} out"
            outcome = "" if call.outcome == ANSWERED else f" {call.outcome}"
            return f"{call.role} {call.model}{outcome}: {used}, {figures.usd(call.cost_usd)}"
        case BudgetLevel(scope, spent_usd, cap_usd):
            return f"budget {scope}: {figures.usd(spent_usd)} of {figures.usd(cap_usd)}"
        case Steered(action, by, result, arguments):
            more = result or ", ".join(f"{key} {value}" for key, value in arguments.items())
            return f"{action} by {by or 'a person'}" + (f": {more}" if more else "")
        case DeviceState(device, state, reason):
            return f"device {device} {state}" + (f": {reason}" if reason else "")
        case Notice(_, text, hint):
            return text.removeprefix(f"r{event.run} ") + (f" ({hint})" if hint else "")
        case Watch() as saved:
            return f"{saved.path}: {saved.stage}" + (f": {saved.text}" if saved.text else "")
        case DaemonStarted() as daemon:
            return f"daemon {daemon.version} started, sandbox {daemon.sandbox_level}"
        case DaemonStopped(reason):
            return f"daemon stopped: {reason}"


def _result(evaluated: CandidateEvaluated) -> str:
    text = f"c{evaluated.candidate} {figures.status(evaluated.status)}"
    if evaluated.latency_us is not None:
        text += f" {figures.brief_latency(evaluated.latency_us, evaluated.source or 'simulated')}"
    if evaluated.speedup is not None:
        text += f" {figures.speedup(evaluated.speedup)}"
    return f"{text}: {evaluated.failure}" if evaluated.failure else text


def event_line(event: Event, palette: Palette) -> Text:
    """Return an event as a line such as ``10:14:02 r3 new best c12``, in the style of its level."""
    text = Text.assemble(" ", (clock(event.at), palette.muted), " ")
    text.append(f"r{event.run} " if event.run else "", palette.muted)
    return text.append(sentence(event), palette.level(level_of(event)))


def _ids(numbers: Sequence[int]) -> str:
    return ", ".join(f"c{number}" for number in numbers) or "nothing"
