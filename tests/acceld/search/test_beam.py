"""Selection keeps the best, distinct programs, and ignores the order of arrival."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from acceld.model import Candidate, Check, Correctness, Evaluation, Failure, Gate, Kernel, Profile, Source, Status
from acceld.search.beam import could_enter, first_distinct, select


def candidate(
    number: int, latency_us: float, program: str = "", *, status: Status = Status.PASSED, instructions: int = 10
) -> Candidate:
    profile = Profile(
        Source.SIMULATED,
        "trn1",
        "nki_legacy",
        latency_us,
        "test",
        interval_percent=15.0,
        counters={"instruction_count": instructions},
    )
    passed = Correctness(Gate.SEARCH, 0.0, 1e-6, checks=(Check("own", True),))
    evaluation = Evaluation(
        status=status,
        source_sha256=f"s{number}",
        program_sha256=program or f"p{number}",
        profile=profile,
        correctness=passed if status is Status.PASSED else None,
        failure=None if status in (Status.PASSED, Status.UNTESTED) else Failure("tolerance", "off"),
    )
    return Candidate(1, 1, Kernel("", "nki_legacy"), None, order=(0, number, 0, 0), evaluation=evaluation, id=number)


def ids(beam: tuple[Candidate, ...]) -> list[int]:
    return [c.id for c in beam]


def test_a_good_parent_stays_though_children_are_many() -> None:
    parent, children = candidate(1, 5.0), [candidate(n, 5.0 + n) for n in range(2, 8)]
    assert ids(select([parent, *children], 3)) == [1, 2, 3]


def test_the_same_program_takes_one_place() -> None:
    assert ids(select([candidate(1, 5.0, "p"), candidate(2, 5.0, "p"), candidate(3, 6.0)], 2)) == [1, 3]


def test_candidates_without_a_program_are_distinct_by_their_source() -> None:
    untraced = [
        replace(one, evaluation=replace(one.evaluation, program_sha256=""))
        for one in map(candidate, (1, 2), (5.0, 6.0))
        if one.evaluation
    ]
    assert [one.id for one in first_distinct(untraced, 2)] == [one.id for one in select(untraced, 2)] == [1, 2]


def test_only_what_passed_is_chosen() -> None:
    failed = candidate(1, 1.0, status=Status.INCORRECT_NUMERICAL)
    assert ids(select([failed, candidate(2, 1.0, status=Status.UNTESTED), candidate(3, 9.0)], 2)) == [3]


def test_ties_go_to_fewer_instructions() -> None:
    assert ids(select([candidate(1, 5.0, instructions=20), candidate(2, 5.0, instructions=10)], 1)) == [2]


def test_pins_and_vetoes_hold() -> None:
    pool = [candidate(n, float(n)) for n in (1, 2, 3, 4)]
    assert ids(select(pool, 2, pinned=frozenset({4}), vetoed=frozenset({1}))) == [2, 4]


def test_a_candidate_slower_than_a_full_beam_can_not_enter() -> None:
    beam = (candidate(1, 1.0), candidate(2, 2.0))
    slow, quick = candidate(3, 3.0, status=Status.UNTESTED), candidate(4, 1.5, status=Status.UNTESTED)
    assert not could_enter(slow, beam, 2) and could_enter(slow, beam, 3) and could_enter(quick, beam, 2)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.integers(1, 6), st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_nothing(latencies: list[int], width: int, rng: random.Random) -> None:
    pool = [candidate(n, float(us), f"p{us % 4}") for n, us in enumerate(latencies, 1)]
    expected = ids(select(pool, width))
    rng.shuffle(pool)
    assert ids(select(pool, width)) == expected
    assert len(expected) <= width
