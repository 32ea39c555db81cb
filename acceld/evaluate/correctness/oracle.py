"""Make a workload's inputs and run its reference, in a child process that never sees a candidate's code.

The reference runs in float64. If the noise floor of a variant is not known yet, the reference also runs in
float32, to measure the noise of honest arithmetic.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.cores import on_several_cores
from acceld.evaluate.correctness import datasets
from acceld.evaluate.correctness.bands import Piece, is_banded, pieces_of
from acceld.evaluate.correctness.distributions import NOISY, inputs_of, is_boosted
from acceld.evaluate.correctness.errors import BROKEN, Errors
from acceld.evaluate.correctness.metrics import Comparison, compare_pieces, rows_of, sum_of_squares
from acceld.evaluate.correctness.tolerance import floor_of_parts
from acceld.evaluate.sandbox.messages import error_header, send, unpack
from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.ir.codec import decode
from acceld.nki.ir.program import Program
from acceld.private_files import NO_ROOM
from acceld.workloads import (
    DISTRIBUTIONS,
    Output,
    Workload,
    kernel_inputs,
    load_unchanged,
    outputs_in_reference_layout,
    reference_outputs,
)
from acceld.workloads.inputs import numpy_dtype
from acceld.workloads.oracle import as_float32, as_float64
from acceld.workloads.rows import BlockedReference, RowBlock, row_blocks, sampled

_BEGUN = 5
"""Descriptor of a pipe that gets a message when the inputs are written."""
_LARGEST = 3e38
"""Greatest value that a float32 output may have."""
_SAMPLE_ELEMENTS = 1 << 20
"""Number of elements of an output in which the noise of float32 is measured, if all its rows are drawn alike."""
_OF_SAMPLES = 0.95
"""Factor on the errors of a sample of rows, so that chance does not make a floor greater than the whole output's."""
_DRAWS = 4
"""Number of random changes of the inputs. The effect of one change may cancel by chance in the row that decides."""
_FLOAT32_ROUNDING, _PARTS_ROUNDING = 2.0**-23, 2.0**-18
"""Greatest relative change when a float32 number is rounded. The first is for rounding to a neighbor in float32, the
second for rounding to a sum of two bfloat16 numbers.
"""
_BEYOND = {False: 4.0, True: 256.0}
"""Multiple of the rounding by which a band's inputs are changed, to find outputs that depend on nearly equal values.

The key is True if products of bfloat16 parts are allowed.
"""
_STEEP = 16.0
"""An output that changes by more than this multiple of its inputs' change may be decided by rounding."""
_NARROW = 4.0
"""Factor by which the noise of an output narrower than float32 may exceed that of a float32 output. bfloat16 rounds by
1.7e-3.
"""
_DENORMAL = 1e-30
"""Root mean square below which a chip rounds the values of an output, or the values it is computed from, to zero."""


def make(request: bytes, reply: int) -> None:
    """Write the data set of a request. The answer is ``{}``, ``{"refused": REASON}`` or ``{"error": ...}``."""
    raw, payload = unpack(request)
    try:
        with np.errstate(all="ignore"):
            workload = load_unchanged(raw)
            send(reply, _make(workload, raw, _oracle_of(workload, payload), lambda: os.write(_BEGUN, b".")))
    except KernelFailure as error:
        send(reply, {"error": f"the kernel of {raw['workload']} can not stand in for a reference: {error.message}"})
    except MemoryError:
        send(reply, {"error": f"the reference of {raw['workload']} needs more memory than an evaluation may use"})
    except OSError as error:
        if error.errno in NO_ROOM:
            send(reply, {"no_room": error.strerror})
        else:
            send(reply, {"error": f"a data set of {raw['workload']} can not be written: {error}"})
    except Exception as error:  # noqa: BLE001 -- an error that is not sent is not seen
        send(reply, error_header(error, f"making a data set of {raw['workload']}"))


Oracle = Callable[[Sequence[Any], bool], list[NDArray[Any]]]
"""Function that computes the expected outputs from inputs, both in the reference's layout. If its flag is True, it
computes in float64.
"""


