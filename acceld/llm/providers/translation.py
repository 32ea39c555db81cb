"""Translate the SDKs' exceptions into :mod:`acceld.llm.errors`, by tables from class names to errors.

The names of an exception's class and its base classes are looked up, the most specific first. So no SDK is imported
for the tables, and a subclass that an SDK adds later gets the error of its base class.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from acceld.llm.errors import (
    LLMBadRequest,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMEmpty,
    LLMError,
    LLMInterrupted,
    LLMQuotaExceeded,
    LLMRateLimited,
    LLMRefused,
    LLMTimedOut,
    LLMUnavailable,
    LLMUnknownModel,
    LLMUnsupportedParameter,
)
from acceld.llm.retry import retry_after_s

T = TypeVar("T")

MESSAGE_CHARS = 500

LINE_BYTES = 8 << 20
"""Greatest length of a line of an answer. The SDKs keep a line in memory until it ends, and a server may never end it."""

TRANSPORT: Mapping[str, type[LLMError]] = {
    "ConnectTimeout": LLMTimedOut,
    "PoolTimeout": LLMTimedOut,
    "TimeoutException": LLMTimedOut,
    "TransportError": LLMUnavailable,
    "RequestError": LLMUnavailable,
    "StreamError": LLMUnavailable,
    "DecodingError": LLMEmpty,
    "TooManyRedirects": LLMBadRequest,
    "InvalidURL": LLMBadRequest,
    "JSONDecodeError": LLMEmpty,
    "UnicodeDecodeError": LLMEmpty,
    "ValidationError": LLMEmpty,
}
"""Errors of the HTTP library and of the decoders below an SDK, by class name."""

OPENAI: Mapping[str, type[LLMError]] = {
    "APIStatusError": LLMBadRequest,
    "APITimeoutError": LLMTimedOut,
    "APIConnectionError": LLMUnavailable,
    "APIResponseValidationError": LLMEmpty,
    "APIError": LLMUnavailable,
    "LengthFinishReasonError": LLMEmpty,
    "ContentFilterFinishReasonError": LLMContentFiltered,
    "OpenAIError": LLMRefused,
}
"""Errors of OpenAI's SDK by class name. Status and body refine ``APIStatusError``. An ``OpenAIError`` itself, not a
subclass, is about the key.
"""

ANTHROPIC: Mapping[str, type[LLMError]] = {
    "APIStatusError": LLMBadRequest,
    "APITimeoutError": LLMTimedOut,
    "APIConnectionError": LLMUnavailable,
    "APIResponseValidationError": LLMEmpty,
    "APIError": LLMUnavailable,
    "PaymentRequiredError": LLMQuotaExceeded,
    "ContractSpendLimitReachedError": LLMQuotaExceeded,
    "EnforcedSpendLimitReachedError": LLMQuotaExceeded,
    "CredentialsError": LLMRefused,
    "WorkloadIdentityError": LLMRefused,
    "RetryableError": LLMUnavailable,
    "AnthropicError": LLMRefused,
}

STATUS: Mapping[int, type[LLMError]] = {
    401: LLMRefused,
    402: LLMQuotaExceeded,
    403: LLMRefused,
    404: LLMUnknownModel,
    408: LLMUnavailable,
    409: LLMUnavailable,
    425: LLMUnavailable,
    429: LLMRateLimited,
    499: LLMUnavailable,
}
"""Errors by HTTP status. Any other 4xx is a bad request; 5xx (529 too) is unavailable."""

BODY_CODE: Mapping[str, type[LLMError]] = {
    "insufficient_quota": LLMQuotaExceeded,
    "billing_error": LLMQuotaExceeded,
    "billing_hard_limit_reached": LLMQuotaExceeded,
    "context_length_exceeded": LLMContextTooLong,
    "exceed_context_size_error": LLMContextTooLong,
    "string_above_max_length": LLMContextTooLong,
    "request_too_large": LLMContextTooLong,
    "model_not_found": LLMUnknownModel,
    "content_filter": LLMContentFiltered,
    "content_policy_violation": LLMContentFiltered,
    "invalid_api_key": LLMRefused,
    "authentication_error": LLMRefused,
    "permission_error": LLMRefused,
    "rate_limit_exceeded": LLMRateLimited,
    "rate_limit_error": LLMRateLimited,
    "overloaded_error": LLMUnavailable,
    "api_error": LLMUnavailable,
    "server_error": LLMUnavailable,
    "timeout_error": LLMUnavailable,
}
"""Codes and types in error bodies, which are more specific than the status."""

_CONTEXT = re.compile(
    r"context (length|size|window)|maximum context|prompt is too long|too many (input )?tokens", re.IGNORECASE
)
_CREDIT = re.compile(
    r"credit balance|(out of|no|insufficient|not enough) (credit|fund|balance)s?\b|specified API usage limits",
    re.IGNORECASE,
)
"""Words for an account without money, which some providers send with the code of an invalid request or of a rate limit."""
_PARAMETER = re.compile(
    r"unsupported|not support|not permitted|not allowed|deprecated|unrecognized|unknown (parameter|field|argument)|extra inputs",
    re.IGNORECASE,
)

HINTS: Mapping[type[LLMError], str] = {
    LLMRefused: "Check the key and what it is allowed to do; nothing is sent again with this key.",
    LLMQuotaExceeded: "Add credit or raise the account's limit, then resume the run.",
    LLMUnknownModel: "Check the model's name and base_url.",
    LLMContextTooLong: "Use a model with a longer context or lower max_output_tokens.",
}

_LIMIT = re.compile(r"\bmax(_completion|_output)?_tokens\b|maximum (allowed )?number of output tokens", re.IGNORECASE)
"""Words for an answer's limit that is higher than the model's own."""

LIMIT_HINT = "Lower max_output_tokens in the role's section, such as [llm.executor]."
WEB_PAGE = "a web page came instead of an answer"
PLACE_HINT = "Check base_url, and that the server answers there."


def translate(
    error: BaseException,
    table: Mapping[str, type[LLMError]],
    model: str,
    *,
    partial: str = "",
    started: bool = False,
    secret: str = "",
) -> LLMError | None:
    """Return the LLMError for an exception; None if the exception does not come from the provider and must be raised
    unchanged.

    ``partial`` is the visible text that had arrived. With ``started``, any part of the answer had arrived. Then a
    temporary fault becomes an interruption, because a second request could be billed too. ``secret`` is removed from
    the message.
    """
    kind = _row(error, table) or _row(error, TRANSPORT) or (LLMEmpty if _is_undecodable(error) else None)
    if kind is None:
        return None
    if _undecoded(error) is not None:
        kind = LLMEmpty
    status = getattr(error, "status_code", None)
    status = status if isinstance(status, int) else None
    body = _body(error)
    if kind is LLMBadRequest and status is not None:
        kind = _by_status(status)
    elif kind is LLMUnavailable and status is None:
        kind = _by_code(body, kind)
    kind = _by_body(body, kind)
    text = f"model {model!r}: {_clean(_words(error, body, status), secret)}"
    if status is not None and status >= 300:
        text += f" (HTTP {status})"
    parameter = _refused_parameter(error, body) if kind is LLMBadRequest else ""
    if parameter:
        return LLMUnsupportedParameter(text, parameter=parameter, status=status)
    if (partial or started) and kind in (LLMUnavailable, LLMRateLimited, LLMEmpty, LLMTimedOut):
        kind = LLMInterrupted
    if kind is LLMTimedOut:
        return LLMTimedOut(text, deadline="connect_s" if _unconnected(error) else "idle_s")
    headers = getattr(getattr(error, "response", None), "headers", None)
    hint = HINTS.get(kind, "")
    if _redirects(status) or (kind is LLMUnavailable and _unconnected(error)):
        hint = PLACE_HINT
    if kind is LLMBadRequest and _LIMIT.search(body.get("message", "")):
        hint = LIMIT_HINT
    translated = kind(
        text,
        hint=hint,
        status=status,
        request_id=getattr(error, "request_id", None),
        retry_after_s=None if headers is None else retry_after_s(headers),
        partial=partial,
    )
    translated.started = started or bool(partial)
    is_accepted = (status is None or status < 300) and not _unconnected(error)
    translated.sent = is_accepted and kind in (LLMUnavailable, LLMEmpty)
    return translated


async def translated(
    work: Callable[[], Awaitable[T]], table: Mapping[str, type[LLMError]], model: str, secret: str = ""
) -> T:
    """Return the result of ``work``. An SDK's exception is raised as LLMError, and ``secret`` is removed from its
    message.
    """
    try:
        return await work()
    except LLMError:
        raise
    except (
        Exception
    ) as error:  # the errors of SDKs and of their transports have no common class; unknown errors are raised unchanged
        known = translate(error, table, model, secret=secret)
        if known is None:
            raise
        raise known from error


def error_from(status: int | None, body: Mapping[str, Any], model: str) -> LLMError:
    """Return the error for an error object inside an answer, such as the error of one request in a batch."""
    inner = body.get("error")
    inner = {"message": inner} if isinstance(inner, str) else inner if isinstance(inner, Mapping) else body
    fields = {name: str(inner[name]) for name in ("message", "code", "type") if inner.get(name) is not None}
    kind = _by_body(fields, _by_code(fields, LLMUnavailable) if status is None else _by_status(status))
    text = f"model {model!r}: {_clean(fields.get('message') or 'the request failed', '')}"
    return kind(text, hint=HINTS.get(kind, ""), status=status)


async def unstreamed(response: Any, model: str) -> Mapping[str, Any] | None:
    """Return a whole answer, from a gateway that does not stream although a stream was asked for; None if the
    response is a stream.

    A byte order mark at the beginning of the response is left out, because the SDKs would lose the first event. Reading
    the response raises LLMEmpty for a line longer than :data:`LINE_BYTES`.

    Raise LLMError if the response is a web page (mostly from a proxy), an error, or not an answer.
    """
    response.aiter_bytes = partial(_bounded, response.aiter_bytes, model)
    kind = str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
    if kind == "text/html":
        raise LLMBadRequest(f"model {model!r}: {WEB_PAGE}", hint="Check base_url.", status=200)
    if kind != "application/json":
        return None
    data = json.loads(await response.aread())
    if not isinstance(data, Mapping):
        raise LLMEmpty(f"model {model!r}: the answer is not a JSON object")
    if data.get("error"):
        raise error_from(None, data, model)
    return data


async def _bounded(pieces: Callable[[], AsyncIterator[bytes]], model: str) -> AsyncIterator[bytes]:
    """Yield the pieces of a text in UTF-8, without a byte order mark at its beginning.

    Raise LLMEmpty if a line of the text is longer than ``LINE_BYTES``.
    """
    head, started, line = b"", False, 0
    async for piece in pieces():
        ends = piece.rfind(b"\n") + 1
        line = len(piece) - ends if ends else line + len(piece)
        if line > LINE_BYTES:
            raise LLMEmpty(f"model {model!r}: a line of its answer is longer than {LINE_BYTES >> 20} MiB")
        if started:
            yield piece
            continue
        head += piece
        if len(head) >= len(BOM_UTF8) or not BOM_UTF8.startswith(head):
            started = True
            yield head.removeprefix(BOM_UTF8)
    if not started:
        yield head


def _unconnected(error: BaseException) -> bool:
    """Return True if no connection was made, so that the provider received no request."""
    names = ("ConnectTimeout", "PoolTimeout", "ConnectError", "UnsupportedProtocol", "InvalidURL")
    return any(_is(cause, *names) for cause in (error, error.__cause__, error.__context__))


def _is(error: BaseException | None, *names: str) -> bool:
    return error is not None and any(ancestor.__name__ in names for ancestor in type(error).__mro__)


def _undecoded(error: BaseException) -> BaseException | None:
    """Return the error that says why an answer's bytes can not be decompressed; None for any other error. OpenAI's SDK
    wraps that error in an error of the connection.
    """
    return next((one for one in (error, error.__cause__) if _is(one, "DecodingError")), None)


def _is_undecodable(error: BaseException) -> bool:
    """Return True if Python's JSON decoder raised the error. The decoder refuses too deep nesting by a RecursionError,
    and numbers of more than 4,300 digits by a ValueError.
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and str(last.tb_frame.f_globals.get("__name__")).partition(".")[0] == "json"


