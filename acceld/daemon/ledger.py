"""Store model calls and batches in the history, for :mod:`acceld.llm`."""

from __future__ import annotations

from acceld.model_calls import CallIntent, CallOutcome, OpenBatch
from acceld.store.changes.calls import (
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

    async def answer(self, key: str) -> CallOutcome | None:
        """Return the stored answer to an identical request; None if no answer is stored."""
        return await self._store.read(stored_answer, key)

    async def intend(self, intent: CallIntent) -> int:
        """Store a call that is about to be made, and return the call's id."""
        return await self._store.change(begin_call, intent)

    async def sent(self, call: int) -> None:
        """Record that the call's first request is about to be sent."""
        await self._store.change(call_sent, call)

    async def settle(self, call: int, outcome: CallOutcome) -> None:
        """Store the outcome of a call: its answer or error, tokens and cost."""
        await self._store.change(end_call, call, outcome)


class StoreJournal:
    """Record batches of model calls in the store. Implements :class:`acceld.llm.batches.BatchJournal`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def open_batches(self, model: str) -> list[OpenBatch]:
        """Return the batches of a model whose calls have not all been answered."""
        return await self._store.read(open_batches, model)

    async def begin(self, model: str, batch: OpenBatch) -> None:
        """Record a batch that is about to be sent."""
        await self._store.change(begin_batch, model, batch)

    async def sent(self, token: str, batch: str) -> None:
        """Record that the batch with a token was sent. ``batch`` is the provider's id of the batch."""
        await self._store.change(batch_sent, token, batch)

    async def collected(self, token: str) -> None:
        """Close a batch: all its calls have outcomes, or it never reached the provider."""
        await self._store.change(batch_collected, token)
