"""Check the actions that people ask of runs, and describe the actions in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acceld.errors import UsageError, did_you_mean
from acceld.http.answers import ConflictError
from acceld.model import PROPOSERS, Candidate, RunSpec, Status
from acceld.search.beam import is_selectable
from acceld.search.control import RunControl
from acceld.search.strategies import strategy

ACTIONS: dict[str, tuple[str, ...]] = {
    "pause": (),
    "resume": (),
    "cancel": (),
    "pin": ("candidate",),
    "unpin": ("candidate",),
    "veto": ("candidate",),
    "unveto": ("candidate",),
    "branch": ("candidate",),
    "hint": ("text",),
    "remeasure": ("candidate",),
    "budget": ("usd",),
    "apply": ("path", "expected_sha256"),
    "note": ("text",),
}
"""Every action, with the arguments that the action needs."""

OPTIONAL = {"note": ("candidate",), "apply": ("even_if_tied",), "pause": ("at_once",)}


def check(action: str, arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown action, or for arguments that do not fit the action."""
    if action not in ACTIONS:
        raise UsageError(
            f"there is no action {action!r}. {did_you_mean(action, ACTIONS)}".rstrip(),
            hint=f"One of {', '.join(ACTIONS)}.",
        )
    needed = ACTIONS[action]
    missing = [name for name in needed if name not in arguments]
    unknown = [name for name in arguments if name not in (*needed, *OPTIONAL.get(action, ()))]
    if missing or unknown:
        raise UsageError(
            f"the action {action} needs {', '.join(needed) or 'no arguments'}, and was given {', '.join(arguments) or 'no arguments'}",
            hint="docs/protocol.md lists the actions and what each needs",
        )
    for name, value in arguments.items():
        if name == "candidate" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(
                f"candidate = {value!r} is not the number of a candidate",
                hint="candidates have numbers, such as 12; acceld tree lists them",
            )
        if name in ("text", "path", "expected_sha256") and (not isinstance(value, str) or not value.strip()):
            wrong = "is empty" if isinstance(value, str) else f"= {value!r} is not text"
            raise UsageError(f"{name} {wrong}", hint=f"{action} needs {name}")
        if name in ("even_if_tied", "at_once") and not isinstance(value, bool):
            raise UsageError(
                f"{name} = {value!r} is not true or false", hint="write true or false, without quotation marks"
            )
        if name == "usd" and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9):
            raise UsageError(
                f"usd = {value!r} is not an amount", hint="give a number of USD: at least 0, and below 1e9"
            )


def refuse_idle(action: str, spec: RunSpec, candidate: Candidate | None) -> None:
    """Raise UsageError or ConflictError if an action would change nothing in a run."""
    if action == "hint" and not PROPOSERS[spec.proposer].uses_models:
        raise UsageError(
            "this run's proposals come from rules, which read no hints",
            hint="--proposer llm, both or command, in a new run",
        )
    if action == "pin" and not strategy(spec.search).keeps_pins:
        raise UsageError(
            f"the strategy {spec.search.strategy} keeps no beam that a candidate could be pinned to",
            hint="--strategy beam, in a new run",
        )
    if candidate is None or candidate.evaluation is None:
        return
    status = candidate.evaluation.status
    usable = is_selectable(candidate) or (action == "pin" and status is Status.UNTESTED)
    if action in ("pin", "branch") and not usable:
        raise ConflictError(
            f"c{candidate.id} is {status}: nothing can continue from it", hint="choose a candidate that passed"
        )


def shown(control: RunControl) -> dict[str, Any]:
    """Return what people have asked of a run, as plain data for clients."""
    return {
        "paused": not control.running.is_set(),
        "cancelling": control.cancelled,
        "pinned": sorted(control.pinned),
        "vetoed": sorted(control.vetoed),
        "branches": list(control.branches),
        "hints": list(control.hints),
    }
