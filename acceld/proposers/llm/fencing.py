"""Make text from outside safe for a prompt: clean it, shorten it, and fence it with a delimiter that nobody can
predict.

Kernel sources, logs, notes, insights and models' own plans are data. The delimiter is a keyed hash of all the texts
that it fences, so that no text can contain it on purpose. Equal data gives an equal prompt, which a provider can
cache.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

KERNEL_CHARS = 60_000
LOG_CHARS = 4_000
NOTE_CHARS = 2_000

_KEPT = frozenset("\n\t")


@dataclass(frozen=True, slots=True)
class Data:
    """Text from outside, for a prompt. ``label`` is its title, ``cap`` the greatest number of characters that are
    shown.
    """

    label: str
    text: str
    cap: int = KERNEL_CHARS


def cleaned(text: str) -> str:
    """Return the text without control characters, escape sequences, and characters that reorder or hide text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn")
    unwanted = {ord(c): None for c in set(text) - _KEPT if unicodedata.category(c) in hidden}
    return text.translate(unwanted) if unwanted else text


def capped(text: str, cap: int) -> str:
    """Return at most about ``cap`` characters of a text: all of a short text; of a longer one the beginning and the
    end, with a note on what is missing.
    """
    if len(text) <= cap:
        return text
    half = cap // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def delimiter(secret: bytes, data: Iterable[Data]) -> str:
    """Return twenty hexadecimal digits that occur in none of the texts. The digits are a keyed hash of the texts."""
    texts = [cleaned(entry.text) for entry in data]
    for attempt in range(1000):
        digest = hashlib.blake2b(key=secret[:64], digest_size=10)
        digest.update(str(attempt).encode())
        for text in texts:
            digest.update(f"{len(text)}\0".encode())
            digest.update(text.encode("utf-8", "surrogatepass"))
        if not any(digest.hexdigest() in text for text in texts):
            return digest.hexdigest()
    raise AssertionError("no delimiter was found: each of a thousand hashes of the texts occurs in a text itself")


def fenced(data: Data, mark: str) -> str:
    """Return the data's text, cleaned and shortened, between two lines with the delimiter ``mark``."""
    body = capped(cleaned(data.text), data.cap)
    return f"<<<{mark} {cleaned(data.label)}\n{body}\n{mark}>>>"
