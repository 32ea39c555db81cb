"""Compute the cost of one instruction from shapes alone: engine, busy time, array passes, FLOPs, DMA
descriptors.

Formulas are the documented initiation intervals of NKI's legacy ISA reference (SDK 2.26), where N is the number
of elements in one partition. A fixed overhead for each instruction is added
(:mod:`acceld.nki.timing.parameters`). An operation without a rule raises MissingRule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, prod

from acceld.chips import VECTOR_TRANSPOSE, ChipSpec, chip_spec
from acceld.nki.errors import MissingRule, UnsupportedCall
from acceld.nki.ir.operations import DTYPE_BYTES, FLOAT_DTYPES, OPS
from acceld.nki.ir.program import Access, Buffer, Engine, Instruction, Operand, Program, Space
from acceld.nki.timing.parameters import TimelineParams

DMA_OPS = frozenset({"dma_copy", "dma_compute", "dma_transpose", "exchange"})
REGISTER_OPS = frozenset({"register_move", "register_load", "register_store", "register_alu"})
FREE_OPS = frozenset({"print", "random_seed", "bitcast"})
NARROW = frozenset({"bfloat16", "float16"})
_HALF = 2
"""Bytes of half a 32-bit value."""
_SCALAR_EACH_CYCLE = frozenset({"copy", "tensor_scalar", "reciprocal", "loop_reduce", "memset"})
"""Operations of which the scalar engine computes an element in each cycle, and another engine not always."""
_ONE_TILE = frozenset({"copy", "tensor_scalar"})
"""Operations on one tile that the vector engine may run at a multiple of its rate."""
_TWO_TILES = frozenset({"tensor_tensor", "scalar_tensor_tensor", "select", "copy_predicated", "loop_reduce"})
"""Operations that read two tiles."""
QUARTERS = 4
"""Number of groups of DMA engines. Each group serves 32 partitions. A tile of at most 32 partitions begins at a
multiple of 32.
"""
SLOW_ALU = frozenset({"power", "rsqrt"})
"""ALU functions that only GpSimd has. GpSimd computes rsqrt at a quarter of the rate at which the scalar engine
computes it (nl.rsqrt). No figure is published for power on GpSimd, nor for power or rsqrt on the vector engine. The
model uses the same rate for all of them.
"""
FEW = 8
"""Greatest number of elements in a partition that an engine processes within its least interval, even at a quarter of
its rate.
"""
ALL_QUARTERS = (1 << QUARTERS) - 1
GATHERED_BYTES = 4096
"""Greatest number of bytes of one packet in a transfer whose descriptors are made at run time (source: ten public
profiles).
"""
MATMUL_COLUMNS = 512
"""Greatest number of columns of one matrix product: one PSUM bank of float32 results."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one execution of an instruction: its engine, its times, and the work that it does."""

    engine: Engine
    busy_us: float = 0.0
    passes: int = 0
    """Passes through the array of the tensor engine. A float32 matrix product takes two hardware instructions of two
    passes each.
    """
    flops: int = 0
    """FLOPs as neuron-profile counts them: 2 x contracted rows x stationary columns x moving columns, and twice as many
    for float32 products.
    """
    transpose_flops: int = 0
    bytes_moved: int = 0
    """Bytes that a DMA transfer moves; 0 for other instructions."""
    descriptors: int = 0
    row_bytes: int = 0
    """Contiguous bytes that each DMA descriptor moves."""
    rows: float = 1.0
    """Share of the tensor engine's rows that a matrix product occupies."""
    late_us: float = 0.0
    """Time that readers have to wait after the end of a transfer, in addition to the latency that every transfer has.
    """
    quarters: int = 0
    """The quarters of the DMA engines that a transfer uses, one bit for each; 0 if it uses all four."""
    added: tuple[tuple[Engine, float], ...] = ()
    """Engine and microseconds of each instruction that the compiler adds, after a broadcast or a load, or before a
    store.
    """

    @property
    def added_us(self) -> float:
        """Return the total time of the instructions that the compiler adds."""
        return sum([us for _, us in self.added])


