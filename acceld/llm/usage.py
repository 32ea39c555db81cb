"""Count tokens without a tokenizer: estimates for limits and forecasts, upper bounds for budgets."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from acceld.llm.client import Completion, CompletionRequest, Lengths, Received
from acceld.model_calls import Usage

CHARS_PER_TOKEN = Lengths().prompt_chars_per_token
"""Characters per token, for models that have not reported any tokens."""

HIDDEN_TOKENS = 10_000
"""Tokens that a provider may add to a prompt, or to the cap of an answer, without acceld seeing the text. A reported
count that is still greater is not used.
"""

OVERHEAD_TOKENS = 64
"""Tokens added to an estimate for roles, separators and a chat template."""


def estimated_tokens(text: str) -> int:
    """Return an estimate of a text's tokens."""
    return int(len(text) / CHARS_PER_TOKEN) + 1


def estimated_usage(request: CompletionRequest, answer: str) -> Usage:
    """Return an estimate of a call's tokens, for providers that report no tokens."""
    known = request.lengths
    prompt = (len(request.system) + len(request.user)) / known.prompt_chars_per_token + OVERHEAD_TOKENS
    output = len(answer) / known.answer_chars_per_token + 1 if answer else 0
    return Usage(input_tokens=int(prompt) + 1, output_tokens=int(output), estimated=True)


def unseen_usage(request: CompletionRequest) -> Usage:
    """Return the estimated tokens of a request whose answer never arrived, although the provider may have generated
    an answer.

    An answer of usual length counts as used. The further tokens of the longest possible answer count as uncertain.
    """
    output = min(request.lengths.answer_tokens, request.max_output_tokens)
    return replace(
        estimated_usage(request, ""),
        output_tokens=output,
        uncertain_output_tokens=request.max_output_tokens - output,
    )


class ObservedLengths:
    """The lengths of latest answers, by model and role. Only calls whose tokens the provider reported are counted."""

    NEWEST = 32
    """Number of calls that count."""

    def __init__(self) -> None:
        self._calls: deque[tuple[int, int, int, int, int]] = deque(maxlen=self.NEWEST)
        self._overrun = Lengths().overrun

    def add(self, request: CompletionRequest, completion: Completion) -> None:
        """Count an answered call whose tokens the provider reported."""
        usage = completion.usage
        if usage.estimated:
            return
        prompt = len(request.system) + len(request.user)
        shown = len(completion.text) + len(completion.reasoning)
        hidden = 0 if completion.reasoning else usage.reasoning_tokens
        read, written = usage.input_tokens - OVERHEAD_TOKENS, usage.output_tokens
        self._overrun = max(self._overrun, written / request.max_output_tokens)
        self._calls.append((prompt, read, shown, written - hidden, written))

    @property
    def lengths(self) -> Lengths:
        """Return the usual lengths from which the tokens of further calls are estimated. A length that no call has
        reported has its default.
        """
        usual = Lengths()
        if not self._calls:
            return usual
        prompt, read, shown, told, written = (sum(figures) for figures in zip(*self._calls, strict=True))
        return Lengths(
            prompt / read if prompt and read > 0 else usual.prompt_chars_per_token,
            shown / told if shown and told > 0 else usual.answer_chars_per_token,
            written // len(self._calls),
            self._overrun,
        )


def used(request: CompletionRequest, answer: Received) -> Usage:
    """Return the tokens of an answer, or of its part that arrived: as the provider reported them, else estimated."""
    guess = replace(estimated_usage(request, "".join((*answer.reasoning, *answer.text))), tier=answer.tier)
    told = answer.usage
    if told is None:
        return guess
    prompt, output = told.input_tokens, told.output_tokens
    if not 0 < prompt <= most_input_tokens(request) + HIDDEN_TOKENS:
        prompt = guess.input_tokens
    most_output = max(request.max_output_tokens, guess.output_tokens) + HIDDEN_TOKENS
    if not 0 < output <= most_output:
        output = guess.output_tokens if output <= 0 else most_output
    elif not answer.is_counted:
        output = max(output, guess.output_tokens)
    cached = min(max(0, told.cached_tokens), prompt)
    written = min(max(0, told.cache_written_tokens), prompt - cached)
    reasoning = min(max(0, told.reasoning_tokens), output)
    told = replace(told, tier=answer.tier)
    sound = Usage(prompt, cached, written, output, reasoning, tier=answer.tier)
    return told if sound == told and answer.is_counted else replace(sound, estimated=True)


def most_output_tokens(request: CompletionRequest) -> int:
    """Return the most tokens that an answer is expected to have: its limit, or more for a model whose answers have
    passed their limit before.
    """
    return math.ceil(request.max_output_tokens * request.lengths.overrun)


def most_input_tokens(request: CompletionRequest) -> int:
    """Return an upper bound on the prompt's tokens: its bytes, and an overhead. Byte-level tokenizers never make more
    than one token of a byte.
    """
    return len(request.system.encode()) + len(request.user.encode()) + OVERHEAD_TOKENS
