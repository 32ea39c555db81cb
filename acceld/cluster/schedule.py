"""Assign evaluations to hosts, and find the host that disagrees with the others.

The module changes plain data only: it has no clock, no network and no tasks.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from acceld.cluster.host import HostFacts

AHEAD = 0.25
"""Jobs that may wait on a full host, as a share of its slots, so that the next job starts without a message from the
daemon.
"""


class Standing(StrEnum):
    """The state of a host. It decides whether the host gets work."""

    ACTIVE = "active"
    DRAINING = "draining"
    """A person drained the host: running work ends, and no new work starts."""
    SILENT = "silent"
    """The host does not answer. Its work was queued again."""
    ASIDE = "aside"
    """The host disagrees with other hosts, or has other versions than the daemon. Its results are not used."""


class Lane(NamedTuple):
    """Key of the waiting jobs that have the same priority and run, and may go to the same hosts."""

    priority: int
    run: int
    backend: str
    chip: str
    pinned: str
    barred: frozenset[str]
    patient: bool


@dataclass(slots=True)
class Job:
    """An evaluation that waits or runs. It may do both: a host that stopped answering may still answer."""

    number: int
    priority: int
    run: int
    backend: str
    chip: str
    pinned: str = ""
    barred: set[str] = field(default_factory=set)
    """Hosts that must not get the job."""
    patient: bool = True
    """True if the job waits for a new host when no host can take it; False if it then ends with an error."""
    settled: bool = False
    """True if the job has its answer; hosts may still be running it."""

    def lane(self, held: Iterable[str]) -> Lane:
        """Return the key of the job's queue: jobs with equal keys may go to the same hosts.

        The hosts in ``held`` run the job already, so the job does not go to them again.
        """
        barred = frozenset(self.barred.union(held))
        return Lane(self.priority, self.run, self.backend, self.chip, self.pinned, barred, self.patient)


@dataclass(slots=True)
class Seat:
    """A host in the schedule: its facts, its standing, and the jobs on it."""

    facts: HostFacts
    standing: Standing = Standing.ACTIVE
    reason: str = ""
    running: dict[int, Job] = field(default_factory=dict)
    done: int = 0
    unfit: dict[str, str] = field(default_factory=dict)
    """The reason why a backend does not work on the host, by backend."""

    def takes(self, job: Job) -> bool:
        """Return True if the host may get the job, once it has room."""
        return (
            self.standing is Standing.ACTIVE
            and job.backend not in self.unfit
            and self.facts.name not in job.barred
            and job.pinned in ("", self.facts.name)
            and self.facts.takes(job.backend, job.chip)
        )

    @property
    def room(self) -> int:
        """Return the greatest number of jobs on the host: one for each slot, and some more that wait on the host for a
        free slot.

        The additional jobs are the share :data:`AHEAD` of the slots.
        """
        return self.facts.slots + int(AHEAD * self.facts.slots)

    @property
    def in_use(self) -> int:
        """Return the number of busy slots. Further jobs wait on the host."""
        return min(len(self.running), self.facts.slots)

    @property
    def load(self) -> float:
        """Return the number of the host's jobs divided by its slots."""
        return len(self.running) / self.facts.slots


