"""Cgroups are found only if they are delegated, made with limits, and ended with all their processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceld.config import EvaluateConfig
from acceld.evaluate.queue import slots_of
from acceld.evaluate.sandbox import cgroups
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.process import Zygote

_ESCAPES = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
time.sleep(60)
"""


@pytest.fixture
def real() -> Iterator[Path]:
    """Yield a cgroup v2 made for the test in the kernel's own hierarchy, whatever controllers it has."""
    mount, own = cgroups.mounted(), cgroups.membership()
    if mount is None or own is None or not os.access(mount / own.lstrip("/"), os.W_OK):
        pytest.skip("no cgroup v2 may be made here")
    path = mount / own.lstrip("/") / f"acceld-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup v2 may be made here: {error}")
    yield path
    cgroups.kill(str(path))
    assert cgroups.remove(str(path))


def delegated(tmp_path: Path, *, controllers: str = "cpu memory pids", handed: str = "memory pids") -> Path:
    """Return a stand-in for a hierarchy: one cgroup's files."""
    (tmp_path / "cgroup.controllers").write_text(controllers)
    (tmp_path / "cgroup.subtree_control").write_text(handed)
    return tmp_path


def test_a_cgroup_with_both_controllers_handed_down_is_delegated(tmp_path: Path) -> None:
    assert cgroups.find_second(tmp_path.parent, tmp_path.name) == cgroups.Delegation(
        reason="no cgroup with memory and pids controllers is delegated to this process"
    )
    assert cgroups.find_second(tmp_path.parent, delegated(tmp_path).name).folder == str(tmp_path)


def test_controllers_that_are_there_but_not_handed_down_are_asked_for(tmp_path: Path) -> None:
    folder = delegated(tmp_path, handed="")
    assert cgroups.find_second(tmp_path.parent, folder.name).folder == str(folder)
    assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_the_limits_of_a_cgroup_are_those_asked_for(tmp_path: Path) -> None:
    path = Path(cgroups.create(str(tmp_path), "job", memory_bytes=1 << 20, processes=7))
    reported = {name: (path / name).read_text() for name in ("memory.max", "pids.max", "memory.oom.group")}
    assert reported == {"memory.max": "1048576", "pids.max": "7", "memory.oom.group": "1"}


