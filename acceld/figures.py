"""Format figures for people, in the same way for the command line, the terminal UI and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from acceld.gains import Verdict
from acceld.model import Source, Status

STATUS_GLYPHS: dict[Status, str] = {
    Status.PASSED: "✓",
    Status.UNSUPPORTED: "∅",
    Status.COMPILE_ERROR: "✗",
    Status.RUNTIME_ERROR: "✗",
    Status.INCORRECT_SHAPE: "≠",
    Status.INCORRECT_DTYPE: "≠",
    Status.INCORRECT_NUMERICAL: "≠",
    Status.REJECTED: "⊘",
    Status.SUSPECT: "?",
    Status.TIMEOUT: "◷",
    Status.UNTESTED: "·",
    Status.UNCHECKED: "○",
}
"""A glyph for each status. The status's word is always shown beside its glyph."""

STATUS_WORDS: dict[Status, str] = {
    Status.PASSED: "passed",
    Status.UNSUPPORTED: "unsupported",
    Status.COMPILE_ERROR: "compile",
    Status.RUNTIME_ERROR: "crash",
    Status.INCORRECT_SHAPE: "shape",
    Status.INCORRECT_DTYPE: "dtype",
    Status.INCORRECT_NUMERICAL: "wrong",
    Status.REJECTED: "rejected",
    Status.SUSPECT: "suspect",
    Status.TIMEOUT: "timeout",
    Status.UNTESTED: "timed only",
    Status.UNCHECKED: "unchecked",
}
"""A status in at most eleven letters, for people. JSON and tables have its full name."""


def status(value: Status | str) -> str:
    """Return a status with its symbol, such as ``✓ passed``."""
    return f"{STATUS_GLYPHS[Status(value)]} {STATUS_WORDS[Status(value)]}"


def counted(counts: Mapping[Any, int]) -> str:
    """Return the numbers of candidates by status, such as ``10 passed, 18 timed only``; empty without
    candidates.
    """
    found = {Status(name): count for name, count in counts.items()}
    return ", ".join(f"{count} {STATUS_WORDS[name]}" for name in STATUS_WORDS if (count := found.get(name)))


