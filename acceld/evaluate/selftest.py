"""Tries every known attack, and honest kernels beside them, on the evaluator as it runs here.

An attack is one Python file, a kernel with a header of comments::

    # expect: reject          reject | policy | quarantine | truthful | pass
    # workload: st_matmul     a workload's name, or a folder of the attacks' own ``workloads/``
    # api: nki_legacy
    # entry: kernel
    # at_least: 0.98          of the latency of the workload's own baseline, or it has fooled us

``reject``: wrong, must not pass. ``policy``: refused as a candidate, and may pass only where it is right when the
policy is off. ``quarantine``: must end ``suspect`` or worse. ``truthful``: may pass, with the latency of what it
really does. ``pass``: an honest kernel, must pass. Without a header a file is expected to be rejected.

Each attack runs twice: as a candidate, and with the policy off as a person's own kernel would, so that the walls
behind the policy are tried too (from L2 on: below, files of the user would be in reach). Honest kernels run as
candidates.

Kernels for the host's processor (backend ``cpu``, C files with ``//`` comments and numpy files) are a suite of their
own in the folder ``cpu``.

Every repeat is a run of its own with fresh seeds; what one of them found is forgotten before the next.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acceld.backends.cpu.driver import CpuDriver
from acceld.config import EvaluateConfig
from acceld.errors import AcceldError, UsageError, did_you_mean
from acceld.evaluate.base import EvaluationRequest, Priority
from acceld.evaluate.evaluator import Judge
from acceld.evaluate.hosted.judge import HostedJudge
from acceld.evaluate.jail import Level
from acceld.model import Evaluation, Gate, Kernel, Status
from acceld.resources import data_folder
from acceld.targets import HOST, SIMULATOR, TARGETS
from acceld.workloads import load_workload
from acceld.workloads.discovery import workload_folders

EXPECTATIONS = ("reject", "policy", "quarantine", "truthful", "pass")
FOLDER = "tests/adversarial"
BACKENDS = {SIMULATOR: "", "cpu": "cpu"}
"""Backends with a suite, and its folder below the simulator's."""
_ALIASES = {"honest": "pass", "control": "pass", "accept": "pass", "rejected": "reject", "suspect": "quarantine"}
_HEADER = re.compile(r"^(?:#|//)\s*(expect|workload|api|entry|chip|at_least)\s*:\s*(\S+)", re.MULTILINE)
_DEFAULT_WORKLOAD = "st_matmul"
_BUILD_S, _CHECK_S, _CALL_S, _MEMORY_GIB = 6.0, 30.0, 3.0, 2.0
"""The suite's workloads are small, and some attacks run until their deadline."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One file of the suite."""

    id: str
    kernel: Kernel
    expect: str
    workload_folder: Path
    chip: str
    at_least: float = 0.0
    """Share of the baseline's latency below which a pass is a lie: the kernel does the same work."""

    @property
    def honest(self) -> bool:
        """Whether it must pass."""
        return self.expect == "pass"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one attack in one mode. ``outcome`` is fooled, rejected, truthful, false_reject or death."""

    id: str
    mode: str
    expect: str
    outcome: str
    status: str
    rule: str
    message: str
    latency_us: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class SelftestReport:
    """The counts that matter, and every result."""

    level: str
    repeats: int
    results: tuple[Result, ...]
    seconds: float

    def count(self, outcome: str) -> int:
        """How many results had this outcome."""
        return sum(result.outcome == outcome for result in self.results)

    @property
    def passed(self) -> bool:
        """Nobody was fooled, nothing died, no honest kernel was refused."""
        return not (self.count("fooled") or self.count("death") or self.count("false_reject"))

    def plain(self) -> dict[str, Any]:
        """As JSON-able data, version 1."""
        return {
            "version": 1,
            "level": self.level,
            "fooled": self.count("fooled"),
            "rejected": self.count("rejected"),
            "truthful": self.count("truthful"),
            "false_rejects": self.count("false_reject"),
            "judge_deaths": self.count("death"),
            "passed": self.passed,
            "attacks": len({r.id for r in self.results if r.expect != "pass"}),
            "honest": len({r.id for r in self.results if r.expect == "pass"}),
            "repeats": self.repeats,
            "seconds": round(self.seconds, 3),
            "results": [
                {
                    "id": r.id,
                    "mode": r.mode,
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
    on_result: Callable[[Result], None] | None = None,
) -> SelftestReport:
    """Run the suite of a backend (:data:`BACKENDS`), and the attacks of a further folder, at the active level.

    ``only`` is a glob on ids. UsageError where a folder holds no attack or names an unknown workload; DeviceError
    where the backend can not work here.
    """
    started = time.monotonic()
    found = load_attacks(data_folder(FOLDER) / BACKENDS[backend])
    if attacks is not None:
        found += load_attacks(attacks)
    chosen = [attack for attack in found if not only or Path(attack.id).match(only)]
    if not chosen:
        raise UsageError(f"no attack matches {only!r}", hint=did_you_mean(only, [attack.id for attack in found]))
    bounded = replace(
        config,
        build_s=min(config.build_s, _BUILD_S),
        check_s=_CHECK_S if backend == SIMULATOR else _CALL_S,
        memory_gib=min(config.memory_gib, _MEMORY_GIB),
        queue_size=len(chosen) * 2,
    )
    with tempfile.TemporaryDirectory(prefix="acceld-selftest-") as folder:
        judge = _judge(backend, bounded, Path(folder), highest)
        await judge.start()
        assert judge.report is not None
        level = judge.report.level
        try:
            results = []
            for number in range(1, repeats + 1):
                judge.forget()
                tasks = [
                    asyncio.create_task(_attempt(judge, attack, mode, number, on_result))
                    for attack in chosen
                    for mode in _modes(attack, level)
                ]
                results += await asyncio.gather(*tasks)
        finally:
            await judge.stop(5.0)
    return SelftestReport(level.name, repeats, tuple(results), time.monotonic() - started)


def _judge(backend: str, config: EvaluateConfig, folder: Path, highest: Level) -> Judge | HostedJudge:
    if backend == SIMULATOR:
        return Judge(config, folder, highest=highest, share_data=True)
    return HostedJudge(config, folder, CpuDriver(), highest=highest)


def _modes(attack: Attack, level: Level) -> tuple[str, ...]:
    """Below L2 files of the user are in reach, so nothing hostile is run that the policy does not see first."""
    return ("candidate",) if attack.honest or level < Level.L2 else ("candidate", "unpoliced")


def load_attacks(folder: Path) -> list[Attack]:
    """The attacks in a folder, by file name. UsageError where it holds none."""
    listed = (path for ending in ("py", "c") for path in folder.glob(f"*.{ending}"))
    files = sorted(path for path in listed if not path.name.startswith(("test_", "conftest", "_")))
    if not files:
        raise UsageError(f"{folder} holds no attack: no *.py or *.c file")
    workloads = workload_folders([data_folder(FOLDER) / "workloads", folder / "workloads"])
    return [_load(path, workloads) for path in files]


def _load(path: Path, workloads: dict[str, Path]) -> Attack:
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    header = dict(reversed(_HEADER.findall(text)))
    expect = header.get("expect", "reject").lower()
    expect = _ALIASES.get(expect, expect)
    if expect not in EXPECTATIONS:
        raise UsageError(f"{path}: expect {expect!r} is unknown", hint=did_you_mean(expect, EXPECTATIONS))
    name = header.get("workload", _DEFAULT_WORKLOAD)
    if name not in workloads:
        raise UsageError(f"{path}: there is no workload {name!r}", hint=did_you_mean(name, workloads))
    kernel = Kernel(text, header.get("api", "nki_legacy"), entry=header.get("entry", ""), filename=path.name)
    chip = header.get("chip", HOST if kernel.api in TARGETS["cpu"].apis else "trn1")
    return Attack(path.stem, kernel, expect, workloads[name], chip, float(header.get("at_least", 0)))


async def _attempt(
    judge: Judge | HostedJudge, attack: Attack, mode: str, run: int, on_result: Callable[[Result], None] | None
) -> Result:
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
        evaluation = await judge.evaluate(request)
    except (AcceldError, OSError, ValueError, AssertionError, KeyError, TypeError, RuntimeError) as error:
        # Whatever a kernel makes the harness raise counts against the harness.
        failed = f"{type(error).__name__}: {error}"[:400]
        result = Result(attack.id, mode, attack.expect, "death", "", "", failed, None, time.monotonic() - started)
    else:
        failure = evaluation.failure
        result = Result(
            attack.id,
            mode,
            attack.expect,
            _outcome(attack, mode, evaluation, await _least_us(judge, attack)),
            evaluation.status.value,
            failure.rule if failure else "",
            failure.message[:400] if failure else "",
            evaluation.latency_us,
            time.monotonic() - started,
        )
    if on_result is not None:
        on_result(result)
    return result


async def _least_us(judge: Judge | HostedJudge, attack: Attack) -> float:
    """Latency below which a pass is a lie; 0 where the attack does not say."""
    if not attack.at_least:
        return 0.0
    loaded = await asyncio.to_thread(load_workload, attack.workload_folder)
    baseline = loaded.baselines[attack.kernel.api]
    text = await asyncio.to_thread(baseline.read_text, "utf-8")
    kernel = replace(attack.kernel, text=text, entry="", trusted=True)
    request = EvaluationRequest(kernel, "", attack.chip, workload_folder=str(attack.workload_folder), gate=Gate.TIMING)
    return attack.at_least * ((await judge.evaluate(request)).latency_us or 0.0)


def _outcome(attack: Attack, mode: str, evaluation: Evaluation, least_us: float) -> str:
    passed = evaluation.status is Status.PASSED
    if passed and (evaluation.latency_us or 0.0) < least_us:
        return "fooled"
    if attack.honest:
        return "truthful" if passed else "false_reject"
    if not passed:
        return "rejected"
    allowed = attack.expect == "truthful" or (attack.expect == "policy" and mode == "unpoliced")
    return "truthful" if allowed else "fooled"
