"""Find the readers and writers of each buffer, and prove that every element is written before it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acceld.nki.ir.numerics import COMMUTATIVE_OPS, is_integer
from acceld.nki.ir.operations import OPS, Trait, having
from acceld.nki.ir.program import Access, Affine, Buffer, Engine, Indirect, Instruction, Loop, LoopKind, Program
from acceld.nki.ir.regions import Box, box

_BOXES_KEPT = 64
_COMPARISONS = 2_000_000
_WHOLE_WRITES, _PRODUCTS = having(Trait.WHOLE), frozenset(op for op, entry in OPS.items() if entry.is_product)


@dataclass(frozen=True, slots=True)
class Use:
    """One access of an instruction to a buffer.

    ``whole`` is True if the instruction is proved to write every element of the accessed box. ``position`` is
    the instruction's number in program order.

    ``reduce_loops`` is for the destination of a loop_reduce: the ids of the loops over which it folds. The instruction
    overwrites the destination in the first iteration of these loops, and folds into the destination in the other
    iterations.
    """

    instruction: Instruction
    access: Access
    loops: tuple[Loop, ...]
    reads: bool
    writes: bool
    whole: bool = False
    reduce_loops: tuple[int, ...] = ()
    position: int = 0

    @property
    def indirect(self) -> bool:
        """Tell whether run-time values decide which elements are accessed."""
        return bool(self.access.indirect)


def is_product(instruction: Instruction) -> bool:
    """Tell whether an instruction is a matrix product. A matrix product may add to the contents of its
    destination.
    """
    return instruction.op in _PRODUCTS


def accumulation(instruction: Instruction) -> str:
    """Return the ``accumulate`` attribute of a matrix product: 'yes' (add), 'no' (overwrite) or 'auto'
    (overwrite first, then add).
    """
    value = instruction.attr("accumulate", "auto")
    if value in ("yes", True):
        return "yes"
    return "no" if value in ("no", False) else "auto"


def adds_or_overwrites(use: Use) -> bool:
    """Tell whether an instruction adds to an element of its destination that was written before, and overwrites an
    element that was not.
    """
    return use.writes and is_product(use.instruction) and accumulation(use.instruction) == "auto"


def reads_destination(instruction: Instruction, number: int) -> bool:
    """Tell whether the new contents of destination ``number`` depend on its old contents."""
    op = instruction.op
    if is_product(instruction):
        return accumulation(instruction) != "no"
    if op == "dma_copy":
        return instruction.attr("rmw") is not None
    if number and op != "topk":
        return instruction.attr("reduce_cmd") == "load_reduce" and instruction.attr("reduce_init") is None
    return False


def joins(instruction: Instruction, number: int, buffers: Sequence[Buffer]) -> str:
    """Return the operation, such as addition, by which an instruction combines new values with destination
    ``number``.

    Return an empty text if the order of such instructions changes more than rounding. Sums and products of whole
    numbers do not count, because they may saturate.
    """
    op, dst = instruction.op, instruction.dsts[number]
    found: object = None
    if reads_destination(instruction, number):
        found = "add" if is_product(instruction) else instruction.attr("rmw") or instruction.attr("reduce_op")
        found = None if instruction.attr("negate") else found
    elif op == "loop_reduce":
        found = instruction.attr("op")
    elif sum(isinstance(src, Access) and src.buffer == dst.buffer for src in instruction.srcs) == 1 and number == 0:
        place = instruction.srcs.index(dst) if dst in instruction.srcs else -1
        ways = [(instruction.attr(f"op{k}"), bool(instruction.attr(f"reverse{k}"))) for k in (0, 1)]
        used = [(one, swaps) for one, swaps in ways if one not in (None, "bypass")]
        if op == "tensor_tensor" and place >= 0:
            found = _free(instruction.attr("op"), first=place == 0)
        elif op in ("tensor_scalar", "scalar_tensor_tensor") and place == 0:
            kinds = {_free(one, first=not swaps) for one, swaps in used}
            found = kinds.pop() if len(kinds) == 1 else None
        elif op == "scalar_tensor_tensor" and place == 2:
            found = _free(ways[1][0], first=ways[1][1])
    exact = is_integer(dst.dtype or buffers[dst.buffer].dtype)
    return (
        found if isinstance(found, str) and found in COMMUTATIVE_OPS - ({"add", "multiply"} if exact else set()) else ""
    )


def _free(op: object, *, first: bool) -> str:
    """Return the operation to which repeating an instruction amounts: one that computes ``op`` of a tile and another
    operand in place.

    For example, subtracting several numbers from a tile adds the numbers up ("add"), and dividing the tile by several
    numbers multiplies them ("multiply"). Return empty text if the order of the repetitions matters. ``first`` is True
    if the tile is the first operand.
    """
    if first and op in ("subtract", "divide"):
        return "add" if op == "subtract" else "multiply"
    return op if isinstance(op, str) and op in COMMUTATIVE_OPS else ""


def reduce_command(instruction: Instruction) -> str:
    """Return the instruction's command to the accumulators of its engine; 'idle' for an instruction without such a
    command.

    The accumulators are one element for each partition. No access names the accumulators. 'reset', 'reset_reduce' and
    'load_reduce' overwrite the accumulators. 'reduce' reads and writes the accumulators.
    """
    entry = OPS.get(instruction.op)
    if entry is None or "reduce_cmd" not in entry.attrs:
        return "idle"
    command, result = instruction.attr("reduce_cmd"), len(instruction.dsts) > 1
    if instruction.op == "tensor_scalar_cumulative" or (result and instruction.attr("reduce_op") is not None):
        return str(command) if command not in (None, "idle") else "reset_reduce"
    return str(command or ("reset_reduce" if result else "idle"))


def goes_on_from_nothing(program: Program) -> bool:
    """Tell whether an instruction may fold values into accumulators of its engine that no instruction has set before."""
    begun: dict[tuple[Engine, tuple[int, ...]], int] = {}
    """The number of partitions whose accumulators are set, by engine and by the programs of the launch."""
    for node, around in program.walk():
        command = reduce_command(node)
        if command == "idle":
            continue
        place = node.engine, tuple([loop.id for loop in around if loop.kind is LoopKind.SPMD])
        first = node.dsts[0]
        rows = first.dims[0].count if first.dims else 1
        if command == "reduce":
            if rows > begun.get(place, 0):
                return True
        elif not node.mask and all(loop.trips and not loop.at_run_time for loop in around):
            begun[place] = max(rows, begun.get(place, 0))
    return False


def leaves_result(instruction: Instruction, number: int) -> bool:
    """Tell whether the instruction leaves destination ``number`` unwritten.

    This is so for destination 1, the result of a reduction, if the command to the accumulators is 'idle' or 'reset'.
    """
    entry = OPS.get(instruction.op)
    folds = number == 1 and entry is not None and "reduce_cmd" in entry.attrs
    return folds and reduce_command(instruction) in ("idle", "reset")


def reduce_loops(instruction: Instruction) -> tuple[int, ...]:
    """Return the ids of the loops over which a loop_reduce folds; () for other instructions."""
    loops = instruction.attr("loops")
    return tuple(loop for loop in loops if isinstance(loop, int)) if isinstance(loops, tuple) else ()


def _whole(instruction: Instruction, number: int) -> bool:
    if instruction.mask or instruction.attr("oob") == "skip" or leaves_result(instruction, number):
        return False
    return instruction.op in _WHOLE_WRITES and not instruction.dsts[number].indirect


def _indices(indirect: Sequence[Indirect]) -> list[Access]:
    found = []
    for one in indirect:
        if one.index is not None:
            found += [*_indices(one.index.indirect), one.index]
    return found


def uses_of(instruction: Instruction, loops: tuple[Loop, ...], position: int = 0) -> list[Use]:
    """Return one instruction's uses of buffers: its reads, tiles of indices first, and then its writes."""
    found = []
    for access in instruction.accesses:
        found += [Use(instruction, index, loops, True, False, position=position) for index in _indices(access.indirect)]
    found += [
        Use(instruction, src, loops, True, False, position=position)
        for src in instruction.srcs
        if isinstance(src, Access)
    ]
    for number, dst in enumerate(instruction.dsts):
        found.append(
            Use(
                instruction,
                dst,
                loops,
                reads_destination(instruction, number),
                True,
                _whole(instruction, number),
                reduce_loops(instruction) if instruction.op == "loop_reduce" else (),
                position,
            )
        )
    return found


