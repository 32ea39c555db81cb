"""Show the profile of a candidate: where its time goes, and how each figure was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Container

from acceld import figures
from acceld.gains import interleaved
from acceld.tui.palette import Palette, styled
from acceld.tui.screens.candidate import engine_bars
from acceld.tui.screens.in_view import CandidateInView
from acceld.tui.session import Session
from acceld.tui.terminal import copy
from acceld.tui.widgets.bars import bar
from acceld.tui.widgets.frame import Panel
from acceld.tui.widgets.lines import LineList

FLAT = 60
"""Width in cells from which on a figure and its range share a line, because the pane then lies above the list and has
few lines.
"""


COUNTERS = {"exact": "exact: counted from the program", "modelled": "modelled: as compiled", "": "counted"}
"""Headings of the counters, by class."""
SHARES = {
    "percent_of_peak": "peak: the least time by the chip's stated rates",
    "percent_of_attainable": "attainable: the least time by rates that kernels have reached",
}
"""Meaning of the percentages, as docs/tui.md has it too."""
COUNTED = {
    "hbm_read_bytes": "as compiled",
    "written_read_bytes": "as written",
    "hbm_write_bytes": "as compiled",
    "written_write_bytes": "as written",
}
"""Counters that are explained beside their value."""


def by_line(spots: Iterable[Mapping[str, Any]]) -> list[tuple[int, float, str]]:
    """Return (source line, busy microseconds, engines) for each line that is among the hot spots, longest time first."""
    found: dict[int, tuple[float, list[str]]] = {}
    for spot in spots:
        number, busy = int(spot.get("line") or 0), float(spot.get("busy_us") or 0.0)
        before, engines = found.get(number, (0.0, []))
        engine = str(spot.get("engine") or "")
        found[number] = (before + busy, engines + [engine] * (bool(engine) and engine not in engines))
    rows = [(number, busy, "+".join(engines)) for number, (busy, engines) in found.items()]
    return sorted(rows, key=lambda row: -row[1])


class ProfileScreen(CandidateInView):
    """Screen with three parts: exact counts of a candidate's program (such as instructions and bytes), its modelled
    times, and its latency with the interval.
    """

    NAME = "profile"
    AUTO_FOCUS: ClassVar[str | None] = "#counters"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("B", "baseline", "Best or baseline", id="profile.other"),
        Binding("y", "copy", "Copy", id="copy"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._drawn: list[Text] = []

    def body(self) -> Iterable[Any]:
        with Container(id="split"):
            yield Panel(self._summary, id="details")
            yield LineList(id="counters", pointer=False)

    def show(self) -> None:
        super().show()
        counters = self.query_one("#counters", LineList)
        counters.empty = self._why_none()
        counters.redraw()

    def _why_none(self) -> str:
        if not self.facts:
            return self.unknown
        if not self.evaluation:
            return "Not evaluated yet."
        return "Nothing was counted." if self.profile else "No profile: the candidate failed before it was timed."

    def draw(self) -> None:
        self._drawn = list(self._lines())
        counters = self.query_one("#counters", LineList)
        counters.border_title = f"c{self.facts['id']} counters and hot spots" if self.facts else ""
        counters.empty = self._why_none()
        counters.show_lines(self._drawn)
        self.query_one("#details").refresh()

    def _lines(self) -> Iterable[Text]:
        palette, profile = self.palette, self.profile
        details = profile.get("details") or {}
        hottest = details.get("hot_spots") or ()
        if hottest:
            yield styled("modelled: hot spots", palette.accent)
            source = (self.facts.get("text") or "").splitlines()
            for number, busy, engines in by_line(hottest)[:12]:
                code = source[number - 1].strip() if 0 < number <= len(source) else ""
                yield Text(f"{number:>5} {figures.duration(busy):>9}  {engines:<12} ").append(code, palette.muted)
            yield Text("")
        counters = {
            name: f"{value:,.0f}" if float(value) == int(value) else f"{value:,.3f}"
            for name, value in (profile.get("counters") or {}).items()
        }
        named, wide = max(map(len, counters), default=0), max(map(len, counters.values()), default=0)
        for kind, heading in COUNTERS.items():
            found = {name: value for name, value in counters.items() if figures.counter_class(details, name) == kind}
            if found:
                yield styled(heading, palette.accent)
            for name, shown in found.items():
                known = COUNTED.get(name, "")
                yield styled(f"{name:<{named}}", palette.text).append(f"  {shown:>{wide}}  {known}", palette.muted)
        for note in profile.get("notes") or ():
            yield styled(f"note: {note}", palette.warn)

    def _summary(self, width: int, height: int) -> Text:
        palette, profile, facts = self.palette, self.profile, self.facts
        if not profile:
            return styled(self._why_none(), palette.muted)
        flat = width >= FLAT
        text = styled(f"c{facts['id']} on {profile['chip']}", palette.strong)
        method = profile.get("method") or ""
        text.append(f"  {method}\n" if flat else "\n", palette.muted)
        simulated = profile["source"] == "simulated"
        band = profile.get("interval_percent")
        latency_us = profile.get("latency_us")
        text.append("predicted " if simulated else "measured  ", palette.accent)
        text.append(figures.latency(latency_us, profile["source"], profile["chip"], band))
        if latency_us and band:
            low, high = latency_us * (1 - band / 100), latency_us * (1 + band / 100)
            text.append("  " if flat else f"\n{'':10}")
            text.append(f"{figures.duration(low)} to {figures.duration(high)}", palette.muted)
        text.append("\n")
        if not flat:
            text.append(f"method    {method}\n", palette.muted)
        for turn in (profile.get("details") or {}).get("paired") or ():
            text.append_text(_interleaved(turn, palette))
        text.append("" if flat else "\n")
        for name, title in (("percent_of_peak", "of peak"), ("percent_of_attainable", "of attainable")):
            value = facts.get(name)
            if value is not None:
                text.append(bar(value, 100, max(8, min(24, width - 24))), palette.primary)
                text.append(f" {value:5.1f} % {title}\n")
                text.append_text(self.beyond_peak(value, width))
                if not flat:
                    text.append_text(self.wrapped(SHARES[name], palette.muted, width))
        if profile.get("engines_us") or profile.get("bound"):
            text.append("bound by  ", palette.muted).append(f"{profile.get('bound') or 'not known'}\n")
        if profile.get("engines_us"):
            text.append("" if flat else "\n").append("modelled engine time\n", palette.accent)
            text.append_text(engine_bars(profile, width, palette.primary, palette.muted))
        return text

    def action_baseline(self) -> None:
        run = self.run_view
        if run is None or run.baseline is None or run.best is None:
            return
        at_best = self.session.candidate == run.best.candidate
        self.session.candidate = run.baseline.id if at_best else run.best.candidate
        self.show()

    def action_copy(self) -> None:
        copy(self.app, "\n".join(line.plain for line in self._drawn), "profile")


def _interleaved(pair: Mapping[str, Any], palette: Palette) -> Text:
    """Return a line of text on the comparison with a kernel that was timed in turns with the candidate."""
    news = interleaved(pair)
    word = {True: "faster", False: "slower", None: "a tie"}[news]
    low, high = pair["interval"]
    sessions = pair.get("sessions", 1)
    text = styled("paired    ", palette.accent)
    text.append(f"{pair['ratio']:.2f}x ({low:.2f} – {high:.2f}), {word}", palette.good if news else palette.text)
    return text.append(
        f", {figures.many(pair['rounds'], 'round')} in {figures.many(sessions, 'session')}\n", palette.muted
    )
