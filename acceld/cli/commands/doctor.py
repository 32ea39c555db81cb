"""``acceld doctor``: what this machine offers acceld, and what to do where something is missing."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from acceld import config
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json
from acceld.errors import AcceldError
from acceld.home import find_home
from acceld.targets import NEURON, TARGETS

State = Literal["ok", "note", "fail"]
GLYPHS: dict[State, str] = {"ok": "✓", "note": "·", "fail": "✗"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. Only ``fail`` keeps acceld from its main job."""

    name: str
    state: State
    text: str
    todo: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but the form of the answer."""
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look at everything; 1 where the main job can not be done."""
    looks: tuple[Callable[[argparse.Namespace], Iterator[Finding]], ...] = (
        _python,
        _configuration,
        _state,
        _data,
        _sandbox,
        _models,
        _neuron,
        _nvidia,
        _cpu,
    )
    findings: list[Finding] = []
    for look in looks:
        try:
            findings += look(arguments)
        except AcceldError as error:
            findings.append(Finding(look.__name__.strip("_"), "fail", error.message, error.hint))
    failed = any(finding.state == "fail" for finding in findings)
    if arguments.json:
        print_json({"ok": not failed, "findings": [{k: getattr(f, k) for k in Finding.__slots__} for f in findings]})
        return int(failed)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{GLYPHS[finding.state]} {finding.name:{width}}  {finding.text}")
        if finding.todo:
            print(f"  {'':{width}}  → {finding.todo}")
    return int(failed)


def _python(_: argparse.Namespace) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding(
        "python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}, {cores} cores"
    )
    missing = [name for name in ("numpy", "ml_dtypes", "aiohttp", "libcst", "textual") if not _importable(name)]
    if missing:
        yield Finding("packages", "fail", f"missing: {', '.join(missing)}", "pip install acceld, in this environment")
    else:
        yield Finding("packages", "ok", "all that acceld needs")


