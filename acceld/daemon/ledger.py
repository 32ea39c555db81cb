"""Store model calls and batches for the call layer."""

from __future__ import annotations

from collections.abc import Mapping

from acceld.llm.batches import OpenBatch
from acceld.llm.client import Completion, Usage
from acceld.llm.ledger import CallIntent, CallOutcome
from acceld.store.changes.calls import (
    CallResult,
    NewCall,
    batch_collected,
    batch_sent,
    begin_batch,
    begin_call,
    call_sent,
    end_call,
    open_batches,
)
from acceld.store.database import Store
from acceld.store.reads.records import stored_answer


class StoreLedger:
    """Record model calls in the store. Implements :class:`acceld.llm.ledger.Ledger`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def answer(self, key: str) -> Completion | None:
        """Return the stored answer to an identical request; None if no answer is stored."""
        stored = await self._store.read(stored_answer, key)
        if stored is None:
            return None
        return Completion(
            stored.answer,
            stored.answered_by,
            Usage(
                input_tokens=stored.tokens["input_tokens"],
                cached_tokens=stored.tokens["cached_tokens"],
                cache_written_tokens=stored.tokens["cache_written_tokens"],
                output_tokens=stored.tokens["output_tokens"],
                reasoning_tokens=stored.tokens["reasoning_tokens"],
            ),
            request_id=stored.request_id,
            finish_reason=stored.finish_reason,
            reasoning=stored.reasoning,
            latency_s=stored.latency_s,
        )

    async def intend(self, intent: CallIntent) -> int:
        """Store a call that is about to be made, and return the call's id."""
        return await self._store.change(
            begin_call,
            NewCall(
                key=intent.key,
                role=intent.role,
                model=intent.model,
                provider=intent.provider,
                prompt_sha256=intent.prompt_sha256,
                system=intent.system,
                user=intent.user,
                reserved_usd=intent.reserved_usd,
                expected_usd=intent.expected_usd,
                run=_number(intent.tags, "run"),
                iteration=_number(intent.tags, "iteration") or 0,
                parent=_number(intent.tags, "parent"),
                plan=_number(intent.tags, "plan"),
                attempt=_number(intent.tags, "attempt"),
                parameters={"max_output_tokens": intent.max_output_tokens, "tags": dict(intent.tags)},
            ),
        )

    async def sent(self, call: int) -> None:
        """Record that the call's first request is sent now."""
        await self._store.change(call_sent, call)

    async def settle(self, call: int, outcome: CallOutcome) -> None:
        """Store the outcome of a call: its answer or error, tokens and cost."""
        usage = outcome.usage
        await self._store.change(
            end_call,
            call,
            CallResult(
                outcome=outcome.outcome,
                tokens={
                    "input_tokens": usage.input_tokens,
                    "cached_tokens": usage.cached_tokens,
                    "cache_written_tokens": usage.cache_written_tokens,
                    "output_tokens": usage.output_tokens,
                    "reasoning_tokens": usage.reasoning_tokens,
                },
                cost_usd=outcome.cost_usd,
                uncertain_usd=outcome.uncertain_usd,
                price=outcome.price.as_dict() if outcome.price else None,
                answer=outcome.text,
                reasoning=outcome.reasoning,
                answered_by=outcome.answered_by,
                request_id=outcome.request_id,
                finish_reason=outcome.finish_reason,
                first_token_s=outcome.first_token_s,
                latency_s=outcome.latency_s,
                retries=outcome.retries,
                error=outcome.error,
                estimated=usage.estimated,
            ),
        )


class StoreJournal:
    """Record batches of model calls in the store. Implements :class:`acceld.llm.batches.BatchJournal`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open_batches(self, model: str) -> list[OpenBatch]:
        """Return the batches of a model whose calls have not all been answered."""
        found = await self._store.read(open_batches, model)
        return [OpenBatch(one.token, one.keys, one.began_at, one.batch) for one in found]

    async def begin(self, model: str, batch: OpenBatch) -> None:
        """Record a batch that is about to be sent."""
        await self._store.change(begin_batch, model, batch.token, batch.keys, batch.began_at)

    async def sent(self, token: str, batch: str) -> None:
        """Record that the batch with a token was sent. ``batch`` is the provider's id of the batch."""
        await self._store.change(batch_sent, token, batch)

    async def collected(self, token: str) -> None:
        """Forget a batch whose answers are all stored."""
        await self._store.change(batch_collected, token)


def _number(tags: Mapping[str, int | str], name: str) -> int | None:
    value = tags.get(name)
    return value if isinstance(value, int) else None
