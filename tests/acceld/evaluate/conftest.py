"""A zygote whose tasks misbehave, at this machine's sandbox level and at lower ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.process import Zygote

HERE = Path(__file__).parent
TASKS = "echo draw leave_at_once crash hang spin escape bomb allocate allocate_in_children flood descriptors environment kill_itself".split()


@pytest_asyncio.fixture(
    params=[Level.L3, pytest.param(Level.L2, marks=pytest.mark.slow), Level.L1], ids=lambda level: level.name
)
async def zygote(request, monkeypatch) -> AsyncIterator[Zygote]:  # type: ignore[no-untyped-def]
    """Yield a running zygote that can import the hostile tasks."""
    level: Level = request.param
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    made = Zygote({name: f"hostile:{name}" for name in TASKS}, level=level)
    await made.start()
    yield made
    await made.stop()
