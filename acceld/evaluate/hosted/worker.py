"""Run a kernel on data in a jailed worker process, whose answers are not trusted.

The worker sees the inputs of one call at a time, and runs only while its referee's clock runs: between calls it is
stopped. A false answer makes no call seem faster, because the clock ends only after the worker has been stopped again.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import mmap
import os
import platform
import struct
from collections.abc import Callable, Sequence
from typing import Any

from acceld.evaluate.hosted.arena import Layout, close_pages
from acceld.evaluate.hosted.driver import BuildRefused, Call
from acceld.evaluate.sandbox.messages import MAX_MESSAGE, send

ARENA, DOORBELL, DONE = 5, 6, 7
"""Descriptors in the worker: of the shared memory, of the pipe on which the worker waits, of the pipe on which the
worker answers.
"""
ANSWER = struct.Struct("<qd")
"""Layout of the record that the worker writes when it is ready (number -1) and after each call: the call's number, and
the time by the worker's own clock, or NaN.
"""
_NONE = float("nan")
_M_PERTURB = -6
"""Parameter of mallopt(3): the complement of the byte that fills allocated memory."""
_EXCEPTIONS = 0x1F if platform.machine() not in ("x86_64", "AMD64") else 0x3F
"""All exception flags of the processor's arithmetic, as they lie in the bytes :data:`_FLAGS` of C's fenv_t."""
_FLAGS = (4,) if platform.machine() not in ("x86_64", "AMD64") else (4, 28)
"""Offsets in C's fenv_t of the bytes with exception flags: FPSR on aarch64, the x87 status and MXCSR on x86_64."""
_STATE_BYTES = 64
"""Bytes for C's fenv_t, which has 32 bytes on x86_64 and 8 on aarch64."""


def build(request: bytes, reply: int) -> None:
    """Build a kernel without data. The answer is ``{"log", "counters"}`` followed by the built bytes, or a failure."""
    raw = json.loads(request)
    try:
        built = function(raw["builder"])(raw["job"])
    except BuildRefused as error:
        send(reply, _failure(error.rule, error.message, error.line, error.hint))
    except BaseException as error:  # noqa: BLE001  # evaluated code that a builder runs may raise anything
        send(reply, _failure("exception", f"{type(error).__name__}: {error}"))
    else:
        send(reply, {"log": built.log[:MAX_MESSAGE], "counters": dict(built.counters)}, built.artefact)


def serve(request: bytes, reply: int) -> None:
    """Prepare the kernel and answer that it is ready. Then run it once for each number that the doorbell pipe
    delivers.
    """
    raw = json.loads(request)
    layout = Layout.from_plain(raw["layout"])
    memory = mmap.mmap(ARENA, layout.size_bytes)
    placed = [arguments(raw["job"], layout.at(number), memory, raw["mutates"]) for number in range(2)]
    try:
        call: Call = function(raw["worker"])({**raw["job"], "checked": bool(layout.closed)}, raw["artefact"])
        if layout.closed:
            close_pages(layout, memory)
            fill_allocations()
        checked = left_as_found(call) if layout.closed or raw["job"]["api"] == "c" else call
        stir = exception_flags() if raw["job"]["api"] == "c" else None
        if stir is not None:
            stir()
        os.write(DONE, ANSWER.pack(-1, _NONE))
        while ring := os.read(DOORBELL, 8):
            number = int.from_bytes(ring, "little")
            # the check takes a microsecond, so most timed calls are made without the check
            run = checked if layout.closed or number == 1 else call
            claimed = run(*placed[(number - 1) % 2])
            os.write(DONE, ANSWER.pack(number, _NONE if claimed is None else claimed))
            if stir is not None:
                stir()
    except BuildRefused as error:
        send(reply, _failure(error.rule, error.message, error.line, error.hint))
    except BaseException as error:  # noqa: BLE001  # a kernel may raise anything, SystemExit too
        rule = getattr(error, "rule", "")
        text = str(error) if rule else f"{type(error).__name__}: {error}"
        send(reply, _failure(str(rule) or "exception", text, _line_in(error, str(raw["job"]["filename"]))))


