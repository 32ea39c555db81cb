"""Inspect an untrusted Program with trusted code, in the judge's child process. The program does not run.

The bounded decoder decodes the program. Then target, launch and interface are compared with the request, every
rule of the chip is verified, and the program is timed.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acceld.errors import RuleRefused
from acceld.evaluate.sandbox.messages import clean, defect_record, failure_record, limit_record, send, unpack
from acceld.evaluate.simulated import simulator
from acceld.evaluate.simulated.claims import false_claim
from acceld.nki.errors import KernelFailure, MissingRule, ProgramError
from acceld.nki.ir.codec import decode, program_hash
from acceld.nki.ir.operations import RANDOM
from acceld.nki.ir.program import Program
from acceld.nki.verify import doubts, output_coverage
from acceld.statuses import Status

_NOTICES = 50


def inspect(request: bytes, reply: int) -> None:
    """Answer a request with the program's hash and profile. If the program is refused, answer with a failure and its
    status.
    """
    # collecting garbage would free none of the millions of objects, which are in use until the process ends
    gc.disable()
    header, payload = unpack(request)
    seconds: dict[str, float] = {}
    try:
        started = time.monotonic()
        program = _readable(decode(payload))
        digest = program_hash(program)
        _check_target(program, header)
        claim = false_claim(program)
        if claim is not None:
            raise _Refused(Status.REJECTED, claim.rule, claim.message, line=claim.line)
        simulator.verify(program, strict=header["strict_legality"])
        seconds["verify"] = time.monotonic() - started
        started = time.monotonic()
        _check_outputs(program, header)
        _check_inputs(program, header)
        _check_precision(program, header)
        _check_random(program, header)
        profile = simulator.profile(program, exact=header.get("exact", False), calibration=header.get("calibration"))
        found = doubts.doubts(program, header["nki"])
        noted = [f"line {one.line}: {one.text}" if one.line else one.text for one in found]
        profile["warnings"] = [*noted, *profile["warnings"]]
        if header["outputs"] is None:  # the program is only timed: no run on data would find unwritten outputs
            profile["warnings"] = [*profile["warnings"], *map(str, output_coverage.gaps(program))]
        if "written_out" in header:
            profile |= _written_out(program, *header["written_out"])
        seconds["timeline"] = time.monotonic() - started
    except _Refused as error:
        send(reply, {**error.record, "status": error.status.value})
    except ProgramError as error:
        send(reply, {**limit_record("forged_program", error.message), "status": Status.REJECTED.value})
    except KernelFailure as error:
        send(reply, failure_record(error))
    except MissingRule as error:
        send(reply, {**limit_record("unsupported", error.message), "status": Status.UNSUPPORTED.value})
    except MemoryError:
        send(reply, limit_record("memory", "verifying the program takes more memory than an evaluation may use"))
    # a forged program may trigger a defect in our code, which counts as its failure
    except Exception as error:  # noqa: BLE001  # a defect of ours counts as the program's failure
        send(reply, {**defect_record(error, "verifying"), "status": Status.COMPILE_ERROR.value})
    else:
        send(reply, {"program_sha256": digest, "profile": profile, "seconds": seconds})


def _written_out(program: Program, source: str, values: Sequence[float | None]) -> dict[str, str]:
    """Return the source that does what the program does, as ``written_out``, or ``not_written_out``: the reason why the
    program has no plain source.
    """
    from acceld.nki.source.written_out import written_out

    try:
        return {"written_out": written_out(program, source, values)}
    except RuleRefused as refusal:
        return {"not_written_out": refusal.message}


def _readable(program: Program) -> Program:
    """Return the program with control characters and the like removed from its notices, which people will read."""
    notices = tuple(replace(notice, text=clean(notice.text, 500)) for notice in program.notices[:_NOTICES])
    return replace(program, notices=notices)


class _Refused(Exception):
    """Raised to end the inspection of a program that does not match the request."""

    def __init__(self, status: Status, rule: str, message: str, hint: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.record = limit_record(rule, message, hint, line)


def _check_target(program: Program, header: dict[str, Any]) -> None:
    """Raise _Refused if the program's target or launch is not the requested one, or its inputs differ from the
    request's.
    """
    claimed = (program.api, program.chip, list(program.grid), program.lnc)
    asked = (header["api"], header["chip"], header["grid"], header["lnc"])
    if claimed != asked:
        raise _Refused(Status.REJECTED, "forged_program", f"the program is for {claimed}, not for {asked}")
    inputs = [[list(program.buffers[i].outer_shape), program.buffers[i].dtype] for i in program.inputs]
    if inputs != header["inputs"]:
        raise _Refused(Status.REJECTED, "forged_program", "the program's inputs are not the workload's arguments")


def _check_outputs(program: Program, header: dict[str, Any]) -> None:
    """Raise _Refused if the program's results differ from the workload's outputs in number, size or dtype."""
    wanted = header["outputs"]
    if wanted is None:
        return
    if len(program.outputs) != len(wanted):
        message = f"the kernel returns {len(program.outputs)} tensors, but the workload has {len(wanted)} outputs"
        hint = f"return {', '.join(one['name'] for one in wanted)}"
        raise _Refused(Status.INCORRECT_SHAPE, "output_count", message, hint)
    for number, want in zip(program.outputs, wanted, strict=True):
        buffer = program.buffers[number]
        if buffer.shape not in (tuple(want["kernel_shape"]), tuple(want["shape"])):
            message = (
                f"the kernel's output {want['name']} has shape {buffer.shape}; the workload's reference expects "
                f"{tuple(want['kernel_shape'])}"
            )
            if buffer.elements != math.prod(want["shape"]):
                hint = "declare the output with that shape"
                raise _Refused(Status.INCORRECT_SHAPE, "output_shape", message, hint, buffer.line)
        if buffer.dtype != want["dtype"]:
            message = f"the kernel's output {want['name']} is {buffer.dtype}; the workload expects {want['dtype']}"
            hint = (
                f"declare the kernel's output as {want['dtype']}; or let the reference return {buffer.dtype}, and write that "
                f"dtype to [outputs.{want['name']}] in workload.toml, if there is one"
            )
            raise _Refused(Status.INCORRECT_DTYPE, "output_dtype", message, hint, buffer.line)


def _check_inputs(program: Program, header: dict[str, Any]) -> None:
    """Raise _Refused if the program writes an argument that is not among the workload's ``mutates``.

    Such a program would change its caller's data.
    """
    if header["outputs"] is None:
        return
    written = {number for number in program.inputs if program.buffers[number].written_input}
    written -= {program.inputs[position] for position in header["mutates"]}
    for instruction, _ in program.walk() if written else ():
        for dst in instruction.dsts:
            if dst.buffer in written:
                name = program.buffers[dst.buffer].name or str(dst.buffer)
                raise _Refused(
                    Status.REJECTED,
                    "input_written",
                    f"the kernel writes its argument {name}, which the workload does not let a kernel change",
                    "write to a new tensor in nl.shared_hbm and return that tensor, or name the argument in mutates of workload.toml",
                    instruction.line,
                )


def _check_random(program: Program, header: dict[str, Any]) -> None:
    """Raise _Refused if the program draws random numbers: a reference's outputs follow from its inputs alone."""
    if header["outputs"] is None:
        return
    for instruction, _ in program.walk():
        if instruction.op in RANDOM:
            message = f"{instruction.op} draws random numbers, but the workload's outputs follow from its inputs alone"
            raise _Refused(Status.REJECTED, "random", message, line=instruction.line)


def _check_precision(program: Program, header: dict[str, Any]) -> None:
    """Raise _Refused if a matrix product has operands narrower than float32, although the workload demands
    float32.
    """
    if header["precision"] != "fp32_strict":
        return
    for instruction, _ in program.walk():
        if instruction.op not in ("matmul", "matmul_mx") or instruction.attr("transpose"):
            continue
        for operand in instruction.accesses[:2]:
            dtype = operand.dtype or program.buffers[operand.buffer].dtype
            if dtype not in ("float32",):
                raise _Refused(
                    Status.REJECTED,
                    "precision",
                    f"the workload demands float32 products, and this product takes {dtype}",
                    "use float32 operands",
                    instruction.line,
                )
