"""Messages from children are bounded and cleaned, whatever they hold."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.evaluate.sandbox.messages import BadMessage, clean, failure_from, failure_record, pack, parse, unpack
from acceld.evaluate.sandbox.process import _memory_file
from acceld.evaluate.sandbox.reply import Reply
from acceld.model import Status
from acceld.nki.errors import LegalityError, LimitExceeded, UnsupportedCall
from tests.properties import examples


@pytest.fixture
def reply() -> Iterator[Reply]:
    made = Reply(_memory_file())
    yield made
    made.close()


def test_a_message_comes_back(reply: Reply) -> None:
    os.write(reply.descriptor, pack({"a": 1}) + b"payload")
    header, offset = parse(reply)
    assert header == {"a": 1}
    assert reply.read(100, offset) == b"payload"
    assert unpack(reply.read(1000)) == ({"a": 1}, b"payload")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\xff\xff\xff\xff{}",
        struct.pack("<I", 5) + b"{}",
        struct.pack("<I", 2) + b"[]",
        struct.pack("<I", 100_000) + b"[" * 100_000,
        struct.pack("<I", 2) + b"\xff\xfe",
    ],
)
def test_garbage_is_no_message(reply: Reply, data: bytes) -> None:
    os.write(reply.descriptor, data)
    with pytest.raises(BadMessage):
        parse(reply)


@given(st.binary(max_size=300))
@examples(50)
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with Reply(_memory_file()) as reply:
        os.write(reply.descriptor, data)
        try:
            header, offset = parse(reply)
        except BadMessage:
            return
        assert isinstance(header, dict)
        assert offset <= len(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "failure": st.dictionaries(st.sampled_from(["class", "rule", "message", "line", "hint"]), _JSON) | _JSON
        },
    )
)
@examples(30)
def test_any_failure_record_is_a_failure_or_refused(header: dict[str, object]) -> None:
    try:
        status, failure = failure_from(json.loads(json.dumps(header)))
    except BadMessage:
        return
    assert isinstance(status, Status)
    assert failure.rule
    assert failure.message
    assert failure.line >= 0
    assert len(failure.message) <= 4000


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnsupportedCall("no such call", line=3), Status.UNSUPPORTED),
        (LegalityError("too many", rule="partition_limit", line=3), Status.COMPILE_ERROR),
        (LimitExceeded("too long", rule="trace_deadline", line=3), Status.TIMEOUT),
        (LimitExceeded("too many", rule="instruction_limit", line=3), Status.COMPILE_ERROR),
        (RuntimeError("boom"), Status.COMPILE_ERROR),
    ],
)
def test_what_a_child_reports_becomes_a_status(error: Exception, status: Status) -> None:
    found, failure = failure_from(failure_record(error))
    assert found is status
    assert failure.message


def test_terminal_escapes_and_direction_marks_are_removed() -> None:
    text = clean("a\x1b]52;c;QQ==\x07b\u202ec\x00\x9b2Jd\n\te é 漢 ±")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x9b" not in text
    assert text.endswith("d\n\te é 漢 ±")
    assert clean(5) == ""
    assert len(clean("x" * 10_000)) == 4000
