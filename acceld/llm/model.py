"""Call one model through its provider's client, with one limiter, one circuit breaker and one layer of retries."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from acceld import plugins
from acceld.errors import ConfigError
from acceld.llm.batches import Batcher, BatchJournal, BatchProvider
from acceld.llm.breaker import Breaker
from acceld.llm.client import Completion, CompletionRequest, LLMClient
from acceld.llm.errors import LLMContextTooLong, LLMError, LLMRateLimited
from acceld.llm.limits import Limiter
from acceld.llm.providers.anthropic import AnthropicClient
from acceld.llm.providers.anthropic_batches import AnthropicBatches
from acceld.llm.providers.openai import OpenAIClient
from acceld.llm.providers.openai_batches import OpenAIBatches
from acceld.llm.retry import with_retries
from acceld.llm.settings import ModelSettings
from acceld.llm.usage import OVERHEAD_TOKENS, estimated_tokens

LONG_S = 5.0
"""Waits of at least this many seconds, before a request is sent again, are reported to the run."""


class Model:
    """A model that answers requests despite temporary faults of its provider."""

    on_wait: Callable[[int, str], Awaitable[object]] | None = None
    """Function that is called with a run's id and a text when the run's calls begin to wait for :data:`LONG_S` or
    longer because the provider fails. The function is called again only after an answer has come.
    """

    def __init__(self, settings: ModelSettings, client: LLMClient) -> None:
        self.settings = settings
        self.limiter = Limiter(settings.limits)
        self.breaker = Breaker(settings.name, settings.breaker, now=time.monotonic)
        self._client = client
        self._rng = random.Random()
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._told: set[int] = set()

    @property
    def dropped(self) -> tuple[str, ...]:
        """Return the names of the settings that the endpoint refused. Later requests leave them out."""
        return getattr(self._client, "dropped", ())

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the answer to a request. ``retries`` of the answer is the number of requests that failed before.

        Raise LLMError, the last failure, if no request was answered; its ``tries`` is the number of requests.
        """
        prompt_tokens = estimated_tokens(request.system) + estimated_tokens(request.user) + OVERHEAD_TOKENS
        if prompt_tokens + request.max_output_tokens > self.settings.context_tokens:
            raise LLMContextTooLong(
                f"model {self.settings.name!r}: about {prompt_tokens} tokens of prompt and "
                f"{request.max_output_tokens} of answer do not fit {self.settings.context_tokens}",
                hint="Use a model with a longer context or lower max_output_tokens.",
            )

        async def on_wait(error: LLMError, wait_s: float) -> None:
            if isinstance(error, LLMRateLimited):
                self.limiter.pause(wait_s)
            await self._tell(request, error, wait_s)

        completion, tries = await with_retries(
            lambda: self._once(request, prompt_tokens + request.max_output_tokens),
            self.settings.retry,
            rng=self._rng,
            sleep=self._sleep,
            on_wait=on_wait,
        )
        return replace(completion, retries=tries - 1)

    async def close(self) -> None:
        """Close the connections to the model's endpoint."""
        await self._client.close()

    async def _once(self, request: CompletionRequest, tokens: int) -> Completion:
        owner = str(request.tags.get("run", ""))
        while True:
            if self.breaker.state != "closed" and self.breaker.last is not None:
                await self._tell(request, self.breaker.last, self.breaker.wait_s())
            probe = await self.breaker.enter()
            try:
                async with self.limiter.slot(tokens, owner) as slot:
                    if not probe and self.breaker.state != "closed":
                        slot.settle(0)
                        continue  # the circuit breaker opened while this call waited for its slot
                    completion = await self._client.complete(request)
                    slot.settle(completion.usage.input_tokens + completion.usage.output_tokens)
            except LLMError as error:
                if request.progress is not None:
                    request.progress.failed(error)
                self.breaker.failed(error, probe)
                raise
            except (
                BaseException
            ):  # the call was cancelled, or acceld has a defect: neither says anything about the model
                self.breaker.abandoned(probe)
                raise
            self.breaker.succeeded()
            self._told.clear()
            return completion

    async def _tell(self, request: CompletionRequest, error: LLMError, wait_s: float) -> None:
        """Tell a run why its calls wait, and for how long, if the wait is long and the run has not been told."""
        run = request.tags.get("run")
        if self.on_wait is None or not isinstance(run, int) or run in self._told or wait_s < LONG_S:
            return
        self._told.add(run)
        await self.on_wait(run, f"{error.message}; the model is asked again in {wait_s:.0f} s")


def connect_batches(
    settings: ModelSettings,
    journal: BatchJournal,
    environment: Mapping[str, str] | None = None,
    *,
    quiet_s: float = 10.0,
    poll_s: float = 30.0,
) -> Batcher:
    """Return the client for the batch mode of a model. No connection is made yet.

    Raise LLMRefused if the environment variable of the model's key is not set.
    """
    provider: BatchProvider
    if settings.provider not in ("openai", "anthropic"):
        raise ConfigError(
            f"model {settings.name!r}: batches of provider {settings.provider} are not supported",
            hint="set batch = false in the section of its role",
        )
    if settings.provider == "anthropic":
        provider = AnthropicBatches(AnthropicClient(settings, environment), poll_s=poll_s)
    else:
        provider = OpenAIBatches(OpenAIClient(settings, environment))
    return Batcher(settings.name, provider, journal, quiet_s=quiet_s, poll_s=poll_s, retry=settings.retry)


def counter(settings: ModelSettings, environment: Mapping[str, str] | None = None) -> AnthropicClient | None:
    """Return a client that counts a prompt's tokens free of charge; None without a key, or if the provider may charge for
    counting. Anthropic's documentation says that counting is free, OpenAI's does not.
    """
    environment = os.environ if environment is None else environment
    if settings.provider != "anthropic" or not environment.get(settings.key_variable):
        return None
    return AnthropicClient(settings, environment)


def connect(settings: ModelSettings, environment: Mapping[str, str] | None = None) -> Model:
    """Return the model that ``settings`` describe. No connection is made yet.

    Raise LLMRefused if the environment variable of the model's key is not set.
    """
    for plugin in plugins.accepted("acceld.providers", lambda value: "" if callable(value) else "it can not be called"):
        if plugin.name == settings.provider:
            return Model(settings, plugin.value(settings, environment))
    client = AnthropicClient if settings.api == "messages" else OpenAIClient
    return Model(settings, client(settings, environment))
