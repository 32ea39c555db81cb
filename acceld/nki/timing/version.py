"""Identify the performance model by a text, its version. Predictions with different versions are never compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from acceld import chips
from acceld.nki.timing.calibration import Calibration
from acceld.nki.timing.parameters import PARAMS_VERSION

_SIMULATOR = Path(__file__).parents[1]
ASIDE = ("port", "source")
"""Packages of the simulator that no traced, checked, executed or timed kernel uses: they only read and write source."""


@cache
def model_version() -> str:
    """Return the version of the performance model, such as ``9.3f2a91c0``.

    The number is the version of the parameters. The digits are a digest of the simulator's source and of the
    chips' constants. So every change that could alter a prediction alters the version.
    """
    return f"{PARAMS_VERSION}.{digest(sources())}"


def sources() -> list[Path]:
    """Return the files on which predictions depend, in a fixed order.

    Compiled code is left out, because it only repeats some of these files.
    """
    kept = [path for path in _SIMULATOR.rglob("*.py") if path.relative_to(_SIMULATOR).parts[0] not in ASIDE]
    return [*sorted(kept), Path(chips.__file__)]


def digest(paths: Iterable[Path]) -> str:
    """Return eight hex digits of a digest over names and contents of files. Windows and Unix line ends give the same
    digest.
    """
    found = hashlib.sha256()
    for path in paths:
        text = path.read_bytes().replace(b"\r\n", b"\n")
        found.update(f"{path.parent.name}/{path.name}\0{len(text)}\0".encode() + text)
    return found.hexdigest()[:8]


def model_of(calibration: Calibration | None) -> str:
    """Return the identity of the performance model with the corrections of ``calibration``. With None, the model is not
    calibrated.
    """
    return model_version() if calibration is None else f"{model_version()}.c{calibration.digest}"
