"""Verify and time a Program in the judge's child process.

Programs run on data in :mod:`acceld.evaluate.simulated.simulation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acceld.nki.errors import LegalityError
from acceld.nki.ir.program import Program
from acceld.nki.timing.calibration import Calibration, calibrated
from acceld.nki.timing.timeline import MOST_EVENTS, timeline
from acceld.nki.verify import verifier as nki_verify
from acceld.nki.verify.limits import rulebook


def verify(program: Program, *, strict: bool) -> None:
    """Raise LegalityError if the program breaks a rule of the chip or the API. The error names the first such rule
    and the kernel's line.
    """
    findings = nki_verify.verify(program, rulebook(program.api, program.chip, strict))
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        first = findings[0]
        raise LegalityError(first.message + more, rule=first.rule, line=first.line, hint=first.hint)


def profile(program: Program, *, exact: bool = False, calibration: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the program's predicted timeline, as a dict for JSON.

    With ``exact`` as many executions as the limits allow are timed. Otherwise long loops are extrapolated from
    a sample. ``calibration`` is this machine's, for the program's chip and API. The result is read by
    :func:`acceld.evaluate.simulated.profiles.profile_from`. Raise MissingRule for an operation without a
    price.
    """
    fitted = Calibration.from_plain(calibration) if calibration else None
    params = calibrated(fitted, program.chip, program.api)
    return timeline(program, params, max_events=MOST_EVENTS if exact else None).to_json()
