"""Draw figures as text: bars and sparklines. This module is pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"


def bar(part: float, whole: float, width: int, *, track: str = "·") -> str:
    """Return ``part`` of ``whole`` as exactly ``width`` cells; full blocks, one partial block, then ``track``."""
    if whole <= 0 or width <= 0:
        return track * max(0, width)
    eighths = round(min(max(part / whole, 0.0), 1.0) * width * 8)
    text = "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text + track * (width - len(text))


def sparkline(values: Sequence[float], width: int) -> str:
    """Return ``values`` in at most ``width`` cells, least lowest; each cell shows the last value that falls into it."""
    if not values or width <= 0:
        return ""
    if len(values) > width:
        values = [values[(place + 1) * len(values) // width - 1] for place in range(width)]
    low, high = min(values), max(values)
    if high == low:
        return LEVELS[0] * len(values)
    return "".join(LEVELS[round((value - low) / (high - low) * (len(LEVELS) - 1))] for value in values)


def fitted(text: str, width: int) -> str:
    """Return ``text`` cut to ``width`` cells, with an ellipsis if something is missing. Numbers are never cut in the
    middle.
    """
    text = text.replace("\n", " ")
    return text if len(text) <= width else text[: cut(text, width)] + "…"


def cut(text: str, width: int) -> int:
    """Return the number of characters to keep of a too long text, so that an ellipsis is the last of ``width`` cells."""
    end = max(0, width - 1)
    if re.match(r"[\d.,][\d.,x%]", text[max(0, end - 1) :]) and (number := re.search(r"[\d.,]+$", text[:end])):
        return number.start()
    return end
