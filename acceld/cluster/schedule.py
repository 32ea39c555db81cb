"""Scheduling of evaluations over hosts, and detection of hosts that disagree. Plain data: no clock, no network, no tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
    """It disagrees with others, or its versions differ: nothing of it is believed."""


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
    settled: bool = False
    """It has its answer, whoever still runs it."""


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

    # Hosts.

    def join(self, facts: HostFacts) -> Seat:
        """Seat a new host; one of the same name that it replaces leaves."""
        old = self.seats.get(facts.name)
        self.leave(facts.name)
        seat = self.seats[facts.name] = Seat(facts)
        if old is not None and (old.standing is Standing.DRAINING or old.standing is Standing.ASIDE):
            seat.standing, seat.reason = old.standing, old.reason  # a restart is no pardon
        return seat

    def leave(self, name: str) -> None:
        """Take a host away; what it ran waits again."""
        seat = self.seats.pop(name, None)
        if seat is not None:
            self._again(seat.running.values())

    def silence(self, name: str, reason: str) -> None:
        """Give a host nothing more; what it runs waits again, and its late answers still count."""
        seat = self.seats[name]
        if seat.standing is not Standing.ASIDE:
            seat.standing, seat.reason = Standing.SILENT, reason
        self._again(seat.running.values())

    def set_aside(self, name: str, reason: str) -> None:
        """Believe nothing more of a host; what it runs waits again for others."""
        seat = self.seats[name]
        seat.standing, seat.reason = Standing.ASIDE, reason
        self._again(seat.running.values())

    def drain(self, name: str) -> None:
        """Let a host end what it runs."""
        seat = self.seats[name]
        if seat.standing is Standing.ACTIVE:
            seat.standing, seat.reason = Standing.DRAINING, ""

    def resume(self, name: str) -> None:
        """Give a host work again."""
        seat = self.seats[name]
        seat.standing, seat.reason = Standing.ACTIVE, ""

    # Jobs.

    def add(self, job: Job) -> None:
        """Let a job wait."""
        self.waiting[job.number] = job

    def place(self) -> tuple[Job, Seat] | None:
        """Move the next job that some host has room for to the least loaded such host."""
        free = [seat for seat in self.seats.values() if len(seat.running) < seat.room]
        if not free or not self.waiting:
            return None
        of_run = Counter(job.run for seat in self.seats.values() for job in seat.running.values())
        for job in sorted(self.waiting.values(), key=lambda job: (job.priority, of_run[job.run], job.number)):
            fitting = [seat for seat in free if seat.takes(job) and job.number not in seat.running]
            if fitting:
                seat = min(fitting, key=lambda seat: (seat.load, seat.facts.name))
                del self.waiting[job.number]
                seat.running[job.number] = job
                return job, seat
        return None

    def end(self, name: str, job: Job, *, answered: bool) -> None:
        """Take note that a host does not run a job any more."""
        seat = self.seats.get(name)
        if seat is not None and seat.running.pop(job.number, None) is not None:
            seat.done += answered

    def settle(self, job: Job) -> None:
        """Let a job that has its answer, or that nobody asks for any more, wait no longer."""
        job.settled = True
        self.waiting.pop(job.number, None)

    def possible(self, job: Job) -> bool:
        """Return True if a host that is here, or is expected back, could take the job."""
        return any(seat.takes(job) for seat in self.seats.values())

    def again(self, job: Job, name: str = "") -> None:
        """Let a job wait again, unless it has its answer or a host other than ``name`` is at it."""
        others = (seat for seat in self.seats.values() if seat.facts.name != name and seat.standing in _TRUSTED)
        if not job.settled and not any(job.number in seat.running for seat in others):
            self.waiting[job.number] = job

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


def out_of_step(verdicts: Mapping[str, Hashable]) -> str | None:
    """Return the host that disagrees with two others that agree; None where there is none."""
    counted = Counter(verdicts.values())
    for host, verdict in verdicts.items():
        if counted[verdict] == 1 and max((n for other, n in counted.items() if other != verdict), default=0) >= 2:
            return host
    return None
