"""Write the daemon's log: one JSON object a line, in rotated files, without control characters."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import traceback
from collections.abc import Callable
from pathlib import Path

FILE_BYTES = 8 << 20
FILES = 3


class JsonLines(logging.Formatter):
    """Format a log record as one JSON object with ``at``, ``level``, ``logger`` and ``text``. ``redact`` removes
    secrets from the text.
    """

    def __init__(self, redact: Callable[[str], str] | None = None) -> None:
        super().__init__()
        self._redact = redact or (lambda text: text)

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line of JSON."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        reported = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": printable(self._redact(text)),
        }
        return json.dumps(reported, ensure_ascii=True)


def printable(text: str) -> str:
    """Return ``text`` without characters that control a terminal. Line ends and tabs stay."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)


class PrivateRotatingHandler(logging.handlers.RotatingFileHandler):
    """Write log lines to rotating files that only their owner can read."""

    def _open(self):  # type: ignore[no-untyped-def]  # the base class has no annotation here
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a line that can not be written. The base class would print it to standard error with its secrets."""


def log_to(path: Path, level: str, *, also_stderr: bool, redact: Callable[[str], str] | None = None) -> None:
    """Send all loggers' lines to ``path``, and for a daemon in the foreground also to standard error."""
    handlers: list[logging.Handler] = [PrivateRotatingHandler(path, maxBytes=FILE_BYTES, backupCount=FILES)]
    handlers[0].setFormatter(JsonLines(redact))
    if also_stderr:
        handlers.append(logging.StreamHandler())
        handlers[1].setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=handlers, force=True)
    logging.captureWarnings(True)
    # watchfiles logs every save, and the changes themselves are events.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
