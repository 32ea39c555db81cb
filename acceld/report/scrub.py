"""Remove secrets and personal paths from texts that leave the machine."""

from __future__ import annotations

import re

SECRETS = re.compile(
    r"(?:sk-(?:ant-|proj-)?[A-Za-z0-9_-]{16,}"
    r"|AKIA[0-9A-Z]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|hf_[A-Za-z0-9]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,})"
)
NAMED = re.compile(
    r"(?i)\b((?:authorization|api[_-]?key|secret|password|token)\b[\"']?\s*[:=]\s*(?:bearer\s+)?[\"']?)([^\s\"',;]{8,})"
)
HOMES = re.compile(r"(?:/home/|/Users/)[A-Za-z0-9._-]+|/root(?=/)")
HIDDEN = "[removed]"


def scrubbed(text: str) -> str:
    """Return ``text`` without keys and tokens, and with home folders written as ``~``."""
    text = SECRETS.sub(HIDDEN, text)
    text = NAMED.sub(lambda match: match[1] + HIDDEN, text)
    return HOMES.sub("~", text)
