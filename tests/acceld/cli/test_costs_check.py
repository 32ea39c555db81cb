"""``costs`` adds up and never counts an unknown price as zero; ``check`` finds errors and sends nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.commands.costs import cached_percent, grouped, usd
from acceld.cli.commands.doctor import SETTINGS
from acceld.cli.main import main
from acceld.daemon.ledger import StoreLedger
from acceld.evaluate.interface import EvaluationRequest
from acceld.llm.calls import Calls
from acceld.llm.pricing import Price
from acceld.llm.settings import ModelSettings
from acceld.model import Evaluation, Failure, Gate, RunSpec, SearchParameters, Status
from acceld.proposers.interface import Problem, ProblemArgument
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.resources import prompts_folder
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from tests.acceld.llm.server import Reply, ScriptedServer
from tests.acceld.search.llm_victim import ROOT, Model, SimulatedEvaluator


async def search(folder: Path, price: Price | None, evaluator: SimulatedEvaluator | None = None, **more: int) -> None:
    store = Store.open(folder / "acceld.db")
    sizes = {"beam_width": 1, "plans": 2, "attempts": 1, "iterations": 2, "patience": 0} | more
    parameters = SearchParameters(**sizes)  # type: ignore[arg-type]  # by name
    run = await store.change(create_run, RunSpec("toy", search=parameters, proposer="llm", root=ROOT))
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/v1", price=price)
    calls = Calls({"m": (settings, Model(folder / "paid"))}, ledger=StoreLedger(store), purse=Budget())
    proposer = LLMProposer(calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=2)
    problem = Problem(
        "toy", "a toy", "def forward(x): ...", (ProblemArgument("x", (4,), "float32"),), "trn1", "nki_legacy"
    )
    await Search(run, SearchParts(store, evaluator or SimulatedEvaluator(), proposer, problem, ROOT)).run()
    await calls.close()
    await store.close()


@pytest.mark.parametrize("by", ["role", "model", "iteration", "candidate"])
def test_costs_add_up_however_they_are_grouped(tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str) -> None:
    asyncio.run(search(tmp_path, Price.of("1", "10")))
    assert main(["costs", "r1", "--by", by, "--home", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    each = (1000 * 1 + 100 * 10) / 1e6
    calls = 4 if by == "candidate" else 8
    assert sum(line["calls"] for line in answer["lines"]) == calls
    assert sum(line["cost_usd"] for line in answer["lines"]) == pytest.approx(calls * each)
    assert answer["costs"]["cost_usd"] == pytest.approx(8 * each)


class Flaky(SimulatedEvaluator):
    """The first version of each kernel is out of bounds; repaired ones pass."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        if request.gate is Gate.SEARCH and request.candidate % 2 == 0:
            return Evaluation(Status.COMPILE_ERROR, request.kernel.sha256, failure=Failure("partition_limit", "129"))
        return await super().evaluate(request)


