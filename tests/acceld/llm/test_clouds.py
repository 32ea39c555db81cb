"""Models that clouds serve: requests signed as AWS checks them, keys of Azure, tokens of Google, and OpenRouter."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web

from acceld.config import LlmConfig, ModelConfig
from acceld.errors import ConfigError
from acceld.llm.errors import LLMRefused
from acceld.llm.model import connect, connect_batches
from acceld.llm.settings import ModelSettings
from tests.acceld.llm.models import ask
from tests.acceld.llm.server import Reply, _chat_frames, _message, _messages_frames, whole

SECRET = "wJalrXUtnFEMI/EXAMPLEKEY"
TEXT = "an answer"


class Cloud:
    """Answers on every path; ``seen`` are requests, ``refused`` those whose signature is wrong."""

    def __init__(self, *, signed: bool = False, stream: bool = True) -> None:
        self.signed, self.stream, self.base_url = signed, stream, ""
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.refused = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append((request.path, headers, body))
        if self.signed and not genuine(request, raw):
            self.refused += 1
            return web.json_response({"message": "The request signature does not match"}, status=403)
        reply = Reply(TEXT, input_tokens=7)
        if "anthropic_version" in body:
            if not request.path.endswith("stream") and not body.get("stream"):
                return web.json_response(_message(reply, TEXT))
            if request.path.endswith("invoke-with-response-stream"):
                frames = [event(frame) for frame in _messages_frames(reply)]
                return web.Response(body=b"".join(frames), content_type="application/vnd.amazon.eventstream")
            return web.Response(body=b"".join(_messages_frames(reply)), content_type="text/event-stream")
        if body.get("stream"):
            return web.Response(body=b"".join(_chat_frames(reply)), content_type="text/event-stream")
        return web.json_response(whole("/v1/chat/completions", reply))


def genuine(request: web.Request, body: bytes) -> bool:
    """Return True if a request is signed with the secret, worked out as AWS documents it (Signature Version 4)."""
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return False
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    _, day, region, service, ending = parts["Credential"].split("/")
    path, _, query = request.raw_path.partition("?")
    names = parts["SignedHeaders"].split(";")
    lines = [f"{name}:{' '.join(request.headers[name].split())}\n" for name in names]
    canonical = "\n".join(
        [request.method, quote(path, safe="/~"), query, "".join(lines), parts["SignedHeaders"], sha256(body)]
    )
    scope = f"{day}/{region}/{service}/{ending}"
    text = f"{scheme}\n{request.headers['x-amz-date']}\n{scope}\n{sha256(canonical.encode())}"
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, service, ending):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), parts["Signature"])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def event(frame: bytes) -> bytes:
    """Return a server-sent event as AWS frames it: lengths, headers, payload and two checksums."""
    data = frame.decode().partition("data: ")[2].strip()
    payload = json.dumps({"bytes": base64.b64encode(data.encode()).decode()}).encode()
    headers = b""
    for name, value in ((":event-type", "chunk"), (":content-type", "application/json"), (":message-type", "event")):
        headers += (
            struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        )
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


@asynccontextmanager
async def cloud(**changes: bool) -> AsyncIterator[Cloud]:
    made = Cloud(**changes)
    app = web.Application()
    app.router.add_post("/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = site._server
    assert isinstance(server, asyncio.Server)
    made.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


def model(provider: str, environment: dict[str, str] | None = None, **section: Any) -> Any:
    config = ModelConfig(provider=provider, **section)
    return connect(ModelSettings.from_config("m", config, LlmConfig()), environment or {})


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Return an environment in which AWS's chain finds one pair of keys, and no credentials of this machine."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    from anthropic.lib.aws._auth import _get_session  # the SDK takes seconds to import

    _get_session.cache_clear()  # type: ignore[attr-defined]  # the SDK keeps what it found for another test
    return monkeypatch


CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"


@pytest.mark.parametrize("stream", [True, False])
async def test_bedrock_takes_what_the_aws_chain_signs(aws: pytest.MonkeyPatch, stream: bool) -> None:
    async with cloud(signed=True) as server:
        claude = model("bedrock", name=CLAUDE, base_url=server.base_url, stream=stream, thinking="adaptive")
        answer = await claude.complete(ask())
        await claude.close()
    assert (answer.text, answer.usage.input_tokens, server.refused) == (TEXT, 7, 0)
    path, headers, body = server.seen[0]
    assert CLAUDE in path and "/us-west-2/bedrock/" in headers["authorization"]
    assert body["thinking"] == {"type": "adaptive"} and body["system"][0]["text"] == "be brief"


async def test_bedrock_s_open_models_are_asked_by_chat(aws: pytest.MonkeyPatch) -> None:
    async with cloud(signed=True) as server:
        section: dict[str, Any] = {
            "name": "openai.gpt-oss-120b-1:0",
            "base_url": server.base_url,
            "protocol": "chat",
            "effort": "low",
        }
        gpt = model("bedrock", **section)
        answer = await gpt.complete(ask())
        await gpt.close()
    assert (answer.text, server.refused) == (TEXT, 0)
    assert server.seen[0][2]["reasoning_effort"] == "low"


async def test_a_wrong_secret_is_refused_and_nothing_is_sent_again(aws: pytest.MonkeyPatch) -> None:
    aws.setenv("AWS_SECRET_ACCESS_KEY", "another")
    async with cloud(signed=True) as server:
        claude = model("bedrock", name=CLAUDE, base_url=server.base_url)
        with pytest.raises(LLMRefused) as caught:
            await claude.complete(ask())
        await claude.close()
    assert (server.refused, len(server.seen), caught.value.exit_code) == (1, 1, 4)


async def test_a_chain_without_credentials_or_region_says_so(aws: pytest.MonkeyPatch) -> None:
    aws.delenv("AWS_REGION")
    with pytest.raises(LLMRefused, match="AWS finds no region") as caught:
        await model("bedrock", name=CLAUDE).complete(ask())
    assert "AWS_REGION" in caught.value.hint
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(LLMRefused, match="AWS finds no credentials"):
        await model("bedrock", name=CLAUDE, region="us-west-2").complete(ask())


async def test_azure_gets_its_key_deployment_and_version() -> None:
    async with cloud() as server:
        section: dict[str, Any] = {
            "name": "my-deployment",
            "base_url": server.base_url,
            "api_version": "2025-04-01-preview",
        }
        gpt = model("azure", {"AZURE_OPENAI_API_KEY": "az-key"}, **section)
        answer = await gpt.complete(ask())
        await gpt.close()
    path, headers, _ = server.seen[0]
    assert answer.text == TEXT and headers["api-key"] == "az-key"
    assert path == "/openai/deployments/my-deployment/chat/completions"
    with pytest.raises(ValueError, match="api_version"):
        model("azure", {"AZURE_OPENAI_API_KEY": "az-key"}, base_url=server.base_url)


async def test_azure_without_a_key_is_asked_with_a_token_of_entra_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The managed identity's endpoint is a server on loopback, as on a machine of Azure's App Service."""
    asked: list[tuple[str, str]] = []

    async def identity(request: web.Request) -> web.Response:
        asked.append((request.query["resource"], request.headers["X-IDENTITY-HEADER"]))
        if request.headers["X-IDENTITY-HEADER"] == "stranger":
            return web.json_response({"error": {"message": "no such identity"}}, status=400)
        return web.json_response({"access_token": "entra", "expires_on": "4102444800", "token_type": "Bearer"})

    app = web.Application()
    app.router.add_get("/token", identity)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{site.name}/token")
    section: dict[str, Any] = {"name": "my-deployment", "api_version": "2025-04-01-preview"}
    try:
        async with cloud() as server:
            monkeypatch.setenv("IDENTITY_HEADER", "machine")
            gpt = model("azure", {}, base_url=server.base_url, **section)
            answers = [(await gpt.complete(ask())).text for _ in range(2)]
            await gpt.close()
            monkeypatch.setenv("IDENTITY_HEADER", "stranger")
            lost = model("azure", {}, base_url=server.base_url, **section)
            with pytest.raises(LLMRefused, match="finds no credentials") as refused:
                await lost.complete(ask())
            await lost.close()
    finally:
        await runner.cleanup()
    assert (
        answers == [TEXT, TEXT] and [headers["authorization"] for _, headers, _ in server.seen] == ["Bearer entra"] * 2
    )
    assert asked[0] == ("https://cognitiveservices.azure.com", "machine"), "a token is kept until it expires"
    assert [header for _, header in asked].count("machine") == 1
    assert "AZURE_OPENAI_API_KEY" in (refused.value.hint or "")


