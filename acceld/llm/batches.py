"""A provider's batch mode as a client: requests gather for a moment, go out together, and are answered within a day.

Cheaper than single calls, and slower. What was sent is written down before it is waited for: which questions, then the
provider's id of the batch. A daemon killed at any point asks the provider for the batch that it finds in the journal
before it sends a question again, so no batch is bought twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import uuid4

from acceld.llm.client import Completion, CompletionRequest
from acceld.llm.errors import LLMError, LLMTimedOut, LLMUnavailable
from acceld.llm.retry import RetryPolicy, with_retries

DEADLINE_S = 26 * 3600.0
"""Providers end a batch after 24 hours, finished or not."""

MOST = 10_000
"""Requests in one batch; OpenAI takes 50,000, Anthropic 100,000."""

FUZZ_S = 60.0
"""Allowed difference of the provider's clock and ours."""


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch whose answers have not all been written down."""

    token: str
    """Our own name of it."""
    keys: tuple[str, ...]
    """The questions, as :func:`acceld.llm.ledger.question_key` names them."""
    began_at: float
    """Seconds since the epoch."""
    batch: str = ""
    """The provider's id; empty if it may or may not have been sent."""


class BatchJournal(Protocol):
    """Record of batches. Every write is durable when it returns."""

    async def open_batches(self, model: str) -> list[OpenBatch]:
        """Return the batches of a model whose answers have not all been written down."""
        ...

    async def begin(self, model: str, batch: OpenBatch) -> None:
        """A batch is about to be sent."""
        ...

    async def sent(self, token: str, batch: str) -> None:
        """Record that the batch was sent; ``batch`` is its id at the provider."""
        ...

    async def collected(self, token: str) -> None:
        """All its answers are stored; it may be forgotten."""
        ...


