"""Draw the figures of a report as SVG. A figure inside a page uses the page's colors. A figure in a file of its own
uses the colors of :data:`STYLE`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 720
ROW = 26
FONT = 'font-size="12"'
STYLE = """
text.ink { fill: var(--ink, #23272e); } text.faint { fill: var(--faint, #6b7480); } line.grid { stroke: var(--line, #e2ded5); }
rect.before { fill: var(--soft, #b9c6d2); } rect.after { fill: var(--main, #2f6592); }
path.curve { fill: none; stroke: var(--main, #2f6592); stroke-width: 2; }
circle.dot { fill: var(--main, #2f6592); } circle.leaf { fill: var(--soft, #b9c6d2); }
circle.dead { fill: var(--bad, #b03a3e); opacity: .5; }
line.twig { stroke: var(--line, #e2ded5); } line.way { stroke: var(--main, #2f6592); stroke-width: 2; }
"""
"""Style with the colors of a figure. Every figure contains it, so that a figure in a file of its own is not black."""


def standalone(drawing: str, paper: str) -> str:
    """Return a figure for viewers that know no CSS variables, in the light colors on a background of the color
    ``paper``.
    """
    plain = re.sub(r"var\(--\w+, (#\w+)\)", r"\1", drawing)
    return plain.replace("</style>", f'</style><rect width="100%" height="100%" fill="{paper}"/>', 1)


def figure(body: Sequence[str], height: float, label: str) -> str:
    """Return an SVG of the common width, with a label for screen readers."""
    inside = "\n".join(body)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif">\n<style>{STYLE}</style>\n{inside}\n</svg>'
    )


def peak_bars(rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    """Return a drawing of two bars (before, after) for each name, on a scale from 0 to 100 percent."""
    left, right = 190, WIDTH - 60
    body = []
    for tick in range(0, 101, 25):
        x = left + (right - left) * tick / 100
        body.append(f'<line x1="{x}" x2="{x}" y1="4" y2="{len(rows) * 2 * ROW}" class="grid"/>')
        body.append(
            f'<text x="{x}" y="{len(rows) * 2 * ROW + 16}" {FONT} class="faint" text-anchor="middle">{tick}</text>'
        )
    for place, (name, before, after) in enumerate(rows):
        y = place * 2 * ROW + 6
        body.append(
            f'<text x="{left - 10}" y="{y + ROW}" {FONT} class="ink" text-anchor="end">{escape(name[:28])}</text>'
        )
        for shift, value, kind in ((0, before, "before"), (ROW - 4, after, "after")):
            if value is None:
                continue
            width = max(1.0, (right - left) * min(value, 100) / 100)
            body.append(
                f'<rect x="{left}" y="{y + shift}" width="{width:.1f}" height="{ROW - 8}" rx="2" class="{kind}"/>'
            )
            body.append(f'<text x="{left + width + 6:.1f}" y="{y + shift + 13}" {FONT} class="ink">{value:.1f}</text>')
    bottom = len(rows) * 2 * ROW + 40
    for place, (kind, word) in enumerate((("before", "% of peak before"), ("after", "% of peak after"))):
        x = left + place * 180
        body.append(f'<rect x="{x}" y="{bottom - 10}" width="14" height="10" class="{kind}"/>')
        body.append(f'<text x="{x + 20}" y="{bottom}" {FONT} class="ink">{escape(word)}</text>')
    return figure(body, bottom + 8, "% of peak before and after")


def steps(
    points: Sequence[tuple[float, float]],
    x_title: str,
    y_title: str,
    end: float | None = None,
    *,
    counted: bool = False,
) -> str:
    """Return a drawing of a curve that keeps its value until the next point, from the first x to ``end``. The y axis
    begins at 1 or below.

    With ``counted``, x is a count, and its labels are whole numbers.
    """
    if not points:
        return ""
    height, left, right, top, bottom = 220.0, 56.0, WIDTH - 20.0, 14.0, 180.0
    low_x, high_x = points[0][0], max(end if end is not None else points[-1][0], points[-1][0], points[0][0] + 1e-9)
    low, high = min(1.0, *(y for _, y in points)), max(1.1, *(y for _, y in points))

    def at(x: float, y: float) -> tuple[float, float]:
        across = left + (right - left) * (x - low_x) / (high_x - low_x)
        return across, bottom - (bottom - top) * (y - low) / (high - low)

    body = []
    for part in range(5):
        value = low + (high - low) * part / 4
        y = at(low_x, value)[1]
        body.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        body.append(f'<text x="{left - 8}" y="{y + 4:.1f}" {FONT} class="faint" text-anchor="end">{value:.2f}x</text>')
    for value in whole_ticks(low_x, high_x) if counted else [low_x + (high_x - low_x) * part / 4 for part in range(5)]:
        x = at(value, low)[0]
        shown = f"{value:.0f}" if counted else f"{value:.4g}"
        body.append(f'<text x="{x:.1f}" y="{bottom + 18}" {FONT} class="faint" text-anchor="middle">{shown}</text>')
    path = f"M{at(*points[0])[0]:.1f},{at(*points[0])[1]:.1f}"
    for x, y in points[1:]:
        across, down = at(x, y)
        path += f"H{across:.1f}V{down:.1f}"
    path += f"H{right:.1f}"
    body.append(f'<path d="{path}" class="curve"/>')
    for x, y in points:
        across, down = at(x, y)
        body.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3" class="dot"/>')
    body.append(f'<text x="{right}" y="{bottom + 34}" {FONT} class="faint" text-anchor="end">{escape(x_title)}</text>')
    return figure(body, height, f"{y_title} by {x_title}")


def whole_ticks(low: float, high: float) -> list[float]:
    """Return about five whole numbers at equal distances from ``low`` to ``high``, for an axis."""
    first, last = math.ceil(low), math.floor(high)
    return [float(one) for one in range(first, last + 1, max(1, math.ceil((last - first) / 5)))]


def curves(named: Mapping[str, Sequence[float]], x_title: str, y_title: str) -> str:
    """Return a drawing of step curves over the positions 1, 2, 3 ..., with a legend; "" if the curves have no point."""
    drawn = {name: values for name, values in named.items() if values}
    if not drawn:
        return ""
    left, right, top, bottom = 56.0, WIDTH - 20.0, 14.0, 220.0
    longest, high = max(map(len, drawn.values())), max(1.1, *(max(values) for values in drawn.values()))

    def at(x: float, y: float) -> tuple[float, float]:
        across = left + (right - left) * (x - 1) / max(1, longest - 1)
        return across, bottom - (bottom - top) * (y - 1.0) / (high - 1.0)

    body = []
    for part in range(5):
        value = 1.0 + (high - 1.0) * part / 4
        y = at(1, value)[1]
        body.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        body.append(f'<text x="{left - 8}" y="{y + 4:.1f}" {FONT} class="faint" text-anchor="end">{value:.2f}x</text>')
    for number in dict.fromkeys((1, (longest + 1) // 2, longest)):
        x = at(number, 1.0)[0]
        body.append(f'<text x="{x:.1f}" y="{bottom + 18}" {FONT} class="faint" text-anchor="middle">{number}</text>')
    body.append(f'<text x="{right}" y="{bottom + 34}" {FONT} class="faint" text-anchor="end">{escape(x_title)}</text>')
    for place, (name, values) in enumerate(drawn.items()):
        color = f"hsl({(210 + place * 360 // len(drawn)) % 360} 55% 45%)"
        path = f"M{at(1, values[0])[0]:.1f},{at(1, values[0])[1]:.1f}"
        for position, value in enumerate(values[1:], 2):
            x, y = at(position, value)
            path += f"H{x:.1f}V{y:.1f}"
        body.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        y = bottom + 56 + place * 18
        body.append(f'<rect x="{left}" y="{y - 9}" width="14" height="4" fill="{color}"/>')
        body.append(f'<text x="{left + 22}" y="{y - 3}" {FONT} class="ink">{escape(name)}</text>')
    return figure(body, bottom + 56 + len(drawn) * 18, f"{y_title} by {x_title}")


def shares(counts: Mapping[str, int]) -> str:
    """Return a drawing of bars that shows how many candidates ended in each status."""
    most = max(counts.values(), default=1)
    left, right = 190, WIDTH - 60
    body = []
    for place, (name, number) in enumerate(counts.items()):
        y = place * ROW + 4
        kind = "after" if name == "passed" else "before"
        width = max(2.0, (right - left) * number / most)
        body.append(f'<text x="{left - 10}" y="{y + 14}" {FONT} class="ink" text-anchor="end">{escape(name)}</text>')
        body.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{ROW - 8}" rx="2" class="{kind}"/>')
        body.append(f'<text x="{left + width + 6:.1f}" y="{y + 14}" {FONT} class="ink">{number}</text>')
    return figure(body, len(counts) * ROW + 8, "candidates by status")


def tree(nodes: Sequence[tuple[int, int | None, int, float | None]], best: int | None) -> str:
    """Return a drawing of candidates as dots: one column for each iteration, greater speed-ups higher, failed
    candidates on the bottom line.

    ``nodes`` are (id, parent, iteration, speed-up); the speed-up is None for a candidate that did not pass.
    """
    known = {number: (parent, iteration, speedup) for number, parent, iteration, speedup in nodes}
    values = [speedup for *_, speedup in nodes if speedup]
    if not values:
        return ""
    last = max(iteration for _, _, iteration, _ in nodes)
    low, high = min(*values, 1.0), max(*values, 1.1)
    height, left, right, top, bottom = 260.0, 56.0, WIDTH - 20.0, 14.0, 210.0
    spread: dict[int, int] = {}

    def at(number: int) -> tuple[float, float]:
        _, iteration, speedup = known[number]
        x = left + (right - left) * iteration / max(1, last)
        y = bottom + 14 if speedup is None else bottom - (bottom - top) * (speedup - low) / (high - low)
        return x + spread.get(number, 0), y

    column: dict[int, int] = {}
    for number, _, iteration, _ in nodes:
        column[iteration] = column.get(iteration, 0) + 1
        spread[number] = (column[iteration] % 9 - 4) * 3 if iteration else 0
    path: set[int] = set()
    while best is not None and best in known and best not in path:
        path.add(best)
        best = known[best][0]
    body = [f'<line x1="{left}" x2="{right}" y1="{at_y}" y2="{at_y}" class="grid"/>' for at_y in (top, bottom)]
    for value, y in ((high, top), (low, bottom)):
        body.append(f'<text x="{left - 8}" y="{y + 4}" {FONT} class="faint" text-anchor="end">{value:.2f}x</text>')
    body.append(f'<text x="{left - 8}" y="{bottom + 18}" {FONT} class="faint" text-anchor="end">failed</text>')
    for strong in (False, True):
        for number, parent, _, _ in nodes:
            if (number in path) != strong:
                continue
            x, y = at(number)
            if parent in known:
                from_x, from_y = at(parent)
                kind = "way" if strong else "twig"
                body.append(f'<line x1="{from_x:.1f}" y1="{from_y:.1f}" x2="{x:.1f}" y2="{y:.1f}" class="{kind}"/>')
            kind = "dot" if strong else "leaf" if known[number][2] else "dead"
            body.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if strong else 2.5}" class="{kind}"><title>c{number}</title></circle>'
            )
    for iteration in range(last + 1):
        x = left + (right - left) * iteration / max(1, last)
        body.append(
            f'<text x="{x:.1f}" y="{bottom + 38}" {FONT} class="faint" text-anchor="middle">it {iteration}</text>'
        )
    return figure(body, height, "candidates by iteration and speed-up, with the path to the best")
