"""A run whose latencies depend on something that changed while it was stopped never compares old ones with new ones."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from acceld.evaluate.interface import EvaluationRequest
from acceld.events import BestChanged, TimedAgain
from acceld.model import Basis, Evaluation, Gate, Kernel, Run, RunSpec, RunState, SearchParameters, Source, Status
from acceld.proposers.interface import Problem
from acceld.search.comparison import comparable, compared
from acceld.search.loop import Search, SearchParts
from acceld.search.outcome import RunOutcome, outcome
from acceld.search.replay import differences, recording
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.maintenance import compare_totals
from acceld.store.reads import listing
from acceld.store.reads.records import load_candidates, load_events, load_plans, load_run
from acceld.store.schema.migrations import SCHEMA_VERSION
from acceld.tui.state import RunView
from tests.acceld.search.conftest import ListedProposer, ScriptedEvaluator, SearchMaker, new_run
from tests.store.test_releases import RELEASES

OLD, NEW = Basis("0" * 12, "9.old", chip="trn1"), Basis("0" * 12, "9.new", chip="trn1")


async def facts(store: Store, run: int) -> RunOutcome:
    record = await store.read(load_run, run)
    plans = {plan.id: plan for plan in await store.read(load_plans, run)}
    return outcome(record, await store.read(load_candidates, run, None, True), plans)


async def check_one_model(store: Store, run: int, model: str) -> None:
    """Assert that all latencies of a run come from one model, and all speed-ups from its latencies."""
    found: dict[str, Any] = await store.read(listing.run_row, run)
    base_us = found["baseline_latency_us"]
    for row in await store.read(listing.candidate_rows, run):
        if row["latency_us"] is not None:
            assert row["speedup"] == pytest.approx(base_us / row["latency_us"])
            assert row["improved"] == (row["status"] == "passed" and row["speedup"] > 1.34), row
    for candidate in await store.read(load_candidates, run):
        if candidate.evaluation is not None and candidate.evaluation.profile is not None:
            assert candidate.evaluation.profile.model == model
    for beam in found["beams"]:
        if beam["best"] is not None:
            assert beam["speedup"] == pytest.approx(base_us / beam["best_latency_us"])
    assert found["speedup"] == pytest.approx(base_us / found["best_latency_us"])
    assert found["model"] == found["basis"]["model"] == model
    assert await store.read(compare_totals) == []


def older(schema: int, path: Path) -> None:
    """Write a database of an earlier schema whose run is under way: it was told 100 us for the baseline and 80 us for c2,
    where today's model says 60 us and 55 us.
    """
    path.write_bytes(gzip.decompress((RELEASES / f"schema_{schema}.db.gz").read_bytes()))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET state = 'running', ended_at = NULL, message = ''")
        for candidate, text in ((1, "latency 60\n"), (2, "latency 55\n")):
            old, of_text, api, entry, grid, lnc, filename = connection.execute(
                "SELECT s.sha256, s.text_sha256, s.api, s.entry, s.grid, s.lnc, c.filename "
                "FROM sources s JOIN candidates c ON c.source = s.sha256 WHERE c.id = ?",
                (candidate,),
            ).fetchone()
            kernel = Kernel(text, api, entry=entry, grid=tuple(json.loads(grid)), lnc=lnc, filename=filename)
            connection.execute("UPDATE texts SET text = ? WHERE sha256 = ?", (text, of_text))
            connection.execute("UPDATE sources SET sha256 = ? WHERE sha256 = ?", (kernel.sha256, old))
            connection.execute("UPDATE candidates SET source = ? WHERE source = ?", (kernel.sha256, old))
    connection.close()


@pytest.mark.parametrize("schema", range(SCHEMA_VERSION - 3, SCHEMA_VERSION + 1))
async def test_a_run_of_an_earlier_schema_goes_on_with_one_model(schema: int, tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    await asyncio.to_thread(older, schema, path)
    store = await asyncio.to_thread(Store.open, path)
    run = await store.read(load_run, 1)
    problem = Problem("nkibench/silu", "", "", (), "trn1", "nki_legacy")
    parts = SearchParts(
        store, ScriptedEvaluator(model="9.new"), ListedProposer([1.5]), problem, Kernel("", ""), basis=NEW
    )
    assert await Search(run, parts).run() is RunState.FINISHED
    found = await facts(store, 1)
    assert (found.baseline_latency_us, found.best_latency_us) == (60.0, 55.0)
    assert not found.improved and found.speedup == pytest.approx(60 / 55), "it was 1.82x across two models"
    assert "2 kernels were timed again after iteration 1" in found.timed_again
    assert "the performance model (unknown → 9.new)" in found.timed_again
    await check_one_model(store, 1, "9.new")
    await store.close()


def stored_keys(connection: sqlite3.Connection, model: str) -> set[str]:
    return {row[0] for row in connection.execute("SELECT key FROM evaluations WHERE key LIKE ?", (f"%/{model}/%",))}


class Dying(ScriptedEvaluator):
    """Ends a search after a number of evaluations, as if its daemon had died."""

    def __init__(self, at: int, model: str = "", store: Store | None = None) -> None:
        super().__init__(model=model)
        self.at = self.left = at
        self.store = store

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.left -= 1
        if self.left < 0:
            while self.store is not None and len(await self.store.read(stored_keys, self.model)) < self.at:  # noqa: ASYNC110  evaluations have no event
                await asyncio.sleep(0.01)
            raise RuntimeError("dead")
        return await super().evaluate(request)


async def written(store: Store) -> None:
    """Wait until the writer has written what a search that ended by an error had submitted."""
    await store.change(lambda tx: None)


async def cut_off(store: Store, search_for: SearchMaker, **search: object) -> Run:
    """Return a run that an earlier daemon left in its second iteration, under the old model."""
    run = await new_run(store, patience=0, **search)
    evaluator = Dying(12, OLD.model)
    with pytest.raises((ExceptionGroup, RuntimeError)):
        await search_for(run, evaluator, ListedProposer([0.9, 0.8, 1.3]), basis=OLD).run()
    await written(store)
    await check_one_model(store, run.id, OLD.model)
    return await store.read(load_run, run.id)


class Slower(ScriptedEvaluator):
    """A model whose latencies differ: what was fast is slow, beyond 70 us of the old model."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        found = await super().evaluate(request)
        if found.profile is None or found.latency_us is None:
            return found
        return replace(found, profile=replace(found.profile, latency_us=60 + found.latency_us / 4))


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (NEW, "the performance model (9.old → 9.new)"),
        (replace(OLD, model="9.old.c3"), "the performance model (9.old → 9.old.c3)"),
        (
            replace(NEW, workload="1" * 12),
            "the workload's content (000000000000 → 111111111111), the performance model",
        ),
    ],
)
async def test_a_resumed_run_is_timed_again_where_its_basis_has_changed(
    store: Store, search_for: SearchMaker, now: Basis, why: str
) -> None:
    run = await cut_off(store, search_for)
    assert await search_for(run, Slower(model=now.model), ListedProposer([0.9, 0.8, 1.3]), basis=now).run() is (
        RunState.FINISHED
    )
    await check_one_model(store, run.id, now.model)
    found = await facts(store, run.id)
    assert found.baseline_latency_us == 85.0 and found.model == now.model and why in found.timed_again
    events = [event.data for event in await store.read(load_events, 0, run.id, 10_000)]
    (told,) = [event for event in events if isinstance(event, TimedAgain)]
    assert told.text == found.timed_again and told.candidates > 5
    best = next(event for event in events[events.index(told) :] if isinstance(event, BestChanged))
    assert best.latency_us is not None and best.speedup == pytest.approx(85.0 / best.latency_us)
    recorded = await store.read(recording, run.id)
    assert differences(recorded)[0] == [], "each decision follows from the latencies that were known then"