def registers_read(instruction: Instruction) -> list[int]:
    """Return the registers whose values an instruction reads, as operands or as run-time indices of its accesses."""
    found = _registers(instruction.accesses)
    names = [] if instruction.op == "register_store" else ["source", "operand"]
    if instruction.op == "register_store" or (instruction.op == "register_alu" and instruction.attr("source") is None):
        names.append("register")
    return found + [number for name in names if isinstance(number := instruction.attr(name), int)]


def register_written(instruction: Instruction) -> int | None:
    """Return the register that an instruction sets; None if it sets no register."""
    number = instruction.attr("register")
    return number if isinstance(number, int) and instruction.op != "register_store" else None


def _registers(accesses: Iterable[Access]) -> list[int]:
    found: list[int] = []
    for access in accesses:
        for one in access.indirect:
            found += [] if one.register is None else [one.register]
            found += [] if one.index is None else _registers([one.index])
    return found


def all_uses(program: Program) -> dict[int, list[Use]]:
    """Return the uses of each buffer by buffer id, in program order."""
    found: dict[int, list[Use]] = {}
    for position, (instruction, loops) in enumerate(program.walk()):
        for use in uses_of(instruction, loops, position):
            found.setdefault(use.access.buffer, []).append(use)
    return found


def common_loops(uses: Sequence[Use]) -> tuple[Loop, ...]:
    """Return the loops that are around all of ``uses``, outermost first."""
    common = uses[0].loops
    for use in uses:
        length = 0
        for mine, its in zip(common, use.loops, strict=False):
            if mine.id != its.id:
                break
            length += 1
        common = common[:length]
    return common


