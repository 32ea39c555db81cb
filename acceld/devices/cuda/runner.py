"""Replay a launch plan on fresh inputs, and time it. None of the candidate's Python runs here.

Before each timed sequence of launches, everything that could carry data from an earlier call is reset:

- The module is loaded again, which resets variables of the device code.
- The plan's allocations are filled with a byte that no earlier launch left there. Allocations that host code fills
  itself (``torch.zeros``) are filled between the two events, because such a fill is part of the kernel's work.
- The inputs are written again. In all sequences but one, chosen at random, a few elements of each input array have
  changed places, other ones in each sequence. So no sequence finds inputs of an earlier one, wherever device code may
  keep results. The outputs of these sequences are dropped. Nothing tells device code which sequence is checked: not the
  number of sequences before it, and not how its inputs differ from theirs.
- A buffer of several times the L2 cache is written.

After each sequence the inputs are compared with what was written, and the guard zones behind all arrays with their
bytes. Device memory outside of the plan holds only the inputs of this sequence.

The device works through a queue. All launches have to be in the queue before the device reaches the first event.
Otherwise the time would include the host's time for queueing them. So the launches are queued behind the write of the
large buffer. After each sequence the runner checks that the launches were queued in time. If the device was faster than
the host, the sequence is repeated behind more writes.
"""

from __future__ import annotations

import os
import secrets
import statistics
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.devices.cuda.libcuda import Driver, DriverError
from acceld.devices.cuda.plan import Launch, LaunchPlan, PlanRefused, Pointer, decode
from acceld.evaluate.hosted.driver import BuildRefused, Call, Job
from acceld.workloads.records import ArraySpec

REPEATS = 5
"""Least number of launch sequences that are timed in one call. The call's time is their median."""
GUARD_BYTES = 512
"""Bytes of a guard zone after each array, which no launch may change."""
_WINDOW = 1 << 16
"""Number of elements of an array among which the elements that change places are chosen."""
MOST_FLUSHES = 64
"""Greatest number of writes of the large buffer before a sequence. If queueing the launches takes the host longer than
these writes take the device, the measured time includes a part of the host's time.
"""
_WARP = 32


def prepare(job: Job, artefact: str) -> Call:
    """Load the launch plan, and return a function that replays it on a job's arrays.

    Raise BuildRefused if the plan is invalid, or if its device code can not be loaded.
    """
    input_bytes = [_size_bytes(one) for one in job["arguments"] if "value" not in one]
    output_bytes = [_size_bytes(one) for one in job["outputs"]]
    try:
        plan = decode(Path(artefact).read_bytes(), input_bytes, output_bytes)
        return Replay(plan, input_bytes, output_bytes, job["settings"])
    except PlanRefused as error:
        raise BuildRefused(str(error), rule="plan") from error
    except DriverError as error:
        raise BuildRefused(str(error), rule="load") from error


