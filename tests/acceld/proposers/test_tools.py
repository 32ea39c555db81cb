"""An executor with tools: its questions inside an attempt, their caps and cost, and that nothing is asked twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.config import EvaluateConfig, ToolsConfig
from acceld.evaluate.interface import EvaluationRequest, started
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.llm.calls import Calls
from acceld.llm.client import LLMClient
from acceld.llm.ledger import MemoryLedger
from acceld.llm.pricing import FREE, Price
from acceld.llm.settings import Api, ModelSettings
from acceld.model import Attempt, Candidate, Evaluation, Failure, Gate, Kernel, Plan, Profile, Source, Status
from acceld.model_calls import Usage
from acceld.proposers.interface import AttemptRequest, Problem, ProblemArgument
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.proposers.llm.tools import Spent, ToolCall, Workbench, tool_calls, without_tools
from acceld.resources import prompts_folder
from acceld.search.budget import Budget
from tests.acceld.llm.models import APIS, model_for
from tests.acceld.llm.scripted import ScriptedClient
from tests.acceld.llm.server import Reply, ScriptedServer
from tests.properties import one_in
from tests.standin_neuron.machine import KERNEL, small_silu

WRONG = KERNEL.replace("operand0=1.0", "operand0=1.5")
FINAL = f"Here it is.\n```python\n{KERNEL}```\n"
CAPS = ToolsConfig()
PROBLEM = Problem(
    "small_silu", "SiLU", "def forward(x): ...", (ProblemArgument("x", (128, 2048), "float32"),), "trn1", "nki_legacy"
)
PARENT = Candidate(5, 1, Kernel(KERNEL, "nki_legacy", entry="kernel"), None, id=1)
ASKED = AttemptRequest(PROBLEM, Plan(5, 1, 1, 0, "Load once.", id=9), PARENT, 0, 12)


def block(name: str, text: str) -> str:
    return f"```tool {name}\n{text}\n```\n"


class Bench:
    """An evaluator that answers a profile, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[EvaluationRequest] = []

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        profile = Profile(Source.SIMULATED, "trn1", "nki_legacy", 37.5, "test", bound="Vector 80 %")
        if "broken" in request.kernel.text:
            failure = Failure("partition_limit", "a tile has 256 partitions", line=1, hint="at most 128")
            return Evaluation(Status.COMPILE_ERROR, request.kernel.sha256, failure=failure)
        return Evaluation(Status.UNTESTED, request.kernel.sha256, profile=profile)


def bench(evaluator: Bench | SimulatedEvaluator, folder: str = "") -> Workbench:
    return Workbench(evaluator.evaluate, workload="small_silu", folder=folder, chip="trn1", run=5)


def books(client: LLMClient, ledger: MemoryLedger, price: Price | None = FREE) -> Calls:
    return Calls(
        {"m": (ModelSettings("m", "m", price=price, base_url="http://x"), client)}, ledger=ledger, purse=Budget()
    )


def equipped(calls: Calls, tools: Workbench, caps: ToolsConfig = CAPS) -> LLMProposer:
    made = LLMProposer(calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=1)
    made.equip(tools, caps, calls.price)
    return made


async def attempted(
    answers: Sequence[str],
    ledger: MemoryLedger | None = None,
    caps: ToolsConfig = CAPS,
    price: Price | None = FREE,
) -> tuple[Attempt, ScriptedClient, Bench]:
    evaluator, client = Bench(), ScriptedClient(answers)
    found = await equipped(books(client, ledger or MemoryLedger(), price), bench(evaluator), caps).attempt(ASKED)
    assert found is not None
    return found, client, evaluator


async def test_tools_are_used_before_the_answer_and_their_results_stand_in_the_next_question() -> None:
    first = "Let me see.\n" + block("look_up", "nc_matmul") + block("profile", KERNEL) + block("trace", "broken")
    found, client, evaluator = await attempted([first, FINAL])
    assert found.text == KERNEL
    assert "about a second" in client.requests[0].user.lower(), "what a tool costs is said"
    reported = client.requests[1].user
    assert "nc_matmul(stationary, moving" in reported
    assert "37.5" in reported
    assert "partition_limit" in reported
    assert "1 of 4 turns" in reported
    assert client.requests[1].system == client.requests[0].system, "a provider's cache holds"
    assert [one.gate for one in evaluator.requests] == [Gate.TIMING, Gate.TIMING]
    assert all(one.practice and not one.kernel.trusted for one in evaluator.requests)


