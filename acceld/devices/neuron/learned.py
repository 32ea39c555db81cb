"""Store facts learned about this machine: which cores disturb each other, and in which jail a toolchain works."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from acceld.devices.neuron.runtime.compiler import CompileJail, Versions
from acceld.devices.neuron.runtime.cores import Isolation

DEFAULT = Isolation.PAIR
"""Isolation group until interference has been measured: the two physical cores that share an HBM stack."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The jail, the compile route and the signatures of the compiler's functions with which a toolchain compiled a
    known-good kernel.
    """

    jail: CompileJail
    route: str
    signatures: Mapping[str, str] = field(default_factory=dict)


def toolchain_key(python: str, versions: Versions) -> str:
    """Return the key under which facts about a toolchain are stored: its interpreter's path and the versions of
    neuronx-cc and nki.
    """
    return f"{python}: neuronx-cc {versions.compiler}, nki {versions.nki or 'none'}"


def toolchain_of(state_folder: Path, key: str) -> Learned | None:
    """Return the stored facts about a toolchain; None if no facts are stored."""
    try:
        reported = _read(state_folder, "toolchains")[key]
        return Learned(CompileJail(reported["jail"]), str(reported["route"]), dict(reported["signatures"]))
    except (ValueError, KeyError, TypeError):
        return None


def keep_toolchain(state_folder: Path, key: str, learned: Learned) -> Path:
    """Store facts about a toolchain, and return the file's path."""
    return _write(state_folder, "toolchains", {**_read(state_folder, "toolchains"), key: asdict(learned)})


def isolation_of(state_folder: Path) -> Isolation:
    """Return the stored isolation group; :data:`DEFAULT` if no group is stored."""
    try:
        return Isolation(_read(state_folder, "interference")["isolation"])
    except (ValueError, KeyError, TypeError):
        return DEFAULT


def keep_isolation(state_folder: Path, isolation: Isolation, slowdown: dict[str, float]) -> Path:
    """Store an isolation group, and return the file's path.

    ``slowdown`` has, by kind of neighbor, the latency beside a busy neighbor divided by the quiet latency.
    """
    return _write(state_folder, "interference", {"isolation": isolation.value, "slowdown": slowdown})


def _read(state_folder: Path, name: str) -> dict[str, Any]:
    try:
        reported = json.loads(_file(state_folder, name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return reported if isinstance(reported, dict) else {}


def _write(state_folder: Path, name: str, content: Mapping[str, object]) -> Path:
    path = _file(state_folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    partial.replace(path)
    return path


def _file(state_folder: Path, name: str) -> Path:
    return state_folder / "neuron" / f"{name}.json"
