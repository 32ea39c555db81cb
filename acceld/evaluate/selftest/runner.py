"""Run every known attack, and honest kernels, on this machine's evaluator.

:mod:`acceld.evaluate.selftest.attacks` reads the files. Each attack runs twice: as a candidate, and with the policy off
as a user's own kernel would. The second run tests the protections behind the policy. The second run needs sandbox level
L2, because at a lower level the kernel could reach the user's files. Honest kernels run as candidates only.

Kernels for the host's processor (backend ``cpu``, C files with ``//`` comments and numpy files) are a suite of their
own in the folder ``cpu``.

Every repeat uses new seeds, and results of earlier repeats are forgotten.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from acceld import plugins
from acceld.config import DevicesConfig, EvaluateConfig
from acceld.errors import AcceldError, UsageError, did_you_mean
from acceld.evaluate.interface import EvaluationRequest, Evaluator, Priority, Workplace
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import SandboxReport
from acceld.evaluate.selftest.attacks import FOLDER, UNLABELED, Attack, Broken, load_attacks
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Evaluation, Gate, Status
from acceld.resources import data_folder
from acceld.targets import ALL_DEVICES, DEVICE_OF, SIMULATOR, TARGETS
from acceld.workloads import load_workload

BACKENDS = {SIMULATOR: ""} | {t.backend: d.attacks for d in ALL_DEVICES if d.attacks for t in d.targets}
"""Folders of the suites, below the simulator's folder, by backend."""
_BUILD_S, _COMPILE_S, _CHECK_S, _CALL_S, _MEMORY_GIB = 6.0, 60.0, 60.0, 3.0, 2.0
"""Limits for the suite's workloads. The limits are low, because the workloads are small and some attacks run to their
deadline.
"""
_QUEUE = 10_000

NkiVersion = Literal["auto", "0.3", "0.4", "0.5", "0.6", "0.7"]
"""Values that the setting ``nki`` may have."""

OTHER_RULE = "other_rule"
"""Outcome of an attack that is refused, but not by a rule that its file names."""
FAILURES = ("fooled", OTHER_RULE, "false_reject", "death")
"""Outcomes that fail the self-test."""


class Tested(Evaluator, Protocol):
    """The interface of an evaluator under test: it can forget results, and has a report on its sandbox."""

    report: SandboxReport | None

    def forget(self) -> None:
        """Forget all results, so that every program is evaluated again."""
        ...


@dataclass(frozen=True, slots=True)
class AttackResult:
    """The result of one attack in one mode.

    The outcome is ``rejected``, ``truthful``, ``unlabeled`` or one of :data:`FAILURES`.
    """

    id: str
    mode: str
    expect: str
    outcome: str
    status: str
    rule: str
    message: str
    latency_us: float | None
    seconds: float
    workload: str = ""
    guessed: bool = False
    """True if the attack's file does not name its workload."""
    further: bool = False
    """True if the attack comes from the user's folder."""


@dataclass(frozen=True, slots=True)
class SelftestReport:
    """The results of one self-test, with counts."""

    level: str
    repeats: int
    results: tuple[AttackResult, ...]
    seconds: float
    broken: tuple[Broken, ...] = ()
    """Files that could not be tried, each with the reason."""

    def count(self, outcome: str) -> int:
        """Return the number of results with this outcome."""
        return sum(result.outcome == outcome for result in self.results)

    @property
    def passed(self) -> bool:
        """Tell whether the self-test passed.

        The self-test fails if an attack passes, if an attack is refused for a reason that its file does not name, if an
        honest kernel is refused, or if the harness fails.
        """
        return not any(map(self.count, FAILURES))

    def plain(self) -> dict[str, Any]:
        """Return the report as a dict for JSON, in version 1 of its format."""
        return {
            "version": 1,
            "level": self.level,
            "fooled": self.count("fooled"),
            "rejected": self.count("rejected"),
            "caught_by_another_rule": self.count(OTHER_RULE),
            "truthful": self.count("truthful"),
            "false_rejects": self.count("false_reject"),
            "harness_errors": self.count("death"),
            "unlabeled": self.count(UNLABELED),
            "passed": self.passed,
            "attacks": len({r.id for r in self.results if r.expect != "pass"}),
            "honest": len({r.id for r in self.results if r.expect == "pass"}),
            "repeats": self.repeats,
            "seconds": round(self.seconds, 3),
            "broken": [{"id": one.id, "message": one.message} for one in self.broken],
            "results": [
                {
                    "id": r.id,
                    "mode": r.mode,
                    "workload": r.workload,
                    "guessed": r.guessed,
                    "expect": r.expect,
                    "outcome": r.outcome,
                    "status": r.status,
                    "rule": r.rule,
                    "message": r.message,
                    "latency_us": r.latency_us,
                    "seconds": round(r.seconds, 3),
                }
                for r in self.results
            ],
        }


