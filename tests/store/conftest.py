"""A real database on a temporary path."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acceld.store.database import Store


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return path of a test's database."""
    return tmp_path / "acceld.db"


@pytest.fixture
async def store(database: Path, empty_database: Path) -> AsyncIterator[Store]:
    """Yield an open store."""
    await asyncio.to_thread(shutil.copy, empty_database, database)
    opened = await asyncio.to_thread(Store.open, database)
    yield opened
    await opened.close()