class Replay:
    """A plan on one GPU, with memory for all of its arrays. Calling it replays the plan."""

    def __init__(
        self, plan: LaunchPlan, input_bytes: Sequence[int], output_bytes: Sequence[int], settings: dict[str, Any]
    ) -> None:
        self._plan, self._sizes = plan, tuple(output_bytes)
        self._driver = driver = Driver(settings["device"], settings["library"])
        driver.no_heap()
        self._inputs = [driver.allocate(size + GUARD_BYTES) for size in input_bytes]
        self._buffers = [driver.allocate(one.size_bytes + GUARD_BYTES) for one in plan.buffers]
        ends = zip(self._inputs, input_bytes, strict=True), zip(self._buffers, plan.buffers, strict=True)
        self._guards = [pointer + size for pointer, size in ends[0]]
        self._guards += [pointer + one.size_bytes for pointer, one in ends[1]]
        programs = [one.grid[0] * one.grid[1] * one.grid[2] for one in plan.launches]
        needed = [one.scratch_bytes * count for one, count in zip(plan.launches, programs, strict=True)]
        self._scratch_bytes = max(needed, default=0)
        self._scratch = driver.allocate(self._scratch_bytes)
        self._flush_bytes: int = settings["flush_bytes"]
        self._flush = driver.allocate(self._flush_bytes)
        self._flushes = 1
        self._events = driver.event(), driver.event()
        for module in self._load()[1]:
            driver.unload(module)

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> float:
        """Run the plan on ``inputs``, and write the results to ``outputs``.

        Return the microseconds of the launches: the median of at least REPEATS sequences.
        """
        arrays = [np.ascontiguousarray(one) for one in inputs if isinstance(one, np.ndarray)]
        changing = [_Changing(one) for one in arrays]
        took: list[float] = []
        checked, place = False, secrets.randbelow(REPEATS)
        number, own = 0, False  # ``own`` becomes True once a sequence has had the call's own inputs, without changes
        while len(took) < REPEATS or not checked:
            own, number = len(took) >= place and not checked and not own, number + 1
            one_us, alone = self._timed(arrays if own else [one.changed(number) for one in changing])
            counts = alone or self._flushes >= MOST_FLUSHES
            if counts:
                took.append(one_us)
            else:
                self._flushes *= 2
            if own and counts:
                checked = True
                for output, array, size in zip(self._plan.outputs, outputs, self._sizes, strict=True):
                    self._driver.read(_address(array), self._buffers[output.number] + output.offset_bytes, size)
        return statistics.median(took)

    def _timed(self, arrays: Sequence[NDArray[Any]]) -> tuple[float, bool]:
        """Run the launch sequence once. Return its microseconds, and whether all launches were queued before the
        device reached the first event.

        Raise InputChanged if a launch has changed an input, WroteBeyond if a launch has written behind an array.
        """
        driver, (start, end) = self._driver, self._events
        for pointer, array in zip(self._inputs, arrays, strict=True):
            driver.write(pointer, _address(array), array.nbytes)
        functions, modules = self._load()
        launches = [self._launching(functions, one) for one in self._plan.launches]
        self._poison()
        byte = os.urandom(1)[0]
        for pointer in self._guards:
            driver.fill(pointer, byte, GUARD_BYTES)
        for _ in range(self._flushes):
            driver.fill(self._flush, byte, self._flush_bytes)
        driver.record(start)
        self._fill()
        for launch in launches:
            launch()
        driver.record(end)
        alone = not driver.happened(start)
        driver.wait()
        took_us = driver.elapsed_us(start, end)
        for number, (pointer, array) in enumerate(zip(self._inputs, arrays, strict=True)):
            found = np.empty(array.nbytes, np.uint8)
            driver.read(_address(found), pointer, array.nbytes)
            if found.tobytes() != array.tobytes():
                raise InputChanged(f"a launch changes input {number} of the kernel on the device")
        for number, pointer in enumerate(self._guards):
            found = np.empty(GUARD_BYTES, np.uint8)
            driver.read(_address(found), pointer, GUARD_BYTES)
            if (found != byte).any():
                beyond = number - len(self._inputs)
                what = f"allocation {beyond}" if beyond >= 0 else f"input {number}"
                raise WroteBeyond(f"a launch writes behind the end of {what} of the kernel")
        for module in modules:
            driver.unload(module)
        return took_us, alone

    def _launching(self, functions: list[Any], launch: Launch) -> Callable[[], None]:
        code = self._plan.kernels[launch.kernel]
        arguments = [self._packed(one) if isinstance(one, Pointer) else one.packed() for one in launch.arguments]
        # Two more arguments: pointers to Triton's scratch memory and its profiler's, in its launchers' order.
        arguments += [struct.pack("<Q", self._scratch), struct.pack("<Q", 0)]
        threads = code.warps * _WARP
        return self._driver.launching(functions[launch.kernel], launch.grid, threads, code.shared_bytes, arguments)

    def _load(self) -> tuple[list[Any], list[Any]]:
        modules = [self._driver.load(one.binary) for one in self._plan.kernels]
        functions = [
            self._driver.function(module, one.name, one.shared_bytes)
            for module, one in zip(modules, self._plan.kernels, strict=True)
        ]
        return functions, modules

    def _poison(self) -> None:
        byte = os.urandom(1)[0]
        for pointer, one in zip(self._buffers, self._plan.buffers, strict=True):
            self._driver.fill(pointer, byte, one.size_bytes)
        self._driver.fill(self._scratch, 0, self._scratch_bytes)

    def _fill(self) -> None:
        """Fill the allocations that host code fills."""
        for pointer, one in zip(self._buffers, self._plan.buffers, strict=True):
            if one.fill is not None:
                self._driver.fill(pointer, one.fill, one.size_bytes)

    def _packed(self, pointer: Pointer) -> bytes:
        base = (self._inputs if pointer.kind == "input" else self._buffers)[pointer.number]
        return struct.pack("<Q", base + pointer.offset_bytes)


