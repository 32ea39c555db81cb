"""Turn a received answer of any API into a completion, or into the error that says why the answer gives no completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acceld.llm.client import Completion, CompletionRequest, Received
from acceld.llm.deadlines import DeadlineWatch
from acceld.llm.errors import LLMContentFiltered, LLMEmpty, LLMError, LLMInterrupted, LLMUnavailable
from acceld.llm.usage import used as used_by

LONGEST_FACTOR = 3
"""Multiple of an answer's limit in tokens, as estimated, at which the answer is cut off in any case, because the server
ignores the limit.
"""


COUNT_DIGITS = 15
"""Greatest number of digits of a number of tokens that is read. A number in JSON may have any length."""


def record(value: Any) -> dict[str, Any]:
    """Return a piece of an answer, an object of an SDK or a JSON value, as a dict. Raise LLMEmpty for other values."""
    found = value.model_dump(warnings=False) if hasattr(value, "model_dump") else value
    if not isinstance(found, Mapping):
        raise LLMEmpty(f"a piece of the answer is {type(found).__name__}, not a JSON object")
    return dict(found)


def part(value: Any) -> Mapping[str, Any]:
    """Return a part of an answer that should be a JSON object; an empty mapping for any other value."""
    return value if isinstance(value, Mapping) else {}


def entries(value: Any) -> Sequence[Any]:
    """Return a part of an answer that should be a JSON array; an empty tuple for any other value."""
    return value if isinstance(value, list) else ()


def words(value: Any) -> str:
    """Return a part of an answer that should be a text; "" for any other value."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int:
    """Return a number of tokens that a provider reports. A value that is no number, or too large to
    be one, counts as 0.
    """
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= COUNT_DIGITS:
        return int(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and abs(value) < 10**COUNT_DIGITS else 0


def may_go_on(request: CompletionRequest, answer: Received) -> bool:
    """Return False if an answer that is arriving is to be cut off.

    An answer is cut off if it is ``LONGEST_FACTOR`` times as long as the request allows, or if it is longer than
    allowed and there is no money for more tokens. Servers that ignore the limit send such answers. Tokens are estimated
    from characters; for the money, each piece of the answer counts as one token at least.
    """
    tokens = int(answer.chars / request.lengths.answer_chars_per_token)
    if tokens > LONGEST_FACTOR * request.max_output_tokens:
        return False
    # a token may come in several pieces, so the number of pieces counts for the money alone
    return request.progress is None or request.progress.affords(max(answer.pieces, tokens))


def finished(request: CompletionRequest, watch: DeadlineWatch, name: str, answer: Received) -> Completion:
    """Return the completed answer of the model called ``name``. If the provider reported no token counts, the counts
    are estimated.

    Raise LLMError, with the tokens used, if the answer has no text, was withheld, or broke off.
    """
    text, reasoning, stopped = "".join(answer.text), "".join(answer.reasoning), answer.stopped
    error: LLMError | None = None
    if not stopped:
        kind = LLMInterrupted if watch.started else LLMUnavailable
        error = kind(f"model {name!r} closed the stream in the middle of its answer", partial=text)
    elif stopped == "content_filter" or answer.refused:
        error = LLMContentFiltered(f"the answer of model {name!r} was withheld or declined", partial=text)
    elif not text.strip():
        spent = "all its tokens went into reasoning" if stopped == "length" else "it has no text"
        error = LLMEmpty(
            f"model {name!r} gave an empty answer: {spent}",
            hint="Raise max_output_tokens." if stopped == "length" else "",
        )
        error.exhausted = stopped == "length"
    used = used_by(request, answer)
    if error is not None:
        error.usage, error.request_id = used, answer.request_id or None
        raise error
    return Completion(
        text=text,
        model=answer.model or request.model,
        usage=used,
        request_id=answer.request_id,
        finish_reason="length" if stopped == "length" else "stop",
        reasoning=reasoning,
        first_token_s=watch.first_token_s,
        latency_s=watch.elapsed_s,
    )
