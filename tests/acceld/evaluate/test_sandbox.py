"""The sandbox level of this machine, found by trying; and the bytes of the filter."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest

from acceld.evaluate.sandbox import cgroups, landlock, linux, seccomp
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import REQUIRED, probe_level
from acceld.evaluate.sandbox.probes import PROBES
from acceld.evaluate.sandbox.seccomp import Filter, assemble

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@linux_only
@pytest.mark.parametrize("highest", [Level.L4, Level.L2, Level.L1])
async def test_the_level_found_blocks_every_probe_it_must(highest: Level) -> None:
    report = await probe_level(highest)
    assert report.level <= highest
    results = {probe.name: probe for probe in report.probes}
    assert set(results) == set(PROBES)
    assert len(PROBES) == 12
    assert all(results[name].blocked for name in REQUIRED[report.level])
    assert all(level > report.level for level, _ in report.refused)


WITHOUT_CAPABILITIES = """
import asyncio, os
from acceld.evaluate.sandbox import linux
for number in range(41):
    linux.prctl(24, number)  # PR_CAPBSET_DROP: no program that is started has it again
linux.drop_capabilities()
from acceld.evaluate.sandbox.ladder import Level, probe_level
assert os.getuid() == 0 and not linux.capable(linux.CAP_SETUID)
print(asyncio.run(probe_level(Level.L2)).level.name)
"""


@linux_only
@pytest.mark.skipif(os.getuid() != 0, reason="only root has capabilities to give up")
@pytest.mark.skipif(not landlock.abi(), reason="L2 needs Landlock")
def test_root_of_a_container_without_capabilities_is_jailed_as_an_ordinary_user_is() -> None:
    command = [sys.executable, "-c", WITHOUT_CAPABILITIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "L2", done.stderr


async def test_nothing_but_l0_is_left_when_nothing_is_tried() -> None:
    report = await probe_level(Level.L0)
    assert report.level is Level.L0
    assert not report.untrusted_allowed
    assert report.plain()["level"] == "L0"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("fork", [False, True])
def test_every_jump_of_the_filter_lands_inside_it(machine: str, fork: bool) -> None:
    code = assemble(Filter(pid=7, fork=fork), machine)
    steps = list(struct.iter_unpack("HBBI", code))
    assert len(steps) < 4096
    for position, (kind, taken, other, _) in enumerate(steps):
        if kind != 0x06:
            assert position + 1 + max(taken, other) < len(steps)
    assert steps[-1][0] == 0x06


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_answers_by_call_and_argument(machine: str) -> None:
    special = seccomp._SPECIAL[machine]
    code = assemble(Filter(pid=7), machine)
    allow, refuse = 0x7FFF0000, 0x00050001
    assert _run(code, machine, {"x86_64": 0, "aarch64": 63}[machine]) == allow
    assert _run(code, machine, {"x86_64": 41, "aarch64": 198}[machine]) == refuse
    assert _run(code, machine, special["kill"], 7) == allow
    assert _run(code, machine, special["kill"], 8) == refuse
    assert _run(code, machine, special["mmap"], 0, 0, 3) == allow
    assert _run(code, machine, special["mmap"], 0, 0, 7) == refuse
    assert _run(code, machine, special["prctl"], linux.PR_SET_TSC, linux.PR_TSC_SIGSEGV) == allow
    assert _run(code, machine, special["prctl"], linux.PR_SET_TSC, 1) == refuse
    assert _run(code, machine, special["prctl"], linux.PR_SET_DUMPABLE, linux.PR_TSC_SIGSEGV) == refuse
    assert _run(code, machine, special["clone"], 0) == refuse
    assert _run(code, machine, special["execve"]) == refuse
    forking = assemble(Filter(pid=7, fork=True), machine)
    assert _run(forking, machine, special["clone"], 0x11) == allow
    assert _run(forking, machine, special["clone"], 0x10000011) == refuse
    other = "aarch64" if machine == "x86_64" else "x86_64"
    assert _run(code, other, 0) == refuse


def test_a_missing_cgroup_says_why() -> None:
    found = cgroups.find()
    assert bool(found.folder) != bool(found.reason)


def _run(code: bytes, machine: str, number: int, *arguments: int) -> int:
    """Return the filter's answer to a call, by a small interpreter of its five instructions."""
    data = struct.pack("<IIQ", number, seccomp._AUDIT_ARCH[machine], 0)
    data += struct.pack("<6Q", *(arguments + (0,) * (6 - len(arguments))))
    steps = list(struct.iter_unpack("HBBI", code))
    position, value = 0, 0
    while True:
        kind, taken, other, k = steps[position]
        position += 1
        if kind == 0x06:
            return int(k)
        if kind == 0x20:
            (value,) = struct.unpack_from("<I", data, k)
            continue
        holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[kind]
        position += taken if holds else other
