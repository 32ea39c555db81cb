"""Try everything on a real chip and write down what happened: ``python -m acceld.devices.neuron.tools.trial``.

A known-good kernel is compiled, run, checked and timed on one core; each step is recorded with its time, its result
or its error, and the raw texts of Neuron's tools. The report holds no kernel of yours, no key and no host name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.compiler import NeuronCompiler, Versions
from acceld.devices.neuron.runtime.cores import Core, cores_of, foreign_processes, read_devices
from acceld.devices.neuron.runtime.requests import CompileRequest
from acceld.devices.neuron.runtime.runner import NeuronRunner
from acceld.devices.neuron.runtime.timing import Measurement, profile_from
from acceld.devices.neuron.tools.detection import DEVICES
from acceld.devices.neuron.tools.toolchain import Toolchain, find_toolchain
from acceld.errors import AcceldError, DeviceError
from acceld.evaluate.case import Failed

VERSION = 1
T = TypeVar("T")


class Trial:
    """One run through all steps; a step that fails ends it, with the report up to there."""

    def __init__(
        self,
        tools: Toolchain,
        *,
        api: str,
        target: str,
        folder: Path,
        lnc: int = 1,
        runtime: str = "",
        named: Mapping[str, str] | None = None,
        device_pattern: str = DEVICES,
    ) -> None:
        self.tools, self.api, self.target, self.lnc, self.runtime = tools, api, target, lnc, runtime
        self.named = dict(named or {})
        self.folder = folder
        self.compiler = NeuronCompiler(
            tools.compile_python, NeffCache(folder / "neff"), named=self.named, device_pattern=device_pattern
        )
        self.report: dict[str, Any] = {
            "version": VERSION,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "api": api,
            "target": target,
            "lnc": lnc,
            "compile_python": tools.compile_python,
            "runner_python": tools.runner_python,
            "profiler": tools.profiler,
            "steps": [],
        }

    async def run(self) -> bool:
        """All steps; whether every one went well."""
        try:
            core = await self._step("cores", self._find_core)
            versions = await self._step("versions", self.compiler.versions)
            request = self._request(versions)
            compiled = await self._step("compile", lambda: self._compile(request))
            await self._step("compile again, from the cache", lambda: self._compile(request))
            await self._step("canary", lambda: self._canary(core, compiled))
            await self._step("time", lambda: self._time(core, compiled, request))
            if self.tools.profiler:
                await self._step("summary", lambda: self._summary(compiled))
        except AcceldError:
            return False
        return self.compiler.compiled == 1

    async def _step(self, name: str, step: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        record: dict[str, Any] = {"name": name}
        self.report["steps"].append(record)
        try:
            result = await step()
        except Exception as error:
            record["error"] = str(error)
            if not isinstance(error, AcceldError):
                record["traceback"] = traceback.format_exc()
                raise DeviceError(f"step {name!r} ended in an error of acceld's own: {error!r}") from error
            raise
        else:
            record["result"] = result if isinstance(result, str | dict) else str(result)
            return result
        finally:
            record["seconds"] = round(time.monotonic() - began, 3)

    async def _find_core(self) -> Core:
        devices = await read_devices(self.tools.neuron_ls, self.named or None)
        strangers = foreign_processes(devices, ())
        free = [core for core in cores_of(devices) if core.device not in strangers]
        if not free:
            said = "; ".join(f"process {one.pid} ({one.command})" for one in strangers.values())
            raise DeviceError(f"every chip is in use by {said}", hint="acceld ends no process it did not start")
        if self.lnc > free[0].lnc:
            raise DeviceError(f"this machine's logical cores have LNC {free[0].lnc}, not {self.lnc}", hint="--lnc 1")
        return free[0]

    def _request(self, versions: Versions) -> CompileRequest:
        return CompileRequest(
            kernel=canary.kernel(self.api, self.lnc),
            arguments=canary.INPUTS,
            target=self.target,
            compiler_version=versions.compiler,
            api_version=versions.nki,
            flags=("--disable-dge", "--auto-cast=none") if self.api == "nki_legacy" else (),
        )

    async def _compile(self, request: CompileRequest) -> Compiled:
        result = await self.compiler.compile(request)
        if isinstance(result, Failed):
            raise DeviceError(f"the known-good kernel has {result.status}: {result.failure.message}")
        return result

    async def _start(self, core: Core, folder: Path) -> NeuronRunner:
        return await NeuronRunner.start(
            self.tools.runner_python,
            core=core.id * core.lnc // self.lnc,
            folder=folder,
            lnc=self.lnc,
            profiler=self.tools.profiler,
            runtime=self.runtime,
            named=self.named,
        )

    async def _canary(self, core: Core, compiled: Compiled) -> str:
        if wrong := await canary.fails(core, compiled, self._start):
            raise DeviceError(f"core {core.id} {wrong}")
        return "right"

    async def _time(self, core: Core, compiled: Compiled, request: CompileRequest) -> dict[str, Any]:
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        runner = await self._start(core, work)
        try:
            loaded = await runner.load(compiled, canary.INPUTS, canary.OUTPUTS)
            ran = loaded or await runner.run(canary.inputs(), deadline_s=60)
            timed = ran if isinstance(ran, Failed) else await runner.time(self.target, deadline_s=600)
        finally:
            clean = await runner.close()
        if not isinstance(timed, Measurement):
            raise DeviceError(f"the known-good kernel has {timed.status}: {timed.failure.message}")
        profile = profile_from(timed, compiled, request)
        return {
            "source": profile.source.value,
            "latency_us": profile.latency_us,
            "method": profile.method,
            "resolution_us": timed.best.resolution_us,
            "sdk": profile.sdk,
            "rounds_us": profile.details["rounds_us"],
            "steady": timed.steady,
            "notes": list(profile.notes),
            "engines_us": dict(profile.engines_us),
            "counters": dict(profile.counters),
            "ended_clean": clean,
        }

    async def _summary(self, compiled: Compiled) -> str:
        traces = sorted(compiled.traces.rglob("*.ntff"))
        command = ("view", "-n", str(compiled.neff), "-s", str(traces[-1]), "--output-format", "summary-json")
        process = await asyncio.create_subprocess_exec(
            self.tools.profiler,
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self.named or None,
        )
        out, _ = await process.communicate()
        return f"{[one.name for one in traces]} {out.decode(errors='replace')[:20000]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit code 0 where every step went well, 8 where the machine or its tools failed."""
    parser = argparse.ArgumentParser(
        prog="python -m acceld.devices.neuron.tools.trial", description=(__doc__ or "").strip()
    )
    parser.add_argument("--target", required=True, choices=("trn1", "trn2", "trn3"))
    parser.add_argument("--api", required=True, choices=("nki_legacy", "nki"))
    parser.add_argument("--lnc", type=int, default=1, choices=(1, 2))
    parser.add_argument("--runtime", default="", choices=("", "nrtpy", "spike", "libnrt", "capture"))
    parser.add_argument("--compile-python", default="")
    parser.add_argument("--runner-python", default="")
    parser.add_argument("--out", type=Path, default=Path("acceld-neuron-trial.json"))
    given = parser.parse_args(arguments)
    try:
        tools = find_toolchain(given.api, compile_python=given.compile_python, runner_python=given.runner_python)
    except DeviceError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    with tempfile.TemporaryDirectory(prefix="acceld-trial-") as folder:
        trial = Trial(
            tools, api=given.api, target=given.target, lnc=given.lnc, runtime=given.runtime, folder=Path(folder)
        )
        well = asyncio.run(trial.run())
    given.out.write_text(json.dumps(trial.report, indent=1) + "\n", encoding="utf-8")
    for step in trial.report["steps"]:
        sys.stderr.write(f"{'failed' if 'error' in step else 'ok':7}{step['seconds']:8.2f} s  {step['name']}\n")
    sys.stderr.write(f"wrote {given.out}\n")
    return 0 if well else DeviceError.exit_code


if __name__ == "__main__":
    sys.exit(main())
