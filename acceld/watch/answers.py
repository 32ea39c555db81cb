"""A result from the JSON in which the daemon gives it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import convert

from acceld.model import Evaluation


def evaluation_from(raw: Mapping[str, Any]) -> Evaluation:
    """Return the record of ``POST /v1/evaluations``; keys of a newer daemon are left out."""
    right = raw.get("correctness")
    if right and right["rel_l2"] is None:  # JSON has no NaN
        raw = {**raw, "correctness": {**right, "rel_l2": math.nan}}
    return convert(raw, Evaluation)
