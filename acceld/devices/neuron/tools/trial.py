"""Try every step on a real chip, and write a report of the results: ``acceld doctor --neuron``.

A known-good kernel is compiled in every jail by every route (way of calling the compiler), run by every runtime and
timed by every method. A failure is written down, and the trial goes on. The report is one file without secrets: no
kernel of the user, no key, no name of a host, a user or an account.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import platform
import re
import shutil
import socket
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from acceld.devices.neuron.opinion import SIMULATE_S, Simulator
from acceld.devices.neuron.proving import Attempt, attempt
from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.compiler import CompileJail, Exchange, NeuronCompiler, Versions
from acceld.devices.neuron.runtime.cores import Core, check_cores, cores_of, foreign_processes
from acceld.devices.neuron.runtime.requests import FLAGS, ROUTES, CompileRequest
from acceld.devices.neuron.runtime.runner import NeuronRunner
from acceld.devices.neuron.runtime.scripts.neff import facts_of
from acceld.devices.neuron.runtime.timing import Measurement, profile_from
from acceld.devices.neuron.tools.detection import DEVICES, INSTALL, TOOLS, NeuronTools, find_neuron, instance
from acceld.devices.neuron.tools.reports import parse_neuron_ls
from acceld.devices.neuron.tools.toolchain import NEEDS, Toolchain, tool
from acceld.errors import AcceldError, DeviceError
from acceld.evaluate.case import Failed
from acceld.evaluate.opinion import API

VERSION = 2
RUNTIMES = ("nrtpy", "spike", "libnrt", "capture")
_TEXT = 20_000
_HELP_S = 20.0
_LIBRARY = Path("/opt/aws/neuron/lib/libnrt.so.1")
T = TypeVar("T")


class Trial:
    """Run all steps once. A step is left out if it needs a step that has failed."""

    def __init__(
        self,
        tools: Toolchain,
        found: NeuronTools,
        exchanges: Mapping[CompileJail, Exchange],
        *,
        api: str,
        target: str,
        folder: Path,
        lnc: int = 1,
        named: Mapping[str, str] | None = None,
        device_pattern: str = DEVICES,
    ) -> None:
        self.tools, self.api, self.target, self.lnc = tools, api, target, lnc
        self.named = dict(named or {})
        self.folder = folder
        self.compiler = NeuronCompiler(
            tools.compile_python,
            NeffCache(folder / "neff"),
            named=self.named,
            exchanges=exchanges,
            device_pattern=device_pattern,
        )
        self.steps: list[dict[str, Any]] = []
        self.report: dict[str, Any] = {
            "version": VERSION,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "instance": instance(),
            "api": api,
            "target": target,
            "lnc": lnc,
            "compile_python": tools.compile_python,
            "runner_python": tools.runner_python,
            "profiler": tools.profiler,
            "packages": [f"{one.text} in {one.python}" for one in found.packages],
            "missing": missing(tools, found, api),
            "steps": self.steps,
        }

    async def run(self) -> bool:
        """Run all steps. Return True if the machine can compile, run and time a kernel in at least one way."""
        for name in ("neuron-ls", "neuron-profile", "neuron-explorer"):
            for words in ((), ("capture",), ("view",)) if name != "neuron-ls" else ((),):
                if program := tool(name):
                    reported = partial(self._text, program, *words, "--help")
                    await self._step(f"help: {' '.join((name, *words))}", reported)
        await self._step("neuron-ls", lambda: self._text(self.tools.neuron_ls, "--json-output"))
        core = await self._step("cores", self._find_core)
        if not self.tools.compile_python:
            self._skip("compile", f"there is no interpreter with {NEEDS[self.api]}")
            return False
        works: Compiled | None = None
        request: CompileRequest | None = None
        for jail in self.compiler.exchanges:
            self.compiler.jail = jail
            versions = await self._step(f"versions, jail {jail}", self.compiler.versions)
            await self._step(f"refused, jail {jail}", self.compiler.refused)
            if versions is None:
                continue
            request = self._request(versions)
            for route in ROUTES[self.api]:
                self.compiler.route = route
                made = await self._compile(request)
                works = works or made
        if self.api == API:
            await self._step("simulate", self._simulate)
        if works is None or request is None or core is None:
            self._skip("run", "no core" if core is None else "nothing compiled")
            return False
        timed = [await self._time(runtime, core, works, request) for runtime in RUNTIMES]
        if self.tools.profiler:
            await self._step("summary", lambda: self._summary(works))
        return any(timed)

    async def _simulate(self) -> str:
        """Return the strictest jail in which ``nki.simulate`` adds two arrays correctly. Raise DeviceError if there is
        no such jail.
        """
        simulator = Simulator(self.tools.compile_python, self.compiler.exchanges, SIMULATE_S)
        await simulator.prove(self.target)
        return f"jail {simulator.jail}"

    async def _step(self, name: str, step: Callable[[], Awaitable[T]]) -> T | None:
        """Run one step, record it, and return its result; None if the step failed."""
        began = time.monotonic()
        record: dict[str, Any] = {"name": name}
        self.steps.append(record)
        try:
            result = await step()
        except Exception as error:  # noqa: BLE001  whatever happens on an unknown machine belongs into the report
            record["error"] = error.message if isinstance(error, AcceldError) else str(error)
            if isinstance(error, AcceldError):
                record["hint"] = error.hint
            else:
                record["traceback"] = traceback.format_exc()
            return None
        else:
            record["result"] = result if isinstance(result, str | dict) else str(result)
            return result
        finally:
            record["seconds"] = round(time.monotonic() - began, 3)

    def _skip(self, name: str, why: str) -> None:
        self.steps.append({"name": name, "error": f"not tried: {why}", "seconds": 0.0})

    async def _text(self, program: str, *words: str) -> str:
        """Return everything that a tool prints on both streams, and its exit code.

        Raise DeviceError if the tool can not be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self.named} if self.named else None,
            )
        except OSError as error:
            raise DeviceError(f"{program} can not be started: {error}", hint=TOOLS) from error
        try:
            async with asyncio.timeout(_HELP_S):
                out, reported = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise DeviceError(
                f"{program} did not answer within {_HELP_S:g} s",
                hint="check that the driver is loaded: lsmod | grep neuron",
            ) from None
        text = out.decode(errors="replace")[:_TEXT]
        complaint = reported.decode(errors="replace")[:_TEXT]
        return (
            text
            + (f"\n[stderr]\n{complaint}" if complaint else "")
            + (f"\n[ended with {process.returncode}]" if process.returncode else "")
        )

    async def _find_core(self) -> Core:
        devices = parse_neuron_ls(await self._text(self.tools.neuron_ls, "--json-output"))
        check_cores(devices, self.target if instance().startswith(self.target) else "")
        strangers = foreign_processes(devices, ())
        free = [core for core in cores_of(devices) if core.device not in strangers]
        if not free:
            said = "; ".join(f"process {one.pid} ({one.command}) uses a chip" for one in strangers.values())
            raise DeviceError(
                f"there is no free chip: {said or 'neuron-ls lists no chip'}",
                hint="end the programs that hold the chips, then try again",
            )
        if self.lnc > free[0].lnc:
            raise DeviceError(
                f"this machine's logical cores have LNC {free[0].lnc}, not {self.lnc}", hint="Use --lnc 1."
            )
        return free[0]

    def _request(self, versions: Versions) -> CompileRequest:
        return CompileRequest(
            kernel=canary.kernel(self.api, self.lnc),
            arguments=canary.INPUTS,
            target=self.target,
            compiler_version=versions.compiler,
            api_version=versions.nki,
            flags=FLAGS[self.api],
        )

    async def _compile(self, request: CompileRequest) -> Compiled | None:
        jail, route = self.compiler.jail, self.compiler.route
        # All routes have the same cache key, so each route's own NEFF is kept for the next steps.
        self.compiler.cache = NeffCache(self.folder / "neff" / str(len(self.steps)))
        tried: Attempt = await attempt(self.compiler, request, None)
        record: dict[str, Any] = {"name": f"compile, jail {jail}, {route}", "seconds": round(tried.seconds, 3)}
        self.steps.append(record)
        if tried.failure:
            record |= {"error": tried.failure[-_TEXT:], "missing": tried.missing, "absent": tried.absent}
            return None
        made = await asyncio.to_thread(self.compiler.cache.get, request.key)
        assert made is not None
        facts = facts_of(await asyncio.to_thread(made.neff.read_bytes))
        record["result"] = {
            "signatures": dict(self.compiler.signatures),
            "reported": made.reported,
            "outputs": list(made.outputs),
            "neff": {"lnc": facts.lnc, "inputs": facts.inputs, "outputs": facts.outputs},
        }
        return made

    async def _start(self, runtime: str, core: Core, folder: Path) -> NeuronRunner:
        return await NeuronRunner.start(
            self.tools.runner_python,
            core=core.id * core.lnc // self.lnc,
            folder=folder,
            lnc=self.lnc,
            profiler=self.tools.profiler,
            runtime=runtime,
            named=self.named,
        )

    async def _time(self, runtime: str, core: Core, compiled: Compiled, request: CompileRequest) -> bool:
        """Run and time the known-good kernel with one runtime. Return True if running and timing worked."""

        async def check() -> str:
            wrong = await canary.fails(core, compiled, lambda core, folder: self._start(runtime, core, folder))
            if wrong:
                raise DeviceError(f"core {core.id} {wrong}")
            return "right"

        async def measure() -> dict[str, Any]:
            work = self.folder / f"work-{runtime}"
            work.mkdir()
            runner = await self._start(runtime, core, work)
            try:
                loaded = await runner.load(compiled, canary.INPUTS, canary.OUTPUTS)
                ran = loaded or await runner.run(canary.inputs(), deadline_s=canary.DEADLINE_S)
                timed = ran if isinstance(ran, Failed) else await runner.time(self.target, deadline_s=600)
            finally:
                clean = await runner.close()
            if not isinstance(timed, Measurement):
                raise DeviceError(f"the known-good kernel ended as {timed.status}: {timed.failure.message}")
            profile = profile_from(timed, compiled, request)
            return {
                "source": profile.source.value,
                "latency_us": profile.latency_us,
                "method": timed.best.method,
                "resolution_us": timed.best.resolution_us,
                "sdk": profile.sdk,
                "rounds_us": profile.details["rounds_us"],
                "steady": timed.steady,
                "notes": list(profile.notes),
                "reported": runner.reported,
                "engines_us": dict(profile.engines_us),
                "counters": dict(profile.counters),
                "ended_clean": clean,
            }

        if await self._step(f"run, {runtime}", check) is None:
            return False
        return await self._step(f"time, {runtime}", measure) is not None

    async def _summary(self, compiled: Compiled) -> str:
        traces = sorted(await asyncio.to_thread(lambda: list(compiled.traces.rglob("*.ntff"))))
        if not traces:
            raise DeviceError("no runtime wrote a trace (*.ntff) of the known-good kernel")
        words = ("view", "-n", str(compiled.neff), "-s", str(traces[-1]), "--output-format", "summary-json")
        return f"{[one.name for one in traces]} {await self._text(self.tools.profiler, *words)}"


