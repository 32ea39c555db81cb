"""Compile a kernel once from shapes, in a process of its own with no device in sight."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from acceld.backends.neuron.cache import Compiled, NeffCache
from acceld.backends.neuron.requests import CompileRequest
from acceld.backends.neuron.verdicts import Verdict
from acceld.backends.neuron.worker import Worker, Wrap
from acceld.backends.neuron_reports import compile_failure
from acceld.backends.neuron_tools import DEVICES, INSTALL
from acceld.errors import DeadlineError, DeviceError
from acceld.model import Failure, Status

SCRIPT = "compile_worker.py"
MAX_NEFF = 1 << 30
_HELLO_S = 60.0


@dataclass(frozen=True, slots=True)
class Versions:
    """What the compiler's interpreter has."""

    compiler: str
    nki: str
    python: str


class NeuronCompiler:
    """Compiles through ``python``, an interpreter with the Neuron compiler; the same request compiles once.

    ``wrap`` puts a jail's launcher before the command. ``named`` is given to every child besides a request's own
    environment.
    """

    def __init__(
        self,
        python: str,
        cache: NeffCache,
        *,
        named: Mapping[str, str] | None = None,
        wrap: Wrap | None = None,
        build_s: float = 600.0,
        device_pattern: str = DEVICES,
    ) -> None:
        self.python = python
        self.cache = cache
        self.compiled = 0
        """Compilations so far; answers from the cache do not count."""
        self._named = dict(named or {})
        self._wrap = wrap
        self._build_s = build_s
        self._devices = device_pattern
        self._locks: dict[str, asyncio.Lock] = {}

    async def versions(self) -> Versions:
        """Ask the interpreter. DeviceError where it has no compiler."""
        with tempfile.TemporaryDirectory(prefix="acceld-neuron-") as folder:
            worker = await Worker.start(self.python, SCRIPT, folder=Path(folder), named=self._named, wrap=self._wrap)
            record, _ = await worker.ask({"op": "hello"}, deadline_s=_HELLO_S)
            await worker.kill()
        if not record["compiler_version"]:
            raise DeviceError(f"{self.python} has no neuronx-cc", hint=INSTALL)
        return Versions(record["compiler_version"], record["nki_version"], record["python"])

    async def compile(self, request: CompileRequest) -> Compiled | Verdict:
        """A NEFF, or why the kernel has none. DeviceError where the toolchain, not the kernel, is at fault."""
        lock = self._locks.setdefault(request.key, asyncio.Lock())
        try:
            async with lock:
                found = await asyncio.to_thread(self.cache.get, request.key)
                return found if found is not None else await self._compile(request)
        finally:
            if not lock.locked():
                self._locks.pop(request.key, None)

    async def _compile(self, request: CompileRequest) -> Compiled | Verdict:
        self.compiled += 1
        with tempfile.TemporaryDirectory(prefix="acceld-neuron-") as name:
            folder = Path(name)
            worker = await Worker.start(
                self.python, SCRIPT, folder=folder, named=self._environment(request, folder), wrap=self._wrap
            )
            try:
                record, neff = await worker.ask(
                    self._record(request, folder), deadline_s=self._build_s, max_bytes=MAX_NEFF
                )
            except DeadlineError:
                text = f"compiling took longer than {self._build_s:g} s"
                return Verdict(Status.TIMEOUT, Failure("deadline", text))
            except DeviceError as error:
                return Verdict(Status.COMPILE_ERROR, compile_failure(error.message, request.kernel.filename))
            finally:
                await worker.kill()
        if not record.get("ok"):
            return self._refusal(record, request)
        if record.get("compiler_version") != request.compiler_version:
            raise DeviceError(
                f"the compiler is {record.get('compiler_version')!r}, not {request.compiler_version!r} as asked for",
                hint="it was changed while the daemon ran: acceld restart",
            )
        if not neff:
            return Verdict(Status.COMPILE_ERROR, Failure("compiler", "the compiler wrote an empty NEFF"))
        return await asyncio.to_thread(
            self.cache.put,
            request.key,
            neff,
            route=str(record.get("route", "")),
            compiler_version=request.compiler_version,
        )

    def _refusal(self, record: Mapping[str, object], request: CompileRequest) -> Verdict:
        message = str(record.get("message", ""))
        if record.get("kind") == "kernel":
            return Verdict(Status.COMPILE_ERROR, compile_failure(message, request.kernel.filename))
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
