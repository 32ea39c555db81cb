"""Evaluate the candidates of one run.

Equal work is done only once, every result is stored, and all latencies of a run have the same basis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from acceld.evaluate.interface import EvaluationRequest, Evaluator, Priority
from acceld.model import Basis, Candidate, Evaluation, Gate, Profile, Run, Source, Status
from acceld.store.changes.tree import keep_evaluation, write_evaluation
from acceld.store.database import Store
from acceld.store.reads.records import find_evaluation, load_candidate
from acceld.targets import SIMULATOR


class CandidateEvaluations:
    """Evaluate candidates, or take the stored result if the same work was done before."""

    def __init__(self, run: Run, store: Store, evaluator: Evaluator, context: str, basis: Basis) -> None:
        self._run = run
        self.basis = basis
        """The basis (SDK, driver, performance model ...) on which latencies are compared at present. SDK and driver of
        a device are known once the baseline is measured.
        """
        self._store = store
        self._evaluator = evaluator
        self._context = context
        self._inflight: dict[str, asyncio.Future[Evaluation]] = {}
        self.baseline: Candidate | None = None
        """The kernel against which a device times candidates, in addition to their parents. This kernel must pass on
        each host of a fleet before other candidates run on that host.
        """

    async def evaluate(
        self, candidate: Candidate, gate: Gate, priority: Priority, useful_below_us: float | None = None
    ) -> Candidate:
        """Return the candidate with its result at a gate. Candidates with the same work share one evaluation.

        A candidate slower than ``useful_below_us`` is only timed, and is stored as untested.
        """
        against = await self._against(candidate)
        request = replace(
            self._request(candidate, gate, priority),
            candidate=candidate.id,
            useful_below_us=useful_below_us,
            against=tuple(one.kernel for one in against),
            against_us=tuple(one.evaluation.latency_us or 0.0 for one in against if one.evaluation),
        )
        if (running := self._inflight.get(request.key)) is not None:
            return await self._write(candidate, replace(await asyncio.shield(running), id=0, reused=True), request)
        with self._announced(request.key) as result:
            known = await self._known(request)
            evaluation = known or await self._evaluator.evaluate(request)
            evaluated = evaluation if known is None else replace(known, id=0, reused=True)
            written = await self._write(candidate, evaluated, request)
            result.set_result(evaluation)
        return written

    async def certify(self, candidate: Candidate) -> Candidate:
        """Return the candidate with its result at the strict gate."""
        if candidate.evaluation is not None and candidate.evaluation.gate is Gate.STRICT:
            return candidate
        return await self.evaluate(candidate, Gate.STRICT, Priority.STRICT)

    async def again(self, candidate: Candidate) -> tuple[Evaluation, str]:
        """Evaluate a candidate again at the gate of its present result. Return (new result, key under which it is
        stored).

        The candidate itself keeps its present result.
        """
        before = candidate.evaluation
        gate = Gate.TIMING if before is not None and before.status is Status.UNTESTED else Gate.SEARCH
        priority = Priority.BASELINE if candidate.parent is None else Priority.SEARCH
        request = self._request(candidate, (before.gate if before else None) or gate, priority)
        if (running := self._inflight.get(request.key)) is not None:
            found = await asyncio.shield(running)
            return found, _as_done(request, found).key
        with self._announced(request.key) as result:
            known = await self._known(request)
            found = known or await self._evaluator.evaluate(request)
            done = _as_done(request, found)
            if known is None:
                where = {"workload": request.workload, "backend": request.backend, "chip": request.chip}
                number = await self._store.change(keep_evaluation, found, **where, key=done.key)
                found = replace(found, id=number)
            result.set_result(found)
        return found, done.key

    @contextmanager
    def _announced(self, key: str) -> Iterator[asyncio.Future[Evaluation]]:
        """Yield a future, in which the block leaves the result of the work ``key``.

        Callers that need the same work wait for this future. They are cancelled if the block fails.
        """
        result: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        self._inflight[key] = result
        try:
            yield result
        finally:
            result.cancel()
            del self._inflight[key]

    async def measured_basis(self, baseline: Candidate) -> Basis:
        """Measure the baseline, and return the basis (SDK, driver ...) that a device's latencies have today. The
        baseline keeps its stored result.
        """
        measured = await self._evaluator.evaluate(self._request(baseline, Gate.SEARCH, Priority.BASELINE))
        return basis_of(self.basis, measured.profile)

    def _request(self, candidate: Candidate, gate: Gate, priority: Priority) -> EvaluationRequest:
        spec = self._run.spec
        return EvaluationRequest(
            kernel=candidate.kernel,
            workload=spec.workload,
            workload_folder=spec.workload_folder,
            chip=spec.chip,
            backend=spec.backend,
            run=self._run.id,
            gate=gate,
            priority=priority,
            canary=self.baseline.kernel if self.baseline else None,
            host=spec.search.host,
            screen=spec.search.screen and priority is Priority.SEARCH,
            context=self._context,
        )

    async def _known(self, request: EvaluationRequest) -> Evaluation | None:
        """Return a stored result of the same work, or a stored timing that already decides the request; None if there
        is neither.
        """
        found = await self._store.read(find_evaluation, request.key)
        if found is not None and not self._comparable(request, found.profile):
            found = None
        if found is not None or request.useful_below_us is None:
            return found
        timed = await self._store.read(find_evaluation, replace(request, gate=Gate.TIMING).key)
        if timed is None or timed.status is not Status.UNTESTED:
            return None
        return timed if (timed.latency_us or 0.0) > request.useful_below_us else None

    def _comparable(self, request: EvaluationRequest, profile: Profile | None) -> bool:
        """Return True if a stored result may be used in place of a new evaluation.

        A device's result must come from today's SDK and driver. Each run measures its baseline first, which shows
        today's SDK and driver.
        """
        if request.backend == SIMULATOR or profile is None:
            return True
        return request.priority is not Priority.BASELINE and basis_of(self.basis, profile) == self.basis

    async def _against(self, candidate: Candidate) -> tuple[Candidate, ...]:
        """Return the kernels with which a device compares a candidate: its parent and the baseline."""
        if candidate.parent is None or self._run.spec.backend == SIMULATOR:
            return ()
        assert self.baseline is not None, "the baseline is evaluated before its children"
        parent = await self._store.read(load_candidate, candidate.parent)
        return (parent, self.baseline)

    async def _write(self, candidate: Candidate, evaluation: Evaluation, request: EvaluationRequest) -> Candidate:
        request = _as_done(request, evaluation)
        return await self._store.change(
            write_evaluation,
            candidate,
            evaluation,
            workload=request.workload,
            backend=request.backend,
            chip=request.chip,
            key=request.key,
        )


def basis_of(known: Basis, profile: Profile | None) -> Basis:
    """Return the basis ``known`` with the SDK and the driver that a profile names.

    Two kinds of profile leave the basis unchanged: a simulated profile, because a simulation depends on no SDK and no
    driver, and a profile from a host of a fleet, because the fleet makes its hosts' latencies comparable.
    """
    if profile is None or profile.source is Source.SIMULATED or profile.host:
        return known
    return replace(known, sdk=profile.sdk, driver=profile.driver)


def _as_done(request: EvaluationRequest, evaluation: Evaluation) -> EvaluationRequest:
    """Return the request under which a result is stored.

    If a candidate was only timed, this is a request at the timing gate. So no later look-up takes the timing for a
    result of the search gate.
    """
    return replace(request, gate=Gate.TIMING) if evaluation.status is Status.UNTESTED else request
