"""Builders of requests, settings and models for tests."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from acceld.llm.breaker import BreakerSettings
from acceld.llm.client import CompletionRequest
from acceld.llm.model import Model, connect
from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import Api, Deadlines, ModelSettings
from tests.acceld.llm.server import ScriptedServer

APIS: tuple[Api, ...] = ("chat", "responses", "messages")

QUICK = Deadlines(connect_s=2.0, first_token_s=0.3, idle_s=0.3, total_s=1.0)


def ask(system: str = "be brief", user: str = "say hello", **changes: Any) -> CompletionRequest:
    """Return a small request to the model ``m``."""
    request = CompletionRequest("planner", "m", system, user, 100, tags={"run": 1})
    return replace(request, **changes)


def settings_for(server: ScriptedServer, api: Api = "chat", **changes: Any) -> ModelSettings:
    """Return the settings of the model ``m``, served by ``server``."""
    base_url = server.base_url.removesuffix("/v1") if api == "messages" else server.base_url
    provider: Any = "anthropic" if api == "messages" else "openai"
    patient = BreakerSettings(failures_to_open=1000)
    settings = ModelSettings(
        "m", "served-model", provider, api, base_url=base_url, breaker=patient, retry=RetryPolicy(base_s=0.01)
    )
    return replace(settings, **changes)


def model_for(server: ScriptedServer, api: Api = "chat", **changes: Any) -> Model:
    """Return the model ``m``, which does not wait between tries."""
    model = connect(settings_for(server, api, **changes), {})
    model._sleep = yield_once
    model._rng = random.Random(0)
    return model


async def yield_once(_: float) -> None:
    """Sleep without taking time."""
    await asyncio.sleep(0)
