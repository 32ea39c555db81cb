"""Forecasts are within 1.5 times of the cost of scripted runs on the server's own count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acceld.cli.dry_run import _habits
from acceld.home import Home
from acceld.llm.pricing import Price
from acceld.proposers.llm.roles import RoleTable
from acceld.search.budget import Budget
from acceld.search.forecast import FAILING, PromptLength, forecast
from acceld.search.loop import FIXABLE
from acceld.store.database import Store
from acceld.store.reads.records import failing_share
from tests.acceld.llm.server import Reply, ScriptedServer
from tests.acceld.search.model_runs import PLAN, is_plan, kernel, new_run, prompt_of, search_on, written

PRICE = Price.of("3", "15", cached="0.3", cache_write="3.75")
CHARS_A_TOKEN = 3.6


@pytest.mark.parametrize(
    "sizes",
    [
        {"beam_width": 2, "plans": 3, "attempts": 2, "iterations": 3},
        {"beam_width": 1, "plans": 4, "attempts": 1, "iterations": 4},
        {"beam_width": 2, "plans": 3, "attempts": 2, "iterations": 6, "candidates": 12},
    ],
)
async def test_a_forecast_is_within_one_and_a_half_times_of_what_a_run_costs(
    store: Store, sizes: dict[str, int]
) -> None:
    run = await new_run(store, patience=0, **sizes)
    known, billed_usd, first = set[str](), 0.0, dict[str, tuple[str, str]]()
    server = ScriptedServer()

    def answer(body: dict[str, Any]) -> Reply:
        """Answer as a provider with a cache, and bill it."""
        nonlocal billed_usd
        number, system, user = len(server.seen), body["messages"][0]["content"], prompt_of(body)
        role = "planner" if is_plan(body) else "executor"
        first.setdefault(role, (system, user))
        text = PLAN + " It saves transfers." * 40 if role == "planner" else written(99.0 - number / 10, "x" * 2400)
        prompt, shared, output = (round(len(part) / CHARS_A_TOKEN) for part in (system + user, system, text))
        is_read, is_long = system in known, shared >= 1024
        known.add(system)
        cached, wrote = (shared if is_read and is_long else 0), (shared if is_long and not is_read else 0)
        rates = (prompt - cached - wrote) * 3 + cached * 0.3 + wrote * 3.75 + output * 15
        billed_usd += rates / 1e6
        return Reply(text, input_tokens=prompt, cached_tokens=cached, written_tokens=wrote, output_tokens=output)

    server.answer = answer
    async with server:
        await search_on(store, run, server, budget=Budget(), price=PRICE)
    lengths = {
        role: PromptLength(round(len(system) / 3.3), round(len(user) / 3.3)) for role, (system, user) in first.items()
    }
    found = forecast(
        run.spec.search,
        RoleTable.single("m"),
        lambda name, tokens: PRICE,
        kernel_chars=len(kernel(100.0, "x" * 2400)),
        reference_chars=0,
        prompts=lengths,  # type: ignore[arg-type]
    )
    expected_usd = found.cost_usd
    assert expected_usd is not None and billed_usd > 0
    assert billed_usd / 1.5 < expected_usd < 1.5 * billed_usd, (expected_usd, billed_usd)


async def test_the_share_of_attempts_that_fail_comes_from_the_history(store: Store, tmp_path: Path) -> None:
    run = await new_run(store, plans=4, iterations=1, patience=0)
    server = ScriptedServer()

    def answer(body: dict[str, Any]) -> Reply:
        if is_plan(body):
            return Reply(PLAN)
        number = sum(not is_plan(seen.body) for seen in server.seen)
        return Reply(written(99.0 - number, {1: "illegal", 2: "wrong", 3: "illegal"}.get(number, "")))

    server.answer = answer
    async with server:
        await search_on(store, run, server)
    assert await store.read(failing_share, ["m"], sorted(FIXABLE)) == 0.75
    assert await store.read(failing_share, ["other"], sorted(FIXABLE)) is None
    roles, home = RoleTable.single("m"), Home(store.path.parent)
    assert home.database == store.path
    assert _habits(roles, home, None).failing == 0.75
    assert _habits(RoleTable.single("other"), home, None).failing == FAILING
    assert _habits(roles, Home(tmp_path / "empty"), None).failing == FAILING