class InputChanged(Exception):
    """Raised if device code changed an input, because a kernel could hide a result there for a later launch."""

    rule = "input_changed"


class WroteBeyond(Exception):
    """Raised if device code wrote beyond the end of an array."""

    rule = "guard"


class _Changing:
    """A copy of an array whose contents are changed for each launch sequence: a few elements change places.

    Any two of the contents, and the array itself, differ in the same number of elements. So nothing shows which
    contents are the array's own. Arrays of integers stay as they are, because the numbers may be indices. An array
    whose elements are all equal stays as it is, too.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self._pairs: list[tuple[int, int]] = []
        self._swapped: tuple[int, int] | None = None
        if array.dtype.kind not in "iub" and array.size:
            self._array = array.copy()
            self._pairs, hidden = _pairs(self._bits)
            if hidden is not None:
                self._exchange(hidden)

    @property
    def _bits(self) -> NDArray[Any]:
        return self._array.reshape(-1).view(f"u{self._array.dtype.itemsize}")

    def _exchange(self, pair: tuple[int, int]) -> None:
        self._bits[list(pair)] = self._bits[list(reversed(pair))]

    def changed(self, number: int) -> NDArray[Any]:
        """Return the array with the elements of the pair ``number`` exchanged. The result is valid until the next call."""
        for pair in (self._swapped, self._pairs[number % len(self._pairs)] if self._pairs else None):
            if pair is not None:
                self._exchange(pair)
                self._swapped = pair
        return self._array


def _pairs(bits: NDArray[Any]) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
    """Return the exchanges of elements by which an array is changed: pairs of positions, one for each launch
    sequence, and a pair that is exchanged in every sequence (None if none is needed).

    All pairs share one position, so any two contents of the array differ at no more than three positions. If every
    pair moves the same value to the shared position, any two contents differ at two positions, and each differs from
    the array itself at two. If the pairs move different values there, two contents differ at three positions. The
    pair that is exchanged in every sequence then makes each content differ from the array itself at three positions
    too.
    """
    start = secrets.randbelow(max(1, bits.size - _WINDOW))
    if (bits[start : start + _WINDOW] == bits[start]).all():
        first = int(np.argmax(bits != bits[0]))
        start = max(0, min(first - 1, bits.size - _WINDOW))
    part = bits[start : start + _WINDOW]
    one = secrets.randbelow(part.size)
    other = int(np.argmax(part != part[one]))
    shared = max((one, other), key=lambda at: np.count_nonzero(part != part[at]))
    rest = np.flatnonzero(part != part[shared])
    values, firsts, counts = np.unique(part[rest], return_index=True, return_counts=True)
    if not rest.size:
        return [], None
    if counts.max() >= len(values):
        alike, hidden = rest[part[rest] == values[counts.argmax()]], None
    else:
        alike = rest[firsts]
        hidden = (start + shared, start + int(alike[0]))
        alike = alike[1:]
    return [(start + shared, start + int(at)) for at in alike], hidden


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _size_bytes(one: dict[str, Any]) -> int:
    return ArraySpec(tuple(one["shape"]), one["dtype"]).size_bytes
