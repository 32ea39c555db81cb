"""Numbers that options take, refused with a reason: types for ``add_argument``."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError


def count(text: str) -> int:
    """A whole number from 1 on."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """A whole number from 0 on."""
    return _whole(text, 0)


def amount(text: str) -> float:
    """A number from 0 on."""
    value = _number(text)
    if value < 0:
        raise ArgumentTypeError(f"{text} is less than 0")
    return value


def span(text: str) -> float:
    """A number greater than 0."""
    value = _number(text)
    if value <= 0:
        raise ArgumentTypeError(f"{text} is not greater than 0")
    return value


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no whole number") from error
    if value < least:
        raise ArgumentTypeError(f"{value} is less than {least}")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no number") from error
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is no finite number")
    return value
