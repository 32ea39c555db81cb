"""Make paid calls, so that no money is spent above a cap and no answer is paid for twice.

The order of one call: look for a stored answer, reserve the worst case in the budget, store the intent, send the
request, store the outcome, book the cost, return the answer. A daemon that is killed in between loses at most the
running calls, and asks no stored question again. Calls in a batch are not lost: they stay open until the batch's
answers are fetched.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol

from acceld.errors import BudgetError, ConfigError, nearest_of
from acceld.llm.batches import Batcher
from acceld.llm.client import Completion, CompletionRequest, LLMClient, Role
from acceld.llm.errors import LLMError
from acceld.llm.ledger import Ledger, prompt_sha256, question_key
from acceld.llm.meter import Meter
from acceld.llm.pricing import FREE, Price, PriceBook
from acceld.llm.settings import ModelSettings
from acceld.llm.usage import ObservedLengths, most_input_tokens, most_output_tokens, unseen_usage
from acceld.model_calls import CallIntent, CallOutcome, Usage


class RoleBudgetError(BudgetError):
    """Raised when a role has used up its share of the run's budget. The run may continue."""


class Reservation(Protocol):
    """Money set aside in the budget for one call."""

    def settle(self, cost_usd: Decimal | None) -> None:
        """Book the call's cost in place of the reserved amount; None books an unknown cost."""
        ...

    def grow(self, more_usd: Decimal) -> bool:
        """Set more money aside for the call. Return False, and set nothing aside, if a cap would be exceeded."""
        ...


class Purse(Protocol):
    """Interface of the budget from which money is reserved. The daemon uses :class:`acceld.search.budget.Budget`."""

    async def reserve(self, run: int | None, worst_usd: Decimal | None, role: str = "") -> Reservation:
        """Reserve the most that a call can cost. Wait as long as other calls may still return parts of their
        reservations.

        Raise RoleBudgetError if the role's own cap would be exceeded.
        Raise BudgetError if another cap would be exceeded, or if the price is unknown and there is a cap.
        """
        ...


