"""Store the noise of honest arithmetic for each workload and variant, so that it is measured only once.

numpy's float32 noise is measured when the first data set of a variant is made. The baseline's noise is measured only if
the errors of a candidate exceed numpy's noise. The baseline may be noisier than numpy and still right, because it sums
in another order or uses other functions.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.evaluate.correctness.bands import is_banded, stored_as
from acceld.evaluate.correctness.errors import NONE, Errors
from acceld.private_files import NO_ROOM
from acceld.workloads import Workload

log = logging.getLogger(__name__)

_LEAST_MULTIPLE = 2.0


@dataclass(frozen=True, slots=True)
class NumpyFloor:
    """The noise of numpy's float32 arithmetic on a variant, or the reason why the variant is not used (``refused``).

    ``floors`` has one record for each piece (whole output, or band of an output). ``seconds`` is the processor time of
    making the inputs and running the reference in float64.
    """

    floors: tuple[Errors, ...] = ()
    refused: str = ""
    seconds: float = 0.0


class Floors:
    """The noise floors of workloads, as small JSON files in ``folder``. Several threads may use this object at
    once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numpy: dict[tuple[str, str], NumpyFloor] = {}
        self._unwritten: dict[Path, dict[str, Any]] = {}
        """Entries for which the disk had no room, by file."""
        self._writing = threading.Lock()

    def of_numpy(self, loaded: Workload, variant: str) -> NumpyFloor | None:
        """Return the stored noise of numpy on a variant; None if the noise was not measured yet."""
        key = (loaded.hash, variant)
        if key not in self._numpy:
            stored = self._stored(self._numpy_path(loaded)).get(stored_as(variant))
            if stored is None:
                return None
            floors = tuple(Errors(*floor) for floor in stored["floors"])
            self._numpy[key] = NumpyFloor(floors, stored["refused"], stored["seconds"])
        return self._numpy[key]

    def learn_numpy(self, loaded: Workload, variant: str, floor: NumpyFloor) -> None:
        """Store the noise of numpy on a variant, which the oracle has measured."""
        self._numpy[(loaded.hash, variant)] = floor
        plain = [one.plain() for one in floor.floors]
        record = {"floors": plain, "refused": floor.refused, "seconds": floor.seconds}
        self._add(self._numpy_path(loaded), variant, record)

    def of_kernel(self, loaded: Workload, machine: str, chip: str, variant: str) -> tuple[Errors, ...] | None:
        """Return the stored errors of the workload's baseline on a variant, one record for each piece (whole output,
        or band of an output).

        Return None if the errors were not measured yet. ``machine`` is the name of the API if the baseline ran on the
        simulator or on this host, and the backend's name if it ran on a device.
        """
        stored = self._stored(self._kernel_path(loaded, machine, chip)).get(stored_as(variant))
        if not stored or not isinstance(stored[0], list):  # earlier releases stored one entry for all outputs
            return None
        return tuple(Errors(*one) for one in stored)

    def learn_kernel(
        self, loaded: Workload, machine: str, chip: str, variant: str, errors: Sequence[Errors], noise: Sequence[Errors]
    ) -> tuple[Errors, ...] | None:
        """Store the ``errors`` of a workload's baseline on a variant, and return them.

        ``noise`` is the noise of numpy. If the baseline is off by more than the published tolerance and by more than
        twice that noise, nothing is stored and None is returned: a wrong baseline must not widen the tolerance of
        candidates. This rule does not hold for bands of hard inputs, because no workload declares such bands. In a band
        a candidate need not be better than the workload's own kernel.
        """
        worst = NONE
        for found in errors:
            worst = worst.worst(found)
        allowed = max(loaded.tolerance, _LEAST_MULTIPLE * max((floor.rel_l2 for floor in noise), default=0.0))
        if not is_banded(variant) and (not worst.finite or worst.rel_l2 > allowed):
            log.info(
                "on %s inputs the baseline of %s is off by %.3g on %s, beyond the published tolerance: "
                "not used as a noise floor",
                *(variant, loaded.name, worst.rel_l2, chip),
            )
            return None
        self._add(self._kernel_path(loaded, machine, chip), variant, [one.plain() for one in errors])
        return tuple(errors)

    def _add(self, path: Path, variant: str, record: Any) -> None:
        """Add one entry to a file. If the disk has no room, the entry stays in memory."""
        with self._writing:
            self._unwritten.setdefault(path, {})[stored_as(variant)] = record
            try:
                _write(path, self._stored(path))
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                log.warning("%s is kept in memory until the disk has room: %s", path, error.strerror)
            else:
                del self._unwritten[path]

    def _stored(self, path: Path) -> dict[str, Any]:
        """Return the entries of a file, together with the entries for which the disk had no room."""
        return {**_read(path), **self._unwritten.get(path, {})}

    def _numpy_path(self, loaded: Workload) -> Path:
        return self._folder / f"{loaded.hash[:24]}-numpy.json"

    def _kernel_path(self, loaded: Workload, machine: str, chip: str) -> Path:
        return self._folder / f"{loaded.hash[:24]}-{machine}-{chip}.json"


def _write(path: Path, stored: dict[str, Any]) -> None:
    """Replace a JSON file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(stored), encoding="ascii")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _read(path: Path) -> dict[str, Any]:
    """Return the entries of a JSON file; an empty dict if the file can not be read."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return {}
    return found
