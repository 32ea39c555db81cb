"""Judge the first kernel of a new workload on every distribution that the workload declares.

A distribution on which the kernel is wrong, or on which nothing can be judged, is refused in the workload's file,
with the reason.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from acceld import config, plugins
from acceld.cli.kernels import baseline_of, evaluated
from acceld.cli.output import say
from acceld.errors import WorkloadError
from acceld.model import Evaluation, Gate, Kernel, Profile, Status
from acceld.targets import DEVICE_OF, SIMULATOR, Choice
from acceld.workloads import DISTRIBUTIONS, Workload, load_workload

if TYPE_CHECKING:
    from acceld.evaluate.simulated.evaluator import SimulatedEvaluator

MOST_S = 60.0
"""Most seconds that the strict gate may be expected to take. If more are expected, the gate is not run."""


@dataclass(slots=True)
class Judged:
    """The judgement of a new workload's kernel.

    - ``evaluation``: the result of the strictest gate that was run. - ``refused``: the distributions that the
    workload's file refuses from now on, with their reasons. - ``too_long_s``: the expected seconds of the strict
    gate, if it was not run because it takes too long. - ``fixed``: the arguments whose values the file now keeps in
    every distribution. - ``failed``: the error with which the reference ended on a distribution; empty if the
    reference ran on all distributions. - ``lowered``: the profile of the kernel that was lowered from the reference;
    None if there is no such kernel.
    """

    evaluation: Evaluation
    refused: dict[str, str] = field(default_factory=dict)
    too_long_s: float = 0.0
    fixed: tuple[str, ...] = ()
    failed: str = ""
    lowered: Profile | None = None
    complaint: str = ""
    """Reason why no win on the workload could be trusted; empty if a win can be, or if that was not examined."""


Evaluate = Callable[[Gate], Awaitable[Evaluation]]


async def judged_at(
    where: Choice,
    kernel: Kernel,
    folder: Path,
    settings: config.EvaluateConfig,
    state: Path,
    lowered: Kernel | None = None,
) -> Judged:
    """Return the judgement of the first kernel of the workload in ``folder``, on the backend and chip of ``where``.

    The simulator also times ``lowered``, the kernel that is lowered from the workload's reference. On a device only the
    search gate is run, because the strict gate may compile for minutes.
    """
    from acceld.evaluate.interface import Evaluator, Priority, Workplace, started

    simulator: SimulatedEvaluator | None = None
    evaluator: Evaluator
    if where.backend == SIMULATOR:
        from acceld.evaluate.simulated.evaluator import SimulatedEvaluator

        # AWS's tool chain judges candidates; compiling here would take minutes before the first result.
        evaluator = simulator = SimulatedEvaluator(replace(settings, second_opinion="off"), state)
    else:
        workplace = Workplace(settings, config.DevicesConfig(), state)
        evaluator = plugins.named(DEVICE_OF[where.backend].evaluator)(workplace, where.backend)
    place = {"workload": load_workload(folder).name, "folder": str(folder), "chip": where.chip}
    async with started(evaluator):

        async def evaluate(gate: Gate, kernel: Kernel = kernel) -> Evaluation:
            return await evaluated(evaluator, kernel, gate, backend=where.backend, priority=Priority.BASELINE, **place)

        if simulator is None:
            return Judged(await evaluate(Gate.SEARCH))
        found = await judged(evaluate, folder)
        if found.evaluation.status is Status.PASSED and not (found.failed or found.too_long_s):
            admission = await simulator.admission(load_workload(folder))
            found.complaint = f"{admission.complaint}. {admission.remedy}" if admission.complaint else ""
        if lowered is not None and found.evaluation.status is Status.PASSED:
            found.lowered = (await evaluate(Gate.TIMING, lowered)).profile
        return found


def say_judged(found: Judged, folder: Path, api: str, before: Judged | None = None) -> None:
    """Print on which inputs the first kernel of ``api`` was not judged, and why.

    ``found`` is the judgement of the kernel of the workload in ``folder``. What was printed of the judgement
    ``before`` is left out.
    """
    if before is not None:
        found = replace(
            found,
            refused={name: why for name, why in found.refused.items() if name not in before.refused},
            fixed=tuple(name for name in found.fixed if name not in before.fixed),
            failed="" if found.failed == before.failed else found.failed,
            too_long_s=0.0 if before.too_long_s else found.too_long_s,
            complaint="" if found.complaint == before.complaint else found.complaint,
        )
    for name, why in found.refused.items():
        say(f"note: {folder}/workload.toml refuses the distribution {name} ({DISTRIBUTIONS[name]}): {why}")
    if found.refused:
        say(
            'note: candidates are not tried on these inputs; once a kernel is right on them, write "declared" in [distributions]'
        )
    if found.fixed:
        say(
            f"note: {folder}/workload.toml keeps the values of {', '.join(found.fixed)} in every distribution, because the reference "
            "fails on other values"
        )
    if found.failed:
        say(f"note: the kernel was tried on one data set, because the reference fails on other inputs: {found.failed}")
        say(f"note: in {folder}/workload.toml, refuse the distributions on which the reference may fail")
    if found.complaint:
        say(f"note: every faster kernel will be suspect, because {found.complaint}")
    if found.too_long_s:
        say(
            "note: the kernel was tried on one data set only. To try it on all declared distributions, which takes about "
            f"{found.too_long_s:.0f} s: acceld check {baseline_of(load_workload(folder), api)}"
        )


async def judged(evaluate: Evaluate, folder: Path) -> Judged:
    """Return the judgement of the kernel of the workload in ``folder``, by the search gate and then by the strict gate.

    The strict gate draws fresh data of every declared distribution, and tries the hidden shapes. A distribution on
    which the kernel is wrong is refused in the workload's file, and the strict gate is run again.

    If the reference itself raises an error, some distribution may have drawn invalid positions, such as page numbers.
    The file is then changed so that arguments of whole numbers keep their own distribution in every trial. If the
    reference fails even then, nothing more is tried.
    """
    found = Judged(await evaluate(Gate.SEARCH))
    searched = found.evaluation
    if found.evaluation.status is not Status.PASSED:
        return found
    expected_s = await asyncio.to_thread(_expected_s, found.evaluation, load_workload(folder))
    if expected_s > MOST_S:
        found.too_long_s = expected_s
        return found
    for _ in DISTRIBUTIONS:
        try:
            found.evaluation = await evaluate(Gate.STRICT)
        except WorkloadError as error:
            found.evaluation, fixed = searched, await asyncio.to_thread(_fix_whole_numbers, folder)
            if found.fixed or not fixed:
                found.failed = str(error)
                return found
            found.fixed = fixed
            continue
        wrong = _wrong(found.evaluation)
        if not wrong:
            break
        await asyncio.to_thread(partial(_refuse, folder, wrong))
        found.refused |= wrong
    untried = _untried(found.evaluation)
    await asyncio.to_thread(partial(_refuse, folder, untried))
    found.refused |= untried
    return found


def _expected_s(searched: Evaluation, loaded: Workload) -> float:
    """Return how many seconds the strict gate is expected to take, estimated from the time of the search gate's one
    data set.
    """
    from acceld.evaluate.correctness.gates import Seeds, strict_trials

    trials = len(strict_trials(loaded, Seeds(), expensive=False)) + len(loaded.hidden)
    return trials * sum(searched.seconds.get(stage, 0.0) for stage in ("reference", "execute"))


def _wrong(evaluation: Evaluation) -> dict[str, str]:
    """Return the distribution on which a kernel failed, with the reason.

    Return an empty dict if the kernel failed on no distribution, or on several.
    """
    if evaluation.status is not Status.INCORRECT_NUMERICAL or evaluation.correctness is None:
        return {}
    failed = [check for check in evaluation.correctness.checks if not check.passed]
    if any(check.name not in DISTRIBUTIONS or check.name == "own" for check in failed):
        return {}
    return {check.name: f"the first kernel is wrong on such inputs: {check.detail}" for check in failed}


def _untried(evaluation: Evaluation) -> dict[str, str]:
    """Return the declared distributions on which nothing can be judged, with their reasons."""
    from acceld.evaluate.correctness.checks import reason_not_tried

    checks = evaluation.correctness.checks if evaluation.correctness else ()
    found = dict(filter(None, map(reason_not_tried, checks)))
    return {name: why for name, why in found.items() if name in DISTRIBUTIONS}


def _fix_whole_numbers(folder: Path) -> tuple[str, ...]:
    """Change a workload's file so that arguments of whole numbers, which may be positions, keep their own
    distribution in every trial. Return the names of the arguments that were not fixed before.
    """
    file = folder / "workload.toml"
    text = file.read_text(encoding="utf-8")
    found = []
    for argument in load_workload(folder).arguments:
        drawn = argument.distribution
        if drawn is None or drawn.fixed or "int" not in argument.dtype:
            continue
        head, own, rest = text.partition(f"\n[arguments.{argument.name}]\n")
        lines, gap, after = rest.partition("\n\n")
        kept = [line for line in lines.split("\n") if not line.startswith("distribution = ")]
        kept += ["# whole numbers, which may be positions: they stay as they are in every distribution"]
        low, high = int(drawn.low), int(max(drawn.low + 2, drawn.high))
        kept += [f'distribution = {{ kind = "integers", low = {low}, high = {high}, fixed = true }}']
        text = head + own + "\n".join(kept) + gap + after
        found.append(argument.name)
    file.write_text(text, encoding="utf-8")
    return tuple(found)


def _refuse(folder: Path, reasons: dict[str, str]) -> None:
    """Refuse distributions, with their reasons, in the file of a workload that declares them."""
    file = folder / "workload.toml"
    text = file.read_text(encoding="utf-8")
    for name, why in reasons.items():
        text = text.replace(
            f'\n{name} = "declared"', f"\n{name} = {{ refused = {json.dumps(why, ensure_ascii=False)} }}"
        )
    file.write_text(text, encoding="utf-8")
