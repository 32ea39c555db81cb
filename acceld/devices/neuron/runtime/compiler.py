"""Compile a kernel once from its shapes, in a separate process without access to a device."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.requests import CompileRequest
from acceld.devices.neuron.runtime.scripts.facilities import missing_in
from acceld.devices.neuron.runtime.scripts.neff import facts_of
from acceld.devices.neuron.runtime.worker import Worker
from acceld.devices.neuron.tools.detection import DEVICES, INSTALL
from acceld.devices.neuron.tools.reports import compile_failure
from acceld.errors import DeadlineError, DeviceError
from acceld.evaluate.case import Failed
from acceld.model import Failure, Status

SCRIPT = "compile_worker.py"
MAX_NEFF = 1 << 30
OUTPUT_CHARACTERS = 8000
"""Number of characters of a compiler's output that are kept, from its end."""
_HELLO_S = 60.0


class MissingRouteError(DeviceError):
    """Raised if this version of the compiler does not have the requested route."""


class MissingPackageError(DeviceError):
    """Raised if the interpreter can not import a package that all compile routes need."""


class NoCompilerError(DeviceError):
    """Raised if the interpreter has no Neuron compiler."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of the packages in the compiler's interpreter."""

    compiler: str
    nki: str
    python: str


class CompileJail(StrEnum):
    """Sandbox in which the compiler runs, and with it the kernel's Python."""

    STRICT = "strict"
    """The jail of every evaluated process."""
    WIDE = "wide"
    """The strict jail with the system facilities that compilers expect; see :class:`acceld.evaluate.sandbox.jail.Jail`."""
    OFF = "off"
    """No sandbox, only a process group. Used only where a person sets ``devices.compile_jail`` to ``off``."""


