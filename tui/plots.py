"""Compute the points of the figures of a run from its :class:`~acceld.tui.state.RunView`. The functions are
pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acceld.model import Status
from acceld.tui.state import RunView


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one series in a figure. ``style`` names a style of the palette. With ``line`` the points are
    joined; else each is drawn as ``marker``.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: str
    line: bool = False
    marker: str = "●"


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure. If there is nothing to draw, ``empty`` says why. Values on logarithmic axes are exponents of
    ten.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...] = ()
    empty: str = ""
    log: bool = False
    counted: bool = False
    """True if the horizontal axis counts something, so that only whole numbers are labelled."""


def over_iterations(run: RunView, chosen: int | None) -> Plot:
    """Return the figure of the best speed-up after each iteration."""
    return _best(run, "iteration", [float(_iteration(run, best.candidate)) for best in run.bests])


def over_seconds(run: RunView, chosen: int | None) -> Plot:
    """Return the figure of the best speed-up over the seconds that the run has taken."""
    return _best(run, "seconds", [max(0.0, best.at - run.started_at) if best.at else 0.0 for best in run.bests])


def over_dollars(run: RunView, chosen: int | None) -> Plot:
    """Return the figure of the best speed-up over the money that models have cost."""
    if not run.cost_usd:
        return Plot("Best over dollars", "USD", "x", empty="No model call of this run has cost anything.")
    return _best(run, "USD", [run.cost_at(best.seq) for best in run.bests])


def candidates(run: RunView, chosen: int | None) -> Plot:
    """Return the figure of each candidate's latency by iteration. The candidates in the beam, and the candidate under
    the cursor (``chosen``), are marked.
    """
    title, timed = "Candidates", [one for one in run.candidates.values() if one.latency_us]
    if not timed:
        return Plot(title, "iteration", "µs", empty="No candidate has a latency yet.")

    def series(label: str, style: str, marker: str, wanted: Callable[[int], bool]) -> Series:
        found = [one for one in timed if wanted(one.id)]
        x, y = tuple(float(one.iteration) for one in found), tuple(one.latency_us or 0.0 for one in found)
        return Series(label, x, y, style, marker=marker)

    passed = {one.id for one in timed if one.status is Status.PASSED}
    only_timed = {one.id for one in timed if one.status is Status.UNTESTED}
    beam = set(run.beam) & passed
    drawn = (
        series("not passed", "bad", "×", lambda number: number not in passed | only_timed),
        series("timed only", "muted", "+", lambda number: number in only_timed),
        series("passed", "muted", "·", lambda number: number in passed - beam),
        series("beam", "primary", "●", lambda number: number in beam),
        series("cursor", "accent", "◆", lambda number: number == chosen),
    )
    return Plot(title, "iteration", "µs", tuple(one for one in drawn if one.x), counted=True)


def roofline(run: RunView, chosen: int | None) -> Plot:
    """Return the figure of the roofline of the declared work, with the baseline, the best candidate and the one
    under the cursor (``chosen``).
    """
    roof, title = run.roof, "Roofline (declared work)"
    if roof is None:
        return Plot(title, "FLOP/byte", "GFLOP/s", empty="The workload declares no work, or the chip has no peak.")
    intensity, ridge = roof.flops / roof.hbm_bytes, roof.flops_per_s / roof.bytes_per_s
    left, right = min(intensity, ridge) / 8, max(intensity, ridge) * 8
    edge = (left, ridge, right)
    roofs = tuple(min(x * roof.bytes_per_s, roof.flops_per_s) / 1e9 for x in edge)
    drawn = [Series("roof", edge, roofs, "muted", line=True)]
    base, best = run.baseline, run.best
    places = (
        ("baseline", "warn", "○", base.id if base else None),
        ("best", "good", "★", best.candidate if best else None),
        ("cursor", "accent", "◆", chosen),
    )
    for label, style, marker, number in places:
        node = run.candidates.get(number or 0)
        if node is not None and node.latency_us:
            rate = roof.flops / (node.latency_us * 1e-6) / 1e9
            drawn.append(Series(label, (intensity,), (rate,), style, marker=marker))
    return Plot(title, "FLOP/byte", "GFLOP/s", tuple(drawn), log=True)


PLOTS = (over_iterations, candidates, roofline, over_seconds, over_dollars)
"""All figures, in the order in which a key shows them."""


def _iteration(run: RunView, candidate: int) -> int:
    node = run.candidates.get(candidate)
    return node.iteration if node else 0


def _best(run: RunView, x_label: str, places: Sequence[float]) -> Plot:
    title, base = (
        f"Best over {x_label if x_label == 'seconds' else {'USD': 'dollars'}.get(x_label, 'iterations')}",
        run.baseline_us,
    )
    if not base or not run.bests:
        return Plot(title, x_label, "x", empty="The baseline has no latency yet.")
    x, y = [0.0], [1.0]
    for place, best in zip(places, run.bests, strict=True):
        # A step: the best so far holds until the next one is found.
        x += [max(place, x[-1])] * 2
        y += [y[-1], base / best.latency_us]
    last = float(run.iteration) if x_label == "iteration" else x[-1]
    return Plot(
        title,
        x_label,
        "x",
        (Series("best", (*x, max(last, x[-1])), (*y, y[-1]), "good", line=True),),
        counted=x_label == "iteration",
    )
