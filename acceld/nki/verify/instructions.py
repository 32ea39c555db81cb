"""Check the rules of single operations: matrix products, transposes, reductions, statistics, searches, gathers."""

from __future__ import annotations

from math import prod

from acceld.chips import BN_STATS_ELEMENTS, MAX8_ELEMENTS, STATIONARY_COLUMNS, TENSOR_TRANSPOSE
from acceld.nki.ir.operations import BITS, DTYPE_BYTES, INTEGER_DTYPES, LOGIC
from acceld.nki.ir.program import Access, Affine, Instruction, Role, Space
from acceld.nki.ir.spaces import free_elements, iteration_space, reduced_axes
from acceld.nki.verify.findings import Report
from acceld.nki.verify.limits import RuleBook

_GATHER_SIZES = (1, 2, 4, 8, 16, 32)


class InstructionCheck:
    """The report and the rules that a check of single instructions needs; the checks derive from this class."""

    def __init__(self, report: Report, rules: RuleBook) -> None:
        self.report, self.rules = report, rules

    def _dtype(self, access: Access) -> str:
        return access.dtype or self.report.buffer(access).dtype

    def _space(self, access: Access) -> Space:
        return self.report.buffer(access).space

    def _base(self, access: Access) -> Affine | None:
        buffer = self.report.buffer(access)
        return access.start[buffer.partition_axis] if buffer.space is not Space.HBM else None

    def _add(self, rule: str, instruction: Instruction, message: str, hint: str = "") -> None:
        self.report.add(rule, instruction, message, hint)