async def run_selftest(
    config: EvaluateConfig,
    *,
    attacks: Path | None = None,
    repeats: int = 1,
    only: str = "",
    backend: str = SIMULATOR,
    highest: Level = Level.L4,
    on_result: Callable[[AttackResult], None] | None = None,
) -> SelftestReport:
    """Run the suite of a backend (:data:`BACKENDS`) and the attacks in the folder ``attacks``, and return the
    report.

    ``only`` is a glob for the ids to run. A file of ``attacks`` that can not be tried is reported, not run.
    Raise UsageError if a folder has no attack, DeviceError if the backend can not work on this machine.
    """
    started = time.monotonic()
    found, broken = load_attacks(data_folder(FOLDER) / BACKENDS[backend])
    if attacks is not None:
        further, beside = load_attacks(attacks, further=True)
        found, broken = found + further, broken + beside
    mine = [attack for attack in found if attack.kernel.api in TARGETS[backend].apis]
    broken += [Broken(one.id, f"API {one.kernel.api} is not for backend {backend}") for one in found if one not in mine]
    chosen = [attack for attack in mine if not only or Path(attack.id).match(only)]
    broken = [one for one in broken if not only or Path(one.id).match(only)]
    if not (chosen or broken):
        raise UsageError(f"no attack matches {only!r}", hint=did_you_mean(only, [attack.id for attack in found]))
    results: list[AttackResult] = []
    async with _Evaluators(backend, config, highest) as evaluators:
        for number in range(1, repeats + 1):
            evaluators.forget()
            for small in (True, False):
                tasks = [
                    asyncio.create_task(_try(evaluators, attack, mode, number, on_result))
                    for attack in chosen
                    if attack.small is small
                    for mode in _modes(attack, evaluators.level)
                ]
                results += await asyncio.gather(*tasks)
    return SelftestReport(evaluators.level.name, repeats, tuple(results), time.monotonic() - started, tuple(broken))


class _Evaluators:
    """The evaluators of a self-test: two for each version of ``nki``, started when they are first needed.

    One of the two has tight limits for the suite's small workloads, the other the configured limits.
    """

    def __init__(self, backend: str, config: EvaluateConfig, highest: Level) -> None:
        bounded = replace(
            config,
            build_s=min(config.build_s, _BUILD_S if backend == SIMULATOR else _COMPILE_S),
            check_s=_CHECK_S if backend == SIMULATOR else _CALL_S,
            memory_gib=min(config.memory_gib, _MEMORY_GIB),
            queue_size=_QUEUE,
        )
        self._backend, self._highest = backend, highest
        self._configs = {True: bounded, False: replace(config, queue_size=_QUEUE)}
        self._running: dict[tuple[bool, str], Tested] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="acceld-selftest-")
        self.level = Level.L0
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._start(True, self.versions[0])
        return self

    async def __aexit__(self, *failure: object) -> None:
        try:
            for evaluator in self._running.values():
                await evaluator.stop(5.0)
        finally:
            await asyncio.to_thread(self._folder.cleanup)

    @property
    def versions(self) -> tuple[NkiVersion, ...]:
        """Return the versions of ``nki`` for which an attack may be written, in the order in which they are
        tried.
        """
        configured = self._configs[True].nki
        return (configured,) if configured != "auto" else ("auto", "0.7", "0.6")

    async def of(self, attack: Attack, version: NkiVersion) -> Tested:
        """Return the evaluator for an attack and a version of ``nki``. The evaluator is started when it is first
        needed.
        """
        return self._running.get((attack.small, version)) or await self._start(attack.small, version)

    def forget(self) -> None:
        """Forget all results, so that every program is evaluated again."""
        for evaluator in self._running.values():
            evaluator.forget()

    async def _start(self, small: bool, version: NkiVersion) -> Tested:
        async with self._starting:
            if (small, version) in self._running:
                return self._running[small, version]
            folder = Path(self._folder.name) / f"{'small' if small else 'any'}-{version}"
            evaluator = _evaluator(self._backend, replace(self._configs[small], nki=version), folder, self._highest)
            await evaluator.start()
            self._running[small, version] = evaluator
        assert evaluator.report is not None
        self.level = evaluator.report.level
        return evaluator


def _evaluator(backend: str, config: EvaluateConfig, folder: Path, highest: Level) -> Tested:
    if backend == SIMULATOR:
        return SimulatedEvaluator(config, folder, highest=highest, share_data=True)
    workplace = Workplace(config, DevicesConfig(), folder, highest=highest)
    made: Tested = plugins.named(DEVICE_OF[backend].evaluator)(workplace, backend)
    return made


