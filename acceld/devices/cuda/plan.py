"""Encode and decode launch plans: what a kernel's host code does, as plain data, with the compiled device code.

Host code runs once, in a jail, with the shapes of its arguments and without their data. The allocations and launches of
the host code are recorded. Replaying them runs no Python of the candidate. An encoded plan is a little-endian length, a
JSON header of that length, and the device code of all kernels in order. :func:`decode` checks every field, because the
bytes come from a process that ran a candidate's code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VERSION = 1
MAX_BUFFERS = 256
MAX_LAUNCHES = 256
MAX_ARGUMENTS = 256
MAX_SCRATCH_BYTES = 64 << 30
MAX_CODE_BYTES = 256 << 20
_LENGTH = struct.Struct("<Q")
SCALARS = {
    "i1": "<b",
    "i8": "<b",
    "i16": "<h",
    "i32": "<i",
    "i64": "<q",
    "u1": "<B",
    "u8": "<B",
    "u16": "<H",
    "u32": "<I",
    "u64": "<Q",
    "fp32": "<f",
    "f32": "<f",
    "fp64": "<d",
    "f64": "<d",
}
"""Binary layout of a launch's scalars (for ``struct``), by Triton's name of their type."""


class PlanRefused(ValueError):
    """Raised if bytes are not a valid launch plan."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that host code allocates. ``fill`` is the byte that fills it; None leaves it uninitialized."""

    size_bytes: int
    fill: int | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """One compiled device function."""

    name: str
    binary: bytes
    shared_bytes: int
    warps: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer argument of a launch. It points into input or buffer number ``number``; ``kind`` says which of the two."""

    kind: str
    number: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number as an argument of a launch, with one of the types in :data:`SCALARS`."""

    type: str
    value: int | float

    def packed(self) -> bytes:
        """Return the bytes that the device function reads. Raise PlanRefused if the value does not fit the type."""
        try:
            return struct.pack(SCALARS[self.type], float(self.value) if "f" in self.type else int(self.value))
        except (struct.error, OverflowError) as error:
            raise PlanRefused(f"the argument {self.value!r} of a launch does not fit its type {self.type}") from error


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of the device function number ``kernel``.

    ``scratch_bytes`` is memory that each program needs in addition to its arguments.
    """

    kernel: int
    grid: tuple[int, int, int]
    arguments: tuple[Pointer | Scalar, ...]
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """All allocations and launches of one call. ``outputs`` are the returned arrays; each is a whole buffer."""

    capability: int
    """Compute capability for which the device code was compiled; 90 is 9.0."""
    buffers: tuple[Buffer, ...]
    kernels: tuple[Code, ...]
    launches: tuple[Launch, ...]
    outputs: tuple[Pointer, ...]

    @property
    def scratch_bytes(self) -> int:
        """Return the number of bytes of all buffers together."""
        return sum(one.size_bytes for one in self.buffers)


def encode(plan: LaunchPlan) -> bytes:
    """Return the plan as bytes. Equal plans give equal bytes."""
    header = {
        "version": VERSION,
        "capability": plan.capability,
        "buffers": [[one.size_bytes, one.fill] for one in plan.buffers],
        "kernels": [[one.name, len(one.binary), one.shared_bytes, one.warps] for one in plan.kernels],
        "launches": [
            [one.kernel, list(one.grid), [_plain(argument) for argument in one.arguments], one.scratch_bytes]
            for one in plan.launches
        ],
        "outputs": [_plain(one) for one in plan.outputs],
    }
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    return _LENGTH.pack(len(text)) + text + b"".join(one.binary for one in plan.kernels)


def decode(data: bytes, input_bytes: Sequence[int], output_bytes: Sequence[int]) -> LaunchPlan:
    """Return the plan in ``data``. Raise PlanRefused if any part of the plan is invalid, or does not fit inputs and
    outputs of these sizes.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        raw = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        if not isinstance(raw, dict) or raw.get("version") != VERSION:
            raise PlanRefused("the launch plan was written by another version of acceld")
        plan = _read(raw, data[_LENGTH.size + length :])
    except PlanRefused:
        raise
    except (struct.error, ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as error:
        raise PlanRefused(f"the bytes are not a launch plan: {type(error).__name__}: {error}"[:300]) from error
    _verify(plan, input_bytes, output_bytes)
    return plan


def _plain(argument: Pointer | Scalar) -> list[Any]:
    if isinstance(argument, Pointer):
        return [argument.kind, argument.number, argument.offset_bytes]
    return [argument.type, argument.value]


def _read(raw: dict[str, Any], code: bytes) -> LaunchPlan:
    kernels, at = [], 0
    for name, size, shared, warps in raw["kernels"]:
        size = _whole(size)
        kernels.append(Code(str(name)[:512], code[at : at + size], _whole(shared), _whole(warps)))
        at += size
    if at != len(code) or at > MAX_CODE_BYTES:
        raise PlanRefused("the plan's device code has another length than its header says")
    buffers = tuple(Buffer(_whole(size), None if fill is None else _whole(fill)) for size, fill in raw["buffers"])
    launches = tuple(
        Launch(_whole(kernel), _grid(grid), tuple(map(_argument, arguments)), _whole(scratch))
        for kernel, grid, arguments, scratch in raw["launches"]
    )
    outputs = tuple(map(_argument, raw["outputs"]))
    for number, one in enumerate(outputs):
        if not isinstance(one, Pointer):
            raise PlanRefused(f"output {number} of the plan is a number ({one.type}): it must point to a buffer")
    pointers = tuple(one for one in outputs if isinstance(one, Pointer))
    return LaunchPlan(_whole(raw["capability"]), buffers, tuple(kernels), launches, pointers)


def _argument(raw: Any) -> Pointer | Scalar:
    if raw[0] in ("input", "buffer") and len(raw) == 3:
        return Pointer(raw[0], _whole(raw[1]), _whole(raw[2]))
    if raw[0] in SCALARS and len(raw) == 2 and isinstance(raw[1], int | float):
        scalar = Scalar(raw[0], raw[1])
        scalar.packed()
        return scalar
    raise PlanRefused(f"the plan has an argument that a kernel can not take: {str(raw)[:80]}")


def _grid(raw: Any) -> tuple[int, int, int]:
    x, y, z = map(_whole, raw)
    if not (1 <= x < 1 << 31 and 1 <= y < 1 << 16 and 1 <= z < 1 << 16):
        raise PlanRefused(f"the plan has a grid of {x} x {y} x {z} programs, which no GPU takes")
    return x, y, z


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PlanRefused(f"the plan has {str(value)[:80]!r} in place of a whole number of 0 or more")
    return value


def _verify(plan: LaunchPlan, input_bytes: Sequence[int], output_bytes: Sequence[int]) -> None:
    if len(plan.buffers) > MAX_BUFFERS or len(plan.launches) > MAX_LAUNCHES or len(plan.kernels) > MAX_LAUNCHES:
        raise PlanRefused(
            f"the plan has more buffers or launches than are allowed: {len(plan.buffers)} buffers of {MAX_BUFFERS}, "
            f"{len(plan.launches)} launches of {MAX_LAUNCHES}"
        )
    if plan.scratch_bytes > MAX_SCRATCH_BYTES:
        raise PlanRefused(f"the plan allocates {plan.scratch_bytes} bytes, and {MAX_SCRATCH_BYTES} are allowed")
    if any((one.fill or 0) > 255 for one in plan.buffers):
        raise PlanRefused("the plan fills a buffer with a number above 255, which is not a byte")
    sizes = {"input": list(input_bytes), "buffer": [one.size_bytes for one in plan.buffers]}
    for launch in plan.launches:
        if launch.kernel >= len(plan.kernels) or len(launch.arguments) > MAX_ARGUMENTS:
            raise PlanRefused(f"the plan launches kernel {launch.kernel}, which the plan does not have")
        for argument in launch.arguments:
            if isinstance(argument, Pointer) and argument.offset_bytes > _size(sizes, argument):
                raise PlanRefused(f"the plan has a pointer behind the end of {argument.kind} {argument.number}")
    for one in plan.kernels:
        if not 1 <= one.warps <= 32:
            raise PlanRefused(f"the plan has a kernel with {one.warps} warps, and 1 to 32 are allowed")
    if len(plan.outputs) != len(output_bytes):
        raise PlanRefused(f"the plan has {len(plan.outputs)} outputs instead of {len(output_bytes)}")
    for output, size in zip(plan.outputs, output_bytes, strict=True):
        if output.kind != "buffer" or output.offset_bytes + size > _size(sizes, output):
            raise PlanRefused("an output of the plan does not lie entirely in memory that the kernel allocated")


def _size(sizes: dict[str, list[int]], pointer: Pointer) -> int:
    if pointer.number >= len(sizes[pointer.kind]):
        raise PlanRefused(f"the plan points to {pointer.kind} {pointer.number}, which does not exist")
    return sizes[pointer.kind][pointer.number]
