"""Run an untrusted Program on a data set, in the judge's child process, and compute the errors of its outputs."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.random  # numpy loads it at its first use, which would be once in the child of each trial
from numpy.typing import NDArray

from acceld.errors import UsageError
from acceld.evaluate.correctness import datasets
from acceld.evaluate.sandbox.messages import defect_record, failure_record, limit_record, send, unpack
from acceld.nki.errors import KernelCrash, KernelFailure, LimitExceeded, UnsupportedCall
from acceld.nki.execute.activations import approximates
from acceld.nki.execute.answers import Answers
from acceld.nki.execute.interpreter import ExecuteOptions, Order, execute, is_settled
from acceld.nki.execute.iterations import HINT, RULE
from acceld.nki.ir.affine_order import order_changes_only_sums, unordered
from acceld.nki.ir.codec import decode
from acceld.nki.ir.numerics import is_integer
from acceld.nki.ir.operations import COMPARISONS, LOGIC, SHIFTS
from acceld.nki.ir.program import Program, Role
from acceld.nki.timing.timeline import as_timed
from acceld.statuses import Status

UNDEFINED = "undefined_memory"
"""The rule id of a program whose outputs depend on memory that was never written."""
_COMPLETE = 5
"""Descriptor of a pipe that closes when the data set is complete. At the start the data set may have only its inputs.
"""


def attempt(request: bytes, reply: int) -> None:
    """Answer a request with the errors of each output on one data set, or with a failure and its status.

    ``ran`` in the request means that the unchanged program has run on the data set before. If the requested trial
    would only repeat that run, nothing runs, and the answer has no errors.
    """
    header, payload = unpack(request)
    folder = Path(header["folder"])
    seconds: dict[str, float] = {}
    try:
        written = decode(payload)
        started = time.monotonic()
        program, turns = as_timed(written) if header["as_timed"] else (written, {})
        arrays = [one for one in datasets.read_inputs(folder) if isinstance(one, np.ndarray)]
        settled = is_settled(program)
        shuffle = header["shuffle"] if _has_order(program) else None
        repeats = program == written and not turns and shuffle is None and (settled or not header["again"])
        found = None
        """The errors; None if nothing ran, because an earlier run did exactly what this run would do."""
        outputs: list[list[NDArray[Any]]] = []
        if not (header["ran"] and repeats):
            outputs = _outputs(program, arrays, header, shuffle=shuffle, turns=turns, again=not settled)
            seconds["execute"] = time.monotonic() - started
        if header["incomplete"]:
            os.read(_COMPLETE, 1)
        started = time.monotonic()
        for made in outputs:
            measured = datasets.measure(folder, made)
            found = measured if found is None else [one.worst(more) for one, more in zip(found, measured, strict=True)]
        if outputs:
            seconds["check"] = time.monotonic() - started
        on_chip = _on_chip(program, arrays, header, folder) if header["chip_functions"] else None
    except (KernelFailure, UsageError) as error:
        send(reply, {**failure_record(error), "status": _running_status(error).value})
    except MemoryError:
        record = limit_record("memory", "running the program takes more memory than an evaluation may use")
        send(reply, {**record, "status": Status.RUNTIME_ERROR.value})
    # a forged program may trigger a defect in our code, which counts as its failure
    except Exception as error:  # noqa: BLE001  # a defect of ours counts as the program's failure
        send(reply, {**defect_record(error, "running"), "status": Status.RUNTIME_ERROR.value})
    else:
        send(
            reply,
            {
                "errors": None if found is None else [_finite(one.plain()) for one in found],
                "places": [one.place for one in found or ()],
                "seconds": seconds,
                "on_chip": on_chip,
                "settled": settled,
            },
        )


def _outputs(
    program: Program,
    arrays: Sequence[NDArray[Any]],
    header: dict[str, Any],
    *,
    shuffle: int | None,
    turns: Mapping[int, Sequence[int]],
    again: bool,
) -> list[list[NDArray[Any]]]:
    """Run a program as a request says, and return the outputs of each run to compare with the reference.

    With ``again``, undefined memory may decide the outputs. Raise KernelFailure if the program fails.
    """
    most = header["max_bytes"]
    found = [
        run(
            program,
            arrays,
            shuffle=shuffle,
            float64=False,
            max_bytes=most,
            turns=turns,
            checks_ranges=header["own"],
        )
    ]
    if header["again"] and again:
        _run_again(program, arrays, found[0], most, turns)
    if shuffle is not None:
        found.append(run(program, arrays, shuffle="reversed", float64=False, max_bytes=most))
        check_order(program, arrays, found[0], found[1], most)
        check_iterations(program, arrays, found[0], most)
    return found


def _finite(values: Sequence[float]) -> list[float | None]:
    """Return numbers for JSON, with None in place of numbers that are not finite."""
    return [value if math.isfinite(value) else None for value in values]


def run(
    program: Program,
    inputs: Sequence[NDArray[Any]],
    *,
    shuffle: Order | None,
    float64: bool,
    max_bytes: int,
    turns: Mapping[int, Sequence[int]] | None = None,
    chip_functions: bool = False,
    checks_ranges: bool = False,
) -> list[NDArray[Any]]:
    """Run a program on arrays in the kernel's layout, and return its outputs.

    ``turns`` names, for some instructions, the executions that run; their other executions are left out. Raises
    KernelFailure if the program fails.
    """
    options = ExecuteOptions(
        float64=float64,
        shuffle_affine=shuffle,
        max_bytes=max_bytes,
        check_transposes=True,
        turns=turns or {},
        chip_functions=chip_functions,
        checks_ranges=checks_ranges,
    )
    return execute(program, inputs, options)


def _has_order(program: Program) -> bool:
    """Tell whether the program has a loop of several iterations whose order could change the outputs."""
    return bool(unordered(program))


def check_order(
    program: Program,
    inputs: Sequence[NDArray[Any]],
    shuffled: Sequence[NDArray[Any]],
    otherwise: Sequence[NDArray[Any]],
    max_bytes: int,
) -> None:
    """Raise KernelCrash if the order of affine iterations decides a result.

    ``shuffled`` and ``otherwise`` are the outputs with the iterations in random and in reversed order. Another order of a
    sum also changes its rounding. So outputs that differ are computed again in float64, unless it is proved that the
    order changes nothing else. In float64, rounding is a billion times smaller than a value that an iteration could
    pass on to a later iteration.
    """
    if all(one.tobytes() == other.tobytes() for one, other in zip(shuffled, otherwise, strict=True)):
        return
    if order_changes_only_sums(program):
        return
    try:
        ways = [run(program, inputs, shuffle=way, float64=True, max_bytes=max_bytes) for way in (None, "reversed")]
    except LimitExceeded:
        return  # the outputs in both orders are compared with the reference in any case
    for number, (one, other) in enumerate(zip(*ways, strict=True)):
        size, apart = _apart(one, other)
        if apart > _SAME * size:
            buffer = program.buffers[program.outputs[number]]
            raise KernelCrash(
                f"output {buffer.name or number} depends on the order of affine iterations: in reversed order it differs by "
                f"{apart / size if size else apart:.2g} (relative L2, without rounding)",
                rule=RULE,
                line=buffer.line,
                hint=HINT,
            )


def check_iterations(
    program: Program, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], max_bytes: int
) -> None:
    """Raise KernelCrash if an iteration of an affine loop uses what another iteration writes, and an element of ``outputs``
    depends on that, or if iterations leave different values in an element that is used afterwards.

    Nothing runs if a proof without data shows that no iteration sees another one. The outputs come from an earlier run;
    elements that are NaN there do not count. Raise LimitExceeded if the records of what iterations write take too much
    memory.
    """
    if order_changes_only_sums(program):
        return
    order: Order | None
    for order in (None, "reversed"):
        options = ExecuteOptions(max_bytes=max_bytes, check_transposes=True, shuffle_affine=order, follows_order=True)
        try:
            marked = execute(program, inputs, options)
        except LimitExceeded as error:
            if error.rule == "memory_limit":
                error.message = f"to see whether iterations of affine loops depend on each other: {error.message}"
                error.hint = f"{HINT}, or give the evaluation more memory ([evaluate] memory_gib)"
            raise
        except KernelCrash as error:
            if error.rule == UNDEFINED:
                raise KernelCrash(
                    "an index, a register or a number of rounds depends on the order of affine iterations: an iteration uses "
                    "what another iteration leaves",
                    rule=RULE,
                    line=error.line,
                    hint=HINT,
                ) from error
            raise
        for number, (one, marks) in enumerate(zip(outputs, marked, strict=True)):
            found = int((marks & ~_is_nan(one)).sum())
            if found:
                buffer = program.buffers[program.outputs[number]]
                raise KernelCrash(
                    f"{found} elements of output {buffer.name or number} depend on the order of affine iterations: an iteration "
                    "uses what another iteration writes, or iterations leave different values in one element",
                    rule=RULE,
                    line=buffer.line,
                    hint=HINT,
                )


_SAME = 1e-9
"""Greatest relative difference between two float64 results that rounding alone explains.

