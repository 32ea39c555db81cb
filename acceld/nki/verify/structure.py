"""Check that a program is well formed: references, ranks, attribute values.

An instruction that this module has refused must not be read by any other check.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from acceld.nki.ir.operations import ACTIVATION_FUNCTIONS, ALU_OPS, COMPARISONS, DTYPE_BYTES, OPS, REDUCE_OPS, Kind
from acceld.nki.ir.program import (
    Access,
    Affine,
    Attr,
    Buffer,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Pattern,
    Program,
    Role,
    Space,
    TileDim,
)
from acceld.nki.ir.spaces import iteration_space
from acceld.nki.verify.findings import Report
from acceld.nki.verify.likeness import LARGEST, Likeness

_DEEPEST = 64
_COMMANDS = frozenset("idle reset reduce reset_reduce load_reduce".split())

Check = Callable[[Attr], bool]


def _one_of(names: frozenset[str]) -> Check:
    return lambda value: value is None or value in names


def _whole(value: Attr) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def _flag(value: Attr) -> bool:
    return value is None or isinstance(value, bool)


def _number(value: Attr) -> bool:
    return value is None or (isinstance(value, int | float) and _finite_size(value))


def _finite_size(value: float) -> bool:
    return not isinstance(value, int) or abs(value) < LARGEST


def _wholes(value: Attr) -> bool:
    return value is None or (isinstance(value, tuple) and all(_whole(one) for one in value))


def _text(value: Attr) -> bool:
    return value is None or isinstance(value, str)


_ALU = _one_of(ALU_OPS)
_REDUCE = _one_of(REDUCE_OPS)
_ATTRIBUTES: dict[str, Check] = {
    "rmw": _REDUCE,
    "oob": _one_of(frozenset(("error", "skip"))),
    "dge": lambda value: value is None or isinstance(value, str | int),
    "axes": _wholes,
    "reverse": _flag,
    "reverse0": _flag,
    "reverse1": _flag,
    "lazy": _flag,
    "hidden": _flag,
    "negate": _flag,
    "transpose": _flag,
    "stationary_onezero": _flag,
    "moving_onezero": _flag,
    "lanes": _wholes,
    "loops": _wholes,
    "tile_position": _wholes,
    "tile_size": _wholes,
    "accumulate": lambda value: value in ("yes", "no", "auto", None) or isinstance(value, bool),
    "perf_mode": _text,
    "func": _one_of(ACTIVATION_FUNCTIONS),
    "op0": _ALU,
    "op1": _ALU,
    "cmp": _one_of(COMPARISONS),
    "cmp0": _one_of(COMPARISONS),
    "cmp1": _one_of(COMPARISONS),
    "reduce_op": _REDUCE,
    "reduce_cmd": _one_of(_COMMANDS),
    "range_start": _number,
    "on_false": _number,
    "reduce_init": _number,
    "imm": _number,
    "elements_per_index": lambda value: value is None or _whole(value),
    "back": lambda value: value is None or isinstance(value, bool),
    "bits": lambda value: value is None or value in (32, 64),
    "valid": lambda value: value is None or _whole(value),
    "n": lambda value: value is None or _whole(value),
    "index_offset": lambda value: value is None or _whole(value),
    "padding": lambda value: value is None or _whole(value),
    "pipe": lambda value: value is None or _whole(value),
    "register": lambda value: value is None or _whole(value),
    "source": lambda value: value is None or _whole(value),
    "operand": lambda value: value is None or _whole(value),
    "text": _text,
    "kind": _text,
    "ranks": _wholes,
    "members": _whole,
    "axis": lambda value: value is None or _whole(value),
}
_REDUCING = frozenset(("tensor_reduce", "loop_reduce", "partition_reduce"))


class Structure:
    """Check the structure of one program.

    ``sound`` maps the ``id()`` of each instruction that the other checks may read to the instruction's number by
    :class:`~acceld.nki.verify.likeness.Likeness`.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.program: Program = report.program
        self.likeness = Likeness(self.program)
        self.sound: dict[int, int | None] = {}
        self._fine: set[int] = set()
        self._loops: set[int] = set()
        self._too_deep = False
        self._fitting: set[tuple[int, int]] = set()
        """Pairs of tile axes (by identity) and a buffer's rank that are known to fit each other."""

    def check(self) -> bool:
        """Tell whether buffers, loops and references are consistent, so that the other checks may run.

        Instructions that are not well formed are left out of ``sound``.
        """
        program = self.program
        before = self.report.noted
        for number, buffer in enumerate(program.buffers):
            self._buffer(number, buffer)
        for number in (*program.inputs, *program.outputs):
            if not self._is_index(number, len(program.buffers)):
                self._bad(0, f"buffer {number} is an argument or a result, but does not exist")
            elif program.buffers[number].space is not Space.HBM:
                self._bad(0, f"buffer {number} is an argument or a result, but not in HBM")
        if program.registers < 0:
            self._bad(0, "the program has a negative number of registers")
        if self.report.noted > before:
            return False
        self._body(program.body, (), ())
        if self._too_deep:
            return False
        known = self._loops
        for buffer in program.buffers:
            if any(loop not in known for loop in buffer.scope):
                self._bad(buffer.line, f"buffer {buffer.id} is declared in a loop that does not exist")
                return False
        return True

    def _bad(self, line: int, message: str) -> None:
        self.report.add("malformed", line, message, "trace the kernel again: no front end makes such a program")

    @staticmethod
    def _is_index(value: object, size: int) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size

    def _buffer(self, number: int, buffer: Buffer) -> None:
        line = buffer.line
        if buffer.id != number:
            self._bad(line, f"buffer {buffer.id} stands at position {number} of the list of buffers")
        if buffer.dtype not in DTYPE_BYTES:
            self._bad(line, f"buffer {number} has the unknown dtype {buffer.dtype!r}")
            return
        if any(not self._is_index(size, LARGEST) for size in buffer.shape) or buffer.elements >= LARGEST:
            self._bad(line, f"buffer {number} can not have the shape {buffer.shape}")
            return
        on_chip = buffer.space is not Space.HBM
        if on_chip != (buffer.partition_axis >= 0) or buffer.partition_axis >= max(1, len(buffer.shape)):
            self._bad(
                line, f"buffer {number} in {buffer.space.value} can not have the partition axis {buffer.partition_axis}"
            )
        elif on_chip and not buffer.shape:
            self._bad(line, f"buffer {number} on chip has no dimensions")
        if (buffer.role is Role.CONSTANT) != (buffer.data is not None) or (
            buffer.data is not None and len(buffer.data) != buffer.elements * DTYPE_BYTES[buffer.dtype]
        ):
            self._bad(line, f"the constant data of buffer {number} do not fit the buffer")
        elif buffer.data is not None and on_chip:
            self._bad(line, f"constant {number} is on chip before anything has loaded it")

    def _on_both_cores(self, outer: tuple[int, ...]) -> bool:
        """Tell whether the outermost of the loops ``outer`` is a launch on two cores, and no inner loop is a launch
        loop.
        """
        loops = self.program.loops
        grids = [loop for number in outer if (loop := loops.get(number)) is not None and loop.kind is LoopKind.SPMD]
        if self.program.lnc != 2 or len(grids) != 1 or grids[0].id != outer[0]:
            return False
        cores = [node.trips for node in self.program.body if isinstance(node, Loop) and node.kind is LoopKind.SPMD]
        return cores in ([2], [1, 1])

    def _body(self, body: tuple[Node, ...], outer: tuple[int, ...], around: tuple[Loop, ...]) -> None:
        if len(outer) > _DEEPEST:
            self._too_deep = True
            self._bad(0, f"loops are nested deeper than {_DEEPEST}")
            return
        for node in body:
            self.report.tick()
            if isinstance(node, Loop):
                dynamic = node.at_run_time
                if node.id in self._loops:
                    self._bad(node.line, f"loop {node.id} occurs twice")
                if not self._is_index(node.trips, LARGEST):
                    self._bad(node.line, f"a loop can not have {node.trips} iterations")
                if dynamic != (node.trips_register is not None) or (
                    node.trips_register is not None and not self._is_index(node.trips_register, self.program.registers)
                ):
                    self._bad(
                        node.line,
                        "a loop has a register for its number of iterations if, and only if, that is known at run time only",
                    )
                self._loops.add(node.id)
                self._body(node.body, (*outer, node.id), (*around, node))
                continue
            before = self.report.noted
            if node.op == "exchange" and not self._on_both_cores(outer):
                self._bad(node.line, "a core exchanges tiles, but the kernel is not launched on two cores")
            like = self.likeness.of(node, around)
            if like is None or like not in self._fine:
                self._instruction(node, frozenset(outer))
            if self.report.noted == before:
                self.sound[id(node)] = like
                if like is not None:
                    self._fine.add(like)

    def _instruction(self, instruction: Instruction, loops: frozenset[int]) -> None:
        line, op = instruction.line, instruction.op
        spec = OPS.get(op)
        if spec is None:
            self._bad(line, f"there is no operation {op!r}")
            return
        for given, places, what in (
            (len(instruction.dsts), spec.dsts, "destinations"),
            (len(instruction.srcs), spec.srcs, "operands"),
        ):
            least = sum(not one.optional for one in places)
            if not least <= given <= len(places):
                self._bad(line, f"{op} has {given} {what}, but takes {least} to {len(places)}")
                return
        for operand in (*instruction.srcs, *instruction.dsts):
            if isinstance(operand, Access):
                if not self._access(operand, loops, line, 0):
                    return
            elif isinstance(operand, Pattern):
                if not self._affine(operand.base, loops, line):
                    return
            elif isinstance(operand, bool) or not isinstance(operand, int | float) or not _finite_size(operand):
                self._bad(line, f"{op} has an operand that is neither a tile nor a number")
                return
        if not self._kinds(instruction) or not self._attributes(instruction):
            return
        if op in ("iota", "affine_select") and instruction.pattern is None:
            self._bad(line, f"{op} needs a pattern")
            return
        if not instruction.mask and instruction.pattern is None:
            return
        space = iteration_space(instruction)
        for pattern in (*instruction.mask, *((instruction.pattern,) if instruction.pattern else ())):
            if len(pattern.coefs) > len(space.shape) or any(not _whole(coef) for coef in pattern.coefs):
                self._bad(
                    line, f"{op} has a mask of {len(pattern.coefs)} axes, but an iteration space of {len(space.shape)}"
                )
                return
            if not self._affine(pattern.base, loops, line):
                return

    def _kinds(self, instruction: Instruction) -> bool:
        op, line = instruction.op, instruction.line
        for number, (place, operand) in enumerate(zip(OPS[op].srcs, instruction.srcs, strict=False)):
            if place.kind is Kind.TILE and not isinstance(operand, Access):
                self._bad(line, f"operand {number} of {op} must be a tile")
                return False
            if place.kind is Kind.NUMBER and isinstance(operand, Access | Pattern):
                self._bad(line, f"operand {number} of {op} must be a number")
                return False
        if any(not access.dims for access in instruction.accesses):
            self._bad(line, f"{op} has a tile without axes")
            return False
        return True

    def _attributes(self, instruction: Instruction) -> bool:
        op, line = instruction.op, instruction.line
        spec = OPS[op]
        seen = set()
        for key, value in instruction.attrs:
            seen.add(key)
            if key == "op":
                valid = isinstance(value, str) and value in (
                    REDUCE_OPS | {"average"} if op == "partition_reduce" else REDUCE_OPS if op in _REDUCING else ALU_OPS
                )
                valid = valid or (op == "dma_compute" and value is None)
            else:
                check = _ATTRIBUTES.get(key)
                valid = check is not None and check(value)
            if key not in spec.attrs or not valid:
                self._bad(line, f"attribute {key} of {op} can not be {str(value)[:40]!r}")
                return False
        for key in sorted(spec.required):
            if instruction.attr(key) is None:
                self._bad(line, f"{op} lacks its attribute {key}")
                return False
        for key in ("register", "source", "operand"):
            value = instruction.attr(key)
            if value is not None and not self._is_index(value, self.program.registers):
                self._bad(line, f"{op} names register {value}, which does not exist")
                return False
        return True

    def _access(self, access: Access, loops: frozenset[int], line: int, depth: int) -> bool:
        if not self._is_index(access.buffer, len(self.program.buffers)) or depth > 2:
            self._bad(line, f"an operand lies in buffer {access.buffer}, which does not exist")
            return False
        buffer = self.program.buffers[access.buffer]
        rank = len(buffer.shape)
        if len(access.start) != rank or not self._fits(access.dims, rank):
            self._bad(line, f"a tile does not fit the {rank} dimensions of buffer {access.buffer}")
            return False
        if access.dtype and DTYPE_BYTES.get(access.dtype) != DTYPE_BYTES[buffer.dtype]:
            self._bad(line, f"a tile of {buffer.dtype} can not be read as {access.dtype!r}")
            return False
        if not all(self._affine(start, loops, line) for start in access.start):
            return False
        for one in access.indirect:
            if not self._is_index(one.dim, rank) or not _whole(one.scale):
                self._bad(line, "a run-time index belongs to a dimension that does not exist")
                return False
            if one.register is not None and not self._is_index(one.register, self.program.registers):
                self._bad(line, f"register {one.register} does not exist")
                return False
            if one.index is not None:
                if not self._is_index(one.axis, max(1, len(access.dims))):
                    self._bad(line, "a run-time index belongs to an axis that does not exist")
                    return False
                if not self._access(one.index, loops, line, depth + 1):
                    return False
        return True

    def _fits(self, dims: tuple[TileDim, ...], rank: int) -> bool:
        """Tell whether the axes of a tile fit a buffer of ``rank`` dimensions."""
        if (id(dims), rank) in self._fitting:  # the program keeps the axes, so ids stay unique
            return True
        for dim in dims:
            whole = self._is_index(dim.count, LARGEST) and all(_whole(step) for step in dim.steps)
            if not whole or len(dim.steps) != rank:
                return False
        if math.prod(dim.count for dim in dims) >= LARGEST:
            return False
        self._fitting.add((id(dims), rank))
        return True

    def _affine(self, value: Affine, loops: frozenset[int], line: int) -> bool:
        if not _whole(value.const) or any(not _whole(coef) for _, coef in value.terms):
            self._bad(line, "an index is not a whole number")
            return False
        if value.terms and any(loop not in loops for loop, _ in value.terms):
            self.report.add(
                "local_scope",
                line,
                "a loop variable is used outside of its loop",
                "use the value inside the loop, or index with another variable",
            )
            return False
        return True