class Coverage:
    """Prove that every read of a buffer sees elements that earlier instructions wrote.

    ``trips`` gives the greatest number of iterations of each loop, by loop id. A proof that would take more
    than :data:`_COMPARISONS` comparisons of boxes fails, so the time is bounded for any program.
    """

    def __init__(self, trips: Mapping[int, int]) -> None:
        self.trips = trips
        self._left = _COMPARISONS

    def complete(self, uses: Sequence[Use], depth: int) -> bool:
        """Tell whether each read in ``uses`` is proved to see only elements that earlier instructions wrote.

        ``uses`` are the uses of one buffer in program order. The writes must be in the same iteration of the
        outer ``depth`` loops as the read.
        """
        return self._walk(uses, depth, depth, [])[0]

    def fills(self, uses: Sequence[Use], shape: tuple[int, ...]) -> bool:
        """Tell whether ``uses`` are proved to write every element of a buffer of shape ``shape``, and to read no
        element before it is written.
        """
        fine, written = self._walk(uses, 0, 0, [])
        return fine and self._covered(Box(tuple(Affine(0) for _ in shape), shape), [], written)

    def _walk(self, uses: Sequence[Use], depth: int, root: int, have: list[Box]) -> tuple[bool, list[Box]]:
        written: list[Box] = []
        at = 0
        while at < len(uses):
            use = uses[at]
            if len(use.loops) > depth:
                loop = use.loops[depth]
                end = at
                while end < len(uses) and len(uses[end].loops) > depth and uses[end].loops[depth].id == loop.id:
                    end += 1
                fine, inner = self._walk(uses[at:end], depth + 1, root, have + written)
                if not fine:
                    return False, []
                if not loop.at_run_time and loop.trips > 0:
                    for region in inner:
                        outer = region.without(loop.id, loop.trips)
                        if outer is not None and outer.dense:
                            self._add(written, outer)
                at = end
                continue
            at += 1
            self._left -= 1 + len(written) + len(have)
            if self._left < 0:
                return False, []
            if use.indirect:
                if use.reads:
                    return False, []
                continue
            region = box(use.access)
            inside = {loop.id for loop in use.loops[root:]}
            starts_over = bool(use.reduce_loops) and set(use.reduce_loops) <= inside
            if (use.reads or (use.reduce_loops and not starts_over)) and not self._covered(region, have, written):
                return False, []
            if use.writes and use.whole and region.dense:
                self._add(written, region)
        return True, written

    def _covered(self, region: Box, have: list[Box], written: list[Box]) -> bool:
        if region.empty:
            return True
        return any(one.holds(region, self.trips) for one in written) or any(
            one.holds(region, self.trips) for one in have
        )

    def _add(self, written: list[Box], region: Box) -> None:
        while True:
            for number, one in enumerate(written):
                both = one.merged(region)
                if both is not None:
                    del written[number]
                    region = both
                    break
            else:
                break
        written.append(region)
        if len(written) > _BOXES_KEPT:
            del written[0]
