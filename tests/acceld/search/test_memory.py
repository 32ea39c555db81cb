"""Selection of insights on hand-made records: rewrites that teach, insights shown, insights too alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.model import (
    SIMULATED_LESSON_PERCENT,
    Candidate,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Held,
    Insight,
    InsightKind,
    Kernel,
    Plan,
    Profile,
    Source,
    Status,
)
from acceld.search import memory
from acceld.search.memory import Applicability, MemorySettings

HERE = Applicability(run=5, chip="trn1", api="nki_legacy", tags=("softmax",))


def candidate(
    number: int,
    latency_us: float | None,
    *,
    parent: int | None = 1,
    plan: int | None = None,
    program: str = "",
    details: Mapping[str, Any] | None = None,
    gate: Gate = Gate.STRICT,
    source: Source = Source.SIMULATED,
    interval: float | None = 15.0,
) -> Candidate:
    kernel = Kernel(f"kernel {number}", "nki_legacy")
    if latency_us is None:
        failure = Failure("partition_limit", "too many")
        evaluation = Evaluation(Status.COMPILE_ERROR, kernel.sha256, failure=failure)
    else:
        evaluation = Evaluation(
            Status.PASSED,
            kernel.sha256,
            program_sha256=program or f"p{number}",
            correctness=Correctness(gate, 1e-7, 2e-5),
            profile=Profile(
                source, "trn1", "nki_legacy", latency_us, "test", interval_percent=interval, details=details or {}
            ),
        )
    order = (0, plan or 0, number, 0)
    return Candidate(5, 1, kernel, parent, plan, order=order, evaluation=evaluation, id=number)


def plan(number: int) -> Plan:
    return Plan(5, 1, 1, number, f"plan {number}", id=number)


def insight(number: int, **changes: Any) -> Insight:
    values: dict[str, Any] = {
        "title": f"title {number}",
        "strategy": f"strategy{number} alpha{number} beta{number}",
        "slow": f"slow{number}()",
        "fast": f"fast{number}()",
        "speedup": 1.2,
        "kind": InsightKind.POSITIVE,
        "run": 5,
        "iteration": number,
        "chip": "trn1",
        "api": "nki_legacy",
        "id": number,
    }
    return Insight(**(values | changes))


ROOT = candidate(1, 100.0, parent=None)
FIFO = MemorySettings("fifo")


def test_pairs_always_read_from_slow_to_fast() -> None:
    children = [candidate(2, 80.0, plan=1), candidate(3, 130.0, plan=2), candidate(4, 101.0, plan=3)]
    positive, negative = memory.rewrites([ROOT, *children], {n: plan(n) for n in (1, 2, 3)}, FIFO)
    assert [(pair.slow.id, pair.fast.id, pair.speedup) for pair in positive] == [(1, 2, 1.25)]
    assert [(pair.slow.id, pair.fast.id, pair.speedup) for pair in negative] == [(3, 1, 1.3)]
    assert positive[0].positive and not negative[0].positive
    assert memory.kind_of(negative[0]) is InsightKind.NEGATIVE


@given(st.lists(st.floats(20.0, 500.0), min_size=1, max_size=12))
def test_every_pair_is_beyond_its_threshold(latencies: list[float]) -> None:
    children = [candidate(n + 2, latency, plan=n % 3 + 1) for n, latency in enumerate(latencies)]
    positive, negative = memory.rewrites([ROOT, *children], {}, FIFO)
    for pair in positive:
        assert pair.speedup > 1.04 and pair.slow is ROOT
    for pair in negative:
        assert pair.speedup > 1.15 and pair.fast is ROOT
    for pair in (*positive, *negative):
        slow, fast = pair.slow.evaluation, pair.fast.evaluation
        assert slow is not None and fast is not None and slow.latency_us and fast.latency_us
        assert pair.speedup == pytest.approx(slow.latency_us / fast.latency_us)
    speeds = [pair.speedup for pair in positive]
    assert speeds == sorted(speeds, reverse=True)


def test_a_group_with_a_fast_and_a_slow_attempt_teaches_both() -> None:
    children = [candidate(2, 50.0, plan=1), candidate(3, 100.0, plan=1), candidate(4, 200.0, plan=1)]
    positive, negative = memory.rewrites([ROOT, *children], {}, FIFO)
    assert [pair.fast.id for pair in positive] == [2] and [pair.slow.id for pair in negative] == [4]


def test_what_lies_inside_the_noise_teaches_hypotheses_with_their_band() -> None:
    for source, details, least in (
        (Source.SIMULATED, {}, SIMULATED_LESSON_PERCENT),
        (Source.MEASURED, {"tie_percent": 12.0}, 12.0),
        (Source.MEASURED, {"paired": [{"band_percent": 8.0}]}, 8.0),
    ):
        inside, beyond = (
            candidate(number, 100.0 / (1 + (least + more) / 100), details=details, source=source, plan=number)
            for number, more in ((2, -1), (3, 1))
        )
        (hypothesis,), none = memory.rewrites([ROOT, inside], {}, FIFO)
        assert hypothesis.tie_percent == pytest.approx(least) and none == []
        (sure,), _ = memory.rewrites([ROOT, beyond], {}, FIFO)
        assert sure.tie_percent is None
        both, _ = memory.rewrites([ROOT, inside, beyond], {}, FIFO)
        assert [pair.tie_percent is None for pair in both] == [True, False], "what is sure comes first"


def test_a_latency_without_a_validated_interval_teaches_nothing() -> None:
    unvalidated = candidate(2, 20.0, interval=None)
    assert memory.rewrites([ROOT, unvalidated], {}, FIFO) == ([], [])
    root = candidate(1, 100.0, parent=None, interval=None)
    assert memory.rewrites([root, candidate(2, 20.0)], {}, FIFO) == ([], [])
    measured = candidate(2, 20.0, source=Source.MEASURED, interval=None)
    assert len(memory.rewrites([ROOT, measured], {}, FIFO)[0]) == 1


def test_the_same_program_and_a_failed_child_teach_nothing() -> None:
    same = candidate(2, 50.0, plan=1, program="p1")
    failed = candidate(3, None, plan=2)
    assert memory.rewrites([ROOT, same, failed], {}, FIFO) == ([], [])


def test_the_same_program_twice_teaches_once() -> None:
    children = [candidate(2, 50.0, plan=1, program="x"), candidate(3, 50.0, plan=2, program="x")]
    assert len(memory.rewrites([ROOT, *children], {}, FIFO)[0]) == 1


@pytest.mark.parametrize(("positives", "expected"), [(0, (0, 8)), (3, (3, 5)), (4, (4, 4)), (20, (4, 4))])
def test_at_most_half_is_positive(positives: int, expected: tuple[int, int]) -> None:
    assert memory.quota(8, positives) == expected


def test_fifo_shows_the_run_s_newest() -> None:
    known = [insight(n) for n in range(1, 31)] + [insight(99, run=4)]
    chosen = memory.shown(known, HERE, FIFO, 31, 0)
    assert [entry.id for entry in chosen] == list(range(15, 31))


def test_random_keeps_the_new_and_samples_the_old_by_seed() -> None:
    known = [insight(n, iteration=(n + 7) // 8) for n in range(1, 41)]
    settings = MemorySettings("random")
    first = memory.shown(known, HERE, settings, 6, 1)
    assert {entry.id for entry in first} >= set(range(33, 41)) and len(first) == 16
    assert first == memory.shown(known, HERE, settings, 6, 1)
    assert first != memory.shown(known, HERE, settings, 6, 2)


def test_value_prefers_what_wins_and_forgets_what_is_old() -> None:
    known = [insight(1, wins=9), insight(2, losses=9), insight(3), insight(4, run=4, tags=("gemm",))]
    chosen = memory.shown(known, HERE, MemorySettings("value", capacity=2), 9, 0)
    assert [entry.id for entry in chosen] == [1, 3]
    assert memory.value(known[2], HERE, 0) == 2 * memory.value(known[2], HERE, memory.HALF_LIFE)
    assert memory.value(known[0], HERE, 0) == memory.value(known[0], HERE, memory.HALF_LIFE), "proven: it does not age"


def test_value_takes_what_other_runs_learned_on_like_workloads() -> None:
    known = [insight(1, run=4, tags=("softmax",)), insight(2, run=4, tags=("gemm",))]
    chosen = memory.shown(known, HERE, MemorySettings("value", capacity=1), 9, 0)
    assert [entry.id for entry in chosen] == [1]


def test_pinned_is_always_shown_and_muted_and_withdrawn_never() -> None:
    known = [insight(1, pinned=True), *(insight(n) for n in range(2, 30)), insight(30, muted=True)]
    known.append(insight(31, withdrawn=True, pinned=True))
    chosen = [entry.id for entry in memory.shown(known, HERE, FIFO, 31, 0)]
    assert chosen[0] == 1 and len(chosen) == 16 and 30 not in chosen and 31 not in chosen


def test_off_shows_nothing() -> None:
    assert memory.shown([insight(1, pinned=True)], HERE, MemorySettings("off"), 2, 0) == ()


@pytest.mark.parametrize("changes", [{"chip": "trn2"}, {"api": "triton"}])
def test_what_does_not_apply_is_not_shown(changes: dict[str, str]) -> None:
    assert memory.shown([insight(1, **changes)], HERE, FIFO, 2, 0) == ()


def test_a_measured_run_sees_simulated_insights_only_when_asked_and_marked() -> None:
    measured = Applicability(5, "trn1", "nki_legacy", source=Source.MEASURED)
    known = [insight(1), insight(2, source=Source.MEASURED)]
    assert [entry.id for entry in memory.shown(known, measured, FIFO, 3, 0)] == [2]
    asked = MemorySettings("fifo", show_simulated=True)
    assert [entry.id for entry in memory.shown(known, measured, asked, 3, 0)] == [1, 2]
    assert memory.unverified(known[0], measured) and not memory.unverified(known[1], measured)


def test_near_duplicates_are_recognized_and_opposites_are_not() -> None:
    words = {"title": "Load wide rows", "strategy": "Load 2 KiB of a row at once, since short rows waste a DMA"}
    one = insight(1, **words, slow="load(x[i])", fast="load(x)")
    same = insight(2, **words | {"title": "Load wider rows"}, slow="load(x[i])", fast="load(x)")
    opposite = insight(3, **words, slow="load(x)", fast="load(x[i])")
    fresh, nearest = memory.novelty(same, [one, insight(9)])
    assert nearest is one and 1 - fresh >= memory.TOO_ALIKE
    assert memory.similarity(one, opposite) == 0
    assert memory.novelty(insight(4), [one])[0] > 0.8
    assert memory.novelty(one, []) == (1.0, None)


def test_redundancy_goes_from_nothing_to_one() -> None:
    assert memory.redundancy([insight(1)]) == 0
    assert memory.redundancy([insight(1), insight(1)]) == 1
    assert memory.redundancy([insight(1), insight(2)]) < 0.3


def test_a_suspect_candidate_withdraws_what_it_taught() -> None:
    known = [
        insight(1, slow_candidate=7, fast_candidate=8),
        insight(2, slow_candidate=9, fast_candidate=7),
        insight(3, slow_candidate=7, fast_candidate=9, withdrawn=True),
        insight(4, slow_candidate=1, fast_candidate=2),
    ]
    assert [entry.id for entry in memory.taught_by(7, known)] == [1, 2]


def test_repeated_plans_are_counted() -> None:
    texts = ["swap the two loops", "swap the two loops", "fuse the store", "swap the two loops"]
    plans = [Plan(5, 1, 1, n, text) for n, text in enumerate(texts)]
    assert memory.repeated(plans) == 0.5
    assert memory.repeated([]) == 0


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="lifo"):
        MemorySettings("lifo")
    with pytest.raises(ValueError, match="ratios"):
        MemorySettings("fifo", t_pos=0.9)


def test_what_was_undone_by_mistake_teaches_the_same_as_what_was_found() -> None:
    words = {"title": "Load once", "strategy": "Load the tile before the loop.", "slow": "for: load(x)", "fast": "once"}
    found, undone = insight(1, **words), insight(2, **words, kind=InsightKind.NEGATIVE)
    assert memory.similarity(found, undone) == 1.0 and memory.novelty(undone, [found]) == (0.0, found)


def held(chip: str, api: str, times: int = 1, workload: str = "silu") -> Held:
    return Held(chip, api, workload, Source.SIMULATED, 1.5, times)


def test_value_retrieves_by_bottleneck_operations_and_change_across_chips_and_apis() -> None:
    place = Applicability(9, "trn2", "nki", bounds=("vector 95 %",), operations=frozenset({"matmul", "exponential"}))
    fits = {"bound": "vector 80 %", "operations": ("exponential", "matmul"), "run": 1}
    known = [
        insight(1, **fits, change="engine", held=(held("trn1", "nki_legacy"),)),
        insight(2, **fits, change="engine", held=(held("trn1", "nki_legacy"),)),
        insight(3, **fits, change="fusion", held=(held("trn1", "nki_legacy"),)),
        insight(4, **fits | {"operations": ("gather",)}, held=(held("trn1", "nki_legacy"),)),
        insight(5, **fits | {"bound": "DMA"}, change="dma", held=(held("trn1", "nki_legacy"),)),
    ]
    chosen = memory.shown(known, place, MemorySettings("value", capacity=3), 9, 0)
    assert {entry.id for entry in chosen[:2]} == {2, 3}, "two change classes before a second of one"
    assert not {4} & {entry.id for entry in chosen}
    assert memory.shown(known, place, FIFO, 9, 0) == (), "the paper's memory stays within its run"
    assert not memory.held_at(known[0], "trn2", "nki") and memory.held_at(known[0], "trn1", "nki_legacy")


def test_an_insight_that_held_here_counts_more_than_one_from_elsewhere() -> None:
    there, here = (
        insight(1, held=(held("trn2", "nki"),)),
        insight(2, held=(held("trn2", "nki"), held("trn1", "nki_legacy"))),
    )
    assert memory.value(here, HERE, 0) > memory.value(replace(there, held=(*there.held,)), HERE, 0)


def test_confirmations_are_counted_by_place_and_count_as_wins() -> None:
    first = insight(1, held=(held("trn1", "nki_legacy"),))
    again = memory.confirmed(first, (held("trn1", "nki_legacy"),))
    both = memory.confirmed(replace(first, held=again), (held("trn2", "nki"),))
    assert [(place.chip, place.times) for place in both] == [("trn1", 2), ("trn2", 1)]
    sure = replace(first, held=both)
    assert (first.confirmations, sure.confirmations) == (0, 2)
    assert memory.value(sure, HERE, 0) > memory.value(first, HERE, 0)


def test_what_seldom_wins_retires_unless_it_is_pinned() -> None:
    weak, young = insight(1, wins=1, losses=9), insight(2, losses=memory.TRIES - 1)
    assert memory.shown([weak, young], HERE, FIFO, 9, 0) == (young,)
    assert memory.shown([replace(weak, pinned=True)], HERE, FIFO, 9, 0) != ()


def test_operations_have_one_name_in_every_api() -> None:
    nki = "nisa.nc_matmul(a, b)\nnisa.activation(op=nl.exp, data=x)\nnisa.tensor_reduce(nl.add, y)"
    triton = "acc = tl.dot(a, b)\np = tl.exp(acc)\ns = tl.sum(p, axis=1)"
    assert {"matmul", "exponential", "reduction"} <= memory.operations_of(nki) & memory.operations_of(triton)
    assert memory.operations_of("y = x") == frozenset()


def test_a_playbook_joins_what_was_taught_twice_and_names_its_sources() -> None:
    known = [
        insight(
            7,
            title="Fuse the scale",
            bound="vector 90 %",
            change="fusion",
            wins=2,
            losses=1,
            held=(held("trn1", "nki"),),
        ),
        insight(9, title="Fuse the bias", bound="Vector 70 %", change="fusion", held=(held("trn2", "nki", 3),)),
        insight(11, title="Once", bound="DMA", change="dma", held=(held("trn1", "nki"),)),
        insight(12, title="Perhaps", bound="DMA", change="dma", tie_percent=17.0, held=(held("trn1", "nki"),)),
        insight(13, title="Gone", bound="DMA", change="dma", withdrawn=True, held=(held("trn1", "nki", 5),)),
    ]
    (rule,) = memory.playbook(known)
    assert rule.startswith("Where vector is the bottleneck (class fusion): Fuse the")
    assert "4 rewrites on trn1, trn2" in rule and "won with it 2 of 3 times" in rule and rule.endswith("i7, i9]")
