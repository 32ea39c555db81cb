"""A run's decisions can be repeated from its rows, and a changed row is found."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from acceld.cli.main import main
from acceld.daemon.ledger import StoreLedger
from acceld.llm.calls import Calls
from acceld.llm.pricing import FREE
from acceld.llm.settings import ModelSettings
from acceld.model import RunSpec, SearchParameters
from acceld.proposers.interface import Problem, ProblemArgument
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.resources import prompts_folder
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.search.replay import Checked, differences, recording
from acceld.store.changes.runs import create_run
from acceld.store.connection import connect_reader
from acceld.store.database import Store
from tests.acceld.search.llm_victim import ROOT, Model, SimulatedEvaluator


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Return the database of a finished run with a scripted model."""
    store = Store.open(tmp_path / "acceld.db")
    parameters = SearchParameters(beam_width=2, plans=3, attempts=2, iterations=3, patience=0)
    run = await store.change(create_run, RunSpec("toy", search=parameters, proposer="llm", root=ROOT))
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/v1", price=FREE)
    calls = Calls({"m": (settings, Model(tmp_path / "paid"))}, ledger=StoreLedger(store), purse=Budget())
    proposer = LLMProposer(calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=3)
    problem = Problem(
        "toy", "a toy", "def forward(x): ...", (ProblemArgument("x", (4,), "float32"),), "trn1", "nki_legacy"
    )
    await Search(run, SearchParts(store, SimulatedEvaluator(), proposer, problem, ROOT)).run()
    await calls.close()
    await store.close()
    return tmp_path / "acceld.db"


def change(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute(statement).rowcount > 0
        connection.commit()


def again(path: Path) -> tuple[list[str], Checked]:
    with contextlib.closing(connect_reader(path)) as connection:
        found, checked = differences(recording(connection, 1))
    return [difference.what for difference in found], checked


async def test_the_same_rows_give_the_same_decisions(path: Path) -> None:
    found, checked = again(path)
    assert found == []
    assert checked == Checked(beams=3, plans=3 + 6 + 6, attempts=6 + 12 + 12)


async def test_a_changed_answer_is_found(path: Path) -> None:
    change(
        path, "UPDATE llm_calls SET answer = 'Title: other\n\nanother plan' WHERE role = 'planner' AND iteration = 2"
    )
    found, _ = again(path)
    assert found and all(what.startswith("plan ") for what in found)


async def test_a_changed_kernel_is_found(path: Path) -> None:
    change(path, "UPDATE llm_calls SET answer = 'no code' WHERE id = (SELECT max(id) FROM llm_calls)")
    found, _ = again(path)
    assert len(found) == 1 and found[0].startswith("attempt ")


async def test_a_changed_result_is_found(path: Path) -> None:
    best = "(SELECT evaluation FROM candidates WHERE id = (SELECT best FROM runs))"
    change(path, f"UPDATE profiles SET latency_us = 5000 WHERE evaluation = {best}")
    found, _ = again(path)
    assert any(what.startswith("beam of iteration") for what in found)


async def test_the_command_tells_and_exits_1_on_a_difference(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "r1", "--home", str(path.parent), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True
    change(path, "UPDATE llm_calls SET answer = 'no code' WHERE id = (SELECT max(id) FROM llm_calls)")
    assert main(["replay", "r1", "--home", str(path.parent)]) == 1
    assert "attempt" in capsys.readouterr().out
