"""Steer runs: check requests, apply them to the run's control, and apply them again after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from acceld.errors import UsageError, did_you_mean
from acceld.search.control import RunControl

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
"""Every action and the arguments that it needs."""

OPTIONAL = {"note": ("candidate",), "apply": ("even_if_tied",)}
LASTING = frozenset({"pin", "unpin", "veto", "unveto", "hint", "branch"})
"""Actions that a restarted daemon applies again."""


def check(action: str, arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown action, or wrong arguments."""
    if action not in ACTIONS:
        raise UsageError(
            f"there is no action {action!r}. {did_you_mean(action, ACTIONS)}".rstrip(),
            hint=f"One of {', '.join(ACTIONS)}.",
        )
    needed = ACTIONS[action]
    missing = [name for name in needed if name not in arguments]
    unknown = [name for name in arguments if name not in (*needed, *OPTIONAL.get(action, ()))]
    if missing or unknown:
        raise UsageError(f"{action} needs {', '.join(needed) or 'nothing'}, not {', '.join(arguments) or 'nothing'}")
    for name, value in arguments.items():
        if name == "candidate" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UsageError(f"candidate = {value!r} is not an id")
        if name in ("text", "path", "expected_sha256") and (not isinstance(value, str) or not value.strip()):
            raise UsageError(f"{name} = {value!r} is not text")
        if name == "even_if_tied" and not isinstance(value, bool):
            raise UsageError(f"even_if_tied = {value!r} is not true or false")
        if name == "usd" and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9):
            raise UsageError(f"usd = {value!r} is not an amount")


def apply(control: RunControl, action: str, arguments: Mapping[str, Any]) -> str:
    """Apply a lasting action, and return a message about it."""
    candidate = arguments.get("candidate", 0)
    match action:
        case "pin":
            control.vetoed.discard(candidate)
            control.pinned.add(candidate)
            return f"pinned c{candidate}"
        case "unpin":
            control.pinned.discard(candidate)
            return f"c{candidate} is no longer pinned"
        case "veto":
            control.pinned.discard(candidate)
            control.vetoed.add(candidate)
            return f"c{candidate} is never selected"
        case "unveto":
            control.vetoed.discard(candidate)
            return f"c{candidate} may be selected"
        case "branch":
            control.branches.append(candidate)
            return f"c{candidate} is a parent in the next iteration"
        case "hint":
            control.hints.append(arguments["text"].strip())
            return "the planner gets it from its next plan on"
    raise UsageError(f"{action} does not last")


def control_from(actions: Iterable[tuple[str, Mapping[str, Any]]]) -> RunControl:
    """Return the control of a run of an earlier daemon: its lasting actions in order, without branches already taken."""
    control = RunControl()
    for action, arguments in actions:
        if action in LASTING and action != "branch":
            apply(control, action, arguments)
    return control


def shown(control: RunControl) -> dict[str, Any]:
    """Return a run's steering as plain data for clients."""
    return {
        "paused": not control.running.is_set(),
        "pinned": sorted(control.pinned),
        "vetoed": sorted(control.vetoed),
        "branches": list(control.branches),
        "hints": list(control.hints),
    }