async def test_every_turn_is_in_the_ledger_and_a_run_that_goes_on_asks_nothing_twice() -> None:
    ledger = MemoryLedger()
    answers = [block("profile", KERNEL), block("check", KERNEL), FINAL]
    found, client, _ = await attempted(answers, ledger)
    assert [one.tags["turn"] for one in ledger.intents.values()] == [0, 1, 2]
    assert {one.outcome for one in ledger.outcomes.values()} == {"answered"}
    again, silent, _ = await attempted([], ledger)
    assert (again, silent.requests) == (found, [])
    assert len(client.requests) == 3


@pytest.mark.parametrize(
    ("caps", "price"),
    [
        (ToolsConfig(turns=1), FREE),
        (ToolsConfig(tokens=1), FREE),
        (ToolsConfig(seconds=1e-12), FREE),
        (ToolsConfig(usd=0.0000001), Price.of(1, 1)),
        (ToolsConfig(usd=1.0), None),
    ],
)
async def test_a_cap_ends_the_use_of_tools_and_not_the_attempt(caps: ToolsConfig, price: Price | None) -> None:
    found, client, evaluator = await attempted(
        [block("profile", KERNEL), block("profile", KERNEL) + FINAL], caps=caps, price=price
    )
    assert (found.text, len(client.requests)) == (KERNEL, 2)
    assert "used up" in client.requests[1].user
    assert len(evaluator.requests) <= 1


async def test_what_is_wrong_with_a_call_is_an_answer() -> None:
    tools = bench(Bench())
    for call, why in (
        (ToolCall("rm", "-rf"), "there is no tool rm"),
        (ToolCall("profile", " "), "takes a whole kernel"),
        (ToolCall("look_up", "nc_matmull"), "near: nc_matmul"),
    ):
        assert why in await tools.use(call, PARENT.kernel)


def test_blocks_of_tools_are_distinguished_from_kernels() -> None:
    text = block("profile", "a\nb") + FINAL + "```tool\nx\n```\n"
    assert tool_calls(text) == [ToolCall("profile", "a\nb\n")]
    assert "profile" not in without_tools(text)
    assert len(tool_calls(block("look_up", "x") * 5)) == 3
    spent = Spent()
    spent.add(Usage(10, output_tokens=5), None, 1.0)
    assert (spent.tokens, spent.usd) == (15, None)


@pytest.mark.parametrize("api", one_in(3, APIS))
async def test_every_protocol_has_tools(api: Api) -> None:
    async with ScriptedServer([Reply(block("profile", KERNEL)), Reply(FINAL)]) as server:
        model = model_for(server, api)
        calls = Calls(
            {"m": (replace(model.settings, name="m", price=FREE), model)}, ledger=MemoryLedger(), purse=Budget()
        )
        try:
            found = await equipped(calls, bench(Bench())).attempt(ASKED)
        finally:
            await calls.close()
    assert found is not None
    assert found.text == KERNEL


async def test_a_check_runs_on_data_that_no_gate_uses_and_decides_nothing(tmp_path: Path) -> None:
    folder = str(small_silu(tmp_path))
    async with started(SimulatedEvaluator(EvaluateConfig(slots=1), tmp_path / "state")) as evaluator:
        assert isinstance(evaluator, SimulatedEvaluator)
        tools = bench(evaluator, folder)
        right = await tools.use(ToolCall("check", KERNEL), PARENT.kernel)
        assert right.startswith("right on one data set")
        assert await tools.use(ToolCall("check", KERNEL), PARENT.kernel) == right, "the same data set each time"
        assert "tolerance" in await tools.use(ToolCall("check", WRONG), PARENT.kernel)
        request = EvaluationRequest(Kernel(KERNEL, "nki_legacy"), "small_silu", "trn1", run=5, workload_folder=folder)
        practiced = await evaluator.evaluate(replace(request, practice=True))
        evaluated = await evaluator.evaluate(request)
        assert not evaluated.reused, "a result of practice is no gate's"
        assert practiced.correctness is not None and evaluated.correctness is not None
        assert practiced.correctness.rel_l2 != evaluated.correctness.rel_l2
