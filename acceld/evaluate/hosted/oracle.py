"""Make the inputs of hosted kernels and check their outputs, in child processes that run the workload's code.

These processes never run a candidate's code. ``generate`` makes the inputs of every call before the worker
starts. ``check`` computes the expected outputs from the same seeds, after the worker has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.errors import WorkloadError
from acceld.evaluate.correctness import examination
from acceld.evaluate.correctness.bands import Piece, pieces_of
from acceld.evaluate.correctness.distributions import inputs_of
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.metrics import compare_pieces
from acceld.evaluate.correctness.oracle import floors_of
from acceld.evaluate.hosted.arena import Layout, Slot, numpy_dtype
from acceld.evaluate.hosted.worker import function
from acceld.evaluate.sandbox.messages import error_header, send, unpack
from acceld.workloads import Precision, Workload, kernel_inputs, load_unchanged, reference_outputs

BATCHES, KEPT = 5, 5
"""The descriptor of the file of inputs in ``generate``, and the descriptor of the file of outputs in ``check``."""


def generate(request: bytes, reply: int) -> None:
    """Write the inputs of the calls ``numbers`` in the kernel's layout. The answer is ``{}``, or ``{"error": ...}``."""
    raw, _ = unpack(request)
    layout = Layout.from_plain(raw["layout"])
    try:
        workload = load_unchanged(raw)
        for number, trial in zip(raw["numbers"], raw["trials"], strict=True):
            cursor = number * layout.input_bytes
            inputs = kernel_inputs(workload, _inputs(workload, trial))
            arrays = [one for one in inputs if isinstance(one, np.ndarray)]
            for slot, array in zip(layout.inputs, arrays, strict=True):
                view = memoryview(np.ascontiguousarray(array).tobytes())
                if len(view) != slot.size_bytes:
                    raise WorkloadError(
                        f"the inputs of {workload.name} have {len(view)} bytes for {slot.name}, not {slot.size_bytes}",
                        hint="let get_inputs make arrays of the declared shapes and dtypes",
                    )
                while view:
                    written = os.pwrite(BATCHES, view, cursor)
                    view, cursor = view[written:], cursor + written
    except Exception as error:  # noqa: BLE001 -- an error that is not sent is not seen
        send(reply, error_header(error, f"making inputs of {raw['workload']}"))
    else:
        send(reply, {})


def check(request: bytes, reply: int) -> None:
    """Compare the outputs of the calls ``numbers`` with the reference. The answer has the errors of each call and the
    noise floors.
    """
    raw, _ = unpack(request)
    layout = Layout.from_plain(raw["layout"])
    _load(raw["libraries"])
    try:
        workload = load_unchanged(raw)
        with np.errstate(all="ignore"):
            send(reply, {"calls": _evaluated(workload, layout, raw), "floors": raw["floors"]})
    except Exception as error:  # noqa: BLE001 -- an error that is not sent is not seen
        send(reply, error_header(error, f"checking outputs of {raw['workload']}"))


def admit(request: bytes, reply: int) -> None:
    """Examine whether the workload's checks can distinguish right outputs from wrong ones, and send the findings as the
    answer.

    The expected outputs come from the same reference as in :func:`check`.
    """
    raw, _ = unpack(request)
    _load(raw["libraries"])
    examination.admit(request, reply, _on_device(raw["reference"]) if raw["reference"] else None)


def _on_device(where: str) -> Callable[[Workload, Sequence[Any]], list[NDArray[Any]]]:
    """Return the function ``module:name`` as a reference that runs on a device. Its errors become
    WorkloadError.
    """
    reference = function(where)

    def expect(workload: Workload, inputs: Sequence[Any]) -> list[NDArray[Any]]:
        try:
            outputs: list[NDArray[Any]] = reference(workload, inputs)
        except WorkloadError:
            raise
        except Exception as error:
            raise WorkloadError(
                f"the reference of {workload.name} failed on the device: {type(error).__name__}: {error}"[:2000]
            ) from error
        return outputs

    return expect