def _oracle_of(workload: Workload, payload: bytes) -> Oracle:
    """Return a function that computes the expected outputs: the workload's reference.

    Without a reference it is the program of the workload's baseline, which ``payload`` encodes.
    """
    if workload.reference is None:
        return partial(_program_outputs, workload, decode(payload))
    blocks = row_blocks(workload)
    return partial(reference_outputs if len(blocks) == 1 else partial(_by_blocks, blocks), workload)


def _by_blocks(
    blocks: Sequence[RowBlock], workload: Workload, inputs: Sequence[Any], float64: bool
) -> list[NDArray[Any]]:
    """Compute the reference's outputs block by block of rows, on several cores, and return them."""
    reference = BlockedReference(workload, inputs, as_float64 if float64 else lambda one: one)
    made: list[NDArray[Any]] = []
    first = reference.outputs(blocks[0])
    for output, part in zip(workload.outputs, first, strict=True):
        made.append(np.empty(output.shape, part.dtype))

    def put(block: RowBlock, found: Sequence[NDArray[Any]]) -> None:
        for output, into, part in zip(workload.outputs, made, found, strict=True):
            block.of(into, output.axes)[...] = part

    put(blocks[0], first)
    on_several_cores(lambda block: put(block, reference.outputs(block)), blocks[1:])
    return made


def _program_outputs(workload: Workload, program: Program, inputs: Sequence[Any], float64: bool) -> list[NDArray[Any]]:
    """Run a program on the inputs of a workload, and return its outputs in the reference's layout."""
    arrays = [one for one in kernel_inputs(workload, inputs) if isinstance(one, np.ndarray)]
    return outputs_in_reference_layout(workload, execute(program, arrays, ExecuteOptions(float64=float64)))


def _make(workload: Workload, raw: dict[str, Any], oracle: Oracle, ready: Callable[[], object]) -> dict[str, Any]:
    """Write a data set, and return the answer to its request. ``ready`` is called when the inputs are written."""
    started = time.process_time()
    seed, variant = raw["seed"], raw["variant"]
    dtypes, pieces = [output.dtype for output in workload.outputs], pieces_of(workload, variant, seed)
    writer = datasets.Writer(Path(raw["folder"]))
    arguments = workload.arguments
    inputs = inputs_of(workload, seed, variant, lambda at: writer.room(at, arguments[at].shape, arguments[at].dtype))
    writer.inputs(kernel_inputs(workload, inputs))
    seconds = time.process_time() - started
    ready()
    if is_banded(variant) or raw["closely"]:
        found = _whole(workload, raw, oracle, inputs, writer)
    else:
        blocks = row_blocks(workload)
        samples = _samples(workload, variant, blocks, seed) if raw["floors"] is None else {}
        found = ByRows(workload, variant, oracle, inputs, blocks).write(writer, samples)
    if isinstance(found, str):
        return {"refused": found}
    record = {"seed": seed, "variant": variant, "floors": raw["floors"] or [one.plain() for one in found.floors]}
    record |= {
        "seconds": seconds + found.seconds,
        "squares": found.squares,
        "pieces": [piece.plain() for piece in pieces],
        "least": raw["least"],
    }
    writer.finish(zip((output.shape for output in workload.outputs), dtypes, strict=True), record)
    return {}


def _whole(
    workload: Workload, raw: dict[str, Any], oracle: Oracle, inputs: Sequence[Any], writer: datasets.Writer
) -> Made | str:
    """Compute the expected outputs in one piece, and write them.

    Return the measured noise and times, or the reason why the inputs are not used.
    """
    seed, variant, started = raw["seed"], raw["variant"], time.process_time()
    expected = [np.asarray(one, np.float64) for one in oracle(inputs, True)]
    if complaint := unfit(expected, variant):
        return complaint
    seconds, floors = time.process_time() - started, list[Errors]()
    if raw["floors"] is None:
        measured = floors_of(workload, oracle, inputs, expected, raw, split=raw["split"])
        if isinstance(measured, str):
            return measured
        dtypes, pieces = [output.dtype for output in workload.outputs], pieces_of(workload, variant, seed)
        if raw["closely"]:
            measured = amplified(oracle, inputs, expected, dtypes, pieces, measured, seed, split=raw["split"])
        floors = measured
    for number, one in enumerate(expected):
        writer.expected(number, one.shape, workload.outputs[number].dtype)[...] = one
    return Made(floors, seconds)


