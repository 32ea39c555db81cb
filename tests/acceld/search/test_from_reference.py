"""A run that starts from a reference: the first kernel is written and repaired, then the search goes on from it."""

from __future__ import annotations

from collections import Counter

import pytest

from acceld.model import Kernel, RunState, Status
from acceld.proposers.interface import FirstRequest, Problem
from acceld.report.datasets import Material, numpy_nki
from acceld.search.loop import Search, SearchParts
from acceld.store.database import Store
from acceld.store.reads.records import load_candidate, load_candidates, load_run
from tests.acceld.search.conftest import ListedProposer, ScriptedEvaluator, kernel_text, new_run

BLANK = Kernel("", "nki_legacy", "kernel")
TOY = Problem("toy", "", "def forward(x): ...", (), "trn1", "nki_legacy")


class Writer(ListedProposer):
    """Its first attempt stays illegal; its second is repaired once."""

    mends = True

    def __init__(self) -> None:
        super().__init__([0.9, 0.8], name="llm")
        self.asked: Counter[tuple[int, int]] = Counter()

    async def first(self, request: FirstRequest) -> str | None:
        self.asked[request.index, request.step] += 1
        assert len(request.earlier) == request.step
        illegal = request.index == 0 or request.step == 0
        return kernel_text(100.0, f"{'illegal ' if illegal else ''}attempt {request.index} step {request.step}")


async def searched(store: Store, run: int, writer: Writer, root: Kernel = BLANK) -> RunState:
    record = await store.read(load_run, run)
    return await Search(record, SearchParts(store, ScriptedEvaluator(), writer, TOY, root)).run()


async def test_the_first_kernel_that_passes_becomes_the_baseline(store: Store) -> None:
    run = await new_run(store, from_reference=True, fixer_steps=1, plans=2, attempts=1, iterations=2)
    writer = Writer()
    assert await searched(store, run.id, writer) is RunState.FINISHED
    assert writer.asked == {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1}
    record = await store.read(load_run, run.id)
    assert record.baseline is not None and record.best is not None
    baseline = await store.read(load_candidate, record.baseline)
    assert baseline.order == (0, 0, 1, 1) and baseline.evaluation is not None
    assert baseline.evaluation.status is Status.PASSED
    candidates = await store.read(load_candidates, run.id)
    assert [c.evaluation.status for c in candidates if c.evaluation and c.parent is None].count(Status.PASSED) == 1
    assert (await store.read(load_candidate, record.best)).parent is not None, "the search went on from it"

    material = Material(record, candidates, {}, [], "def forward(x): ...")
    pairs = list(numpy_nki(material))
    assert [pair["kernel"] for pair in pairs] == ["first", "best"]
    assert pairs[0]["nki"] == baseline.kernel.text and pairs[0]["numpy"] == material.reference


async def test_what_was_written_is_not_written_again_after_a_restart(store: Store) -> None:
    run = await new_run(store, from_reference=True, fixer_steps=1, plans=2, attempts=1, iterations=1)

    class Broken(Writer):
        async def first(self, request: FirstRequest) -> str | None:
            if request.index == 1:
                raise KeyboardInterrupt
            return await super().first(request)

    with pytest.raises(BaseException):  # noqa: B017 - whatever ends a process
        await searched(store, run.id, Broken())
    writer = Writer()
    assert await searched(store, run.id, writer) is RunState.FINISHED
    assert set(writer.asked) == {(1, 0), (1, 1)}


async def test_a_run_without_a_first_kernel_fails_and_says_so(store: Store) -> None:
    run = await new_run(store, from_reference=True, fixer_steps=0, plans=2, attempts=1)
    assert await searched(store, run.id, Writer()) is RunState.FAILED
    assert "no kernel written from the reference passes" in (await store.read(load_run, run.id)).message


LOWERED = Kernel(kernel_text(150.0, "lowered"), "nki_legacy", "kernel", trusted=True)


async def test_a_lowered_kernel_is_a_root_beside_the_models_own_first(store: Store) -> None:
    run = await new_run(store, from_reference=True, fixer_steps=1, plans=2, attempts=1, iterations=2)
    assert await searched(store, run.id, Writer(), LOWERED) is RunState.FINISHED
    record = await store.read(load_run, run.id)
    candidates = await store.read(load_candidates, run.id)
    roots = [c for c in candidates if c.parent is None and c.evaluation and c.evaluation.status is Status.PASSED]
    assert [c.kernel.trusted for c in roots] == [True, False], "what a model writes is not trusted"
    assert record.baseline == roots[0].id and roots[0].kernel.text == LOWERED.text
    assert {c.parent for c in candidates if c.iteration == 1} == {root.id for root in roots}


async def test_a_run_goes_on_from_the_lowered_kernel_if_no_model_writes_one_that_passes(store: Store) -> None:
    run = await new_run(store, from_reference=True, fixer_steps=0, plans=2, attempts=1, iterations=1)
    assert await searched(store, run.id, Writer(), LOWERED) is RunState.FINISHED
    record = await store.read(load_run, run.id)
    assert record.baseline is not None
    assert (await store.read(load_candidate, record.baseline)).kernel.text == LOWERED.text


async def test_models_write_the_first_kernel_if_the_lowered_one_does_not_pass(store: Store) -> None:
    run = await new_run(store, from_reference=True, fixer_steps=1, plans=2, attempts=1, iterations=1)
    broken = Kernel(kernel_text(150.0, "illegal lowered"), "nki_legacy", "kernel", trusted=True)
    assert await searched(store, run.id, Writer(), broken) is RunState.FINISHED
    record = await store.read(load_run, run.id)
    assert record.baseline is not None
    assert (await store.read(load_candidate, record.baseline)).order == (0, 0, 1, 1)