async def test_nothing_is_timed_again_where_nothing_has_changed(store: Store, search_for: SearchMaker) -> None:
    run = await cut_off(store, search_for)
    evaluator = ScriptedEvaluator(model=OLD.model)
    await search_for(run, evaluator, ListedProposer([0.9, 0.8, 1.3]), basis=OLD).run()
    assert not any("latency 100.0" in key for key in evaluator.done)
    assert (await facts(store, run.id)).timed_again == ""
    assert not [one for one in await store.read(load_events, 0, run.id, 10_000) if isinstance(one.data, TimedAgain)]


async def test_until_all_are_timed_again_the_table_is_that_of_before(store: Store, search_for: SearchMaker) -> None:
    run = await cut_off(store, search_for)
    before = await store.read(listing.candidate_rows, run.id)
    killed = Dying(4, NEW.model, store)
    with pytest.raises((ExceptionGroup, RuntimeError)):
        await search_for(run, killed, ListedProposer([0.9, 0.8, 1.3]), basis=NEW).run()
    await written(store)
    assert await store.read(listing.candidate_rows, run.id) == before
    await check_one_model(store, run.id, OLD.model)
    evaluator = ScriptedEvaluator(model=NEW.model)
    run = await store.read(load_run, run.id)
    await search_for(run, evaluator, ListedProposer([0.9, 0.8, 1.3]), basis=NEW).run()
    assert len(killed.done) == 4 and not set(evaluator.done) & set(killed.done), "what was stored is not timed twice"
    assert max((evaluator.done + killed.done).values()) == 1, "equal kernels are timed once"
    await check_one_model(store, run.id, NEW.model)


class Device(ScriptedEvaluator):
    """Measures, with an SDK and a driver."""

    sdk = "neuronx-cc 2.26"

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        found = await super().evaluate(request)
        assert found.profile is not None
        profile = replace(
            found.profile, source=Source.MEASURED, model="", sdk=self.sdk, driver="2.21", details={"tie_percent": 2.0}
        )
        return replace(found, profile=profile)