class Schedule:
    """The hosts and the waiting jobs. Jobs are assigned by priority, then for the run with the fewest running jobs,
    then by arrival.
    """

    def __init__(self) -> None:
        self.seats: dict[str, Seat] = {}
        self.waiting: dict[int, Job] = {}
        self._lanes: dict[Lane, list[int]] = {}
        """Heaps of job numbers by lane. The number of a job that has stopped waiting is dropped when the number reaches
        the top of its heap.
        """
        self._lane_of: dict[int, Lane] = {}
        """Lane of each waiting job."""
        self._of_run: Counter[int] = Counter()
        """Number of running jobs by run; a job on two hosts counts twice."""
        self._withheld: dict[str, tuple[Standing, str]] = {}
        """Standing and reason of hosts that get no work until a person resumes them. A restart of a host does not
        delete its entry.
        """

    # Hosts.

    def join(self, facts: HostFacts) -> Seat:
        """Add a host, and return its seat in the schedule. A host of the same name is replaced."""
        self.leave(facts.name)
        seat = self.seats[facts.name] = Seat(facts)
        self.hear(facts.name)
        return seat

    def hear(self, name: str) -> None:
        """Record that a host answers. The host then gets work, unless it was drained or set aside."""
        seat = self.seats[name]
        seat.standing, seat.reason = self._withheld.get(name, (Standing.ACTIVE, ""))

    def leave(self, name: str) -> None:
        """Remove a host, and queue its running jobs again."""
        seat = self.seats.pop(name, None)
        if seat is not None:
            self._of_run.subtract(job.run for job in seat.running.values())
            self._again(seat.running.values())

    def silence(self, name: str, reason: str) -> None:
        """Give no work to a host that does not answer, and queue its running jobs again. An answer that it gives later
        still counts.
        """
        seat = self.seats[name]
        if seat.standing is not Standing.ASIDE:
            seat.standing, seat.reason = Standing.SILENT, reason
        self._again(seat.running.values())

    def set_aside(self, name: str, reason: str, *, until_it_leaves: bool = False) -> None:
        """Ignore a host's results, give it no work, and queue its running jobs for other hosts.

        A person can end this state; with ``until_it_leaves`` it also ends when the host leaves.
        """
        seat = self.seats[name]
        seat.standing, seat.reason = Standing.ASIDE, reason
        if not until_it_leaves:
            self._withheld[name] = seat.standing, reason
        self._again(seat.running.values())

    def drain(self, name: str) -> None:
        """Let a host finish its running jobs, and give it no new jobs."""
        seat = self.seats[name]
        if seat.standing is Standing.ACTIVE:
            seat.standing, seat.reason = Standing.DRAINING, ""
            self._withheld[name] = seat.standing, ""

    def resume(self, name: str) -> None:
        """Send work again to a host that was drained or set aside."""
        self._withheld.pop(name, None)
        self.hear(name)

    # Jobs.

    def add(self, job: Job) -> None:
        """Queue a job."""
        self.waiting[job.number] = job
        lane = job.lane(name for name, seat in self.seats.items() if job.number in seat.running)
        self._lane_of[job.number] = lane
        heapq.heappush(self._lanes.setdefault(lane, []), job.number)

    def place(self) -> tuple[Job, Seat] | None:
        """Assign one waiting job to the least loaded of the hosts that have room for it.

        Return the job and the host's seat; None if no job can be assigned now.
        """
        free = [seat for seat in self.seats.values() if len(seat.running) < seat.room]
        if not free or not self.waiting:
            return None
        heads = {job.number: job for _, job in self._heads()}
        for job in sorted(heads.values(), key=lambda job: (job.priority, self._of_run[job.run], job.number)):
            fitting = [seat for seat in free if seat.takes(job) and job.number not in seat.running]
            if fitting:
                seat = min(fitting, key=lambda seat: (seat.load, seat.facts.name))
                self._take_off(job)
                seat.running[job.number] = job
                self._of_run[job.run] += 1
                return job, seat
        return None

    def _heads(self) -> list[tuple[Lane, Job]]:
        """Return the first waiting job of each lane, with the lane's key."""
        found = []
        for lane, numbers in list(self._lanes.items()):
            while numbers and self._lane_of.get(numbers[0]) != lane:
                heapq.heappop(numbers)
            if numbers:
                found.append((lane, self.waiting[numbers[0]]))
            else:
                del self._lanes[lane]
        return found

    def end(self, name: str, job: Job, *, answered: bool) -> None:
        """Record that a host has stopped running a job; ``answered`` says whether the host gave an answer."""
        seat = self.seats.get(name)
        if seat is not None and seat.running.pop(job.number, None) is not None:
            seat.done += answered
            self._of_run[job.run] -= 1

    def settle(self, job: Job) -> None:
        """Remove a job from the queue, because the job has its answer or nobody waits for the answer."""
        job.settled = True
        self._take_off(job)

    def _take_off(self, job: Job) -> None:
        self.waiting.pop(job.number, None)
        self._lane_of.pop(job.number, None)

    def possible(self, job: Job) -> bool:
        """Return True if one of the hosts that get work may take the job, now or once it has room."""
        return any(seat.takes(job) for seat in self.seats.values())

    def stranded(self) -> list[Job]:
        """Return the waiting jobs that no present host may take and that may not wait for a new host."""
        return [job for lane, job in self._heads() if not lane.patient and not self.possible(job)]

    def again(self, job: Job, name: str = "") -> None:
        """Queue a job again, unless it has its answer, or another host than ``name`` runs it."""
        others = (seat for seat in self.seats.values() if seat.facts.name != name and seat.standing in _TRUSTED)
        if not job.settled and not any(job.number in seat.running for seat in others):
            self.add(job)

    def _again(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.again(job)

    # For people.

    @property
    def slots(self) -> int:
        """Return the number of slots of all hosts that get work."""
        return sum(seat.facts.slots for seat in self.seats.values() if seat.standing is Standing.ACTIVE)

    @property
    def wanted(self) -> int:
        """Return the number of hosts to ask the cluster for: the present ones, and one more if a job waits."""
        return len(self.seats) + bool(self.waiting)

    def why_idle(self, name: str) -> str:
        """Return the reason why a host has free slots; "" if all its slots are busy."""
        seat = self.seats[name]
        if seat.standing is not Standing.ACTIVE:
            return f"{seat.standing}: {seat.reason}".rstrip(": ")
        if seat.load >= 1:
            return ""
        if not self.waiting:
            return "nothing waits"
        for job in self.waiting.values():
            if job.backend in seat.unfit:
                return f"can not serve {job.backend}: {seat.unfit[job.backend]}"
        wanted = sorted({job.pinned or f"{job.backend} on {job.chip}" for job in self.waiting.values()})
        return f"the waiting jobs are all for {', '.join(wanted)}"


_TRUSTED = (Standing.ACTIVE, Standing.DRAINING)


def out_of_step(results: Mapping[str, Hashable]) -> str | None:
    """Return the host whose result is wrong: at least two other hosts agree on another result. Return None if there
    is no such host.
    """
    counted = Counter(results.values())
    for host, result in results.items():
        if counted[result] == 1 and max((n for other, n in counted.items() if other != result), default=0) >= 2:
            return host
    return None
