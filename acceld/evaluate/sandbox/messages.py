"""Exchange messages between the daemon and its children: a JSON header, followed by bytes.

A tracer's message was written in the same process as hostile code. So :func:`parse` limits and checks
everything, and :func:`clean` removes control characters from texts before they are shown or stored.
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
_DAMAGED = "its answer to acceld is damaged"
_LET_IT_ANSWER = "Remove code that writes to file descriptors or ends the process."
_CONTROL = r"[^\n\t\x20-\x7e\u00a0-\u2027\u2030-\u205e\u2070-\ud7ff\uf900-\ufffd]"


class BadMessage(AcceldError):
    """Raised when the bytes of a child are not a valid message."""


def pack(header: dict[str, Any]) -> bytes:
    """Return the encoded header of a message. The bytes of the message follow the header."""
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header and the bytes of a message that acceld's own code wrote."""
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size
    header: dict[str, Any] = json.loads(data[start : start + length])
    return header, data[start + length :]


def send(descriptor: int, header: dict[str, Any], payload: bytes = b"") -> None:
    """Write a message to a descriptor. Child processes send their answers with this function."""
    for part in (pack(header), payload):
        write_all(descriptor, part)


def error_header(error: Exception, task: str) -> dict[str, Any]:
    """Return the answer in which one of acceld's own processes tells its parent that ``task`` failed with ``error``.

    The parent learns of the error from this answer alone.
    """
    if isinstance(error, AcceldError):
        return {"error": error.message, "hint": error.hint}
    return {"error": f"{task} failed: {type(error).__name__}: {error}"}


def parse(reply: Reply) -> tuple[dict[str, Any], int]:
    """Return the header of a child's message, and the offset of the bytes that follow. Raise BadMessage if the message
    is not valid.
    """
    start = reply.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        raise BadMessage("it wrote no answer", hint=_LET_IT_ANSWER)
    (length,) = _LENGTH.unpack(start)
    if length > MAX_HEADER:
        raise BadMessage(_DAMAGED, hint=_LET_IT_ANSWER)
    text = reply.read(length, _LENGTH.size)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(_DAMAGED, hint=_LET_IT_ANSWER) from error
    if len(text) != length or not isinstance(header, dict):
        raise BadMessage(_DAMAGED, hint=_LET_IT_ANSWER)
    return header, _LENGTH.size + length


def clean(text: Any, limit: int = MAX_MESSAGE) -> str:
    """Return a child's text as it may be shown: at most ``limit`` characters, no control, bidi or private-use
    characters.
    """
    if not isinstance(text, str):
        return ""
    shown: str = text[:limit]
    if shown.isascii() and shown.isprintable():  # nearly every text is ASCII; compiling the pattern below takes 4 ms
        return shown
    return re.sub(_CONTROL, "\N{REPLACEMENT CHARACTER}", shown)


_CLASSES = {
    "UnsupportedCall": Status.UNSUPPORTED,
    "LegalityError": Status.COMPILE_ERROR,
    "KernelCrash": Status.COMPILE_ERROR,
    "LimitExceeded": Status.COMPILE_ERROR,
}


def failure_from(header: dict[str, Any]) -> tuple[Status, Failure]:
    """Return the status and the failure of a header, which need not be trusted. Raise BadMessage if the header is
    not valid.
    """
    record = header.get("failure")
    if not isinstance(record, dict):
        raise BadMessage("its answer to acceld is neither a program nor a failure", hint=_LET_IT_ANSWER)
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
    """Return the header by which a child reports a kernel's failure."""
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
    """Return the header by which a child reports that a program is refused."""
    return {"failure": {"class": "LimitExceeded", "rule": rule, "message": message, "hint": hint, "line": line}}


def defect_record(error: Exception, doing: str) -> dict[str, Any]:
    """Return the header by which a child reports an error in acceld's own code, which only a forged program
    should cause.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return limit_record("judge", f"{doing} the program raised {type(error).__name__} at {where}: {error}")
