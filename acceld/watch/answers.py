"""A verdict from the JSON in which the daemon gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from acceld.model import Check, Correctness, Evaluation, Failure, Gate, Profile, Source, Status


def evaluation_from(raw: Mapping[str, Any]) -> Evaluation:
    """The record of ``POST /v1/evaluations``; what a newer daemon tells besides is left out."""
    failure, correctness, profile = raw.get("failure"), raw.get("correctness"), raw.get("profile")
    return Evaluation(
        **{
            **_known(Evaluation, raw),
            "status": Status(raw["status"]),
            "failure": Failure(**_known(Failure, failure)) if failure else None,
            "correctness": _correctness(correctness) if correctness else None,
            "profile": _profile(profile) if profile else None,
        }
    )


def _correctness(raw: Mapping[str, Any]) -> Correctness:
    checks = tuple(Check(**_known(Check, check)) for check in raw["checks"])
    return Correctness(**{**_known(Correctness, raw), "gate": Gate(raw["gate"]), "checks": checks})


def _profile(raw: Mapping[str, Any]) -> Profile:
    lists = {name: tuple(raw[name]) for name in ("notes", "samples_us")}
    return Profile(**{**_known(Profile, raw), **lists, "source": Source(raw["source"])})


def _known(kind: Any, raw: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in raw.items() if name in names}
