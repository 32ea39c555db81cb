"""Short words and glyphs of the screens. The word always stands beside the glyph."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from acceld import figures
from acceld.events import Event, EventKind
from acceld.model import Status
from acceld.tui.palette import Palette
from acceld.tui.state import ANSWERED, CandidateView, failure_text

SHORT: Mapping[Status, str] = {
    Status.PASSED: "ok",
    Status.UNSUPPORTED: "unsupported",
    Status.COMPILE_ERROR: "compile",
    Status.RUNTIME_ERROR: "crash",
    Status.INCORRECT_SHAPE: "shape",
    Status.INCORRECT_DTYPE: "dtype",
    Status.INCORRECT_NUMERICAL: "wrong",
    Status.REJECTED: "rejected",
    Status.SUSPECT: "suspect",
    Status.TIMEOUT: "timeout",
    Status.UNTESTED: "untested",
    Status.UNCHECKED: "unchecked",
}
"""Status in at most eleven letters."""

STATE_GLYPHS: Mapping[str, str] = {
    "queued": "·",
    "running": "▶",
    "paused": "‖",
    "finished": "✓",
    "cancelled": "⊘",
    "failed": "✗",
    "stopped": "■",
    "idle": "·",
    "busy": "▶",
    "lost": "✗",
    "sick": "✗",
}


def status_word(candidate: CandidateView) -> str:
    """``✓ ok``, ``≠ wrong``, ``▶ running`` for a candidate."""
    if candidate.status is not None:
        return f"{figures.STATUS_GLYPHS[candidate.status]} {SHORT[candidate.status]}"
    return {"running": "▶ running", "queued": "· queued"}.get(candidate.phase, "· written")


def state_word(state: str) -> str:
    """``▶ running`` for a run or a device."""
    return f"{STATE_GLYPHS.get(state, '·')} {state}"


def clock(at: float) -> str:
    """``10:14:02``, UTC, so that a recording reads the same everywhere."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") if at else "--:--:--"


def age(seconds: float) -> str:
    """``9h``, ``12m``, ``4s``."""
    if seconds < 60:
        return f"{max(0, int(seconds))}s"
    if seconds < 3600:
        return f"{int(seconds // 60)}m"
    return f"{int(seconds // 3600)}h" if seconds < 48 * 3600 else f"{int(seconds // 86400)}d"


def tokens(count: int) -> str:
    """``412``, ``18.2k``, ``3.1M``."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def level_of(event: Event) -> str:
    """``info``, ``warning`` or ``error``."""
    data = event.data
    match event.kind:
        case EventKind.NOTICE:
            return str(data.get("level") or "info")
        case EventKind.RUN_STATE:
            return "error" if data.get("state") == "failed" else "info"
        case EventKind.CANDIDATE_EVALUATED:
            return "warning" if data.get("status") == Status.SUSPECT else "info"
        case EventKind.LLM_CALL_FINISHED:
            return "info" if data.get("outcome") == ANSWERED else "warning"
        case EventKind.BUDGET_LEVEL:
            return "warning" if (data.get("percent") or 0) >= 80 else "info"
        case EventKind.DEVICE_STATE:
            return "error" if data.get("state") in ("lost", "sick") else "info"
        case _:
            return "info"


def sentence(event: Event) -> str:
    """An event in one line, without its time and run."""
    data: Mapping[str, Any] = event.data
    get = data.get
    match event.kind:
        case EventKind.RUN_CREATED:
            return f"run created: {get('workload')} on {get('chip')}, {get('proposer')}, preset {get('preset')}"
        case EventKind.RUN_STATE:
            return f"run {get('state')}" + (f": {get('message')}" if get("message") else "")
        case EventKind.ITERATION_STARTED:
            return f"iteration {get('iteration')} starts from {_ids(get('beam'))}"
        case EventKind.PLAN_WRITTEN:
            return f"plan for c{get('parent')}: {get('title') or get('rule') or 'untitled'}"
        case EventKind.ATTEMPT_FAILED:
            return f"no code: {get('reason')}"
        case EventKind.CANDIDATE_WRITTEN:
            return f"c{get('candidate')} written" + (f" from c{get('parent')}" if get("parent") else " (baseline)")
        case EventKind.CANDIDATE_QUEUED:
            return f"c{get('candidate')} queued"
        case EventKind.CANDIDATE_STARTED:
            return f"c{get('candidate')} on {get('device') or 'a device'}"
        case EventKind.CANDIDATE_EVALUATED:
            return _verdict(data)
        case EventKind.BEAM_SELECTED:
            return f"iteration {get('iteration')} keeps {_ids(get('beam'))}, best {figures.speedup(get('speedup'))}"
        case EventKind.BEST_CHANGED:
            return f"new best c{get('candidate')}: {figures.brief_latency(get('latency_us'), data['source'])}, {figures.speedup(get('speedup'))}"
        case EventKind.INSIGHT_WRITTEN:
            return f"insight i{get('insight')}: {get('title')} ({figures.speedup(get('speedup'))})"
        case EventKind.INSIGHT_CHANGED:
            return f"insight i{get('insight')} {get('what')}"
        case EventKind.LLM_CALL_STARTED:
            return f"{get('role')} asks {get('model')}"
        case EventKind.LLM_CALL_FINISHED:
            used = f"{tokens(get('input_tokens') or 0)} in, {tokens(get('output_tokens') or 0)} out"
            outcome = "" if get("outcome") == ANSWERED else f" {get('outcome')}"
            return f"{get('role')} {get('model')}{outcome}: {used}, {figures.usd(get('cost_usd'))}"
        case EventKind.BUDGET_LEVEL:
            return f"budget {get('scope')}: {figures.usd(get('spent_usd'))} of {figures.usd(get('cap_usd'))}"
        case EventKind.STEERED:
            told = ("action", "by", "result")
            more = get("result") or ", ".join(f"{key} {value}" for key, value in data.items() if key not in told)
            return f"{get('action')} by {get('by') or 'a person'}" + (f": {more}" if more else "")
        case EventKind.DEVICE_STATE:
            return f"device {get('device')} {get('state')}" + (f": {get('reason')}" if get("reason") else "")
        case EventKind.NOTICE:
            return str(get("text") or "") + (f" ({get('hint')})" if get("hint") else "")
        case EventKind.WATCH:
            return f"{get('path')}: {get('stage')}" + (f": {get('text')}" if get("text") else "")
        case EventKind.DAEMON_STARTED:
            return f"daemon {get('version')} started, sandbox {get('sandbox_level')}"
        case EventKind.DAEMON_STOPPED:
            return f"daemon stopped: {get('reason')}"


def event_line(event: Event, palette: Palette) -> Text:
    """Return ``10:14:02 r3 new best c12``, the sentence in the style of its level."""
    text = Text.assemble(" ", (clock(event.at), palette.muted), " ")
    text.append(f"r{event.run} " if event.run else "", palette.muted)
    return text.append(sentence(event), palette.level(level_of(event)))


def _verdict(data: Mapping[str, Any]) -> str:
    status = Status(data["status"])
    text = f"c{data.get('candidate')} {figures.STATUS_GLYPHS[status]} {SHORT[status]}"
    if data.get("latency_us") is not None:
        text += f" {figures.duration(data['latency_us'])}"
    if data.get("speedup") is not None:
        text += f" {figures.speedup(data['speedup'])}"
    failure = failure_text(data.get("failure"))
    return f"{text}: {failure}" if failure else text


def _ids(numbers: Any) -> str:
    return ", ".join(f"c{number}" for number in numbers or ()) or "nothing"
