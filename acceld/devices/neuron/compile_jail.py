"""Run the compile worker in the sandbox: with AWS's interpreter, the kernel's text and an empty folder.

The jail shows the interpreter's folders and the system's libraries read-only. There is no device, no network
and no home folder in the jail. A small program in the jail starts the worker, gives it one record, and returns
its answer without reading it.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from acceld.devices.neuron.runtime.compiler import MAX_NEFF, SCRIPT, CompileJail, Exchange, unjailed
from acceld.devices.neuron.runtime.scripts import frames
from acceld.devices.neuron.runtime.worker import SCRIPTS, environment
from acceld.errors import DeadlineError, DeviceError
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.process import Zygote

TASKS = {"compile": "acceld.devices.neuron.compile_jail:run"}
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/aws", "/etc/ld.so.cache", "/etc/ld.so.conf.d")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
PROCESSES = 512
"""Limit on processes and threads of one compilation."""
OPEN_FILES = 4096
_OUTPUT_BYTES = 8000
_GRACE_S = 2.0
_ASK_S = 60.0
_PATHS = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.executable, *filter(None, sys.path)]))"


def run(request: bytes, reply: int) -> None:
    """Start the worker in the jail, send it the record, and write its answer to the file descriptor ``reply``.

    If the worker ends without an answer, the answer is a record with the end of the worker's error output under the key
    ``lost``.
    """
    raw = json.loads(request)
    try:
        done = subprocess.run(
            raw["command"],
            input=frames.pack(raw["record"]),
            capture_output=True,
            cwd=raw["folder"],
            env=raw["environment"],
            check=False,
        )
        answer, reported = done.stdout, done.stderr[-_OUTPUT_BYTES:].decode(errors="replace")
    except OSError as error:
        answer, reported = b"", str(error)
    if not answer:
        answer = frames.pack({"lost": reported or "it said nothing"})
    view = memoryview(frames.pack({"reported": reported}) + answer)
    while view:
        view = view[os.write(reply, view) :]


class JailedExchange:
    """Exchange records with compile workers in a jail; see :class:`acceld.devices.neuron.runtime.compiler.Exchange`."""

    def __init__(self, level: Level, cgroup_folder: str, *, memory_bytes: int) -> None:
        self._level = level
        self._zygote = Zygote(TASKS, level=level, cgroup_folder=cgroup_folder)
        self._memory_bytes = memory_bytes
        self._paths: dict[str, tuple[str, ...]] = {}

    async def start(self) -> None:
        """Start the zygote, the process that forks jailed children. Raise SandboxError if the zygote does not start."""
        await self._zygote.start()

    async def stop(self) -> None:
        """End the zygote, the process that forks jailed children."""
        await self._zygote.stop()

    def exchanges(self) -> dict[CompileJail, Exchange]:
        """Return the jails that this machine offers, the strictest first.

        Each jail comes with the function that starts a worker in it and exchanges records with the worker.
        """
        jails: dict[CompileJail, Exchange] = {}
        if self._level >= Level.L1:
            jails[CompileJail.STRICT] = partial(self._exchange, False)
        if self._level >= Level.L3:
            jails[CompileJail.WIDE] = partial(self._exchange, True)
        return {**jails, CompileJail.OFF: unjailed}

    async def _exchange(
        self,
        wide: bool,
        python: str,
        named: Mapping[str, str],
        record: Mapping[str, Any],
        *,
        folder: Path,
        deadline_s: float,
    ) -> tuple[dict[str, Any], bytes]:
        request = {
            "command": [python, "-u", str(SCRIPTS / SCRIPT)],
            "environment": environment(named, folder, python),
            "folder": str(folder),
            "record": dict(record),
        }
        jail = Jail(
            memory_bytes=self._memory_bytes,
            wall_s=deadline_s + _GRACE_S,
            cpu_s=int(deadline_s) * max(1, os.cpu_count() or 1) + 1,
            output_bytes=MAX_NEFF,
            processes=PROCESSES,
            open_files=OPEN_FILES,
            execute=True,
            wide=wide,
            read_paths=await self._readable(python),
            write_paths=(str(folder), *DEVICES),
        )
        await asyncio.to_thread(_open_to_the_jail, folder, self._level)
        outcome, reply = await self._zygote.run("compile", json.dumps(request).encode(), jail)
        with reply:
            if outcome.cause in ("deadline", "cpu"):
                raise DeadlineError(
                    f"the Neuron compiler did not answer within {deadline_s:g} s",
                    hint="a smaller kernel compiles sooner; [evaluate] build_s is the deadline",
                )
            answer = await asyncio.to_thread(reply.read, MAX_NEFF + 2 * frames.MAX_JSON)
        try:
            stream = io.BytesIO(answer)
            reported, got = frames.read(stream), frames.read(stream, MAX_NEFF)
        except frames.FrameError as error:
            raise DeviceError(
                f"the compiler's process {outcome.text}", hint="acceld doctor --neuron tries each step on this machine"
            ) from error
        if reported is None or got is None:
            raise DeviceError(
                f"the compiler's process {outcome.text}", hint="acceld doctor --neuron tries each step on this machine"
            )
        found, payload = got
        if "lost" in found:
            raise DeviceError(
                f"the compiler's process ended without an answer: {str(found['lost'])[-2000:].strip()}",
                hint="acceld doctor --neuron tries each step on this machine",
            )
        return {**found, "reported": str(reported[0].get("reported", ""))}, payload

    async def _readable(self, python: str) -> tuple[str, ...]:
        """Return the folders that a compile worker may read: those of its interpreter, of the system, and of acceld's
        scripts.

        Raise DeviceError if ``python`` is not a working interpreter.
        """
        if python not in self._paths:
            self._paths[python] = await asyncio.to_thread(_paths_of, python)
        return self._paths[python]


def _paths_of(python: str) -> tuple[str, ...]:
    command = (python, "-c", _PATHS)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=True, cwd="/")
        reported = [str(path) for path in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise DeviceError(
            f"{python} is not a working Python interpreter: {error}",
            hint="Set devices.compile_python to an interpreter that starts.",
        ) from error
    wanted = (*SYSTEM, *reported, str(Path(python).parent), str(SCRIPTS))
    there = {path for path in wanted if os.path.exists(path) and path != "/"}
    return tuple(sorted(path for path in there if not any(_below(path, other) for other in there)))


def _below(path: str, other: str) -> bool:
    """Tell whether ``path`` lies in the folder ``other``. A jail that shows ``other`` then also shows ``path``."""
    return Path(other) in Path(path).parents


def _open_to_the_jail(folder: Path, level: Level) -> None:
    """Set the folder's permissions so that jailed processes can use it. This is needed if the daemon is root, because
    jailed processes then have another user id.
    """
    if os.getuid() == 0:
        folder.chmod(0o777)
        if level <= Level.L2:
            folder.parent.chmod(0o711)
