"""A model client that uses a provider's batch mode: requests are collected, sent together, and answered within a day.

Batches are cheaper than single calls, and slower. Before the client waits, it stores the batch's questions in a
journal, and then the id that the provider gave the batch. If the daemon is killed, the next daemon finds the batch in
the journal, and asks the provider for that batch before sending a question again. So no batch is paid for twice.
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
from acceld.model_calls import OpenBatch

ENDS_S = 24 * 3600.0
"""Seconds after which providers end a batch, finished or not."""
DEADLINE_S = ENDS_S + 2 * 3600.0
"""Longest wait in seconds for a batch."""

MOST = 10_000
"""Limit on requests in one batch. OpenAI takes 50,000, Anthropic 100,000."""

FUZZ_S = 60.0
"""Allowed difference in seconds between the provider's clock and the clock of this machine."""


class BatchJournal(Protocol):
    """Interface of the stored record of batches. Every write is durable when it returns."""

    async def open_batches(self, model: str) -> list[OpenBatch]:
        """Return the batches of a model whose answers are not all stored."""
        ...

    async def begin(self, model: str, batch: OpenBatch) -> None:
        """Record a batch that is about to be sent."""
        ...

    async def sent(self, token: str, batch: str) -> None:
        """Record that the batch was sent; ``batch`` is the provider's id of the batch."""
        ...

    async def collected(self, token: str) -> None:
        """Close a batch: all its answers are stored, or it never reached the provider."""
        ...


class BatchProvider(Protocol):
    """Interface of one model's batch mode. Its methods raise LLMError, never an SDK's own errors."""

    async def send(self, token: str, requests: Mapping[str, CompletionRequest]) -> str:
        """Send ``requests``, a mapping from keys to requests, as one batch. Return the provider's id of the batch."""
        ...

    async def find(self, batch: OpenBatch, since: float) -> str | None:
        """Return the provider's id of a batch that may have been sent since a time (epoch seconds); None if the
        provider has no such batch.
        """
        ...

    async def answers(self, batch: str) -> Mapping[str, Mapping[str, Any]] | None:
        """Return the raw answers by key; None while the batch still runs."""
        ...

    def read(self, request: CompletionRequest, raw: Mapping[str, Any]) -> Completion:
        """Return the completion in a raw answer. Raise LLMError if the answer holds no completion."""
        ...

    async def close(self) -> None:
        """Close the connections to the model's endpoint."""
        ...


@dataclass(slots=True, eq=False)
class _Followed:
    """A batch that was sent, and the requests that wait for it."""

    known: OpenBatch
    waiting: set[str]
    """Keys of the questions whose answers are not stored yet."""
    finding: asyncio.Lock = field(default_factory=asyncio.Lock)
    answers: asyncio.Task[Mapping[str, Mapping[str, Any]]] | None = None


@dataclass(slots=True)
class _Gathering:
    """The requests that are being collected for the next batch."""

    requests: dict[str, CompletionRequest] = field(default_factory=dict)
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    failure: LLMError | None = None


class Batcher:
    """Use one model's batch mode. A request waits for its batch to end. The caller then calls :meth:`settled` once the
    answer is stored.
    """

    def __init__(
        self,
        model: str,
        provider: BatchProvider,
        journal: BatchJournal,
        *,
        quiet_s: float,
        poll_s: float,
        retry: RetryPolicy,
    ) -> None:
        """Prepare the client. The client sends a batch ``quiet_s`` seconds after the batch's last request, and asks
        every ``poll_s`` seconds whether a batch has ended.
        """
        self._model = model
        self._provider = provider
        self._journal = journal
        self._quiet_s = quiet_s
        self._poll_s = poll_s
        self._retry = retry
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._rng = random.Random()
        self._followed: dict[str, _Followed] | None = None
        self._loading = asyncio.Lock()
        self._gathering: _Gathering | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def complete(self, request: CompletionRequest, key: str) -> Completion:
        """Return the answer to one question. If a batch that was sent has the question, wait for that batch; else put
        the question into the next batch.

        Raise LLMError if the batch could not be sent, or ended without this answer.
        """
        while True:
            followed = (await self._known()).get(key)
            if followed is None:
                await self._gather(request, key)
                continue
            started_s = time.monotonic()
            raw = await self._answers(followed)
            if raw is None:  # the provider never received the batch
                continue
            if key not in raw:
                raise LLMUnavailable(
                    f"model {self._model!r}: batch {followed.known.batch} has ended without an answer to one of its requests",
                    hint="resume the run: the question is asked again",
                )
            return replace(self._provider.read(request, raw[key]), latency_s=time.monotonic() - started_s)

    def holds(self, key: str) -> bool:
        """Return True if a batch that was or may have been sent has the question, so that its answer can be fetched
        later.
        """
        return self._followed is not None and key in self._followed

    async def settled(self, key: str) -> None:
        """Record that the answer to a question, or its failure, is stored."""
        followed = (self._followed or {}).pop(key, None)
        if followed is None:
            return
        followed.waiting.discard(key)
        if not followed.waiting:
            await self._journal.collected(followed.known.token)

    async def close(self) -> None:
        """Stop waiting and close connections. The next daemon can fetch the answers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._provider.close()

    async def _known(self) -> dict[str, _Followed]:
        """Return the running batch of each question by its key. The first call reads the batches of earlier daemons
        from the journal.
        """
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
        """Add a request to the next batch, and return once that batch is sent."""
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
        """Return the raw answers of a batch once it has ended; None if the provider never received the batch."""
        if followed.answers is None:
            if not followed.known.batch and not await self._found(followed):
                return None
            if followed.answers is None:
                followed.answers = self._start(self._wait(followed.known))
        return await asyncio.shield(followed.answers)

    async def _found(self, followed: _Followed) -> bool:
        """Ask the provider for a batch that may have been sent. Return True if the provider has the batch."""
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
        """Wait for the end of a batch, and return its raw answers. After an error of the provider, go on asking.

        The clock of this machine only says how old the batch is at the first question, and counts for at most
        ``ENDS_S``. So a clock that is set forward ends no wait for a batch that was paid for.
        """
        age_s, asked_at = min(max(0.0, time.time() - batch.began_at), ENDS_S), time.monotonic()
        while True:
            try:
                found = await self._provider.answers(batch.batch)
            except LLMError as error:
                if not error.may_be_retried:
                    raise
                found = None
            if found is not None:
                return found
            if age_s + time.monotonic() - asked_at > DEADLINE_S:
                raise LLMTimedOut(
                    f"model {self._model!r}: batch {batch.batch} did not end in a day",
                    deadline="total_s",
                    hint="resume the run, or set batch = false in acceld.toml",
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
            task.exception()  # the waiting requests get the error too