float64 rounds by 1.1e-16, and a sum of a million terms by less than 1e-10. A difference that a float32 result can show
at all is a hundred times larger than this limit.
"""


def _apart(one: NDArray[Any], other: NDArray[Any]) -> tuple[float, float]:
    """Return the norm of an output, and its distance from the same output of another run, both in float64.

    Only elements that are finite in both outputs count. The distance is infinite if a non-finite element
    differs.
    """
    first, second = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(first) & np.isfinite(second)
    size = float(np.linalg.norm(first[finite]))
    if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
        return size, np.inf
    return size, float(np.linalg.norm(first[finite] - second[finite]))


def _run_again(
    program: Program,
    inputs: Sequence[NDArray[Any]],
    outputs: Sequence[NDArray[Any]],
    max_bytes: int,
    turns: Mapping[int, Sequence[int]],
) -> None:
    """Run a program again, with other values in memory that was never written.

    Raise KernelCrash if an output differs from ``outputs``, those of the first run, or depends on such memory although
    its values are equal. The number of further runs depends on the program:

    - If no instruction can hide a NaN, one further run is enough. In the first run undefined memory was NaN, so only a wrong order of writes can still be unnoticed.
    - If undefined elements can be traced (:func:`_traced`), two further runs are enough.
    - If there is no room for the marks of undefined elements, the program runs with reversed answers of comparisons, and once with each number that :func:`_decisive` names. A large program runs with fewer of these numbers, because the trial has a deadline.
    """
    options = ExecuteOptions(max_bytes=max_bytes, check_transposes=True, turns=turns)
    answers, numbers = None, [0.0]
    if not _hides_nan(program):
        numbers = []
    elif not _traced(program, inputs, outputs, max_bytes):
        answers = Answers()
        execute(program, inputs, replace(options, answers=answers))
        answers.begin_again()
        numbers = _decisive(program)
    most_runs = max(_LEAST_RUNS, _MOST_ELEMENTS // max(1, _elements_of(program)))
    for held in (None, *numbers)[:most_runs]:
        turned = answers if held is None else None
        again = execute(program, inputs, replace(options, chance=secrets.randbits(63), held=held, answers=turned))
        for number, (one, other) in enumerate(zip(outputs, again, strict=True)):
            differ = int((one.view(np.uint8) != other.view(np.uint8)).sum())
            if differ:
                buffer = program.buffers[program.outputs[number]]
                raise KernelCrash(
                    f"output {buffer.name or number} depends on memory that was never written, or on which of several writes "
                    f"to one element is the last: {differ} bytes of the output change when that memory or that order changes",
                    rule=UNDEFINED,
                    line=buffer.line,
                    hint=_HINT,
                )


_HINT = "write every element before it is read: fill the tile, or read only what a mask wrote"


def _hides_nan(program: Program) -> bool:
    """Tell whether an instruction could compute a value other than NaN from a NaN. The first run has NaN wherever
    memory is undefined.
    """
    hiding = COMPARISONS | LOGIC | {"logical_not"}
    return any(
        node.op in _HIDING
        or any(op in hiding for op in map(node.attr, _OPERATORS))
        or any(is_integer(one.dtype or program.buffers[one.buffer].dtype) for one in node.accesses)
        for node, _ in program.walk()
    )


def _traced(program: Program, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], max_bytes: int) -> bool:
    """Trace which elements depend on memory that was never written. Return False if that takes too much memory.

    Raise KernelCrash if an element of ``outputs``, those of the first run, depends on such memory and is not NaN.
    """
    try:
        marked = execute(program, inputs, ExecuteOptions(max_bytes=max_bytes, check_transposes=True, keeps_nan=True))
    except LimitExceeded:
        return False
    for number, (one, marks) in enumerate(zip(outputs, marked, strict=True)):
        lost = int((marks & ~_is_nan(one)).sum())
        if lost:
            buffer = program.buffers[program.outputs[number]]
            raise KernelCrash(
                f"{lost} elements of output {buffer.name or number} depend on memory that was never written"
                + (", or on a shift by more bits than a number has" if _shifts(program) else ""),
                rule=UNDEFINED,
                line=buffer.line,
                hint=_HINT,
            )
    return True


def _shifts(program: Program) -> bool:
    """Tell whether an instruction of the program shifts the bits of a number."""
    return any(not SHIFTS.isdisjoint(map(node.attr, _OPERATORS)) for node, _ in program.walk())


_LEAST_RUNS = 5
"""Least number of further runs, however many numbers there are to try. These runs use random values, both extremes, 0
and 1.
"""
_MOST_ELEMENTS = 1 << 31
"""Most elements that the instructions of all further runs write together, unless :data:`_LEAST_RUNS` write more."""
_OVERHEAD = 4096
"""An execution of an instruction takes in any case about as long as computing this many elements."""
_MOST_DECISIVE = 12
"""Greatest number of a program's own numbers that fill undefined memory. Of a program with more such numbers, some are
drawn at random.
"""
_DECIDING = frozenset("copy_predicated select find_index8 match_replace8 nonzero_with_count".split())
"""Instructions that ask whether a value is zero, or equal to another one."""
_HIDING = _DECIDING | {"max8", "topk"}
"""Instructions that may leave out a NaN, besides comparisons, logic and whatever reads or writes integers."""


def _decisive(program: Program) -> list[float]:
    """Return the values with which further runs fill undefined memory. An instruction that reads this memory may
    compute something else with one of these values.

    If an instruction asks whether a value is zero or equal to another, or if a tile holds integers, the values are 0,
    1, the numbers with which the program compares or computes, and the numbers with which it fills tiles. For integers
    the greatest and the least integer (as infinities) are added. Random contents are hardly ever equal to a given
    number, and two different random integers may be cut off to the same value. Memory of a chip often has such
    contents, because it holds what ran before.
    """
    found: set[float] = set()
    whole = any(buffer.role is Role.SCRATCH and is_integer(buffer.dtype) for buffer in program.buffers)
    asks = whole
    for node, _ in program.walk():
        deciding = node.op in _DECIDING or any(op in LOGIC for op in map(node.attr, _OPERATORS))
        asks = asks or deciding
        if whole or node.op == "memset" or any(op in COMPARISONS for op in map(node.attr, _OPERATORS)):
            given = {float(src) for src in node.srcs if isinstance(src, int | float) and math.isfinite(src)}
            found |= given
            if node.attr("op0") == "add":  # an instruction may ask whether the sum with such a number is zero
                found |= {-one for one in given}
    drawn = list(found.difference(_ZERO_ONE))
    secrets.SystemRandom().shuffle(drawn)
    numbers = [*_ZERO_ONE, *drawn[:_MOST_DECISIVE]] if asks else []
    return [*_EXTREMES, *numbers] if whole else numbers


_ZERO_ONE = (0.0, 1.0)
_EXTREMES = (math.inf, -math.inf)
_OPERATORS = ("op", "op0", "op1", "cmp", "cmp0", "cmp1", "reduce_op", "rmw", "func")


def _elements_of(program: Program) -> int:
    """Return about how many elements the instructions of a program write in one run."""
    return sum(
        math.prod(loop.trips for loop in loops) * max([_OVERHEAD, *(one.elements for one in node.accesses)])
        for node, loops in program.walk()
    )


def _is_nan(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the elements that are NaN."""
    return np.isnan(values.astype(np.float32)) if values.dtype.kind not in "iub" else np.zeros(values.shape, np.bool_)


def _on_chip(program: Program, arrays: list[Any], header: dict[str, Any], folder: Path) -> list[float | None] | None:
    """Return the relative L2 error of each output, computed with functions as inexact as the chip's.

    Return None if the program calls no function that is less exact on the chip.
    """
    if not approximates(program):
        return None
    outputs = run(program, arrays, shuffle=None, float64=False, max_bytes=header["max_bytes"], chip_functions=True)
    return _finite([one.rel_l2 for one in datasets.measure(folder, outputs)])


def _running_status(error: KernelFailure | UsageError) -> Status:
    """Return the status of an evaluation whose program failed with ``error`` while it ran."""
    if isinstance(error, UnsupportedCall):
        return Status.UNSUPPORTED
    return Status.TIMEOUT if getattr(error, "rule", "") == "deadline" else Status.RUNTIME_ERROR
