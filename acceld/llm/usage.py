"""Count tokens without a tokenizer: an estimate for limits and forecasts, an upper bound for budgets."""

from __future__ import annotations

from dataclasses import replace

from acceld.llm.client import CompletionRequest, Received, Usage

CHARS_PER_TOKEN = 3.3
"""Kernel source and English prose have between 3 and 4 characters a token. The lower end overestimates."""

HIDDEN_TOKENS = 10_000
"""Tokens that a provider may add to a prompt, or to the cap of an answer, out of our sight. Reports beyond are not
believed.
"""

OVERHEAD_TOKENS = 64
"""Tokens for roles, separators and a chat template."""


def estimated_tokens(text: str) -> int:
    """Return an estimate of a text's tokens."""
    return int(len(text) / CHARS_PER_TOKEN) + 1


def estimated_usage(request: CompletionRequest, answer: str) -> Usage:
    """Return an estimate of a call's tokens, for providers that do not report them."""
    prompt = estimated_tokens(request.system) + estimated_tokens(request.user) + OVERHEAD_TOKENS
    return Usage(input_tokens=prompt, output_tokens=estimated_tokens(answer) if answer else 0, estimated=True)


def used(request: CompletionRequest, answer: Received) -> Usage:
    """Return the tokens of an answer, or of its part that arrived: as reported where that is possible, else estimated."""
    guess = estimated_usage(request, "".join((*answer.reasoning, *answer.text)))
    told = answer.usage
    if told is None:
        return guess
    prompt, output = told.input_tokens, told.output_tokens
    if not 0 < prompt <= most_input_tokens(request) + HIDDEN_TOKENS:
        prompt = guess.input_tokens
    most_output = max(request.max_output_tokens, guess.output_tokens) + HIDDEN_TOKENS
    if not 0 <= output <= most_output:
        output = guess.output_tokens if output < 0 else most_output
    elif not answer.is_counted:
        output = max(output, guess.output_tokens)
    cached = min(max(0, told.cached_tokens), prompt)
    written = min(max(0, told.cache_written_tokens), prompt - cached)
    reasoning = min(max(0, told.reasoning_tokens), output)
    sound = Usage(prompt, cached, written, output, reasoning)
    return told if sound == told and answer.is_counted else replace(sound, estimated=True)


def most_input_tokens(request: CompletionRequest) -> int:
    """Return an upper bound on the prompt's tokens: byte-level tokenizers never make more than one a byte."""
    return len(request.system.encode()) + len(request.user.encode()) + OVERHEAD_TOKENS
