"""Trials run in order, two at a time where that is allowed."""

from __future__ import annotations

import asyncio

import pytest

from acceld.evaluate.correctness.gates import Trial, first_failure

TRIALS = [Trial(name, 0) for name in "abcde"]


class Attempts:
    """Answers trials from ``says``; remembers how many ran at the same time and which were cancelled."""

    def __init__(self, says: dict[str, str] | None = None, slow: str = "") -> None:
        self.says, self.slow = says or {}, slow
        self.running, self.most, self.started, self.cut = 0, 0, "", ""

    async def __call__(self, trial: Trial) -> str | None:
        self.started += trial.variant
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(30 if trial.variant in self.slow else 0.001 if trial.variant != "b" else 0.05)
        except asyncio.CancelledError:
            self.cut += trial.variant
            raise
        finally:
            self.running -= 1
        return self.says.get(trial.variant)


@pytest.mark.parametrize(("wide", "most"), [(False, 1), (True, 2)])
async def test_two_trials_run_at_once_only_where_that_is_allowed(wide: bool, most: int) -> None:
    attempts = Attempts()
    assert await first_failure(TRIALS, attempts, lambda: wide) is None
    assert (attempts.started, attempts.most) == ("abcde", most)


async def test_a_failure_ends_the_trials_that_run_beside_it() -> None:
    started, cut, third = "", "", asyncio.Event()

    async def attempt(trial: Trial) -> str | None:
        nonlocal started, cut
        started += trial.variant
        if trial.variant == "b":
            await third.wait()
            return "wrong"
        if trial.variant == "c":
            third.set()
            try:
                await asyncio.Event().wait()
            finally:
                cut += "c"
        return None

    assert await asyncio.wait_for(first_failure(TRIALS, attempt, lambda: True), 300) == "wrong"
    assert (started, cut) == ("abc", "c")


async def test_the_first_trial_in_order_decides() -> None:
    attempts = Attempts({"a": "first", "b": "second"})
    assert await first_failure(TRIALS, attempts, lambda: True) == "first"


async def test_cancelling_leaves_no_trial_running() -> None:
    attempts = Attempts(slow="ab")
    task = asyncio.create_task(first_failure(TRIALS, attempts, lambda: True))
    while attempts.running < 2:  # noqa: ASYNC110  a trial that begins sets no event
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (attempts.cut, attempts.running) == ("ab", 0)


async def test_a_long_trial_holds_up_no_other() -> None:
    others, release = list[str](), asyncio.Event()

    async def attempt(trial: Trial) -> str | None:
        if trial.variant == "a":
            await release.wait()
            return None
        others.append(trial.variant)
        if trial.variant == "e":
            release.set()
        return None

    assert await asyncio.wait_for(first_failure(TRIALS, attempt, lambda: True), 300) is None
    assert others == list("bcde")


async def test_after_a_failure_no_further_trial_begins_while_an_earlier_one_ends() -> None:
    release, started = asyncio.Event(), list[str]()

    async def attempt(trial: Trial) -> str | None:
        started.append(trial.variant)
        if trial.variant == "b":
            asyncio.get_running_loop().call_later(0.02, release.set)
            return "wrong"
        await release.wait()
        return None

    assert await first_failure(TRIALS, attempt, lambda: True) == "wrong"
    assert started == ["a", "b"]
