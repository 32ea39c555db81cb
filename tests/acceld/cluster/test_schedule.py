"""Distribution of work over hosts, without a clock or a network."""

from __future__ import annotations

from acceld.cluster.host import HostFacts
from acceld.cluster.schedule import Job, Schedule, Standing, out_of_step


def schedule(**slots: int) -> Schedule:
    made = Schedule()
    for name, count in slots.items():
        made.join(HostFacts(name, count))
    return made


def job(number: int, priority: int = 3, run: int = 1, **more: object) -> Job:
    return Job(number, priority, run, "neuron_legacy", "trn1", **more)  # type: ignore[arg-type]


def placed(made: Schedule) -> list[tuple[int, str]]:
    found = []
    while (one := made.place()) is not None:
        found.append((one[0].number, one[1].facts.name))
    return found


def test_hosts_fill_evenly_and_what_has_no_room_waits() -> None:
    made = schedule(a=2, b=2)
    for number in range(1, 6):
        made.add(job(number))
    assert placed(made) == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]
    assert list(made.waiting) == [5]
    assert made.why_idle("a") == ""


def test_a_full_host_is_given_the_next_jobs_ahead_once_no_other_has_room() -> None:
    made = schedule(a=4, b=4)
    for number in range(1, 12):
        made.add(job(number))
    assert [name for _, name in placed(made)] == list("ababababab")
    assert list(made.waiting) == [11]


def test_a_persons_request_goes_first_and_runs_share_the_slots() -> None:
    made = schedule(a=3)
    for number in range(1, 7):
        made.add(job(number, run=1))
    made.add(job(7, run=2))
    made.add(job(8, run=2))
    made.add(job(9, priority=0, run=1))
    assert [number for number, _ in placed(made)] == [9, 7, 1]  # r2 has none yet, r1 has one


def test_work_of_a_silent_host_waits_again_until_one_answer_is_there() -> None:
    made = schedule(a=1, b=1)
    first = job(1)
    made.add(first)
    assert placed(made) == [(1, "a")]
    made.silence("a", "no answer")
    assert placed(made) == [(1, "b")]
    made.settle(first)
    made.leave("b")
    assert not made.waiting
    made.resume("a")
    assert placed(made) == []


def test_a_job_of_a_silent_host_that_runs_elsewhere_is_not_queued_twice() -> None:
    made = schedule(a=1, b=1)
    made.add(job(1))
    placed(made)
    made.silence("a", "no answer")
    placed(made)
    made.leave("a")
    assert not made.waiting


def test_a_job_that_its_host_still_runs_does_not_keep_others_from_that_host() -> None:
    made = schedule(a=1)
    for number in (1, 2):
        made.add(job(number))
    placed(made)
    made.silence("a", "no answer")
    made.hear("a")
    made.join(HostFacts("b", 1))
    made.drain("b")
    made.seats["a"].facts = HostFacts("a", 2)
    assert placed(made) == [(2, "a")]


def test_a_job_that_was_barred_anew_is_placed_once() -> None:
    made = schedule(a=1, b=1)
    one = job(1)
    made.add(one)
    placed(made)
    made.end("a", one, answered=False)
    one.barred.add("a")
    made.again(one, "a")
    made.again(one, "a")
    assert placed(made) == [(1, "b")]
    assert not made.waiting


def test_a_pinned_job_waits_for_its_host() -> None:
    made = schedule(a=1)
    made.add(job(1, pinned="b"))
    assert placed(made) == []
    assert made.why_idle("a") == "the waiting jobs are all for b"
    made.join(HostFacts("b", 1))
    assert placed(made) == [(1, "b")]


def test_a_chip_that_a_host_has_not_is_measured_elsewhere() -> None:
    made = Schedule()
    made.join(HostFacts("a", 1, chip="trn2"))
    made.add(job(1))
    assert placed(made) == []
    assert made.why_idle("a") == "the waiting jobs are all for neuron_legacy on trn1"


def test_a_host_that_was_drained_or_set_aside_stays_so_when_it_starts_again() -> None:
    made = schedule(a=1, b=1, c=1)
    made.drain("a")
    made.set_aside("b", "disagrees")
    made.set_aside("c", "has ray 1.0", until_it_leaves=True)
    for name in "abc":
        made.leave(name)
        made.join(HostFacts(name, 1))
    assert [made.seats[name].standing for name in "abc"] == [Standing.DRAINING, Standing.ASIDE, Standing.ACTIVE]
    made.silence("a", "no answer")
    made.hear("a")
    assert made.seats["a"].standing is Standing.DRAINING
    made.resume("a")
    assert made.why_idle("a") == "nothing waits"
    made.leave("a")
    assert made.join(HostFacts("a", 1)).standing is Standing.ACTIVE


def test_waiting_work_wants_one_more_host() -> None:
    made = schedule(a=1)
    assert made.wanted == 1
    made.add(job(1))
    assert made.wanted == 2


def test_only_a_host_that_disagrees_with_two_is_out_of_step() -> None:
    assert out_of_step({"a": 1, "b": 2}) is None
    assert out_of_step({"a": 1, "b": 2, "c": 3}) is None
    assert out_of_step({"a": 1, "b": 2, "c": 1}) == "b"
    assert out_of_step({"a": 1, "b": 1, "c": 1}) is None
