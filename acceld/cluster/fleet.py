"""Send each evaluation to one of many hosts.

:mod:`acceld.cluster.schedule` chooses the host. Before a host's results count for a run, the run's baseline (the
canary) must pass there. A defective host can fail a good kernel or pass a bad one. So two kinds of result are confirmed
by a second host: a failure that the machine could have caused, and a pass of the strict gate. A third host decides if
the first two disagree. The host that differs from the other two then evaluates the kernel again. If its result is the
same as before, the host is set aside; if the result differs, the kernel is not deterministic.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from acceld.cluster.clocks import in_run
from acceld.cluster.host import (
    Host,
    HostFacts,
    HostLostError,
    Hosts,
    MissingError,
    packed,
    versions_here,
    workload_contents,
)
from acceld.cluster.schedule import Job, Schedule, Seat, Standing, out_of_step
from acceld.device import Finding
from acceld.errors import AcceldError, DeviceError, UsageError
from acceld.evaluate.case import RecentlyUsed
from acceld.evaluate.evaluator import Started
from acceld.evaluate.interface import EvaluationRequest, Evaluator, Priority
from acceld.evaluate.queue import Occupancy
from acceld.model import Evaluation, Gate, Source, Status
from acceld.targets import TARGETS
from acceld.workloads import load_workload, workload

LOOK_S = 5.0
"""Seconds between two health checks of the hosts."""
FIRST_LOOK_S = 5.0
"""Deadline in seconds for the first answer of the cluster. After this time the daemon serves, and evaluations wait."""
SILENT_S = 20.0
"""Seconds without an answer after which a host gets no work, and its running work is queued again."""
_DOUBTFUL = frozenset({Status.RUNTIME_ERROR, Status.INCORRECT_NUMERICAL, Status.TIMEOUT, Status.SUSPECT})
"""Statuses of failures that a defective host can cause for a good kernel."""
_WRONG = frozenset({Status.INCORRECT_NUMERICAL, Status.SUSPECT})
"""Results that a correct kernel never gets on any host."""
_REMEMBERED = 4096

OnHost = Callable[[str, str, str], Awaitable[object]]
"""Called when a host changes, with its name, its state and the reason."""
Seen = Callable[[HostFacts], Awaitable[object]]
"""Called with each host that joins."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    host: str
    evaluation: Evaluation


class _Member:
    """One host of the fleet, and what the daemon knows about it."""

    def __init__(self, host: Host, now: float) -> None:
        self.host = host
        self.sent: set[str] = set()
        """Hashes of the contents that the host already has."""
        self.canaries: dict[str, asyncio.Task[Evaluation]] = {}
        self.answered_at = now
        self.beat: asyncio.Task[None] | None = None
        self.health: Mapping[str, object] = {}


