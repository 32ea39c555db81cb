r"""Compute rewards for training models that write kernels, in the forms that TRL, verl and plain Python call.

The rewards come from the same evaluation as in a search.

::

    with Scorer("silu", seed=7) as scorer:
        trainer = GRPOTrainer(model, reward_funcs=scorer, ...)       # TRL
        scores = scorer.score(["```python\n...```", "..."])          # plain

verl: ``custom_reward_function.path=pkg://acceld.reward``, ``name=compute_score`` or ``compute_scores``
(batches). A scorer's results follow from its seed and the answers: they are the same in every process and in
any order.
"""

from __future__ import annotations

import asyncio
import atexit
import secrets
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from acceld import config
from acceld.errors import UsageError
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.gains import gain
from acceld.model import Evaluation, Gate, Kernel, Profile, Status
from acceld.proposers.llm.extraction import extract_kernel
from acceld.report.datasets import NO_CODE, worth
from acceld.targets import SIMULATOR, Choice, choose
from acceld.workloads import Workload, workload

__all__ = ["Edit", "Environment", "Observation", "Score", "Scorer", "advantages", "compute_score", "compute_scores"]

T = TypeVar("T")

CHEAT = -1.0
"""Reward of a suspect result: below the physical floor, or failing an integrity check."""
NO_CODE_STATUS = "no_code"
SOURCE_PREFIX = "acceld/"
"""Prefix of the data source in exported rows; the workload's name follows."""
RUN = 1
"""Run number of all answers. All answers have the same number, so that they use the same data sets."""


@dataclass(frozen=True, slots=True)
class Score:
    """Reward of one answer, and how it came about."""

    reward: float | None
    """The reward; None if the result says nothing about the kernel, as when the simulator lacks a call of the kernel.
    """
    status: str
    """A status of an evaluation, or ``no_code``."""
    latency_us: float | None = None
    baseline_latency_us: float | None = None
    speedup: float | None = None
    improved: bool = False
    """True if the kernel is faster than the baseline beyond a tie. A tie has no reward."""
    tie_band: float | None = None
    """Half width, in percent, inside which the speed-up is a tie; None if it is not known, as for an unvalidated
    latency.
    """
    rule: str = ""
    message: str = ""
    line: int = 0
    evaluation: Evaluation | None = None


