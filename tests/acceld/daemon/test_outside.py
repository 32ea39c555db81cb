"""Requests from outside name the kernels to interleave with, and get the comparison."""

from __future__ import annotations

from typing import Any

import pytest

from acceld.config import Config
from acceld.daemon.outside import answer, request_of
from acceld.errors import UsageError
from acceld.model import Evaluation, Failure, Gate, Profile, Source, Status
from acceld.workloads import ArraySpec

BODY: dict[str, Any] = {"workload": "matmul_cpu", "backend": "cpu", "kernel": {"text": "mine", "api": "c"}}


def test_turns_are_asked_for_with_kernels_and_with_the_baseline() -> None:
    request = request_of(BODY | {"id": 1, "against": [{"text": "other", "api": "c"}, "baseline"]}, Config())
    other, baseline = request.against
    assert other.text == "other" and "out[i * N + j] = sum" in baseline.text
    assert request.kernel.entry == other.entry, "launched as the workload says"
    assert request_of(BODY, Config()).against == ()


def test_a_workload_without_a_baseline_for_the_api_takes_no_turns() -> None:
    body = {"workload": "silu", "kernel": {"text": "mine", "api": "nki_legacy"}, "against": ["baseline"]}
    assert len(request_of(body, Config()).against) == 1
    lacking = {
        "workload": "rmsnorm_bf16",
        "backend": "cuda",
        "kernel": {"text": "mine", "api": "triton"},
        "against": ["baseline"],
    }
    assert request_of(lacking, Config()).against == ()


@pytest.mark.parametrize(
    ("against", "said"),
    [
        ("baseline", "a list"),
        (["baseline"] * 5, "at most 4"),
        (["the other one"], "a JSON object with the key text"),
        ([{"text": "other", "api": "numpy"}], "can not be timed interleaved"),
        ([{"text": "other", "grids": [2]}], "grid"),
    ],
)
def test_what_can_not_be_interleaved_is_refused(against: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        request_of(BODY | {"against": against}, Config())


def test_the_answer_tells_of_those_who_were_asked_for_also_without_details() -> None:
    asked = BODY | {"against": [{"text": "other", "api": "c"}, "baseline"], "details": False}
    request = request_of(asked, Config())
    pairs = [
        {"against": one.sha256, "ratio": ratio}
        for one, ratio in zip(reversed(request.against), (2.0, 3.0), strict=True)
    ]
    details = {"paired": [*pairs, {"against": "somebody else", "ratio": 4.0}]}
    profile = Profile(Source.MEASURED, "host", "c", 1.0, "doorbell", details=details)
    reported = answer(asked, request, Evaluation(Status.UNTESTED, "s", profile=profile))
    assert [one["ratio"] for one in reported["paired"]] == [3.0, 2.0]
    assert reported["profile"]["details"] == {}
    failed = answer(asked, request, Evaluation(Status.TIMEOUT, "s", failure=Failure("deadline", "late")))
    assert failed["paired"] == []


def test_a_kernel_with_arguments_and_no_workload_is_timed_on_the_simulator() -> None:
    given = [{"shape": [128, 512], "dtype": "float32"}, 0.5, 3, True]
    request = request_of({"kernel": {"text": "mine", "api": "nki_legacy"}, "arguments": given}, Config())
    assert request.arguments == (ArraySpec((128, 512), "float32"), 0.5, 3, True)
    assert (request.backend, request.gate, request.workload) == ("simulator", Gate.TIMING, "")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"gate": "search"}, "can only time the kernel"),
        ({"arguments": [{"shape": "wide", "dtype": "float32"}]}, "arguments"),
        ({"kernel": None}, "a JSON object with the key text"),
    ],
)
def test_arguments_that_can_not_be_used_are_refused(more: dict[str, Any], said: str) -> None:
    body = {"kernel": {"text": "mine", "api": "nki_legacy"}, "arguments": [0.5]}
    with pytest.raises(UsageError, match=said):
        request_of(body | more, Config())
