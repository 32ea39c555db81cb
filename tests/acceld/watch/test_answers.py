"""A result survives the conversion to the daemon's JSON and back."""

from __future__ import annotations

import json
from dataclasses import asdict

from acceld.model import Check, Correctness, Evaluation, Failure, Gate, Profile, Source, Status
from acceld.watch.answers import evaluation_from

PROFILE = Profile(Source.MEASURED, "host", "numpy", 12.5, "wall clock", interval_percent=1.0, samples_us=(12.0, 13.0))
RIGHT = Correctness(Gate.SEARCH, 1e-7, 2e-5, checks=(Check("own/seed 0", True, 1e-7, 2e-5),))


def through_json(evaluation: Evaluation) -> Evaluation:
    return evaluation_from(json.loads(json.dumps(asdict(evaluation))) | {"of_a_newer_daemon": 1})


def test_a_pass_and_a_failure_come_back_whole() -> None:
    passed = Evaluation(Status.PASSED, "a" * 64, correctness=RIGHT, profile=PROFILE, seconds={"check": 0.5})
    assert through_json(passed) == passed
    failed = Evaluation(Status.COMPILE_ERROR, "b" * 64, failure=Failure("NCC_1", "odd rows", 3, "even them"))
    assert through_json(failed) == failed
