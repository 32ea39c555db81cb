"""Provide the evaluator for Trainium, and the lines about Trainium in ``acceld doctor``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from acceld.config import Config, DevicesConfig
from acceld.device import Finding, Target
from acceld.devices.neuron import DEVICE
from acceld.devices.neuron.evaluator import NeuronEvaluator
from acceld.devices.neuron.machine import find_machine
from acceld.devices.neuron.opinion import stages_of, tools_of
from acceld.devices.neuron.tools.compatibility import check
from acceld.devices.neuron.tools.detection import INSTALL, TOOLS, NeuronTools, find_neuron
from acceld.devices.neuron.tools.toolchain import NEEDS
from acceld.errors import AcceldError, DeviceError
from acceld.evaluate.interface import Evaluator, Workplace
from acceld.workloads import find_workloads, workload


def evaluator(workplace: Workplace, backend: str) -> Evaluator:
    """Return the evaluator of a Neuron backend. Raise DeviceError if no simulator runs beside the backend."""
    if workplace.simulator is None:
        raise DeviceError(f"backend {backend} needs the simulator too, which predicts and verifies kernels")
    return NeuronEvaluator(
        backend,
        workplace.config,
        workplace.devices,
        workplace.state_folder,
        workplace.simulator,
        workload_folders=workplace.workload_folders,
        on_start=workplace.on_start,
        on_notice=workplace.on_notice,
        on_device=workplace.on_device,
    )


def doctor(config: Config, state_folder: Path) -> Iterator[Finding]:
    """Yield findings about the Neuron software, the chips, the backends and the workloads of this machine. This
    compiles nothing.
    """
    settings = config.devices
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
    yield _second_opinion(config)
    if found.devices:
        yield Finding("trainium", "ok", f"{found.instance or 'instance'}: {', '.join(found.devices)}")
        profiler = found.profiler or "no neuron-explorer or neuron-profile on PATH"
        yield Finding("profiler", "ok" if found.profiler else "note", profiler, "" if found.profiler else TOOLS)
    else:
        yield Finding("trainium", "note", "no Neuron device on this machine")
    if found.devices or named or any(package.real for package in found.packages):
        for target in DEVICE.targets:
            yield _backend(target, settings)
        yield from _compatible(found, config)


def _second_opinion(config: Config) -> Finding:
    """Return a finding that names the AWS tools whose opinion is asked about each kernel of ``nki`` that passes the
    strict gate.
    """
    asked, name = config.evaluate.second_opinion, "second opinion"
    if asked == "off":
        return Finding(name, "note", 'AWS\'s tools are not asked: evaluate.second_opinion = "off"')
    stages = stages_of(tools_of(config.evaluate.second_python))
    if not stages.simulator:
        missing = "no interpreter with the package nki: kernels of nki are judged by acceld's own rules alone"
        return Finding(name, "fail" if asked == "required" else "note", missing, INSTALL)
    compiler = f"{stages.compiler_name} in {stages.compiler}" if stages.compiler else "no compiler beside it"
    return Finding(name, "ok", f"{stages.simulator_name} in {stages.simulator} simulates; {compiler}")


def _compatible(found: NeuronTools, config: Config) -> Iterator[Finding]:
    """Yield findings on the workloads that run with the installed compiler on this machine's chip.

    If the firmware names no chip, yield findings for every chip.
    """
    versions = {one.version: None for one in found.packages if one.name == "neuronx-cc"}
    known = [workload(name, config.paths.workloads) for name in find_workloads(config.paths.workloads)]
    for version in versions:
        for target in DEVICE.targets:
            (api,) = target.apis
            reported = found.instance[:4]
            for chip in [reported] if reported.startswith("trn") else target.chips[api]:
                yield from check(api, chip, version, known)


def _backend(target: Target, settings: DevicesConfig) -> Finding:
    """Return a finding with the parts that a backend would use on this machine, or the parts that are missing."""
    backend = target.backend
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
    python, package = found.tools.compile_python, NEEDS[target.apis[0]]
    if package not in {one.name for one in find_neuron((python,)).packages}:
        return Finding(
            backend,
            "note",
            f"{python} has no {package}",
            "set devices.compile_python; docs/trainium-sdks.md has the versions",
        )
    chip = found.chip or "a chip that the firmware does not name"
    cores = f"{len(found.cores)} logical cores of {chip}, LNC {found.cores[0].lnc}"
    tools = f"compiler in {found.tools.compile_python}, runner in {found.tools.runner_python}"
    return Finding(backend, "ok", f"{cores}; {tools}", f"acceld optimize WORKLOAD --backend {backend}")
