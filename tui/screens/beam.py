"""Show the candidates of one run as a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import islice, takewhile
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.timer import Timer

from acceld import figures
from acceld.tui.beam import Folding, TreeLine, tree_lines
from acceld.tui.palette import styled
from acceld.tui.plots import PLOTS
from acceld.tui.screens.base import ConsoleScreen, best_line
from acceld.tui.screens.candidate import CandidateScreen
from acceld.tui.session import Session
from acceld.tui.state import CandidateView, RunView
from acceld.tui.terminal import copy, key_of
from acceld.tui.widgets.bars import bar, fitted
from acceld.tui.widgets.code import colored, diff_lines
from acceld.tui.widgets.frame import Line, Panel
from acceld.tui.widgets.lines import LineList
from acceld.tui.words import age, state_word, status_word

PEAK = 7
"""Width of the column for percent of peak, the first column that a narrow list leaves out."""
FIGURES = 9 + 1 + 6 + 1 + PEAK + 1 + 13
"""Widths of the columns latency, speed-up, percent of peak and status."""
NARROW = 66
NEWEST = 2000
"""Number of the newest candidates that the summary of changes counts."""
RESTS_S = 0.15
"""Seconds that the cursor must rest before a candidate's text is loaded."""


def figures_width(width: int) -> int:
    """Return how many cells the columns of figures take in a line of ``width`` cells."""
    return FIGURES if width >= NARROW else FIGURES - PEAK


def changes(run: RunView) -> dict[str, tuple[int, int, float]]:
    """Return three figures for each kind of change, the change with the greatest gain first.

    The figures are: how many of the newest ``NEWEST`` candidates tried the change, how many of these were faster than
    their parents beyond a tie, and the greatest of these gains.
    """
    found: dict[str, tuple[int, int, float]] = {}
    for node in islice(reversed(run.candidates.values()), NEWEST):
        plan, parent = run.plans.get(node.plan or 0), run.candidates.get(node.parent or 0)
        if plan is None or parent is None or node.status is None:
            continue
        title = plan.rule or plan.title
        tried, gains, best = found.get(title, (0, 0, 0.0))
        step = (
            parent.latency_us / node.latency_us if run.gained(node) and parent.latency_us and node.latency_us else 0.0
        )
        found[title] = (tried + 1, gains + bool(step), max(best, step))
    return dict(sorted(found.items(), key=lambda one: (-one[1][2], -one[1][0])))


