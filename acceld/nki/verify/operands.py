"""Check the operands of instructions: engines, memories, dtypes, shapes."""

from __future__ import annotations

from math import prod

from acceld.nki.ir.def_use import reduce_loops
from acceld.nki.ir.numerics import BITWISE, PACKED_DTYPES
from acceld.nki.ir.operations import (
    BITS,
    COMPOSED_FUNCTIONS,
    ENGINE_SINCE,
    FUNCTIONS,
    INTEGER_DTYPES,
    LATE_ALU_OPS,
    LEGACY_ONLY,
    NO_ACTIVATION,
    OPERAND_DTYPES,
    OPS,
    SAME_DTYPES,
    SCALAR_DTYPES,
    SCALAR_ENGINE_ALU,
    WIDE_OPS,
    Kind,
    Memory,
    Trait,
    having,
)
from acceld.nki.ir.program import Access, Affine, Engine, Instruction, Loop, Space
from acceld.nki.ir.spaces import free_elements, iteration_space
from acceld.nki.verify.findings import Report
from acceld.nki.verify.instructions import InstructionCheck, OwnRules
from acceld.nki.verify.limits import RuleBook

_TWO_TILES, _ELEMENTWISE, _PACKED = having(Trait.TWO_TILES), having(Trait.ELEMENTWISE), having(Trait.PACKED)
_ACROSS = having(Trait.ACROSS)


