"""Full jitter, both forms of Retry-After, and requests that are never sent again."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.llm.errors import (
    LLMBadRequest,
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMRefused,
    LLMTimedOut,
    LLMUnavailable,
)
from acceld.llm.retry import RetryPolicy, retry_after_s, with_retries


@given(tries=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_a_wait_is_uniform_up_to_a_doubling_end(tries: int, seed: int) -> None:
    policy = RetryPolicy(base_s=1.0, cap_s=4.0)
    wait_s = policy.wait_s(tries, LLMUnavailable("down"), random.Random(seed))
    assert wait_s is not None and 0.0 <= wait_s <= min(4.0, 2.0 ** (tries - 1))


def test_waits_of_callers_that_failed_together_differ() -> None:
    policy, rng = RetryPolicy(), random.Random(1)
    waits = {policy.wait_s(3, LLMUnavailable("down"), rng) for _ in range(50)}
    assert len(waits) == 50


def test_retry_after_in_seconds_as_a_date_and_in_milliseconds() -> None:
    now = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=90), usegmt=True)
    assert retry_after_s({"Retry-After": "7"}, now) == 7.0
    assert retry_after_s({"retry-after": date}, now) == 90.0
    assert retry_after_s({"retry-after-ms": "1500", "retry-after": "9"}, now) == 1.5
    assert retry_after_s({"retry-after": format_datetime(now - timedelta(days=1), usegmt=True)}, now) == 0.0
    assert retry_after_s({"retry-after": "soon"}, now) is None
    assert retry_after_s({}, now) is None


def test_retry_after_as_a_date_is_compared_with_the_date_of_the_answer_not_with_a_wrong_clock() -> None:
    sent = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
    headers = {"Date": format_datetime(sent, usegmt=True)}
    headers["Retry-After"] = format_datetime(sent + timedelta(seconds=90), usegmt=True)
    for hours in (-5, 0, 5):
        assert retry_after_s(headers, sent + timedelta(hours=hours)) == 90.0


def test_retry_after_is_a_lower_bound_and_an_absurd_one_ends_the_call() -> None:
    policy, rng = RetryPolicy(base_s=1.0), random.Random(2)
    wait_s = policy.wait_s(1, LLMRateLimited("slow", retry_after_s=20.0), rng)
    assert wait_s is not None and 20.0 <= wait_s <= 21.0
    assert policy.wait_s(1, LLMRateLimited("slow", retry_after_s=3600.0), rng) is None


class Flaky:
    """Fails with each error in turn, then answers."""

    def __init__(self, *failures: LLMError) -> None:
        self.failures = list(failures)
        self.requests = 0

    async def __call__(self) -> str:
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


async def no_wait(_: float) -> None:
    return


async def test_passing_faults_are_ridden_out() -> None:
    flaky = Flaky(LLMUnavailable("down"), LLMRateLimited("slow"), LLMTimedOut("late", deadline="connect_s"))
    assert await with_retries(flaky, RetryPolicy(), rng=random.Random(0), sleep=no_wait) == ("answer", 4)


@pytest.mark.parametrize(
    "error",
    [
        LLMRefused("401"),
        LLMBadRequest("400"),
        LLMInterrupted("broke off", partial="def"),
        LLMUnavailable("down", partial="def"),
        LLMTimedOut("late", deadline="total_s"),
    ],
)
async def test_exactly_one_request_where_another_would_be_wrong(error: LLMError) -> None:
    flaky = Flaky(error)
    with pytest.raises(type(error)):
        await with_retries(flaky, RetryPolicy(), rng=random.Random(0), sleep=no_wait)
    assert flaky.requests == 1


async def test_tries_end_and_are_counted() -> None:
    flaky = Flaky(*(LLMUnavailable("down") for _ in range(10)))
    with pytest.raises(LLMUnavailable) as caught:
        await with_retries(flaky, RetryPolicy(max_tries=4), rng=random.Random(0), sleep=no_wait)
    assert flaky.requests == caught.value.tries == 4


async def test_deadlines_are_not_ridden_out_for_ever() -> None:
    flaky = Flaky(*(LLMTimedOut("late", deadline="first_token_s") for _ in range(10)))
    with pytest.raises(LLMTimedOut):
        await with_retries(flaky, RetryPolicy(), rng=random.Random(0), sleep=no_wait)
    assert flaky.requests == 2