async def test_vertex_sends_google_s_token_to_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    import google.auth.credentials

    class Token(google.auth.credentials.Credentials):
        def refresh(self, request: object) -> None:
            self.token = "ya29.token"

    monkeypatch.setattr("google.auth.default", lambda *_, **__: (Token(), "kernels"))  # type: ignore[no-untyped-call]
    async with cloud() as server:
        claude = model("vertex", name="claude-sonnet-4-5@20250929", base_url=server.base_url, region="us-east5")
        answer = await claude.complete(ask())
        await claude.close()
    path, headers, _ = server.seen[0]
    assert answer.text == TEXT and headers["authorization"] == "Bearer ya29.token"
    assert path.startswith("/projects/kernels/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5")


async def test_headers_and_further_entries_are_sent_as_configured() -> None:
    async with cloud() as server:
        section: dict[str, Any] = {"headers": ("X-Team: kernels",), "extra_body": '{"top_k": 40}', "stream": False}
        local = model("openai", base_url=f"{server.base_url}/v1", **section)
        await local.complete(ask())
        await local.close()
    _, headers, body = server.seen[0]
    assert headers["x-team"] == "kernels" and body["top_k"] == 40 and not body.get("stream")
    wrongs: list[dict[str, Any]] = [{"headers": ("kernels",)}, {"extra_body": "[1]"}, {"extra_body": "{"}]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            model("openai", base_url=server.base_url, **wrong)


def test_each_cloud_has_prices_of_its_own_and_no_other_s_key() -> None:
    def settings(provider: str, **section: Any) -> ModelSettings:
        return ModelSettings.from_config("m", ModelConfig(provider=provider, **section), LlmConfig())

    router = settings("openrouter", name="openai/gpt-oss-120b")
    assert router.base_url == "https://openrouter.ai/api/v1" and router.pricing_provider == "openrouter"
    with pytest.raises(LLMRefused, match="OPENROUTER_API_KEY"):
        router.key({"OPENAI_API_KEY": "sk-other"})
    assert settings("bedrock", base_url="http://127.0.0.1").pricing_provider == "aws"
    assert settings("vertex").pricing_provider == "google" and settings("bedrock").api == "messages"
    assert settings("openai", base_url="http://127.0.0.1").pricing_provider == ""
    with pytest.raises(ConfigError, match="batches of provider bedrock"):
        connect_batches(settings("bedrock"), None, {})  # type: ignore[arg-type]
