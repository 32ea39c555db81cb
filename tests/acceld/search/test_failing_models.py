"""A run whose models stop answering pauses, names the error, ends with a code of its own, and can be resumed."""

from __future__ import annotations

from typing import Any

import pytest

from acceld.llm.settings import Api
from acceld.model import MODELS_PREFIX, RunState
from acceld.search.budget import Budget
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates
from tests.acceld.llm.models import APIS
from tests.acceld.llm.server import Reply, ScriptedServer
from tests.acceld.search.model_runs import PLAN, is_plan, new_run, search_on, written

DEAD = {
    "credit_400": (4, "credit balance"),
    "quota": (4, "quota"),
    "unauthorized_401": (4, "wrong key"),
    "rate_limited_bare": (1, "slow down"),
    "bad_request_400": (1, "no such thing"),
    "content_filter": (1, "withheld or declined"),
    "error_500": (1, "it broke"),
    "not_found_404": (1, "no such model"),
    "too_long_400": (1, "8 tokens"),
    "empty_answer": (1, "empty answer"),
}
"""Exit code, and words of the message, of a run whose models always fail so."""


def good(body: dict[str, Any], number: int) -> Reply:
    return Reply(PLAN if is_plan(body) else written(99.0 - number))


@pytest.mark.parametrize(("kind", "answered"), [*((kind, 0) for kind in DEAD), ("quota", 6), ("bad_request_400", 6)])
async def test_a_run_whose_models_fail_pauses_and_is_resumed(store: Store, kind: str, answered: int) -> None:
    run = await new_run(store, iterations=4, patience=2)
    server = ScriptedServer()

    def failing(body: dict[str, Any]) -> Reply:
        return good(body, len(server.seen)) if len(server.seen) <= answered else Reply(kind=kind)

    server.answer = failing
    async with server:
        paused = await search_on(store, run, server)
        code, words = DEAD[kind]
        assert paused.state is RunState.PAUSED and paused.message.startswith(MODELS_PREFIX), paused.message
        assert words in paused.message and paused.exit_code == code
        before = len(await store.read(load_candidates, run.id))
        server.answer = lambda body: good(body, len(server.seen))
        ended = await search_on(store, paused, server)
    assert ended.state is RunState.FINISHED and ended.message == "4 iterations done"
    assert ended.iteration == 4
    candidates = await store.read(load_candidates, run.id)
    assert len(candidates) == 1 + 4 * 2 > before, "no place of the search stays empty because its call failed"


@pytest.mark.parametrize("api", APIS)
async def test_an_account_without_credit_is_named_by_every_protocol(store: Store, api: Api) -> None:
    run = await new_run(store)
    async with ScriptedServer(default=Reply(kind="credit_400")) as server:
        paused = await search_on(store, run, server, api)
    assert (paused.state, paused.exit_code) == (RunState.PAUSED, 4)
    assert "credit balance" in paused.message and "resume" in paused.message
    assert len(server.seen) <= 2, "an account without credit is not asked again and again"


async def test_failures_of_one_role_among_answers_of_another_pause_the_run(store: Store) -> None:
    run = await new_run(store, plans=8)
    server = ScriptedServer()
    server.answer = lambda body: Reply(PLAN) if is_plan(body) else Reply(kind="bad_request_400")
    async with server:
        paused = await search_on(store, run, server)
    assert paused.state is RunState.PAUSED and "6 calls of the executor in a row failed" in paused.message


async def test_answers_without_code_are_not_bought_without_end(store: Store) -> None:
    run = await new_run(store, plans=3, attempts=2, iterations=10, patience=0, candidates=6)
    server = ScriptedServer()
    server.answer = lambda body: Reply(PLAN if is_plan(body) else "I would load the tile once.")
    async with server:
        paused = await search_on(store, run, server)
        bought = len(server.seen)
        assert paused.state is RunState.PAUSED and paused.exit_code == 1
        assert "none of the last 6 answers held a kernel" in paused.message and "no code block" in paused.message
        assert bought == 3 + 6 * 2
        server.answer = lambda body: good(body, len(server.seen))
        ended = await search_on(store, paused, server)
    assert ended.message == "6 candidates were evaluated"
    assert len(await store.read(load_candidates, run.id)) == 1 + 6


async def test_a_run_without_any_kernel_has_failed_and_stays_so_when_it_is_resumed(store: Store) -> None:
    run = await new_run(store, plans=2, attempts=1, iterations=2, patience=0)
    server = ScriptedServer()
    server.answer = lambda body: Reply(PLAN if is_plan(body) else "I would load the tile once.")
    async with server:
        failed = await search_on(store, run, server)
        assert failed.state is RunState.FAILED and "none of 4 answers held a kernel" in failed.message
        resumed = await search_on(store, failed, server)
    assert (resumed.state, resumed.exit_code) == (RunState.FAILED, 1)
    assert resumed.message.endswith("all iterations are done: start a new run")


async def test_a_run_whose_answers_are_all_cut_off_says_which_limit_to_raise(store: Store) -> None:
    run = await new_run(store, plans=3, attempts=2, iterations=1)
    server = ScriptedServer()
    server.answer = lambda body: Reply(PLAN) if is_plan(body) else Reply(written(90.0)[:20], finish="length")
    async with server:
        paused = await search_on(store, run, server)
    assert paused.state is RunState.PAUSED
    assert "at twice the limit too: raise max_output_tokens in [llm.executor]" in paused.message


async def test_a_run_that_is_resumed_after_plans_without_text_asks_for_new_ones(store: Store) -> None:
    run = await new_run(store, plans=1, iterations=1, patience=0)
    server = ScriptedServer()
    server.answer = lambda body: Reply("Title: Load once\nClass: dma")
    bought = [2, 3, 4]
    async with server:
        for calls in bought:
            run = await search_on(store, run, server)
            assert run.state is RunState.PAUSED and "the header of a plan, and no plan" in run.message
            assert len(server.seen) == calls, "the stored answers are not bought again, and one new one is"
        server.answer = lambda body: good(body, len(server.seen))
        ended = await search_on(store, run, server)
    assert ended.state is RunState.FINISHED and ended.message == "1 iteration done"


async def test_a_run_that_waits_for_a_price_does_not_ask_for_a_higher_cap(store: Store) -> None:
    run, budget = await new_run(store), Budget()
    budget.open_run(run.id, 5.0)
    async with ScriptedServer() as server:
        paused = await search_on(store, run, server, budget=budget, price=None)
    assert (paused.state, paused.exit_code, server.seen) == (RunState.PAUSED, 5, [])
    assert paused.message.startswith(MODELS_PREFIX) and "input_usd_per_mtok" in paused.message
