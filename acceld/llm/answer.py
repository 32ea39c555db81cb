"""Turn a received answer of any API into a completion, or into the error that says why the answer gives no completion."""

from __future__ import annotations

from acceld.llm.client import Completion, CompletionRequest, Received
from acceld.llm.deadlines import DeadlineWatch
from acceld.llm.errors import LLMContentFiltered, LLMEmpty, LLMError, LLMInterrupted, LLMUnavailable
from acceld.llm.usage import used as used_by


def finished(request: CompletionRequest, watch: DeadlineWatch, name: str, answer: Received) -> Completion:
    """Return the completed answer of the model called ``name``. If the provider reported no token counts, the counts
    are estimated.

    :raises LLMError: the answer has no text, was withheld, or broke off. The error carries the tokens used.
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
        error = LLMEmpty(f"model {name!r} gave an empty answer: {spent}", hint="Raise max_output_tokens.")
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
