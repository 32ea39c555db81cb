"""Note what is legal but is known to compile wrongly or slowly: large programs, and statements that AWS's users
reported.

A kernel with notes is not refused, because kernels with such statements have also run on chips.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod

from acceld.chips import chip_spec
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Access, Buffer, Instruction, Loop, LoopKind, Notice, Program, Space

UNROLLED = 1_000_000
"""Number of instructions after unrolling from which on a note warns that compiling is slow.

Fitted to one public report (aws-neuron-sdk issue 1374, neuronx-cc 2.26): a kernel with two matrix products and about
2.6 million unrolled instructions took more than 30 minutes and 30 GB, if it compiled at all.
"""


def doubts(program: Program, nki: str | None = None) -> tuple[Notice, ...]:
    """Return the notes on a program, sorted by line, without repetitions.

    ``nki`` is the version of the package ``nki`` to compile for. Without it, the memory of a program of the
    current API is not examined.
    """
    if program.api == "nki_legacy":
        found = [*_of_legacy(program)]
    else:
        found = [*_of_size(program), *(_of_memory(program, nki) if nki is not None else ())]
        found += _of_chains(program) if chip_spec(program.chip).generation == 2 else ()
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.line))


def _of_memory(program: Program, nki: str) -> Iterator[Notice]:
    """Yield a note for SBUF and for PSUM if the tiles that are in use at some instruction do not fit.

    Up to NKI 0.6 the compiler refuses such a program. From 0.7 on the compiler's fallback allocator spills tiles (AWS's
    pages on the two versions).

    A tile is in use from its first to its last use in program order. The tile counts once for all iterations of the
    loops around its declaration. So the sum of the tiles' bytes is a lower bound. Tiles with an address of their own
    are not counted.
    """
    chip = chip_spec(program.chip)
    later = tuple(map(int, nki.split("."))) >= (0, 7)
    does = f"NKI {nki} spills what does not fit" if later else f"NKI {nki} refuses that (out of memory); 0.7 spills"
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    lines: list[int] = []
    for position, (instruction, _) in enumerate(program.walk()):
        lines.append(instruction.line)
        for access in instruction.accesses:
            first.setdefault(access.buffer, position)
            last[access.buffer] = position
    for space, room in (
        (Space.SBUF, chip.sbuf_bytes_per_partition),
        (Space.PSUM, chip.psum_banks * chip.psum_bank_bytes),
    ):
        change = [0] * (len(lines) + 1)
        for number, begin in first.items():
            buffer = program.buffers[number]
            if buffer.space is space and buffer.address is None:
                change[begin] += _row_bytes(buffer)
                change[last[number] + 1] -= _row_bytes(buffer)
        sums = list(accumulate(change))
        most = max(sums)
        if most > room:
            line = lines[sums.index(most)]
            yield Notice(line, f"tiles of {most} B a partition are in use here, but {space.value} has {room}: {does}")


def _of_chains(program: Program) -> Iterator[Notice]:
    """Yield a note for a PSUM tile in which one chain of accumulating matrix products begins before another has ended.

    foxl-ai/kiln reports that on trn1 (nki 0.6.0, SDK 2.32) all chains but the last lose their first product, while AWS's
    simulator adds it. A chain begins with a product that replaces its region, and goes on with products that add to it.
    """
    open_at: dict[int, tuple[Access, int]] = {}
    for instruction, _ in program.walk():
        if instruction.op != "matmul":
            continue
        region = instruction.dsts[0]
        begun = open_at.get(region.buffer)
        if instruction.attr("accumulate") == "no":
            open_at[region.buffer] = (region, instruction.line)
        elif begun is not None and begun[0] != region:
            yield Notice(
                instruction.line,
                f"{_name(program.buffers[region.buffer])} has several chains of accumulating products at once: on trn1 all but the "
                f"one that line {begun[1]} begins are reported to lose their first product (SDK 2.32); give each a PSUM tile",
            )


def _row_bytes(buffer: Buffer) -> int:
    """Return the bytes that all tiles of a buffer take in one partition."""
    return buffer.elements // buffer.shape[buffer.partition_axis] * DTYPE_BYTES[buffer.dtype]


def _of_size(program: Program) -> Iterator[Notice]:
    count = sum(prod(loop.trips for loop in around if not loop.at_run_time) for _, around in program.walk())
    if count >= UNROLLED:
        yield Notice(
            0,
            f"{count / 1e6:.1f} million instructions after unrolling: compiling may take an hour or more and tens of GB "
            "(fitted to one public report); a launch of fewer tiles, or nl.fori_loop, keeps it small",
        )


def _of_legacy(program: Program) -> Iterator[Notice]:
    """Yield notes on two constructs of the legacy API.

    One is an addition in place in an affine loop. The other is a tile that a sequential loop writes as a whole
    although the tile is declared outside of the loop.
    """
    written: dict[tuple[int, int], bool] = {}
    """True while the first use of a buffer in an iteration of a loop was a write of the whole buffer, by loop and
    buffer.
    """
    for instruction, around in program.walk():
        for loop in around:
            if loop.kind is LoopKind.AFFINE:
                yield from _in_place(program, instruction, around, loop)
            elif loop.kind is LoopKind.SEQUENTIAL:
                yield from _beside(program, instruction, around, loop, written)


def _in_place(program: Program, instruction: Instruction, around: Sequence[Loop], loop: Loop) -> Iterator[Notice]:
    if instruction.op not in ("tensor_tensor", "tensor_scalar") or not instruction.dsts:
        return
    target = instruction.dsts[0]
    buffer = program.buffers[target.buffer]
    carried = loop.id not in buffer.scope and not any(loop.id in dict(start.terms) for start in target.start)
    if carried and buffer.space is not Space.HBM and target in instruction.srcs:
        yield Notice(
            instruction.line,
            f"{_name(buffer)} is updated in place in nl.affine_range by an instruction that is not a matrix product: AWS "
            "names that as a cause of wrong results; use nl.sequential_range, or a tile for each iteration and nl.loop_reduce",
        )


def _beside(
    program: Program,
    instruction: Instruction,
    around: Sequence[Loop],
    loop: Loop,
    written: dict[tuple[int, int], bool],
) -> Iterator[Notice]:
    depth = next(place for place, one in enumerate(around) if one.id == loop.id)
    for access in instruction.accesses:
        buffer = program.buffers[access.buffer]
        if buffer.space is Space.HBM or loop.id in buffer.scope:
            continue
        key = (loop.id, access.buffer)
        if key not in written:
            reads = access.buffer in {one.buffer for one in instruction.srcs if isinstance(one, Access)}
            whole = access.elements == buffer.elements and not any(one.const or one.terms for one in access.start)
            written[key] = whole and not reads and not instruction.mask and depth == len(around) - 1
        elif written[key] and access not in instruction.dsts and depth < len(around) - 1:
            yield Notice(
                buffer.line,
                f"{_name(buffer)} is declared outside of the sequential loop of line {loop.line}, written as a whole in that loop "
                "and read by a loop inside of that loop: a user saw only the last iteration's data (aws-neuron-sdk issue 1045); "
                "declare the tile in the sequential loop",
            )
            written[key] = False


def _name(buffer: Buffer) -> str:
    return f"the tile {buffer.name}" if buffer.name else "a tile"