class Fleet:
    """Evaluate on hosts. Implements :class:`acceld.evaluate.interface.Evaluator`."""

    def __init__(
        self,
        hosts: Hosts,
        queue_size: int,
        *,
        workload_folders: Iterable[Path | str] = (),
        on_start: Started | None = None,
        on_host: OnHost | None = None,
        on_seen: Seen | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the fleet.

        A run may have as many evaluations, running or waiting, as there are slots, and ``queue_size`` more. A further
        request of the run waits.
        """
        self._hosts = hosts
        self._queue_size = queue_size
        self._workload_folders = tuple(workload_folders)
        self._on_start, self._on_host, self._on_seen = on_start, on_host, on_seen
        self._clock = clock
        self._schedule = Schedule()
        self._members: dict[str, _Member] = {}
        self._futures: dict[int, asyncio.Future[_Answer]] = {}
        self._requests: dict[int, EvaluationRequest] = {}
        self._since: dict[int, float] = {}
        self._numbers = itertools.count(1)
        self._inside: Counter[int] = Counter()
        """Number of evaluations of each run, waiting or running."""
        self._held: dict[int, deque[asyncio.Future[None]]] = {}
        """Blocked submitters by run. A submitter that is released counts as admitted at once."""
        self._votes: RecentlyUsed[str, dict[str, Hashable]] = RecentlyUsed(_REMEMBERED)
        self._workloads: RecentlyUsed[tuple[str, str, str], bytes] = RecentlyUsed(64)
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._waits_for = "the cluster has not answered yet"
        """Reason why no host can work, in words; an empty text if a host can work."""
        self._occupancy = Occupancy(1, clock)

    # Starting and stopping.

    async def start(self) -> None:
        """Begin to look for hosts. Evaluations wait until the cluster answers.

        Raise DeviceError if software for the cluster is missing on this machine.
        """
        await self._hosts.start()
        looked = asyncio.Event()
        self._looking = asyncio.create_task(self._look_on(looked))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_S):
                await looked.wait()

    async def ready(self, backend: str) -> Evaluator:
        """Return the fleet itself. Raise UsageError for an unknown backend. Hosts report only later which backends
        they serve.
        """
        if backend not in TARGETS:
            raise UsageError(f"there is no backend {backend!r}", hint=f"One of {', '.join(TARGETS)}.")
        return self

    async def stop(self, grace_s: float) -> None:
        """Give running evaluations ``grace_s`` seconds, then disconnect."""
        if self._looking is not None:
            self._looking.cancel()
        running = {task for task in self._tasks if not task.done()}
        if running and grace_s:
            await asyncio.wait(running, timeout=grace_s)
        beats = [member.beat for member in self._members.values() if member.beat]
        canaries = [task for member in self._members.values() for task in member.canaries.values()]
        ending = [*self._tasks, *beats, *canaries, *([self._looking] if self._looking else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for future in self._futures.values():
            future.cancel()
        await self._hosts.close()

    def statistics(self) -> dict[str, object]:
        """Return the state of the queue over all hosts, and for each host its standing, its load, and why it has free
        slots.
        """
        now, seats = self._clock(), self._schedule.seats
        levels = {str(level) for one in self._members.values() if (level := one.health.get("sandbox_level"))}
        return {
            "slots": self._schedule.slots,
            "slots_in_use": sum(seat.in_use for seat in seats.values()),
            "waiting": len(self._schedule.waiting),
            "waits_for": self._waits_for,
            "busy_share": self._occupancy.share,
            "oldest_waiting_s": max((now - self._since[number] for number in self._schedule.waiting), default=0.0),
            "sandbox_level": min(levels, default=""),
            "hosts": [self._described(name, seat) for name, seat in sorted(seats.items())],
        }

    def _described(self, name: str, seat: Seat) -> dict[str, object]:
        member, facts = self._members.get(name), seat.facts
        return {
            "host": name,
            "standing": seat.standing.value,
            "reason": seat.reason,
            "why_idle": self._schedule.why_idle(name),
            "slots": facts.slots,
            "slots_in_use": seat.in_use,
            "candidates": sorted(
                self._requests[number].candidate for number in seat.running if number in self._requests
            ),
            "done": seat.done,
            "instance_type": facts.instance_type,
            "chip": facts.chip,
            "sdk": facts.sdk,
            "driver": facts.driver,
            "versions": dict(facts.versions),
            "unfit": dict(seat.unfit),
            "silent_s": self._clock() - member.answered_at if member else 0.0,
            "sandbox_level": str(member.health.get("sandbox_level", "")) if member else "",
        }

    # Steering.

    async def drain(self, name: str) -> None:
        """Send a host no new work. Raise UsageError for an unknown host."""
        self._seat(name)
        self._schedule.drain(name)
        await self._report(name)

    async def undrain(self, name: str) -> None:
        """Send work again to a host that was drained or set aside, and evaluate the canaries on the host again.

        Raise UsageError if the host is unknown, does not answer, or has other versions than the daemon.
        """
        seat = self._seat(name)
        if seat.standing is Standing.SILENT:
            raise UsageError(f"host {name} does not answer: {seat.reason}", hint="Mend the host first.")
        if wrong := _differing(seat.facts):
            raise UsageError(f"{name} {wrong}", hint="Install the daemon's versions on that host.")
        self._members[name].canaries.clear()
        for votes in self._votes.values():
            votes.pop(name, None)
        seat.unfit.clear()
        self._schedule.resume(name)
        await self._report(name)
        self._pump()

    async def doctor(self, name: str) -> list[Finding]:
        """Return what ``acceld doctor`` finds on a host's devices. Raise UsageError for an unknown host, DeviceError if it does not
        answer.
        """
        self._seat(name)
        try:
            async with asyncio.timeout(SILENT_S):
                return await self._members[name].host.doctor()
        except (HostLostError, TimeoutError) as error:
            raise DeviceError(
                f"host {name} does not answer",
                hint="acceld hosts shows the state of each host; on that host, look at its process and its network",
            ) from error

    def _seat(self, name: str) -> Seat:
        seat = self._schedule.seats.get(name)
        if seat is None:
            known = ", ".join(sorted(self._schedule.seats)) or "none"
            raise UsageError(f"there is no host {name!r}", hint=f"Hosts: {known}.")
        return seat

    # Hosts that join, leave and stop answering.

    async def _look_on(self, looked: asyncio.Event) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # keep checking: nothing else would bring a host back
                log.exception("a check of the hosts failed")
            looked.set()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look for hosts once: add new hosts, remove lost hosts, and mark hosts that stopped answering."""
        try:
            found = await self._hosts.found(self._schedule.wanted)
            self._waits_for = ""
        except HostLostError as lost:
            if self._waits_for != str(lost):
                log.warning("the cluster does not answer: %s", lost)
            self._waits_for = str(lost)
            found = {name: member.host for name, member in self._members.items()}
        for name in [name for name, member in self._members.items() if found.get(name) is not member.host]:
            await self._leave(name, "it left the cluster")
        for name, host in found.items():
            if name not in self._members:
                self._members[name] = member = _Member(host, self._clock())
                member.beat = asyncio.create_task(self._welcome(name, member))
        for name, member in list(self._members.items()):
            seat = self._schedule.seats.get(name)
            if member.beat is None or member.beat.done():
                member.beat = asyncio.create_task(self._ask_health(name, member))
            silent_s = self._clock() - member.answered_at
            if seat is not None and seat.standing not in (Standing.SILENT, Standing.ASIDE) and silent_s > SILENT_S:
                self._schedule.silence(name, f"no answer for {silent_s:.0f} s")
                await self._report(name)
        self._pump()
        for run in list(self._held):
            self._let_in(run)

    async def _welcome(self, name: str, member: _Member) -> None:
        """Ask a new host for its facts, and give it work; set it aside if its versions differ from the daemon's."""
        try:
            facts = replace(await member.host.describe(), name=name)
        except (HostLostError, AcceldError) as error:
            log.warning("host %s can not start: %s", name, error)
            if self._members.get(name) is member:
                del self._members[name]  # the next check tries again
            return
        if self._members.get(name) is not member:
            return
        member.answered_at = self._clock()
        self._schedule.join(facts)
        if wrong := _differing(facts):
            self._schedule.set_aside(name, wrong, until_it_leaves=True)
        if self._on_seen is not None:
            await self._on_seen(facts)
        await self._report(name)
        self._pump()

    async def _ask_health(self, name: str, member: _Member) -> None:
        with contextlib.suppress(HostLostError):
            member.health = await member.host.health()
            member.answered_at = self._clock()
            seat = self._schedule.seats.get(name)
            if seat is not None and seat.standing is Standing.SILENT and self._members.get(name) is member:
                member.canaries.clear()
                self._schedule.hear(name)
                await self._report(name)
                self._pump()

    async def _leave(self, name: str, reason: str) -> None:
        self._members.pop(name, None)
        self._schedule.leave(name)
        if self._on_host is not None:
            await self._on_host(name, "sick", reason)
        self._pump()

    async def _set_aside(self, name: str, reason: str) -> None:
        if name in self._schedule.seats:
            self._schedule.set_aside(name, reason)
            await self._report(name)
            self._pump()

    async def _report(self, name: str) -> None:
        seat = self._schedule.seats.get(name)
        if seat is not None and self._on_host is not None:
            state = "idle" if seat.standing is Standing.ACTIVE else "sick"
            await self._on_host(name, state, f"{seat.standing}: {seat.reason}" if state == "sick" else "")

    # Evaluations.

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate on a host that has room, and return the result. Raises the errors of :class:`Evaluator`."""
        await self._enter(request)
        try:
            return (await self._agreed(request)).evaluation
        finally:
            self._inside[request.run] -= 1
            self._let_in(request.run)

    async def _enter(self, request: EvaluationRequest) -> None:
        """Wait until the request's run may have another evaluation. A person's request does not wait."""
        run = request.run
        if request.priority is Priority.PERSON or (run not in self._held and self._inside[run] < self._most):
            self._inside[run] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.setdefault(run, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._inside[run] -= 1
                self._let_in(run)
            raise

    @property
    def _most(self) -> int:
        return self._queue_size + self._schedule.slots

    def _let_in(self, run: int) -> None:
        held = self._held.get(run)
        while held and self._inside[run] < self._most:
            turn = held.popleft()
            if not turn.done():
                turn.set_result(None)
                self._inside[run] += 1
        if held is not None and not held:
            del self._held[run]

    async def _agreed(self, request: EvaluationRequest) -> _Answer:
        """Return an answer to a request. If the first host's answer needs it, other hosts confirm it first."""
        first = await self._answer(request)
        if not _decides(first.evaluation, request):
            return first
        answers = {first.host: first}
        while len(answers) < 3 and (next_one := await self._opinion(request, set(answers))) is not None:
            answers[next_one.host] = next_one
            results = {host: _result(one.evaluation) for host, one in answers.items()}
            if len(answers) == 2 and len(set(results.values())) == 1:
                return first
            odd = out_of_step(results)
            if odd is not None and await self._repeats(odd, request, results[odd]):
                del answers[odd]
                await self._set_aside(
                    odd, f"disagrees with {' and '.join(sorted(answers))} on {request.kernel.sha256[:12]}"
                )
                break
        return _settled(list(answers.values()))

    async def _repeats(self, name: str, request: EvaluationRequest, result: Hashable) -> bool:
        """Return True if a host gives the same result when it evaluates the kernel again. If the results differ, the
        kernel is not deterministic.
        """
        again = await self._opinion(replace(request, host=name, practice=True), set())
        return again is not None and _result(again.evaluation) == result

    async def _opinion(self, request: EvaluationRequest, barred: set[str]) -> _Answer | None:
        """Return the answer of a host that is not in ``barred``; None if no such host answers."""
        try:
            return await self._answer(replace(request, candidate=0), barred, patient=False)
        except DeviceError:
            return None

    async def _answer(self, request: EvaluationRequest, barred: Iterable[str] = (), *, patient: bool = True) -> _Answer:
        """Return the first valid answer of a host that is not in ``barred``.

        If no host can take the request, a ``patient`` request waits for a new host. DeviceError is raised if the
        request is not patient, or if every host has failed to answer it.
        """
        number = next(self._numbers)
        job = Job(
            number, request.priority, request.run, request.backend, request.chip, request.host, set(barred), patient
        )
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._futures[number], self._requests[number], self._since[number] = future, request, self._clock()
        self._schedule.add(job)
        self._pump()
        try:
            return await future
        finally:
            self._schedule.settle(job)
            del self._futures[number], self._requests[number], self._since[number]
            self._note()

    def _pump(self) -> None:
        while (placed := self._schedule.place()) is not None:
            job, seat = placed
            task = asyncio.create_task(self._run(job, seat, self._members[seat.facts.name], self._requests[job.number]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for job in self._schedule.stranded():
            if not (future := self._futures[job.number]).done():
                future.set_exception(
                    DeviceError(
                        "there is no other host",
                        hint="acceld hosts shows which hosts take work; docs/fleet.md says how to add one",
                    )
                )
        self._note()

    def _note(self) -> None:
        seats = self._schedule.seats.values()
        self._occupancy.places = max(self._schedule.slots, 1)
        self._occupancy.note(sum(seat.in_use for seat in seats), waiting=bool(self._schedule.waiting))

    async def _run(self, job: Job, seat: Seat, member: _Member, request: EvaluationRequest) -> None:
        """Run a job on a host. After the call, the job has its answer, waits for another host, or runs on another
        host.
        """
        name = seat.facts.name
        answered = False
        try:
            if self._on_start is not None:
                await self._on_start(request, name)
            answer = await self._ask(seat.facts, member, request)
            answered = True
            if answer is not None and seat.standing is not Standing.ASIDE:
                self._give(job, answer)
            else:
                job.barred.add(name)
                self._wait_again(job, name, f"{name} fails the canary of this run")
        except HostLostError as lost:
            if self._members.get(name) is member:
                await self._leave(name, str(lost))
        except DeviceError as error:
            seat.unfit[request.backend] = error.message
            self._wait_again(job, name, error.message, error.hint)
        except Exception as error:  # the submitter that waits for the job must get every error
            if not isinstance(error, AcceldError):
                log.exception("host %s answered with a broken harness", name)
            if (future := self._futures.get(job.number)) is not None and not future.done():
                future.set_exception(error)
        finally:
            if self._schedule.seats.get(name) is seat:
                self._schedule.end(name, job, answered=answered)
            self._pump()

    def _give(self, job: Job, answer: _Answer) -> None:
        """Store the first answer to a job, even one that comes late from a host that had stopped answering."""
        self._schedule.settle(job)
        future = self._futures.get(job.number)
        if future is not None and not future.done():
            future.set_result(answer)

    def _wait_again(self, job: Job, name: str, why: str, hint: str = "") -> None:
        """Queue a job for another host. If no other host can take the job, raise DeviceError in the caller that waits
        for it.
        """
        future = self._futures.get(job.number)
        if future is None or future.done() or job.settled:
            return
        if not self._schedule.possible(job):
            future.set_exception(DeviceError(why, hint=hint or "acceld hosts shows what each host can do."))
            return
        self._schedule.again(job, name)

    async def _ask(self, facts: HostFacts, member: _Member, request: EvaluationRequest) -> _Answer | None:
        """Return a host's answer, with latencies in the run's microseconds; None if the run's baseline does not pass
        on the host.
        """
        name = facts.name
        measured = TARGETS[request.backend].source is Source.MEASURED
        sent = replace(request, interleave=measured and bool(request.run))
        canary = self._canary(name, member, request)
        evaluation = await self._send(member, sent)
        proof: Evaluation | None = None
        if canary is not None:
            proof = await asyncio.shield(canary)
            if proof.status is not Status.PASSED:
                return None
        elif request.priority is Priority.BASELINE:
            self._vote(name, request.key, evaluation)
        known = dict(zip((kernel.sha256 for kernel in request.against), request.against_us, strict=False))
        baseline_us = request.against_us[-1] if request.against_us else 0.0
        return _Answer(name, in_run(evaluation, facts, known, proof, baseline_us))

    def _canary(self, name: str, member: _Member, request: EvaluationRequest) -> asyncio.Task[Evaluation] | None:
        """Return the task that evaluates the run's baseline on a host. The task is started once for each run and
        host.

        Return None for a request outside of a run.
        """
        if request.canary is None:
            return None
        asked = replace(
            request,
            kernel=request.canary,
            canary=None,
            candidate=0,
            gate=Gate.SEARCH,
            priority=Priority.BASELINE,
            useful_below_us=None,
            against=(),
            against_us=(),
            screen=False,
            practice=False,
        )
        task = member.canaries.get(asked.key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = member.canaries[asked.key] = asyncio.create_task(self._try_canary(name, member, asked))
            # the submitter that waits for the canary gets the error
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _try_canary(self, name: str, member: _Member, asked: EvaluationRequest) -> Evaluation:
        evaluation = await self._send(member, asked)
        odd = self._vote(name, asked.key, evaluation)
        if odd is not None:
            await self._set_aside(odd, f"disagrees with other hosts on the canary of {asked.workload or 'a run'}")
        return evaluation

    def _vote(self, name: str, key: str, evaluation: Evaluation) -> str | None:
        votes = self._votes.get(key)
        if votes is None:
            votes = self._votes[key] = {}
        votes[name] = _result(evaluation)
        return out_of_step(votes)

    async def _send(self, member: _Member, request: EvaluationRequest) -> Evaluation:
        """Send a request to a host. Texts and files that the host lacks are sent too."""
        wire, contents = packed(request, await self._workload(request))
        lacking = {sha256: data for sha256, data in contents.items() if sha256 not in member.sent}
        member.sent.update(lacking)
        try:
            evaluation = await member.host.evaluate(wire, lacking)
        except MissingError:
            evaluation = await member.host.evaluate(wire, contents)
        member.answered_at = self._clock()
        return evaluation

    async def _workload(self, request: EvaluationRequest) -> bytes:
        """Return the files of a request's workload as bytes, read once for each run; b"" for a request without a
        workload.
        """
        if request.arguments is not None:
            return b""
        key = (request.workload, request.workload_folder, request.context)
        known = self._workloads.get(key) if request.context else None
        if known is None:
            known = await asyncio.to_thread(self._read_workload, request)
            self._workloads[key] = known
        return known

    def _read_workload(self, request: EvaluationRequest) -> bytes:
        if request.workload_folder:
            return workload_contents(load_workload(request.workload_folder).folder)
        return workload_contents(workload(request.workload, self._workload_folders).folder)


def _decides(evaluation: Evaluation, request: EvaluationRequest) -> bool:
    """Return True for a result that a second host must confirm: a failure that a machine could have caused, or a pass
    of the strict gate. A request of a model's tool (``practice``) needs no second host, because its result decides
    nothing.
    """
    if request.practice:
        return False
    return evaluation.status in _DOUBTFUL or evaluation.gate is Gate.STRICT


def _settled(answers: Sequence[_Answer]) -> _Answer:
    """Return the answer that counts if hosts disagree: a wrong result of any host, else the answer of the majority.

    If there is no majority, an answer that did not pass counts.
    """
    wrong = next((one for one in answers if one.evaluation.status in _WRONG), None)
    if wrong is not None:
        return wrong
    counted = Counter(one.evaluation.status for one in answers)
    return max(answers, key=lambda one: (counted[one.evaluation.status], one.evaluation.status is not Status.PASSED))


def _result(evaluation: Evaluation) -> Hashable:
    """Return the part of a result in which hosts must agree. Predicted latencies are included, because they are the
    same on every host.
    """
    profile = evaluation.profile
    exact = profile is not None and profile.source is Source.SIMULATED
    return (evaluation.status, evaluation.program_sha256, evaluation.latency_us) if exact else (evaluation.status,)


def _differing(facts: HostFacts) -> str:
    """Return how a host's versions differ from the daemon's, as text; "" if they are equal."""
    here = dict(versions_here())
    wrong = [
        f"{name} {reported or 'none'} (here {here.get(name, 'none')})"
        for name, reported in facts.versions
        if reported != here.get(name)
    ]
    return f"has {', '.join(wrong)}" if wrong else ""
