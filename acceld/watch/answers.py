"""A verdict from the JSON in which the daemon gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acceld.model import Check, Correctness, Evaluation, Failure, Gate, Profile, Source, Status


def evaluation_from(raw: Mapping[str, Any]) -> Evaluation:
    """The record of ``POST /v1/evaluations``."""
    failure, correctness, profile = raw.get("failure"), raw.get("correctness"), raw.get("profile")
    return Evaluation(
        **{
            **raw,
            "status": Status(raw["status"]),
            "failure": Failure(**failure) if failure else None,
            "correctness": _correctness(correctness) if correctness else None,
            "profile": _profile(profile) if profile else None,
        }
    )


def _correctness(raw: Mapping[str, Any]) -> Correctness:
    checks = tuple(Check(**check) for check in raw["checks"])
    return Correctness(**{**raw, "gate": Gate(raw["gate"]), "checks": checks})


def _profile(raw: Mapping[str, Any]) -> Profile:
    lists = {name: tuple(raw[name]) for name in ("notes", "samples_us")}
    return Profile(**{**raw, **lists, "source": Source(raw["source"])})
