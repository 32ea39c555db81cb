"""Ids as people write them: run r12, candidate c345, insight i38."""

from __future__ import annotations

import re

from acceld.errors import UsageError
from acceld.store.errors import WHERE_LISTED

_KINDS = {"r": "run", "c": "candidate", "i": "insight"}


def number_of(text: str, letter: str) -> int:
    """12 of ``r12`` or ``12``. UsageError for anything else."""
    match = re.fullmatch(rf"{letter}?([0-9]{{1,15}})", text)
    if match is None:
        kind = _KINDS[letter]
        raise UsageError(f"{text!r} is no {kind}", hint=f"one is written {letter}12; {WHERE_LISTED[kind]}")
    return int(match[1])