@dataclass(frozen=True, slots=True)
class CostModel:
    """Compute the cost of instructions on one chip. Methods raise MissingRule for an operation without a rule."""

    chip: ChipSpec
    params: TimelineParams
    buffers: tuple[Buffer, ...]
    recast: frozenset[int] = frozenset()
    """Buffers whose bits are also read as a dtype of another width, and buffers to which halves of 32-bit values are
    copied before the halves are joined again (:func:`recast_buffers`).
    """
    returned: frozenset[int] = frozenset()
    """Buffers in HBM that the program both stores to and loads from."""

    @classmethod
    def of(cls, program: Program, params: TimelineParams) -> CostModel:
        """Return the cost model for the chip and the buffers of a program."""
        stored: set[int] = set()
        loaded: set[int] = set()
        for instruction, _ in program.walk():
            if instruction.op in DMA_OPS:
                stored.update(dst.buffer for dst in instruction.dsts)
                loaded.update(src.buffer for src in instruction.srcs if isinstance(src, Access))
        returned = {number for number in stored & loaded if program.buffers[number].space is Space.HBM}
        return cls(chip_spec(program.chip), params, program.buffers, recast_buffers(program), frozenset(returned))

    def cost(
        self, instruction: Instruction, engine: Engine, shape: tuple[int, ...], *, handed_over: bool = False
    ) -> Cost:
        """Return the cost of ``instruction`` on ``engine``.

        ``shape`` is the part of the instruction's iteration space inside its mask. ``handed_over`` is True if
        the compiler leaves an operand of a tensor_tensor, or the result of a broadcast, in PSUM. Raise
        UnsupportedCall for collectives, whose times are not published.
        """
        op = instruction.op
        if op in ("collective", "register_rank"):
            raise UnsupportedCall(
                f"the latency of {instruction.attr('kind') or 'rank_id'} of nki.collectives can not be predicted: "
                "AWS publishes no latency of collectives",
                line=instruction.line,
                hint="their values are simulated by acceld.nki.execute.ranks",
            )
        if op in DMA_OPS:
            return self._dma(instruction, shape)
        if op in FREE_OPS or (op == "memset" and instruction.attr("lazy")):
            return Cost(Engine.SYNC)
        if op == "barrier":
            return Cost(Engine.SYNC, busy_us=1.0)
        if op in REGISTER_OPS:
            return self._register(instruction)
        if op in ("matmul", "matmul_mx"):
            return self._matmul(instruction, shape)
        wide = op == "transpose" and max(instruction.dsts[0].shape) > VECTOR_TRANSPOSE
        if op == "transpose" and (wide or engine is Engine.TENSOR):
            return self._transpose(instruction)
        if op == "broadcast_partition":
            return self._broadcast(instruction, shape, handed_over)
        return Cost(engine, self._elementwise(instruction, engine, shape, handed_over))

    def dtype(self, access: Access) -> str:
        """Return the dtype in which ``access`` reads or writes its buffer."""
        return access.dtype or self.buffers[access.buffer].dtype

    def clock(self, engine: Engine) -> float:
        """Return the clock of an engine in GHz."""
        chip = self.chip
        clocks = {
            Engine.TENSOR: chip.tensor_ghz,
            Engine.VECTOR: chip.vector_ghz,
            Engine.SCALAR: chip.scalar_ghz,
            Engine.GPSIMD: chip.gpsimd_ghz,
        }
        return clocks.get(engine, chip.base_ghz)

    def instruction_us(self, engine: Engine, elements: float) -> float:
        """Return the microseconds of an instruction that takes one cycle for each of ``elements`` elements in a
        partition.
        """
        if engine is Engine.SCALAR:
            return self._scalar_us(elements)
        if engine is Engine.VECTOR:
            return self._vector_us(elements)
        if engine is Engine.TENSOR:
            return self._passes_us(1, int(elements))
        return (self.params.gpsimd_start_cycles + elements) / (1000 * self.clock(engine))

    def copy_us(self, elements: int) -> float:
        """Return the time in which the vector engine copies ``elements`` elements of each partition, in
        microseconds.
        """
        return self._vector_us(elements)

    # DMA

    def quarters(self, tile: Access, descriptors: int) -> tuple[int, int]:
        """Return (the quarters of the DMA engines that move ``tile``, the number of engines in use). A quarter is one
        bit of the number; 0 stands for all quarters.

        Each engine serves eight partitions of SBUF and takes eight descriptors at a time (AWS's page "DMA overview").
        Rows that are divided into many descriptors use all engines. A tile of at most 32 partitions is taken to begin
        at a multiple of 32.
        """
        chip, buffer = self.chip, self.buffers[tile.buffer]
        rows = tile.shape[0] if buffer.space is not Space.HBM else chip.partitions
        engines = min(chip.dma_engines, ceil(max(rows, descriptors) / self.params.engine_partitions))
        if engines == chip.dma_engines:
            return 0, engines
        quarter, first = chip.partitions // QUARTERS, tile.start[buffer.partition_axis].const
        bits = [1 << at % QUARTERS for at in range(first // quarter, (first + rows - 1) // quarter + 1)]
        return sum(bits) % ALL_QUARTERS, engines

    def transfer_us(self, descriptors: int, row_bytes: int, itemsize: int = 4) -> float:
        """Return the microseconds of a transfer that all DMA engines share: ``descriptors`` rows of ``row_bytes``
        bytes.

        The rate of long rows has a limit, which is lower for elements of less than four bytes.
        """
        chip = self.chip
        slower = self.params.narrow_transfer_factor if itemsize < 4 else 1.0
        row = chip.dma_descriptor_us + row_bytes / chip.dma_wire_bytes_per_us
        row = max(row, self.params.short_row_us)
        longest = slower * row_bytes / chip.dma_long_row_bytes_per_us
        return self.params.transfer_factor * descriptors * max(row, longest) / chip.dma_engines

    def _dma(self, instruction: Instruction, shape: tuple[int, ...]) -> Cost:
        dst = instruction.dsts[0]
        sources = [src for src in instruction.srcs if isinstance(src, Access)]
        elements = prod(shape) if shape else dst.elements
        if not elements:
            return Cost(Engine.DMA)
        if instruction.op == "dma_transpose" and self.params.turns_on_tensor_engine and len(sources) == 1:
            rows, source = sources[0].shape[0], self.dtype(sources[0])
            row = elements // rows * DTYPE_BYTES[source]
            return self._turned(rows, row, source, ceil(elements / dst.shape[0]))
        row = self._row_bytes(dst, sources, shape)
        itemsize = max(DTYPE_BYTES[self.dtype(a)] for a in (dst, *sources))
        moved = elements * itemsize * max(1, len(sources))
        descriptors = ceil(moved / max(row, 1))
        busy = self.transfer_us(descriptors, row, itemsize)
        if instruction.op == "dma_transpose":
            busy *= 2.0 if self.chip.generation >= 3 else 8.0
        if instruction.op == "dma_compute" or instruction.attr("rmw"):
            busy *= 2.0
        tile = dst if self.buffers[dst.buffer].space is not Space.HBM or not sources else sources[0]
        quarters, engines = self.quarters(tile, descriptors)
        busy = self.params.each_transfer_us + busy * self.chip.dma_engines / engines
        late = self.params.round_trip_us if dst.buffer in self.returned else 0.0
        packets = descriptors if self.params.row_packets else ceil(moved / GATHERED_BYTES)
        made = self._gather_us(packets) if any(access.indirect for access in instruction.accesses) else 0.0
        return Cost(
            Engine.DMA, busy, bytes_moved=moved, descriptors=descriptors, row_bytes=row, late_us=late,
            quarters=quarters, added=((Engine.GPSIMD, made),) if made else (),
        )  # fmt: skip

    def _gather_us(self, packets: int) -> float:
        """Return the microseconds in which GpSimd writes the descriptors of a transfer of ``packets`` packets whose
        addresses are in memory.
        """
        return self.params.gather_us + packets * self.params.gather_packet_us

    def _turned(self, rows: int, row_bytes: int, dtype: str, copied: int) -> Cost:
        """Return the cost of a transfer between HBM and SBUF that transposes a tile of ``rows`` rows in HBM.

        The legacy compiler moves the rows unchanged and transposes the tile on the tensor engine. Then
        ``copied`` elements of each partition are copied out of PSUM. The compiler does not move single elements: two
        loads of single elements would take longer than the whole measured kernel that has two such transposing loads.
        """
        partitions, itemsize = self.chip.partitions, DTYPE_BYTES[dtype]
        busy = self.params.each_transfer_us + self.transfer_us(rows, row_bytes, itemsize)
        blocks = ceil(rows / partitions) * ceil(row_bytes // itemsize / partitions)
        passes = self.params.transpose_passes if itemsize >= 4 else 1
        turns = self._passes_us(passes, min(rows, partitions)) * blocks
        return Cost(
            Engine.DMA, busy, bytes_moved=rows * row_bytes, descriptors=rows, row_bytes=row_bytes,
            added=((Engine.TENSOR, turns), (Engine.SCALAR, self._scalar_us(copied))),
        )  # fmt: skip

    def _row_bytes(self, dst: Access, sources: list[Access], shape: tuple[int, ...]) -> int:
        """Return the bytes that one DMA descriptor moves: they are contiguous in source and destination, in the same
        order.
        """
        row = min(contiguous_bytes(a, self.buffers[a.buffer], shape) for a in (dst, *sources))
        return min([row, *(self._common_bytes(dst, source, shape) for source in sources)])

    def _common_bytes(self, dst: Access, source: Access, shape: tuple[int, ...]) -> int:
        """Return the number of bytes that are contiguous in both tiles along the same axes."""
        there, here = (_element_steps(a, self.buffers[a.buffer]) for a in (dst, source))
        if len(there) == len(here):
            counts = shape if len(shape) == len(dst.dims) else dst.shape
            axes = list(zip(counts, there, here, strict=True))
        else:
            axes = _common_axes(zip(dst.shape, there, strict=True), zip(source.shape, here, strict=True))
        axes = [axis for axis in axes if axis[0] > 1]
        run = 1
        while joined := [axis for axis in axes if abs(axis[1]) == run and axis[1] == axis[2]]:
            axes.remove(joined[0])
            run *= joined[0][0]
        return run * min(DTYPE_BYTES[self.dtype(a)] for a in (dst, source))

    def _register(self, instruction: Instruction) -> Cost:
        """Return the cost of a register instruction: the least initiation interval, and a transfer for each
        operand in HBM.

        No figure is published; this is an assumption.
        """
        busy = self.params.min_interval_cycles / self.chip.base_ghz / 1000
        for access in instruction.accesses:
            if self.buffers[access.buffer].space is Space.HBM:
                busy += self.params.dma_latency_us
        return Cost(Engine.SYNC, busy)

    # tensor engine

    def _passes_us(self, passes: float, columns: int) -> float:
        cycles: float = max(columns, self.params.min_interval_cycles)
        cycles += self.params.overhead_factor * self.params.tensor_overhead_cycles
        return passes * cycles / self.params.most_use / self.chip.tensor_ghz / 1000

    def _matmul(self, instruction: Instruction, shape: tuple[int, ...]) -> Cost:
        stationary, moving = (src for src in instruction.srcs[:2] if isinstance(src, Access))
        rows, columns, free = shape if len(shape) == 3 else matmul_shape(instruction)
        wide = self.dtype(stationary) == "float32" or self.dtype(moving) == "float32"
        turned = bool(instruction.attr("transpose"))
        passes = (self.params.transpose_passes if turned else self.params.float32_passes) if wide else 1
        flops = 2 * rows * columns * free * (2 if wide else 1)
        if instruction.op == "matmul_mx":  # a packed element holds four rows of the contraction
            flops *= 4
        speed = 2.0 if instruction.attr("perf_mode") else 1.0
        pieces = ceil(free / MATMUL_COLUMNS)
        busy = self._passes_us(passes, ceil(free / pieces)) * pieces / speed
        transpose = flops if turned else 0
        return Cost(
            Engine.TENSOR, busy, passes=passes * pieces, flops=flops, transpose_flops=transpose,
            rows=min(1.0, rows / self.chip.partitions),
        )  # fmt: skip

    def _transpose(self, instruction: Instruction) -> Cost:
        data = _tile(instruction.srcs[0])
        partitions, free = data.shape[0], prod(data.shape[1:])
        dtype = self.dtype(data)
        # before trn2 a transpose is computed as a product, and integers are multiplied as float32
        whole = self.chip.generation < 3 and dtype not in FLOAT_DTYPES
        wide = DTYPE_BYTES[dtype] >= 4 or whole
        passes = self.params.transpose_passes if wide else 1
        flops = 2 * partitions * free * partitions * (2 if wide else 1)
        return Cost(
            Engine.TENSOR, self._passes_us(passes, partitions), passes, flops, flops,
            rows=min(1.0, partitions / self.chip.partitions),
        )  # fmt: skip

    def _broadcast(self, instruction: Instruction, shape: tuple[int, ...], handed_over: bool) -> Cost:
        dst = instruction.dsts[0]
        partitions, free = shape[0], prod(shape[1:])
        dtype = self.dtype(dst)
        wide = dtype == "float32" or dtype not in FLOAT_DTYPES  # integers are multiplied as float32
        passes = self.params.float32_passes if wide else 1
        pieces = ceil(free / MATMUL_COLUMNS)
        busy = self._passes_us(passes, min(free, MATMUL_COLUMNS)) * pieces
        copies = self._scalar_us(ceil(free / pieces)) * pieces
        in_psum = handed_over or self.buffers[dst.buffer].space is Space.PSUM
        return Cost(
            Engine.TENSOR,
            busy,
            passes * pieces,
            2 * partitions * free,
            added=() if in_psum else ((Engine.SCALAR, copies),),
        )

    # element-wise engines

    def _scalar_us(self, cycles: float) -> float:
        return self._occupied(cycles, self.params.scalar_overhead_cycles) / self.chip.scalar_ghz / 1000

    def _vector_us(self, cycles: float) -> float:
        return self._occupied(cycles, self.params.vector_overhead_cycles) / self.chip.vector_ghz / 1000

    def _occupied(self, cycles: float, overhead: int) -> float:
        """Return how many cycles an instruction of ``cycles`` cycles occupies its engine.

        The result is ``cycles``, or the least initiation interval if that is longer, plus the part of the overhead that
        does not overlap with the next instruction.
        """
        return max(self.params.min_interval_cycles, cycles) + self.params.overhead_factor * min(cycles, overhead)

    def _elementwise(
        self, instruction: Instruction, engine: Engine, shape: tuple[int, ...], handed_over: bool
    ) -> float:
        elements = float(prod(shape[1:])) if shape else 1.0
        cycles = self._cycles(instruction, engine, elements, handed_over)
        has_second_result = len(instruction.dsts) > 1  # written by an instruction of its own, of the least interval
        if engine is Engine.SCALAR:
            busy = self._scalar_us(cycles)
            if has_second_result:
                busy += self.params.min_interval_cycles / (1000 * self.chip.scalar_ghz)
            return busy
        if engine is Engine.GPSIMD:
            return (self.params.gpsimd_start_cycles + cycles) / (1000 * self.chip.gpsimd_ghz)
        if engine is Engine.VECTOR:
            if has_second_result:
                cycles += self.params.min_interval_cycles
            if self._doubled(instruction):
                # the fixed cost is the same at both rates, so it is computed from the cycles at the single rate
                fixed = self.params.overhead_factor * min(2 * cycles, self.params.double_rate_cycles)
                return (max(self.params.min_interval_cycles, cycles) + fixed) / self.chip.vector_ghz / 1000
            return self._vector_us(cycles)
        raise MissingRule(
            f"no cost rule for {instruction.op} on the {engine.value} engine (line {instruction.line})",
            hint="add one in acceld.nki.timing.cost",
        )

    def _cycles(self, instruction: Instruction, engine: Engine, n: float, handed_over: bool) -> float:
        """Return the cycles of an instruction by its operation (source: nki.isa of SDK 2.26), without the fixed
        overhead.

        ``n`` is the number of elements in one partition. ``handed_over`` is that of :meth:`cost`.
        """
        op, on_vector, on_gpsimd = instruction.op, engine is Engine.VECTOR, engine is Engine.GPSIMD
        if engine is Engine.SCALAR and op in _SCALAR_EACH_CYCLE:
            return n
        # the vector engine computes few elements within its least interval, even at a quarter of its rate
        if _is_slow(instruction) and (on_gpsimd or (on_vector and n > FEW)):
            return 4 * n
        if op in _ONE_TILE:
            if on_vector and self._doubled(instruction):
                return n / 2
            return n / self._narrow_gain(instruction, 4.0) if on_vector else n
        if op in _TWO_TILES:
            if on_gpsimd:
                return 2.0 * n
            factor = self._two_tiles_factor(instruction, n, handed_over)
            return n * factor + (self.params.pair_cycles if factor > 1.0 else 0)
        if op == "reciprocal":
            return self.params.reciprocal_factor * n
        if op == "tensor_reduce":
            is_fast = on_vector and instruction.attr("op") in ("add", "max") and self._all_bfloat16(instruction)
            return n / 2 if is_fast else n
        if op == "memset":
            is_fast = self.dtype(instruction.dsts[0]) in NARROW and instruction.srcs[0] == 0
            return n / 2 if is_fast else n
        if op == "bn_aggr":
            return 13 * n / 3
        if op in OPS and (each := OPS[op].cycles) is not None:
            return each * n
        raise MissingRule(f"no cost rule for {op} (line {instruction.line})", hint="add one in acceld.nki.timing.cost")

    def _two_tiles_factor(self, instruction: Instruction, n: float, handed_over: bool) -> float:
        """Return how many cycles the vector engine takes for each element of an operation on two tiles.

        The factor is 2 if both tiles are in SBUF, and 1 if one of them is in PSUM or has one element in each
        partition. Fast modes for 16-bit values halve the factor.
        """
        width = prod(instruction.dsts[0].shape[1:])
        is_merged = n > width  # one machine instruction covers the columns of several iterations
        tiles = [src for src in instruction.srcs if isinstance(src, Access) and (is_merged or prod(src.shape[1:]) > 1)]
        any_in_psum = handed_over or any(self.buffers[tile.buffer].space is Space.PSUM for tile in tiles)
        if any_in_psum or len(tiles) < 2:
            return 1.0
        if self.chip.fast_16bit_vector:
            return 0.5 if instruction.op == "tensor_tensor" and self._all_narrow(instruction) else 1.0
        is_simple = instruction.attr("op") in ("add", "multiply", "subtract")
        is_known = not is_merged or width > 1  # merged columns of width 1 may not be neighbors in memory
        is_fast = is_simple and is_known and self._all_bfloat16(instruction) and self._neighbors(instruction)
        return 1.0 if is_fast else 2.0

    def _doubled(self, instruction: Instruction) -> bool:
        """Tell whether the vector engine runs the instruction at its double rate for float32.

        That is so for a tensor_scalar from SBUF to SBUF on contiguous elements.
        """
        return (
            self.params.double_rate_cycles > 0
            and instruction.op == "tensor_scalar"
            and not _is_slow(instruction)
            and all(self.dtype(access) == "float32" for access in instruction.accesses)
            and all(self.buffers[access.buffer].space is Space.SBUF for access in instruction.accesses)
            and self._neighbors(instruction)
        )

    def _narrow_gain(self, instruction: Instruction, gain: float) -> float:
        if not self.chip.fast_16bit_vector or instruction.op not in ("copy", "tensor_scalar"):
            return 1.0
        data = instruction.srcs[0]
        if not isinstance(data, Access) or not self._all_narrow(instruction):
            return 1.0
        if any(access.buffer in self.recast for access in instruction.accesses):
            return 1.0  # no document says that the fast mode keeps the bits of halves of 32-bit values
        if any(self.buffers[a.buffer].space is Space.PSUM for a in (data, instruction.dsts[0])):
            gain /= 2
        return gain if self._neighbors(instruction) else gain / 2

    def _neighbors(self, instruction: Instruction) -> bool:
        """Tell whether the elements along the innermost axis of each tile are contiguous in memory.

        Axes of one element are ignored.
        """
        for access in instruction.accesses:
            steps = _element_steps(access, self.buffers[access.buffer])
            inner = [step for count, step in zip(access.shape[1:], steps[1:], strict=True) if count > 1]
            if inner and inner[-1] != 1:
                return False
        return True

    def _all_narrow(self, instruction: Instruction) -> bool:
        return all(self.dtype(a) in NARROW for a in instruction.accesses if prod(a.shape[1:]) > 1)

    def _all_bfloat16(self, instruction: Instruction) -> bool:
        return all(self.dtype(a) == "bfloat16" for a in instruction.accesses)


def _is_slow(instruction: Instruction) -> bool:
    """Tell whether an instruction computes a function of :data:`SLOW_ALU`."""
    return not SLOW_ALU.isdisjoint((instruction.attr("op"), instruction.attr("op0"), instruction.attr("op1")))


def recast_buffers(program: Program) -> frozenset[int]:
    """Return the buffers whose bits are also read as a dtype of another width.

    A buffer of 16-bit values counts too if its values are halves of wider values that are joined again later.
    """
    found: set[int] = set()
    halved: set[int] = set()
    joined: set[int] = set()

    def width(access: Access) -> int:
        return DTYPE_BYTES[access.dtype or program.buffers[access.buffer].dtype]

    for instruction, _ in program.walk():
        if instruction.op == "bitcast" and len({width(one) for one in instruction.accesses}) > 1:
            found.update(one.buffer for one in instruction.accesses)
            halved.update(dst.buffer for dst in instruction.dsts if width(dst) == _HALF)
            joined.update(src.buffer for src in instruction.srcs if isinstance(src, Access) and width(src) == _HALF)
    if not halved or not joined:
        return frozenset(found)
    after: dict[int, set[int]] = defaultdict(set)
    before: dict[int, set[int]] = defaultdict(set)
    for instruction, _ in program.walk():
        for dst in instruction.dsts:
            for src in instruction.srcs:
                if isinstance(src, Access) and width(src) == width(dst) == _HALF:
                    after[src.buffer].add(dst.buffer)
                    before[dst.buffer].add(src.buffer)
    return frozenset(found | (_reached(halved, after) & _reached(joined, before)))


def _reached(begin: Iterable[int], edges: Mapping[int, Iterable[int]]) -> set[int]:
    """Return the nodes of a graph that can be reached from the nodes ``begin``, including ``begin``."""
    found, left = set(begin), list(begin)
    while left:
        new = [one for one in edges.get(left.pop(), ()) if one not in found]
        found.update(new)
        left += new
    return found


def _tile(operand: Operand) -> Access:
    assert isinstance(operand, Access)
    return operand


def matmul_shape(instruction: Instruction) -> tuple[int, int, int]:
    """Return (K, M, N) of a matrix product: contracted rows, stationary columns, moving columns."""
    stationary, moving = _tile(instruction.srcs[0]), _tile(instruction.srcs[1])
    return stationary.shape[0], prod(stationary.shape[1:]), prod(moving.shape[1:])


def _element_steps(access: Access, buffer: Buffer) -> list[int]:
    """Return the distance, in elements, between neighbors along each axis of a tile.

    The distance is 0 across partitions, along an axis of one element, and where a gather makes it unknown.
    """
    gathered = {item.axis for item in access.indirect if item.index is not None}
    steps = [
        sum(step * stride for step, stride in zip(dim.steps, buffer.strides, strict=True)) if dim.count > 1 else 0
        for dim in access.dims
    ]
    steps = [0 if axis in gathered else step for axis, step in enumerate(steps)]
    return steps if buffer.space is Space.HBM else [0, *steps[1:]]


def _common_axes(one: Iterable[tuple[int, int]], two: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return the axes that two tiles of different shapes share, from the innermost outwards.

    Each entry of the result is (count, step in ``one``, step in ``two``). Each tile is given as (count, step) of its
    axes. The elements of both tiles correspond in row-major order.
    """
    left, right = ([axis for axis in tile if axis[0] != 1] for tile in (one, two))
    found = []
    while left and right:
        (count, step), (other, stride) = left.pop(), right.pop()
        shared = min(count, other)
        if count % shared or other % shared:
            break
        found.append((shared, step, stride))
        if count > shared:
            left.append((count // shared, step * shared))
        if other > shared:
            right.append((other // shared, stride * shared))
    return found


def contiguous_bytes(access: Access, buffer: Buffer, shape: tuple[int, ...]) -> int:
    """Return the number of contiguous bytes in each row of an access. ``shape`` is the shape of the access inside a
    mask.
    """
    counts = shape if len(shape) == len(access.dims) else access.shape
    itemsize = DTYPE_BYTES[access.dtype or buffer.dtype]
    strides = buffer.strides
    gathered = {item.axis for item in access.indirect if item.index is not None}
    if any(item.index is not None and item.index.shape == access.shape for item in access.indirect):
        return itemsize  # a gather reads each element at an index of its own
    moves = []
    for position, (dim, count) in enumerate(zip(access.dims, counts, strict=True)):
        if count == 1 or position in gathered or (buffer.space is not Space.HBM and position == 0):
            continue
        moves.append((abs(sum(step * stride for step, stride in zip(dim.steps, strides, strict=True))), count))
    run = 1
    for step, count in sorted(move for move in moves if move[0]):  # moves with a step of 0 repeat the same row
        if step != run:
            break
        run *= count
    return run * itemsize
