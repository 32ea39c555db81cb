"""Jailed children: their answers, their ends, and that they leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acceld.evaluate.sandbox import process
from acceld.evaluate.sandbox.jail import SLOT_UID, SLOTS, Jail, Level
from acceld.evaluate.sandbox.process import TRIES, SandboxError, Zygote
from acceld.evaluate.sandbox.process_tree import descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


async def test_a_child_answers_with_what_it_was_given(zygote: Zygote) -> None:
    outcome, reply = await zygote.run("echo", b"hello", Jail())
    with reply:
        assert outcome.ended_well
        assert reply.read(100) == b"hello"


async def test_a_child_imports_from_the_folders_of_pythonpath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("import os\ndef task(request, reply):\n    os.write(reply, b'imported')\n")
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}{tmp_path}")
    zygote = Zygote({"task": "only_here:task"}, level=Level.L1)
    try:
        outcome, reply = await zygote.run("task", b"", Jail())
        with reply:
            assert outcome.ended_well and reply.read(100) == b"imported"
    finally:
        await zygote.stop()


async def test_many_jobs_at_once_do_not_mix(zygote: Zygote) -> None:
    texts = [f"job {number}".encode() * 1000 for number in range(6)]
    results = await asyncio.gather(*(zygote.run("echo", text, Jail()) for text in texts))
    for (outcome, reply), text in zip(results, texts, strict=True):
        with reply:
            assert outcome.ended_well
            assert reply.read(1 << 20) == text


@pytest.mark.parametrize("zygote", [Level.L1], indirect=True, ids=["L1"])
async def test_children_draw_different_numbers(zygote: Zygote) -> None:
    drawn = []
    for _ in range(2):
        outcome, reply = await zygote.run("draw", b"", Jail(), modules=["numpy.random"])
        with reply:
            assert outcome.ended_well
            drawn.append(reply.read(100))
    assert drawn[0] != drawn[1], "what seems to depend on no numbers may depend on those of its process"


@pytest.mark.parametrize(
    ("task", "jail", "words"),
    [
        ("crash", Jail(), "died of SIGSEGV"),
        ("hang", Jail(wall_s=0.3), "ended at its deadline"),
        ("bomb", Jail(wall_s=300, processes=30), "limit|deadline|status"),
        ("allocate_in_children", Jail(wall_s=300, memory_bytes=200 << 20, processes=8), "memory limit"),
        ("flood", Jail(output_bytes=1 << 20), "exited with status 7"),
    ],
)
async def test_misbehaviour_is_a_value(zygote: Zygote, task: str, jail: Jail, words: str) -> None:
    outcome, reply = await zygote.run(task, b"", jail)
    with reply:
        assert not outcome.ended_well
        assert any(word in outcome.text for word in words.split("|")), outcome
        assert reply.size <= jail.output_bytes
    await _until(lambda: not _jobs_of(zygote))


@pytest.mark.parametrize("zygote", [Level.L1], indirect=True, ids=["L1"])
async def test_processor_time_has_a_limit_which_every_level_sets(zygote: Zygote) -> None:
    outcome, reply = await zygote.run("spin", b"", Jail(wall_s=300, cpu_s=1))
    with reply:
        assert not outcome.ended_well and "processor time limit" in outcome.text, outcome
    await _until(lambda: not _jobs_of(zygote))


async def test_leaving_at_once_ends_well_and_says_nothing(zygote: Zygote) -> None:
    outcome, reply = await zygote.run("leave_at_once", b"", Jail())
    with reply:
        assert outcome.ended_well
        assert reply.size == 0


async def test_memory_beyond_the_limit_is_refused_to_one_process(zygote: Zygote) -> None:
    outcome, reply = await zygote.run("allocate", b"", Jail(memory_bytes=128 << 20))
    with reply:
        assert outcome.ended_well
        taken = int(reply.read(100).split()[2])
    assert taken <= 128


async def test_a_child_of_one_process_can_not_fork(zygote: Zygote) -> None:
    outcome, reply = await zygote.run("escape", b"", Jail())
    with reply:
        assert reply.read(100) == b""
    assert outcome.exit == 1


async def test_detached_descendants_end_with_their_job(zygote: Zygote) -> None:
    job = asyncio.create_task(zygote.run("escape", b"linger", Jail(wall_s=600, processes=30)))
    tree = await _tree_of(zygote)
    outcome, reply = await job
    with reply:
        assert reply.read(100) == b"escaped"
    assert outcome.ended_well
    await _until(lambda: not any(map(_alive, tree)))


async def test_detached_descendants_end_at_the_deadline(zygote: Zygote) -> None:
    job = asyncio.create_task(zygote.run("escape", b"stay", Jail(wall_s=4, processes=30)))
    tree = await _tree_of(zygote)
    outcome, reply = await job
    reply.close()
    assert outcome.cause == "deadline"
    await _until(lambda: not any(map(_alive, tree)))


async def test_where_memory_runs_out_the_system_ends_children_first(zygote: Zygote) -> None:
    """Its killer would otherwise take the daemon, the largest process of a small container."""
    job = asyncio.create_task(zygote.run("hang", b"", Jail(wall_s=600)))
    await _until(lambda: sorted(map(_readiness, _jobs_of(zygote))) == [0, 1000])
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job


async def test_cancelling_ends_the_tree(zygote: Zygote) -> None:
    job = asyncio.create_task(zygote.run("escape", b"stay", Jail(wall_s=600, processes=30)))
    tree = await _tree_of(zygote)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    await _until(lambda: not any(map(_alive, tree)))


async def test_cancelling_a_job_whose_supervisor_has_just_ended_is_only_a_cancellation() -> None:
    read, status = os.pipe()
    other_end, control = os.pipe()
    os.write(status, b'{"pid": 4194305}\n')
    waiting = asyncio.create_task(process._await_status(read, control, Jail()))
    await asyncio.sleep(0)  # the call waits for the second line
    os.close(other_end)
    os.close(status)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.close(read)
    os.close(control)


async def test_a_child_has_four_descriptors_and_no_environment_of_ours(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELD_TEST_SECRET", "hidden")
    _, reply = await zygote.run("descriptors", b"", Jail())
    with reply:
        assert reply.read(1000) == b"[0, 1, 2, 3]"
    _, reply = await zygote.run("environment", b"", Jail())
    with reply:
        assert b"ACCELD_TEST_SECRET" not in reply.read(100_000)


async def test_a_lost_zygote_is_replaced(zygote: Zygote) -> None:
    assert zygote.pid is not None
    os.kill(zygote.pid, signal.SIGKILL)
    await _until(lambda: zygote.pid is None)
    outcome, reply = await zygote.run("echo", b"again", Jail())
    with reply:
        assert outcome.ended_well
        assert reply.read(100) == b"again"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_job_whose_supervisor_is_lost_is_done_again(zygote: Zygote, number: signal.Signals) -> None:
    job = asyncio.create_task(zygote.run("hang", b"", Jail(wall_s=1.5)))
    await _until(lambda: len(_jobs_of(zygote)) >= 2)
    first = set(_jobs_of(zygote))
    supervisor = next(pid for pid in first if set(descendants(pid)) & first)
    os.kill(supervisor, number)
    outcome, reply = await job
    reply.close()
    assert outcome.cause == "deadline"
    await _until(lambda: not _jobs_of(zygote))


async def test_a_job_that_something_kills_each_time_dies_of_it(
    zygote: Zygote, caplog: pytest.LogCaptureFixture
) -> None:
    outcome, reply = await zygote.run("kill_itself", b"", Jail())
    reply.close()
    if zygote.level >= Level.L3:
        assert outcome.ended_well  # the first process of a namespace can not kill itself
        return
    assert outcome.killed and "SIGKILL" in outcome.text
    assert sum("is done again" in one.message for one in caplog.records) == TRIES - 1


async def test_stopping_a_zygote_ends_its_process() -> None:
    zygote = Zygote({}, level=Level.L1)
    await zygote.start()
    ended = zygote.pid
    assert ended is not None and _alive(ended)
    await zygote.stop()
    assert zygote.pid is None and not _alive(ended)


async def test_a_zygote_that_is_stopped_is_replaced(zygote: Zygote) -> None:
    assert zygote.pid is not None
    stopped = zygote.pid
    os.kill(stopped, signal.SIGSTOP)
    start = zygote._start
    with pytest.MonkeyPatch.context() as patch:

        async def patiently() -> None:
            patch.undo()
            await start()

        patch.setattr(process, "_START_S", 0.5)
        patch.setattr(zygote, "_start", patiently)
        outcome, reply = await zygote.run("echo", b"again", Jail())
    with reply:
        assert outcome.ended_well and reply.read(10) == b"again"
    assert zygote.pid != stopped


async def test_a_module_that_does_not_exist_is_an_error_of_ours() -> None:
    broken = Zygote({"x": "acceld.no_such_module:run", "read": "os:read"}, level=Level.L1)
    try:
        with pytest.raises(SandboxError, match="no_such_module"):
            await broken.run("x", b"", Jail())
        with pytest.raises(SandboxError, match="nor_this_one"):
            await broken.run("read", b"", Jail(), modules=["json", "nor_this_one"])
    finally:
        await broken.stop()


_DAEMON = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from acceld.evaluate.sandbox import process
from acceld.evaluate.sandbox.jail import SLOT_UID, SLOTS, Jail, Level
os.environ["PYTHONPATH"] = sys.argv[2]
async def main():
    zygote = process.Zygote({"escape": "hostile:escape"}, level=Level[sys.argv[3]])
    await zygote.start()
    print(zygote.pid, flush=True)
    await zygote.run("escape", b"stay", Jail(wall_s=600, processes=30))
asyncio.run(main())
"""


