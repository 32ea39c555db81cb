"""A model whose answers are given in advance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acceld.llm.client import Completion, CompletionRequest, Received
from acceld.model_calls import Usage


class ScriptedClient:
    """Answer from a function of the request: deterministic, without network.

    The answer's token counts are its characters divided by four.
    """

    def __init__(self, answer: Callable[[CompletionRequest], str] | Sequence[str]) -> None:
        self._answer = answer
        self.requests: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the scripted answer. Raises IndexError when a list of answers is used up."""
        if request.progress is not None:
            await request.progress.sending(Received())
        self.requests.append(request)
        answer = self._answer
        text = answer(request) if callable(answer) else answer[len(self.requests) - 1]
        prompt = request.system + request.user
        return Completion(text, request.model, Usage(input_tokens=len(prompt) // 4, output_tokens=len(text) // 4))

    async def close(self) -> None:
        """Do nothing, because nothing is open."""
