"""The simulator as a backend: verify, time and run a Program, and the timeline's record as a Profile.

All that handles a Program runs in the judge child (:mod:`acceld.evaluate.judge`), never in the daemon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from acceld.backends.base import Device
from acceld.model import Profile, Source
from acceld.nki import verify as nki_verify
from acceld.nki.errors import LegalityError
from acceld.nki.execute import ExecuteOptions, execute
from acceld.nki.legality.rulebook import rulebook
from acceld.nki.program import Program

NAME = "simulator"
APIS = frozenset({"nki_legacy", "nki"})


def devices(chip: str, slots: int) -> tuple[Device, ...]:
    """The simulator's slots; each runs one evaluation at a time."""
    return tuple(Device(NAME, index, chip, f"sim{index}") for index in range(slots))


def verify(program: Program, *, strict: bool) -> None:
    """Check every rule of the chip and API. KernelFailure, with the line, for the first one broken."""
    findings = nki_verify.verify(program, rulebook(program.api, program.chip, strict))
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        first = findings[0]
        raise LegalityError(first.message + more, rule=first.rule, line=first.line, hint=first.hint)


def profile(program: Program, chip: str) -> dict[str, Any]:
    """The program's timeline as JSON-able data; :func:`profile_from` reads it."""
    return {"latency_us": None}


def profile_from(raw: dict[str, Any], *, api: str, chip: str) -> Profile:
    """The Profile of what :func:`profile` wrote."""
    return Profile(Source.SIMULATED, chip, api, raw["latency_us"], method="none")


def run(
    program: Program, inputs: Sequence[NDArray[Any]], *, shuffle: int | None, float64: bool, max_bytes: int
) -> list[NDArray[Any]]:
    """Execute the program on arrays in the kernel's layout. KernelFailure where it fails."""
    options = ExecuteOptions(float64=float64, shuffle_affine=shuffle, max_bytes=max_bytes)
    return execute(program, inputs, options)