class BatchProvider(Protocol):
    """One model's batch mode. Raises LLMError and never an SDK's own errors."""

    async def send(self, token: str, requests: Mapping[str, CompletionRequest]) -> str:
        """Send requests by their keys; the provider's id of the batch."""
        ...

    async def find(self, batch: OpenBatch, since: float) -> str | None:
        """Return the provider's id of a batch that was perhaps sent since a time (epoch seconds); None if it was
        not.
        """
        ...

    async def answers(self, batch: str) -> Mapping[str, Mapping[str, Any]] | None:
        """Raw answers by key once the batch has ended; None before."""
        ...

    def read(self, request: CompletionRequest, raw: Mapping[str, Any]) -> Completion:
        """Return the completion in a raw answer. :raises LLMError: where it holds none."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class MemoryJournal:
    """A journal in memory, for tests and demonstrations."""

    def __init__(self) -> None:
        self.batches: dict[str, tuple[str, OpenBatch]] = {}

    async def open_batches(self, model: str) -> list[OpenBatch]:
        """Return the batches of a model."""
        return [batch for name, batch in self.batches.values() if name == model]

    async def begin(self, model: str, batch: OpenBatch) -> None:
        """Keep it."""
        self.batches[batch.token] = (model, batch)

    async def sent(self, token: str, batch: str) -> None:
        """Keep the id."""
        model, known = self.batches[token]
        self.batches[token] = (model, replace(known, batch=batch))

    async def collected(self, token: str) -> None:
        """Forget it."""
        del self.batches[token]


@dataclass(slots=True, eq=False)
class _Followed:
    """A batch that was sent, and the requests that wait for it."""

    known: OpenBatch
    waiting: set[str]
    """Keys whose answers have not been written down."""
    finding: asyncio.Lock = field(default_factory=asyncio.Lock)
    answers: asyncio.Task[Mapping[str, Mapping[str, Any]]] | None = None


@dataclass(slots=True)
class _Gathering:
    """Requests that go out together."""

    requests: dict[str, CompletionRequest] = field(default_factory=dict)
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    failure: LLMError | None = None


class Batcher:
    """One model's batch mode. A request waits for its batch to end; :meth:`settled` says that its answer is safe."""

    def __init__(
        self,
        model: str,
        provider: BatchProvider,
        journal: BatchJournal,
        *,
        quiet_s: float = 10.0,
        poll_s: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A batch goes out after ``quiet_s`` without a further request; its end is asked for every ``poll_s``."""
        self._model = model
        self._provider = provider
        self._journal = journal
        self._quiet_s = quiet_s
        self._poll_s = poll_s
        self._retry = retry or RetryPolicy()
        self._sleep = sleep
        self._rng = random.Random()
        self._followed: dict[str, _Followed] | None = None
        self._loading = asyncio.Lock()
        self._gathering: _Gathering | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def complete(self, request: CompletionRequest, key: str) -> Completion:
        """Return the answer to one question, from a batch that is under way or from the next one.

        :raises LLMError: the batch could not be sent or ended without this answer.
        """
        while True:
            followed = (await self._known()).get(key)
            if followed is None:
                await self._gather(request, key)
                continue
            started_s = time.monotonic()
            raw = await self._answers(followed)
            if raw is None:  # the provider never got it
                continue
            if key not in raw:
                raise LLMUnavailable(
                    f"model {self._model!r}: batch {followed.known.batch} holds no answer to a request"
                )
            return replace(self._provider.read(request, raw[key]), latency_s=time.monotonic() - started_s)

    def holds(self, key: str) -> bool:
        """Return True if a question is in a batch that was or may have been sent: its answer can be fetched later."""
        return self._followed is not None and key in self._followed

    async def settled(self, key: str) -> None:
        """The outcome of a question has been written down."""
        followed = (self._followed or {}).pop(key, None)
        if followed is None:
            return
        followed.waiting.discard(key)
        if not followed.waiting:
            await self._journal.collected(followed.known.token)

    async def close(self) -> None:
        """Stop waiting and close connections; what was sent can be fetched by the next daemon."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._provider.close()

    async def _known(self) -> dict[str, _Followed]:
        """Return batches under way by question; the first time, those that an earlier daemon left."""
        async with self._loading:
            if self._followed is None:
                self._followed = {}
                for batch in await self._journal.open_batches(self._model):
                    self._follow(batch)
            return self._followed

    def _follow(self, batch: OpenBatch) -> None:
        assert self._followed is not None
        followed = _Followed(batch, set(batch.keys))
        self._followed |= dict.fromkeys(batch.keys, followed)

    async def _gather(self, request: CompletionRequest, key: str) -> None:
        """Join the batch that goes out next; returns once it was sent."""
        gathering = self._gathering
        if gathering is None or len(gathering.requests) >= MOST:
            gathering = self._gathering = _Gathering()
            self._start(self._send_soon(gathering))
        gathering.requests[key] = request
        try:
            await gathering.sent.wait()
        except asyncio.CancelledError:
            gathering.requests.pop(key, None)
            raise
        if gathering.failure is not None:
            raise gathering.failure

    async def _send_soon(self, gathering: _Gathering) -> None:
        count = -1
        while count != len(gathering.requests):
            count = len(gathering.requests)
            await self._sleep(self._quiet_s)
        if gathering is self._gathering:
            self._gathering = None
        try:
            if gathering.requests:
                await self._send(dict(gathering.requests))
        except LLMError as error:
            gathering.failure = error
        finally:
            gathering.sent.set()

    async def _send(self, requests: Mapping[str, CompletionRequest]) -> None:
        batch = OpenBatch(uuid4().hex, tuple(requests), time.time())
        await self._journal.begin(self._model, batch)
        tries = 0

        async def send() -> str:
            nonlocal tries
            tries += 1
            found = await self._provider.find(batch, batch.began_at - FUZZ_S) if tries > 1 else None
            return found or await self._provider.send(batch.token, requests)

        try:
            number, _ = await with_retries(send, self._retry, rng=self._rng, sleep=self._sleep)
        except LLMError:
            await self._journal.collected(batch.token)
            raise
        await self._journal.sent(batch.token, number)
        self._follow(replace(batch, batch=number))

    async def _answers(self, followed: _Followed) -> Mapping[str, Mapping[str, Any]] | None:
        """Return the raw answers of a batch once it has ended; None if the provider never got it."""
        if followed.answers is None:
            if not followed.known.batch and not await self._found(followed):
                return None
            if followed.answers is None:
                followed.answers = self._start(self._wait(followed.known))
        return await asyncio.shield(followed.answers)

    async def _found(self, followed: _Followed) -> bool:
        """Look for a batch of which nobody knows whether it was sent."""
        batch = followed.known
        async with followed.finding:
            if followed.known.batch:
                return True
            known = await self._known()
            if followed not in known.values():
                return False
            number, _ = await with_retries(
                lambda: self._provider.find(batch, batch.began_at - FUZZ_S),
                self._retry,
                rng=self._rng,
                sleep=self._sleep,
            )
            if number is not None:
                await self._journal.sent(batch.token, number)
                followed.known = replace(batch, batch=number)
                return True
            for key in batch.keys:
                known.pop(key, None)
            await self._journal.collected(batch.token)
            return False

    async def _wait(self, batch: OpenBatch) -> Mapping[str, Mapping[str, Any]]:
        """Ask until the batch has ended; a provider that stumbles is asked again."""
        while True:
            try:
                found = await self._provider.answers(batch.batch)
            except LLMError as error:
                if not error.may_be_retried:
                    raise
                found = None
            if found is not None:
                return found
            if time.time() - batch.began_at > DEADLINE_S:
                raise LLMTimedOut(
                    f"model {self._model!r}: batch {batch.batch} did not end in a day", deadline="total_s"
                )
            await self._sleep(self._poll_s)

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it has it too
