"""Runs side by side, from their rows."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.model import Kernel, RunSpec, SearchParameters
from acceld.proposers.interface import Problem
from acceld.search.comparison import comparable, compared
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run
from acceld.store.connection import connect_reader
from acceld.store.database import Store
from tests.acceld.search.conftest import ListedProposer, ScriptedEvaluator, kernel_text

ROOT = Kernel(kernel_text(100.0), "nki_legacy")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return two finished runs: a beam and one lineage."""

    async def searches() -> None:
        store = Store.open(tmp_path / "acceld.db")
        problem = Problem("toy", "", "", (), "trn1", "nki_legacy")
        for strategy in ("beam", "reflexion"):
            search = SearchParameters(beam_width=2, plans=2, attempts=1, iterations=2, strategy=strategy, patience=0)
            run = await store.change(create_run, RunSpec("toy", search=search, root=ROOT))
            proposer = ListedProposer([0.9, 0.8])
            await Search(run, SearchParts(store, ScriptedEvaluator(), proposer, problem, ROOT)).run()
        await store.close()

    asyncio.run(searches())
    return tmp_path


def test_what_each_run_reached_and_took(home: Path) -> None:
    with contextlib.closing(connect_reader(home / "acceld.db")) as connection:
        beam, line = compared(connection, 1), compared(connection, 2)
    assert (beam.strategy, line.strategy) == ("beam", "reflexion")
    assert beam.outcome.speedup is not None and beam.outcome.speedup > 1
    assert beam.calls == 0 and beam.cost_usd == 0.0 and beam.usd_per_percent == 0.0
    assert list(beam.progress) == sorted(beam.progress)
    assert beam.progress[-1] == pytest.approx(beam.outcome.speedup)
    assert comparable([beam, line])


def test_the_command_prints_a_column_a_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "r1", "r2", "--home", str(home)]) == 0
    captured = capsys.readouterr()
    assert "reflexion" in captured.out and "after 4" in captured.out and "not comparable" not in captured.err
    assert main(["compare", "r1", "--home", str(home), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["comparable"] is True and answer["runs"][0]["outcome"]["workload"] == "toy"
