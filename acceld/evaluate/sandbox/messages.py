"""Exchange messages between the daemon and its children: a small JSON header, then bytes.

A tracer's message was written in the same process as hostile code. So ``parse`` limits and checks everything, and texts
lose their control characters before they are shown or stored.
"""

from __future__ import annotations

import json
import re
import struct
import traceback
from pathlib import Path
from typing import Any

from acceld.errors import AcceldError
from acceld.evaluate.sandbox.reply import Reply, write_all
from acceld.statuses import Failure, Status

MAX_HEADER = 256 * 1024
MAX_MESSAGE = 4000
_LENGTH = struct.Struct("<I")
_CONTROL = r"[^\n\t\x20-\x7e\u00a0-\u2027\u2030-\u205e\u2070-\ud7ff\uf900-\ufffd]"


class BadMessage(AcceldError):
    """The bytes of a child are not a valid message."""


def pack(header: dict[str, Any]) -> bytes:
    """Return the encoded header, to write before the bytes."""
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and bytes of a message that our own code wrote."""
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size
    header: dict[str, Any] = json.loads(data[start : start + length])
    return header, data[start + length :]


def send(descriptor: int, header: dict[str, Any], payload: bytes = b"") -> None:
    """Write a message, from a child."""
    for part in (pack(header), payload):
        write_all(descriptor, part)


def parse(reply: Reply) -> tuple[dict[str, Any], int]:
    """Return the header of a child's message and the offset of its bytes. BadMessage for anything else."""
    start = reply.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        raise BadMessage("it wrote no answer")
    (length,) = _LENGTH.unpack(start)
    if length > MAX_HEADER:
        raise BadMessage("its answer is not a message")
    text = reply.read(length, _LENGTH.size)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage("its answer is not a message") from error
    if len(text) != length or not isinstance(header, dict):
        raise BadMessage("its answer is not a message")
    return header, _LENGTH.size + length


def clean(text: Any, limit: int = MAX_MESSAGE) -> str:
    """Return a child's text for people and prompts: cut to ``limit``, without control, bidi or private characters."""
    if not isinstance(text, str):
        return ""
    shown: str = text[:limit]
    if shown.isascii() and shown.isprintable():  # nearly every text, and the pattern takes 4 ms to compile
        return shown
    return re.sub(_CONTROL, "\N{REPLACEMENT CHARACTER}", shown)


_CLASSES = {
    "UnsupportedCall": Status.UNSUPPORTED,
    "LegalityError": Status.COMPILE_ERROR,
    "KernelCrash": Status.COMPILE_ERROR,
    "LimitExceeded": Status.COMPILE_ERROR,
}


def failure_from(header: dict[str, Any]) -> tuple[Status, Failure]:
    """Return the status and failure of a record such as ``failure_record`` makes, from any process. BadMessage if it is
    invalid.
    """
    record = header.get("failure")
    if not isinstance(record, dict):
        raise BadMessage("its answer is neither a program nor a failure")
    kind, rule, line = record.get("class"), clean(record.get("rule"), 80), record.get("line")
    status = _CLASSES.get(kind, Status.COMPILE_ERROR) if isinstance(kind, str) else Status.COMPILE_ERROR
    if rule == "trace_deadline":
        status = Status.TIMEOUT
    return status, Failure(
        rule=rule or "crash",
        message=clean(record.get("message")) or "the kernel failed without a message",
        line=line if type(line) is int and 0 <= line < 1_000_000 else 0,
        hint=clean(record.get("hint")),
    )


def failure_record(error: BaseException) -> dict[str, Any]:
    """Return the record of a kernel's failure that a child sends."""
    return {
        "failure": {
            "class": type(error).__name__,
            "rule": str(getattr(error, "rule", "crash"))[:80],
            "message": str(getattr(error, "message", f"{type(error).__name__}: {error}"))[:MAX_MESSAGE],
            "line": getattr(error, "line", 0),
            "hint": str(getattr(error, "hint", ""))[:MAX_MESSAGE],
        }
    }


def limit_record(rule: str, message: str, hint: str = "", line: int = 0) -> dict[str, Any]:
    """Return the record of a program that is not accepted."""
    return {"failure": {"class": "LimitExceeded", "rule": rule, "message": message, "hint": hint, "line": line}}


def defect_record(error: Exception, doing: str) -> dict[str, Any]:
    """Return the record of an error in our own code, which only a forged program should reach."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return limit_record("judge", f"{doing} the program raised {type(error).__name__} at {where}: {error}")
