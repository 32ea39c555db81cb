"""Every record that is written reads back equal."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from acceld.errors import StoreError
from acceld.model import (
    Candidate,
    Check,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Insight,
    InsightKind,
    Kernel,
    Plan,
    Profile,
    RunSpec,
    SearchParameters,
    Source,
    Status,
)
from acceld.store.changes.insights import write_insight
from acceld.store.changes.runs import create_run
from acceld.store.changes.tree import write_candidate, write_evaluation, write_plan
from acceld.store.database import Store
from acceld.store.reads.records import find_evaluation, load_candidate, load_insights, load_plans, load_run
from acceld.store.rows import dump, load, text_of, text_value
from tests.properties import examples
from tests.store import records

texts = some.text(max_size=30)
clean_texts = some.text(some.characters(codec="utf-8"), max_size=30)
numbers = some.floats(allow_nan=False, allow_infinity=False, width=32)
amounts = some.floats(min_value=0, max_value=1e9, width=32)
maybe = some.none() | amounts
json_values = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | numbers | clean_texts,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(clean_texts, inner, max_size=3),
    max_leaves=8,
)
mappings = some.dictionaries(clean_texts, json_values, max_size=3)

kernels = some.builds(
    Kernel,
    text=texts,
    api=some.sampled_from(["nki_legacy", "nki"]),
    entry=clean_texts,
    grid=some.lists(some.integers(1, 64), max_size=3).map(tuple),
    lnc=some.integers(1, 2),
    filename=clean_texts,
    trusted=some.booleans(),
    closure=some.dictionaries(clean_texts, texts, max_size=2),
)
checks = some.builds(Check, clean_texts, some.just(True), maybe, maybe, clean_texts)
profiles = some.builds(
    Profile,
    source=some.sampled_from(Source),
    chip=some.sampled_from(["trn1", "trn2"]),
    api=clean_texts,
    latency_us=maybe,
    method=clean_texts,
    sdk=clean_texts,
    resolution_us=amounts,
    interval_percent=maybe,
    engines_us=some.dictionaries(clean_texts, amounts, max_size=3),
    counters=some.dictionaries(clean_texts, amounts, max_size=3),
    bound=clean_texts,
    notes=some.lists(clean_texts, max_size=3).map(tuple),
    samples_us=some.lists(amounts, max_size=4).map(tuple),
    details=mappings,
)
correctnesses = some.builds(
    Correctness,
    gate=some.sampled_from(Gate),
    rel_l2=amounts,
    tolerance=amounts,
    worst_row=maybe,
    checks=some.lists(checks, max_size=3).map(tuple),
    accelopt_passed=some.none() | some.booleans(),
)
common: dict[str, Any] = {
    "source_sha256": some.just("a" * 64),
    "program_sha256": clean_texts,
    "percent_of_peak": maybe,
    "percent_of_attainable": maybe,
    "sandbox_level": clean_texts,
    "seconds": some.dictionaries(clean_texts, amounts, max_size=3),
    "log": clean_texts,
}
failures = some.builds(Failure, clean_texts.filter(bool), clean_texts, some.integers(0, 10**6), clean_texts)
evaluations = (
    some.builds(Evaluation, status=some.just(Status.PASSED), correctness=correctnesses, profile=profiles, **common)
    | some.builds(Evaluation, status=some.sampled_from([Status.UNTESTED, Status.UNCHECKED]), profile=profiles, **common)
    | some.builds(
        Evaluation,
        status=some.sampled_from([Status.COMPILE_ERROR, Status.INCORRECT_NUMERICAL, Status.SUSPECT, Status.TIMEOUT]),
        failure=failures,
        correctness=some.none() | correctnesses,
        profile=some.none() | profiles,
        **common,
    )
)
insights = some.builds(
    Insight,
    title=clean_texts,
    strategy=clean_texts,
    slow=clean_texts,
    fast=clean_texts,
    speedup=amounts,
    kind=some.sampled_from(InsightKind),
    iteration=some.integers(0, 99),
    chip=clean_texts,
    tags=some.lists(clean_texts, max_size=3).map(tuple),
    source=some.sampled_from(Source),
    uses=some.integers(0, 99),
    pinned=some.booleans(),
    muted=some.booleans(),
    novelty=amounts,
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, asyncio.Runner, Candidate]]:
    """Yield one store for all examples, because a further row does no harm."""
    with asyncio.Runner() as runner:
        store = Store.open(Path(tmp_path_factory.mktemp("rows")) / "acceld.db")
        _, baseline = runner.run(records.begin(store))
        yield store, runner, baseline
        runner.run(store.close())


MANY = examples(15)


@MANY
@given(kernel=kernels, evaluation=evaluations)
def test_candidates_and_evaluations(
    kept: tuple[Store, asyncio.Runner, Candidate], kernel: Kernel, evaluation: Evaluation
) -> None:
    store, runner, baseline = kept

    async def there_and_back() -> None:
        written = await store.change(
            write_candidate, Candidate(baseline.run, 1, kernel, baseline.id, order=(1, 2, 0, 0))
        )
        evaluated = await store.change(
            write_evaluation,
            written,
            evaluation,
            workload="w",
            backend="simulator",
            chip="trn1",
            key=f"key {written.id}",
        )
        assert await store.read(load_candidate, evaluated.id) == evaluated
        assert await store.read(find_evaluation, f"key {written.id}") == evaluated.evaluation

    runner.run(there_and_back())


@MANY
@given(text=clean_texts, data=mappings, number=some.integers(0, 10**9), insight=insights)
def test_plans_and_insights(
    kept: tuple[Store, asyncio.Runner, Candidate], text: str, data: dict[str, Any], number: int, insight: Insight
) -> None:
    store, runner, baseline = kept

    async def there_and_back() -> None:
        lesson = await store.change(write_insight, insight)
        (found,) = await store.read(load_insights, limit=1)
        assert found == lesson
        plan = Plan(baseline.run, lesson.id, baseline.id, number, text, title=text, data=data)
        written = await store.change(write_plan, plan)
        assert (await store.read(load_plans, baseline.run, lesson.id)) == [written]

    runner.run(there_and_back())


@MANY
@given(
    root=some.none() | kernels,
    search=some.builds(
        SearchParameters, beam_width=some.integers(1, 9), budget_usd=maybe, seed=some.integers(0, 2**53)
    ),
    name=clean_texts,
)
def test_run_specifications(
    kept: tuple[Store, asyncio.Runner, Candidate], root: Kernel | None, search: SearchParameters, name: str
) -> None:
    store, runner, _ = kept
    spec = RunSpec("silu", search=search, root=root, name=name)
    run = runner.run(store.change(create_run, spec))
    assert runner.run(store.read(load_run, run.id)) == run
    assert run.spec == spec


def test_a_rel_l2_that_is_no_number_reads_back_as_none(kept: tuple[Store, asyncio.Runner, Candidate]) -> None:
    store, runner, baseline = kept
    wrong = records.failed(Status.INCORRECT_NUMERICAL)
    wrong = replace(wrong, correctness=Correctness(Gate.SEARCH, math.nan, 1e-6))
    child = runner.run(records.evaluate(store, runner.run(records.child_of(store, baseline, 0, iteration=7)), wrong))
    back = runner.run(store.read(load_candidate, child.id)).evaluation
    assert back is not None
    assert back.correctness is not None
    assert math.isnan(back.correctness.rel_l2)


@given(value=some.recursive(json_values | some.floats(), lambda inner: some.lists(inner, max_size=3), max_leaves=5))
def test_json_holds_only_finite_numbers(value: Any) -> None:
    text = dump(value)
    assert "NaN" not in text.replace('"', "") or "NaN" in str(value)
    load(text)


@given(text=some.text())
def test_any_text_is_kept(text: str) -> None:
    assert text_of(text_value(text)) == text


def test_a_row_that_is_no_record_is_named_with_what_to_do(kept: tuple[Store, asyncio.Runner, Candidate]) -> None:
    store, runner, baseline = kept
    child = runner.run(
        records.evaluate(store, runner.run(records.child_of(store, baseline, 0, iteration=8)), records.passed())
    )
    number = runner.run(store.read(_evaluation_of, child.id))
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE evaluations SET status = 'odd' WHERE id = ?", (number,))
    other.close()
    with pytest.raises(
        StoreError, match=f"^evaluation {number} can not be read: 'odd' is not a valid Status"
    ) as caught:
        runner.run(store.read(load_candidate, child.id))
    assert "acceld db restore" in caught.value.hint


def _evaluation_of(connection: sqlite3.Connection, candidate: int) -> int:
    (number,) = connection.execute("SELECT evaluation FROM candidates WHERE id = ?", (candidate,)).fetchone()
    return int(number)
