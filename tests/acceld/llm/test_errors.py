"""Every exception that an SDK can raise is in the table, and every error of ours says if a retry is allowed."""

from __future__ import annotations

import inspect
from importlib import import_module

import httpx2
import pytest

from acceld.errors import AcceldError
from acceld.llm import errors
from acceld.llm.errors import LLMError
from acceld.llm.providers import translation

ROOTS = {"OpenAIError", "AnthropicError"}
ELSEWHERE = {
    "InvalidWebhookSignatureError",
    "WebSocketConnectionClosedError",
    "WebSocketQueueFullError",
    "_AmbiguousModuleClientUsageError",
    "APIWebhookValidationError",
}
"""Exceptions that acceld's requests can not raise: of webhooks, web sockets and the module-level client."""


def exceptions_of(module: object) -> list[type[BaseException]]:
    members = [getattr(module, name) for name in dir(module)]
    return [member for member in members if inspect.isclass(member) and issubclass(member, BaseException)]


@pytest.mark.parametrize(("module", "table"), [("openai", translation.OPENAI), ("anthropic", translation.ANTHROPIC)])
def test_every_exception_of_the_sdk_has_a_row_of_its_own_or_its_parents(
    module: str, table: dict[str, type[LLMError]]
) -> None:
    found = exceptions_of(import_module(module))
    assert len(found) > 15
    for kind in found:
        if kind.__name__ in ELSEWHERE | ROOTS:
            continue
        rows = [ancestor.__name__ for ancestor in kind.__mro__ if ancestor.__name__ in table]
        assert rows and rows[0] not in ROOTS, f"{kind.__name__} has no row"


def test_every_error_of_the_http_library_has_a_row() -> None:
    for kind in exceptions_of(httpx2):
        if issubclass(kind, httpx2.RequestError | httpx2.StreamError | httpx2.InvalidURL):
            rows = [ancestor.__name__ for ancestor in kind.__mro__ if ancestor.__name__ in translation.TRANSPORT]
            assert rows, f"{kind.__name__} has no row"


def test_defects_of_ours_are_not_translated() -> None:
    assert translation.translate(KeyError("x"), translation.OPENAI, "m") is None
    assert translation.translate(AssertionError(), translation.ANTHROPIC, "m") is None


def test_a_key_never_stands_in_a_message() -> None:
    import openai

    request = httpx2.Request("POST", "http://x")
    failure = openai.APIConnectionError(message="no route with secret-123 \x1b[2J", request=request)
    error = translation.translate(failure, translation.OPENAI, "m", secret="secret-123")
    assert error is not None
    assert "secret-123" not in str(error) and "[key]" in str(error)
    assert "\x1b" not in str(error)


def test_each_error_has_an_outcome_of_its_own() -> None:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, LLMError)]
    outcomes = [kind.outcome for kind in kinds]
    assert len(set(outcomes)) == len(outcomes) > 12


def test_the_exit_codes_are_those_of_the_tree() -> None:
    def code(error: AcceldError) -> int:
        return error.exit_code

    assert code(errors.LLMRefused("no key")) == 4
    assert code(errors.LLMQuotaExceeded("no credit")) == 4
    assert code(errors.LLMTimedOut("late", deadline="idle_s")) == 124
    assert code(errors.LLMUnavailable("down")) == 1


def test_nothing_is_tried_again_once_an_answer_has_begun() -> None:
    fresh, begun = errors.LLMUnavailable("x"), errors.LLMUnavailable("x", partial="Here is")
    assert fresh.may_be_retried and not begun.may_be_retried
    assert errors.LLMTimedOut("x", deadline="first_token_s").may_be_retried
    assert not errors.LLMTimedOut("x", deadline="total_s").may_be_retried
    for kind in (errors.LLMRefused, errors.LLMBadRequest, errors.LLMContextTooLong, errors.LLMQuotaExceeded):
        assert not kind("x").may_be_retried
