"""The end of an answer, whatever API it came through: a completion, or the error that there is none."""

from __future__ import annotations

from acceld.llm.client import Completion, CompletionRequest, Usage
from acceld.llm.deadlines import Watch
from acceld.llm.errors import LLMContentFiltered, LLMEmpty, LLMError, LLMInterrupted, LLMUnavailable
from acceld.llm.usage import estimated_usage


def finished(
    request: CompletionRequest,
    watch: Watch,
    name: str,
    *,
    text: str,
    reasoning: str,
    stopped: str,
    usage: Usage | None,
    model: str,
    request_id: str,
) -> Completion:
    """The finished answer of the model called ``name``.

    ``stopped`` is ``stop``, ``length`` or ``content_filter``, and empty where the stream just ended. ``usage`` None is
    estimated from the texts.

    :raises LLMError: where the answer has no text, was withheld or broke off; it carries what was used.
    """
    error: LLMError | None = None
    if not stopped:
        kind = LLMInterrupted if watch.started else LLMUnavailable
        error = kind(f"model {name!r} closed the stream in the middle of its answer", partial=text)
    elif stopped == "content_filter":
        error = LLMContentFiltered(f"the answer of model {name!r} was withheld or declined", partial=text)
    elif not text.strip():
        spent = "all its tokens went into reasoning" if stopped == "length" else "it has no text"
        error = LLMEmpty(f"model {name!r} gave an empty answer: {spent}", hint="Raise max_output_tokens.")
    used = usage or estimated_usage(request, text + reasoning)
    if error is not None:
        error.usage, error.request_id = used, request_id or None
        raise error
    return Completion(
        text=text,
        model=model or request.model,
        usage=used,
        request_id=request_id,
        finish_reason="length" if stopped == "length" else "stop",
        reasoning=reasoning,
        first_token_s=watch.first_token_s,
        latency_s=watch.elapsed_s,
    )
