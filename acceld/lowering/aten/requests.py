"""Ask a child process for the references of PyTorch modules. This process never imports torch, nor a person's module."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.child import child
from acceld.errors import UsageError

AGREES = 1e-6
"""Greatest relative distance, in float64, of a reference from its module: far above rounding, far below any error."""


@dataclass(frozen=True, slots=True)
class ModuleRequest:
    """A module (``pkg.mod:Class`` or ``file.py:Class``) and how it is made and called."""

    module: str
    arguments: tuple[Mapping[str, Any], ...] = ()
    """Name, shape and dtype of each array in order; empty if the module's file has ``get_inputs``."""

    init: Mapping[str, Any] | None = None
    """Arguments of the class."""

    training: bool = False
    reduced: bool = False
    """True for smaller sizes than the file has, for a check on this machine."""

    dtype: str = ""
    """Type of the parameters, if not their own."""


@dataclass(frozen=True, slots=True)
class ModuleArgument:
    """An argument of a module's reference."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    absolute: bool
    """True for a variance, which is never negative."""


@dataclass(frozen=True, slots=True)
class ModuleReference:
    """The reference of a module, its arguments by name in order, and how far it is from the module on data."""

    module: str
    text: str
    arguments: tuple[ModuleArgument, ...]
    difference: float | None
    """None if the module is too large to run here."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A module that has no reference, and why."""

    module: str
    why: str


def module_references(requests: Sequence[ModuleRequest]) -> Iterator[ModuleReference | Refused]:
    """Yield an answer to each request in order, from one child process, and another after a module that ended it.

    A reference that differs from its module on data is refused: nothing wrong is handed on. UsageError without PyTorch.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError("PyTorch is not installed", hint="pip install 'acceld[torch]'; its build for CPUs will do")
    waiting = list(requests)
    while waiting:
        for found in _answers(tuple(waiting)):
            waiting.pop(0)
            yield found


def _answers(requests: Sequence[ModuleRequest]) -> Iterator[ModuleReference | Refused]:
    """Yield an answer to each request up to the first whose module ends the child process, that one included."""
    start = child("acceld.lowering.aten.export", *_folders(requests))
    with tempfile.TemporaryFile() as heard, tempfile.TemporaryFile() as told:
        told.write("".join(json.dumps(_plain(one)) + "\n" for one in requests).encode())
        told.seek(0)
        with subprocess.Popen(
            start.command, env=start.environment, stdin=told, stdout=subprocess.PIPE, stderr=heard, text=True
        ) as process:
            assert process.stdout is not None
            for request in requests:
                line = process.stdout.readline()
                if not line:
                    process.wait()
                    heard.seek(0)
                    last = heard.read().decode(errors="replace").strip().splitlines()[-1:]
                    said = last[0] if last else "no message"
                    yield Refused(request.module, f"recording it ended with exit code {process.returncode}: {said}")
                    return
                yield _answer(request, json.loads(line))


def _folders(requests: Sequence[ModuleRequest]) -> list[str]:
    """Return the folders that modules are imported from: those of their files, and the current one for dotted names."""
    found: dict[str, None] = {}
    for one in requests:
        where = one.module.rpartition(":")[0] or one.module
        found[str(Path(where).resolve().parent if where.endswith(".py") else Path.cwd())] = None
    return list(found)


def _plain(request: ModuleRequest) -> dict[str, Any]:
    return {
        "module": request.module,
        "arguments": [dict(one) for one in request.arguments],
        "init": dict(request.init or {}),
        "training": request.training,
        "reduced": request.reduced,
        "dtype": request.dtype,
    }


def _answer(request: ModuleRequest, raw: Mapping[str, Any]) -> ModuleReference | Refused:
    if "refused" in raw:
        return Refused(request.module, raw["refused"])
    difference = raw["difference"]
    if difference is not None and not difference <= AGREES:
        return Refused(request.module, f"its reference differs from it by {difference:.2g} on data: please report this")
    arguments = tuple(
        ModuleArgument(one["name"], tuple(one["shape"]), one["dtype"], one["absolute"]) for one in raw["arguments"]
    )
    return ModuleReference(request.module, raw["reference"], arguments, difference)