def _row(error: BaseException, table: Mapping[str, type[LLMError]]) -> type[LLMError] | None:
    for ancestor in type(error).__mro__:
        if ancestor.__name__ in table:
            return table[ancestor.__name__]
    return None


def _by_status(status: int) -> type[LLMError]:
    if status in STATUS:
        return STATUS[status]
    return LLMUnavailable if status >= 500 else LLMBadRequest


def _by_code(body: Mapping[str, str], kind: type[LLMError]) -> type[LLMError]:
    """Return the error for a status code inside an answer's body, where gateways write it in a stream; ``kind`` if the
    body has no such code.
    """
    code = body.get("code", "")
    return _by_status(int(code)) if re.fullmatch("[45][0-9][0-9]", code) else kind


def _redirects(status: int | None) -> bool:
    return status is not None and 300 <= status < 400


def _words(error: BaseException, body: Mapping[str, str], status: int | None) -> str:
    """Return the text of a failure: the provider's own words, or the address that could not be reached, with the
    reason.
    """
    if _redirects(status):
        target = getattr(getattr(error, "response", None), "headers", {}).get("location", "another address")
        return f"the endpoint redirects to {target}, and nothing was sent there"
    raw = getattr(error, "body", None)
    words = body.get("message") or (json.dumps(raw) if isinstance(raw, Mapping | list) else str(raw or ""))
    if words.lstrip().lower().startswith(("<!doctype html", "<html")):
        return WEB_PAGE
    if re.fullmatch("Error code: [0-9]+", words or str(error)):
        return "the request failed"
    if words:
        return words
    if (undecoded := _undecoded(error)) is not None:
        return f"its answer can not be decompressed: {undecoded}"
    cause, url = error.__cause__, getattr(getattr(error, "request", None), "url", None)
    if status is None and cause is not None and url is not None:
        what = "no connection to" if _unconnected(error) else "connection lost to"
        return f"{what} {url.scheme}://{url.netloc.decode()}: {str(cause) or type(cause).__name__}"
    said = str(error) or type(error).__name__
    if _is(error, "UnicodeDecodeError"):
        return f"its answer is not UTF-8: {said}"
    # behind the semicolon stands advice for programmers
    return f"its answer is not JSON: {said.partition(';')[0]}" if _is_undecodable(error) else said