class Exchange(Protocol):
    """A function that sends one record to a fresh compile worker and returns the worker's answer."""

    async def __call__(
        self, python: str, named: Mapping[str, str], record: Mapping[str, Any], *, folder: Path, deadline_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """Return (answer of the worker, bytes of the NEFF).

        The answer's ``reported`` is the end of what the worker printed.

        Raise DeadlineError if the worker takes longer than ``deadline_s``, and DeviceError if the worker ends without
        an answer.
        """
        ...


async def unjailed(
    python: str, named: Mapping[str, str], record: Mapping[str, Any], *, folder: Path, deadline_s: float
) -> tuple[dict[str, Any], bytes]:
    """Return (answer, bytes of the NEFF) of a worker that runs without a jail, as the daemon's user.

    Use this function for trusted kernels only.
    """
    worker = await Worker.start(python, SCRIPT, folder=folder, named=named)
    try:
        answer, data = await worker.ask(record, deadline_s=deadline_s, max_bytes=MAX_NEFF)
    finally:
        await worker.kill()
    return {**answer, "reported": worker.output}, data


class NeuronCompiler:
    """Compile through ``python``, an interpreter with the Neuron compiler. Equal requests are compiled once.

    ``exchanges`` has, for each jail, the function that starts a worker in the jail. ``named`` are environment
    variables of every worker, in addition to those of a request. ``jail`` and ``route`` may be changed, as
    :func:`acceld.devices.neuron.proving.prove` does.
    """

    def __init__(
        self,
        python: str,
        cache: NeffCache,
        *,
        named: Mapping[str, str] | None = None,
        exchanges: Mapping[CompileJail, Exchange] | None = None,
        build_s: float = 600.0,
        device_pattern: str = DEVICES,
    ) -> None:
        self.python = python
        self.cache = cache
        self.compiled = 0
        """Number of compilations so far. Answers from the cache do not count."""
        self._named = dict(named or {})
        self.exchanges = dict(exchanges or {CompileJail.OFF: unjailed})
        self.jail = next(iter(self.exchanges))
        self.route = ""
        """Name of the compile route, the way of calling the compiler. Empty stands for the first route that this
        toolchain has.
        """
        self.signatures: dict[str, str] = {}
        """Signatures of the functions that were called in the compiler's packages, by the function's name."""
        self._build_s = build_s
        self._devices = device_pattern
        self._locks: dict[str, asyncio.Lock] = {}

    async def versions(self) -> Versions:
        """Return the versions of the interpreter's packages.

        Raise NoCompilerError, which is a DeviceError, if the interpreter has no compiler.
        """
        record = await self._ask("hello")
        if not record["compiler_version"]:
            raise NoCompilerError(f"{self.python} has no neuronx-cc", hint=INSTALL)
        return Versions(record["compiler_version"], record["nki_version"], record["python"])

    async def refused(self) -> Mapping[str, str]:
        """Return the system facilities of compilers that the present jail refuses, each with the resulting error."""
        found: Mapping[str, str] = (await self._ask("facilities")).get("refused", {})
        return found

    async def _ask(self, operation: str) -> dict[str, Any]:
        with private_folder() as folder:
            record, _ = await self.exchanges[self.jail](
                self.python, self._named, {"op": operation}, folder=folder, deadline_s=_HELLO_S
            )
        return record

    async def compile_anew(self, request: CompileRequest, *, deadline_s: float) -> Compiled | Failed:
        """Compile without looking into the cache. Return the NEFF or the failure; raise the errors that
        :meth:`compile` raises.
        """
        await asyncio.to_thread(self.cache.drop, request.key)
        return await self._compile(request, deadline_s)

    async def compile(self, request: CompileRequest) -> Compiled | Failed:
        """Return the kernel's NEFF, or the reason why the kernel does not compile. Raise DeviceError if the
        toolchain is at fault.
        """
        lock = self._locks.setdefault(request.key, asyncio.Lock())
        try:
            async with lock:
                found = await asyncio.to_thread(self.cache.get, request.key)
                return found if found is not None else await self._compile(request, self._build_s)
        finally:
            if not lock.locked():
                self._locks.pop(request.key, None)

    async def _compile(self, request: CompileRequest, deadline_s: float) -> Compiled | Failed:
        self.compiled += 1
        with private_folder() as folder:
            try:
                record, neff = await self.exchanges[self.jail](
                    self.python,
                    self._environment(request, folder),
                    self._record(request, folder),
                    folder=folder,
                    deadline_s=deadline_s,
                )
            except DeadlineError:
                text = f"compiling took longer than {deadline_s:g} s"
                return Failed(Status.TIMEOUT, Failure("deadline", text))
            except DeviceError as error:
                return self._not_compiled(error.message, "", request)
        self.signatures.update(record.get("signatures") or {})
        if not record.get("ok"):
            return self._refusal(record, request)
        if record.get("compiler_version") != request.compiler_version:
            raise DeviceError(
                f"the compiler is {record.get('compiler_version')!r}, not {request.compiler_version!r} as asked for",
                hint="The compiler was changed while the daemon ran: acceld restart",
            )
        if not neff:
            return Failed(Status.COMPILE_ERROR, Failure("compiler", "the compiler wrote an empty NEFF"))
        lnc = facts_of(neff).lnc
        if lnc not in (0, request.kernel.lnc):
            raise DeviceError(
                f"the compiler wrote a NEFF for {lnc} physical cores, but the kernel was to be compiled for {request.kernel.lnc}",
                hint=f"the tool chain's entry point {record.get('route')} ignores the LNC; `acceld doctor --neuron` tries the others",
            )
        return await asyncio.to_thread(
            self.cache.put,
            request.key,
            neff,
            route=str(record.get("route", "")),
            compiler_version=request.compiler_version,
            outputs=tuple(str(one) for one in record.get("outputs") or ()),
            reported=str(record.get("reported", ""))[-OUTPUT_CHARACTERS:],
        )

    def _not_compiled(self, message: str, reported: str, request: CompileRequest) -> Failed:
        """Return a failure with the compiler's error and output.

        If the error names a facility that the jail refused, the failure has a hint.
        """
        failure = compile_failure(message, request.kernel.filename)
        facility = missing_in(message)
        if facility and self.jail is not CompileJail.OFF:
            hint = (
                f"the compiler may have needed {facility}, which the jail ({self.jail}) refuses: devices.compile_jail"
            )
            failure = replace(failure, hint=hint)
        return Failed(Status.COMPILE_ERROR, failure, log="\n".join(filter(None, (message, reported))))

    def _refusal(self, record: Mapping[str, object], request: CompileRequest) -> Failed:
        message = str(record.get("message", ""))
        if record.get("kind") == "kernel":
            return self._not_compiled(message, str(record.get("reported", "")), request)
        if record.get("kind") == "route":
            raise MissingRouteError(message)
        if record.get("kind") == "missing":
            raise MissingPackageError(f"{self.python} can not compile: {message}", hint=INSTALL)
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
            "route": self.route,
            "device_pattern": self._devices,
        }


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a temporary folder for a worker. The folder itself is open to all users, because the worker may have
    another user id. Only this user can enter its parent folder.
    """
    with tempfile.TemporaryDirectory(prefix="acceld-neuron-", ignore_cleanup_errors=True) as name:
        inner = Path(name) / "work"
        inner.mkdir()
        yield inner
