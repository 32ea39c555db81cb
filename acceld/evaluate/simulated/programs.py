"""Get a kernel's Program without a daemon: the jail traces the kernel, and this process decodes the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from acceld.config import EvaluateConfig
from acceld.errors import DeadlineError
from acceld.evaluate.case import Failed
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.sandbox.process import Zygote
from acceld.evaluate.simulated.children import PROGRAM_BYTES, TASKS, Children
from acceld.model import Failure, Kernel, Status
from acceld.nki.errors import KernelFailure, LegalityError, UnsupportedCall
from acceld.nki.ir.codec import decode
from acceld.nki.ir.program import Program
from acceld.nki.port.facts import Facts
from acceld.workloads import Arguments


class Tracer:
    """Trace kernels that belong to the user, each in a jail."""

    def __init__(self, children: Children) -> None:
        self._children = children

    async def program(self, kernel: Kernel, arguments: Arguments, chip: str) -> Program:
        """Return a kernel's Program.

        Raise KernelFailure if the kernel can not be traced, DeadlineError if tracing takes too long.
        """
        return decode(await self._answer(kernel, arguments, chip))

    async def facts(self, kernel: Kernel, arguments: Arguments, chip: str) -> Facts:
        """Return facts about the expressions of a kernel of the legacy API. Raises the errors of
        :meth:`program`.
        """
        answer = await self._answer(kernel, arguments, chip, observe=True)
        try:
            return Facts.decode(json.loads(answer))
        # The answer comes from a process that runs a kernel, so it may have any form.
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise LegalityError("the kernel's process gave no answer that can be read", rule="crash") from error

    async def _answer(self, kernel: Kernel, arguments: Arguments, chip: str, *, observe: bool = False) -> bytes:
        """Return the bytes that the tracer answered. Raises the errors of :meth:`program`."""
        traced = await self._children.trace(kernel, arguments, chip, observe=observe)
        if isinstance(traced, Failed):
            raise failure_error(traced.status, traced.failure)
        try:
            return traced.reply.read(PROGRAM_BYTES, traced.offset)
        finally:
            traced.close()


@asynccontextmanager
async def tracing(config: EvaluateConfig, state_folder: Path) -> AsyncIterator[Tracer]:
    """Start a tracer, yield it to the block, and end its child processes after the block."""
    zygote = Zygote(TASKS, level=Level.L0)
    try:
        report = await probe_level(zygote=zygote)
        children = Children(config, state_folder, report.level, report.cgroup_folder, zygote=zygote)
        await children.start()
        yield Tracer(children)
    finally:
        await zygote.stop()


async def traced_program(
    kernel: Kernel, arguments: Arguments, chip: str, config: EvaluateConfig, state_folder: Path
) -> Program:
    """Return the Program of one kernel, with a tracer of its own. Raises the errors of :meth:`Tracer.program`."""
    async with tracing(config, state_folder) as tracer:
        return await tracer.program(kernel, arguments, chip)


def failure_error(status: Status, failure: Failure) -> KernelFailure | DeadlineError:
    """Return the exception that tells the user of a failure: DeadlineError if the status is a timeout, else
    KernelFailure.
    """
    if status is Status.TIMEOUT:
        return DeadlineError(failure.message, hint=failure.hint)
    if status is Status.UNSUPPORTED:
        return UnsupportedCall(failure.message, line=failure.line, hint=failure.hint)
    return LegalityError(failure.message, rule=failure.rule, line=failure.line, hint=failure.hint)
