"""A toolchain that does not work in the strict jail compiles in the next one, and the missing facility is named."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest

from acceld.devices.neuron.compile_jail import JailedExchange
from acceld.devices.neuron.runtime.cache import NeffCache
from acceld.devices.neuron.runtime.compiler import CompileJail, NeuronCompiler
from acceld.devices.neuron.runtime.requests import ROUTES
from acceld.devices.neuron.runtime.scripts import facilities
from acceld.errors import DeviceError
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.sandbox.process import SandboxError, Zygote
from acceld.model import Kernel, Status
from tests.acceld.devices.neuron.test_neuron_evaluator import Asking, asking, evaluating  # noqa: F401  asking is a fixture
from tests.standin_neuron.machine import KERNEL

NEEDS = "locks,pool,sockets,user,proc,sys,shared memory,address space"
"""Every facility that a wide jail gives a compiler."""


@pytest.fixture
async def namespaces() -> str:
    """Skip where this machine has no namespaces."""
    report = await probe_level()
    if report.level < Level.L3:
        pytest.skip("a wide jail needs namespaces")
    return report.cgroup_folder


async def test_a_compiler_that_needs_processes_and_proc_is_found_a_jail_that_is_remembered(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asking: Asking,  # noqa: F811
    namespaces: str,
) -> None:
    async with evaluating(tmp_path, monkeypatch, modes={"NEEDS": NEEDS}) as evaluator:
        reported = evaluator.statistics()
        assert (reported["compile_jail"], reported["compile_route"]) == ("wide", ROUTES["nki_legacy"][0])
        found = await evaluator.evaluate(asking(KERNEL))
        assert found.status is Status.PASSED, found.failure
        compiled = reported["compiled"]
    (kept,) = json.loads((tmp_path / "state" / "neuron" / "toolchains.json").read_text()).values()
    assert (kept["jail"], kept["route"]) == ("wide", ROUTES["nki_legacy"][0])
    assert "save_neff_name" in kept["signatures"]["neuronxcc.nki.baremetal"]
    assert isinstance(compiled, int) and compiled > 1


@pytest.mark.parametrize(
    ("need", "named"),
    [
        ("locks", "semaphores"),
        pytest.param("proc", "/proc", marks=pytest.mark.slow),
        pytest.param("user", "/etc/passwd", marks=pytest.mark.slow),
    ],
)
async def test_where_the_wide_jail_is_not_allowed_the_error_names_what_the_strict_one_refuses(
    need: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespaces: str
) -> None:
    with pytest.raises(DeviceError) as reported:
        async with evaluating(tmp_path, monkeypatch, modes={"NEEDS": need}, compile_jail="strict"):
            pass
    assert "it compiles outside of it" in reported.value.message
    assert named in reported.value.message.split("(refused there: ")[1].split(";")[0]
    assert 'compile_jail = "off"' in reported.value.hint


async def test_without_a_jail_only_with_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespaces: str
) -> None:
    secret = tmp_path / "home-file"
    secret.write_text("x")
    modes = {"NEEDS": "home", "HOME_FILE": str(secret)}
    with pytest.raises(DeviceError, match="it compiles outside of it"):
        async with evaluating(tmp_path, monkeypatch, modes=modes):
            pass
    (tmp_path / "again").mkdir()
    async with evaluating(tmp_path / "again", monkeypatch, modes=modes, compile_jail="off") as evaluator:
        assert evaluator.statistics()["compile_jail"] == "off"


async def test_a_broken_toolchain_is_not_called_a_jails_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {"NEEDS": "home", "HOME_FILE": "/no/such/file"}
    with pytest.raises(DeviceError, match="a known-good kernel does not compile here: strict") as reported:
        async with evaluating(tmp_path, monkeypatch, modes=modes):
            pass
    assert "off, neuronxcc.nki.baremetal" in reported.value.message and "/no/such/file" in reported.value.message


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_kernel_that_a_person_vouches_for_widens_the_jail_and_a_candidate_does_not(
    trusted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asking: Asking,  # noqa: F811
    namespaces: str,
) -> None:
    needy = "import multiprocessing\nmultiprocessing.get_context('fork').Lock()\n" + KERNEL
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        assert evaluator.statistics()["compile_jail"] == "strict"
        kernel = Kernel(needy, "nki_legacy", trusted=trusted)
        found = await evaluator.evaluate(dataclasses.replace(asking(KERNEL), kernel=kernel))
        wanted = ("wide", Status.COMPILE_ERROR) if trusted else ("strict", Status.REJECTED)
        assert evaluator.statistics()["compile_jail"] == wanted[0]
        assert found.status is wanted[1] or trusted


async def test_the_wide_jail_gives_a_compiler_all_but_memfd_and_the_strict_one_refuses_it(
    tmp_path: Path, namespaces: str
) -> None:
    exchange = JailedExchange(Level.L3, namespaces, memory_bytes=1 << 30)
    await exchange.start()
    try:
        compiler = NeuronCompiler(sys.executable, NeffCache(tmp_path), exchanges=exchange.exchanges())
        assert compiler.jail is CompileJail.STRICT
        strict = await compiler.refused()
        compiler.jail = CompileJail.WIDE
        wide = await compiler.refused()
    finally:
        await exchange.stop()
    assert set(strict) == set(facilities.FACILITIES)
    assert set(wide) == {"memfd_create"}, wide


async def test_the_wide_jail_reaches_nothing_outside_of_its_own_tree(namespaces: str) -> None:
    tasks = {"look": "tests.acceld.evaluate.hostile:look_around"}
    zygote = Zygote(tasks, level=Level.L3, cgroup_folder=namespaces)
    await zygote.start()
    try:
        jail = Jail(processes=8, wide=True, wall_s=300)
        outcome, reply = await zygote.run("look", str(os.getpid()).encode(), jail)
        with reply:
            reported = json.loads(reply.read(10_000))
    finally:
        await zygote.stop()
    assert outcome.ended_well
    assert reported.pop("processes") == "[1]"
    assert all(what.startswith("refused") for what in reported.values()), reported


@pytest.mark.parametrize(("level", "processes"), [(Level.L2, 8), (Level.L3, 1)])
async def test_a_wide_jail_without_namespaces_or_a_watched_tree_is_not_entered(
    level: Level, processes: int, namespaces: str
) -> None:
    zygote = Zygote({"look": "tests.acceld.evaluate.hostile:look_around"}, level=level)
    await zygote.start()
    try:
        with pytest.raises(SandboxError, match="wide jail needs"):
            await zygote.run("look", b"1", Jail(processes=processes, wide=True))
    finally:
        await zygote.stop()
