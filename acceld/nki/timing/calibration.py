"""Correct the performance model for one machine by factors and constants, which the state folder stores.

:mod:`acceld.nki.timing.calibration_fit` fits the factors and constants to measurements. Each latency that was
predicted with them is marked as calibrated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from acceld.errors import UsageError
from acceld.nki.timing.parameters import PARAMS_VERSION, TimelineParams, default_params

FILE = "calibration.json"
"""Name of the file with the calibrations in the state folder."""
FACTORS: Mapping[str, str] = {
    "overheads": "fixed cost of each instruction, and semaphores between engines",
    "transfers": "time of DMA transfers",
    "slack": "how much longer a schedule takes than the best one",
}
"""The quantity of the model that each factor multiplies, by the factor's name. A factor of 1 leaves the published model
as it is.
"""
RANGE = (0.75, 1.5)
"""Least and greatest allowed factor. A larger deviation is taken for an error of the model, not a property of the
machine.
"""
CONSTANTS: Mapping[str, str] = {
    "launch": "time of a launch in addition to the published model's",
    "transfer": "time that each DMA transfer takes of its engines beyond that of its rows",
}
"""The time that each constant adds, by the constant's name. Constants are in microseconds; 0 leaves the published model
unchanged. Only latencies of short kernels show these times clearly.
"""
CONSTANT_RANGE = (-10.0, 30.0)
"""Least and greatest constant in microseconds."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factors and constants for one chip and API, and the measurements behind them."""

    chip: str
    api: str
    kernels: int
    factors: Mapping[str, float]
    error_before_percent: float
    """Mean error of the published model on the measured kernels, in percent."""
    error_after_percent: float
    sdk: str = ""
    params_version: int = PARAMS_VERSION
    constants: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(CONSTANTS, 0.0))
    """Microseconds of each constant by name. A calibration file without this key has constants of 0."""

    def __post_init__(self) -> None:
        """Raise UsageError if a factor or constant is unknown, missing or out of range."""
        for values, known, (low, high) in (
            (self.factors, FACTORS, RANGE),
            (self.constants, CONSTANTS, CONSTANT_RANGE),
        ):
            if set(values) != set(known):
                other = ", ".join(sorted(set(values) ^ set(known)))
                raise UsageError(
                    f"the calibration of {self.chip} {self.api} was written by another version of acceld: "
                    f"missing or unknown are {other}",
                    hint="acceld calibrate --fit makes it anew",
                )
            for name, value in values.items():
                if not low <= value <= high:
                    raise UsageError(
                        f"the calibration of {self.chip} {self.api} has {name} = {value:g}, which is outside {low:g} to {high:g}",
                        hint="acceld calibrate --fit makes it anew",
                    )

    @property
    def digest(self) -> str:
        """Return a text that differs for any two different calibrations. Evaluations with different calibrations are
        never compared.
        """
        values = [self.factors[name] for name in FACTORS] + [self.constants[name] for name in CONSTANTS]
        return f"{self.params_version}.{self.kernels}.{'_'.join(f'{value:g}' for value in values)}"

    @property
    def text(self) -> str:
        """Return the factors and constants as a text for people, such as ``overheads x1.050, launch +2.00 us``."""
        factors = [f"{name} x{factor:.3f}" for name, factor in self.factors.items()]
        return ", ".join(factors + [f"{name} {us:+.2f} us" for name, us in self.constants.items() if us])

    @property
    def current(self) -> bool:
        """Tell whether the calibration was fitted with the model parameters of this version of acceld."""
        return self.params_version == PARAMS_VERSION

    def apply(self, params: TimelineParams) -> TimelineParams:
        """Return a copy of ``params`` that is corrected by this calibration."""
        return replace(changed(params, {**self.factors, **self.constants}), calibrated_on=self.kernels)

    def plain(self) -> dict[str, Any]:
        """Return the record as data for JSON, which :meth:`from_plain` reads."""
        return {**asdict(self), "factors": dict(self.factors), "constants": dict(self.constants)}

    @classmethod
    def from_plain(cls, found: Mapping[str, Any]) -> Self:
        """Return the calibration from the data that :meth:`plain` returns. Raise UsageError if the data are not
        valid.
        """
        try:
            return cls(**found)
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"the data are not a calibration: {error}", hint="acceld calibrate makes one") from error


def read(state_folder: Path) -> tuple[Calibration, ...]:
    """Return the calibrations in the state folder; () if there is no file. Raise UsageError for a damaged file."""
    path = state_folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can not be read: {error}", hint="acceld calibrate --forget removes it") from error
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UsageError(f"{path} holds no calibrations", hint="acceld calibrate --forget removes it")
    try:
        return tuple(Calibration.from_plain(one) for one in found)
    except UsageError as error:
        raise UsageError(
            f"{path}: {error.message}", hint=error.hint or "acceld calibrate --forget removes it"
        ) from error


def keep(state_folder: Path, found: Iterable[Calibration]) -> Path:
    """Replace the stored calibrations by ``found``, and return the path of their file.

    If ``found`` is empty, the file is removed.
    """
    path, kept = state_folder / FILE, [one.plain() for one in found]
    if not kept:
        path.unlink(missing_ok=True)
        return path
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path


def chosen(found: Iterable[Calibration], chip: str, api: str) -> Calibration | None:
    """Return the calibration for a chip and API; None if none in ``found`` was fitted for them with the parameters of
    this version.
    """
    return next((one for one in found if (one.chip, one.api) == (chip, api) and one.current), None)


def calibrated(found: Calibration | None, chip: str, api: str) -> TimelineParams:
    """Return the model parameters of a chip and API, corrected by ``found``; the published parameters if ``found`` is
    None.
    """
    params = default_params(api, chip)
    return params if found is None else found.apply(params)


def changed(params: TimelineParams, values: Mapping[str, float]) -> TimelineParams:
    """Return a copy of ``params`` with corrections by name. A factor is multiplied with a parameter, and a constant is
    added to a parameter.

    A factor that ``values`` does not name is 1. A constant that ``values`` does not name is 0.
    """
    overheads, transfers, slack = (values.get(name, 1.0) for name in FACTORS)
    launch_us, transfer_us = (values.get(name, 0.0) for name in CONSTANTS)
    return replace(
        params,
        overhead_factor=params.overhead_factor * overheads,
        semaphore_us=params.semaphore_us * overheads,
        transfer_factor=params.transfer_factor * transfers,
        latency_scale=params.latency_scale * slack,
        kernel_start_us=max(0.0, params.kernel_start_us + launch_us),
        each_transfer_us=max(0.0, params.each_transfer_us + transfer_us),
    )