class Scorer:
    """Scorer of answers on the simulator: a context manager, and a reward function for TRL's GRPO.

    ``gate`` says what an answer must pass. ``timing`` only predicts latencies, ``search`` also checks results
    on one secret data set, ``strict`` does every check that a winner of a search has to pass.
    """

    def __init__(
        self,
        workload: str | Path = "",
        *,
        gate: str = "search",
        api: str = "",
        chip: str = "",
        seed: int | None = None,
        slots: int = 0,
        worth: Callable[[Score], float | None] | None = None,
        state: str | Path | None = None,
        settings: config.Config | None = None,
    ) -> None:
        """Prepare the scorer.

        ``workload`` is used for answers that name no workload. Secret data sets are drawn by ``seed``; with
        None a seed is drawn at random. ``slots`` answers are evaluated at the same time (0: as many as there
        are cores and memory for). ``worth`` computes the reward of a score instead of acceld's own formula.
        ``state`` is a folder that keeps data sets between processes; by default they are deleted when the
        scorer is closed.
        """
        self.gate = Gate(gate)
        self.__name__ = "acceld_reward"  # TRL's name of the column
        self._settings = settings or config.load().config
        self._workload, self._api, self._chip, self._worth = str(workload), api, chip, worth
        self._secret = seed.to_bytes(16, "big", signed=True) if seed is not None else secrets.token_bytes(16)
        self._slots = slots
        self._folder = tempfile.TemporaryDirectory(prefix="acceld-reward-") if state is None else None
        self._state = Path(self._folder.name) if self._folder else Path(str(state))
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._evaluator: SimulatedEvaluator
        self._workloads: dict[str, Workload] = {}
        self._baselines: dict[tuple[str, str, str], asyncio.Task[Profile | None]] = {}

    def __enter__(self) -> Self:
        self._started()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def score(self, answers: Sequence[str], workloads: Sequence[str] | None = None) -> list[Score]:
        """Evaluate answers, and return their scores in the same order.

        An answer is a kernel's text, or a model's answer with a code block. ``workloads`` has the workload of
        each answer. Raise WorkloadError or UsageError if a workload can not be used.
        """
        names = [self._workload] * len(answers) if workloads is None else list(workloads)
        if len(names) != len(answers):
            raise UsageError(
                f"{len(answers)} answers need {len(answers)} workloads, not {len(names)}",
                hint="give one workload for each answer",
            )
        return self._run(self._all(answers, names))

    def __call__(
        self,
        prompts: Sequence[Any] | None = None,
        completions: Sequence[Any] = (),
        workload: Sequence[str] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return the reward of each completion, in the form in which TRL calls a reward function; None for a
        completion whose reward is not known.

        A completion is a text or a list of messages. The data set's column ``workload`` names the workload of
        each.
        """
        return [one.reward for one in self.score([_text_of(one) for one in completions], workload)]

    def baseline(self, name: str = "") -> tuple[Kernel, float | None]:
        """Return a workload's own kernel and its latency in microseconds; the latency is None if the kernel does not
        pass.
        """
        found, api, chip = self._place(name or self._workload)
        profile = self._run(self._baseline(found, api, chip))
        return baseline_kernel(found, api), profile.latency_us if profile else None

    def close(self) -> None:
        """End the child processes."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None and self._thread is not None:
                asyncio.run_coroutine_threadsafe(self._evaluator.stop(0.0), loop).result()
                loop.call_soon_threadsafe(loop.stop)
                self._thread.join()
                loop.close()
            if self._folder is not None:
                self._folder.cleanup()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                evaluate = replace(self._settings.evaluate, slots=self._slots or self._settings.evaluate.slots)
                self._evaluator = SimulatedEvaluator(
                    evaluate,
                    self._state,
                    workload_folders=self._settings.paths.workloads,
                    share_data=True,
                    secret=self._secret,
                )
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="acceld-reward", daemon=True)
                self._thread.start()
                asyncio.run_coroutine_threadsafe(self._evaluator.start(), loop).result()
                self._loop = loop
            return self._loop

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._started()).result()

    async def _all(self, answers: Sequence[str], names: Sequence[str]) -> list[Score]:
        return list(await asyncio.gather(*map(self._one, answers, names)))

    async def _one(self, answer: str, name: str) -> Score:
        found, api, chip = self._place(name)
        text, reason = _kernel_text(answer, found.entry or "")
        if text is None:
            return self._rewarded(Score(NO_CODE, NO_CODE_STATUS, message=reason))
        kernel = Kernel(text, api, entry=found.entry or "", grid=found.grid, lnc=found.lnc)
        reported = await self._evaluator.evaluate(self._request(kernel, found, chip, Priority.SEARCH))
        baseline = await self._baseline(found, api, chip)
        return self._rewarded(_scored(reported, baseline, timed=self.gate is Gate.TIMING))

    def _rewarded(self, score: Score) -> Score:
        return replace(score, reward=self._worth(score)) if self._worth is not None else score

    def _request(self, kernel: Kernel, found: Workload, chip: str, priority: Priority) -> EvaluationRequest:
        return EvaluationRequest(
            kernel, found.name, chip, run=RUN, workload_folder=str(found.folder), gate=self.gate, priority=priority
        )

    def _place(self, name: str) -> tuple[Workload, str, str]:
        """Return the workload called ``name``, and the API and the chip for which a model's answers are written."""
        if not name:
            raise UsageError(
                "an answer names no workload, and the Scorer has none",
                hint="Scorer(workload), or a workload for each answer",
            )
        if name not in self._workloads:
            self._workloads[name] = workload(name.removeprefix(SOURCE_PREFIX), self._settings.paths.workloads)
        found, search = self._workloads[name], self._settings.search
        where = choose(
            Choice(SIMULATOR, search.api, search.chip),
            backend=SIMULATOR,
            api=self._api or None,
            chip=self._chip or None,
            offered=found.baselines if not self._api else (),
            runs_on=found.chips,
        )
        return found, where.api, where.chip

    def _baseline(self, found: Workload, api: str, chip: str) -> Coroutine[Any, Any, Profile | None]:
        """Return the profile of a workload's baseline; None if the baseline does not pass. The baseline is evaluated
        only once.
        """

        async def ask() -> Profile | None:
            request = self._request(baseline_kernel(found, api), found, chip, Priority.BASELINE)
            gate = Gate.TIMING if self.gate is Gate.TIMING else Gate.SEARCH
            reported = await self._evaluator.evaluate(replace(request, gate=gate))
            return reported.profile if reported.status in (Status.PASSED, Status.UNTESTED) else None

        async def reported() -> Profile | None:
            key = (str(found.folder), api, chip)
            if key not in self._baselines:
                self._baselines[key] = asyncio.get_running_loop().create_task(ask())
            return await asyncio.shield(self._baselines[key])

        return reported()


