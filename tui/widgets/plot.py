"""Draw a figure with axes by the package textual-plot, in the styles of the theme."""

from __future__ import annotations

import math
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static
from textual_plot import HiResMode, NumericAxisFormatter, PlotWidget

from acceld.tui.palette import palette_of
from acceld.tui.plots import Plot


class WholeNumbers(NumericAxisFormatter):
    """Axis with ticks only at whole numbers."""

    def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
        """Return whole numbers at round distances inside the range."""
        return [tick for tick in super().get_ticks(min_, max_, max_ticks) if tick == round(tick)]

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """Return each number as text, without a decimal point."""
        return [f"{tick:.0f}" for tick in ticks]


class PowersOfTen(NumericAxisFormatter):
    """Axis whose values are exponents of ten, with ticks at powers of ten. If there are few powers of ten in the range,
    2 and 5 times each power get ticks too.
    """

    def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
        """Return the exponents of round numbers inside the range."""
        exponents = range(math.floor(min_), math.floor(max_) + 1)
        found = [one + math.log10(step) for one in exponents for step in ((1,) if max_ - min_ > 2 else (1, 2, 5))]
        return [one for one in found if min_ <= one <= max_]

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """Return the numbers whose exponents are given, as text."""
        return [f"{round(10**tick, 9):g}" for tick in ticks]


class PlotPane(Container):
    """Pane that shows one :class:`~acceld.tui.plots.Plot`, or the reason why it has nothing to draw."""

    DEFAULT_CSS = """
    PlotPane { border: round $panel; border-title-color: $secondary; border-subtitle-color: $secondary; }
    PlotPane Static { padding: 0 1; color: $secondary; }
    """

    def __init__(self, plot: Plot) -> None:
        super().__init__()
        self._plot = plot

    def on_mount(self) -> None:
        self.show(self._plot)

    def compose(self) -> ComposeResult:
        figure = PlotWidget(allow_pan_and_zoom=False)
        figure.can_focus = False
        yield figure
        yield Static("", id="words", markup=False)

    def show(self, plot: Plot) -> None:
        """Draw a figure."""
        self._plot = plot
        if not self.query("PlotWidget Grid"):
            return  # the figure is drawn when the pane and the parts of its plot are composed
        self.border_title = plot.title
        widget, words = self.query_one(PlotWidget), self.query_one("#words", Static)
        widget.display, words.display = not plot.empty, bool(plot.empty)
        words.update(plot.empty)
        if plot.empty:
            self.border_subtitle = ""
            return
        palette = palette_of(self.app)
        widget.margin_top = 1
        widget.clear()
        across: list[float] = []
        up: list[float] = []
        for one in plot.series:
            x, y = ([math.log10(v) for v in axis] if plot.log else list(axis) for axis in (one.x, one.y))
            across += x
            up += y
            style = str(getattr(palette, one.style)) or "default"
            if one.line:
                widget.plot(x, y, line_style=style, hires_mode=HiResMode.BRAILLE)
            else:
                widget.scatter(x, y, marker=one.marker, marker_style=style)
        widget.set_x_formatter(
            PowersOfTen() if plot.log else WholeNumbers() if plot.counted else NumericAxisFormatter()
        )
        widget.set_y_formatter(PowersOfTen() if plot.log else NumericAxisFormatter())
        widget.set_xlimits(*_around(across))
        widget.set_ylimits(*_around(up))
        widget.set_xlabel(plot.x_label)
        widget.set_ylabel(plot.y_label)
        legend = [f"{one.marker} {one.label}" for one in plot.series if not one.line]
        self.border_subtitle = "  ".join(legend)


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Return limits for an axis, a little beyond the values: a point exactly on a limit would not be drawn."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room
