"""Any OpenAI-compatible server, named by ACCELD_TEST_BASE_URL (a llama.cpp one will do), answers our roles.

ACCELD_TEST_MODEL is the model's name there; ACCELD_TEST_APIS which of chat, responses and messages it speaks (default: chat).
"""

from __future__ import annotations

import os

import pytest

from acceld.llm.calls import Calls
from acceld.llm.client import CompletionRequest
from acceld.llm.errors import LLMTimedOut
from acceld.llm.ledger import MemoryLedger
from acceld.llm.model import Model, connect
from acceld.llm.pricing import FREE
from acceld.llm.settings import Api, Deadlines, ModelSettings
from acceld.model import Candidate, Kernel, Plan
from acceld.proposers.interface import AttemptRequest, PlanRequest, Problem, ProblemArgument
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleModels, RoleTable
from acceld.resources import prompts_folder
from acceld.search.budget import Budget

BASE_URL = os.environ.get("ACCELD_TEST_BASE_URL", "")
APIS = os.environ.get("ACCELD_TEST_APIS", "chat").split(",")

pytestmark = [
    pytest.mark.llm,
    pytest.mark.skipif(not BASE_URL, reason="ACCELD_TEST_BASE_URL is not set"),
]

PARENT = "def kernel(x):\n    total = 0\n    for value in x:\n        total = total + value\n    return total\n"
PROBLEM = Problem(
    "sum",
    "the sum of a list",
    "def forward(x):\n    return sum(x)\n",
    (ProblemArgument("x", (1024,), "float32"),),
    "cpu",
    "triton",
)


def model(api: Api = "chat", **changes: object) -> Model:
    base_url = BASE_URL.removesuffix("/v1") if api == "messages" else BASE_URL
    name = os.environ.get("ACCELD_TEST_MODEL", "default")
    provider = "anthropic" if api == "messages" else "openai"
    settings = ModelSettings("m", name, provider, api, base_url=base_url, price=FREE, **changes)  # type: ignore[arg-type]
    return connect(settings, {})


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
async def test_it_answers_with_tokens(api: Api, stream: bool) -> None:
    served = model(api, stream=stream)
    request = CompletionRequest("executor", "m", "You are brief.", "Name three colors.", 64, temperature=0.0, seed=1)
    answer = await served.complete(request)
    await served.close()
    assert answer.text.strip()
    assert answer.usage.input_tokens > 5 and answer.usage.output_tokens > 0 and not answer.usage.estimated


@pytest.mark.parametrize("api", APIS)
async def test_a_slow_answer_ends_at_its_deadline(api: Api) -> None:
    served = model(api, deadlines=Deadlines(total_s=0.3))
    with pytest.raises(LLMTimedOut):
        await served.complete(CompletionRequest("executor", "m", "", "Write a very long poem about tiles.", 2000))
    await served.close()


async def test_it_fills_the_roles() -> None:
    """A small model may plan badly and write no code; what it says is written down either way."""
    ledger, served = MemoryLedger(), model()
    calls = Calls({"m": (served.settings, served)}, ledger=ledger, purse=Budget(daemon_usd=1.0))
    models = RoleModels((("m", 1.0),), max_output_tokens=400, temperature=0.2)
    proposer = LLMProposer(calls, RoleTable(models, models, models, models), PromptLibrary([prompts_folder()]), plans=1)
    parent = Candidate(1, 0, Kernel(PARENT, "triton", entry="kernel"), None, id=1)
    plan = await proposer.plan(PlanRequest(PROBLEM, 1, 1, parent, 0, 0, seed=3))
    plan = plan or Plan(1, 1, 1, 0, "Use the built-in sum.")
    attempt = await proposer.attempt(AttemptRequest(PROBLEM, plan, parent, 0, seed=4))
    await calls.close()
    assert attempt is not None and (attempt.text is not None or attempt.reason)
    assert len(ledger.outcomes) >= 2
    assert all(outcome.outcome in ("answered", "empty") for outcome in ledger.outcomes.values())
    assert all(outcome.usage.output_tokens > 0 for outcome in ledger.outcomes.values())