def arguments(job: Any, layout: Layout, memory: Any, mutates: Sequence[int] = ()) -> tuple[list[Any], list[Any]]:
    """Return the kernel's inputs (arrays and numbers, in order) and its outputs, as views of ``memory``.

    Only inputs with a number in ``mutates`` can be written. This holds in every call, so that a kernel can not tell
    which calls are timed.
    """
    arrays = [slot.view(memory) for slot in layout.inputs]
    for number, array in enumerate(arrays):
        array.flags.writeable = number in mutates
    waiting = iter(arrays)
    inputs = [one["value"] if "value" in one else next(waiting) for one in job["arguments"]]
    return inputs, [slot.view(memory) for slot in layout.outputs]


def fill_allocations() -> None:
    """Make the C library fill memory that it hands out or takes back with a random byte, if the library can do that.

    A kernel then finds in new memory neither what an earlier call left there, nor zeros that it did not write. Four
    such bytes, read as a float, are at least 3000.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # other C libraries than glibc lack mallopt
        library.mallopt(_M_PERTURB, 0xFF ^ (0x45 + os.urandom(1)[0] % (0x7F - 0x45)))


def exception_flags() -> Callable[[], None]:
    """Return a function that sets the exception flags of the processor's arithmetic at random.

    So no call finds the flags that the call before left, and a kernel that computes something else where a flag is set is
    wrong in some calls. A program's flags are set before its first call of a kernel too.
    """
    library = ctypes.CDLL(None)  # Python is linked with libm
    state = (ctypes.c_ubyte * _STATE_BYTES)()
    drawn = itertools.cycle(os.urandom(1009))  # drawn ahead, because a system call would take longer than all the rest

    def stir() -> None:
        flags = next(drawn) & _EXCEPTIONS
        library.fegetenv(state)
        for at in _FLAGS:
            state[at] = (state[at] & ~_EXCEPTIONS) | flags
        library.fesetenv(state)

    return stir


class LeftChanged(Exception):
    """Raised after a kernel that returned with the processor's arithmetic settings changed."""

    rule = "floating_point_state"


def left_as_found(call: Call) -> Call:
    """Return a function that calls the kernel as ``call`` does, and then raises LeftChanged if the kernel changed the
    processor's settings.

    The settings are the rounding mode, the treatment of denormal numbers and the x87 stack.
    """
    library = ctypes.CDLL(None)  # Python is linked with libm
    before, after = (ctypes.create_string_buffer(_STATE_BYTES) for _ in range(2))

    def checked(inputs: Sequence[Any], outputs: Sequence[Any]) -> float | None:
        library.fegetenv(before)
        claimed = call(inputs, outputs)
        library.fegetenv(after)
        if _controls(before.raw) != _controls(after.raw):
            library.fesetenv(before)
            raise LeftChanged(
                "the kernel leaves another rounding mode, another treatment of denormal numbers or a used x87 stack: "
                "restore what it changes"
            )
        return claimed

    return checked


def _controls(state: bytes) -> tuple[int, ...]:
    """Return the parts of a saved ``fenv_t`` that a function must preserve.

    On x86_64 they are the x87 control and tag words, and MXCSR without its flags. Elsewhere they are the first
    word.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return (int.from_bytes(state[:4], "little"),)
    control, tags, mxcsr = (int.from_bytes(state[at : at + size], "little") for at, size in ((0, 2), (8, 2), (28, 4)))
    return control, tags, mxcsr & 0xFFC0


def empty(job: Any, artefact: str) -> Call:
    """Return a function that does nothing, to measure the cost of a call."""

    def call(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        return None

    return call


def function(where: str) -> Callable[..., Any]:
    """Import a module and return its function, both named as ``module:name``."""
    module, _, name = where.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _line_in(error: BaseException, filename: str) -> int:
    """Return the innermost line of the kernel's file in an error's traceback; 0 if the file is not in the
    traceback.
    """
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _failure(rule: str, message: str, line: int = 0, hint: str = "") -> dict[str, Any]:
    """Return a failure as the header of a reply."""
    return {
        "failure": {
            "class": "KernelCrash",
            "rule": rule[:80],
            "message": message[:MAX_MESSAGE],
            "line": line,
            "hint": hint[:MAX_MESSAGE],
        }
    }