@dataclass(frozen=True, slots=True)
class Made:
    """The noise of float32 in the expected outputs, and what was measured while they were computed.

    - ``floors``: the noise of float32, one record for each piece; empty if the noise was not measured.
    - ``seconds``: the processor seconds of the reference.
    - ``squares``: the sum of squares of each output; None if the sums were not computed.
    """

    floors: list[Errors]
    seconds: float
    squares: list[float] | None = None


class ByRows:
    """Compute a reference block by block of rows, on several cores.

    To measure the noise, some rows are computed in float32 first. Then all rows are computed in float64.
    """

    def __init__(
        self, workload: Workload, variant: str, oracle: Oracle, inputs: Sequence[Any], blocks: Sequence[RowBlock]
    ) -> None:
        self._workload, self._outputs = workload, workload.outputs
        self._variant = variant
        self._oracle = oracle
        self._inputs = inputs
        self._blocks = blocks

    def _reference(self, float64: bool) -> Callable[[RowBlock], list[NDArray[Any]]]:
        """Return a function that computes the outputs of one block of rows."""
        if len(self._blocks) == 1:
            inputs = self._inputs if float64 else _narrowed(self._workload, self._inputs)
            return lambda _: self._oracle(inputs, float64)
        return BlockedReference(self._workload, self._inputs, as_float64 if float64 else as_float32).outputs

    def write(self, writer: datasets.Writer, samples: Mapping[int, RowBlock]) -> Made | str:
        """Compute and write the expected outputs. Return the measured noise and times, or the reason why the inputs
        are not used.

        ``samples`` has the rows in which the noise is measured, by the number of their block.
        """
        noises = self._noises(samples) if samples else []
        reference = self._reference(True)
        kept = [writer.expected(number, output.shape, output.dtype) for number, output in enumerate(self._outputs)]

        def one(number: int) -> tuple[str, float, list[float]]:
            block, started = self._blocks[number], time.thread_time()
            expected = [np.asarray(found, np.float64) for found in reference(block)]
            seconds, squares = time.thread_time() - started, [float(np.vdot(found, found)) for found in expected]
            if not max(squares) < _LARGEST**2 and (complaint := unfit(expected, self._variant)):
                return complaint, seconds, squares
            for output, into, found in zip(self._outputs, kept, expected, strict=True):
                block.of(into, output.axes)[...] = found
            if number in samples:
                rows = samples[number].within(block)
                for output, noise, found in zip(self._outputs, noises, expected, strict=True):
                    noise.add(number, rows.of(found, output.axes))
            return "", seconds, squares

        complaints, seconds, squares = zip(*on_several_cores(one, range(len(self._blocks))), strict=True)
        floors = [noise.errors() for noise in noises]
        if complaint := next(filter(None, complaints), "") or too_noisy(floors, self._variant):
            return complaint
        return Made(floors, sum(seconds), list(map(sum, zip(*squares, strict=True))))

    def _noises(self, samples: Mapping[int, RowBlock]) -> list[_Noise]:
        """Compute the sampled rows in float32. Return, for each output, an object that measures their errors."""
        reference = self._reference(False)

        def one(number: int) -> list[NDArray[Any]]:
            found = zip(self._outputs, reference(samples[number]), strict=True)
            return [computed.astype(numpy_dtype(output.dtype), copy=False) for output, computed in found]

        numbers = sorted(samples)
        rounded = zip(*on_several_cores(one, numbers), strict=True)
        return [
            _Noise(output, dict(zip(numbers, parts, strict=True)))
            for output, parts in zip(self._outputs, rounded, strict=True)
        ]


