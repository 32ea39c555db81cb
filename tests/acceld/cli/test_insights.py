"""``insights``: a person rewrites an insight through the daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.model import Held, Insight, InsightKind, Source
from acceld.store.changes.insights import write_insight
from acceld.store.database import Store
from tests.acceld.daemon.conftest import begun_store


@pytest.fixture
async def taught(folder: Path) -> Path:
    """Return a state folder whose memory holds an insight."""
    home = folder / ".acceld"
    async with begun_store(home) as store:
        assert isinstance(store, Store)
        lesson = Insight(
            "Wide rows", "Load more.", "slow", "fast", 1.3, InsightKind.POSITIVE, slow_candidate=4,
            fast_candidate=9, tie_percent=17.0, held=(Held("trn1", "nki_legacy", "silu", Source.SIMULATED, 1.3),),
        )  # fmt: skip
        await store.change(write_insight, lesson)
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


def test_an_insight_says_what_taught_it_where_it_held_and_what_it_did(
    taught: Path, daemon: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["insights", "i1", "--home", daemon]) == 0
    told = capsys.readouterr().out
    assert "gain      1.30x, a tie within 17 %\n" in told and "from      c4 → c9\n" in told
    assert "held      on trn1 silu (nki_legacy, simulated)\n" in told and "marks     hypothesis\n" in told
    assert told.endswith("i1: shown 0 times, no plan with it has won or lost\n")
    assert main(["insights", "--home", daemon]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("c4 → c9  hypothesis")