@pytest.mark.parametrize("level", ["L3", "L2"])
def test_nothing_outlives_a_killed_daemon(level: str) -> None:
    here = Path(__file__)
    command = [sys.executable, "-c", _DAEMON, str(here.parents[3]), str(here.parent), level]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        zygote = int(daemon.stdout.readline())
        deadline = time.monotonic() + 300
        while len(descendants(zygote)) < 6 and time.monotonic() < deadline:
            time.sleep(0.02)
        pids = (zygote, *descendants(zygote))
        assert len(pids) >= 7
        daemon.kill()
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and any(_alive(pid) for pid in pids):
        time.sleep(0.02)
    assert [pid for pid in pids if _alive(pid)] == []


def test_a_jail_survives_json() -> None:
    jail = Jail(memory_bytes=7, read_paths=("/a", "/b"))
    assert Jail.from_plain(json.loads(json.dumps(jail.plain()))) == jail


async def _tree_of(zygote: Zygote) -> tuple[int, ...]:
    """Return the supervisor, the child and its five escaped descendants by number, because orphans are in no tree."""
    await _until(lambda: len(_jobs_of(zygote)) >= 7)
    return _jobs_of(zygote)


def _jobs_of(zygote: Zygote) -> tuple[int, ...]:
    """Return living processes below the zygote."""
    assert zygote.pid is not None
    return tuple(pid for pid in descendants(zygote.pid) if _alive(pid))


def _readiness(pid: int) -> int:
    """Return how ready the system is to end a process where memory runs out: -1000 for never, 1000 for first."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "rb") as file:
        return int(file.read())
    return -1


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    return False


async def _until(condition) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110  # what the kernel does sets no event
            await asyncio.sleep(0.02)


def test_jobs_of_all_zygotes_have_slots_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = set[int]()
    monkeypatch.setattr(process, "_SLOTS_TAKEN", taken)
    for _ in range(SLOTS):
        taken.add(process._free_slot())
    assert taken == set(range(SLOTS))
    assert process._free_slot() in taken  # more jobs than slots: shared, not refused
    assert SLOT_UID + SLOTS < 65_534