def first_version(tmp_path: Path) -> tuple[str, str]:
    """Return a stand-in for the hierarchies of version 1: the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    for controller in ("memory", "pids"):
        (tmp_path / controller / "user" / "1").mkdir(parents=True)
        (tmp_path / controller / "user" / "1" / "cgroup.procs").touch()
    mounts = "".join(
        f"3{at} 31 0:3{at} /user {tmp_path}/{names.split(',')[0]}/user rw - cgroup cgroup rw,{names}\n"
        for at, names in enumerate(("memory", "pids"))
    )
    return f"31 23 0:28 / {tmp_path} rw - tmpfs tmpfs rw\n{mounts}", "4:memory:/user/1\n8:pids:/user/1\n0::/\n"


def test_hierarchies_of_version_1_are_used_where_they_are_ours(tmp_path: Path) -> None:
    mounts, places = first_version(tmp_path)
    memory, pids = (tmp_path / name / "user" / "1" for name in ("memory", "pids"))
    found = cgroups.find_first(mounts, places)
    assert found.folder.split("\n") == [str(memory), str(pids)]
    path = cgroups.create(found.folder, "job", memory_bytes=1 << 20, processes=7)
    assert (memory / "job" / "memory.limit_in_bytes").read_text() == "1048576"
    assert (pids / "job" / "pids.max").read_text() == "7"
    cgroups.enter(path, 12345)
    assert (memory / "job" / "cgroup.procs").read_text() == (pids / "job" / "cgroup.procs").read_text() == "12345"
    assert not cgroups.ran_out_of_memory(path)
    (memory / "job" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert cgroups.ran_out_of_memory(path)


def test_version_1_without_pids_or_not_ours_is_not_used(tmp_path: Path) -> None:
    mounts, places = first_version(tmp_path)
    without = cgroups.find_first(mounts, places.replace("8:pids:/user/1\n", ""))
    assert without.reason == "cgroup v1 has no pids hierarchy here"
    (tmp_path / "memory" / "user" / "1" / "cgroup.procs").unlink()
    assert cgroups.find_first(mounts, places).reason.startswith("the memory hierarchy of cgroup v1 is not delegated")


def test_a_cgroup_of_version_1_is_ended_until_nobody_is_left(tmp_path: Path) -> None:
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]) as process:
        for folder in (memory, pids):
            folder.mkdir()
            (folder / "cgroup.procs").write_text(f"{process.pid}\n0\n")
        killing = threading.Thread(target=cgroups.kill, args=(f"{memory}\n{pids}",))
        killing.start()
        assert process.wait(300) == -signal.SIGKILL
        for folder in (memory, pids):
            (folder / "cgroup.procs").write_text("")
        killing.join(300)
    assert not killing.is_alive() and (pids / "pids.max").read_text() == "0"


@pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
def test_whoever_left_the_session_is_ended_with_the_cgroup(real: Path) -> None:
    gate_read, gate_write = os.pipe()
    code = f"import os; os.read({gate_read}, 1)\n{_ESCAPES}"
    with subprocess.Popen([sys.executable, "-S", "-c", code], pass_fds=[gate_read]) as process:
        cgroups.enter(str(real), process.pid)
        os.write(gate_write, b".")
        while len(_inside(real)) < 4:
            time.sleep(0.01)
        cgroups.kill(str(real))
        assert process.wait(300) == -signal.SIGKILL
    os.close(gate_read)
    os.close(gate_write)
    for _ in range(30_000):
        if not _inside(real):
            break
        time.sleep(0.01)
    assert not _inside(real)


class _WithoutLimits(Zygote):
    """A zygote at the highest level whose cgroups have no limits: of a hierarchy without the controllers."""

    def _make_cgroup(self, jail: Jail) -> str:
        path = Path(self._cgroup_folder) / "job"
        path.mkdir()
        return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
async def test_a_jailed_tree_is_in_its_cgroup_and_gone_with_it(real: Path) -> None:
    tasks = {"escape": "tests.acceld.evaluate.hostile:escape"}
    zygote = _WithoutLimits(tasks, level=Level.L4, cgroup_folder=str(real))
    await zygote.start()
    try:
        outcome, reply = await zygote.run("escape", b"", Jail(wall_s=1.0, processes=20))
        reply.close()
    finally:
        await zygote.stop()
    assert outcome.exit == 0 or outcome.cause == "deadline", outcome
    assert not (real / "job").exists()


@pytest.mark.parametrize(
    ("task", "jail", "cause"),
    [
        ("allocate_in_children", Jail(wall_s=300, memory_bytes=100 << 20, processes=8), "memory"),
        ("allocate_shared", Jail(wall_s=300, memory_bytes=100 << 20, processes=8, wide=True), "memory"),
        ("bomb", Jail(wall_s=300, processes=20), "processes"),
    ],
)
async def test_the_limits_of_a_delegated_cgroup_hold_for_the_whole_tree(task: str, jail: Jail, cause: str) -> None:
    found = cgroups.find()
    if not found.folder:
        pytest.skip(f"no cgroup with limits can be made here: {found.reason}")
    zygote = Zygote({task: f"tests.acceld.evaluate.hostile:{task}"}, level=Level.L4, cgroup_folder=found.folder)
    await zygote.start()
    try:
        job = asyncio.create_task(zygote.run(task, b"", jail))
        most_bytes = most_processes = 0
        while not job.done():
            for path in _jobs(found.folder):
                with contextlib.suppress(OSError, ValueError):
                    if (path / "pids.current").exists():
                        most_processes = max(most_processes, int((path / "pids.current").read_text()))
                    if (path / "memory.current").exists():
                        most_bytes = max(most_bytes, int((path / "memory.current").read_text()))
                    if (path / "memory.usage_in_bytes").exists():
                        most_bytes = max(most_bytes, int((path / "memory.usage_in_bytes").read_text()))
            await asyncio.sleep(0.002)
        outcome, reply = await job
        reply.close()
    finally:
        await zygote.stop()
    assert outcome.cause == cause, outcome
    assert most_processes <= jail.processes + 1
    assert most_bytes <= jail.memory_bytes + (256 << 20)
    assert not _jobs(found.folder)


async def test_two_zygotes_of_a_process_make_cgroups_of_their_own() -> None:
    found = cgroups.find()
    if not found.folder:
        pytest.skip(f"no cgroup with limits can be made here: {found.reason}")
    zygotes = [
        Zygote({"bomb": "tests.acceld.evaluate.hostile:bomb"}, level=Level.L4, cgroup_folder=found.folder)
        for _ in range(2)
    ]
    for zygote in zygotes:
        await zygote.start()
    try:
        ended = await asyncio.gather(*(zygote.run("bomb", b"", Jail(wall_s=300, processes=20)) for zygote in zygotes))
    finally:
        for zygote in zygotes:
            await zygote.stop()
    for outcome, reply in ended:
        reply.close()
        assert outcome.cause == "processes", outcome


@pytest.mark.parametrize(
    ("events", "ran_out"), [("low 0\noom 1\noom_kill 4\n", True), ("oom_kill 0\n", False), ("", False)]
)
def test_a_cgroup_tells_whether_the_kernel_ended_it_for_its_memory(tmp_path: Path, events: str, ran_out: bool) -> None:
    (tmp_path / "memory.events").write_text(events)
    assert cgroups.ran_out_of_memory(str(tmp_path)) is ran_out
    assert not cgroups.ran_out_of_memory(str(tmp_path / "nowhere"))


def _jobs(folder: str) -> list[Path]:
    return [path for parent in folder.split("\n") for path in Path(parent).glob(f"acceld-{os.getpid()}-*")]


def _inside(path: Path) -> list[str]:
    return (path / "cgroup.procs").read_text().split()


def test_an_empty_cgroup_that_a_killed_process_left_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    path = Path(cgroups.create(str(tmp_path), "job", memory_bytes=1 << 20, processes=7))
    assert (path / "pids.max").read_text() == "7"


def test_the_smallest_memory_limit_on_the_way_up_counts_in_either_version(tmp_path: Path) -> None:
    mounts, places = first_version(tmp_path)
    second = tmp_path / "unified" / "slice" / "pod"
    second.mkdir(parents=True)
    first = tmp_path / "memory" / "user"

    def looked() -> int | None:
        return cgroups.memory_limit(tmp_path / "unified", "/slice/pod", mounts, places)

    (first / "1" / "memory.limit_in_bytes").write_text(f"{2**63 - 4096}\n")
    (second / "memory.max").write_text("max\n")
    assert looked() is None
    (first / "memory.limit_in_bytes").write_text("3000\n")
    assert looked() == 3000
    (second.parent / "memory.max").write_text("2000\n")
    assert looked() == 2000


def test_no_more_evaluations_run_than_a_containers_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64))
    for allowed, slots in ((3 << 30, 3), (1 << 20, 1)):
        monkeypatch.setattr(cgroups, "memory_limit", lambda allowed=allowed: allowed)
        assert slots_of(EvaluateConfig(memory_gib=1.0)) == slots
