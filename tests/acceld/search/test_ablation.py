"""Ablations: the varied settings, equal cost of every run, and the table."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.errors import UsageError
from acceld.model import SearchParameters
from acceld.report.plot import text_plot
from acceld.report.svg import curves
from acceld.search.ablation import Cost, parse_cost, parse_vary, result, variants, without_effect
from acceld.search.comparison import compared
from acceld.search.strategies import Allowance
from acceld.store.connection import connect_reader
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_run
from tests.acceld.search.conftest import ListedProposer, RepairingProposer, ScriptedEvaluator, SearchMaker, new_run

BASE = SearchParameters(beam_width=2, plans=3, attempts=2, iterations=3, patience=3)


def test_one_thing_differs_from_the_base_at_a_time() -> None:
    vary = parse_vary(["beam=1,2,4", "memory=off,fifo", "planner=on,off"])
    found = variants(BASE, vary, Cost(candidates=32), repeats=2)
    assert [one.name for one in found] == [
        "base: beam=2 memory=off planner=on",
        "beam=1",
        "beam=4",
        "memory=fifo",
        "planner=off",
    ]
    assert found[4].searches[0].planner is False
    assert [search.seed for search in found[0].searches] == [0, 1]


def test_every_variant_may_spend_the_same_and_stops_for_nothing_else() -> None:
    found = variants(BASE, parse_vary(["beam=1,10", "strategy=reflexion"]), Cost(32, 1.5), repeats=1)
    searches = [search for one in found for search in one.searches]
    assert {(s.candidates, s.budget_usd, s.patience, s.own_insights) for s in searches} == {(32, 1.5, 0, True)}
    unsaid = variants(BASE, parse_vary(["beam=1"]), Cost(), repeats=1)
    assert {s.candidates for one in unsaid for s in one.searches} == {6 + 2 * 12}, "what the base's schedule makes"


def test_a_grid_has_every_combination() -> None:
    found = variants(BASE, parse_vary(["beam=1,2", "fixer=0,4"]), Cost(8), repeats=1, grid=True)
    assert [one.name for one in found] == ["beam=1 fixer=0", "beam=1 fixer=4", "beam=2 fixer=0", "beam=2 fixer=4"]


def test_proposers_are_varied_each_with_its_own_settings() -> None:
    own = {name: replace(BASE, fixer_steps=repairs) for name, repairs in (("rules", 0), ("llm", 2), ("both", 2))}
    vary = parse_vary(["proposer=rules,llm,both"])
    found = variants(BASE, vary, Cost(candidates=8), repeats=1, proposers=own)
    assert [(one.name, one.proposer) for one in found] == [(f"proposer={name}", name) for name in own]
    assert [one.searches[0].fixer_steps for one in found] == [0, 2, 2]
    assert {one.searches[0].candidates for one in found} == {8}
    assert without_effect(parse_vary(["memory=fifo", "proposer=both"]), "rules") == {}


@pytest.mark.parametrize(
    "word", ["proposer=nobody", "bream=1", "beam", "beam=x", "beam=0", "memory=lifo", "planner=maybe", "fixer=-1"]
)
def test_what_can_not_be_varied_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        parse_vary([word])


def test_budgets_are_candidates_or_money() -> None:
    assert parse_cost(["candidates=64", "usd=2"]) == Cost(64, 2.0)
    for word in ("calls=3", "usd=0", "candidates=x"):
        with pytest.raises(UsageError, match="is not a budget"):
            parse_cost([word])


def test_settings_that_rules_do_not_use_are_named() -> None:
    vary = parse_vary(["beam=1", "memory=fifo", "fixer=4"])
    assert set(without_effect(vary, "rules")) == {"memory", "fixer"}
    assert without_effect(vary, "llm") == {}


@pytest.mark.parametrize("room", [0, 1, 5, 12, 13, 30, 100])
@pytest.mark.parametrize(("repairs", "kept"), [(0, 0), (2, 0), (2, 1)])
def test_an_iteration_never_gets_more_than_there_is_room_for(room: int, repairs: int, kept: int) -> None:
    allowance = Allowance(room, 12, repairs, kept)
    given = [allowance.of(place) for place in range(12)]
    assert sum(given) <= room and max(given) <= 1 + repairs
    assert sum(given) == min(room, 12 * (1 + repairs))


def test_what_a_place_keeps_goes_before_the_first_of_another() -> None:
    assert [Allowance(5, 8, 1).of(place) for place in range(8)] == [1, 1, 1, 1, 1, 0, 0, 0]
    assert [Allowance(5, 8, 1, kept=1).of(place) for place in range(8)] == [2, 2, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("limit", [1, 5, 8, 20])
async def test_a_run_evaluates_exactly_the_candidates_it_was_given(
    store: Store, search_for: SearchMaker, limit: int
) -> None:
    run = await new_run(store, iterations=100, patience=0, candidates=limit, fixer_steps=2)
    proposer = RepairingProposer([0.99, 0.98, 0.97], ["illegal", "", ""], name="llm")
    await search_for(run, ScriptedEvaluator(), proposer).run()
    assert len([c for c in await store.read(load_candidates, run.id) if c.parent is not None]) == limit
    assert (await store.read(load_run, run.id)).message == f"{limit} candidates were evaluated"


async def test_rules_that_have_nothing_more_to_propose_end_the_run(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, iterations=100, patience=0, candidates=50)
    await search_for(run, ScriptedEvaluator(), ListedProposer([1.1, 1.2, 1.3])).run()
    assert "nothing more to propose" in (await store.read(load_run, run.id)).message


async def test_the_table_and_the_plots_show_each_variant(store: Store, search_for: SearchMaker, tmp_path: Path) -> None:
    for strategy in ("beam", "reflexion"):
        run = await new_run(store, iterations=50, patience=0, candidates=6, strategy=strategy)
        await search_for(run, ScriptedEvaluator(), ListedProposer([0.9, 0.8, 0.95], name="llm")).run()
    with contextlib.closing(connect_reader(tmp_path / "acceld.db")) as connection:
        both = [compared(connection, 1), compared(connection, 2)]
    results = [result("beam", [1], both[:1]), result("reflexion", [2], both[1:]), result("mean", [1, 2], both)]
    assert [one.candidates for one in results] == [6, 6, 6]
    low, high = sorted((results[0].speedup or 0, results[1].speedup or 0))
    assert low <= (results[2].speedup or 0) <= high and (results[2].low, results[2].high) == (low, high)
    assert results[0].progress[-1] == pytest.approx(results[0].speedup)
    drawn = text_plot({one.name: one.progress for one in results[:2]}, x_title="candidates")
    assert "a  beam" in drawn and "b  reflexion" in drawn and f"{max(low, high):5.2f}x |" in drawn
    picture = curves({one.name: one.progress for one in results[:2]}, "candidates", "speed-up")
    assert picture.count("<path") == 2 and "reflexion" in picture


def test_a_plot_of_nothing_is_empty() -> None:
    assert text_plot({"a": ()}, x_title="x") == "" and curves({"a": ()}, "x", "y") == ""
