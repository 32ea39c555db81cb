"""Plots are folds of a run."""

from __future__ import annotations

import asyncio

import pytest
from rich.style import Style
from textual.app import App

from acceld.events import CandidateEvaluated, CandidateWritten, Event
from acceld.model import Status
from acceld.tui.palette import Palette
from acceld.tui.plots import PLOTS, Plot, Series, candidates, over_dollars, over_iterations, over_seconds, roofline
from acceld.tui.state import Roof, RunView
from acceld.tui.widgets.code import diff_lines
from acceld.tui.widgets.plot import PlotPane, PowersOfTen
from tests.tui.scene import events_of


def a_run() -> RunView:
    run = RunView(1)
    for event in events_of():
        run.apply(event)
    return run


def test_the_best_so_far_never_falls_and_ends_at_the_best() -> None:
    run = a_run()
    assert run.best is not None and run.baseline_us
    for plot in (over_iterations(run, None), over_seconds(run, None), over_dollars(run, None)):
        (series,) = plot.series
        assert list(series.y) == sorted(series.y)
        assert list(series.x) == sorted(series.x)
        assert series.y[-1] == pytest.approx(run.baseline_us / run.best.latency_us)


def test_every_timed_candidate_is_plotted_once_and_the_cursor_again() -> None:
    run = a_run()
    timed = [one for one in run.candidates.values() if one.latency_us]
    plot = candidates(run, timed[0].id)
    points = {one.label: len(one.x) for one in plot.series}
    assert points.pop("cursor") == 1
    assert sum(points.values()) == len(timed)


def test_a_point_under_the_roof_has_the_rate_of_its_latency() -> None:
    run = a_run()
    assert roofline(run, None).empty
    run.roof = Roof(flops=2e9, hbm_bytes=1e7, flops_per_s=2e13, bytes_per_s=4e11)
    plot = roofline(run, None)
    by_label = {one.label: one for one in plot.series}
    assert run.best is not None
    assert by_label["best"].x == (200.0,)
    assert by_label["best"].y[0] == pytest.approx(2e9 / (run.best.latency_us * 1e-6) / 1e9)
    assert max(by_label["roof"].y) == pytest.approx(2e4)


def test_a_run_without_anything_says_why_there_is_no_plot() -> None:
    assert all(plot(RunView(1), None).empty for plot in PLOTS)


def test_words_that_changed_are_underlined_and_others_are_not() -> None:
    plain = Style()
    palette = Palette(*(plain,) * 12)
    (gone,) = [one for one in diff_lines("x = load(a)\n", "x = load(b)\n", palette) if one.plain.startswith("-x")]
    marked = [
        gone.plain[span.start : span.end]
        for span in gone.spans
        if isinstance(span.style, Style) and span.style.underline
    ]
    assert marked == ["a"]


def test_a_wide_difference_stands_in_two_columns() -> None:
    palette = Palette(*(Style(),) * 12)
    lines = [one.plain for one in diff_lines("a = 1\nb = 2\n", "a = 1\nb = 3\n", palette, width=160, sides=True)]
    (row,) = [one for one in lines if "-b = 2" in one]
    assert row.index("+b = 3") > 78


def test_a_short_logarithmic_axis_has_round_numbers_between_the_powers_of_ten() -> None:
    axis = PowersOfTen()
    ticks = axis.get_ticks(2.9, 4.4)
    assert axis.get_labels_for_ticks(ticks) == ["1000", "2000", "5000", "10000", "20000"]
    assert axis.get_labels_for_ticks(axis.get_ticks(0.5, 3.5)) == ["10", "100", "1000"]


def test_a_difference_is_dedented_and_its_long_lines_go_on() -> None:
    palette = Palette(*(Style(),) * 12)
    before = "def f():\n        tile = load(x)\n        " + "store(" + "a" * 40 + ")\n"
    after = before.replace("load(x)", "load(y)")
    lines = [one.plain for one in diff_lines(before.partition("\n")[2], after.partition("\n")[2], palette, width=20)]
    assert "-tile = load(x)" in lines and "+tile = load(y)" in lines
    assert max(map(len, lines[3:])) <= 20 and "".join(one[1:] for one in lines[-3:]).count("a") == 40
    sides = [one.plain for one in diff_lines(before, after, palette, width=43, sides=True)]
    assert max(map(len, sides)) <= 43 and sum(one.count("a") for one in sides[-4:]) >= 80, "both halves are whole"


def test_a_long_line_of_a_difference_breaks_after_a_blank() -> None:
    palette = Palette(*(Style(),) * 12)
    lines = [one.plain for one in diff_lines("", "call(dst=tile, data=other, operand=last)\n", palette, width=24)]
    assert lines[-3:] == ["+call(dst=tile, ", " data=other, ", " operand=last)"]


def test_a_kernel_that_was_only_timed_is_not_called_not_passed() -> None:
    run = RunView(1)
    for number, status in ((1, Status.PASSED), (2, Status.UNTESTED), (3, Status.INCORRECT_NUMERICAL)):
        run.apply(Event(CandidateWritten(number), 1, number))
        run.apply(Event(CandidateEvaluated(number, number, status, 5.0), 1, 10 + number))
    assert [(one.label, len(one.x)) for one in candidates(run, None).series] == [
        ("not passed", 1),
        ("timed only", 1),
        ("passed", 1),
    ]


async def test_a_figure_may_be_shown_at_any_moment_while_its_pane_is_composed() -> None:
    one = Plot("t", "x", "y", (Series("s", (1.0, 2.0), (1.0, 2.0), style="accent"),))
    app = App[None]()
    async with app.run_test():
        pane = PlotPane(one)
        mounted = app.mount(pane)
        moments = 0
        while not pane.query("PlotWidget Grid"):
            pane.show(one)
            moments += bool(pane.query("PlotWidget"))
            await asyncio.sleep(0)
        assert moments, "at some moment the plot has no parts"
        await mounted
        assert pane.border_title == "t"
