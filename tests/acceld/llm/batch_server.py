"""Serve the batch endpoints of both providers, with the batches in memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

Whole = Callable[[str, dict[str, Any]], dict[str, Any]]
"""The whole answer to a body sent to a path, or ``{"refused": STATUS, ...}``."""


@dataclass
class Shelved:
    """One batch."""

    id: str
    requests: list[tuple[str, str, dict[str, Any]]]
    """Custom id, path, body."""
    metadata: dict[str, str]
    created_at: float = field(default_factory=time.time)
    asked: int = 0


@dataclass
class Shelf:
    """Batches that end after ``polls`` requests for their state, once ``open`` is set."""

    whole: Whole
    polls: int = 1
    open: asyncio.Event = field(default_factory=asyncio.Event)
    batches: dict[str, Shelved] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    unreadable: bool = False
    """True if every batch fails because of its first line."""
    touched: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the first request."""
    lose_replies: int = 0
    """Number of batches that are started although the answer to the client is lost."""

    def __post_init__(self) -> None:
        self.open.set()

    @property
    def bought(self) -> list[str]:
        """Return the custom id of every request that was paid for."""
        return [custom for batch in self.batches.values() for custom, _, _ in batch.requests]

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/batches/{id}", self._retrieve)
        app.router.add_post("/v1/messages/batches", self._create_messages)
        app.router.add_get("/v1/messages/batches", self._list_messages)
        app.router.add_get("/v1/messages/batches/{id}", self._retrieve_messages)
        app.router.add_get("/v1/messages/batches/{id}/results", self._results)

    def _shelve(self, requests: list[tuple[str, str, dict[str, Any]]], metadata: dict[str, str]) -> Shelved:
        batch = Shelved(f"batch_{len(self.batches) + 1}", requests, metadata)
        self.batches[batch.id] = batch
        return batch

    def _lost(self, request: web.Request) -> bool:
        if self.lose_replies <= 0:
            return False
        self.lose_replies -= 1
        assert request.transport is not None
        request.transport.abort()
        return True

    def _ended(self, batch: Shelved) -> bool:
        self.touched.set()
        batch.asked += 1
        return self.open.is_set() and batch.asked > self.polls

    async def _upload(self, request: web.Request) -> web.Response:
        self.touched.set()
        form = await request.post()
        assert form["purpose"] == "batch"
        upload = form["file"]
        assert isinstance(upload, web.FileField)
        number = f"file_{len(self.files) + 1}"
        self.files[number] = upload.file.read().decode()
        about = {"id": number, "object": "file", "bytes": 1, "created_at": 1, "filename": "f", "purpose": "batch"}
        return web.json_response(about | {"status": "processed"})

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(text=self.files[request.match_info["id"]])

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].split("\n") if line]
        assert all(line["url"] == body["endpoint"] and line["method"] == "POST" for line in lines)
        batch = self._shelve([(one["custom_id"], one["url"], one["body"]) for one in lines], body.get("metadata") or {})
        return web.Response() if self._lost(request) else web.json_response(self._about(batch, "validating"))

    async def _list(self, request: web.Request) -> web.Response:
        found = [self._about(one, "in_progress") for one in reversed(self.batches.values())]
        return web.json_response({"object": "list", "data": found, "has_more": False})

    async def _retrieve(self, request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        if not self._ended(batch):
            return web.json_response(self._about(batch, "in_progress"))
        if self.unreadable:
            problem = {"code": "invalid", "message": "line 1 is no request", "line": 1, "param": None}
            errors = {"object": "list", "data": [problem]}
            return web.json_response(self._about(batch, "failed") | {"errors": errors})
        good: list[str] = []
        bad: list[str] = []
        for custom, path, body in batch.requests:
            whole = self.whole(path, body)
            refused = whole.get("refused")
            response = {"status_code": refused or 200, "request_id": "req_1", "body": whole}
            line = json.dumps(
                {"id": f"r_{custom}", "custom_id": custom, "response": response, "error": None}, ensure_ascii=False
            )
            (bad if refused else good).append(line)
        about = self._about(batch, "completed")
        for name, lines in (("output", good), ("error", bad)):
            if lines:
                self.files[f"{batch.id}_{name}"] = "\n".join(lines)
                about[f"{name}_file_id"] = f"{batch.id}_{name}"
        return web.json_response(about)

    def _about(self, batch: Shelved, status: str) -> dict[str, Any]:
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.requests[0][1],
            "input_file_id": "file_1",
            "completion_window": "24h",
            "status": status,
            "created_at": int(batch.created_at),
            "metadata": batch.metadata,
        }

    async def _create_messages(self, request: web.Request) -> web.Response:
        body = await request.json()
        batch = self._shelve([(one["custom_id"], "/v1/messages", one["params"]) for one in body["requests"]], {})
        return web.Response() if self._lost(request) else web.json_response(self._about_messages(request, batch, False))

    async def _list_messages(self, request: web.Request) -> web.Response:
        found = [self._about_messages(request, one, False) for one in reversed(self.batches.values())]
        return web.json_response({"data": found, "has_more": False, "first_id": None, "last_id": None})

    async def _retrieve_messages(self, request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        return web.json_response(self._about_messages(request, batch, self._ended(batch)))

    async def _results(self, request: web.Request) -> web.Response:
        lines = []
        for custom, path, body in self.batches[request.match_info["id"]].requests:
            whole = self.whole(path, body)
            if whole.get("refused"):
                error = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
                result: dict[str, Any] = {"type": "errored", "error": error}
            else:
                result = {"type": "succeeded", "message": whole}
            lines.append(json.dumps({"custom_id": custom, "result": result}, ensure_ascii=False))
        return web.Response(text="\n".join(lines), content_type="application/x-jsonl")

    def _about_messages(self, request: web.Request, batch: Shelved, ended: bool) -> dict[str, Any]:
        created = datetime.fromtimestamp(batch.created_at, UTC).isoformat()
        size = len(batch.requests)
        counts = {"processing": 0 if ended else size, "succeeded": size if ended else 0}
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts | {"errored": 0, "canceled": 0, "expired": 0},
            "created_at": created,
            "expires_at": created,
            "results_url": f"http://{request.host}/v1/messages/batches/{batch.id}/results" if ended else None,
        }
