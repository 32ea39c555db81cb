"""Turn the daemon's JSON into the record of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import convert

from acceld.model import Evaluation


def evaluation_from(raw: Mapping[str, Any]) -> Evaluation:
    """Return the answer to ``POST /v1/evaluations`` as a record. Keys that only a newer daemon has are ignored."""
    right = raw.get("correctness")
    if right and right["rel_l2"] is None:  # JSON has no NaN
        raw = {**raw, "correctness": {**right, "rel_l2": math.nan}}
    return convert(raw, Evaluation)
