"""Keep the API keys of models out of child processes' environments, out of logs and out of the history."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping

from acceld.config import Config

USUAL = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
SHORTEST = 8
"""Least length of an API key. Replacing a shorter value would garble texts."""

_LOOKS_LIKE_A_KEY = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|AIza[0-9A-Za-z_-]{30,})"
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/-]{16,}=*"
)


def key_variables(config: Config) -> frozenset[str]:
    """Return the names of the environment variables that hold API keys: the configured and the usual names."""
    configured = {model.key_env for model in config.models.values() if model.key_env}
    return frozenset(configured | set(USUAL.values()))


def take_keys(config: Config, environ: MutableMapping[str, str] | None = None) -> dict[str, str]:
    """Remove the API keys of models from the environment, so that no child process inherits them. Return each key
    under the name of its environment variable.
    """
    environ = os.environ if environ is None else environ
    return {name: environ.pop(name) for name in key_variables(config) if environ.get(name)}


def redactor(keys: Mapping[str, str] | Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces the given keys in a text, and whatever looks like a key, by a fingerprint."""
    values = keys.values() if isinstance(keys, Mapping) else keys
    exact = sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
    known = re.compile("|".join(map(re.escape, exact))) if exact else None

    def redact(text: str) -> str:
        if known is not None:
            text = known.sub(_fingerprint, text)
        if "sk-" in text or "AKIA" in text or "gh" in text or "AIza" in text or "earer" in text:
            text = _LOOKS_LIKE_A_KEY.sub(_fingerprint, text)
        return text

    return redact


def _fingerprint(match: re.Match[str]) -> str:
    return f"[key {hashlib.sha256(match[0].encode()).hexdigest()[:8]}]"
