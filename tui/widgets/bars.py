"""Draw figures as text: bars and sparklines. The functions are pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def bar(part: float, whole: float, width: int) -> str:
    """Return a bar of exactly ``width`` cells that shows ``part`` of ``whole``; cells beyond the bar are dots."""
    if whole <= 0 or width <= 0:
        return "·" * max(0, width)
    eighths = round(min(max(part / whole, 0.0), 1.0) * width * 8)
    text = "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text + "·" * (width - len(text))


def sparkline(values: Sequence[float], width: int) -> str:
    """Return a sparkline of ``values`` in at most ``width`` cells. If several values share a cell, the cell shows the
    last of these values.
    """
    if not values or width <= 0:
        return ""
    if len(values) > width:
        values = [values[(place + 1) * len(values) // width - 1] for place in range(width)]
    low, high = min(values), max(values)
    if high == low:
        return LEVELS[0] * len(values)
    return "".join(LEVELS[round((value - low) / (high - low) * (len(LEVELS) - 1))] for value in values)


def fitted(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells; a longer text ends with an ellipsis, never inside a number."""
    text = text.replace("\n", " ")
    return text if len(text) <= width else text[: cut(text, width)] + "…"


def cut(text: str, width: int) -> int:
    """Return the number of characters at the start of a text to keep, so that they and an ellipsis fit into ``width``
    cells. The text must be longer. The text is not cut inside a number.
    """
    end = max(0, width - 1)
    if re.match(r"[\d.,][\d.,x%]", text[max(0, end - 1) :]) and (number := re.search(r"[\d.,]+$", text[:end])):
        return number.start()
    return end
