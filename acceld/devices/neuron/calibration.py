"""Keep which cores of this machine disturb each other's times."""

from __future__ import annotations

import json
from pathlib import Path

from acceld.devices.neuron.runtime.cores import Isolation

DEFAULT = Isolation.PAIR
"""Until interference was measured: the two cores that share an HBM stack."""


def isolation_of(state_folder: Path) -> Isolation:
    """The isolation group that was learned, else the default."""
    try:
        return Isolation(json.loads(_file(state_folder).read_text(encoding="utf-8"))["isolation"])
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT


def keep_isolation(state_folder: Path, isolation: Isolation, slowdown: dict[str, float]) -> Path:
    """Write what was learned; ``slowdown`` is the ratio of busy to quiet latency by kind of neighbor."""
    path = _file(state_folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"isolation": isolation.value, "slowdown": slowdown}), encoding="utf-8")
    partial.replace(path)
    return path


def _file(state_folder: Path) -> Path:
    return state_folder / "neuron" / "interference.json"
