"""The daemon's side of a zygote: results of jobs by the way they ended, and zygotes that misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from acceld.evaluate.sandbox import process
from acceld.evaluate.sandbox.jail import Jail
from acceld.evaluate.sandbox.process import LostError, Outcome, SandboxError, SilentError, lost_in
from acceld.evaluate.sandbox.reply import Reply

ENDED = {"exit": 0, "signal": None, "cause": "", "detail": "", "wall_s": 0.5, "cpu_s": 0.25, "peak_bytes": 4096}


@pytest.mark.parametrize(
    ("outcome", "text", "well", "killed"),
    [
        (Outcome(0, None, ""), "exited with status 0", True, False),
        (Outcome(3, None, ""), "exited with status 3", False, False),
        (Outcome(None, signal.SIGSEGV, ""), "died of SIGSEGV", False, False),
        (Outcome(None, 63, ""), "died of 63", False, False),
        (Outcome(None, signal.SIGKILL, ""), "died of SIGKILL", False, True),
        (Outcome(None, signal.SIGKILL, "deadline", 2.25), "ended at its deadline after 2.2 s", False, False),
        (Outcome(None, signal.SIGKILL, "memory"), "ended above its memory limit", False, False),
        (
            Outcome(None, signal.SIGKILL, "memory", allowed_bytes=200 << 20),
            "ended above its memory limit (the cgroup or container of acceld allows 200 MiB for all: raise that)",
            False,
            False,
        ),
        (Outcome(0, None, "processes"), "ended above its process limit", False, False),
        (Outcome(0, None, "finished"), "finished", False, False),
    ],
)
def test_an_outcome_says_how_a_job_ended(outcome: Outcome, text: str, well: bool, killed: bool) -> None:
    assert (outcome.text, outcome.ended_well, outcome.killed) == (text, well, killed)


def test_a_loss_is_found_in_nested_groups() -> None:
    lost = SilentError("gone")
    assert lost_in(ExceptionGroup("a", [ExceptionGroup("b", [lost])])) is lost
    assert lost_in(SandboxError("broken")) is None
    assert lost_in(ExceptionGroup("a", [ValueError()])) is None


def test_a_reply_is_read_in_parts_and_closed_once() -> None:
    with Reply(os.memfd_create("reply")) as reply:
        os.write(reply.descriptor, b"0123456789")
        assert (reply.size, reply.read(4), reply.read(4, 8)) == (10, b"0123", b"89")
    assert reply.descriptor == -1
    reply.close()


async def _status(*lines: str, wall_s: float = 30.0) -> Outcome:
    """Return the status that follows from the lines of a supervisor that then closes its pipe."""
    read, write = os.pipe()
    control_read, control_write = os.pipe()
    try:
        os.write(write, "".join(f"{line}\n" for line in lines).encode())
        os.close(write)
        return await process._await_status(read, control_write, Jail(wall_s=wall_s))
    finally:
        for descriptor in (read, control_read, control_write):
            os.close(descriptor)


async def test_the_supervisors_last_line_is_the_outcome() -> None:
    found = await _status('{"pid": 1}', json.dumps(ENDED))
    assert found == Outcome(0, None, "", 0.5, 0.25, 4096)


@pytest.mark.parametrize("lines", [(), ('{"pid": 1}',)])
async def test_a_supervisor_that_says_too_little_is_lost(lines: tuple[str, ...]) -> None:
    with pytest.raises(LostError, match="supervisor of a job was lost"):
        await _status(*lines)


@pytest.mark.parametrize(
    ("detail", "error", "words"),
    [
        ("", LostError, "ended before its jail was complete"),
        ("unshare: Operation not permitted", SandboxError, "could not be jailed: unshare"),
    ],
)
async def test_a_jail_that_could_not_be_entered_is_never_an_outcome(
    detail: str, error: type[SandboxError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        await _status('{"pid": 1}', json.dumps(ENDED | {"cause": "harness", "detail": detail}))
    assert type(caught.value) is error


async def test_a_zygote_that_takes_no_job_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_START_S", 0.05)
    read, write = os.pipe()
    try:
        with pytest.raises(SilentError):
            await process._await_status(read, write, Jail())
    finally:
        os.close(read)
        os.close(write)


async def test_a_supervisor_that_misses_its_deadline_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_KILL_S", 0.0)
    supervisor = await asyncio.create_subprocess_exec("sleep", "60")
    read, write = os.pipe()
    try:
        os.write(write, json.dumps({"pid": supervisor.pid}).encode() + b"\n")
        found = await process._await_status(read, write, Jail(wall_s=0.05))
        assert (found.cause, found.signal) == ("deadline", signal.SIGKILL)
        assert await supervisor.wait() == -signal.SIGKILL
    finally:
        os.close(read)
        os.close(write)