class OwnRules(InstructionCheck):
    """Check an instruction against the rules that only its own operation has."""

    def check(self, instruction: Instruction) -> None:
        """Check the rules that only the instruction's operation has.

        These rules are in the method ``_check_NAME``, for example ``_check_matmul``. Most operations have no such
        method.
        """
        special = getattr(self, f"_check_{instruction.op}", None)
        if special is not None:
            special(instruction)

    def _check_bitcast(self, instruction: Instruction) -> None:
        src, dst = instruction.srcs[0], instruction.dsts[0]
        if not isinstance(src, Access):
            return
        if self._space(src) is self._space(dst) is Space.HBM:
            self._bits_in_hbm(instruction, src, dst)
            return
        sizes = [free_elements(one.shape) * DTYPE_BYTES[self._dtype(one)] for one in (src, dst)]
        if src.shape[:1] != dst.shape[:1] or sizes[0] != sizes[1]:
            self._add(
                "shape",
                instruction,
                f"a view of another dtype has {sizes[1]} bytes in each partition, but the viewed tile has {sizes[0]}",
                "give the view a shape with the same number of bytes",
            )
        if self._space(src) is not self._space(dst):
            spaces = f"{self._space(src).value} and {self._space(dst).value}"
            self._add(
                "address_space",
                instruction,
                f"a view stays in the memory of its tile, but this one would be in {spaces}",
                "copy the tile to the other memory instead",
            )
        strides = [self.report.buffer(one).strides for one in (src, dst)]
        steps = [
            sum(step * stride for step, stride in zip(one.dims[-1].steps, along, strict=True))
            for one, along in zip((src, dst), strides, strict=True)
            if len(one.dims) > 1 and one.shape[-1] > 1
        ]
        if any(step != 1 for step in steps):
            self._add(
                "access_pattern",
                instruction,
                "a view of another dtype reads elements that are not neighbors in memory",
                "copy the tile first, and view the copy",
            )

    def _bits_in_hbm(self, instruction: Instruction, src: Access, dst: Access) -> None:
        """Check a view of a tensor in HBM that has another dtype.

        On the chip a view moves no data, so it must cover the whole tensor in order, and the view's own buffer must be
        neither an argument nor a result. The simulator copies writes to the view back to the viewed tensor, which may
        be an argument or a result.
        """
        sizes = [one.elements * DTYPE_BYTES[self._dtype(one)] for one in (src, dst)]
        if sizes[0] != sizes[1]:
            self._add(
                "shape",
                instruction,
                f"a view of another dtype has {sizes[1]} bytes, but the viewed tensor has {sizes[0]}",
                "give the view a shape with the same number of bytes",
            )
        if not (self._all_in_order(src) and self._all_in_order(dst)):
            self._add(
                "access_pattern",
                instruction,
                "a view of a tensor in HBM must cover the whole tensor, in order",
                "copy the part first, and view the copy",
            )
        view = src if instruction.attr("back") else dst
        if self.report.buffer(view).role is not Role.SCRATCH or view.buffer in self.report.program.outputs:
            self._add(
                "address_space",
                instruction,
                "a view in HBM can be neither an argument nor a result of the kernel",
                "copy the tensor",
            )

    def _all_in_order(self, access: Access) -> bool:
        """Tell whether an access covers its whole buffer, axis by axis."""
        return access.shape == self.report.buffer(access).shape and all(
            dim.count == 1 or dim.steps == tuple(int(d == axis) for d in range(len(access.dims)))
            for axis, dim in enumerate(access.dims)
        )

    def _check_matmul(self, instruction: Instruction) -> None:
        stationary, moving = instruction.srcs[0], instruction.srcs[1]
        dst = instruction.dsts[0]
        if not isinstance(stationary, Access) or not isinstance(moving, Access):
            return
        k = stationary.shape[0] if stationary.shape else 0
        m, n = free_elements(stationary.shape), free_elements(moving.shape)
        if moving.shape[:1] != stationary.shape[:1]:
            self._add(
                "partition_mismatch",
                instruction,
                f"number of partitions (dimension 0 size of a tile) mismatch in parameters "
                f"(stationary{list(stationary.shape)}, moving{list(moving.shape)}) of 'nc_matmul'",
                "put the contraction dimension on the partitions of both operands",
            )
        for size, limit, name in (
            (k, self.rules.chip.partitions, "the contraction dimension"),
            (m, STATIONARY_COLUMNS, "the stationary operand's free size"),
            (n, self._moving_limit(dst), "the moving operand's free size"),
        ):
            if size > limit:
                self._add(
                    "matmul_shape",
                    instruction,
                    f"{name} {size} of 'nc_matmul' exceed architecture limitation of {limit}",
                    "use smaller tiles",
                )
        if (dst.shape[0] if dst.shape else 0, free_elements(dst.shape)) != (m, n):
            self._add(
                "matmul_shape",
                instruction,
                f"the result of [{k}, {m}] and [{k}, {n}] is [{m}, {n}], not {list(dst.shape)}",
                "give dst the shape (M, N)",
            )
        self._bank(instruction, dst, n)
        self._product_types(instruction, stationary, moving, dst)
        self._array_tiles(instruction, k, m)

    _check_matmul_mx = _check_matmul

    def _moving_limit(self, dst: Access) -> int:
        if self.rules.chip.generation < 4:
            return self.rules.chip.moving_columns
        return self.rules.chip.moving_columns * (4 // DTYPE_BYTES[self._dtype(dst)])

    def _bank(self, instruction: Instruction, dst: Access, n: int) -> None:
        size = n * DTYPE_BYTES[self._dtype(dst)]
        bank = self.rules.chip.product_row_bytes
        if size > bank:
            self._add(
                "psum_bank",
                instruction,
                f"a product's row takes {size} bytes of PSUM; a bank holds {bank}",
                "use a narrower moving operand",
            )

    def _product_types(self, instruction: Instruction, stationary: Access, moving: Access, dst: Access) -> None:
        if instruction.op == "matmul_mx":
            return
        kinds = [self._dtype(stationary), self._dtype(moving)]
        if instruction.attr("perf_mode"):
            self._performance_mode(instruction, kinds)
        for kind in kinds:
            if kind in INTEGER_DTYPES:
                self._add(
                    "dtype", instruction, f"the tensor engine does not multiply {kind}", "cast the operand to bfloat16"
                )
                return
        if not self.rules.legacy:
            self._current_product_types(instruction, kinds)
        wide = [kind in ("float32", "tfloat32") for kind in kinds]
        if wide[0] != wide[1]:
            self._add(
                "dtype",
                instruction,
                f"operands of 'nc_matmul' are {kinds[0]} and {kinds[1]}: either both or neither must be float32",
                "cast one of the operands",
            )
        result = self._dtype(dst)
        narrow = instruction.attr("transpose") and result == kinds[0]
        if result != "float32" and not narrow and not (self.rules.chip.generation >= 4 and result == "bfloat16"):
            self._add(
                "dtype",
                instruction,
                f"a product's result in PSUM is float32, not {result}",
                "declare the result as float32 in PSUM, and cast when you copy it to SBUF",
            )

    def _current_product_types(self, instruction: Instruction, kinds: list[str]) -> None:
        """Check that the dtypes of nc_matmul in the current API are documented (AWS's page of nisa.nc_matmul), and that
        the compiler does not refuse them.
        """
        if "tfloat32" in kinds:
            self._add(
                "dtype",
                instruction,
                "operands of 'nc_matmul' are tfloat32, which NKI 0.6 does not compile",
                "use float32, or bfloat16",
            )
        if "float8_e4m3fn" in kinds and self.rules.chip.generation < 4:
            self._add(
                "dtype",
                instruction,
                f"float8_e4m3fn needs NeuronCore-v4; {self.rules.chip.name} has an older version",
                "use float8_e4m3",
            )
        elif {"float8_e4m3fn", "float8_e4m3"} == set(kinds):
            self._add(
                "dtype",
                instruction,
                "operands of 'nc_matmul' are float8_e4m3 and float8_e4m3fn",
                "give both operands one dtype",
            )

    def _performance_mode(self, instruction: Instruction, kinds: list[str]) -> None:
        """Check that ``perf_mode`` is a mode of the chip, and fits the operands and the tiles of the array
        (AWS's page of nisa.nc_matmul).

        The only mode is double_row. This mode needs NeuronCore-v3 or later, multiplies float8, and excludes column
        tiles.
        """
        size = instruction.attr("tile_size")
        if instruction.attr("perf_mode") != "double_row" or self.rules.chip.generation < 3:
            self._add(
                "perf_mode",
                instruction,
                f"{instruction.attr('perf_mode')} is not a mode of {self.rules.chip.name}",
                "leave perf_mode out",
            )
        elif any(not kind.startswith("float8") for kind in kinds):
            self._add(
                "perf_mode", instruction, f"double_row multiplies float8, not {kinds[0]} and {kinds[1]}", "cast them"
            )
        elif isinstance(size, tuple) and len(size) == 2 and size[1] != 128:
            self._add("perf_mode", instruction, "double_row can not be combined with column tiles", "use 128 columns")

    def _array_tiles(self, instruction: Instruction, k: int, m: int) -> None:
        position, size = instruction.attr("tile_position"), instruction.attr("tile_size")
        if not position and not size:
            return
        wrong = ""
        if not isinstance(position, tuple) or not isinstance(size, tuple) or len(position) != 2 or len(size) != 2:
            wrong = "tile_position and tile_size come together, as (row, column)"
        else:
            for start, length in zip(position, size, strict=True):
                if (
                    not isinstance(start, int)
                    or not isinstance(length, int)
                    or length not in (32, 64, 128)
                    or start % length
                    or not 0 <= start < 128
                ):
                    wrong = f"position {position} and size {size} do not tile the array"
            if not wrong and self.rules.chip.generation == 2 and size == (32, 32):
                wrong = "row and column size can not both be 32 on trn1"
            if not wrong and (k > int(size[0]) or m > int(size[1])):
                wrong = f"operands of {k} rows and {m} columns do not fit a tile of {size}"
        if wrong:
            self._add(
                "tile_position",
                instruction,
                wrong,
                "use sizes of 32, 64 or 128, and positions that are multiples of them",
            )

    def _check_transpose(self, instruction: Instruction) -> None:
        src, dst = instruction.srcs[0], instruction.dsts[0]
        if not isinstance(src, Access):
            return
        limit = TENSOR_TRANSPOSE
        rows, columns = src.shape[0] if src.shape else 0, free_elements(src.shape)
        if len(src.shape) != 2 or len(dst.shape) != 2 or dst.shape != (columns, rows):
            self._add(
                "operand_shape",
                instruction,
                f"the transpose of {list(src.shape)} is [{columns}, {rows}], not {list(dst.shape)}",
                "give dst the shape (F, P)",
            )
        for dimension, size in enumerate((rows, columns)):
            if size > limit:
                self._add(
                    "transpose_shape",
                    instruction,
                    f"size of dimension {dimension} in '{self.report.name(src)}' of 'transpose' exceed architecture "
                    f"limitation of {limit}",
                    "use smaller tiles",
                )

    def _check_tensor_reduce(self, instruction: Instruction) -> None:
        op = str(instruction.attr("op"))
        if instruction.attr("negate") and not self.rules.legacy and (op in BITS or op in LOGIC):
            self._add(
                "alu_op",
                instruction,
                f"tensor_reduce can not negate the result of {op}",
                "use negate with arithmetic only",
            )
        data, dst = instruction.srcs[0], instruction.dsts[0]
        if not isinstance(data, Access):
            return
        axes, rank = reduced_axes(instruction), len(data.shape)
        wide = [axis for axis in range(rank) if axis in axes or (data.shape[axis] > 1 and axis)]
        if not axes or axes[0] < 1 or axes[-1] >= rank:
            self._add(
                "reduce_axis",
                instruction,
                f"tensor_reduce can not reduce axes {list(axes)} of {self.report.name(data)}",
                "free axes are 1 and up; partitions need partition_reduce or a product with ones",
            )
        elif wide[-len(axes) :] != list(axes):
            self._add(
                "reduce_axis",
                instruction,
                f"tensor_reduce can not reduce axes {list(axes)} of {self.report.name(data)}: it reduces only the last free axes",
                "reorder the axes of the view",
            )
        if iteration_space(instruction).dsts[0] is None:
            kept = [n for axis, n in enumerate(data.shape) if axis not in axes]
            self._add(
                "operand_shape",
                instruction,
                f"the result has shape {kept}, not {list(dst.shape)}",
                "give dst the result's shape",
            )

    def _check_partition_reduce(self, instruction: Instruction) -> None:
        data, dst = instruction.srcs[0], instruction.dsts[0]
        if isinstance(data, Access) and (
            dst.shape[:1] != (1,) or free_elements(dst.shape) != free_elements(data.shape)
        ):
            self._add(
                "operand_shape",
                instruction,
                f"the result of {self.report.name(data)} is one partition of {free_elements(data.shape)} elements",
                "give dst one partition",
            )

    def _check_bn_stats(self, instruction: Instruction) -> None:
        self._free(instruction, 1, BN_STATS_ELEMENTS)
        self._result(instruction, 6)

    def _check_bn_aggr(self, instruction: Instruction) -> None:
        data = instruction.srcs[0]
        if isinstance(data, Access) and (free_elements(data.shape) % 3 or not free_elements(data.shape)):
            self._add(
                "free_size",
                instruction,
                f"bn_aggr takes triples, not {free_elements(data.shape)} elements",
                "give it results of bn_stats",
            )
        self._result(instruction, 2)

    def _check_max8(self, instruction: Instruction) -> None:
        self._free(instruction, *MAX8_ELEMENTS)
        if instruction.op != "max8":
            values = instruction.srcs[1]
            if isinstance(values, Access) and free_elements(values.shape) != 8:
                self._add(
                    "free_size",
                    instruction,
                    f"{instruction.op} looks for eight values a partition",
                    "give it the result of max8",
                )
        data = instruction.srcs[0]
        if instruction.op == "match_replace8" and isinstance(data, Access):
            self._result(instruction, free_elements(data.shape))
        else:
            self._result(instruction, 8)

    _check_find_index8 = _check_match_replace8 = _check_max8

    def _free(self, instruction: Instruction, least: int, most: int) -> None:
        data = instruction.srcs[0]
        if isinstance(data, Access) and not least <= free_elements(data.shape) <= most:
            self._add(
                "free_size",
                instruction,
                f"{instruction.op} takes {least} to {most} elements a partition, not {free_elements(data.shape)}",
                "split the tile",
            )

    def _result(self, instruction: Instruction, size: int) -> None:
        data, dst = instruction.srcs[0], instruction.dsts[0]
        if isinstance(data, Access) and (dst.shape[:1] != data.shape[:1] or free_elements(dst.shape) != size):
            self._add(
                "operand_shape",
                instruction,
                f"{instruction.op} of {list(data.shape)} writes {size} elements to each partition, but dst is "
                f"{self.report.name(dst)}",
                f"give dst the shape {[*data.shape[:1], size]}",
            )

    def _check_local_gather(self, instruction: Instruction) -> None:
        data, index = instruction.srcs
        if not isinstance(data, Access) or not isinstance(index, Access):
            return
        if data.shape[0] % 16 or index.shape[0] != data.shape[0]:
            self._add(
                "partition_group",
                instruction,
                f"{instruction.op} works on groups of sixteen partitions",
                "use a multiple of 16",
            )
        if self._dtype(index) != "uint16":
            self._add(
                "dtype",
                instruction,
                f"indices of {instruction.op} must be uint16, not {self._dtype(index)}",
                "cast the indices to uint16",
            )
        if instruction.attr("elements_per_index", 1) not in (None, *_GATHER_SIZES):
            self._add(
                "free_size",
                instruction,
                f"elements for each index must be one of {_GATHER_SIZES}",
                "pass one of them, and gather more often",
            )

    _check_local_scatter = _check_local_gather

    def _check_gather(self, instruction: Instruction) -> None:
        data, index = instruction.srcs
        if not isinstance(data, Access) or not isinstance(index, Access):
            return
        dst = instruction.dsts[0]
        if data.shape[:1] != dst.shape[:1] or prod(index.shape) != prod(dst.shape):
            self._add(
                "operand_shape",
                instruction,
                "gather needs one index for each element of dst",
                "give index the shape of dst",
            )
        if self._dtype(index) not in INTEGER_DTYPES:
            self._add(
                "dtype",
                instruction,
                f"the indices of gather must be integers, not {self._dtype(index)}",
                "cast the indices to uint32",
            )

    def _check_shuffle(self, instruction: Instruction) -> None:
        src, dst, lanes = instruction.srcs[0], instruction.dsts[0], instruction.attr("lanes")
        if not isinstance(src, Access) or not isinstance(lanes, tuple):
            return
        numbers = [lane for lane in lanes if isinstance(lane, int) and (0 <= lane < 32 or lane == 255)]
        if len(lanes) != 32 or len(numbers) != 32:
            self._add(
                "shuffle_lanes",
                instruction,
                "a shuffle has 32 lanes of 0 to 31, or 255 for none",
                "pass 32 numbers from 0 to 31, or 255 for a partition that stays unchanged",
            )
            return
        if src.shape[1:] != dst.shape[1:]:
            self._add(
                "operand_shape",
                instruction,
                "src and dst of a shuffle have equally many elements a partition",
                "slice them",
            )
        used = [(p // 32 * 32 + numbers[p % 32]) for p in range(dst.shape[0]) if numbers[p % 32] != 255]
        if max(used, default=0) >= src.shape[0]:
            self._add(
                "shuffle_lanes",
                instruction,
                "a lane of a shuffle lies outside of the source's partitions",
                "change the lane",
            )

    def _check_dma_transpose(self, instruction: Instruction) -> None:
        space = iteration_space(instruction)
        if space.srcs[0] is None or any(
            operand.shape[axis] != space.shape[target]
            for operand in instruction.srcs[:1]
            if isinstance(operand, Access)
            for axis, target in enumerate(space.srcs[0])
        ):
            self._add(
                "operand_shape",
                instruction,
                "dst does not have the transposed shape of src",
                "change the axes, or the shape of dst",
            )