def missing(tools: Toolchain, found: NeuronTools, api: str) -> list[dict[str, str]]:
    """Return the Neuron parts that this machine lacks, each with its remedy."""
    packages = {one.name for one in found.packages if one.real}
    lacks: list[tuple[str, bool, str]] = [
        ("a Neuron device (/dev/neuron*)", bool(found.devices), TOOLS),
        ("neuron-ls", bool(tool("neuron-ls")), TOOLS),
        ("neuron-monitor", bool(tool("neuron-monitor")), TOOLS),
        ("neuron-explorer or neuron-profile", bool(tools.profiler), TOOLS),
        (f"an interpreter with {NEEDS[api]}", bool(tools.compile_python), f"devices.compile_python, or {INSTALL}"),
        ("nrtpy or spike", bool(packages & {"nrtpy", "spike"}), "nrtpy comes with SDK 2.32; devices.runner_python"),
        ("libnrt.so.1", _LIBRARY.exists(), TOOLS),
    ]
    return [{"what": what, "todo": todo} for what, there, todo in lacks if not there]


def scrubbed(report: Mapping[str, Any]) -> str:
    """Return the report as text without keys, and without names of host, user, home folder, account, instance
    and address.
    """
    text = json.dumps(report, indent=1)
    for secret, name in ((str(Path.home()), "~"), (socket.gethostname(), "HOST"), (_user(), "USER")):
        if len(secret) > 2:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", name, text)
    for pattern, name in (
        (r"\bi-[0-9a-f]{8,17}\b", "INSTANCE"),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", "KEY"),
        (r"\b(?:sk|pk|ghp|hf)[-_][A-Za-z0-9_-]{16,}", "KEY"),
        (r"(?i)((?:token|secret|password|api_?key)\W{1,4})[^\s\"',]{8,}", r"\1KEY"),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!\.\d)", "ADDRESS"),
        (r"\b\d{12}\b", "ACCOUNT"),
    ):
        text = re.sub(pattern, name, text)
    return text + "\n"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