class BeamScreen(ConsoleScreen):
    """Screen with the tree of a run's candidates, in which the path to the best one is marked."""

    NAME = "beam"
    AUTO_FOCUS: ClassVar[str | None] = "#tree"
    WANTS = frozenset({"run"})
    FILTERS = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="beam.open"),
        Binding("space", "fold", "Fold", id="beam.fold"),
        Binding("p", "app.steer('pause')", "Pause", id="run.pause"),
        Binding("i", "app.steer('pin')", "Pin", id="candidate.pin"),
        Binding("v", "app.steer('veto')", "Veto", id="candidate.veto"),
        Binding("b", "app.steer('branch')", "Branch", show=False, id="candidate.branch"),
        Binding("r", "app.steer('remeasure')", "Re-measure", show=False, id="candidate.remeasure"),
        Binding("m", "mark", "Mark to compare", show=False, id="candidate.mark"),
        Binding("h", "app.steer('hint')", "Hint", id="run.hint"),
        Binding("exclamation_mark", "errors", "Failed only", show=False, id="beam.errors", key_display="!"),
        Binding("f", "plot", "Next figure", show=False, id="beam.plot"),
        Binding("B", "best", "Go to best", show=False, id="beam.best"),
        Binding("x", "app.steer('cancel')", "Cancel run", show=False, id="run.cancel"),
        Binding("y", "copy", "Copy", show=False, id="copy"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._foldings: dict[int, Folding] = {}
        self._lines: dict[Hashable, TreeLine] = {}
        self._path: frozenset[int] = frozenset()
        self._beam: frozenset[int] = frozenset()
        self._changed: tuple[int | None, list[Text]] = (None, [])
        self._resting: Timer | None = None
        self._plot = 0
        self._looked_at: set[int] = set()
        """Ids of the runs whose tree has been drawn with the cursor where a person looks first."""

    def body(self) -> Iterable[Any]:
        with Container(id="split"):
            yield LineList(id="tree")
            with Vertical(id="side"):
                yield Panel(self._details, id="details")
                yield Container(id="plot")
                yield LineList(id="change", pointer=False, empty="loading")
            yield Panel(self._now, id="now")
        yield Line(self._summary, id="summary")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#change").can_focus = False
        self.query_one("#now").border_title = "Now"

    @property
    def _folding(self) -> Folding:
        run = self.run_view
        return self._foldings.setdefault(run.id if run else 0, Folding())

    def show(self) -> None:
        run = self.run_view
        tree = self.query_one("#tree", LineList)
        tree.border_title = "Candidates"
        tree.empty = self._why_empty()
        if run is None:
            tree.show((), self._draw)
            self._show_change()
            return
        lines = tree_lines(run, self._folding)
        self._lines = {one.key: one for one in lines}
        self._path = frozenset(run.path(run.best.candidate)) if run.best else frozenset()
        self._beam = frozenset(run.beam)
        hidden = len(run.candidates) - sum(1 for one in lines if not one.folded)
        tree.border_title = f"Candidates {len(run.candidates) - (run.baseline is not None)}" + (
            f", {hidden} folded" if hidden > 0 else ""
        )
        if self._folding.only_failed:
            tree.border_title = f"Failed candidates {len(lines)}"
        tree.show([one.key for one in lines], self._draw, header=self._header)
        self._look_first(run)
        if self.session.candidate is not None:
            self.point(tree, ("candidate", self.session.candidate))
        self._select(tree.key)
        self.query_one("#summary").refresh()
        self.query_one("#details").refresh()
        self.query_one("#now").refresh()
        self._show_plot()
        self._show_change()

    def _look_first(self, run: RunView) -> None:
        """Choose the best candidate of an ended run that is opened, because its result is what a person comes for.

        A run that is opened while it goes on keeps the cursor where it is.
        """
        best = run.best.candidate if run.best and run.ended else None
        if run.id in self._looked_at or self.session.loading or (run.ended and best not in run.candidates):
            return
        self._looked_at.add(run.id)
        if best is not None and self.session.candidate in (None, run.baseline and run.baseline.id):
            self.session.candidate = best

    def _why_empty(self) -> str:
        if self.session.loading:
            return f"reading r{self.session.run}"
        if self._folding.query:
            return "No candidate matches."
        if self._folding.only_failed:
            return "No candidate failed."
        return self.nothing("No candidate yet: the baseline is evaluated first." if self.run_view else "No run yet.")

    def _header(self, width: int) -> Text:
        peak = f"{'% peak':>6} " if width >= NARROW else ""
        room = " " * max(0, width - figures_width(width))
        return styled(f"{room}{'latency':>9} {'x':>6} {peak} {'status':<13}", self.palette.muted)

    def _draw(self, key: Hashable, width: int) -> Text:
        run, palette, one = self.run_view, self.palette, self._lines.get(key)
        if run is None or one is None:
            return Text("")
        text = styled(one.guide, palette.muted)
        if one.folded:
            text.append(f"… {one.folded} more: {one.note}", palette.muted)
            text.truncate(width, overflow="ellipsis")
            return text
        node = run.candidates.get(one.candidate)
        if node is None:  # the line belongs to the run that was in view before
            return Text("")
        on_path = node.id in self._path
        fold = ("▾" if one.open else "▸") if one.has_children else " "
        text.append(f"{fold}", palette.muted)
        text.append(f"c{node.id}", palette.accent if on_path else palette.strong if node.id in self._beam else "")
        badge = self._badge(run, node)
        if text.cell_len + len(badge) + 2 > width - figures_width(width):
            badge = badge[:1]
        if badge:
            text.append(f" {badge}", palette.accent if badge.startswith("★") else palette.primary)
        taken = figures_width(width)
        room = width - taken - text.cell_len - 2
        title = run.title(node)
        if room > 6:
            text.append("  " + fitted(title, room - 2), palette.muted)
        text.truncate(max(4, width - taken - 1), overflow="ellipsis", pad=True)
        text.append(" " * max(0, width - taken - text.cell_len))
        speedup = run.speedup_of(node)
        text.append(f"{figures.duration(node.latency_us):>9} ", palette.text if node.latency_us else palette.muted)
        text.append(f"{figures.speedup(speedup):>6} ", palette.good if run.is_win(node) else palette.muted)
        peak = f"{node.percent_of_peak:.1f}" if node.percent_of_peak is not None else "—"
        text.append(f"{peak:>6}  " if width >= NARROW else " ", palette.muted)
        if run.unconfirmed(node):
            text.append(f"{'· unconfirmed':<13}", palette.warn)
        else:
            text.append(f"{status_word(node):<13}", palette.status(node.status))
        return text

    def _badge(self, run: RunView, node: CandidateView) -> str:
        mark = {"pin": "pinned", "veto": "vetoed"}.get(run.mark(node.id), "")
        mark = f"{mark} marked".strip() if node.id == self.session.marked else mark
        if run.best and node.id == run.best.candidate:
            return f"★ best {mark}".strip()
        if node.id in self._beam:
            return f"● beam {mark}".strip()
        return mark

    def _summary(self, width: int) -> Text:
        run, palette = self.run_view, self.palette
        if run is None:
            return Text("")
        counts = run.evaluated
        usable, evaluated = counts["passed"] + counts["untested"], counts.total()
        text = Text(" ")
        text.append(best_line(run, max(8, width // 4)), palette.good)
        text.append("  best so far" if run.bests else "", palette.muted)
        share = f"{100 * usable // evaluated} % usable" if evaluated else ""
        waiting = f"{run.waiting} waiting" if run.waiting else ""
        known = figures.many(evaluated + run.waiting, "candidate") if evaluated + run.waiting else "no candidate yet"
        right = "  ".join(filter(None, (known, share, waiting)))
        text.append(" " * max(2, width - text.cell_len - len(right) - 1)).append(right, palette.muted)
        return text

    def _details(self, width: int, height: int) -> Text:
        run, palette = self.run_view, self.palette
        node = run.candidates.get(self.session.candidate or 0) if run else None
        if run is None or node is None:
            return styled("Choose a candidate.", palette.muted)
        text = Text()
        text.append(f"c{node.id} ", palette.accent).append(status_word(node), palette.status(node.status))
        if node.gate:
            text.append(f"  {node.gate} gate", palette.muted)
        badge = self._badge(run, node)
        text.append(f"  {badge}\n" if badge else "\n", palette.primary)
        text.append(fitted(run.title(node), width) + "\n", palette.strong)
        speedup = run.speedup_of(node)
        if node.latency_us is not None:
            latency = figures.latency(node.latency_us, run.source, run.chip).removesuffix(" unvalidated")
            text.append(f"{latency}  {figures.brief_gain(speedup, node.verdict)}", palette.text)
            parent = run.candidates.get(node.parent or 0)
            if parent and parent.latency_us:
                change = 100 * (parent.latency_us / node.latency_us - 1)
                gain = f"  {change:+.1f} % over c{parent.id}"
                if len(text.plain.splitlines()[-1]) + len(gain) > width:
                    gain = f"  {change:+.1f} %"
                text.append(gain, palette.good if run.gained(node) else palette.muted)
            text.append("\n")
        if node.percent_of_peak is not None:
            text.append(bar(node.percent_of_peak, 100, min(24, width - 16)), palette.primary)
            text.append(f" {node.percent_of_peak:.1f} % of peak\n")
            text.append_text(self.beyond_peak(node.percent_of_peak, width))
        if node.bound:
            text.append_text(self.wrapped(f"bound by {node.bound}", palette.muted, width, 2))
        if node.failure:
            text.append_text(self.wrapped(node.failure, palette.bad, width, 4))
        if height > 10:
            self._lineage(run, node, width, text)
        return text

    def _lineage(self, run: RunView, node: CandidateView, width: int, text: Text) -> None:
        """Append a line for each step from the baseline to a candidate, with the step's gain."""
        palette = self.palette
        text.append("\nlineage\n", palette.muted)
        before: float | None = None
        for number in run.path(node.id)[-12:]:
            step = run.candidates[number]
            gain = f"{100 * (before / step.latency_us - 1):+6.1f} %" if before and step.latency_us else "        "
            text.append(f"c{number:<6}", palette.accent if number == node.id else palette.text)
            text.append(f"{figures.duration(step.latency_us):>9} {gain}  ", palette.muted)
            text.append(fitted(run.title(step), max(8, width - 28)) + "\n", palette.muted)
            before = step.latency_us
        children = run.children.get(node.id, [])
        if children:
            better = sum(
                1
                for child in children
                if (us := run.candidates[child].latency_us) and node.latency_us and us < node.latency_us
            )
            text.append(
                f"\n{len(children)} {'child' if len(children) == 1 else 'children'}, {better} faster\n", palette.muted
            )

    def _show_plot(self) -> None:
        """Draw the chosen figure if the window has room for it."""
        place, run = self.query_one("#plot", Container), self.run_view
        if run is None or not place.display:
            return
        from acceld.tui.widgets.plot import PlotPane  # imports numpy, which no other screen needs

        plot = PLOTS[self._plot](run, self.session.candidate)
        if place.children:
            place.query_one(PlotPane).show(plot)
        else:
            place.mount(PlotPane(plot))

    def action_plot(self) -> None:
        self._plot = (self._plot + 1) % len(PLOTS)
        self._show_plot()

    def _show_change(self) -> None:
        """Draw the difference between the candidate under the cursor and its parent, if there is room, as soon
        as the cursor rests.
        """
        pane, number, run = self.query_one("#change", LineList), self.session.candidate, self.run_view
        if self._changed[0] is not None and (run is None or self._changed[0] not in run.candidates):
            self._take({})
        if number is None or number == self._changed[0] or not pane.display:
            return
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(RESTS_S, lambda: self.fetch(f"/v1/candidates/{number}", self._take))

    def _take(self, facts: Mapping[str, Any]) -> None:
        if facts and facts["id"] != self.session.candidate:  # the user has chosen another candidate meanwhile
            return
        pane, parent = self.query_one("#change", LineList), facts.get("parent")
        if facts.get("parent_text"):
            room = pane.content_size.width - 1  # for the scrollbar
            lines = diff_lines(facts["parent_text"], facts.get("text") or "", self.palette, width=room)[2:]
        else:
            lines = colored(facts.get("text") or "", self.palette)
        self._changed = (facts.get("id"), lines)
        pane.empty = "The same text." if facts else "loading"
        pane.border_title = f"Change from c{parent}" if parent else "Source" if facts else ""
        pane.show_lines(lines)
        pane.scroll_home(animate=False)

    def _now(self, width: int, height: int) -> Text:
        """Return lines on what devices do, what the run does next, and how fast it goes."""
        palette, session, run = self.palette, self.session, self.run_view
        state, text = session.state, Text()
        for name in sorted(state.devices)[: height // 3]:
            device = state.devices[name]
            text.append(fitted(state_word(device.state), 8).ljust(9), palette.state(device.state))
            doing = f"c{device.candidate} {age(session.now - device.since)}" if device.candidate else ""
            text.append(fitted(f"{name}  {doing}", width - 9) + "\n")
        if run is None:
            return text
        text.append(f"{len(state.queue)} waiting\n", palette.muted)
        waiting = [number for number, (of, _) in state.queue.items() if of == run.id and number in run.candidates]
        for number in waiting[: height // 3]:
            head = f"next c{number}  "
            text.append(head, palette.text)
            text.append(fitted(run.title(run.candidates[number]), width - len(head)) + "\n", palette.muted)
        asked = Counter((call.role, call.model) for _, call in run.running_calls.values())
        for (role, model), calls in asked.items():
            text.append(fitted(f"{role} asks {model}{f' {calls} times' if calls > 1 else ''}", width) + "\n")
        evaluated = run.evaluated.total()
        spent_s = (run.changed_at if run.ended else session.now) - run.started_at
        if evaluated and run.started_at and spent_s > 0:
            pace = f"{evaluated} evaluated in {age(spent_s)}, {60 * evaluated / spent_s:.1f} a minute"
            text.append("\n").append(fitted(pace, width), palette.muted)
        if run.best:
            best = run.best.candidate
            since = sum(1 for _ in takewhile(lambda number: number > best, reversed(run.candidates)))
            ago = f" {age(session.now - run.best.at)} ago" if run.best.at and not run.ended else ""
            text.append(f"\nbest c{best}", palette.accent)
            text.append(fitted(f"{ago}, {since} written since", width - len(f"best c{best}")) + "\n", palette.muted)
        room = height - len(text.plain.splitlines()) - 2
        tried = changes(run)
        if tried and room > 0:
            text.append(f"\n{'change':<{width - 16}} {'gains':>8} {'best':>6}\n", palette.muted)
            for title, (number, gains, step) in list(tried.items())[:room]:
                text.append(fitted(title, width - 16).ljust(width - 16))
                text.append(f" {f'{gains} of {number}':>8} ", palette.muted)
                text.append(
                    f"{figures.speedup(step if gains else None):>6}\n", palette.good if gains else palette.muted
                )
        return text

    def filtered(self, text: str) -> None:
        self._folding.query = text
        self.show()

    def _select(self, key: Hashable | None) -> None:
        run = self.run_view  # the message can belong to the run that was in view before
        if isinstance(key, tuple) and key[0] == "candidate" and run is not None and key[1] in run.candidates:
            self.session.candidate = key[1]

    @on(LineList.Moved, "#tree")
    def _moved(self, message: LineList.Moved) -> None:
        self.pointed(message.key)
        self._select(message.key)
        self.query_one("#details").refresh()
        self._show_plot()
        self._show_change()

    @on(LineList.Chosen, "#tree")
    def _chosen(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        key = self.query_one("#tree", LineList).key
        if isinstance(key, tuple) and key[0] == "rest":
            self.action_fold()
        elif key is not None:
            self._select(key)
            self.app.switch_mode("candidate")

    def action_fold(self) -> None:
        one = self._lines.get(self.query_one("#tree", LineList).key)
        if one is None:
            return
        folding = self._folding
        if one.folded:
            folding.unfolded.add(one.candidate)
        elif one.open:
            folding.closed.add(one.candidate)
            folding.opened.discard(one.candidate)
            folding.unfolded.discard(one.candidate)
        else:
            folding.opened.add(one.candidate)
            folding.closed.discard(one.candidate)
        self.show()

    def action_errors(self) -> None:
        self._folding.only_failed = not self._folding.only_failed
        self.show()

    def action_best(self) -> None:
        run = self.run_view
        if run and run.best:
            self.query_one("#tree", LineList).move_to_key(("candidate", run.best.candidate))

    def action_mark(self) -> None:
        """Mark the candidate under the cursor; if another candidate is marked already, show the difference between the
        two.
        """
        marked, number = self.session.marked, self.session.candidate
        if number is None:
            return
        if marked in (None, number) or self.run_view is None or marked not in self.run_view.candidates:
            self.session.marked = None if marked == number else number
            key = key_of(self, "mark")
            told = f"c{number} is marked: {key} on another one compares the two"
            self.notify(told if marked != number else "not marked")
            self.show()
        else:
            self.app.switch_mode("candidate")
            screen = self.app.screen
            if isinstance(screen, CandidateScreen):
                screen.compare("marked")

    def action_copy(self) -> None:
        if self.session.candidate:
            copy(self.app, f"c{self.session.candidate}", "candidate")
