"""Scheduling of evaluations over hosts, and detection of hosts that disagree. Plain data: no clock, no network, no tasks."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from acceld.cluster.host import HostFacts

AHEAD = 0.25
"""Jobs that wait on a host that is full, as a share of its slots: the next begins without a word from the daemon."""


class Standing(StrEnum):
    """State of a host: given work or not, and why."""

    ACTIVE = "active"
    DRAINING = "draining"
    """A person asked: what runs ends, nothing new begins."""
    SILENT = "silent"
    """It does not answer: its work was queued again."""
    ASIDE = "aside"
    """It disagrees with others, or its versions differ: its results are not used."""


class Lane(NamedTuple):
    """Jobs that differ in nothing which decides where they may go."""

    priority: int
    run: int
    backend: str
    chip: str
    pinned: str
    barred: frozenset[str]
    patient: bool


@dataclass(slots=True)
class Job:
    """One evaluation that waits, runs, or both: a host that went silent may answer yet."""

    number: int
    priority: int
    run: int
    backend: str
    chip: str
    pinned: str = ""
    barred: set[str] = field(default_factory=set)
    """Hosts that it does not go to."""
    patient: bool = True
    """True if the job waits for a new host where none can take it; else it ends with an error."""
    settled: bool = False
    """It has its answer; hosts may still run it."""

    def lane(self, held: Iterable[str]) -> Lane:
        """Return what it has in common with others, so that where one finds no host none does; ``held``: hosts that run it."""
        barred = frozenset(self.barred.union(held))
        return Lane(self.priority, self.run, self.backend, self.chip, self.pinned, barred, self.patient)


@dataclass(slots=True)
class Seat:
    """A host and what it does."""

    facts: HostFacts
    standing: Standing = Standing.ACTIVE
    reason: str = ""
    running: dict[int, Job] = field(default_factory=dict)
    done: int = 0
    unfit: dict[str, str] = field(default_factory=dict)
    """By backend, why it can not work there."""

    def takes(self, job: Job) -> bool:
        """Return True if the job may go here once there is room."""
        return (
            self.standing is Standing.ACTIVE
            and job.backend not in self.unfit
            and self.facts.name not in job.barred
            and job.pinned in ("", self.facts.name)
            and self.facts.takes(job.backend, job.chip)
        )

    @property
    def room(self) -> int:
        """Return how many jobs it may have."""
        return self.facts.slots + int(AHEAD * self.facts.slots)

    @property
    def in_use(self) -> int:
        """Return the slots in use; further jobs wait on the host."""
        return min(len(self.running), self.facts.slots)

    @property
    def load(self) -> float:
        """Return its jobs as a share of its slots."""
        return len(self.running) / self.facts.slots


class Schedule:
    """Waiting jobs and seats. Order: priority, then the run with the least running, then arrival."""

    def __init__(self) -> None:
        self.seats: dict[str, Seat] = {}
        self.waiting: dict[int, Job] = {}
        self._lanes: dict[Lane, list[int]] = {}
        """Heaps of numbers; those that do not wait there any more are dropped when they come first."""
        self._lane_of: dict[int, Lane] = {}
        """The lane of each waiting job."""
        self._of_run: Counter[int] = Counter()
        """Jobs that run, by run; one on two hosts counts twice."""
        self._withheld: dict[str, tuple[Standing, str]] = {}
        """Hosts that get no work until a person says so, here or not: a restart is no pardon."""

    # Hosts.

    def join(self, facts: HostFacts) -> Seat:
        """Seat a new host; one of the same name that it replaces leaves."""
        self.leave(facts.name)
        seat = self.seats[facts.name] = Seat(facts)
        self.hear(facts.name)
        return seat

    def hear(self, name: str) -> None:
        """Give a host that answers work, unless a person drained it or it was set aside."""
        seat = self.seats[name]
        seat.standing, seat.reason = self._withheld.get(name, (Standing.ACTIVE, ""))

    def leave(self, name: str) -> None:
        """Take a host away; what it ran waits again."""
        seat = self.seats.pop(name, None)
        if seat is not None:
            self._of_run.subtract(job.run for job in seat.running.values())
            self._again(seat.running.values())

    def silence(self, name: str, reason: str) -> None:
        """Give a host nothing more; what it runs waits again, and its late answers still count."""
        seat = self.seats[name]
        if seat.standing is not Standing.ASIDE:
            seat.standing, seat.reason = Standing.SILENT, reason
        self._again(seat.running.values())

    def set_aside(self, name: str, reason: str, *, until_it_leaves: bool = False) -> None:
        """Believe nothing more of a host; what it runs waits again for others."""
        seat = self.seats[name]
        seat.standing, seat.reason = Standing.ASIDE, reason
        if not until_it_leaves:
            self._withheld[name] = seat.standing, reason
        self._again(seat.running.values())

    def drain(self, name: str) -> None:
        """Let a host end what it runs."""
        seat = self.seats[name]
        if seat.standing is Standing.ACTIVE:
            seat.standing, seat.reason = Standing.DRAINING, ""
            self._withheld[name] = seat.standing, ""

    def resume(self, name: str) -> None:
        """Give a host work again that was drained or set aside."""
        self._withheld.pop(name, None)
        self.hear(name)

    # Jobs.

    def add(self, job: Job) -> None:
        """Let a job wait."""
        self.waiting[job.number] = job
        lane = job.lane(name for name, seat in self.seats.items() if job.number in seat.running)
        self._lane_of[job.number] = lane
        heapq.heappush(self._lanes.setdefault(lane, []), job.number)

    def place(self) -> tuple[Job, Seat] | None:
        """Move the next job that some host has room for to the least loaded such host."""
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
        """Return the first waiting job of each lane."""
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
        """Take note that a host does not run a job any more."""
        seat = self.seats.get(name)
        if seat is not None and seat.running.pop(job.number, None) is not None:
            seat.done += answered
            self._of_run[job.run] -= 1

    def settle(self, job: Job) -> None:
        """Let a job that has its answer, or that nobody asks for any more, wait no longer."""
        job.settled = True
        self._take_off(job)

    def _take_off(self, job: Job) -> None:
        self.waiting.pop(job.number, None)
        self._lane_of.pop(job.number, None)

    def possible(self, job: Job) -> bool:
        """Return True if a host that is given work could take the job."""
        return any(seat.takes(job) for seat in self.seats.values())

    def stranded(self) -> list[Job]:
        """Return the waiting jobs that no host could take and that wait for none to come."""
        return [job for lane, job in self._heads() if not lane.patient and not self.possible(job)]

    def again(self, job: Job, name: str = "") -> None:
        """Let a job wait again, unless it has its answer or a host other than ``name`` is at it."""
        others = (seat for seat in self.seats.values() if seat.facts.name != name and seat.standing in _TRUSTED)
        if not job.settled and not any(job.number in seat.running for seat in others):
            self.add(job)

    def _again(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self.again(job)

    # For people.

    @property
    def slots(self) -> int:
        """Return the slots of hosts that are given work."""
        return sum(seat.facts.slots for seat in self.seats.values() if seat.standing is Standing.ACTIVE)

    @property
    def wanted(self) -> int:
        """Return how many hosts there is work for: those there are, and one more while something waits."""
        return len(self.seats) + bool(self.waiting)

    def why_idle(self, name: str) -> str:
        """Return why a host has room; empty where it has none."""
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
        return f"all that waits is for {', '.join(wanted)}"


_TRUSTED = (Standing.ACTIVE, Standing.DRAINING)


def out_of_step(results: Mapping[str, Hashable]) -> str | None:
    """Return the host that disagrees with two others that agree; None where there is none."""
    counted = Counter(results.values())
    for host, result in results.items():
        if counted[result] == 1 and max((n for other, n in counted.items() if other != result), default=0) >= 2:
            return host
    return None
