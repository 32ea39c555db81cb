"""Define the interface of a host, and implement it for this machine (the local host)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from acceld.config import Config
from acceld.device import HOST, Finding
from acceld.errors import AcceldError, UsageError
from acceld.evaluate.interface import EvaluationRequest, Evaluator
from acceld.evaluate.local import findings
from acceld.model import Evaluation, Kernel
from acceld.targets import SIMULATOR

_PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")
_DRIVERS = (Path("/sys/module/neuron/version"), Path("/sys/module/nvidia/version"))
_COMPILERS = ("neuronx-cc", "nki", "triton")


class HostLostError(Exception):
    """A host does not answer, or is gone."""


class MissingError(AcceldError):
    """A host lacks a text or a workload that a request names by hash."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host's description of itself: name, slots, instance type, chip, versions."""

    name: str
    slots: int
    """Number of evaluations that run at the same time."""
    instance_type: str = ""
    chip: str = ""
    """Trainium chip of the host's instance type; empty if the instance has no such chip."""
    sdk: str = ""
    driver: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    """Versions that must equal those of the daemon: acceld, Python, Ray."""

    def takes(self, backend: str, chip: str) -> bool:
        """Tell whether the host can evaluate a kernel for ``chip`` on ``backend``.

        Every host can simulate. A host can measure a kernel for its own processor, and a kernel for its chip; if its
        chip is not known, any kernel.
        """
        return backend == SIMULATOR or chip in (HOST, self.chip) or not self.chip


class Host(Protocol):
    """Interface of a machine that evaluates. Each call raises :class:`HostLostError` if the host does not answer."""

    async def describe(self) -> HostFacts:
        """Return the host's facts."""
        ...

    async def evaluate(self, request: EvaluationRequest, contents: Mapping[str, bytes]) -> Evaluation:
        """Return the evaluation of a request made by :func:`packed`.

        Raise MissingError if a text or workload is neither stored on the host nor in ``contents``.
        """
        ...

    async def health(self) -> Mapping[str, object]:
        """Return the statistics of the host's evaluator."""
        ...

    async def doctor(self) -> list[Finding]:
        """Return what ``acceld doctor`` finds on the host's devices."""
        ...


class Hosts(Protocol):
    """Interface by which a fleet finds its hosts."""

    async def start(self) -> None:
        """Check what a connection needs on this machine. Raise DeviceError if something is missing."""
        ...

    async def found(self, wanted: int) -> Mapping[str, Host]:
        """Return the hosts by name. A host that was restarted is a new object. ``wanted`` is the number of hosts to
        ask for.

        Connects first if there is no connection. Raise HostLostError if the cluster does not answer.
        """
        ...

    async def close(self) -> None:
        """Disconnect, and end everything that was started on the hosts."""
        ...