def _by_body(body: Mapping[str, str], kind: type[LLMError]) -> type[LLMError]:
    for field in ("code", "type"):
        refined = BODY_CODE.get(body.get(field, ""))
        if refined is not None:
            kind = refined
            break
    if kind in (LLMBadRequest, LLMRateLimited) and _CREDIT.search(body.get("message", "")):
        return LLMQuotaExceeded
    if kind is LLMBadRequest and _CONTEXT.search(body.get("message", "")):
        return LLMContextTooLong
    return kind


def _body(error: BaseException) -> dict[str, str]:
    """Return the error object of the answer as strings: message, code, type, param; empty if the answer has no error
    object.
    """
    body = getattr(error, "body", None)
    if isinstance(body, list) and len(body) == 1:  # Google's form of an error
        body = body[0]
    if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
        body = body["error"]
    if isinstance(body, Mapping) and isinstance(body.get("error"), str):
        body = {"message": body["error"], **body}
    if not isinstance(body, Mapping):
        return {}
    return {name: str(body[name]) for name in ("message", "code", "type", "param") if body.get(name) is not None}


def _refused_parameter(error: BaseException, body: Mapping[str, str]) -> str:
    """Return the name of the setting that an answer with status 400 or 422 refuses; "" if the answer names none.

    OpenAI names the setting in ``param``. Azure leaves ``param`` null and quotes the name in the message. Mistral and
    others built on FastAPI list ``detail`` entries with a location such as ``["body", "seed"]``.
    """
    raw = getattr(error, "body", None)
    detail = raw.get("detail") if isinstance(raw, Mapping) else None
    for entry in detail if isinstance(detail, list) else ():
        place = entry.get("loc") if isinstance(entry, Mapping) else None
        if isinstance(place, list | tuple) and len(place) > 1 and place[0] == "body":
            return str(place[1])
    text = f"{body.get('code')} {body.get('type')} {body.get('message')}"
    if not _PARAMETER.search(text):
        return ""
    quoted = re.search(r"['\"`]([a-z_]+(?:\.[a-z_]+)*)['\"`]", body.get("message", ""))
    named = re.search(r"(?:parameter|field|argument|inputs?)s?:? +([a-z]+_[a-z_]+|seed|temperature)\b", text)
    thinks = re.search(r"\b(thinking|effort)\b", text)  # Anthropic's refusals name these settings in prose
    return body.get("param") or (quoted or named or thinks or ["", ""])[1]


def _clean(text: str, secret: str) -> str:
    if secret:
        text = text.replace(secret, "[key]")
    text = "".join(character if character.isprintable() else " " for character in text)
    text = re.sub(r"\b(sk|key)-[A-Za-z0-9*_-]{6,}", "[key]", text)
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"