class Calls:
    """Offer all models of a daemon as one client, and record every call. ``model`` of a request is the name in
    acceld.toml.
    """

    def __init__(
        self,
        models: Mapping[str, tuple[ModelSettings, LLMClient]],
        *,
        ledger: Ledger,
        purse: Purse,
        batchers: Mapping[str, Batcher] | None = None,
    ) -> None:
        """Prepare the client. ``batchers`` has the batch modes by model, for requests that ask for batch mode."""
        self._models = dict(models)
        self._batchers = dict(batchers or {})
        self._ledger = ledger
        self._purse = purse
        self._prices = PriceBook()
        self._observed: defaultdict[tuple[str, Role], ObservedLengths] = defaultdict(ObservedLengths)

    def price(self, name: str, input_tokens: int = 0, tier: str | None = None) -> Price | None:
        """Return the price of a call to one model, as :meth:`ModelSettings.price_in`; None if the price is unknown."""
        settings, _ = self._model(name)
        return settings.price_in(self._prices, input_tokens, tier)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the answer to one request. The answer is stored before this returns.

        Raise BudgetError if there is no money for the call; nothing was sent then.
        Raise LLMError if the call failed; the failure is stored.
        """
        settings, client = self._model(request.model)
        batcher = self._batchers.get(request.model) if request.batch else None
        key = question_key(request)
        stored = await self._ledger.answer(key)
        if stored is not None:
            return _completion(stored)
        if settings.price is None and settings.pricing_provider:
            await asyncio.to_thread(self._prices.prepare)
        most = most_input_tokens(request)
        price, usual = self._price(request, most, ""), self._price(request, most)
        observed = self._observed[request.model, request.role]
        request = replace(request, lengths=observed.lengths)
        worst = None if price is None else price.worst_cost_usd(most, most_output_tokens(request))
        tag = request.tags.get("run")
        run = tag if isinstance(tag, int) else None
        reservation: Reservation | None = await self._purse.reserve(run, worst, request.role)
        spent: Decimal | None = Decimal(0)  # the greatest amount that the call may have cost, with its uncertain part
        booked = Decimal(0)
        try:
            call = await self._ledger.intend(
                CallIntent(
                    key=key,
                    role=request.role,
                    model=request.model,
                    provider=settings.pricing_provider or settings.provider,
                    prompt_sha256=prompt_sha256(request),
                    system=request.system,
                    user=request.user,
                    max_output_tokens=request.max_output_tokens,
                    reserved_usd=None if worst is None else float(worst),
                    expected_usd=None if usual is None else float(usual.cost_usd(unseen_usage(request))),
                    tags=request.tags,
                )
            )

            async def on_send(before: int) -> None:
                """Count the earlier request, which failed but may be billed, and reserve money for the next request."""
                nonlocal reservation, booked
                if not before:
                    await self._ledger.sent(call)
                    return
                lost = self._charge(request, meter.lost).most
                if reservation is not None:
                    reservation.settle(None if lost is None else lost - booked)
                reservation, booked = None, lost or Decimal(0)
                reservation = await self._purse.reserve(run, worst, request.role)

            def on_longer(tokens: int) -> bool:
                """Set money aside for an answer that is longer than the request allows."""
                return price is None or reservation is None or reservation.grow(price.worst_cost_usd(0, tokens))

            meter = Meter(request, on_send, on_longer)
            request = replace(request, progress=meter)
            spent = worst  # until the outcome is known, the worst case is assumed
            started_s = time.monotonic()
            try:
                completion = await (batcher.complete(request, key) if batcher else client.complete(request))
            except (LLMError, BudgetError) as error:
                charge = self._charge(request, self._of_failure(meter, error))
                spent = charge.most
                await self._ledger.settle(call, _failure(error, charge, time.monotonic() - started_s))
                if batcher is not None:
                    await batcher.settled(key)
                raise
            except asyncio.CancelledError:
                if batcher is not None and batcher.holds(key):
                    raise  # the batch was sent: the call stays open, and the next daemon fetches its answer
                charge = self._charge(request, meter.cut_off())
                spent = charge.most
                outcome = charge.outcome("cancelled", latency_s=time.monotonic() - started_s)
                await _finish(self._ledger.settle(call, outcome))
                raise
            observed.add(request, completion)
            completion = replace(completion, usage=meter.answered(completion.usage))
            charge = self._charge(request, completion.usage)
            spent = charge.most
            await _finish(self._ledger.settle(call, _success(completion, charge)))
            if batcher is not None:
                await _finish(batcher.settled(key))
            return completion
        finally:
            if reservation is not None:
                reservation.settle(None if spent is None else spent - booked)

    async def close(self) -> None:
        """Close all connections."""
        for batcher in self._batchers.values():
            await batcher.close()
        for _, client in self._models.values():
            await client.close()

    def _model(self, name: str) -> tuple[ModelSettings, LLMClient]:
        if name not in self._models:
            raise ConfigError(f"there is no model {name!r}", hint=nearest_of(name, self._models))
        return self._models[name]

    @staticmethod
    def _of_failure(meter: Meter, error: LLMError | BudgetError) -> Usage:
        """Return the tokens of a failed call. The tokens of its last request are included, even if the client did not
        report that request.
        """
        if isinstance(error, LLMError) and not meter.booked:
            meter.failed(error)
        return meter.lost

    def _price(self, request: CompletionRequest, input_tokens: int = 0, tier: str | None = None) -> Price | None:
        price = self.price(request.model, input_tokens, tier)
        return price.batched() if price is not None and request.batch else price

    def _charge(self, request: CompletionRequest, usage: Usage) -> _Charge:
        """Return the tokens that a call used, with their price."""
        if usage == Usage():
            return _Charge(usage, self._price(request) or FREE)
        return _Charge(usage, self._price(request, usage.input_tokens, usage.tier))


@dataclass(frozen=True, slots=True)
class _Charge:
    """The tokens that a call used, with their price; the price is None if it is unknown."""

    usage: Usage
    price: Price | None

    @property
    def most(self) -> Decimal | None:
        """Return the greatest amount in USD that the call may have cost; None if the price is unknown."""
        return None if self.price is None else self.price.cost_usd(self.usage) + self.price.uncertain_usd(self.usage)

    def outcome(self, outcome: str, **fields: Any) -> CallOutcome:
        """Return the call's outcome with this charge. ``fields`` are further fields of the outcome."""
        usage, price = self.usage, self.price
        if price is None:
            return CallOutcome(outcome, usage, **fields)
        cost, uncertain = float(price.cost_usd(usage)), float(price.uncertain_usd(usage))
        return CallOutcome(outcome, usage, cost, price.as_dict(), uncertain, **fields)


async def _finish(write: Awaitable[None]) -> None:
    """Wait for a write to finish, even if the caller is cancelled meanwhile, because the write records a cost."""
    task = asyncio.ensure_future(write)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _completion(stored: CallOutcome) -> Completion:
    return Completion(
        stored.text,
        stored.answered_by,
        stored.usage,
        request_id=stored.request_id,
        finish_reason=stored.finish_reason,
        reasoning=stored.reasoning,
        latency_s=stored.latency_s,
        is_stored=True,
    )


def _success(completion: Completion, charge: _Charge) -> CallOutcome:
    return charge.outcome(
        "answered",
        text=completion.text,
        reasoning=completion.reasoning,
        answered_by=completion.model,
        request_id=completion.request_id,
        finish_reason=completion.finish_reason,
        first_token_s=completion.first_token_s,
        latency_s=completion.latency_s,
        retries=completion.retries,
    )


def _failure(error: LLMError | BudgetError, charge: _Charge, latency_s: float) -> CallOutcome:
    outcome = charge.outcome("unpaid", latency_s=latency_s, error=error.message)
    if isinstance(error, LLMError):
        request_id = error.request_id or ""
        outcome = replace(
            outcome, outcome=error.outcome, text=error.partial, request_id=request_id, retries=error.tries - 1
        )
    return outcome
