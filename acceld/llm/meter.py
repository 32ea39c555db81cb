"""Count the tokens of one call over all its requests, so that its exact cost is stored.

A call may take several requests: a request that missed its deadline is sent again, and both requests may be billed. The
client reports each request before it is sent, together with the record that the answer will fill. The ledger stores the
sum.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from acceld.llm.client import CompletionRequest, Received
from acceld.llm.errors import LLMError, LLMTimedOut
from acceld.llm.usage import estimated_usage, most_output_tokens, unseen_usage, used
from acceld.model_calls import Usage


class Meter:
    """Count the requests of one call and their tokens.

    ``on_send`` is called before each request with the number of earlier requests. ``on_longer`` is called with the
    number of tokens that an answer may need beyond those for which money is set aside, and returns False if there is no
    money for more.
    """

    STEPS = 8
    """Parts of the limit on an answer, by which money is set aside for an answer that passes the limit."""

    def __init__(
        self,
        request: CompletionRequest,
        on_send: Callable[[int], Awaitable[None]] | None = None,
        on_longer: Callable[[int], bool] | None = None,
    ) -> None:
        self.request = request
        self._most = self._afforded = most_output_tokens(request)
        self._on_longer = on_longer
        self.sent = 0
        """Number of requests sent."""
        self._on_send = on_send
        self.booked = False
        """True if the failure of the newest request has been counted."""
        self._answer: Received | None = None
        self._lost = Usage()

    async def sending(self, answer: Received) -> None:
        """Count a request that is about to be sent. The client fills ``answer`` as pieces arrive.

        Raise BudgetError if there is no money for a further request.
        """
        if self._on_send is not None:
            await self._on_send(self.sent)
        self.sent += 1
        self._answer, self.booked = answer, False
        self._afforded = self._most

    def affords(self, tokens: int) -> bool:
        """Return True if there is money for an answer of ``tokens`` tokens.

        Money is set aside ahead of the answer, by a sixteenth of the limit at a time. So money for a piece of the
        answer is set aside before the piece arrives.
        """
        step = max(1, self.request.max_output_tokens // self.STEPS)
        while self._on_longer is not None and tokens + step // 2 > self._afforded:
            if not self._on_longer(step):
                return False
            self._afforded += step
        return True

    def failed(self, error: Exception) -> None:
        """Count the last request as failed. The client may send another request."""
        if isinstance(error, LLMError):
            self._lost = _sum(self._lost, self._of_failed(error))
        self._answer, self.booked = None, True

    def cut_off(self) -> Usage:
        """Return the tokens of a call whose last request was given up before its end."""
        answer = self._answer
        if answer is None:
            return self._lost
        if answer.begun or answer.usage is not None:
            return _sum(self._lost, used(self.request, answer))
        unseen = unseen_usage(self.request)
        most = unseen.output_tokens + unseen.uncertain_output_tokens
        return _sum(self._lost, replace(unseen, output_tokens=0, uncertain_output_tokens=most))

    def answered(self, usage: Usage) -> Usage:
        """Return the tokens of a call whose last request was answered; ``usage`` are the tokens of that request."""
        return _sum(self._lost, usage)

    @property
    def lost(self) -> Usage:
        """Return the tokens that failed requests used."""
        return self._lost

    def _of_failed(self, error: LLMError) -> Usage:
        """Return the tokens of a failed request: as the provider reported them, else estimated from the pieces that
        arrived.

        If nothing arrived before a deadline, the provider may still have made an answer. Then an answer of usual length
        is counted, and the difference to the longest possible answer counts as uncertain.
        """
        answer = self._answer or Received()
        if error.usage is not None:
            return error.usage
        if answer.usage is not None:
            return used(self.request, answer)
        if answer.begun or error.started:
            return self._estimate(answer, error.partial)
        if isinstance(error, LLMTimedOut) and error.deadline != "connect_s":
            return unseen_usage(self.request)
        return estimated_usage(self.request, "") if error.sent else Usage()

    def _estimate(self, answer: Received, partial: str = "") -> Usage:
        seen = "".join((*answer.reasoning, "".join(answer.text) or partial))
        return replace(estimated_usage(self.request, seen), tier=answer.tier)


def _sum(one: Usage, other: Usage) -> Usage:
    if one == Usage():
        return other
    return Usage(
        one.input_tokens + other.input_tokens,
        one.cached_tokens + other.cached_tokens,
        one.cache_written_tokens + other.cache_written_tokens,
        one.output_tokens + other.output_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
        one.estimated or other.estimated,
        one.uncertain_output_tokens + other.uncertain_output_tokens,
        one.tier if one.tier == other.tier else "",
    )
