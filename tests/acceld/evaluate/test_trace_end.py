"""Tell a kernel's author why a trace ended at its deadline."""

from __future__ import annotations

import os

import pytest

from acceld.evaluate.case import Failed
from acceld.evaluate.sandbox.process import Outcome
from acceld.evaluate.sandbox.reply import Reply
from acceld.evaluate.simulated.children import _tracer_answer
from acceld.model import Status


@pytest.mark.parametrize("cause", ["deadline", "cpu"])
def test_a_trace_that_ends_at_its_deadline_is_told_which_loops_are_traced_quickly(cause: str) -> None:
    with Reply(os.memfd_create("reply")) as reply:
        ended = _tracer_answer(Outcome(None, 9, cause), reply)
    assert isinstance(ended, Failed)
    assert (ended.status, ended.failure.rule) == (Status.TIMEOUT, "trace_deadline")
    assert "nl.affine_range" in ended.failure.hint