async def try_machine(
    *, api: str, target: str, lnc: int, compile_python: str, runner_python: str, memory_bytes: int, folder: Path
) -> tuple[bool, dict[str, Any]]:
    """Run the trial on this machine. Return (worked, report).

    ``worked`` is True if at least one way leads from a kernel's source to its time.
    """
    from acceld.devices.neuron.compile_jail import JailedExchange
    from acceld.devices.neuron.tools.toolchain import likely_toolchain
    from acceld.evaluate.sandbox.ladder import probe_level

    found = await asyncio.to_thread(find_neuron)
    if named := tuple(dict.fromkeys(filter(None, (compile_python, runner_python)))):
        found = await asyncio.to_thread(find_neuron, tuple(dict.fromkeys((*found.pythons, *named))))
    if not api:
        legacy = instance().startswith("trn1") or not any(one.real and one.name == "nki" for one in found.packages)
        api = "nki_legacy" if legacy else "nki"
    chip = instance()[:4]
    target = target or (chip if chip in ("trn1", "trn2", "trn3") else "trn1" if api == "nki_legacy" else "trn2")
    tools = likely_toolchain(api, found, compile_python=compile_python, runner_python=runner_python)
    level = await probe_level()
    exchange = JailedExchange(level.level, level.cgroup_folder, memory_bytes=memory_bytes)
    await exchange.start()
    try:
        trial = Trial(tools, found, exchange.exchanges(), api=api, target=target, folder=folder, lnc=lnc)
        trial.report["sandbox"] = level.plain()
        well = await trial.run()
    finally:
        await exchange.stop()
    shutil.rmtree(folder / "neff", ignore_errors=True)
    return well, trial.report
