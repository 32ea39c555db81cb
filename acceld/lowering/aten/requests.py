"""Ask a child process for the references and regions of PyTorch modules.

The child process imports torch and the user's module, so that the calling process does not.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.child import child
from acceld.errors import UsageError

AGREES = 1e-6
"""Greatest relative distance, in float64, at which a reference counts as equal to its module.

Rounding stays far below this distance, and an error is far above it.
"""


@dataclass(frozen=True, slots=True)
class ModuleRequest:
    """A request for a PyTorch module (``pkg.mod:Class`` or ``file.py:Class``): how it is constructed, and how it is
    called.
    """

    module: str
    arguments: tuple[Mapping[str, Any], ...] = ()
    """The name, the shape and the dtype of each array that the module takes, in order; empty if its file has
    ``get_inputs``.
    """

    init: Mapping[str, Any] | None = None
    """Arguments with which the module's class is constructed."""

    training: bool = False
    reduced: bool = False
    """True to use smaller sizes than the file has, so that the reference can be checked on this machine."""

    dtype: str = ""
    """Dtype to which the module's parameters are converted. "" leaves each parameter in its own dtype."""


@dataclass(frozen=True, slots=True)
class ModuleArgument:
    """An argument of a module's reference, which may be a weight of the module."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    absolute: bool
    """True for an array of variances, which are never negative."""


@dataclass(frozen=True, slots=True)
class ModuleReference:
    """The numpy reference of a module: its source, its arguments in order, and its difference from the module."""

    module: str
    text: str
    arguments: tuple[ModuleArgument, ...]
    difference: float | None
    """Greatest relative L2 distance between an output of the reference and the module's output, on drawn data.

    None means that the module is too large to run on this machine.
    """


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal: the module, and the reason why the module has no reference."""

    module: str
    why: str


@dataclass(frozen=True, slots=True)
class ModuleRegion:
    """One region of a module: how often the module runs it, its work, and its reference or the reason of a refusal.

    ``products`` and ``others`` are the floating-point operations of matrix products and of everything else.
    """

    name: str
    count: int
    dtype: str
    """Dtype of the operands of the region's matrix products."""
    arguments: tuple[ModuleArgument, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    products: int
    others: int
    moved_bytes: int
    text: str
    """Source of the region's reference; empty if the region is refused."""
    why: str
    """Reason why the region has no reference; empty if it has a reference."""


def module_references(requests: Sequence[ModuleRequest]) -> Iterator[ModuleReference | Refused]:
    """Yield the reference of each requested module, or its refusal, in order. Raise UsageError without PyTorch.

    One child process answers all requests. If a module ends the process, a new process answers the remaining requests. A
    reference that differs from its module on data is refused.
    """
    _need_torch()
    waiting = list(requests)
    while waiting:
        for raw in _answers(tuple(waiting)):
            yield _answer(waiting.pop(0), raw)


def module_regions(request: ModuleRequest) -> list[ModuleRegion]:
    """Return the regions of a module.

    Raise UsageError if the module can not be recorded, or if PyTorch is not installed.
    """
    _need_torch()
    (raw,) = _answers((request,), divide=True)
    if "refused" in raw:
        raise UsageError(f"{request.module}: {raw['refused']}")
    return [
        ModuleRegion(
            one["name"],
            one["count"],
            one["dtype"],
            _arguments(one["arguments"]),
            tuple((tuple(each["shape"]), each["dtype"]) for each in one.get("outputs", ())),
            one.get("products", 0),
            one.get("others", 0),
            one["bytes"],
            one.get("reference", ""),
            one.get("refused", ""),
        )
        for one in raw["regions"]
    ]


def _need_torch() -> None:
    """Raise UsageError if PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "PyTorch is not installed",
            hint="pip install 'acceld[torch]'; its smaller build for CPUs will do, too: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu",
        )


def _answers(requests: Sequence[ModuleRequest], *, divide: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the answers of one child process to the requests, as dicts from its JSON.

    If a module ends the child process, the last answer is a refusal of this module. ``divide`` asks for regions.
    """
    start = child("acceld.lowering.aten.export", *_folders(requests))
    with tempfile.TemporaryFile() as heard, tempfile.TemporaryFile() as told:
        told.write("".join(json.dumps(_plain(one) | {"divide": divide}) + "\n" for one in requests).encode())
        told.seek(0)
        with subprocess.Popen(
            start.command, env=start.environment, stdin=told, stdout=subprocess.PIPE, stderr=heard, text=True
        ) as process:
            assert process.stdout is not None
            for _ in requests:
                line = process.stdout.readline()
                if not line:
                    process.wait()
                    heard.seek(0)
                    last = heard.read().decode(errors="replace").strip().splitlines()[-1:]
                    said = last[0] if last else "no message"
                    yield {"refused": f"the process that records the module {_ended(process.returncode)}: {said}"}
                    return
                yield json.loads(line)


def _ended(code: int) -> str:
    """Return how a process ended, in words, by its return code, which is below zero if a signal ended it."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}{', as a system that runs out of memory does' if name == 'SIGKILL' else ''}"


def _folders(requests: Sequence[ModuleRequest]) -> list[str]:
    """Return the folders from which the requested modules are imported.

    These are the folder of each file, and the current folder for a dotted name.
    """
    found: dict[str, None] = {}
    for one in requests:
        where = one.module.rpartition(":")[0] or one.module
        found[str(Path(where).resolve().parent if where.endswith(".py") else Path.cwd())] = None
    return list(found)


def _plain(request: ModuleRequest) -> dict[str, Any]:
    """Return a request as a dict for JSON."""
    return {
        "module": request.module,
        "arguments": [dict(one) for one in request.arguments],
        "init": dict(request.init or {}),
        "training": request.training,
        "reduced": request.reduced,
        "dtype": request.dtype,
    }


def _answer(request: ModuleRequest, raw: Mapping[str, Any]) -> ModuleReference | Refused:
    """Return an answer as a record. A reference that differs from its module on data is refused."""
    if "refused" in raw:
        return Refused(request.module, raw["refused"])
    difference = raw["difference"]
    if difference is not None and not difference <= AGREES:
        return Refused(
            request.module, f"the reference differs from the module by {difference:.2g} on data: please report this"
        )
    return ModuleReference(request.module, raw["reference"], _arguments(raw["arguments"]), difference)


def _arguments(raw: Sequence[Mapping[str, Any]]) -> tuple[ModuleArgument, ...]:
    """Return the arguments in an answer as records."""
    return tuple(ModuleArgument(one["name"], tuple(one["shape"]), one["dtype"], one["absolute"]) for one in raw)
