"""Count tokens without a tokenizer: an estimate for limits and forecasts, an upper bound for budgets."""

from __future__ import annotations

from acceld.llm.client import CompletionRequest, Usage

CHARS_PER_TOKEN = 3.3
"""Kernel source and English prose have between 3 and 4 characters a token. The lower end overestimates."""

OVERHEAD_TOKENS = 64
"""Tokens for roles, separators and a chat template."""


def estimated_tokens(text: str) -> int:
    """Return an estimate of a text's tokens."""
    return int(len(text) / CHARS_PER_TOKEN) + 1


def estimated_usage(request: CompletionRequest, answer: str) -> Usage:
    """Return an estimate of a call's tokens, for providers that do not report them."""
    prompt = estimated_tokens(request.system) + estimated_tokens(request.user) + OVERHEAD_TOKENS
    return Usage(input_tokens=prompt, output_tokens=estimated_tokens(answer) if answer else 0, estimated=True)


def most_input_tokens(request: CompletionRequest) -> int:
    """Return an upper bound on the prompt's tokens: byte-level tokenizers never make more than one a byte."""
    return len(request.system.encode()) + len(request.user.encode()) + OVERHEAD_TOKENS
