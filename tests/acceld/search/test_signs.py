"""Signs of a search that goes wrong are reported, and a good search has none."""

from __future__ import annotations

from acceld.model import (
    Attempt,
    Candidate,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Kernel,
    Plan,
    Profile,
    Source,
    Status,
)
from acceld.search import signs


def candidate(number: int, parent: int | None, attempt: int | None = None, failure: str = "") -> Candidate:
    kernel = Kernel(str(number), "nki")
    if failure:
        result = Evaluation(Status.COMPILE_ERROR, kernel.sha256, failure=Failure(failure, "no"))
    else:
        result = Evaluation(
            Status.PASSED,
            kernel.sha256,
            correctness=Correctness(Gate.SEARCH, 0.0, 1.0),
            profile=Profile(Source.SIMULATED, "trn2", "nki", 1.0, "test"),
        )
    return Candidate(1, 1, kernel, parent, attempt=attempt, evaluation=result, id=number)


def plan(number: int, text: str = "", insights: tuple[int, ...] = (), cited: tuple[int, ...] = ()) -> Plan:
    return Plan(1, 1, 1, number, text or f"idea{number}", insights=insights, data={"cited": list(cited)}, id=number)


def test_a_beam_of_one_lineage() -> None:
    chain = [candidate(1, None), *(candidate(n, n - 1) for n in range(2, 6)), candidate(7, 5), candidate(8, 5)]
    found = signs.one_lineage(chain, [7, 8])
    assert found is not None and "first 4 ancestors" in found.text
    spread = [candidate(1, None), *(candidate(n, max(1, n - 2)) for n in range(2, 12))]
    assert signs.one_lineage(spread, [10, 11]) is None


def test_a_memory_that_nobody_cites() -> None:
    quiet = [plan(n, insights=(1, 2)) for n in range(20)]
    found = signs.uncited(quiet)
    assert found is not None and found.value == 0 and "20 plans" in found.text
    assert signs.uncited([plan(n, insights=(1,), cited=(1,)) for n in range(20)]) is None
    assert signs.uncited(quiet[:5]) is None


def test_plans_that_repeat() -> None:
    found = signs.repeating([plan(n, "swap the two loops") for n in range(10)])
    assert found is not None and found.value == 0.9
    assert signs.repeating([plan(n) for n in range(10)]) is None


def test_answers_without_code() -> None:
    attempts = [Attempt(1, n, None if n % 2 else "x", "cut off" if n % 2 else "") for n in range(10)]
    found = signs.without_code(attempts)
    assert found is not None and "50%" in found.text and "cut off" in found.text
    assert signs.without_code([]) is None


def test_a_healthy_run_shows_no_sign() -> None:
    chain = [candidate(1, None), candidate(2, 1), candidate(3, 1)]
    assert signs.signs(chain, [plan(n) for n in range(10)], [Attempt(1, 0, "x")], [2, 3], []) == []


def test_repairs_by_what_they_repaired() -> None:
    candidates = [
        candidate(1, None),
        candidate(2, 1, 21, "partition_limit"),
        candidate(3, 1, 22),
        candidate(4, 1, 23, "partition_limit"),
        candidate(5, 1, 24, "out_of_bounds"),
    ]
    attempts = {
        21: Attempt(1, 0, "a"),
        22: Attempt(1, 0, "b", fix_of=21),
        23: Attempt(1, 1, "c"),
        24: Attempt(1, 1, "d", fix_of=23),
        25: Attempt(1, 1, None, "no code", fix_of=24),
    }
    rates = signs.repair_rates(candidates, attempts)
    assert [(rate.rule, rate.repaired, rate.tries) for rate in rates] == [
        ("partition_limit", 1, 2),
        ("out_of_bounds", 0, 1),
    ]