def test_repairs_are_counted_by_the_failure_they_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(search(tmp_path, Price.of("1", "10"), Flaky(), fixer_steps=2))
    assert main(["costs", "r1", "--by", "failure", "--home", str(tmp_path), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["lines"]
    assert line["failure"] == "partition_limit" and 0 < line["repaired"] <= line["tries"]
    assert line["cost_usd"] == pytest.approx(line["tries"] * (1000 * 1 + 100 * 10) / 1e6)
    assert main(["compare", "r1", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"{line['repaired']} of {line['tries']}, most partition_limit" in out
    assert main(["costs", "--by", "failure", "--home", str(tmp_path)]) == 2


def test_an_unknown_price_is_a_question_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(search(tmp_path, None))
    assert main(["costs", "r1", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "planner" in out and "?" in out and "0.0000 " not in out.split("role")[1]
    assert usd(None) == "?" and usd(1.0, 2) == "1.0000 + ?" and usd(0.5) == "0.5000"


def test_a_group_of_known_and_unknown_costs_keeps_what_is_known() -> None:
    parts = {"calls": 1, "failed_calls": 0, "input_tokens": 5, "cached_tokens": None, "output_tokens": 1}
    head: dict[str, Any] = {"role": "planner"}
    lines = [head | parts | {"cost_usd": None}, head | parts | {"cost_usd": 0.25}]
    assert grouped(lines, "role") == [
        {"role": "planner", "calls": 2, "failed_calls": 0, "input_tokens": 10, "cached_tokens": 0, "output_tokens": 2}
        | {"cost_usd": 0.25}
    ]


def test_check_passes_acceld_s_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert main(["doctor", *SETTINGS, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] and {entry["part"] for entry in answer["checked"]} == {"config", "prompts", "workloads"}


def test_check_names_a_missing_key_a_role_without_a_model_and_a_broken_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "mine" / "shared").mkdir(parents=True)
    (tmp_path / "mine" / "shared" / "planner.md").write_text("+++\nplaceholders = []\n+++\n{{problme}}")
    (tmp_path / "acceld.toml").write_text(
        '[models.fast]\nname = "gpt-5"\n[llm.planner]\nmodels = ["fats"]\n[paths]\nprompts = ["mine"]\n'
    )
    assert main(["doctor", "models", "prompts"]) == 2
    out = capsys.readouterr().out
    assert "OPENAI_API_KEY" in out and "'fats'" in out and "problme" in out


def test_only_missing_keys_have_the_exit_code_of_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    roles = ["[llm.planner]", 'models = ["fast"]', "[llm.executor]", 'models = ["fast"]']
    models_toml(tmp_path, "[models.fast]", 'name = "gpt-5"', *roles)
    assert main(["doctor", "models"]) == 4
    assert "OPENAI_API_KEY" in capsys.readouterr().out


def models_toml(folder: Path, *lines: str) -> None:
    (folder / "acceld.toml").write_text("\n".join(lines) + "\n")


def test_an_unknown_price_is_a_note_and_under_a_cap_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setattr("acceld.cli.diagnosis.settings.trusted_folders", lambda: frozenset({tmp_path}))
    monkeypatch.setattr("acceld.trust.trusted_folders", lambda *_: frozenset({tmp_path}))
    model = ["[models.mine]", 'base_url = "http://127.0.0.1:9/v1"', "[llm.planner]", 'models = ["mine"]']
    model += ["[llm.executor]", 'models = ["mine"]']
    models_toml(tmp_path, *model)
    assert main(["doctor", "models"]) == 0
    assert "its price is not known" in capsys.readouterr().out
    models_toml(tmp_path, *model, "[budget]", "run_usd = 1.0")
    assert main(["doctor", "models"]) == 2
    assert "the cap in USD refuses its calls" in capsys.readouterr().out
    assert main(["optimize", "silu", "--proposer", "llm", "--dry-run"]) == 0
    assert "no price" in (out := capsys.readouterr().out) and "mine: under a cap in USD" in out


def test_check_calls_each_model_once_and_says_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setattr("acceld.cli.diagnosis.settings.trusted_folders", lambda: frozenset({tmp_path}))
    with served(Reply("ok", refuses="temperature", input_tokens=100)) as server:
        prices = ("input_usd_per_mtok = 100", "output_usd_per_mtok = 0")
        models_toml(tmp_path, "[models.mine]", f'base_url = "{server.base_url}"', *prices)
        assert main(["doctor", "models", "--call", "--json"]) == 2, "no role names it"
        answer = json.loads(capsys.readouterr().out)
    (note,) = [entry["note"] for entry in answer["checked"] if entry["name"] == "mine"]
    assert note.startswith("$0.01") and note.endswith("the model does not take temperature")
    assert len(server.seen) == 2


@contextmanager
def served(reply: Reply) -> Iterator[ScriptedServer]:
    """Run a server in a thread, for commands that run their own event loop. Yield it."""
    server, loop = ScriptedServer(default=reply), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(30)
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_costs_tell_the_share_of_the_prompt_that_came_from_a_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cached_percent({"input_tokens": 400, "cached_tokens": 300}) == "75 %"
    assert cached_percent({"input_tokens": 0, "cached_tokens": None}) == "-"
    asyncio.run(search(tmp_path, Price.of("1", "10")))
    assert main(["costs", "r1", "--by", "role", "--home", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "(0 cached, 0 %)" in out and "hit rate" in out


def test_the_roles_own_prompts_and_answers_are_rows_with_what_came_of_them(tmp_path: Path) -> None:
    asyncio.run(search(tmp_path, Price.of("1", "10"), Flaky(), fixer_steps=1))
    assert main(["export", "--format", "roles", "-o", str(tmp_path / "rows"), "--home", str(tmp_path)]) == 0
    rows = [json.loads(line) for file in (tmp_path / "rows").glob("*.jsonl") for line in file.read_text().splitlines()]
    by_role: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_role.setdefault(row["role"], []).append(row)
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
        assert f"You are the {row['role']}" in row["messages"][1]["content"]
    assert set(by_role) == {"planner", "executor", "fixer"}
    assert -0.8 in {row["reward"] for row in by_role["executor"]} and None not in {row["reward"] for row in rows}
    best = [max(row["reward"] for row in by_role[role]) for role in ("planner", "executor", "fixer")]
    assert best[0] == max(best[1:]), "a plan is worth its best kernel"
    texts = [json.dumps(row["messages"]) for row in rows]
    assert len(texts) == len(set(texts))


def test_check_says_whose_temperature_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "acceld.toml").write_text(
        '[models.a]\nprovider = "anthropic"\nname = "claude-sonnet-5-5"\n\n'
        '[llm.planner]\nmodels = ["a"]\ntemperature = 0.5\n\n[llm.executor]\nmodels = ["a"]\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setattr("acceld.cli.diagnosis.settings.trusted_folders", lambda: frozenset({tmp_path}))
    assert main(["doctor", "models"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "temperature of the planner is not sent to a" in printed and "of the executor" not in printed
