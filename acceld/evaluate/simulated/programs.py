"""One kernel's Program for a person: traced in the jail, decoded here, without a daemon."""

from __future__ import annotations

from pathlib import Path

from acceld.config import EvaluateConfig
from acceld.errors import DeadlineError
from acceld.evaluate.case import Failed
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.simulated.children import PROGRAM_BYTES, Children
from acceld.model import Failure, Kernel, Status
from acceld.nki.errors import KernelFailure, LegalityError, UnsupportedCall
from acceld.nki.ir.codec import decode
from acceld.nki.ir.program import Program
from acceld.workloads import ArraySpec


async def traced_program(
    kernel: Kernel,
    arguments: tuple[ArraySpec | float | int | bool, ...],
    chip: str,
    config: EvaluateConfig,
    state_folder: Path,
) -> Program:
    """The decoded Program. KernelFailure where the kernel can not be traced, DeadlineError where it takes too long."""
    report = await probe_level()
    children = Children(config, state_folder / "datasets", report.level, report.cgroup_folder)
    await children.start()
    try:
        traced = await children.trace(kernel, arguments, chip)
        if isinstance(traced, Failed):
            raise failure_error(traced.status, traced.failure)
        try:
            return decode(traced.reply.read(PROGRAM_BYTES, traced.offset))
        finally:
            traced.close()
    finally:
        await children.stop()


def failure_error(status: Status, failure: Failure) -> KernelFailure | DeadlineError:
    """The exception that tells a person of a failure."""
    if status is Status.TIMEOUT:
        return DeadlineError(failure.message, hint=failure.hint)
    if status is Status.UNSUPPORTED:
        return UnsupportedCall(failure.message, line=failure.line, hint=failure.hint)
    return LegalityError(failure.message, rule=failure.rule, line=failure.line, hint=failure.hint)
