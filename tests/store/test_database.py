"""Changes and reads of the store on a real SQLite file."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from acceld.cli.kernels import stored_kernel
from acceld.errors import StoreError
from acceld.events import BestChanged, CandidateQueued, EventKind, Notice
from acceld.model import Attempt, Candidate, Gate, Kernel, Plan, RunSpec, RunState
from acceld.store import maintenance
from acceld.store.changes.calls import begin_call, call_sent, end_call
from acceld.store.changes.insights import change_insight, credit_plan, write_insight
from acceld.store.changes.runs import (
    create_run,
    recover_runs,
    select_beam,
    set_best,
    set_run_state,
    start_iteration,
    write_notice,
)
from acceld.store.changes.tree import mark_started, write_attempt, write_candidate, write_plan
from acceld.store.database import Store
from acceld.store.reads import listing
from acceld.store.reads.records import (
    find_evaluation,
    load_candidate,
    load_events,
    load_insights,
    load_run,
    resume_state,
    spent_usd,
    stored_answer,
)
from acceld.store.writer import Transaction
from tests.store import records


async def test_a_run_reads_back_as_it_was_asked_for(store: Store) -> None:
    root = Kernel("def k(x):\n  import helper\n", "nki", "k", (2, 4), 2, "mine.py", True, {"helper.py": "a = 1\n"})
    spec = RunSpec("kernel", chip="trn2", api="nki", root=root, workload_folder="/tmp/w", name="mine")
    run = await store.change(create_run, spec)
    assert (await store.read(load_run, run.id)).spec == spec
    assert run.state is RunState.QUEUED


async def test_a_candidate_reads_back_with_its_whole_evaluation(store: Store) -> None:
    _, baseline = await records.begin(store)
    child = await records.evaluate(store, await records.child_of(store, baseline, 0), records.passed(80.0))
    assert await store.read(load_candidate, child.id) == child
    assert (await store.read(load_candidate, child.id)).evaluation == child.evaluation


async def test_every_change_has_its_event_in_order(store: Store) -> None:
    run = await records.small_run(store)
    events = await store.read(load_events)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = [event.kind for event in events if event.run == run.id]
    assert kinds[:5] == [
        EventKind.RUN_CREATED,
        EventKind.RUN_STATE,
        EventKind.CANDIDATE_WRITTEN,
        EventKind.CANDIDATE_QUEUED,
        EventKind.CANDIDATE_EVALUATED,
    ]
    assert kinds[-2:] == [EventKind.BEAM_SELECTED, EventKind.RUN_STATE]


async def test_nothing_ends_before_it_started_if_the_clock_is_set_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([5000.0, 5001.0, 1400.0, 1402.0, 6000.0, 6000.0 - 2 * 86400.0])
    ticks = iter([0.0, 1.0, 11.0, 21.0, 31.0, 41.0])
    fake = SimpleNamespace(time=lambda: next(clock), monotonic=lambda: next(ticks))
    monkeypatch.setattr("acceld.store.writer.time", fake)
    for _ in range(6):
        await store.change(write_notice, None, "info", "tick")
    told = [event.at for event in await store.read(load_events)]
    assert told == [5000.0, 5001.0, 5010.0, 5019.0, 6000.0, 6000.0 - 2 * 86400.0], "an hour back, and two days back"


def test_the_next_writer_goes_on_from_the_newest_time_if_the_clock_was_set_back(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.store.writer.time", SimpleNamespace(time=lambda: 9000.0, monotonic=lambda: 0.0))

    async def tick() -> list[float]:
        opened = await asyncio.to_thread(Store.open, database)
        await opened.change(write_notice, None, "info", "tick")
        told = [event.at for event in await opened.read(load_events)]
        await opened.close()
        return told

    assert asyncio.run(tick()) == [9000.0]
    monkeypatch.setattr("acceld.store.writer.time", SimpleNamespace(time=lambda: 5400.0, monotonic=lambda: 0.0))
    assert asyncio.run(tick()) == [9000.0, 9000.0]


async def test_a_source_is_stored_once(store: Store, database: Path) -> None:
    _, baseline = await records.begin(store)
    for number in range(3):
        plan = await store.change(write_plan, Plan(baseline.run, 1, baseline.id, number, "same"))
        attempt = await store.change(write_attempt, Attempt(plan.id, 0, baseline.kernel.text))
        await store.change(
            write_candidate, replace(baseline, id=0, parent=baseline.id, plan=plan.id, attempt=attempt.id)
        )
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as plain:
        assert plain.execute("SELECT count(*) FROM sources").fetchone() == (1,)
        assert plain.execute("SELECT count(*) FROM texts").fetchone() == (1,)
        assert plain.execute("SELECT count(*) FROM candidates").fetchone() == (4,)
    plain.close()


async def test_writing_a_step_twice_changes_nothing(store: Store) -> None:
    _, baseline = await records.begin(store)
    first = await records.child_of(store, baseline, 0)
    before = store.hub.last_seq
    assert (await records.child_of(store, baseline, 0)).id == first.id
    assert store.hub.last_seq == before


async def test_a_result_is_found_by_its_key_and_linked_not_copied(store: Store) -> None:
    _, baseline = await records.begin(store)
    child = await records.evaluate(store, await records.child_of(store, baseline, 0), records.passed(80.0))
    known = await store.read(find_evaluation, records.key_of(child))
    assert known is not None
    assert known == child.evaluation
    twin = replace(await records.child_of(store, baseline, 1), kernel=child.kernel)
    twin = await records.evaluate(store, twin, replace(known, id=0, reused=True))
    assert twin.evaluation is not None
    assert twin.evaluation.id == known.id
    assert await store.read(find_evaluation, "something else") is None


async def test_resume_finds_the_open_iteration(store: Store) -> None:
    run, baseline = await records.begin(store)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    done = await records.evaluate(store, await records.child_of(store, baseline, 0), records.passed(80.0))
    await store.change(select_beam, run.id, 1, [done.id, baseline.id], done.id)
    await store.change(start_iteration, run.id, 2, [done.id, baseline.id])
    open_child = await records.child_of(store, done, 0, iteration=2)
    state = await store.read(resume_state, run.id)
    assert state.finished_iterations == 1
    assert [candidate.id for candidate in state.beam] == [done.id, baseline.id]
    assert [plan.iteration for plan in state.earlier_plans] == [1]
    assert [candidate.id for candidate in state.candidates] == [open_child.id]
    assert state.candidates[0].evaluation is None
    assert state.attempts[0].text == open_child.kernel.text
    assert state.baseline == baseline


@pytest.mark.parametrize(
    ("answers", "expected_usd", "cost_usd"), [(0, None, 0.02), (0, 0.003, 0.003), (2, 0.003, 0.0125)]
)
async def test_recovery_prices_lost_calls_by_earlier_answers_and_shows_the_rest_apart(
    store: Store, answers: int, expected_usd: float | None, cost_usd: float
) -> None:
    run, _ = await records.begin(store)
    for number in range(answers):
        answered = await store.change(begin_call, records.call(run.id, f"earlier {number}"))
        await store.change(end_call, answered, records.ANSWER)
    lost = replace(records.call(run.id), expected_usd=expected_usd)
    await store.change(call_sent, await store.change(begin_call, lost))
    earlier_usd = 0.0125 * answers
    assert await store.read(spent_usd, run.id) == pytest.approx(earlier_usd + 0.02)
    assert await store.change(recover_runs, "the daemon was killed") == [run.id]
    call = (await store.read(listing.call_rows, run=run.id))[-1]
    assert (call["outcome"], call["cost_usd"], call["estimated"]) == ("interrupted", cost_usd, 1)
    assert call["uncertain_usd"] == pytest.approx(0.02 - cost_usd)
    assert await store.read(spent_usd, run.id) == pytest.approx(earlier_usd + 0.02), "a cap counts what is possible"
    found = await store.read(listing.costs, run.id)
    assert found["cost_usd"] == pytest.approx(earlier_usd + cost_usd)
    assert found["uncertain_calls"] == (cost_usd < 0.02) and found["uncertain_usd"] == pytest.approx(0.02 - cost_usd)
    assert await store.read(stored_answer, "question") is None


async def test_recovery_books_nothing_for_a_call_that_was_never_sent(store: Store) -> None:
    run, _ = await records.begin(store)
    await store.change(begin_call, records.call(run.id))
    await store.change(recover_runs, "the daemon was killed")
    (call,) = await store.read(listing.call_rows, run=run.id)
    assert (call["outcome"], call["cost_usd"]) == ("interrupted", 0.0)


async def test_an_answer_is_found_again_by_its_question(store: Store) -> None:
    number = await store.change(begin_call, records.call(None))
    await store.change(end_call, number, records.ANSWER)
    stored = await store.read(stored_answer, "question")
    assert stored is not None
    assert stored.text == "Hoist the loads."
    with pytest.raises(StoreError, match="has already ended"):
        await store.change(end_call, number, records.ANSWER)


async def test_insights_are_changed_credited_and_searched(store: Store) -> None:
    run, baseline = await records.begin(store)
    lesson = await store.change(write_insight, records.insight(run.id))
    plan = await store.change(write_plan, Plan(run.id, 1, baseline.id, 0, "Hoist", insights=(lesson.id,)))
    await store.change(credit_plan, plan.id, True, 1.2, [lesson.id])
    await store.change(credit_plan, plan.id, True, 1.2, [lesson.id])
    await store.change(change_insight, lesson.id, "edited", title="Load invariants once", tags=("dma",))
    await store.change(change_insight, lesson.id, "pinned")
    (found,) = await store.read(load_insights, matching="invariant loading")
    assert (found.uses, found.wins, found.losses, found.pinned) == (1, 1, 0, True)
    assert found.tags == ("dma",)
    await store.change(change_insight, lesson.id, "withdrawn")
    assert await store.read(load_insights) == []
    with pytest.raises(StoreError, match="does not set chip"):
        await store.change(change_insight, lesson.id, "edited", chip="trn2")


async def test_a_refused_change_takes_no_other_with_it(store: Store) -> None:
    run, _ = await records.begin(store)
    results = await asyncio.gather(
        store.change(write_notice, run.id, "info", "one"),
        store.change(set_best, run.id, 999),
        store.change(write_candidate, Candidate(999, 0, records.kernel(), None)),
        store.change(write_notice, run.id, "info", "two"),
        return_exceptions=True,
    )
    assert isinstance(results[1], StoreError)
    assert isinstance(results[2], StoreError)
    texts = [e.data.text for e in await store.read(load_events) if isinstance(e.data, Notice)]
    assert texts == ["one", "two"]


@pytest.mark.parametrize("refusal", [StoreError("no"), ValueError("no"), sqlite3.IntegrityError("no")])
async def test_a_change_that_fails_half_way_leaves_neither_rows_nor_events(store: Store, refusal: Exception) -> None:
    def half(tx: Transaction) -> None:
        write_notice(tx, None, "info", "half")
        raise refusal

    results = await asyncio.gather(
        store.change(write_notice, None, "info", "before"),
        store.change(half),
        store.change(write_notice, None, "info", "after"),
        return_exceptions=True,
    )
    assert isinstance(results[1], StoreError | ValueError)
    texts = [event.data.text for event in await store.read(load_events) if isinstance(event.data, Notice)]
    assert texts == ["before", "after"]


async def test_totals_agree_with_the_rows_they_count(store: Store) -> None:
    await records.small_run(store)
    await records.small_run(store, best_us=50.0)
    assert await store.read(maintenance.compare_totals) == []
    tied = await store.read(listing.run_row, 1)
    assert (tied["speedup"], tied["improved"], tied["tie_band"], tied["wins"]) == (1.25, False, 34.0, 0)
    assert tied["verdict"] == "likely"
    nodes = {node[0]: node[-2:] for node in (await store.read(listing.tree, 1))["nodes"]}
    assert nodes[2] == ["likely", "likely"]
    _, step = await store.read(listing.lineage, 2)
    assert (step["verdict"], step["parent_verdict"]) == ("likely", "likely")
    told = [event.data for event in await store.read(load_events) if isinstance(event.data, BestChanged)]
    assert [(one.candidate, one.verdict) for one in told][:2] == [(1, "tie"), (2, "likely")]
    row = await store.read(listing.run_row, 2)
    assert row["statuses"] == {"passed": 1, "compile_error": 1}
    assert (row["wins"], row["no_code"], row["llm_calls"]) == (1, 1, 1)
    assert (row["speedup"], row["improved"]) == (2.0, True)


async def test_an_evaluation_that_the_end_of_a_run_cuts_off_is_not_shown_as_running(store: Store) -> None:
    run, baseline = await records.begin(store)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    cut, done = [await records.child_of(store, baseline, number) for number in range(2)]
    await records.evaluate(store, done, records.passed(90.0))
    await store.change(mark_started, cut.id, "cpu:0")
    await store.change(set_run_state, run.id, RunState.FAILED, "the reference failed")
    states = [(await store.read(listing.candidate_row, one.id))["state"] for one in (cut, done)]
    assert states == ["queued", "done"]
    assert CandidateQueued(cut.id) in [event.data for event in await store.read(load_events)][-2:]


async def test_a_stored_gain_has_the_band_of_the_two_kernels(store: Store) -> None:
    run, baseline = await records.begin(store)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    found = records.passed(80.0)
    assert found.profile is not None
    less = replace(found, profile=replace(found.profile, engines_us={"pe": 10.0, "dma": 40.0}))
    fast = await records.evaluate(store, await records.child_of(store, baseline, 0), less)
    row = await store.read(listing.candidate_row, fast.id)
    assert (row["speedup"], row["improved"], row["tie_band"], row["verdict"]) == (1.25, True, 17.0, "certain")


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_stored_kernel_is_trusted_as_it_was_in_its_run(store: Store, trusted: bool) -> None:
    run, baseline = await records.begin(store)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    made = replace(baseline, id=0, iteration=1, parent=baseline.id, kernel=replace(baseline.kernel, trusted=trusted))
    child = await store.change(write_candidate, made)
    row = await store.read(listing.candidate_row, child.id)
    assert row["trusted"] is trusted and stored_kernel(row) == made.kernel


@pytest.mark.parametrize(("starts_us", "improved"), [(80.0, True), (99.0, False), (None, False)])
async def test_a_stored_gain_without_an_interval_counts_however_long_transfers_take_to_start(
    store: Store, starts_us: float | None, improved: bool
) -> None:
    run, baseline = await records.begin(store)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    found = records.passed(50.0)
    assert found.profile is not None
    profile = replace(
        found.profile, interval_percent=None, details={"prediction": {"starts_us": starts_us}},
        engines_us={"pe": 10.0, "dma": 40.0},
    )  # fmt: skip
    fast = await records.evaluate(store, await records.child_of(store, baseline, 0), replace(found, profile=profile))
    row = await store.read(listing.candidate_row, fast.id)
    assert (row["speedup"], bool(row["improved"])) == (2.0, improved)
    assert row["verdict"] == ("certain" if improved else "tie")


async def test_subscribers_get_the_backlog_and_then_what_comes(store: Store) -> None:
    run, _ = await records.begin(store)
    seen: list[int] = []

    async def listen() -> None:
        async for event in store.subscribe(2):
            seen.append(event.seq)
            if isinstance(event.data, Notice) and event.data.text == "last":
                return

    listener = asyncio.create_task(listen())
    await asyncio.sleep(0)
    for number in range(50):
        await store.change(write_notice, run.id, "info", str(number))
    await store.change(write_notice, run.id, "info", "last")
    await asyncio.wait_for(listener, 300)
    assert seen == list(range(3, store.hub.last_seq + 1))


async def test_a_subscriber_that_fell_far_behind_misses_nothing(store: Store) -> None:
    run, _ = await records.begin(store)
    await asyncio.gather(*(store.change(write_notice, run.id, "info", "x") for _ in range(5000)))
    seen = []
    async for event in store.subscribe(0):
        seen.append(event.seq)
        if event.seq == store.hub.last_seq:
            break
    assert seen == list(range(1, store.hub.last_seq + 1))


async def test_texts_no_utf8_can_hold_are_kept(store: Store) -> None:
    run, baseline = await records.begin(store)
    plan = await store.change(write_plan, Plan(run.id, 1, baseline.id, 0, "odd \ud800 text\x00"))
    text = "x = '\ud800'\x00\n"
    attempt = await store.change(write_attempt, Attempt(plan.id, 0, text))
    child = await store.change(
        write_candidate, Candidate(run.id, 1, replace(baseline.kernel, text=text), baseline.id, plan.id, attempt.id)
    )
    assert (await store.read(load_candidate, child.id)).kernel.text == text


async def test_a_second_writer_is_refused(store: Store, database: Path) -> None:
    with pytest.raises(StoreError, match="another process writes"):
        await asyncio.to_thread(Store.open, database)


async def test_a_database_of_a_newer_acceld_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    with sqlite3.connect(path) as plain:
        plain.execute("PRAGMA user_version = 99")
    plain.close()
    with pytest.raises(StoreError, match="schema version 99"):
        await asyncio.to_thread(Store.open, path)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "acceld.db"
    path.write_bytes(b"not a database at all, but long enough to look" * 100)
    with pytest.raises(StoreError, match="is not a database"):
        await asyncio.to_thread(Store.open, path)


async def test_readers_can_not_write(store: Store) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await store.read(lambda connection: connection.execute("DELETE FROM events"))


async def test_a_finished_run_in_the_words_of_other_tools(store: Store) -> None:
    await records.small_run(store)
    traces = await store.read(
        lambda c: [dict(r) for r in c.execute("SELECT * FROM flashinfer_traces ORDER BY solution")]
    )
    assert [trace["status"] for trace in traces] == ["PASSED", "PASSED", "COMPILE_ERROR"]
    rewrites = await store.read(lambda c: [dict(r) for r in c.execute("SELECT * FROM rewrites")])
    assert [(r["speedup"], r["rule"], r["child_gate"]) for r in rewrites] == [(1.25, "widen_tiles", Gate.STRICT)]
    profiles = await store.read(lambda c: [dict(r) for r in c.execute("SELECT * FROM accelopt_profiles ORDER BY id")])
    assert profiles[-1]["speedup"] == pytest.approx(1.25)


async def test_full_text_search_finds_plans_insights_and_failures(store: Store) -> None:
    await records.small_run(store)
    assert {hit["kind"] for hit in await store.read(listing.search, "tile")} == {"plan"}
    assert {hit["kind"] for hit in await store.read(listing.search, "limits")} == {"failure"}
    assert await store.read(listing.search, '"; DROP TABLE plans; --') == []


async def test_a_baseline_that_is_evaluated_again_changes_every_speed_up_it_is_part_of(store: Store) -> None:
    run, baseline = await records.begin(store)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    fast = await records.evaluate(store, await records.child_of(store, baseline, 0), records.passed(80.0))
    await store.change(set_best, run.id, fast.id)
    await store.change(select_beam, run.id, 1, [fast.id], fast.id)
    await records.evaluate(store, baseline, records.passed(120.0, Gate.STRICT), Gate.STRICT)
    row = await store.read(listing.run_row, run.id)
    assert row["speedup"] == row["baseline_latency_us"] / row["best_latency_us"] == 1.5
    assert (await store.read(listing.candidate_row, fast.id))["speedup"] == 1.5
    assert (await store.read(listing.candidate_row, baseline.id))["speedup"] == 1.0


async def test_the_calls_behind_a_candidate_are_found_whatever_the_ids_of_plans(store: Store) -> None:
    run, baseline = await records.begin(store)
    candidates = [await records.child_of(store, baseline, number) for number in (0, 1)]
    asked: dict[int, list[int]] = {}
    for number, one in enumerate(candidates):
        assert one.plan is not None
        tags = {"run": run.id, "iteration": 1, "parent": baseline.id}
        own = []
        for role, more in (
            ("planner", {"index": number}),
            ("executor", {"plan": one.plan, "attempt": 0}),
            ("fixer", {"plan": one.plan, "attempt": 0, "step": 1}),
        ):
            call = replace(records.call(run.id, key=f"{role} {number}"), role=role, tags=tags | more)
            own.append(await store.change(begin_call, call))
        asked[one.id] = own[:2]  # the fixer's is behind another candidate, which is the attempt repaired
    for one in candidates:
        found = (await store.read(listing.candidate_row, one.id))["calls"]
        assert [row["id"] for row in found] == asked[one.id]


def test_a_new_database_without_room_is_named_with_what_to_do(database: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"can not open .*acceld\.db: disk I/O error") as caught:
            Store.open(database)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "free space" in caught.value.hint
    Store.open(database).close_now()
