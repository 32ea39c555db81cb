"""``insights``: a person rewrites an insight through the daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.model import Insight, InsightKind
from acceld.store.changes.insights import write_insight
from acceld.store.database import Store
from tests.acceld.daemon.conftest import begun_store


@pytest.fixture
async def taught(folder: Path) -> Path:
    """Return a state folder whose memory holds an insight."""
    home = folder / ".acceld"
    async with begun_store(home) as store:
        assert isinstance(store, Store)
        await store.change(write_insight, Insight("Wide rows", "Load more.", "slow", "fast", 1.3, InsightKind.POSITIVE))
    return home


def test_a_person_rewrites_an_insight(taught: Path, daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["insights", "i1", "--strategy", "Load 2 KiB rows.", "--tags", "matmul, softmax", "--home", daemon]
    assert main(words) == 0
    assert "i1 was edited: strategy, tags" in capsys.readouterr().err
    assert main(["insights", "i1", "--json", "--home", daemon]) == 0
    insight = json.loads(capsys.readouterr().out)["insight"]
    assert (insight["title"], insight["strategy"]) == ("Wide rows", "Load 2 KiB rows.")
    assert insight["tags"] == ["matmul", "softmax"]
    assert main([*words, "--pin"]) == 2
    assert main(["insights", "--title", "x", "--home", daemon]) == 2