def many(count: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 run`` and ``2 runs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(latency_us: float | None) -> str:
    """Format a latency with three significant digits: ``1.19 ms``, ``870 µs``, ``2.31 s``; ``—`` for None."""
    if latency_us is None:
        return "—"
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if latency_us >= factor * 0.9995:
            return f"{_three(latency_us / factor)} {unit}"
    return f"{_three(latency_us)} µs"


def latency(latency_us: float | None, source: Source | str, chip: str, interval_percent: float | None = None) -> str:
    """Format a latency with its label: ``≈ 1.19 ms sim trn1 ±12 %`` or ``1.19 ms trn1``.

    A simulated latency always has the label ``sim``, and its uncertainty or ``unvalidated``.
    """
    if latency_us is None:
        return "—"
    if Source(source) is Source.MEASURED:
        band = f" ±{_three(interval_percent)} %" if interval_percent else ""
        return f"{duration(latency_us)} {chip}{band}"
    band = f" ±{interval_percent:.0f} %" if interval_percent is not None else " unvalidated"
    return f"≈ {duration(latency_us)} sim {chip}{band}"


def brief_latency(latency_us: float | None, source: Source | str, chip: str = "") -> str:
    """Format a latency without its uncertainty, for live displays: ``≈ 1.19 ms sim trn1``, or ``1.19 ms trn1``."""
    if latency_us is None:
        return "—"
    mark, label = ("≈ ", " sim") if Source(source) is Source.SIMULATED else ("", "")
    return f"{mark}{duration(latency_us)}{label} {chip}".rstrip()


def speedup(value: float | None, tie_band_percent: float | None = None) -> str:
    """Format a speed-up: ``1.42x (1.34 – 1.50)`` with its band, ``1.02x tie`` if 1 is inside the band, ``—``
    for None.
    """
    if value is None:
        return "—"
    text = f"{value:.2f}x"
    if not tie_band_percent:
        return text
    low, high = value / (1 + tie_band_percent / 100), value * (1 + tie_band_percent / 100)
    if low <= 1.0 <= high:
        return f"{text} tie (±{tie_band_percent:.0f} %)"
    return f"{text} ({low:.2f} – {high:.2f})"


def rel_l2(error: float | None) -> str:
    """Format a relative L2 error; ``not finite`` for the figure that records hold in place of infinity."""
    return "—" if error is None else "not finite" if error >= NOT_FINITE else f"{error:.2g}"


NOT_FINITE = 1e9
"""Relative error from which on a record stands for an output that is not finite."""


def gained(
    value: float | None, verdict: Verdict | str | None, tie_band_percent: float | None = None, reason: str = ""
) -> str:
    """Format a speed-up with its verdict: ``1.42x (1.34 – 1.50)``, ``1.26x likely (±34 %)``, ``1.52x tie
    (unvalidated)``.

    The parentheses behind ``likely`` and ``tie`` have the band; without a band, ``reason``. A speed-up of 1 or
    less is formatted by :func:`speedup`.
    """
    if value is None or value <= 1:
        return speedup(value, tie_band_percent)
    if verdict == Verdict.CERTAIN:
        return f"{value:.2f}x" if value <= 1 + (tie_band_percent or 0.0) / 100 else speedup(value, tie_band_percent)
    if tie_band_percent:
        return f"{brief_gain(value, verdict)} (±{tie_band_percent:.0f} %)"
    return brief_gain(value, verdict) + (f" ({reason})" if reason else "")


def brief_gain(value: float | None, verdict: Verdict | str | None) -> str:
    """Format a speed-up with its verdict for narrow columns: ``1.42x`` if certain, ``1.25x likely``, ``1.02x
    tie``, ``1.42x timed`` of a kernel that was not run on data.
    """
    if value is None or value <= 1 or verdict == Verdict.CERTAIN:
        return speedup(value)
    words: dict[str | None, str] = {Verdict.LIKELY: "likely", Verdict.UNTESTED: "timed"}
    return f"{value:.2f}x {words.get(verdict, 'tie')}"


def paired(found: Mapping[str, Any]) -> str:
    """Format a speed-up by interleaved measurements, with its 95 % interval, from the figures in an outcome.

    For example ``7.05x (6.71 – 7.40), 3 steps, each against its parent``.
    """
    how = "best against baseline" if found["steps"] == 1 else f"{found['steps']} steps, each against its parent"
    tie = "" if found["low"] > 1 or found["high"] < 1 else " tie"
    return f"{found['ratio']:.2f}x{tie} ({found['low']:.2f} – {found['high']:.2f}, 95 %), {how}"


def cores(statistics: Mapping[str, Any]) -> list[str]:
    """Return a line on the use of the cores for each backend with cores. ``statistics`` are those of an
    evaluator.

    For example ``neuron: 37 % of all cores' time since it started, 1 of 4 leased (1 timing), 2 waiting; core 3
    out of service``.
    """
    return [f"{name}{': ' if name else ''}{_cores(reported)}" for name, reported in _with_cores(statistics)]


DERIVED = {"instruction_count": "instructions", "dma_rows": "dma_descriptors", "short_dma_rows": "dma_descriptors"}
"""Counters that are sums, each with the figure of the timeline that is summed."""


def counter_class(details: Mapping[str, Any], counter: str) -> str:
    """Return how far a counter of a profile can be trusted, from the profile's ``details``.

    ``exact`` counters follow from the program. ``modelled`` ones depend on what the compiler is assumed to do. Counters
    of a kernel for several shapes are means, except for peaks. The result is empty if the profile does not say it.
    """
    if details.get("shapes") and counter != "engines":
        return "greatest over the shapes" if "peak" in counter else "mean over the shapes"
    classes = details.get("figure_class") or {}
    return str(classes.get(DERIVED.get(counter, counter), ""))


def beyond_peak(share: float | None) -> str:
    """Return a sentence that says why a percentage of the peak is above 100 %.

    The result is empty for a percentage up to 100 %, and for None.
    """
    if share is None or share <= 100:
        return ""
    return (
        "above 100 %: the kernel makes products of a cheaper type or fewer operations than declared, or several operations an "
        "element at once"
    )


def of_peak(share: float | None, source: str) -> str:
    """Return a percentage of the peak and where the peak is from. Above 100 % a second line has the reason."""
    return "\n".join(filter(None, (f"{percent(share)}  ({source})", beyond_peak(share))))


def change(parameter: str, title: str) -> str:
    """Return a change in words, such as ``4096 columns: widen tiles, l. 15``.

    ``parameter`` comes first, because it tells apart changes with the same title.
    """
    title = title.replace(", line ", ", l. ")
    return f"{parameter}: {title}" if parameter and title else parameter or title


def core_use(statistics: Mapping[str, Any]) -> list[str]:
    """Return, for each backend with cores, which share of the cores' time was used since the backend started: ``37 % of
    neuron cores``.
    """
    return [
        f"{100 * reported['utilization']:.0f} % of {name or 'all'} cores" for name, reported in _with_cores(statistics)
    ]


def _with_cores(statistics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    named = {"": statistics, **(statistics.get("backends") or {})}
    reported = ((name, one.get("devices")) for name, one in named.items())
    return [(name, devices) for name, devices in reported if isinstance(devices, Mapping) and devices.get("cores")]


def _cores(reported: Mapping[str, Any]) -> str:
    share = f"{100 * reported['utilization']:.0f} %"
    text = f"{share} of all cores' time since it started"
    if reported.get("busy_share") is not None:
        text += f" ({100 * reported['busy_share']:.0f} % while kernels waited)"
    text += f", {reported['leased']} of {reported['cores']} leased"
    text += f" ({reported['timing']} timing)" if reported["timing"] else ""
    text += f", {reported['waiting']} waiting" if reported["waiting"] else ""
    if reported["out_of_service"]:
        text += f"; out of service: {', '.join(map(str, reported['out_of_service']))}"
    return text + "".join(f"; chip {chip} held by {holder}" for chip, holder in reported["foreign"].items())


def crossed(partner: int | None) -> str:
    """Return text to put after the title of a step that joined two kernels. The text names the second parent, and is
    empty for None.
    """
    return "" if partner is None else f" (crossover with c{partner})"


def percent(value: float | None) -> str:
    """Format a percentage: ``68.7 %``; ``—`` for None."""
    return "—" if value is None else f"{value:.1f} %"


def elapsed(seconds: float) -> str:
    """Format a time span: ``47 s``, ``3 m 05 s``, ``2 h 10 m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} m"


def usd(value: float | None) -> str:
    """Format an amount: ``$1.23``, ``$0.0041``; ``?`` if the price is unknown."""
    if value is None:
        return "?"
    return f"${value:.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


CELL = 80
"""Length limit of a value in a table for people."""


def moment(value: Any) -> Any:
    """Return a time in seconds since the epoch as UTC text with milliseconds. Any value that is no float stays
    as it is.
    """
    if not isinstance(value, float):
        return value
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cell(value: Any, most: int | None = CELL) -> str:
    """Return a value of a query's row as one line without control characters, cut to ``most`` characters (None:
    not cut).
    """
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if most is None else cut(text, most)


def cut(text: str, most: int) -> str:
    """Return ``text`` cut to ``most`` characters. A text that is cut ends with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _three(value: float) -> str:
    """Return a number with three significant digits, without an exponent."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def memory_did(insight: Mapping[str, Any]) -> str:
    """Return in words what an insight did: how often it was shown, how often plans that cite it won, and the
    candidates that it saved.
    """
    decided, saved = insight["wins"] + insight["losses"], insight.get("saved")
    text = f"i{insight['id']}: shown {many(insight['uses'], 'time')}"
    text += f", {many(insight['wins'], 'win')} of {decided} tried" if decided else ", no plan with it has won or lost"
    if insight.get("confirmations"):
        text += f", confirmed {many(insight['confirmations'], 'time')}"
    if not saved:
        return f"{text}; no run without it to compare with" if insight["wins"] else text
    count, runs = saved["candidates"], saved["runs"]
    against = f"against {many(runs, 'run')} without it"
    return (
        f"{text}, saved {count} candidates {against}" if count >= 0 else f"{text}, cost {-count} candidates {against}"
    )


def is_hypothesis(insight: Mapping[str, Any]) -> bool:
    """Return True if the gain of an insight lies inside the tie band, and no other rewrite confirmed the insight."""
    return insight.get("tie_percent") is not None and not insight.get("confirmations")


HELD_PLACES = 4
"""Greatest number of places where an insight held that are named."""


def held_on(places: Sequence[Mapping[str, Any]]) -> str:
    """Return in words the places (chip, workload, API) where an insight held, those with most rewrites first; "" if no
    place is known.
    """
    most = sorted(places, key=lambda place: -int(place["times"]))
    shown = [
        f"{place['chip']} {str(place['workload']).rpartition('/')[2]} ({place['api']}, {place['source']}"
        + (f", {place['times']} times)" if place["times"] > 1 else ")")
        for place in most[:HELD_PLACES]
    ]
    more = f" and {len(most) - HELD_PLACES} more" if len(most) > HELD_PLACES else ""
    return f"held on {', '.join(shown)}{more}" if shown else ""