class _Noise:
    """Measure the float32 error of an output, rounded to the output's dtype, in all of its rows or in a sample."""

    def __init__(self, output: Output, parts: Mapping[int, NDArray[Any]]) -> None:
        self._parts = {number: rows_of(part) for number, part in parts.items()}
        counts = [len(part) for part in self._parts.values()]
        self._first = dict(zip(self._parts, itertools.accumulate(counts, initial=0), strict=False))
        size = sum(counts), sum(part.size for part in parts.values()), sum(map(sum_of_squares, self._parts.values()))
        self._computed = Comparison(*size)
        self._narrow = None if output.dtype == "float32" else Comparison(*size)
        """Errors of the expected values rounded to the output's dtype; None for a float32 output."""
        self._factor = 1.0 if sum(counts) == math.prod(output.shape[:-1]) else _OF_SAMPLES

    def add(self, number: int, expected: NDArray[Any]) -> None:
        """Compare the float32 sample of block ``number`` with the rows' expected values."""
        got, want, first = self._parts[number], rows_of(expected), self._first[number]
        self._computed.add(first, got, want)
        if self._narrow is not None:
            self._narrow.add(first, want.astype(got.dtype), want)

    def errors(self) -> Errors:
        """Return the errors that were measured, but at least the errors of rounding the expected values.

        Errors of a sample are lowered a little, so that the tolerance that follows from them is not too wide.
        """
        computed = self._computed.errors()
        return (computed if self._narrow is None else computed.worst(self._narrow.errors())).times(self._factor)


def _samples(workload: Workload, variant: str, blocks: Sequence[RowBlock], seed: int) -> Mapping[int, RowBlock]:
    """Return the rows in which the noise of a variant is measured, as a dict by the number of their block.

    A sample suffices if all rows are drawn alike. Otherwise all rows are measured.
    """
    if variant not in DISTRIBUTIONS:
        return dict(enumerate(blocks))
    return sampled(workload, blocks, _SAMPLE_ELEMENTS, np.random.default_rng([seed % 2**63, 23]))


def unfit(expected: Sequence[NDArray[Any]], variant: str) -> str:
    """Return the reason why the expected outputs can not be used for a check; empty if the outputs can be used.

    Outputs that are measured by bands can always be used: single bands may be infinite or NaN.
    """
    if is_banded(variant):
        return ""
    finite = [-_LARGEST < one.min(initial=0.0) and one.max(initial=0.0) < _LARGEST for one in expected]
    if all(finite):
        return ""
    which = f"output {finite.index(False)} of the reference" if len(expected) > 1 else "the reference"
    return f"{which} is not finite on these inputs"


def floors_of(
    workload: Workload,
    oracle: Oracle,
    inputs: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    trial: Mapping[str, Any],
    *,
    split: bool,
) -> list[Errors] | str:
    """Return the float32 noise of each piece (whole output, or band of an output) on the inputs of a trial, or the
    reason why the inputs are not used.

    With ``split``, products of bfloat16 parts are allowed.
    """
    variant, seed = trial["variant"], trial["seed"]
    if complaint := unfit(expected, variant):
        return complaint
    pieces, dtypes = pieces_of(workload, variant, seed), [output.dtype for output in workload.outputs]
    narrowed = _narrowed(workload, inputs)
    measured = noise(oracle, narrowed, expected, dtypes, pieces, variant)
    if is_banded(variant) and not isinstance(measured, str):
        return decisive(oracle, narrowed, expected, dtypes, pieces, measured, seed, split=split)
    return measured


def noise(
    oracle: Oracle,
    inputs: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    dtypes: Sequence[str],
    pieces: Sequence[Piece],
    variant: str,
) -> list[Errors] | str:
    """Return the float32 error of each piece (whole output, or band of an output), or the reason why the variant is not
    used.
    """
    measured = _floors(oracle, inputs, expected, dtypes, pieces)
    return (not is_banded(variant) and too_noisy(measured, variant)) or measured


def too_noisy(floors: Sequence[Errors], variant: str) -> str:
    """Return the reason why inputs with these noise floors are not used; empty if the inputs are used. For the
    inputs of a banded variant, callers use :func:`decisive` instead.
    """
    if is_boosted(variant) and any(not floor.rel_l2 < NOISY for floor in floors):
        return "float32 arithmetic is too inexact on these inputs"
    if not all(floor.finite for floor in floors):
        return "the reference is not finite in float32 on these inputs"
    return ""


