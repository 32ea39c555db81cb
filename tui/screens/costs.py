"""Show what models cost, and the gains they brought."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.containers import Container

from acceld import figures
from acceld.gains import Verdict
from acceld.model import PROPOSERS
from acceld.tui.palette import styled
from acceld.tui.screens.base import ConsoleScreen, best_line
from acceld.tui.session import Session
from acceld.tui.state import RunView
from acceld.tui.widgets.bars import bar, sparkline
from acceld.tui.widgets.columns import Column, header, line
from acceld.tui.widgets.frame import Panel
from acceld.tui.widgets.lines import LineList
from acceld.tui.words import tokens

COLUMNS = (
    Column("role", 10, keep=9),
    Column("model", 14, keep=8, stretch=True),
    Column("calls", 6, keep=7, right=True),
    Column("failed", 6, keep=4, right=True),
    Column("in", 7, keep=5, right=True),
    Column("cached", 6, keep=3, right=True),
    Column("out", 7, keep=5, right=True),
    Column("s/call", 6, keep=2, right=True),
    Column("USD", 8, keep=9, right=True),
)


class CostsScreen(ConsoleScreen):
    """Screen with the costs of models by role and model."""

    NAME = "costs"
    AUTO_FOCUS: ClassVar[str | None] = "#models"
    WANTS = frozenset({"run"})
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._answers: dict[int, Mapping[str, Any]] = {}
        """The daemon's newest answer, with the run that it is about."""
        self._asked: tuple[int, int] = (0, -1)

    def body(self) -> Iterable[Any]:
        yield Panel(self._head, id="money")
        with Container(id="split"):
            yield LineList(id="models", pointer=False)

    def show(self) -> None:
        run = self.run_view
        if run is not None and self.session.replay is None:
            wanted = (run.id, len(run.finished_calls))
            if wanted != self._asked:
                self._asked = wanted
                self.fetch("/v1/costs", partial(self._take, run.id), run=run.id)
        self._list()

    def _take(self, run: int, answer: Mapping[str, Any]) -> None:
        self._answers = {run: answer}
        self._list()

    @property
    def _answer(self) -> Mapping[str, Any]:
        """Return the daemon's answer about the costs of the run in view; empty until it arrives."""
        return self._answers.get(self.session.run or 0, {})

    def _list(self) -> None:
        models = self.query_one("#models", LineList)
        palette = self.palette
        models.border_title = "By role and model"
        models.empty = self._why_none()
        rows = self._rows()
        models.show(
            range(len(rows)),
            lambda key, width: self._row(rows[int(str(key))], width),
            header=lambda w: header(COLUMNS, w, palette.muted),
        )
        self.query_one("#money").refresh()

    def _why_none(self) -> str:
        run = self.run_view
        if run is not None and run.proposer in PROPOSERS and not PROPOSERS[run.proposer].uses_models:
            return "No model was asked: rewrite rules cost nothing."
        return self.nothing("No model was asked yet.", "costs")

    def _rows(self) -> list[Mapping[str, Any]]:
        """Return the costs by role and model: the daemon's figures, or in a replay figures computed from the events."""
        if self._answer and self.session.replay is None:
            return list(self._answer.get("by_model") or ())
        run = self.run_view
        return [
            {
                "role": role,
                "model": model,
                "calls": use.calls,
                "failed_calls": use.failed,
                "input_tokens": use.input_tokens,
                "output_tokens": use.output_tokens,
                "cost_usd": use.cost_usd,
                "latency_s": use.latency_ms / 1000,
            }
            for (role, model), use in sorted(run.uses.items() if run else ())
        ]

    def _row(self, row: Mapping[str, Any], width: int) -> Text:
        palette = self.palette
        used, cached = row.get("input_tokens") or 0, row.get("cached_tokens")
        seconds = row.get("latency_s")
        cells = [
            (row["role"], palette.strong),
            (row["model"], palette.text),
            (str(row["calls"]), palette.text),
            (str(row.get("failed_calls") or 0), palette.warn if row.get("failed_calls") else palette.muted),
            (tokens(used), palette.muted),
            (f"{100 * cached / used:.0f} %" if cached and used else "—", palette.muted),
            (tokens(row.get("output_tokens") or 0), palette.muted),
            (f"{seconds / row['calls']:.1f}" if seconds and row["calls"] else "—", palette.muted),
            (figures.usd(row.get("cost_usd")), palette.text),
        ]
        return line(COLUMNS, cells, width)

    def _head(self, width: int, height: int) -> Text:
        run, palette = self.run_view, self.palette
        if run is None:
            return styled(self.nothing("Choose a run."), palette.muted)
        spent = self._answer.get("cost_usd") if self._answer else run.cost_usd
        spent = spent if spent is not None else run.cost_usd
        cap = (self._answer.get("budget") or {}).get("cap_usd") or run.search.get("budget_usd")
        text = Text()
        text.append("spent    ", palette.muted).append(figures.usd(spent), palette.strong)
        if run.unpriced:
            text.append(f" + {figures.many(run.unpriced, 'call')} without a known price", palette.warn)
        if cap:
            text.append(f" of {figures.usd(cap)}  ").append(
                bar(spent, cap, max(8, min(32, width - 40))), palette.primary
            )
        text.append("\n")
        hours = max(1.0, self.session.now - run.started_at) / 3600 if run.started_at else 0.0
        if run.state in ("finished", "cancelled", "failed") and run.changed_at > run.started_at:
            hours = (run.changed_at - run.started_at) / 3600
        if spent and hours:
            text.append("burn     ", palette.muted).append(f"{figures.usd(spent / hours)} an hour")
            if cap and spent < cap and run.state == "running":
                text.append(f", cap in {figures.elapsed((cap - spent) / (spent / hours) * 3600)}", palette.muted)
            text.append("\n")
        text.append("gain     ", palette.muted).append(gain(run, spent), palette.text).append("\n")
        by_iteration = [row.get("cost_usd") or 0.0 for row in self._answer.get("by_iteration") or ()]
        if by_iteration:
            text.append("per it   ", palette.muted).append(sparkline(by_iteration, 32), palette.primary)
            text.append("  USD an iteration\n", palette.muted)
        text.append("best     ", palette.muted).append(best_line(run, 32), palette.good)
        return text.append("  best so far", palette.muted)


def gain(run: RunView, spent_usd: float) -> str:
    """Return in words how much faster the best kernel is than the baseline, and what each percent cost."""
    if not run.best or not run.baseline_us or run.best.latency_us >= run.baseline_us:
        return "nothing better yet"
    percent = 100 * (run.baseline_us / run.best.latency_us - 1)
    price = f", {figures.usd(spent_usd / percent)} per percent" if spent_usd else ", free"
    word = {Verdict.CERTAIN: "", Verdict.LIKELY: ", which is likely"}.get(run.best.verdict, ", which is a tie")
    return f"{percent:.0f} % faster than the baseline{word}{price}"
