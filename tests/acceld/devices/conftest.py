"""Tests of devices share zygotes: each evaluator, bench and compiler would start its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def sharing(shared_zygotes: None) -> None:
    """Share zygotes."""