def _scored(reported: Evaluation, baseline: Profile | None, *, timed: bool) -> Score:
    right = reported.status is Status.PASSED or (timed and reported.status is Status.UNTESTED)
    found = gain(baseline, reported.profile) if right else None
    reward = CHEAT if reported.status is Status.SUSPECT else worth(Status.PASSED if right else reported.status, found)
    failure = reported.failure
    return Score(
        reward=reward,
        status=str(reported.status),
        latency_us=reported.latency_us,
        baseline_latency_us=baseline.latency_us if right and baseline else None,
        speedup=found.ratio if found else None,
        improved=found is not None and found.improved,
        tie_band=found.band_percent if found else None,
        rule=failure.rule if failure else "",
        message=failure.message if failure else "",
        line=failure.line if failure else 0,
        evaluation=reported,
    )


def _kernel_text(answer: str, entry: str) -> tuple[str | None, str]:
    """Return the kernel's text in an answer and an empty text; or None and the reason why the answer has no
    kernel.

    An answer without a code block is the kernel itself.
    """
    if "```" not in answer and "~~~" not in answer and "def " in answer and "<think" not in answer:
        return answer, ""
    found = extract_kernel(answer, entry)
    return found.text, found.reason


def _text_of(completion: Any) -> str:
    """Return the text of a completion. A completion is a text, or a list of messages, whose last message has the text."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        return str(completion.get("content") or "")
    return _text_of(completion[-1]) if completion else ""


def advantages(rewards: Sequence[float | None], group: int, *, scale: bool = True) -> list[float]:
    """Return the advantage of each reward within its group, as GRPO does.

    The rewards of ``group`` answers to one prompt follow each other. From each reward the group's mean is
    subtracted, then it is divided by the group's standard deviation (not with ``scale=False``). Rewards that
    are None do not count, and get 0.
    """
    if group < 1 or len(rewards) % group:
        raise UsageError(
            f"{len(rewards)} rewards can not be divided into groups of {group}",
            hint=f"give a multiple of {max(group, 1)} rewards, or another group",
        )
    found: list[float] = []
    for start in range(0, len(rewards), group):
        part = rewards[start : start + group]
        known = [one for one in part if one is not None]
        mean = sum(known) / len(known) if known else 0.0
        deviation = (sum((one - mean) ** 2 for one in known) / len(known)) ** 0.5 if known else 0.0
        over = deviation if scale and deviation > 0 else 1.0
        found += [0.0 if one is None else (one - mean) / over for one in part]
    return found


# Functions in the form of verl.

_shared: dict[str, Scorer] = {}
_sharing = threading.Lock()


def _scorer() -> Scorer:
    """Return the one scorer of this process, for verl, which passes no scorer to its functions and calls them
    from threads.
    """
    with _sharing:
        if "all" not in _shared:
            _shared["all"] = Scorer(seed=0)
            atexit.register(_shared["all"].close)
        return _shared["all"]


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any = None, extra_info: Mapping[str, Any] | None = None, **_: Any
) -> float:
    """Return the reward of one answer, as verl asks for it. ``data_source`` is ``acceld/`` and the workload's
    name.
    """
    return compute_scores([data_source], [solution_str])[0]


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any] | None = None,
    extra_infos: Sequence[Any] | None = None,
    **_: Any,
) -> list[float]:
    """Return the rewards of a batch of answers, as verl asks for them. An evaluation that says nothing about
    the kernel gives 0.
    """
    return [one.reward or 0.0 for one in _scorer().score(list(solution_strs), [str(one) for one in data_sources])]


# An environment for rollouts of several steps.


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement in a kernel's text: ``old``, which must occur exactly once, becomes ``new``."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Observation:
    """State that an agent sees after a step: the current kernel, and the result of the step."""

    text: str
    latency_us: float | None
    score: Score | None


class Environment:
    """Environment for training agents: each step edits one kernel.

    After an edit that passes, the edited text is the current kernel. An edit that fails is undone, and its step
    gets the reward of a failed answer.
    """

    def __init__(self, scorer: Scorer, workload: str = "", *, most_steps: int = 16) -> None:
        self._scorer, self._name, self._most = scorer, workload, most_steps
        self._text, self._steps = "", 0
        self._latency_us: float | None = None
        self._worth = 0.0
        """Reward of the current kernel against the baseline."""

    def reset(self) -> Observation:
        """Start from the workload's baseline: it becomes the current kernel. Return its observation."""
        kernel, self._latency_us = self._scorer.baseline(self._name)
        self._text, self._steps, self._worth = kernel.text, 0, 0.0
        return Observation(self._text, self._latency_us, None)

    def step(self, action: str | Edit | Sequence[Edit]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Evaluate a new text or edits of the current kernel. Return observation, reward, terminated, truncated
        and info.

        A kernel's value is log2 of its speed-up over the baseline, 0 for a tie. The reward of a step that passes is the
        value of the new kernel minus the value of the former kernel. So the rewards of an episode without failures add
        up to the value of its last kernel.
        """
        if not self._text:
            raise UsageError("step() was called before reset()", hint="call reset() on the Environment first")
        self._steps += 1
        truncated = self._steps >= self._most
        text, wrong = _edited(self._text, action)
        if wrong:
            score = Score(NO_CODE, NO_CODE_STATUS, message=wrong)
        else:
            (score,) = self._scorer.score([text], [self._name] if self._name else None)
        reward = score.reward or 0.0
        if score.latency_us and score.speedup:
            worth = score.reward or 0.0
            reward, self._worth = worth - self._worth, worth
            self._text, self._latency_us = text, score.latency_us
        reported = Observation(self._text, self._latency_us, score)
        return (
            reported,
            reward,
            False,
            truncated,
            {"status": score.status, "speedup": score.speedup, "improved": score.improved},
        )


def _edited(text: str, action: str | Edit | Sequence[Edit]) -> tuple[str, str]:
    """Return (kernel's text after an action, why the action is invalid). For a valid action the second text is
    empty.
    """
    if isinstance(action, str):
        return action, ""
    for edit in [action] if isinstance(action, Edit) else action:
        if text.count(edit.old) != 1 or not edit.old:
            return text, f"an edit's old text stands {text.count(edit.old)} times in the kernel, not once"
        text = text.replace(edit.old, edit.new)
    return text, ""
