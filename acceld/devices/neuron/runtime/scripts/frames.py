"""Read and write records of a known length: a JSON object, and the bytes that belong to it.

Layout, big-endian: magic ``ACF1``, length of the JSON (u32), length of the bytes (u64), the JSON in UTF-8, the
bytes. Both ends of a pipe use this module, so it needs only Python >= 3.8 and the standard library. Arrays are
sent as raw bytes in C order; the JSON has the name, dtype and shape of each, in order.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

MAGIC = b"ACF1"
HEAD = struct.Struct(">4sIQ")
MAX_JSON = 16 << 20
MAX_BYTES = 8 << 30


class FrameError(Exception):
    """Raised if bytes are not a record, or end in the middle of a record."""


def pack(record: dict[str, Any], data: bytes = b"") -> bytes:
    """Return one record as bytes. Raise FrameError if the record is larger than a reader accepts."""
    text = json.dumps(record, separators=(",", ":")).encode()
    if len(text) > MAX_JSON or len(data) > MAX_BYTES:
        raise FrameError(
            f"a record has {len(text)} bytes of JSON and {len(data)} of data; {MAX_JSON} and {MAX_BYTES} are allowed"
        )
    return HEAD.pack(MAGIC, len(text), len(data)) + text + data


def head(raw: bytes, max_bytes: int = MAX_BYTES) -> tuple[int, int]:
    """Return (length of a record's JSON, length of its bytes), read from the head of the record.

    Raise FrameError if the head is invalid or a length is too large.
    """
    if len(raw) != HEAD.size:
        raise FrameError("the stream ended inside a record's head")
    magic, text, data = HEAD.unpack(raw)
    if magic != MAGIC:
        raise FrameError(f"the stream holds no record; its next bytes are {raw[:8]!r}")
    if text > MAX_JSON or data > max_bytes:
        raise FrameError(
            f"a record announces {text} bytes of JSON and {data} of data; {MAX_JSON} and {max_bytes} are allowed"
        )
    return text, data


def body(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a record. Raise FrameError if the text is not a JSON object."""
    try:
        record = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a record's text is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise FrameError("a record's text is not a JSON object")
    return record


def read(stream: BinaryIO, max_bytes: int = MAX_BYTES) -> tuple[dict[str, Any], bytes] | None:
    """Return the next record of a blocking stream; None at the stream's end.

    Raise FrameError if the stream ends within a record, or if the bytes are not a record.
    """
    raw = stream.read(HEAD.size)
    if not raw:
        return None
    text_length, data_length = head(raw, max_bytes)
    text = _exactly(stream, text_length)
    return body(text), _exactly(stream, data_length)


def _exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise FrameError(f"the stream ended inside a record, {length - len(data)} bytes of which are missing")
    return data


def write(stream: BinaryIO, record: dict[str, Any], data: bytes = b"") -> None:
    """Write one record to the stream, and flush the stream."""
    stream.write(pack(record, data))
    stream.flush()
