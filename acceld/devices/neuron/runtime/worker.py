"""Run one of the programs in ``scripts`` as a child process: start it, exchange records within a deadline, end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from acceld.devices.neuron.runtime.scripts import frames
from acceld.errors import DeadlineError, DeviceError

SCRIPTS = Path(__file__).parent / "scripts"
Wrap = Callable[[Sequence[str]], Sequence[str]]
"""A function that puts the launcher of a jail before a command."""
_OUTPUT_BYTES = 8000
_POLL_S = 0.005


def environment(named: Mapping[str, str], folder: Path, python: str) -> dict[str, str]:
    """Return the whole environment of a child. Nothing comes from the daemon's environment; home and temporary files
    are in ``folder``.
    """
    search = (str(Path(python).parent), "/opt/aws/neuron/bin", "/usr/local/bin", "/usr/bin", "/bin")
    return {
        "PATH": os.pathsep.join(search),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NEURON_COMPILE_CACHE_URL": str(folder / "compile-cache"),
        "LD_LIBRARY_PATH": "/opt/aws/neuron/lib",
        **named,
    }


class Worker:
    """A running script. A worker takes one request at a time. After a failed exchange its process is ended."""

    def __init__(self, process: asyncio.subprocess.Process, what: str) -> None:
        self._process = process
        self._what = what
        self._output = bytearray()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls, python: str, script: str, *, folder: Path, named: Mapping[str, str], wrap: Wrap | None = None
    ) -> Worker:
        """Return a worker that runs ``script`` under ``python``. Raise DeviceError if the interpreter can not be
        started.
        """
        command: Sequence[str] = (python, "-u", str(SCRIPTS / script))
        try:
            process = await asyncio.create_subprocess_exec(
                *(wrap(command) if wrap else command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env={**environment(named, folder, python), "ACCELD_PARENT": "0" if wrap else str(os.getpid())},
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(
                f"{python} can not be started: {error}",
                hint="Set devices.compile_python to an interpreter that starts.",
            ) from error
        return cls(process, script)

    @property
    def pid(self) -> int:
        """Return the process id of the worker, which is also the id of its process group."""
        return self._process.pid

    @property
    def output(self) -> str:
        """Return the end of what the process printed on stderr."""
        return self._output.decode(errors="replace")

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while part := await self._process.stderr.read(65536):
            self._output += part
            del self._output[:-_OUTPUT_BYTES]

    async def ask(
        self, record: Mapping[str, Any], data: bytes = b"", *, deadline_s: float, max_bytes: int = frames.MAX_BYTES
    ) -> tuple[dict[str, Any], bytes]:
        """Send one record, and return the answer: a record and its bytes.

        Raise DeadlineError if no answer comes within ``deadline_s``, and DeviceError if the process ends or its
        answer is not a record. In these cases, and if the caller is cancelled, the process is ended first.
        """
        try:
            async with asyncio.timeout(deadline_s):
                return await self._exchange(frames.pack(dict(record), data), max_bytes)
        except TimeoutError:
            await self.kill()
            raise DeadlineError(
                f"{self._what} did not answer {record.get('op')!r} within {deadline_s:g} s",
                hint="acceld doctor --neuron tries each step on this machine",
            ) from None
        except (frames.FrameError, ConnectionError, asyncio.IncompleteReadError) as error:
            await self.kill()
            output = self.output.strip()[-2000:] or "it said nothing"
            raise DeviceError(
                f"{self._what} was lost at {record.get('op')!r}: {error}; {output}",
                hint="acceld doctor --neuron tries each step on this machine",
            ) from error
        except asyncio.CancelledError:
            await self.kill()
            raise

    async def _exchange(self, message: bytes, max_bytes: int) -> tuple[dict[str, Any], bytes]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(message)
        await stdin.drain()
        text, data = frames.head(await stdout.readexactly(frames.HEAD.size), max_bytes)
        return frames.body(await stdout.readexactly(text)), await stdout.readexactly(data)

    async def close(self, grace_s: float = 5.0) -> bool:
        """Ask the process to end, and wait for at most ``grace_s`` seconds. Then end its whole process group.

        Return True if the process ended by itself with exit code 0.
        """
        try:
            async with asyncio.timeout(grace_s):
                if self._process.stdin is not None and self._process.returncode is None:
                    with contextlib.suppress(ConnectionError):
                        self._process.stdin.write(frames.pack({"op": "close"}))
                        await self._process.stdin.drain()
                        self._process.stdin.close()
                clean = await self._exit() == 0
        except TimeoutError:
            clean = False
        await self.kill()
        return clean

    async def kill(self) -> None:
        """End the whole process group, wait for its leader, and close the pipes. If the group has already ended,
        nothing happens.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._exit()
        # A process that the kernel started may hold the pipes open from another session, so our end is closed.
        self._process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way
        await self._listener

    async def _exit(self) -> int:
        """Wait for the leader of the process group, and return its exit code.

        ``Process.wait`` would also wait for every other process that has the pipes open.
        """
        while self._process.returncode is None:  # noqa: ASYNC110  asyncio has no event for this
            await asyncio.sleep(_POLL_S)
        return self._process.returncode
