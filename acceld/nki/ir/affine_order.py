"""Prove, without running a program, that the order of affine iterations changes nothing but the rounding of sums.

Where no proof is found, :mod:`acceld.nki.execute.iterations` follows the program's values while it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from acceld.nki.ir.def_use import (
    Use,
    accumulation,
    is_product,
    reduce_command,
    register_written,
    registers_read,
    uses_of,
)
from acceld.nki.ir.operations import MEETINGS, RANDOM
from acceld.nki.ir.program import Access, Instruction, Loop, LoopKind, Program
from acceld.nki.ir.regions import box, coefficient

_LOCAL = ("idle", "reset_reduce")
"""Commands to an engine's accumulators after which no later instruction can use what the accumulators hold."""
_MOST_USES = 100_000
"""Greatest number of uses for which a proof is tried; a use counts once more for each affine loop around it."""


def order_changes_only_sums(program: Program) -> bool:
    """Tell whether it is proved that every order of affine iterations gives the same outputs, up to the rounding of
    sums.
    """
    return not undecided(program)


def unordered(program: Program) -> frozenset[int]:
    """Return the loops of several iterations that have no order: affine loops, and on one core the launch grid."""
    kinds = (LoopKind.AFFINE, LoopKind.SPMD) if program.lnc == 1 else (LoopKind.AFFINE,)
    return frozenset(number for number, loop in program.loops.items() if loop.kind in kinds and loop.trips > 1)


def undecided(program: Program) -> dict[int, frozenset[int]]:
    """Return, for each affine loop, the buffers through which an iteration may see what another iteration did.

    A loop is left out if it has no such buffer, and no instruction that uses something besides its tiles. A buffer is
    left out if it is not written in the loop, or in four cases: the buffer is declared and used in the loop alone; no
    two iterations use the same element of the buffer; the loop uses the buffer only as the destination of products
    that are added up; or the loop only adds tiles to the buffer in place.
    """
    free = unordered(program)
    inside: dict[int, list[Use]] = {}
    affine: dict[int, Loop] = {}
    stateful: set[int] = set()
    everywhere: Counter[int] = Counter()
    """The number of uses of each buffer in the whole program, by the buffer's id."""
    left = _MOST_USES
    for position, (instruction, loops) in enumerate(program.walk()):
        around = [loop for loop in loops if loop.id in free]
        found = uses_of(instruction, tuple(loops), position)
        everywhere.update(use.access.buffer for use in found)
        left -= len(found) * (1 + len(around))
        if around and _has_state(instruction, loops):
            stateful.update(loop.id for loop in around)
        for loop in around:
            affine[loop.id] = loop
            inside.setdefault(loop.id, []).extend(found)
    trips = {number: loop.trips for number, loop in program.loops.items()}
    proves = left >= 0 and program.lnc == 1
    open_buffers = {
        number: frozenset(
            _connecting(program, affine[number], uses, everywhere, trips)
            if proves
            else {use.access.buffer for use in uses if use.writes}
        )
        for number, uses in inside.items()
    }
    return {number: found for number, found in open_buffers.items() if found or number in stateful or not proves}


def _has_state(instruction: Instruction, loops: Sequence[Loop]) -> bool:
    """Tell whether an instruction may use or change something besides its tiles, such as a register."""
    return (
        instruction.op in RANDOM
        or instruction.op in MEETINGS
        or instruction.attr("loops") is not None
        or reduce_command(instruction) not in _LOCAL
        or bool(registers_read(instruction))
        or register_written(instruction) is not None
        or any(loop.at_run_time for loop in loops)
    )


def _connecting(
    program: Program, loop: Loop, uses: Iterable[Use], everywhere: Mapping[int, int], trips: Mapping[int, int]
) -> set[int]:
    """Return the buffers whose contents may depend on the order of the iterations of ``loop``, as another iteration
    or the program after the loop sees them.

    Sums of products are left out.
    """
    by_buffer: dict[int, list[Use]] = {}
    for use in uses:
        by_buffer.setdefault(use.access.buffer, []).append(use)
    return {
        number
        for number, found in by_buffer.items()
        if not (
            (loop.id in program.buffers[number].scope and len(found) == everywhere[number])
            or not any(use.writes for use in found)
            or all(_is_added(use) for use in found)
            or (program.buffers[number].dtype == "float32" and all(_adds_in_place(use) for use in found))
            or _are_apart(loop, found, trips)
        )
    }


def _is_added(use: Use) -> bool:
    """Tell whether a use is the destination of a matrix product that adds to the destination's values, or may add to
    them (``accumulate`` is 'auto').
    """
    return use.writes and is_product(use.instruction) and accumulation(use.instruction) != "no"


def _adds_in_place(use: Use) -> bool:
    """Tell whether the instruction of a use does nothing but add another tile, in float32, to a tile of the buffer."""
    instruction = use.instruction
    if instruction.op != "tensor_tensor" or instruction.attr("op") != "add" or len(instruction.dsts) != 1:
        return False
    if any(access.indirect or access.dtype not in ("", "float32") for access in instruction.accesses):
        return False
    sums = [src for src in instruction.srcs if isinstance(src, Access) and src.buffer == use.access.buffer]
    return sums == list(instruction.dsts)


def _are_apart(loop: Loop, uses: Sequence[Use], trips: Mapping[int, int]) -> bool:
    """Tell whether it is proved that no two iterations of ``loop`` touch the same element of a buffer, while each loop
    around ``loop`` stays in one iteration.
    """
    if any(use.indirect for use in uses):
        return False
    return any(_steps_over(loop, uses, trips, dim) for dim in range(len(uses[0].access.start)))


def _steps_over(loop: Loop, uses: Sequence[Use], trips: Mapping[int, int], dim: int) -> bool:
    """Tell whether it is proved that the iterations of ``loop`` use disjoint ranges of indices in dimension ``dim``:
    from one iteration to the next the index moves farther than all uses reach within an iteration.
    """
    step = coefficient(uses[0].access.start[dim], loop.id)
    around = _around(uses[0], loop, dim)
    low: int | None = None
    high = 0
    for use in uses:
        if coefficient(use.access.start[dim], loop.id) != step or _around(use, loop, dim) != around:
            return False
        least, most = _reach(use.access, loop, use.loops, trips, dim)
        low, high = (least, most) if low is None else (min(low, least), max(high, most))
    return low is not None and abs(step) > high - low


def _around(use: Use, loop: Loop, dim: int) -> dict[int, int]:
    """Return how far each loop around ``loop`` moves the start of an access in dimension ``dim``."""
    outer = [one.id for one in use.loops[: [one.id for one in use.loops].index(loop.id)]]
    return {number: coef for number, coef in use.access.start[dim].terms if number in outer}


def _reach(access: Access, loop: Loop, loops: Sequence[Loop], trips: Mapping[int, int], dim: int) -> tuple[int, int]:
    """Return the least and greatest index of an access in dimension ``dim``, in the first iteration of ``loop`` and of
    each loop around it.
    """
    inner = {one.id for one in loops[[one.id for one in loops].index(loop.id) + 1 :]}
    region = box(access)
    low = high = region.starts[dim].const
    for number, coef in region.starts[dim].terms:
        if number in inner:
            reach = coef * (trips[number] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
    return low, high + region.extents[dim] - 1