@pytest.mark.parametrize("changed", [True, False])
async def test_a_run_on_a_device_ends_where_the_sdk_has_changed(
    store: Store, search_for: SearchMaker, changed: bool
) -> None:
    today = Basis("0" * 12, "", chip="trn1")
    run = await store.change(
        create_run, RunSpec("toy", backend="neuron", search=SearchParameters(2, 3, 1, 3, patience=0))
    )

    class Breaking(Device, Dying):
        pass

    with pytest.raises((ExceptionGroup, RuntimeError)):
        await search_for(run, Breaking(8), ListedProposer([0.9, 0.8, 1.3]), basis=today).run()
    run = await store.read(load_run, run.id)
    assert (run.basis.sdk, run.basis.driver) == ("neuronx-cc 2.26", "2.21")
    evaluator = Device()
    evaluator.sdk = "neuronx-cc 2.27" if changed else Device.sdk
    assert await search_for(run, evaluator, ListedProposer([0.9, 0.8, 1.3]), basis=today).run() is RunState.FINISHED
    ended = await store.read(load_run, run.id)
    assert ("the SDK (neuronx-cc 2.26 → neuronx-cc 2.27) changed meanwhile" in ended.message) is changed
    assert evaluator.done.total() == 1 if changed else evaluator.done.total() > 1
    known = {one.evaluation.profile.sdk for one in await store.read(load_candidates, run.id)
             if one.evaluation and one.evaluation.profile}  # fmt: skip
    assert known == {"neuronx-cc 2.26"}


async def test_a_new_run_on_a_device_takes_no_result_of_another_sdk(store: Store, search_for: SearchMaker) -> None:
    spec = RunSpec("toy", backend="neuron", search=SearchParameters(1, 1, 1, 1))
    today = Basis("0" * 12, "", chip="trn1")
    for sdk in ("neuronx-cc 2.26", "neuronx-cc 2.27"):
        run, evaluator = await store.change(create_run, spec), Device()
        evaluator.sdk = sdk
        await search_for(run, evaluator, ListedProposer([0.8]), basis=today).run()
        for candidate in await store.read(load_candidates, run.id):
            assert candidate.evaluation is not None and candidate.evaluation.profile is not None
            assert candidate.evaluation.profile.sdk == sdk


async def test_runs_of_two_models_are_not_comparable(store: Store, search_for: SearchMaker) -> None:
    for basis in (OLD, NEW, NEW):
        run = await new_run(store, iterations=1)
        await search_for(run, ScriptedEvaluator(model=basis.model), ListedProposer([0.5]), basis=basis).run()
    columns: Callable[[int], Any] = lambda number: store.read(compared, number)
    old, new, again = [await columns(number) for number in (1, 2, 3)]
    assert comparable([new, again]) and not comparable([old, new])


async def test_the_terminal_ui_forgets_bests_of_before(store: Store, search_for: SearchMaker) -> None:
    run = await cut_off(store, search_for)
    await search_for(run, Slower(model=NEW.model), ListedProposer([0.9, 0.8, 1.3]), basis=NEW).run()
    events = await store.read(load_events, 0, run.id, 10_000)
    forward, backward = RunView(run.id), RunView(run.id)
    for event in events:
        forward.apply(event)
    for event in reversed(events):
        backward.apply(event)
    row: dict[str, Any] = await store.read(listing.run_row, run.id)
    for view in (forward, backward):
        assert view.best is not None and view.best.latency_us == row["best_latency_us"]
        assert view.baseline_us == row["baseline_latency_us"] == 85.0
        assert all(one.latency_us >= 70 for one in view.bests) and view.timed_again == row["timed_again"]
    assert [asdict(one) for one in forward.bests] == [asdict(one) for one in backward.bests]


async def test_a_search_among_unvalidated_latencies_ranks_them_and_claims_no_win(
    store: Store, search_for: SearchMaker
) -> None:
    class TwoCores(ScriptedEvaluator):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            found = await super().evaluate(request)
            assert found.profile is not None
            return replace(found, profile=replace(found.profile, interval_percent=None))

    run = await new_run(store, patience=0)
    await search_for(run, TwoCores(), ListedProposer([0.5, 0.9])).run()
    found = await facts(store, run.id)
    assert found.best_latency_us == pytest.approx(12.5) and found.speedup == pytest.approx(8.0)
    assert (found.improved, found.tie_band, found.tie_reason) == (False, None, "unvalidated")
    row: dict[str, Any] = await store.read(listing.run_row, run.id)
    assert (row["improved"], row["wins"]) == (False, 0)
    best = next(one for one in await store.read(load_candidates, run.id) if one.id == found.best)
    assert best.evaluation is not None and (best.evaluation.status, best.evaluation.gate) == (
        Status.PASSED, Gate.STRICT
    )  # fmt: skip
