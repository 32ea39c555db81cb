"""Show one candidate: source, differences, plan, checks, model calls, lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container

from acceld import figures
from acceld.model import Status
from acceld.tui.palette import styled
from acceld.tui.screens.in_view import CandidateInView
from acceld.tui.session import Session
from acceld.tui.terminal import copy, edit
from acceld.tui.widgets.bars import bar, fitted
from acceld.tui.widgets.code import SIDE_BY_SIDE, colored, diff_lines
from acceld.tui.widgets.frame import Line, Panel
from acceld.tui.widgets.lines import LineList
from acceld.tui.words import tokens

VIEWS = ("source", "diff", "plan", "checks", "calls", "insights", "lineage")
AGAINST = ("parent", "baseline", "best", "marked")


class CandidateScreen(CandidateInView):
    """Screen with all that is known about one candidate."""

    NAME = "candidate"
    AUTO_FOCUS: ClassVar[str | None] = "#lines"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "view(1)", "Next view", id="candidate.next", priority=True),
        Binding("shift+tab", "view(-1)", "Back", show=False, id="candidate.previous", priority=True),
        *(
            Binding(key, f"go('{view}')", view.capitalize(), show=view in ("source", "diff"), id=f"candidate.{view}")
            for key, view in zip("sdocmul", VIEWS, strict=True)
        ),
        Binding("a", "against", "Against", id="candidate.against"),
        Binding("i", "app.steer('pin')", "Pin", show=False, id="candidate.pin"),
        Binding("v", "app.steer('veto')", "Veto", show=False, id="candidate.veto"),
        Binding("b", "app.steer('branch')", "Branch", id="candidate.branch"),
        Binding("r", "app.steer('remeasure')", "Re-measure", show=False, id="candidate.remeasure"),
        Binding("e", "edit", "$EDITOR", show=False, id="candidate.edit"),
        Binding("y", "copy", "Copy", id="copy"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._view = "source"
        self._against = "parent"
        self._other: tuple[str, str] = ("", "")
        self._drawn: list[Text] = []

    def body(self) -> Iterable[Any]:
        with Container(id="split"):
            yield Panel(self._summary, id="details")
            with Container(id="content"):
                yield Line(self._views, id="views")
                yield LineList(id="lines", empty="Nothing here.")

    def draw(self) -> None:
        self._other = ("", "")
        self._draw_view()

    # -- content -------------------------------------------------------------------------------------------------

    def _views(self, width: int) -> Text:
        text = Text(" ")
        for view in VIEWS:
            on = view == self._view
            text.append(f" {view} ", self.palette.accent if on else self.palette.muted)
        if self._view == "diff":
            marked = self.session.marked if self._against == "marked" else None
            text.append(f"  against {f'c{marked}' if marked else self._against}", self.palette.muted)
        return text

    def _draw_view(self) -> None:
        lines = self.query_one("#lines", LineList)
        drawer = getattr(self, f"_{self._view}_lines")
        self._drawn = drawer() if self.facts else []
        lines.border_title = f"c{self.facts['id']} {self._view}" if self.facts else ""
        widest = max((line.cell_len for line in self._drawn), default=0) + 2
        lines.show_lines(self._drawn, content_width=widest)
        failed = self.facts.get("failure_line") if self._view == "source" else None
        lines.move_to((failed - 1) if failed else 0)
        self.query_one("#views").refresh()
        self.query_one("#details").refresh()

    def _source_lines(self) -> list[Text]:
        failed, message = self.facts.get("failure_line"), self.facts.get("failure_message") or ""
        lines = []
        for number, code in enumerate(colored(self.facts.get("text") or "", self.palette), 1):
            bad = number == failed
            head = styled(f"{'✗' if bad else ' '}{number:>4} ", self.palette.bad if bad else self.palette.muted)
            lines.append(head.append_text(code))
            if bad:
                lines.append(styled(f"      └ {message}", self.palette.bad))
        return lines

    def _diff_lines(self) -> list[Text]:
        palette, (against, other) = self.palette, self._other
        if against != self._against:
            if self._against == "parent":
                other = self.facts.get("parent_text") or ""
                self._other = ("parent", other)
            else:
                self._ask_other()
                return [styled("loading", palette.muted)]
        if not other:
            hint = ": mark one on the Beam" if self._against == "marked" else ""
            return [styled(f"There is no {self._against} candidate to compare with{hint}.", palette.muted)]
        room = self.query_one("#lines").content_size.width - 3  # for the pointer and the scrollbar
        sides = self.app.size.width >= SIDE_BY_SIDE
        text, number = self.facts.get("text") or "", f"c{self.facts['id']}"
        found = diff_lines(other, text, palette, self._against, number, width=room, sides=sides)
        return found or [styled("The same text.", palette.muted)]

    def _ask_other(self) -> None:
        run, wanted, compared = self.run_view, self._against, self.facts.get("id")
        number = None
        if run is not None:
            number = run.baseline.id if wanted == "baseline" and run.baseline else None
            number = run.best.candidate if wanted == "best" and run.best else number
            number = self.session.marked if wanted == "marked" else number
        if number is None:
            self._other = (wanted, "")
            return

        def take(facts: Mapping[str, Any]) -> None:
            if self.facts.get("id") == compared:
                self._other = (wanted, facts.get("text") or "")
                self._draw_view()

        self.fetch(f"/v1/candidates/{number}", take)

    def _plan_lines(self) -> list[Text]:
        facts, palette = self.facts, self.palette
        if not facts.get("plan"):
            return [styled("A baseline: nobody planned it.", palette.muted)]
        head = f"{facts.get('change_class') or 'mixed'} change"
        if facts.get("rule"):
            head += f", rule {facts['rule']}"
        if facts.get("plan_line"):
            head += f", at line {facts['plan_line']} of the parent"
        head += figures.crossed(facts.get("partner"))
        title = styled(facts.get("title") or "untitled", palette.strong)
        return [title, styled(head, palette.muted), Text(""), *self._prose(facts.get("plan_text") or "")]

    def _checks_lines(self) -> list[Text]:
        palette, record = self.palette, self.evaluation
        lines = []
        if record.get("failure_rule"):
            where = f" at line {record['failure_line']}" if record.get("failure_line") else ""
            lines += [styled(f"✗ {record['failure_rule']}{where}", palette.bad)]
            lines += self._prose(record.get("failure_message") or "")
            lines += self._prose(record.get("failure_hint") or "")
            lines.append(Text(""))
        for check in record.get("checks") or ():
            good = check["passed"]
            line = styled(f"{'✓ passed' if good else '≠ wrong '} ", palette.good if good else palette.bad)
            line.append(f"{check['name']:<28}")
            if check.get("rel_l2") is not None:
                line.append(f" {check['rel_l2']:.1e} of {check.get('tolerance') or 0:.1e}", palette.muted)
            lines.append(line.append(f"  {check.get('detail') or ''}", palette.muted))
        for stage, seconds in (record.get("seconds") or {}).items():
            lines.append(styled(f"{stage:<12} {seconds:8.2f} s", palette.muted))
        if record.get("log"):
            lines += [Text(""), *self._prose(record["log"])]
        return lines or [styled("Not evaluated yet.", palette.muted)]

    def _calls_lines(self) -> list[Text]:
        lines = []
        for call in self.facts.get("calls") or ():
            line = styled(f"{call['role']:<11}", self.palette.strong)
            line.append(f"{fitted(call.get('model') or '', 18):<19}{call.get('outcome') or 'under way':<10}")
            used = f"{tokens(call.get('input_tokens') or 0):>7} in {tokens(call.get('output_tokens') or 0):>7} out"
            line.append(f"{used}  {figures.usd(call.get('cost_usd')):>8}", self.palette.muted)
            lines.append(line)
            for name in ("answer", "error"):
                lines += self._prose(call.get(name) or "")
        return lines or [styled(self._without_calls(), self.palette.muted)]

    def _without_calls(self) -> str:
        """Return why the candidate has no model calls, for example because a rule made it."""
        if not self.facts.get("parent"):
            return "No model was asked: this candidate is a baseline."
        return (
            "No model was asked: a rewrite rule made this candidate."
            if self.facts.get("rule")
            else "No model call for this candidate is stored."
        )

    def _insights_lines(self) -> list[Text]:
        lines = []
        for title, key in (("Shown to the planner", "insights_seen"), ("Taught by this candidate", "insights_taught")):
            lines.append(styled(title, self.palette.accent))
            for insight in self.facts.get(key) or ():
                known = insight if isinstance(insight, Mapping) else {"id": insight}
                text = Text(f"  i{known['id']} ").append(known.get("title") or "")
                text.append(f"  {figures.speedup(known.get('speedup'))}", self.palette.muted)
                lines.append(text)
        return lines

    def _lineage_lines(self) -> list[Text]:
        palette, lines = self.palette, []
        steps: Sequence[Mapping[str, Any]] = self.facts.get("lineage") or ()
        for step in steps:
            text = styled(f"it{step['iteration']:<3} c{step['id']:<7}", palette.strong)
            text.append(f"{figures.duration(step.get('latency_us')):>9} {figures.speedup(step.get('speedup')):>6}")
            gain = step.get("parent_speedup")
            node = self.run_view.candidates.get(step["id"]) if self.run_view else None
            won = node is not None and self.run_view is not None and self.run_view.gained(node)
            shown = f" {100 * (gain - 1):+6.1f} % " if gain else "          "
            text.append(shown, palette.good if won else palette.muted)
            peak = step.get("percent_of_peak")
            text.append(f" {bar(peak or 0, 100, 16)} {peak or 0:5.1f} %  ", palette.primary)
            title = f"{step.get('title') or 'baseline'}{figures.crossed(step.get('partner'))}"
            lines.append(text.append(title, palette.text))
        return lines

    def _prose(self, text: str) -> list[Text]:
        width = max(20, self.query_one("#lines").content_size.width - 4)
        lines: list[Text] = []
        for paragraph in text.splitlines():
            lines += list(Text(paragraph).wrap(self.app.console, width)) or [Text("")]
        return lines

    def _summary(self, width: int, height: int) -> Text:
        palette, facts = self.palette, self.facts
        if not facts:
            return styled(self.unknown, palette.muted)
        record, profile = self.evaluation, self.profile
        status = Status(facts["status"]) if facts.get("status") else None
        text = Text()
        text.append(f"c{facts['id']} ", palette.accent)
        word = figures.status(status) if status else facts.get("state") or ""
        text.append(word, palette.status(status)).append(
            f"  {facts.get('gate') or ''} gate\n" if facts.get("gate") else "\n", palette.muted
        )
        title = figures.change(facts.get("change") or "", facts.get("title") or "baseline")
        text.append(fitted(title, width) + "\n", palette.strong)
        latency = figures.latency(
            facts.get("latency_us"),
            profile.get("source") or "simulated",
            profile.get("chip") or "",
            facts.get("interval_percent"),
        )
        gained = figures.gained(facts.get("speedup"), facts.get("verdict"), facts.get("tie_band"))
        beside = cell_len(f"{latency}  {gained}") <= width
        text.append(f"{latency}  {gained}\n" if beside else f"{latency}\n{gained}\n")
        peak = facts.get("percent_of_peak")
        if peak is not None:
            text.append(bar(peak, 100, min(20, width - 18)), palette.primary).append(f" {peak:.1f} % of peak\n")
            text.append_text(self.beyond_peak(peak, width))
        if facts.get("bound"):
            text.append_text(self.wrapped(f"bound by {facts['bound']}", palette.muted, width, 2))
        if facts.get("failure_message"):
            where = f"line {facts['failure_line']}: " if facts.get("failure_line") else ""
            text.append_text(self.wrapped(where + facts["failure_message"], palette.bad, width, 3))
        engines = engine_bars(profile, width, palette.primary, palette.muted)
        if height >= 12:
            text.append_text(engines)
        checks = record.get("checks") or ()
        if checks:
            passed = sum(1 for check in checks if check["passed"])
            text.append(
                f"{passed} of {len(checks)} checks passed", palette.good if passed == len(checks) else palette.bad
            )
            if record.get("rel_l2") is not None:
                text.append(f", error {record['rel_l2']:.1e}", palette.muted)
            text.append("\n")
        cost = [call.get("cost_usd") for call in facts.get("calls") or ()]
        if cost:
            known = sum(value or 0.0 for value in cost)
            text.append(
                f"{figures.many(len(cost), 'call')}, {figures.usd(known)}{'+?' if None in cost else ''}\n",
                palette.muted,
            )
        run = self.run_view
        children = len(run.children.get(facts["id"], ())) if run else 0
        children = max(children, len(facts.get("children") or ()))
        text.append(f"parent c{facts['parent']}, " if facts.get("parent") else "", palette.muted)
        return text.append(
            f"{children} {'child' if children == 1 else 'children'}, iteration {facts.get('iteration')}", palette.muted
        )

    # -- keys ----------------------------------------------------------------------------------------------------

    def action_view(self, step: int) -> None:
        self.action_go(VIEWS[(VIEWS.index(self._view) + step) % len(VIEWS)])

    def action_go(self, view: str) -> None:
        self._view = view
        self._draw_view()

    def compare(self, against: str) -> None:
        """Show how the source differs from that of the parent, the baseline, the best or the marked candidate."""
        self._view, self._against, self._other = "diff", against, ("", "")
        if self._composed:
            self._draw_view()

    def action_against(self) -> None:
        self._against = AGAINST[(AGAINST.index(self._against) + 1) % len(AGAINST)]
        self.action_go("diff")

    def action_copy(self) -> None:
        if not self.facts:
            self.notify(self.unknown, title="Nothing to copy", markup=False)
            return
        text = "\n".join(line.plain for line in self._drawn)
        copy(self.app, self.facts.get("text") or "" if self._view == "source" else text, self._view)

    def action_edit(self) -> None:
        if not self.facts:
            self.notify(self.unknown, title="Nothing to edit", markup=False)
            return
        edit(self.app, self.facts.get("text") or "", f"c{self.facts.get('id')}.py")

    @on(LineList.Chosen, "#lines")
    def _chosen(self, message: LineList.Chosen) -> None:
        steps = self.facts.get("lineage") or ()
        if self._view == "lineage" and isinstance(message.key, int) and message.key < len(steps):
            self.session.candidate = steps[message.key]["id"]
            self.show()


def engine_bars(profile: Mapping[str, Any], width: int, filled: Any, muted: Any) -> Text:
    """Return a bar for each engine: its busy time as a share of the latency."""
    text = Text()
    engines = sorted((profile.get("engines_us") or {}).items(), key=lambda item: -item[1])
    whole = profile.get("latency_us") or max((busy for _, busy in engines), default=0.0)
    for name, busy in engines:
        if not busy:
            continue
        share = 100 * busy / whole if whole else 0.0
        text.append(f"{name:<7}", muted).append(bar(busy, whole, max(6, min(24, width - 26))), filled)
        text.append(f" {figures.duration(busy):>8} {share:3.0f} %\n", muted)
    return text