class LocalHost:
    """Evaluate on this machine. Implements :class:`Host`."""

    def __init__(self, name: str, slots: int, evaluator: Evaluator, folder: Path, config: Config | None = None) -> None:
        """Prepare the host. It keeps contents, data sets and noise floors in ``folder``."""
        self._name, self._slots = name, slots
        self._evaluator = evaluator
        self._folder, self._contents = folder, folder / "contents"
        self._config = config or Config()
        self._started = False

    async def describe(self) -> HostFacts:
        """Start the evaluator, and return the facts of this machine."""
        if not self._started:
            await self._evaluator.start()
            self._started = True
        return facts_here(self._name, self._slots)

    async def evaluate(self, request: EvaluationRequest, contents: Mapping[str, bytes]) -> Evaluation:
        """Return the evaluation of a request made by :func:`packed`. Raise MissingError if this machine lacks a text or
        the workload that the request names.
        """
        for sha256, data in contents.items():
            self._keep(sha256, data)
        return await self._evaluator.evaluate(self._unpacked(request))

    async def health(self) -> Mapping[str, object]:
        """Return the evaluator's statistics."""
        return self._evaluator.statistics()

    async def doctor(self) -> list[Finding]:
        """Return the findings of this machine's devices."""
        return await asyncio.to_thread(lambda: list(findings(self._config, self._folder)))

    def _keep(self, sha256: str, data: bytes) -> None:
        if hashlib.sha256(data).hexdigest() != sha256:
            raise UsageError(
                f"the contents with the hash {sha256[:12]} arrived damaged: their hash is another one",
                hint="send the file again",
            )
        self._contents.mkdir(parents=True, exist_ok=True)
        _write(self._contents / sha256, data)

    def _read(self, sha256: str) -> bytes:
        try:
            return (self._contents / sha256).read_bytes()
        except FileNotFoundError:
            raise MissingError(sha256) from None

    def _unpacked(self, request: EvaluationRequest) -> EvaluationRequest:
        folder = self._workload(request.workload_folder) if request.workload_folder else ""
        return replace(with_texts(request, lambda sha256: self._read(sha256).decode()), workload_folder=folder)

    def _workload(self, sha256: str) -> str:
        """Return the path of a workload's folder. At first use the folder is written from the stored contents."""
        files: dict[str, str] = json.loads(self._read(sha256))
        root = self._contents / f"{sha256}.workload"
        place = root / next(iter(files))
        if not place.exists():
            for name, text in files.items():
                path = root / name
                if not path.resolve().is_relative_to(root.resolve()):
                    raise UsageError(
                        f"the workload's file {name} lies outside of the workload's folder",
                        hint="keep all files of a workload in its folder",
                    )
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, bytes.fromhex(text))
        return str(place.parent)


def _write(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def facts_here(name: str, slots: int) -> HostFacts:
    """Return the facts of this machine."""
    instance_type = _first_line(_PRODUCT)
    family = instance_type.split(".")[0]
    return HostFacts(
        name,
        slots,
        instance_type=instance_type,
        chip=family[:4] if family.startswith("trn") else "",
        sdk=next((f"{name} {reported}" for name in _COMPILERS if (reported := _version(name))), ""),
        driver=next((reported for path in _DRIVERS if (reported := _first_line(path))), ""),
        versions=versions_here(),
    )


def versions_here() -> tuple[tuple[str, str], ...]:
    """Return (name, version) of all software that must be equal on a daemon and its hosts."""
    python = ".".join(map(str, sys.version_info[:3]))
    return (("acceld", _version("acceld")), (platform.python_implementation(), python), ("ray", _version("ray")))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


# Contents by hash.


def with_texts(request: EvaluationRequest, text_of: Callable[[str], str]) -> EvaluationRequest:
    """Return a request in which every text of a kernel is replaced by ``text_of(text)``."""

    def changed(kernel: Kernel) -> Kernel:
        closure = {path: text_of(text) for path, text in kernel.closure.items()}
        return replace(kernel, text=text_of(kernel.text), closure=closure)

    canary = changed(request.canary) if request.canary else None
    return replace(request, kernel=changed(request.kernel), against=tuple(map(changed, request.against)), canary=canary)


def packed(request: EvaluationRequest, workload: bytes) -> tuple[EvaluationRequest, dict[str, bytes]]:
    """Return (a request that names kernels and workload by hash, their contents by hash)."""
    contents: dict[str, bytes] = {}

    def kept(data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        contents[sha256] = data
        return sha256

    named = with_texts(request, lambda text: kept(text.encode()))
    return replace(named, workload_folder=kept(workload) if workload else ""), contents


def workload_contents(folder: Path) -> bytes:
    """Return the files of a workload as one byte string; workload.toml comes first."""
    return json.dumps(dict(_files(folder)), separators=(",", ":")).encode()


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    place = folder.resolve()
    paths = [path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for path in sorted(paths, key=lambda path: (path.name != "workload.toml" or path.parent != place, str(path))):
        yield str(path.relative_to(place.parents[1])), path.read_bytes().hex()
