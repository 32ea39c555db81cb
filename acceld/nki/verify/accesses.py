"""Check the rules on single accesses of a program: bounds, partitions, PSUM banks, block dimensions, capacity."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from math import gcd, prod

from acceld.chips import FREE_AXES
from acceld.nki.ir.operations import DTYPE_BYTES, OPS, Memory, Trait, having
from acceld.nki.ir.program import Access, Affine, Buffer, Engine, Instruction, Loop, Operand, Pattern, Space
from acceld.nki.ir.regions import box, free_axes, index_bounds
from acceld.nki.ir.spaces import AxisMap, iteration_space
from acceld.nki.verify.findings import Report
from acceld.nki.verify.limits import RuleBook

_ENUMERATED = 4096
_ENUMERATED_MASKED = 100_000
_ENUMERATED_IN_ALL = 1_000_000
_CONTROL = having(Trait.CONTROL)
_QUARTERS = 4
"""Number of equal groups (quarters) of partitions: 4 groups of 32 of the 128 partitions.

A tensor of at most 32 partitions begins at a multiple of 32. A tensor of 33 to 64 partitions begins at a multiple of
64.
"""


class Accesses:
    """Check every tile that an instruction accesses against the declaration of its buffer and the limits of the chip."""

    def __init__(self, report: Report, rules: RuleBook, loops: Mapping[int, Loop]) -> None:
        self.report, self.rules = report, rules
        self.trips = {number: loop.trips for number, loop in loops.items()}
        self.dynamic = {number for number, loop in loops.items() if loop.trips_register is not None}
        self._left = _ENUMERATED_IN_ALL
        self._fine: set[tuple[Access, tuple[Pattern, ...], AxisMap | None, bool]] = set()

    def buffers(self) -> None:
        """Check the declaration of every buffer, and the HBM that all tensors need together."""
        self._memory()
        for buffer in self.report.program.buffers:
            if buffer.space is Space.HBM:
                continue
            partitions = buffer.shape[buffer.partition_axis]
            if partitions > self.rules.chip.partitions:
                self.report.add(
                    "partition_limit",
                    buffer,
                    f"number of partitions {partitions} exceed architecture limitation of {self.rules.chip.partitions}",
                    "tile the first dimension by 128",
                )
            if buffer.partition_axis > 0 and not self.rules.block_dimensions:
                self.report.add(
                    "block_dim",
                    buffer,
                    f"{buffer.name or f'buffer {buffer.id}'} has block dimensions {buffer.shape[: buffer.partition_axis]}",
                    "put the blocks on the free axis, or use a list of tensors",
                )
            self._address(buffer, partitions)

    def _memory(self) -> None:
        """Check that the tensors in HBM fit into one core's share of HBM, or with LNC 2 into the share of two cores.

        A tensor that both cores use counts only once.
        """
        inside = [buffer for buffer in self.report.program.buffers if buffer.space is Space.HBM]
        total = sum(buffer.elements * DTYPE_BYTES[buffer.dtype] for buffer in inside)
        limit = self.rules.chip.hbm_capacity_bytes * max(1, self.report.program.lnc)
        if total > limit:
            largest = max(inside, key=lambda buffer: buffer.elements * DTYPE_BYTES[buffer.dtype])
            self.report.add(
                "hbm_capacity",
                largest,
                f"the tensors in HBM take {total >> 20} MiB; a core of {self.rules.chip.name} has {limit >> 20} MiB",
                "use smaller tensors",
            )

    def _address(self, buffer: Buffer, partitions: int) -> None:
        for partition, offset in dict.fromkeys(buffer.places):
            self._place(buffer, partitions, partition, offset)

    def _place(self, buffer: Buffer, partitions: int, partition: int, offset: int) -> None:
        size = free_bytes(buffer)
        capacity = self.capacity(buffer.space)
        if (
            partition < 0
            or partition + partitions > self.rules.chip.partitions
            or offset < 0
            or offset + size > capacity
        ):
            self.report.add(
                f"{buffer.space.value}_capacity",
                buffer,
                f"Allocated memory out of bound: {buffer.name or f'buffer {buffer.id}'} at partition {partition}, "
                f"byte {offset}, with {partitions} partitions of {size} bytes; {buffer.space.value.upper()} has "
                f"{self.rules.chip.partitions} of {capacity}",
                "choose a lower address or a smaller tensor",
            )
        elif buffer.space is Space.PSUM:
            self._bank(buffer, offset, size)

    def _bank(self, buffer: Buffer, offset: int, size: int) -> None:
        bank = self.rules.chip.psum_bank_bytes
        if self.rules.psum_starts_on_bank and offset % bank:
            message = f"a PSUM tensor starts at byte {offset}"
        elif size <= bank < offset % bank + size:
            message = f"a PSUM tensor of {size} bytes at byte {offset} lies in two banks"
        else:
            return
        self.report.add("psum_bank", buffer, message, f"start on a multiple of {bank} bytes")

    def capacity(self, space: Space) -> int:
        """Return the bytes of one partition of SBUF or PSUM."""
        chip = self.rules.chip
        return chip.psum_bytes_per_partition if space is Space.PSUM else chip.sbuf_bytes_per_partition

    def check(self, instruction: Instruction) -> None:
        """Check every tile that an instruction accesses."""
        space = iteration_space(instruction)
        lazy = instruction.op == "memset" and bool(instruction.attr("lazy"))
        for operand, axes in self._operands(instruction, space.srcs, space.dsts):
            if isinstance(operand, Access):
                self._tile(instruction, operand, axes, lazy)
        if not lazy:
            self._together(instruction)
            self._in_one_bank(instruction)

    def check_arguments(self, instruction: Instruction) -> None:
        """Check those tiles of an instruction without a mask that lie in HBM.

        That suffices if an equal instruction has passed :meth:`check` before, and only tiles in HBM differ.
        """
        for access in instruction.accesses:
            if self.report.buffer(access).space is Space.HBM:
                self._bounds(instruction, access, None)

    @staticmethod
    def _operands(
        instruction: Instruction, srcs: tuple[AxisMap | None, ...], dsts: tuple[AxisMap | None, ...]
    ) -> Iterator[tuple[Operand, AxisMap | None]]:
        yield from zip(instruction.srcs, srcs, strict=True)
        yield from zip(instruction.dsts, dsts, strict=True)

    def _tile(self, instruction: Instruction, access: Access, axes: AxisMap | None, lazy: bool) -> None:
        engine = OPS[instruction.op].memory is not Memory.DMA and instruction.op not in _CONTROL
        key = (access, instruction.mask, axes, engine and not lazy)
        if key in self._fine:
            return
        before = self.report.noted
        self._bounds(instruction, access, axes)
        for one in access.indirect:
            if one.index is not None:
                self._bounds(instruction, one.index, None)
        if self.report.buffer(access).space is not Space.HBM and not lazy:
            self._partitions(instruction, access, engine)
        if self.report.noted == before:
            self._fine.add(key)

    def _bounds(self, instruction: Instruction, access: Access, axes: AxisMap | None) -> None:
        if any(dim.count == 0 for dim in access.dims):
            return
        buffer = self.report.buffer(access)
        unknown = {one.dim for one in access.indirect}
        region = None if instruction.mask else box(access)
        for d, size in enumerate(buffer.shape):
            if d in unknown:
                continue
            if region is not None:
                low, last = region.starts[d].bounds(self.trips)
                high = last + region.extents[d] - 1
            else:
                low, high = index_bounds(access, d, self.trips, instruction.mask, axes)
            if 0 <= low and high < size:
                continue
            if any(loop in self.dynamic for loop, _ in access.start[d].terms):
                continue
            if instruction.mask and not self._surely_outside(instruction, access, axes, d, size):
                continue
            self.report.add(
                "out_of_bounds",
                instruction,
                f"Out-of-bound access for tensor {buffer.name or f'buffer {buffer.id}'} on dimension {d}: index range "
                f"[{low}, {high}] exceed dimension size of {size}",
                "check the index, or mask the elements beyond the edge",
            )
            return

    def _surely_outside(
        self, instruction: Instruction, access: Access, axes: AxisMap | None, d: int, size: int
    ) -> bool:
        """Tell whether it is proved that in some iteration the mask includes an index that is out of bounds.

        Return False, too, if the proof would take too long.
        """
        loops = sorted(
            {loop for loop, _ in access.start[d].terms}
            | {loop for pattern in instruction.mask for loop, _ in pattern.base.terms}
        )
        total = prod(self.trips[loop] for loop in loops)
        if total > min(_ENUMERATED_MASKED, self._left):
            return False
        self._left -= total
        self.report.tick()
        single = [p for p in instruction.mask if sum(coef != 0 for coef in p.coefs) <= 1]
        if len(single) != len(instruction.mask) or axes is None:
            return False
        for values in itertools.product(*(range(self.trips[loop]) for loop in loops)):
            env = dict(zip(loops, values, strict=True))
            low, high = self._cropped(instruction.mask, access, axes, d, env)
            if low is not None and (low < 0 or high >= size):
                return True
        return False

    @staticmethod
    def _cropped(
        mask: tuple[Pattern, ...], access: Access, axes: AxisMap, d: int, env: dict[int, int]
    ) -> tuple[int | None, int]:
        low = high = access.start[d].at(env)
        ranges = [[0, dim.count] for dim in access.dims]
        for pattern in mask:
            base = pattern.base.at(env)
            where = next((k for k, coef in enumerate(pattern.coefs) if coef), -1)
            if where < 0:
                if base < 0:
                    return None, 0
                continue
            coef = pattern.coefs[where]
            for axis, target in enumerate(axes):
                if target == where:
                    if coef > 0:
                        ranges[axis][0] = max(ranges[axis][0], -(base // coef))
                    else:
                        ranges[axis][1] = min(ranges[axis][1], base // -coef + 1)
        for (first, end), dim in zip(ranges, access.dims, strict=True):
            if first >= end:
                return None, 0
            ends = (first * dim.steps[d], (end - 1) * dim.steps[d])
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _partitions(self, instruction: Instruction, access: Access, engine: bool) -> None:
        buffer, line = self.report.buffer(access), instruction
        axis = buffer.partition_axis
        first = access.dims[0] if access.dims else None
        count = first.count if first is not None else 1
        if count > self.rules.chip.partitions:
            self.report.add(
                "partition_limit",
                line,
                f"number of partitions {count} exceed architecture limitation of {self.rules.chip.partitions}",
                "tile the first dimension by 128",
            )
            return
        if (engine or self.rules.legacy) and any(dim.steps[axis] and dim.count > 1 for dim in access.dims[1:]):
            self.report.add(
                "partition_axis",
                line,
                f"a free axis of {self.report.name(access)} moves along the partitions",
                "put the axis of partitions first in the tile",
            )
            return
        if not engine:
            return
        if (
            first is not None
            and count > 1
            and (first.steps[axis] != 1 or any(step for d, step in enumerate(first.steps) if d != axis))
        ):
            self.report.add(
                "partition_stride",
                line,
                f"the partitions of {self.report.name(access)} are not one contiguous run",
                "use neighboring partitions; move data with a DMA or a transpose",
            )
            return
        self._start_partition(instruction, access, buffer, count)
        if self.rules.legacy and not self.rules.strict:
            # no limit applies: the legacy compiler splits such expressions, and calls of nisa were checked while
            # tracing
            return
        axes = free_axes(access, buffer)
        if axes > FREE_AXES:
            self.report.add(
                "access_pattern",
                line,
                f"{self.report.name(access)} has {axes} free axes; an engine takes {FREE_AXES}",
                "merge axes, or split the instruction",
            )

    def _start_partition(self, instruction: Instruction, access: Access, buffer: Buffer, count: int) -> None:
        if any(one.dim == buffer.partition_axis for one in access.indirect):
            return
        start = access.start[buffer.partition_axis]
        if buffer.address is not None:
            start = start + buffer.address[0]
        if instruction.mask and start.terms:
            return
        step = 32 if count <= 32 else 64 if count <= 64 else 128
        wrong = next((value for value in self._values(start, step) if value % step), None)
        if wrong is not None:
            allowed = {32: "0, 32, 64 or 96", 64: "0 or 64", 128: "0"}[step]
            self.report.add(
                "start_partition",
                instruction,
                f"{self.report.name(access)} starts at partition {wrong}; a tile of {count} partitions starts at "
                f"{allowed}",
                "move the data to a legal start partition, or use more partitions",
            )

    def _values(self, start: Affine, modulus: int) -> Iterator[int]:
        """Yield one value of ``start`` for each remainder modulo ``modulus`` that ``start`` has in some iteration.

        If no loop changes the remainder, yield only the constant part.
        """
        loops = [(loop, coef) for loop, coef in start.terms if coef % modulus and self.trips[loop] > 1]
        spans = [min(self.trips[loop], modulus // gcd(coef, modulus)) for loop, coef in loops]
        for count, values in enumerate(itertools.product(*(range(span) for span in spans))):
            if count > _ENUMERATED:
                return
            yield start.const + sum(coef * i for (_, coef), i in zip(loops, values, strict=True))

    def _in_one_bank(self, instruction: Instruction) -> None:
        """Check that the result of a matrix product, or of a transpose by the tensor engine, is in a single PSUM bank
        in every iteration.
        """
        by_array = OPS[instruction.op].is_product or (
            instruction.op == "transpose" and instruction.engine is Engine.TENSOR
        )
        for dst in instruction.dsts if by_array else ():
            buffer, bank = self.report.buffer(dst), self.rules.chip.product_row_bytes
            if buffer.space is not Space.PSUM or not dst.elements:
                continue
            item, first, ends = DTYPE_BYTES[buffer.dtype], Affine(), [0]
            for d in range(buffer.partition_axis + 1, len(buffer.shape)):
                width = buffer.strides[d] * item
                first += dst.start[d].scale(width)
                ends += [(dim.count - 1) * dim.steps[d] * width for dim in dst.dims[1:]]
            low, high = sum(end for end in ends if end < 0), sum(end for end in ends if end > 0) + item
            # another check has already refused a product that is wider than a bank
            wide = prod(dst.shape[1:]) * item > bank
            if not wide and any((place + low) % bank + high - low > bank for place in self._values(first, bank)):
                self.report.add(
                    "psum_bank",
                    instruction,
                    f"{self.report.name(dst)} lies in two PSUM banks",
                    f"start the tile on a multiple of {bank} bytes",
                )

    def _together(self, instruction: Instruction) -> None:
        """Check that all operands of an instruction fit into SBUF and PSUM at the same time."""
        if instruction.op in _CONTROL:
            return
        for space in (Space.SBUF, Space.PSUM):
            tiles = {
                access: tile_bytes(access, self.report.buffer(access))
                for access in instruction.accesses
                if self.report.buffer(access).space is space
            }
            capacity = self.capacity(space)
            if sum(tiles.values()) <= capacity:
                continue
            needed = self._fullest_partition(tiles, {src for src in instruction.srcs if isinstance(src, Access)})
            if needed > capacity:
                listed = "; ".join(f"{self.report.name(access)}: {size} bytes" for access, size in tiles.items())
                self.report.add(
                    f"{space.value}_capacity",
                    instruction,
                    f"{instruction.op} accesses {needed} bytes per partition of {space.value.upper()}, which has "
                    f"{capacity} ({listed})",
                    "use smaller tiles",
                )

    def _fullest_partition(self, tiles: Mapping[Access, int], read: Collection[Access]) -> int:
        """Return the bytes that the tiles need in the fullest partition, with the best choice of partitions for
        their tensors.

        Tensors of at most 64 partitions can lie beside each other. Tensors in ``read`` must start at the same
        partition.
        """
        sizes: dict[int, int] = defaultdict(int)
        for access, size in tiles.items():
            sizes[access.buffer] += size
        sources = {access.buffer for access in read}
        return min(
            (
                max(
                    sum(size for size, place in zip(sizes.values(), placed, strict=True) if quarter in place)
                    for quarter in range(_QUARTERS)
                )
                for placed in itertools.product(*map(self._places, sizes))
                if len({place.start for number, place in zip(sizes, placed, strict=True) if number in sources}) <= 1
            ),
            default=sum(sizes.values()),
        )

    def _places(self, number: int) -> list[range]:
        """Return the ranges of partitions that a tensor of ``number`` partitions may occupy, counted in quarters of
        all partitions.

        A tensor occupies a single quarter, two adjacent quarters, or all four quarters.
        """
        buffer, quarter = self.report.program.buffers[number], self.rules.chip.partitions // _QUARTERS
        taken = -(-buffer.shape[buffer.partition_axis] // quarter)
        if buffer.address is not None:
            starts = range(buffer.address[0] // quarter, buffer.address[0] // quarter + 1)
        else:
            starts = range(0, _QUARTERS, taken if taken <= 2 else _QUARTERS)
        return [range(start, start + taken) for start in starts]


def free_bytes(buffer: Buffer) -> int:
    """Return the bytes that one tile of a buffer takes in each partition."""
    return prod(buffer.shape[buffer.partition_axis + 1 :]) * DTYPE_BYTES[buffer.dtype]


def tile_bytes(access: Access, buffer: Buffer) -> int:
    """Return the bytes of a tile's elements in one partition. An element that the access reads several times counts
    once.
    """
    moving = [dim for dim in access.dims[1:] if any(dim.steps)]
    return prod(dim.count for dim in moving) * DTYPE_BYTES[buffer.dtype]
