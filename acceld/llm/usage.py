"""Counting tokens without a tokenizer: an estimate for limits and forecasts, a bound for budgets."""

from __future__ import annotations

from acceld.llm.client import CompletionRequest, Usage

CHARS_PER_TOKEN = 3.3
"""Kernel source and English prose lie between 3 and 4 characters a token; the lower end errs towards more."""

OVERHEAD_TOKENS = 64
"""Roles, separators and what a chat template adds."""


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return int(len(text) / CHARS_PER_TOKEN) + 1


def estimated_usage(request: CompletionRequest, answer: str) -> Usage:
    """About what a call used, for providers that do not say."""
    prompt = estimated_tokens(request.system) + estimated_tokens(request.user) + OVERHEAD_TOKENS
    return Usage(input_tokens=prompt, output_tokens=estimated_tokens(answer) if answer else 0, estimated=True)


def most_input_tokens(request: CompletionRequest) -> int:
    """More tokens than the prompt can have: byte-level tokenizers never make more than one of a byte."""
    return len(request.system.encode()) + len(request.user.encode()) + OVERHEAD_TOKENS