def _load(libraries: Sequence[str]) -> None:
    """Load shared libraries that packages of the reference find by name.

    A library that can not be loaded is skipped, because the package that needs it reports the error.
    """
    for path in libraries:
        with contextlib.suppress(OSError):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def _evaluated(workload: Workload, layout: Layout, raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one record for each call of the kernel: the ``errors`` of each of its outputs, or, as ``refused``, why the
    variant of the inputs is not used.

    Newly measured noise floors are added to ``raw["floors"]``.
    """
    expect = _on_device(raw["reference"]) if raw["reference"] else reference_outputs
    known: dict[tuple[str, int], tuple[list[NDArray[Any]], list[NDArray[Any]]]] = {}
    records = []
    for number, trial in zip(raw["numbers"], raw["trials"], strict=True):
        variant, seed = trial["variant"], trial["seed"]
        if raw["floors"].get(variant, {}).get("refused"):
            records.append({"refused": raw["floors"][variant]["refused"]})
            continue
        outputs = [_output(layout, slot, number) for slot in layout.outputs]
        if trial["again"]:
            first, expected = known[(variant, seed)]
            pieces = pieces_of(workload, variant, seed)
            records.append({"errors": _errors(outputs, expected, pieces), "moved": _errors(outputs, first, pieces)})
            continue
        inputs, started = _inputs(workload, trial), time.monotonic()
        expected = [np.asarray(one, np.float64) for one in expect(workload, inputs)]
        if variant not in raw["floors"]:
            raw["floors"][variant] = _floor(workload, trial, inputs, expected, time.monotonic() - started)
            if raw["floors"][variant]["refused"]:
                records.append({"refused": raw["floors"][variant]["refused"]})
                continue
        records.append({"errors": _errors(outputs, expected, pieces_of(workload, variant, seed))})
        if trial["changed"] is None:
            known[(variant, seed)] = outputs, expected
        if not raw["repeats"]:
            known.clear()
    return records


def _inputs(workload: Workload, trial: dict[str, Any]) -> list[Any]:
    """Return the inputs of a call.

    For a changed call, one element of one array is overwritten. The element gets the array's value that differs most
    from its own.
    """
    inputs = inputs_of(workload, trial["seed"], trial["variant"])
    if trial["changed"] is None:
        return inputs
    at = [number for number, one in enumerate(inputs) if isinstance(one, np.ndarray)][trial["changed"]]
    array = inputs[at] = np.array(inputs[at])
    flat = array.reshape(-1)
    if flat.size:
        place = np.random.default_rng([trial["seed"] % 2**63, trial["changed"]]).integers(flat.size)
        far = np.abs(flat.astype(np.float64) - np.float64(flat[place]))
        flat[place] = flat[int(np.argmax(far))]
    return inputs


def _output(layout: Layout, slot: Slot, number: int) -> NDArray[Any]:
    """Return one output array of call ``number``: the array that ``slot`` describes in ``layout``."""
    before = layout.outputs[: layout.outputs.index(slot)]
    offset = number * layout.output_bytes + sum(one.size_bytes for one in before)
    data = os.pread(KEPT, slot.size_bytes, offset)
    return np.frombuffer(data, numpy_dtype(slot.dtype)).reshape(slot.shape)


def _errors(
    outputs: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], pieces: Sequence[Piece]
) -> list[list[float | None]]:
    """Return the errors of each piece (whole output, or band of an output). None stands for an infinite error."""
    found = compare_pieces(outputs, [want.astype(np.float64) for want in expected], pieces)
    return [[one if math.isfinite(one) else None for one in errors.plain()] for errors in found]


def _floor(
    workload: Workload, trial: dict[str, Any], inputs: Sequence[Any], expected: Sequence[NDArray[Any]], seconds: float
) -> dict[str, Any]:
    """Return the noise of honest float32 arithmetic on a variant, or the reason why the variant is not used."""
    split = workload.precision is not Precision.FP32_STRICT
    floors = floors_of(workload, partial(reference_outputs, workload), inputs, expected, trial, split=split)
    if isinstance(floors, str):
        return {"floors": [], "refused": floors, "seconds": seconds}
    return {"floors": [floor.plain() for floor in floors], "refused": "", "seconds": seconds}


def errors_of(record: Sequence[Sequence[float | None]]) -> list[Errors]:
    """Return the errors that ``record``, a part of an answer of ``check``, describes. In ``record``, None stands for
    infinity.
    """
    return [Errors(*(math.inf if one is None else one for one in found)) for found in record]
