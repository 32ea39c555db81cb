"""Compile a kernel once from shapes, in a process of its own with no device in sight."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.requests import CompileRequest
from acceld.devices.neuron.runtime.worker import Worker
from acceld.devices.neuron.tools.detection import DEVICES, INSTALL
from acceld.devices.neuron.tools.reports import compile_failure
from acceld.errors import DeadlineError, DeviceError
from acceld.evaluate.case import Failed
from acceld.model import Failure, Status

SCRIPT = "compile_worker.py"
MAX_NEFF = 1 << 30
_HELLO_S = 60.0


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions in the compiler's interpreter."""

    compiler: str
    nki: str
    python: str


class Exchange(Protocol):
    """One record to a fresh compile worker, and its answer."""

    async def __call__(
        self, python: str, named: Mapping[str, str], record: Mapping[str, Any], *, folder: Path, deadline_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """DeadlineError where it takes longer, DeviceError where the worker ends without an answer."""
        ...


async def unjailed(
    python: str, named: Mapping[str, str], record: Mapping[str, Any], *, folder: Path, deadline_s: float
) -> tuple[dict[str, Any], bytes]:
    """An :class:`Exchange` in a process group of the worker's own, as the daemon's user: for trusted kernels only."""
    worker = await Worker.start(python, SCRIPT, folder=folder, named=named)
    try:
        return await worker.ask(record, deadline_s=deadline_s, max_bytes=MAX_NEFF)
    finally:
        await worker.kill()


class NeuronCompiler:
    """Compiles through ``python``, an interpreter with the Neuron compiler; the same request compiles once.

    ``exchange`` starts the worker, in a jail where candidates are compiled. ``named`` is given to every child besides
    a request's own environment.
    """

    def __init__(
        self,
        python: str,
        cache: NeffCache,
        *,
        named: Mapping[str, str] | None = None,
        exchange: Exchange = unjailed,
        build_s: float = 600.0,
        device_pattern: str = DEVICES,
    ) -> None:
        self.python = python
        self.cache = cache
        self.compiled = 0
        """Compilations so far; answers from the cache do not count."""
        self._named = dict(named or {})
        self._exchange = exchange
        self._build_s = build_s
        self._devices = device_pattern
        self._locks: dict[str, asyncio.Lock] = {}

    async def versions(self) -> Versions:
        """Ask the interpreter. DeviceError where it has no compiler."""
        with _private_folder() as folder:
            record, _ = await self._exchange(
                self.python, self._named, {"op": "hello"}, folder=folder, deadline_s=_HELLO_S
            )
        if not record["compiler_version"]:
            raise DeviceError(f"{self.python} has no neuronx-cc", hint=INSTALL)
        return Versions(record["compiler_version"], record["nki_version"], record["python"])

    async def compile(self, request: CompileRequest) -> Compiled | Failed:
        """A NEFF, or why the kernel has none. DeviceError where the toolchain, not the kernel, is at fault."""
        lock = self._locks.setdefault(request.key, asyncio.Lock())
        try:
            async with lock:
                found = await asyncio.to_thread(self.cache.get, request.key)
                return found if found is not None else await self._compile(request)
        finally:
            if not lock.locked():
                self._locks.pop(request.key, None)

    async def _compile(self, request: CompileRequest) -> Compiled | Failed:
        self.compiled += 1
        with _private_folder() as folder:
            try:
                record, neff = await self._exchange(
                    self.python,
                    self._environment(request, folder),
                    self._record(request, folder),
                    folder=folder,
                    deadline_s=self._build_s,
                )
            except DeadlineError:
                text = f"compiling took longer than {self._build_s:g} s"
                return Failed(Status.TIMEOUT, Failure("deadline", text))
            except DeviceError as error:
                return Failed(Status.COMPILE_ERROR, compile_failure(error.message, request.kernel.filename))
        if not record.get("ok"):
            return self._refusal(record, request)
        if record.get("compiler_version") != request.compiler_version:
            raise DeviceError(
                f"the compiler is {record.get('compiler_version')!r}, not {request.compiler_version!r} as asked for",
                hint="it was changed while the daemon ran: acceld restart",
            )
        if not neff:
            return Failed(Status.COMPILE_ERROR, Failure("compiler", "the compiler wrote an empty NEFF"))
        return await asyncio.to_thread(
            self.cache.put,
            request.key,
            neff,
            route=str(record.get("route", "")),
            compiler_version=request.compiler_version,
        )

    def _refusal(self, record: Mapping[str, object], request: CompileRequest) -> Failed:
        message = str(record.get("message", ""))
        if record.get("kind") == "kernel":
            return Failed(Status.COMPILE_ERROR, compile_failure(message, request.kernel.filename))
        hint = "run the daemon where user namespaces are allowed" if record.get("kind") == "devices" else INSTALL
        raise DeviceError(f"{self.python} can not compile: {message}", hint=hint)

    def _environment(self, request: CompileRequest, folder: Path) -> dict[str, str]:
        return {
            **self._named,
            "NEURON_PLATFORM_TARGET_OVERRIDE": request.target,
            "NEURON_LOGICAL_NC_CONFIG": str(request.kernel.lnc),
            "NEURON_CC_FLAGS": " ".join(request.all_flags),
            "NKI_ARTIFACTS_DIR": str(folder / "artifacts"),
            **request.environment,
        }

    def _record(self, request: CompileRequest, folder: Path) -> dict[str, object]:
        kernel = request.kernel
        return {
            "op": "compile",
            "text": kernel.text,
            "filename": kernel.filename,
            "closure": dict(kernel.closure),
            "entry": kernel.entry,
            "api": kernel.api,
            "grid": list(kernel.grid),
            "lnc": kernel.lnc,
            "target": request.target,
            "flags": list(request.all_flags),
            "arguments": [one.plain() for one in request.arguments],
            "scalars": dict(request.scalars),
            "folder": str(folder),
            "device_pattern": self._devices,
        }


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    """A new folder inside one that only this user can enter: a jailed worker of another uid may be given the inner one."""
    with tempfile.TemporaryDirectory(prefix="acceld-neuron-", ignore_cleanup_errors=True) as name:
        inner = Path(name) / "work"
        inner.mkdir()
        yield inner