def _narrowed(workload: Workload, inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the inputs rounded to float32. A kernel rounds by itself, but a reference follows the dtype of its inputs."""
    return inputs if workload.reference is None else [as_float32(one, copy=True) for one in inputs]


def decisive(
    oracle: Oracle,
    inputs: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    dtypes: Sequence[str],
    pieces: Sequence[Piece],
    floors: Sequence[Errors],
    seed: int,
    *,
    split: bool,
) -> list[Errors] | str:
    """Return the noise floor of each piece (whole output, or band of an output).

    The floor is infinite for a piece whose right outputs float32 can not tell from wrong ones. Any other piece keeps
    its element of ``floors``. If all floors would be infinite, return the reason why the inputs are not used.
    """
    change = _BEYOND[split] * (_PARTS_ROUNDING if split else _FLOAT32_ROUNDING)
    rng = np.random.default_rng([seed % 2**63, 19])
    moved = _floors(oracle, [_changed(one, change, rng) for one in inputs], expected, dtypes, pieces)
    # Rounding changes an output of a narrow dtype by more than NOISY, so such an output may be noisier.
    noisy = [NOISY if dtype == "float32" else _NARROW * NOISY for dtype in dtypes]
    found = [
        floor
        if floor.rel_l2 < noisy[piece.output]
        and other.rel_l2 < max(noisy[piece.output], _STEEP * change)
        and not _denormal(piece.of(expected[piece.output]))
        else BROKEN
        for piece, floor, other in zip(pieces, floors, moved, strict=True)
    ]
    if not any(floor.finite for floor in found):
        return "in no band of these inputs can float32 distinguish right from wrong outputs"
    return found


def _denormal(expected: NDArray[Any]) -> bool:
    """Tell whether expected values are so small that a chip rounds them to zero."""
    size = float(np.sqrt(np.mean(np.square(expected[np.isfinite(expected)])))) if expected.size else 0.0
    return 0.0 < size < _DENORMAL


def _floors(
    oracle: Oracle,
    inputs: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    dtypes: Sequence[str],
    pieces: Sequence[Piece],
) -> list[Errors]:
    """Return the errors of the reference in float32, rounded to the output's dtype as a kernel's output would be."""
    rounded = [one.astype(numpy_dtype(dtype)) for one, dtype in zip(oracle(inputs, False), dtypes, strict=True)]
    floors = compare_pieces(rounded, expected, pieces)
    if all(dtype == "float32" for dtype in dtypes):
        return floors
    narrow = [
        one if dtype == "float32" else one.astype(numpy_dtype(dtype))
        for one, dtype in zip(expected, dtypes, strict=True)
    ]
    return list(map(Errors.worst, floors, compare_pieces(narrow, expected, pieces)))


def amplified(
    oracle: Oracle,
    inputs: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    dtypes: Sequence[str],
    pieces: Sequence[Piece],
    floors: Sequence[Errors],
    seed: int,
    *,
    split: bool,
) -> list[Errors]:
    """Return the noise floors, raised for pieces whose outputs react strongly to rounding.

    Every input is changed at random by one rounding. A floor is at least the change of its output that follows. A
    floor of zero stays zero, because whole numbers are computed without rounding.
    """
    rng, change = np.random.default_rng([seed % 2**63, 11]), _PARTS_ROUNDING if split else _FLOAT32_ROUNDING
    raised = list(floors)
    for _ in range(_DRAWS):
        found = _floors(oracle, [_changed(one, change, rng) for one in inputs], expected, dtypes, pieces)
        raised = [
            floor if floor.rel_l2 == 0.0 else floor.worst(floor_of_parts(error) if split else error)
            for floor, error in zip(raised, found, strict=True)
        ]
    return raised


def _changed(value: Any, change: float, rng: np.random.Generator) -> Any:
    """Return a float32 array with each element changed at random by at most the share ``change``. Other values
    stay.
    """
    if not isinstance(value, np.ndarray) or value.dtype != np.float32:
        return value
    return (value * (1 + change * rng.uniform(-1, 1, value.shape))).astype(np.float32)