class Operands(InstructionCheck):
    """Check the engines, memories, dtypes and shapes of instructions' operands."""

    def __init__(self, report: Report, rules: RuleBook) -> None:
        super().__init__(report, rules)
        self._fine: set[object] = set()
        self._own = OwnRules(report, rules)

    def check(self, instruction: Instruction, loops: tuple[Loop, ...]) -> None:
        """Check all rules for the operands of one instruction."""
        if instruction.op == "loop_reduce":
            self._loop_reduce(instruction, loops)
        self._same_base(instruction, loops)
        key = self._signature(instruction)
        if key in self._fine:
            return
        before = self.report.noted
        self._engine(instruction)
        self._memories(instruction)
        self._scalars(instruction)
        self._shapes(instruction)
        self._types(instruction)
        if not self.rules.legacy:
            self._functions(instruction)
            self._operand_types(instruction)
        self._own.check(instruction)
        if self.report.noted == before:
            self._fine.add(key)

    def _signature(self, instruction: Instruction) -> object:
        tiles = tuple(
            (operand.shape, self._dtype(operand), self._space(operand), self._base(operand))
            if isinstance(operand, Access)
            else type(operand)
            for operand in (*instruction.srcs, *instruction.dsts)
        )
        masks = tuple(pattern.coefs for pattern in instruction.mask)
        # whether a bitcast is legal depends on the accessed elements, not only on the shapes of the tiles
        exact = instruction.accesses if instruction.op == "bitcast" else ()
        return instruction.op, instruction.engine, tiles, instruction.attrs, masks, *exact

    def _loop_reduce(self, instruction: Instruction, loops: tuple[Loop, ...]) -> None:
        around = {loop.id for loop in loops}
        if not reduce_loops(instruction) or not set(reduce_loops(instruction)) <= around:
            self._add(
                "local_scope",
                instruction,
                "loop_reduce names a loop that is not around the instruction",
                "name a loop around the instruction",
            )

    def _same_base(self, instruction: Instruction, loops: tuple[Loop, ...]) -> None:
        """Check that two tiles in SBUF start at the same partition in every iteration.

        The same start is required of two tiles of one tensor, and of two tensors whose partitions are certain. With
        strict legacy rules it is required of any two tiles. The compiler chooses the partitions of all other tensors.
        """
        if instruction.op not in _TWO_TILES and instruction.op != "matmul":
            return
        tiles = [instruction.srcs[number] for number in OPS[instruction.op].sources_of(Kind.TILE)]
        left, right = (tile if isinstance(tile, Access) else None for tile in tiles)
        if left is None or right is None or {self._space(left), self._space(right)} != {Space.SBUF}:
            return
        certain = self.rules.same_base_partition or (self._placed(left) and self._placed(right))
        if left.buffer != right.buffer and not certain:
            return
        bases = [self._first(left), self._first(right)]
        if self._apart(bases[0] + bases[1].scale(-1), instruction, loops):
            where = (
                "of one tensor"
                if left.buffer == right.buffer
                else f"({self.report.name(left)}, {self.report.name(right)})"
            )
            starts = [f"{base.const} (and further in loops)" if base.terms else str(base.const) for base in bases]
            self._add(
                "base_partition",
                instruction,
                f"the tiles of {instruction.op} start at partitions {' and '.join(starts)} {where}",
                f"copy one of them to a tensor of its own first ({'nl.copy' if self.rules.legacy else 'nisa.tensor_copy'})",
            )

    @staticmethod
    def _apart(distance: Affine, instruction: Instruction, loops: tuple[Loop, ...]) -> bool:
        """Tell whether it is proved that ``distance`` is nonzero in at least one iteration that the mask includes."""
        moving = {loop.id for loop in loops if loop.trips > 1 and loop.trips_register is None}
        if distance.terms and instruction.mask:
            return False
        return bool(distance.const) if not distance.terms else any(loop in moving for loop, _ in distance.terms)

    def _placed(self, access: Access) -> bool:
        """Tell whether it is certain at which partition a tensor begins.

        That is so if the tensor has an address, or if it takes more than half of the partitions.
        """
        buffer = self.report.buffer(access)
        return buffer.address is not None or 2 * buffer.shape[buffer.partition_axis] > self.rules.chip.partitions

    def _first(self, access: Access) -> Affine:
        """Return the number of a tile's first partition as an affine expression."""
        buffer = self.report.buffer(access)
        return access.start[buffer.partition_axis] + (buffer.address[0] if buffer.address is not None else 0)

    def _engine(self, instruction: Instruction) -> None:
        op, engine = instruction.op, instruction.engine
        allowed = OPS[op].engines
        if op == "memset" and not self.rules.legacy:
            allowed -= {Engine.SCALAR}
        if allowed and engine is not Engine.UNKNOWN and engine not in allowed:
            self._add(
                "engine",
                instruction,
                f"{op} does not run on the {engine.value} engine",
                f"it runs on {', '.join(sorted(one.value for one in allowed))}",
            )
        first = OPS[op].generation
        if self.rules.chip.generation < first:
            self._add(
                "chip",
                instruction,
                f"{op} needs NeuronCore-v{first}; {self.rules.chip.name} has an older version",
                "trace the kernel for a later chip, or write it with other instructions",
            )
        names = self._names(instruction)
        for name in names:
            if self.rules.chip.generation < LATE_ALU_OPS.get(name, 0):
                self._add(
                    "chip",
                    instruction,
                    f"{name} needs NeuronCore-v{LATE_ALU_OPS[name]}; {self.rules.chip.name} has an older version",
                    f"trace the kernel for a later chip, or {EARLIER[name]}",
                )
        late = self.rules.chip.generation < ENGINE_SINCE.get((op, engine), 0)
        if late and op == "tensor_scalar":
            self._add(
                "engine",
                instruction,
                f"the scalar engine of {self.rules.chip.name} has no tensor_scalar",
                "use nisa.activation, or leave the engine open",
            )
        if op == "tensor_scalar" and engine is Engine.SCALAR and self.rules.chip.generation == 3:
            functions = tuple(name for name in names if name != "bypass")
            if functions not in SCALAR_ENGINE_ALU:
                self._add(
                    "engine",
                    instruction,
                    f"the scalar engine of {self.rules.chip.name} has no tensor_scalar with {' and '.join(functions)}",
                    "the scalar engine multiplies, adds, or multiplies and then adds; use the vector engine",
                )
        bitwise = op != "partition_reduce" and any(name in BITWISE for name in names)
        if bitwise and engine in (Engine.SCALAR, Engine.GPSIMD):
            self._add("engine", instruction, f"{names[0]} runs on the vector engine only", "use the vector engine")
        if late and op == "activation":
            self._add(
                "engine", instruction, f"GpSimd of {self.rules.chip.name} has no activation", "use the scalar engine"
            )
        if engine is Engine.VECTOR and "power" in names:
            self._add("engine", instruction, "power runs on GpSimd only", "use engine=nisa.gpsimd_engine")
        if op == "activation" and self.rules.chip.generation == 2:
            reduce_op = instruction.attr("reduce_op")
            if reduce_op not in (None, "add"):
                self._add(
                    "engine",
                    instruction,
                    f"the scalar engine reduces with add only, not {reduce_op}",
                    "reduce in an instruction of its own",
                )

    def _names(self, instruction: Instruction) -> list[str]:
        """Return the ALU functions that an instruction names. Functions that :meth:`_functions` refuses are left out."""
        known = {} if self.rules.legacy else FUNCTIONS.get(instruction.op, {})
        named = {key: instruction.attr(key) for key in ("op", "op0", "op1") if instruction.attr(key) is not None}
        return [str(name) for key, name in named.items() if key not in known or name in known[key]]

    def _functions(self, instruction: Instruction) -> None:
        """Check that an instruction of the current API names only ALU functions that the instruction supports (AWS's
        reference of nki.isa).
        """
        for key, known in FUNCTIONS.get(instruction.op, {}).items():
            name = instruction.attr(key)
            if name is None or name in known:
                continue
            self._add(
                "alu_op",
                instruction,
                f"no engine has {name}" if name in LEGACY_ONLY else f"{instruction.op} has no {key}={name}",
                f"{instruction.op} has {', '.join(sorted(known))}",
            )
        if instruction.op == "activation" and instruction.attr("func") in NO_ACTIVATION - COMPOSED_FUNCTIONS:
            self._add(
                "activation_function",
                instruction,
                f"{instruction.attr('func')} is no activation function",
                "use an instruction that has it",
            )

    def _operand_types(self, instruction: Instruction) -> None:
        """Check the dtype of each operand (AWS's reference of nki.isa)."""
        operation = OPS[instruction.op]
        places = (*operation.srcs[: len(instruction.srcs)], *operation.dsts[: len(instruction.dsts)])
        named = {
            place.name: self._dtype(operand)
            for place, operand in zip(places, (*instruction.srcs, *instruction.dsts), strict=False)
            if isinstance(operand, Access)
        }
        if "int64" in named.values() and instruction.op not in WIDE_OPS:
            self._add(
                "dtype",
                instruction,
                f"{instruction.op} can not compute on int64: engines compute with at most 32 bits",
                "int64 is for nisa.dma_copy, nisa.scalar_load and nisa.scalar_store",
            )
        for name, known in OPERAND_DTYPES.get(instruction.op, {}).items():
            if name in named and named[name] not in known:
                self._add(
                    "dtype",
                    instruction,
                    f"operand '{name}' of {instruction.op} can not be {named[name]}",
                    f"make it one of {', '.join(sorted(known))}",
                )
        one, other = SAME_DTYPES.get(instruction.op, ("", ""))
        if one in named and other in named and named[one] != named[other] and not self._widens(instruction):
            self._add(
                "dtype",
                instruction,
                f"{one} and {other} of {instruction.op} are {named[one]} and {named[other]}, but must have one dtype",
                "give both operands one dtype, and cast with nisa.tensor_copy before or after",
            )

    def _widens(self, instruction: Instruction) -> bool:
        """Tell whether the instruction is a transpose by the tensor engine that reads 16-bit values and writes
        float32.

        AWS's reference of nki.isa excludes such a transpose, but kernels that ran on a chip have it.
        """
        if instruction.op != "transpose" or instruction.engine is not Engine.TENSOR:
            return False
        src, dst = instruction.srcs[0], instruction.dsts[0]
        narrow = isinstance(src, Access) and self._dtype(src) in ("bfloat16", "float16")
        return narrow and self._dtype(dst) == "float32"

    def _memories(self, instruction: Instruction) -> None:
        op = instruction.op
        spec = OPS[op]
        if spec.memory is Memory.ANY:
            if instruction.engine is Engine.GPSIMD:
                self._no_psum(instruction)
            return
        for places, accesses in ((spec.srcs, instruction.srcs), (spec.dsts, instruction.dsts)):
            for place, operand in zip(places, accesses, strict=False):
                if not isinstance(operand, Access):
                    continue
                space = self._space(operand)
                allowed = self._allowed(instruction, place.name)
                if space not in allowed:
                    self._add(
                        "address_space",
                        instruction,
                        f"Expected operand '{place.name}' of '{op}' to be in address space "
                        f"'{' or '.join(one.value for one in allowed)}', but got a tile in '{space.value}' instead.",
                        _WAY.get((space, allowed[0]), ""),
                    )
        if instruction.engine is Engine.GPSIMD and spec.memory is not Memory.DMA:
            self._no_psum(instruction)
        tiles = [instruction.srcs[number] for number in spec.sources_of(Kind.TILE)] if op in _TWO_TILES else []
        if op in ("copy_predicated", "select") and not self.rules.legacy:
            tiles = list(instruction.srcs[:2])
        if len(tiles) == 2 and all(isinstance(tile, Access) and self._space(tile) is Space.PSUM for tile in tiles):
            self._add("psum_operands", instruction, f"both tiles of {op} are in PSUM", "copy one of them to SBUF first")

    def _no_psum(self, instruction: Instruction) -> None:
        if any(self._space(access) is Space.PSUM for access in instruction.accesses):
            self._add(
                "address_space",
                instruction,
                f"GpSimd can not access PSUM ({instruction.op})",
                "copy the operand to SBUF first",
            )

    def _allowed(self, instruction: Instruction, name: str) -> tuple[Space, ...]:
        memory = OPS[instruction.op].memory
        tensor = instruction.op == "transpose" and instruction.engine is Engine.TENSOR
        if memory is Memory.PRODUCT or tensor:
            return (Space.PSUM,) if name == "dst" else (Space.SBUF,)
        return {Memory.DMA: (Space.SBUF, Space.HBM), Memory.SBUF: (Space.SBUF,)}.get(memory, (Space.SBUF, Space.PSUM))

    def _scalars(self, instruction: Instruction) -> None:
        data = instruction.srcs[0] if instruction.srcs else None
        if not isinstance(data, Access):
            return
        for number in OPS[instruction.op].sources_of(Kind.SCALAR):
            if number >= len(instruction.srcs):
                continue
            operand = instruction.srcs[number]
            if not isinstance(operand, Access):
                continue
            partitions = operand.shape[0] if operand.shape else 1
            if free_elements(operand.shape) != 1 or partitions != data.shape[0]:
                self._add(
                    "operand_shape",
                    instruction,
                    f"operand {number} of {instruction.op} is {self.report.name(operand)}; a number or one element "
                    f"for each of {data.shape[0]} partitions is wanted",
                    "reduce or slice it to one column; for two full tiles use tensor_tensor",
                )
            dtype = self._dtype(operand)
            if self.rules.legacy:
                if self.rules.strict and dtype != "float32" and instruction.op != "activation":
                    self._add(
                        "dtype",
                        instruction,
                        f"a per-partition operand must be float32, not {dtype}",
                        "cast the operand to float32",
                    )
                continue
            name = OPS[instruction.op].srcs[number].name
            bits = any(instruction.attr(key) in BITS for key in ("op0", "op1"))
            if not bits and dtype not in SCALAR_DTYPES.get(f"{instruction.op}.{name}", {"float32"}):
                self._add(
                    "dtype",
                    instruction,
                    f"operand '{name}' of {instruction.op}, one element a partition, is {dtype}, not float32",
                    "copy it to a float32 tile with nisa.tensor_copy",
                )

    def _shapes(self, instruction: Instruction) -> None:
        space = iteration_space(instruction)
        if not instruction.dsts or instruction.op not in _ELEMENTWISE:
            self._masks(instruction, all(found is not None for found in space.dsts))
            return
        scalars = OPS[instruction.op].sources_of(Kind.SCALAR)
        target = instruction.dsts[0]
        aligned = True
        for number, (operand, found) in enumerate(zip(instruction.srcs, space.srcs, strict=True)):
            if not isinstance(operand, Access) or number in scalars:
                continue
            on_chip = Space.HBM not in (self._space(operand), self._space(target))
            crosses = on_chip and operand.shape[:1] != target.shape[:1] and instruction.op not in _ACROSS
            if found is not None and not crosses:
                continue
            aligned = False
            if crosses:
                self._add(
                    "partition_mismatch",
                    instruction,
                    f"number of partitions (dimension 0 size of a tile) mismatch in parameters "
                    f"({self.report.name(operand)}, {self.report.name(target)}) of '{instruction.op}'",
                    "slice both to the same partitions",
                )
            elif prod(operand.shape) != prod(target.shape):
                self._add(
                    "operand_shape",
                    instruction,
                    f"shapes of {self.report.name(operand)} and {self.report.name(target)} do not agree in "
                    f"'{instruction.op}'",
                    "give both the same number of elements",
                )
        if len(instruction.dsts) > 1:
            result = instruction.dsts[1]
            if target.shape and (result.shape[:1] != target.shape[:1] or free_elements(result.shape) != 1):
                self._add(
                    "operand_shape",
                    instruction,
                    f"reduce_res is {self.report.name(result)}; one element a partition is wanted",
                    "declare it with shape (partitions, 1)",
                )
        self._masks(instruction, aligned)

    def _masks(self, instruction: Instruction, aligned: bool) -> None:
        if instruction.mask and not aligned:
            self._add(
                "mask", instruction, f"{instruction.op} with a mask needs operands of one shape", "slice the operands"
            )

    def _types(self, instruction: Instruction) -> None:
        op = instruction.op
        bits = [name for name in map(instruction.attr, ("op", "op0", "op1")) if name in BITWISE or _is_bits(name)]
        arithmetic = [
            name
            for name in map(instruction.attr, ("op", "op0", "op1"))
            if name is not None and name not in bits and name != "bypass"
        ]
        if bits and arithmetic and op != "scan":
            self._add(
                "op_mix",
                instruction,
                f"{op} mixes bit operation {bits[0]} with {arithmetic[0]}",
                "use two instructions",
            )
        for access in instruction.accesses:
            dtype = self._dtype(access)
            if bits and dtype not in INTEGER_DTYPES:
                self._add(
                    "dtype",
                    instruction,
                    f"{bits[0]} needs integers, but {self.report.name(access)} is {dtype}",
                    "cast the tile to an integer dtype first",
                )
                break
            if dtype in PACKED_DTYPES and op not in _PACKED:
                self._add(
                    "dtype", instruction, f"{op} can not compute on {dtype}", "cast the tile to another dtype first"
                )
                break


EARLIER = {
    **dict.fromkeys(("abs_max", "abs_min"), "take nl.abs of both, then nl.maximum or nl.minimum"),
    "square": "multiply the tile by itself with nisa.tensor_tensor, or use nisa.activation",
    "relu": "use nl.maximum with 0.0, or nisa.activation",
}
"""Advice for an ALU function that the first NeuronCores lack: what to write in its place, by function."""
_WAY: dict[tuple[Space, Space], str] = {
    (Space.HBM, Space.SBUF): "load it to SBUF first",
    (Space.PSUM, Space.SBUF): "copy it from PSUM to SBUF first",
    (Space.SBUF, Space.PSUM): "the tensor engine writes to PSUM; copy from there to SBUF",
    (Space.HBM, Space.PSUM): "the tensor engine writes to PSUM; copy from there to SBUF, then store",
}


def _is_bits(name: object) -> bool:
    return isinstance(name, str) and (name.startswith("bitwise_") or name.endswith("_shift"))