def _importable(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def _configuration(_: argparse.Namespace) -> Iterator[Finding]:
    resolved = config.load()
    files = ", ".join(map(str, resolved.files)) or "no file: defaults"
    yield Finding("configuration", "ok", files)


def _state(arguments: argparse.Namespace) -> Iterator[Finding]:
    home = find_home(arguments.home)
    told = home.daemon()
    yield Finding(
        "daemon", "ok" if told else "note", f"pid {told['pid']}" if told else "none runs; optimize starts one"
    )
    folder = home.path if home.path.exists() else home.path.parent
    if not os.access(folder, os.W_OK):
        yield Finding("state folder", "fail", f"{home.path} can not be written", "choose another: --home DIR")
    else:
        free = shutil.disk_usage(folder).free / 2**30
        yield Finding("state folder", "ok" if free > 2 else "note", f"{home.path}, {free:.0f} GiB free")
    yield Finding("sqlite", "ok", sqlite3.sqlite_version)


def _data(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.resources import prompts_folder
    from acceld.workloads import find_workloads

    extra = config.load().config.paths.workloads
    yield Finding("workloads", "ok", f"{len(find_workloads(extra))} found")
    yield Finding("prompts", "ok", str(prompts_folder()))


def _sandbox(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.evaluate.sandbox.jail import Level
    from acceld.evaluate.sandbox.ladder import probe_level

    report = asyncio.run(probe_level())
    state: State = "ok" if report.level >= Level.L2 else "note" if report.untrusted_allowed else "fail"
    refused = "; ".join(f"{level.name}: {why}" for level, why in report.refused)
    yield Finding("sandbox", state, f"level {report.level.name}", refused)


def _models(_: argparse.Namespace) -> Iterator[Finding]:
    settings = config.load().config
    if not settings.models:
        yield Finding("models", "note", "none configured; proposals by rules need none", "[models] in acceld.toml")
    for name, model in settings.models.items():
        default = "ANTHROPIC_API_KEY" if model.provider == "anthropic" else "OPENAI_API_KEY"
        variable = model.key_env or default
        if os.environ.get(variable) or model.base_url:
            yield Finding(f"model {name}", "ok", model.base_url or f"key in {variable}")
        else:
            yield Finding(f"model {name}", "note", f"no key: {variable} is not set", f"export {variable}=...")


def _neuron(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.devices.neuron.tools.detection import INSTALL, TOOLS, find_neuron

    settings = config.load().config.devices
    named = tuple({p: None for p in (settings.compile_python, settings.runner_python) if p})
    found = find_neuron(named or (sys.executable,)) if named else find_neuron()
    here = find_neuron((sys.executable,)).packages
    for package in here:
        if not package.real:
            text = f"{package.name} {package.version} in this environment is PyPI's placeholder"
            yield Finding("neuron", "note", text, INSTALL)
    for package in found.packages:
        yield Finding("neuron", "ok" if package.real else "note", f"{package.text} in {package.python}")
    if not found.packages and not here:
        yield Finding("neuron", "note", "no Neuron packages; candidates run on the simulator", INSTALL)
    if found.devices:
        yield Finding("trainium", "ok", f"{found.instance or 'instance'}: {', '.join(found.devices)}")
        profiler = found.profiler or "no neuron-explorer or neuron-profile on PATH"
        yield Finding("profiler", "ok" if found.profiler else "note", profiler, "" if found.profiler else TOOLS)
    else:
        yield Finding("trainium", "note", "no Neuron device on this machine")
    if found.devices or named or any(package.real for package in found.packages):
        yield from map(_neuron_backend, NEURON)


def _neuron_backend(backend: str) -> Finding:
    """What a Neuron backend would work with here, or what it lacks. Nothing is compiled."""
    from acceld.devices.neuron.machine import find_machine
    from acceld.devices.neuron.tools.detection import find_neuron
    from acceld.devices.neuron.tools.toolchain import NEEDS

    settings = config.load().config.devices
    try:
        found = asyncio.run(
            find_machine(
                backend,
                compile_python=settings.compile_python,
                runner_python=settings.runner_python,
                wanted=settings.cores,
            )
        )
    except AcceldError as error:
        return Finding(backend, "note", error.message, error.hint)
    python, package = found.tools.compile_python, NEEDS[TARGETS[backend].apis[0]]
    if package not in {one.name for one in find_neuron((python,)).packages}:
        return Finding(
            backend, "note", f"{python} has no {package}", "see devices.compile_python, and docs/trainium.md"
        )
    chip = found.chip or "a chip that the firmware does not name"
    cores = f"{len(found.cores)} logical cores of {chip}, LNC {found.cores[0].lnc}"
    tools = f"compiler in {found.tools.compile_python}, runner in {found.tools.runner_python}"
    return Finding(backend, "ok", f"{cores}; {tools}", f"acceld optimize WORKLOAD --backend {backend}")


def _cpu(arguments: argparse.Namespace) -> Iterator[Finding]:
    """What kernels for the host's processor would be built and timed with. Nothing is measured."""
    from acceld.devices.cpu.driver import CpuDriver
    from acceld.devices.cpu.peaks import FILE, stored_rates

    driver = CpuDriver()
    try:
        driver.check()
    except AcceldError as error:
        yield Finding("cpu", "note", error.message, error.hint)
        return
    core = driver.leases()[0].name
    if driver.compiler is None:
        todo = "install gcc (apt install gcc)"
        yield Finding("cpu", "note", f"{core}; no C compiler: none of gcc, cc and clang; numpy kernels only", todo)
        return
    found = stored_rates(find_home(arguments.home).path, driver.compiler.path)
    if found is None:
        told = f"peaks not measured yet: the first run does, in two seconds ({FILE})"
    else:
        memory = max(found.memory_bytes_per_s, found.shared_bytes_per_s)
        told = f"measured peaks {found.flops_per_s / 1e9:.3g} GFLOP/s, {memory / 1e9:.3g} GB/s"
    yield Finding("cpu", "ok", f"{driver.compiler.version}; {core}; {told}", "acceld optimize matmul_cpu --wait")


def _nvidia(_: argparse.Namespace) -> Iterator[Finding]:
    from acceld.devices.cuda.driver import CudaDriver
    from acceld.devices.cuda.machine import INSTALL

    driver = CudaDriver()
    missing = [name for name in ("triton", "torch") if not _importable(name)]
    todo = INSTALL if missing else ""
    if shutil.which("nvidia-smi") is None:
        yield Finding("nvidia", "note", "no NVIDIA driver: nvidia-smi is not on PATH; Triton kernels can not be timed")
        return
    try:
        for one in driver.gpus:
            known = f"chip {driver.gpu.name}" if driver.gpu else "no datasheet figures for it"
            yield Finding("nvidia", "ok", f"GPU {one.index} {one.name}, driver {one.driver}, {one.clocks}; {known}")
        driver.check()
    except AcceldError as error:
        yield Finding("nvidia", "note", error.message, error.hint)
    else:
        found = "triton and torch are here" if not missing else f"missing: {', '.join(missing)}"
        yield Finding("triton", "note" if missing else "ok", found, todo)
