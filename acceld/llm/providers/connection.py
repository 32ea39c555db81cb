"""Connect one model through an official SDK. The SDK is loaded at first use, and its errors become LLMError."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, TypeVar

from acceld.llm.answer import finished, may_go_on
from acceld.llm.client import Completion, CompletionRequest, Received
from acceld.llm.deadlines import DeadlineWatch
from acceld.llm.errors import (
    LLMEmpty,
    LLMError,
    LLMInterrupted,
    LLMRateLimited,
    LLMRefused,
    LLMUnavailable,
    LLMUnsupportedParameter,
)
from acceld.llm.providers.translation import translate
from acceld.llm.settings import NO_KEY, ModelSettings
from acceld.llm.usage import used

T = TypeVar("T")


class SdkClient(ABC):
    """Base class of the clients of all SDKs; :meth:`once` sends one request.

    The SDKs' objects have the type ``Any``, because each provider has its own classes with the same methods.
    """

    errors: ClassVar[Mapping[str, type[LLMError]]]
    """The SDK's exceptions, by class name."""
    optional: ClassVar[Mapping[str, str]]
    """Settings that may be left out if the endpoint refuses them: acceld's name of each setting, by its name in
    refusals.
    """

    def __init__(self, settings: ModelSettings, environment: Mapping[str, str] | None = None) -> None:
        """Prepare the client.

        Raise LLMRefused if a key is needed and missing.
        """
        self.settings = settings
        self.key = settings.key(environment)
        self._client: Any = None
        self._credential: Any = None
        self._connecting = asyncio.Lock()
        self.refused: set[str] = set()

    @abstractmethod
    def load(self, common: dict[str, Any]) -> Any:
        """Import the SDK and return its client with the options ``common``. Importing takes seconds, so this method
        runs in a thread.
        """

    @abstractmethod
    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return the JSON body of one request, without the streaming flag."""

    @abstractmethod
    def answer(self) -> Received:
        """Return an empty record for an answer that will arrive."""

    @abstractmethod
    def pieces(self, client: Any, request: CompletionRequest, answer: Any) -> AsyncGenerator[str | None]:
        """Send the request, fill ``answer``, and yield the visible text of each event: "" for reasoning, None for a
        keep-alive.
        """

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the answer to one request. If the endpoint refuses an optional setting, send the request again
        without it. Raise LLMError, and never the SDK's own errors.
        """
        return await self.accepted(lambda: self.once(request))

    async def accepted(self, send: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``send``, which sends a request. If the endpoint refuses an optional setting, leave
        the setting out and call ``send`` again.
        """
        while True:
            sent_without = len(self.refused)
            try:
                return await send()
            except LLMUnsupportedParameter as error:
                if len(self.refused) == sent_without:  # otherwise another call has just left the setting out
                    self.refuse(error.parameter)
                if len(self.refused) == sent_without:
                    raise

    def refuse(self, parameter: str) -> None:
        """Leave the refused setting out of all later requests, if it is optional."""
        if (name := self.optional.get(parameter.split(".")[0])) is not None:
            self.refused.add(name)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Return the names of the settings that the endpoint refused. Later requests leave them out."""
        return tuple(sorted(self.refused))

    async def once(self, request: CompletionRequest) -> Completion:
        """Send one request once, and return the answer. Raise LLMError, and never the SDK's own errors."""
        client = await self.sdk()
        answer = self.answer()
        if request.progress is not None:
            await request.progress.sending(answer)
        async with DeadlineWatch(self.settings.deadlines, self.settings.name, streamed=self.settings.stream) as watch:
            try:
                async with aclosing(self.pieces(client, request, answer)) as pieces:
                    async for visible in pieces:
                        if visible is not None:
                            watch.piece(visible)
                        if not may_go_on(request, answer):
                            answer.stopped = "length"
                            break
            except LLMError as error:
                error.partial = error.partial or watch.text
                error.started = watch.started
                error.sent = error.sent or isinstance(error, LLMEmpty)
                if watch.started and isinstance(error, LLMEmpty | LLMUnavailable | LLMRateLimited):
                    raise _interrupted(error) from error
                raise
            except Exception as error:  # the errors of SDKs have no common class; an unknown error is raised again
                name = self.settings.name
                known = translate(error, self.errors, name, partial=watch.text, started=watch.started, secret=self.key)
                if known is None:
                    raise
                if isinstance(known, LLMRefused) and (variable := self.settings.key_variable):
                    known.hint = (
                        f"export {variable}=... with a key that may use this model, then acceld restart; acceld resume continues a "
                        "run that paused for this."
                    )
                known.usage = None if answer.usage is None else used(request, answer)
                raise known from error
        return finished(request, watch, self.settings.name, answer)

    async def close(self) -> None:
        """Close the connections to the model's endpoint."""
        if self._client is not None:
            await self._client.close()
            self._client = None
        if self._credential is not None:
            await asyncio.to_thread(self._credential.close)
            self._credential = None

    async def sdk(self) -> Any:
        """Return the SDK's client, loaded when it is first needed."""
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._load)
            return self._client

    def _load(self) -> Any:
        import httpx2

        common: dict[str, Any] = {
            "base_url": self.settings.base_url,
            "max_retries": 0,
            "timeout": httpx2.Timeout(None, connect=self.settings.deadlines.connect_s),
        }
        if self.settings.headers:
            common["default_headers"] = dict(self.settings.headers)
        try:
            return self.load(common)
        except ImportError as error:
            provider = self.settings.provider
            extra = {"foundry": "azure", "mantle": "bedrock", "claude_aws": "bedrock"}.get(provider, provider)
            raise LLMRefused(
                f"model {self.settings.name!r}: provider {provider} needs {error.name}",
                hint=f"pip install 'acceld[{extra}]'",
            ) from error

    def aws(self) -> dict[str, Any]:
        """Return the region, profile or key for Amazon Bedrock. AWS's own chain of sources finds the credentials.

        Raise LLMRefused if the chain finds no credentials, or no region.
        """
        import boto3

        settings = self.settings
        try:
            session = boto3.Session(profile_name=settings.profile or None)
            region = settings.region or os.environ.get("AWS_REGION") or session.region_name
            found = self.key != NO_KEY or session.get_credentials() is not None
        except Exception as error:  # botocore's errors have no stable common class
            raise LLMRefused(
                f"model {settings.name!r}: AWS credentials: {error}",
                hint="aws sts get-caller-identity shows whether the credentials work",
            ) from error
        if not region or not found:
            raise LLMRefused(
                f"model {settings.name!r}: AWS finds no {'credentials' if region else 'region'}",
                hint="An instance role, `aws configure`, AWS_PROFILE or AWS_ACCESS_KEY_ID give credentials; region in "
                f"[models.{settings.name}] or AWS_REGION the region.",
            )
        if self.key != NO_KEY:
            return {"aws_region": region, "api_key": self.key}
        return {"aws_region": region, **({"aws_profile": settings.profile} if settings.profile else {})}

    def azure(self) -> dict[str, Any]:
        """Return the key for Azure, or the function that gets tokens from Microsoft Entra ID. Without a key, Azure's
        own chain of sources finds the identity: environment variables, a workload or managed identity, ``az login``.
        """
        if self.key != NO_KEY:
            return {"api_key": self.key}
        from azure.core.exceptions import ClientAuthenticationError
        from azure.identity import DefaultAzureCredential, get_bearer_token_provider

        self._credential = DefaultAzureCredential()
        current = get_bearer_token_provider(self._credential, "https://cognitiveservices.azure.com/.default")
        name = self.settings.name

        async def token() -> str:
            try:
                return str(await asyncio.to_thread(current))
            except ClientAuthenticationError as error:
                raise LLMRefused(
                    f"model {name!r}: Azure finds no credentials: {error.message.splitlines()[0]}",
                    hint="export AZURE_OPENAI_API_KEY=... before `acceld start`, or a managed identity, or `az login`.",
                ) from error

        return {"azure_ad_token_provider": token}

    def google(self) -> dict[str, Any]:
        """Return project, region and credentials for Vertex AI. Google's own chain of sources finds these three.

        Raise LLMRefused if the chain finds no credentials, or no project.
        """
        import google.auth
        from google.auth.exceptions import GoogleAuthError

        settings = self.settings
        try:
            credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        except GoogleAuthError as error:
            raise LLMRefused(
                f"model {settings.name!r}: Google finds no credentials: {error}",
                hint="gcloud auth application-default login, or a service account in GOOGLE_APPLICATION_CREDENTIALS.",
            ) from error
        if not (settings.project or project):
            raise LLMRefused(
                f"model {settings.name!r}: Google names no project", hint=f"Set project in [models.{settings.name}]."
            )
        region = settings.region or os.environ.get("CLOUD_ML_REGION") or "global"
        return {"project_id": settings.project or project, "region": region, "credentials": credentials}


def _interrupted(error: LLMError) -> LLMInterrupted:
    """Return a temporary fault of the provider as an LLMInterrupted, because an answer had begun to arrive."""
    broken = LLMInterrupted(error.message, request_id=error.request_id, partial=error.partial)
    broken.started, broken.usage = error.started, error.usage
    return broken
