"""Find a jail and a compile route with which a toolchain works on this machine.

The jails are tried from the strictest on, and in each jail the routes in their order. The first jail and route with
which a known-good kernel compiles and runs are used. A route is one way of calling the compiler.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from acceld.devices.neuron.learned import Learned, keep_toolchain, toolchain_key, toolchain_of
from acceld.devices.neuron.runtime.cache import Compiled
from acceld.devices.neuron.runtime.compiler import (
    CompileJail,
    MissingPackageError,
    MissingRouteError,
    NeuronCompiler,
    NoCompilerError,
    Versions,
)
from acceld.devices.neuron.runtime.requests import ROUTES, CompileRequest
from acceld.devices.neuron.runtime.scripts.facilities import missing_in
from acceld.errors import AcceldError, DeviceError
from acceld.evaluate.case import Failed

JailName = Literal["auto", "strict", "wide", "off"]
RUNGS: Mapping[str, tuple[CompileJail, ...]] = {
    "auto": (CompileJail.STRICT, CompileJail.WIDE),
    "strict": (CompileJail.STRICT,),
    "wide": (CompileJail.WIDE,),
    "off": (CompileJail.STRICT, CompileJail.WIDE, CompileJail.OFF),
}
"""The jails that a value of ``devices.compile_jail`` allows, strictest first, by that value."""
CANARY_S = 180.0
"""Deadline in seconds for compiling a known-good kernel. There is a deadline because a compiler that can not get a lock
waits for ever.
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to compile a known-good kernel. ``failure`` is empty if the attempt succeeded."""

    jail: CompileJail
    route: str
    seconds: float
    failure: str = ""
    missing: str = ""
    """The system facility that the failure names and that the jail refuses; empty if the failure names none."""
    absent: bool = False
    """True if this version of the compiler does not have the route."""
    hopeless: bool = False
    """True if no other route would work in this jail either."""

    @property
    def text(self) -> str:
        """Return the attempt as one line for people."""
        line = self.failure.strip().splitlines()[-1:] or ["it works"]
        missing = f" (refused there: {self.missing})" if self.missing else ""
        return f"{self.jail}, {self.route}: {line[0][:300]}{missing}"


Accept = Callable[[Compiled], Awaitable[str]]
"""A function that tries a compiled known-good kernel. It returns the reason why the kernel does not work; empty if the
kernel works.
"""


async def prove(
    compiler: NeuronCompiler,
    request: Callable[[Versions], CompileRequest],
    accept: Accept,
    *,
    wanted: JailName,
    state_folder: Path,
) -> Versions:
    """Set the compiler to the first jail and route with which a known-good kernel works, and return the toolchain's
    versions.

    Jail and route are stored for the next start. Raise DeviceError if the kernel works in no jail; the error has each
    attempt, and the facilities that the jail refused.
    """
    rungs = [jail for jail in RUNGS[wanted] if jail in compiler.exchanges]
    if not rungs:
        raise DeviceError(
            f"devices.compile_jail = {wanted!r} is not available on this machine",
            hint="`acceld doctor` shows the sandbox's level; a wide jail needs namespaces (L3)",
        )
    attempts: list[Attempt] = []
    for jail in rungs:
        compiler.jail = jail
        try:
            versions = await compiler.versions()
        except NoCompilerError:
            raise
        except AcceldError as error:
            attempts.append(Attempt(jail, "start", 0.0, error.message, missing_in(error.message)))
            continue
        key = toolchain_key(compiler.python, versions)
        known = toolchain_of(state_folder, key)
        if known is not None and known.jail in rungs:
            compiler.jail, compiler.route = known.jail, known.route
            if not (await attempt(compiler, request(versions), accept, anew=False)).failure:
                return versions
            compiler.jail = jail
        ran = False
        for route in ROUTES[request(versions).kernel.api]:
            compiler.route = route
            tried = await attempt(compiler, request(versions), accept)
            attempts.append(tried)
            if not tried.failure:
                keep_toolchain(state_folder, key, Learned(jail, route, dict(compiler.signatures)))
                return versions
            ran = ran or tried.failure.startswith(RAN)
            if tried.hopeless:
                break
        if ran:
            break
    raise await _nothing_works(compiler, request, attempts, outside=CompileJail.OFF not in rungs)


RAN = "it compiles; "
"""Start of the message about a kernel that compiled but did not work. Another jail would not help."""


async def attempt(
    compiler: NeuronCompiler, request: CompileRequest, accept: Accept | None, *, anew: bool = True
) -> Attempt:
    """Compile with the compiler's present jail and route, and test the NEFF with ``accept``. Return a record of that
    attempt.

    With ``anew``, the cache of compiled kernels is not used.
    """
    jail, route, began, hopeless = compiler.jail, compiler.route, time.monotonic(), False
    try:
        found = await (compiler.compile_anew(request, deadline_s=CANARY_S) if anew else compiler.compile(request))
        failure = (found.log or found.failure.message) if isinstance(found, Failed) else ""
    except MissingRouteError as error:
        return Attempt(jail, route, time.monotonic() - began, error.message, absent=True)
    except AcceldError as error:
        found, failure = None, error.message
        hopeless = isinstance(error, MissingPackageError)
    seconds = time.monotonic() - began
    if isinstance(found, Compiled) and accept is not None:
        try:
            reason = await accept(found)
        except DeviceError as error:
            reason = error.message
        failure = f"{RAN}{reason}" if reason else ""
    missing = missing_in(failure) if failure and jail is not CompileJail.OFF else ""
    return Attempt(jail, route, seconds, failure, missing, hopeless=hopeless)


async def widened(compiler: NeuronCompiler, request: CompileRequest, *, wanted: JailName) -> Compiled | Failed:
    """Return the compiled kernel, or its failure. A trusted kernel may move the compiler to the wide jail.

    If the failure of a trusted kernel names a facility that the strict jail refuses, the kernel is compiled
    again in the wide jail. If that works, later kernels are compiled in the wide jail, too.
    """
    found = await compiler.compile(request)
    may = CompileJail.WIDE in RUNGS[wanted] and CompileJail.WIDE in compiler.exchanges
    if not (isinstance(found, Failed) and request.kernel.trusted and may and compiler.jail is CompileJail.STRICT):
        return found
    if not missing_in(found.log or found.failure.message):
        return found
    compiler.jail = CompileJail.WIDE
    again = await compiler.compile(request)
    if isinstance(again, Failed):
        compiler.jail = CompileJail.STRICT
        return found
    return again


async def _nothing_works(
    compiler: NeuronCompiler,
    request: Callable[[Versions], CompileRequest],
    attempts: list[Attempt],
    *,
    outside: bool,
) -> DeviceError:
    """Return an error that says whether the jail or the toolchain is at fault.

    To find out, the known-good kernel is compiled without a jail, unless that compilation was tried already, or the
    failure was that a NEFF did not run.
    """
    there = [one for one in attempts if not one.absent] or attempts
    reported = "; ".join(one.text for one in there)
    if any(one.failure.startswith(RAN) for one in attempts):
        return DeviceError(f"a known-good kernel does not work here: {reported}", hint=REPORT)
    if not outside:
        return DeviceError(f"a known-good kernel does not compile here: {reported}", hint=REPORT)
    compiler.jail = CompileJail.OFF
    try:
        versions = await compiler.versions()
        for route in dict.fromkeys(one.route for one in there if one.route != "start") or ("",):
            compiler.route = route
            tried = await attempt(compiler, request(versions), None)
            if not tried.failure or tried.hopeless:
                break
    except AcceldError as error:
        tried = Attempt(CompileJail.OFF, "start", 0.0, error.message)
    if tried.failure:
        return DeviceError(f"a known-good kernel does not compile here: {reported}; {tried.text}", hint=REPORT)
    refused: list[str] = []
    for jail in dict.fromkeys(one.jail for one in attempts):
        compiler.jail = jail
        try:
            refused += [name for name in await compiler.refused() if name not in refused]
        except AcceldError as error:
            refused.append(f"the jail itself ({error.message})")
    return DeviceError(
        f"a known-good kernel does not compile in acceld's sandbox, but it compiles outside of it: {reported}. "
        f"Refused there: {', '.join(refused) or 'nothing that acceld asked for'}",
        hint='devices.compile_jail = "off" compiles candidates without a jail, as your user: their Python can then read '
        f"your files. {REPORT}",
    )


REPORT = (
    "`acceld doctor --neuron` tries each step of compiling and running a kernel, and writes a report; "
    "`acceld doctor --from REPORT` says which settings to change"
)
