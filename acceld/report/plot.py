"""Draw curves as text, for terminals and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MARKS = "abcdefghijklmnopqrstuvwxyz"
WIDTH, HEIGHT = 64, 14


def text_plot(curves: Mapping[str, Sequence[float]], *, x_title: str) -> str:
    """Return step curves over the positions 1, 2, 3 ... as text, each curve in its own letter, and ``*`` where curves
    meet.

    The y axis begins at 1 and shows ratios, such as 1.25x. The text is empty if the curves have no point.
    """
    drawn = {name: values for name, values in curves.items() if values}
    if not drawn:
        return ""
    longest = max(len(values) for values in drawn.values())
    high = max(1.01, *(max(values) for values in drawn.values()))
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, values in zip(_marks(), drawn.values(), strict=False):
        for column in range(WIDTH):
            place = round(column * (longest - 1) / max(1, WIDTH - 1))
            if place >= len(values):
                break
            row = HEIGHT - 1 - round((values[place] - 1.0) / (high - 1.0) * (HEIGHT - 1))
            row = min(HEIGHT - 1, max(0, row))
            cells[row][column] = mark if cells[row][column] in (" ", mark) else "*"
    lines = []
    for row, line in enumerate(cells):
        value = high - (high - 1.0) * row / (HEIGHT - 1)
        label = f"{value:5.2f}x" if row % 4 == 0 or row == HEIGHT - 1 else " " * 6
        lines.append(f"{label} |{''.join(line).rstrip()}")
    lines.append(f"{' ' * 6} +{'-' * WIDTH}")
    lines.append(f"{' ' * 7} 1{x_title:^{WIDTH - 1 - len(str(longest))}}{longest}")
    lines += [f"  {mark}  {name}" for mark, name in zip(_marks(), drawn, strict=False)]
    return "\n".join(lines)


def _marks() -> str:
    return MARKS + MARKS.upper()