def _modes(attack: Attack, level: Level) -> tuple[str, ...]:
    """Return the modes in which to run an attack: ``candidate`` (with the policy) and ``unpoliced`` (without it).

    Below level L2 the mode ``unpoliced`` is left out, because hostile kernels could reach files.
    """
    return ("candidate",) if attack.honest or level < Level.L2 else ("candidate", "unpoliced")


async def _evaluated(evaluators: _Evaluators, attack: Attack, request: EvaluationRequest) -> tuple[Evaluation, float]:
    """Evaluate an attack for the first version of ``nki`` that knows its syntax.

    Return the evaluation, and the least latency in microseconds that is credible.
    """
    for version in evaluators.versions:
        evaluator = await evaluators.of(attack, version)
        found = await evaluator.evaluate(request)
        if found.failure is None or found.failure.rule != "nki_version":
            break
    return found, await _least_us(evaluator, attack)


async def _try(
    evaluators: _Evaluators, attack: Attack, mode: str, run: int, on_result: Callable[[AttackResult], None] | None
) -> AttackResult:
    """Run an attack in ``mode``, one of :func:`_modes`, and return the result."""
    started = time.monotonic()
    request = EvaluationRequest(
        kernel=replace(attack.kernel, trusted=mode == "unpoliced"),
        workload="",
        workload_folder=str(attack.workload_folder),
        chip=attack.chip,
        gate=Gate.STRICT,
        priority=Priority.SEARCH,
        run=run,
    )
    try:
        evaluation, least_us = await _evaluated(evaluators, attack, request)
    except (
        AcceldError,
        OSError,
        ValueError,
        AssertionError,
        LookupError,
        TypeError,
        RuntimeError,
        ExceptionGroup,
    ) as error:
        # Any exception that a kernel causes in the harness counts against the harness.
        failed = f"{type(error).__name__}: {error}"[:400]
        seconds = time.monotonic() - started
        result = AttackResult(
            attack.id, mode, attack.expect, "death", "", "", failed, None, seconds, *_tried_on(attack)
        )
    else:
        failure = evaluation.failure
        result = AttackResult(
            attack.id,
            mode,
            attack.expect,
            _outcome(attack, mode, evaluation, least_us),
            evaluation.status.value,
            failure.rule if failure else "",
            failure.message[:400] if failure else "",
            evaluation.latency_us,
            time.monotonic() - started,
            *_tried_on(attack),
        )
    if on_result is not None:
        on_result(result)
    return result


def _tried_on(attack: Attack) -> tuple[str, bool, bool]:
    """Return the fields of a result that are known before the attack is evaluated: (workload's name, ``guessed``,
    ``further``).
    """
    return attack.workload_folder.name, attack.guessed, attack.further


async def _least_us(evaluator: Tested, attack: Attack) -> float:
    """Return the latency in microseconds below which a pass is not credible; 0 if the attack has no limit."""
    if not attack.at_least:
        return 0.0
    loaded = await asyncio.to_thread(load_workload, attack.workload_folder)
    baseline = loaded.baselines[attack.kernel.api]
    text = await asyncio.to_thread(baseline.read_text, "utf-8")
    kernel = replace(attack.kernel, text=text, entry="", trusted=True)
    request = EvaluationRequest(kernel, "", attack.chip, workload_folder=str(attack.workload_folder), gate=Gate.TIMING)
    return attack.at_least * ((await evaluator.evaluate(request)).latency_us or 0.0)


def _outcome(attack: Attack, mode: str, evaluation: Evaluation, least_us: float) -> str:
    """Return the outcome of an evaluation of an attack: ``rejected``, ``truthful``, ``unlabeled`` or one of
    :data:`FAILURES`. ``least_us`` is a latency that no honest kernel can go below.
    """
    passed = evaluation.status is Status.PASSED
    if passed and (evaluation.latency_us or 0.0) < least_us:
        return "fooled"
    if attack.honest:
        return "truthful" if passed else "false_reject"
    if not passed:
        named = attack.unpoliced if mode == "unpoliced" else attack.caught_by
        refusal = f"{evaluation.status.value}.{evaluation.failure.rule if evaluation.failure else ''}"
        return "rejected" if refusal in named or (attack.further and not named) else OTHER_RULE
    if attack.expect == UNLABELED:
        return UNLABELED
    allowed = attack.expect == "truthful" or (attack.expect == "policy" and mode == "unpoliced")
    return "truthful" if allowed else "fooled"
