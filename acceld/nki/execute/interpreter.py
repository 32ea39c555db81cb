"""Run a program on data.

The tree of loops is compiled once into closures over strided views. No instruction is interpreted element by element. A
loop whose body is one accumulating matrix product runs as one larger product. Results can differ from a run in
iteration order only by the order of float32 sums.

Nothing in a program is trusted. An access that is not proved to lie inside its buffer is checked when it runs. Storage
is bounded by ``max_bytes`` and time by ``deadline_s``. If a malformed program makes numpy raise an error, that error
becomes a :class:`KernelCrash` with the instruction's line.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from acceld.chips import chip_spec
from acceld.errors import UsageError
from acceld.nki.errors import KernelCrash, KernelFailure, LimitExceeded, placed
from acceld.nki.execute.answers import Answers
from acceld.nki.execute.blas import one_thread
from acceld.nki.execute.buffers import BufferMemory, Chance, Layout, Planner, check_total, copy_in, is_whole
from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.iterations import Iterations
from acceld.nki.execute.kept_results import KeptResults
from acceld.nki.execute.kernels import build
from acceld.nki.execute.machine import Env, Machine, Member, crash
from acceld.nki.execute.overlaps import checked, views_of
from acceld.nki.execute.pair import CoreState, Pair
from acceld.nki.execute.products import fused_loops, fused_matmul, layout_order
from acceld.nki.execute.races import Races
from acceld.nki.execute.tiles import repeats
from acceld.nki.execute.windows import Nothing, Window, window_function
from acceld.nki.ir.affine_order import undecided, unordered
from acceld.nki.ir.def_use import Coverage, Use, adds_or_overwrites, goes_on_from_nothing, reduce_command, uses_of
from acceld.nki.ir.numerics import NUMPY_DTYPES, Array, is_integer
from acceld.nki.ir.operations import DTYPE_BYTES, SHIFTS
from acceld.nki.ir.program import Access, Instruction, Loop, LoopKind, Node, Program, Role, Space

_CHECK_EVERY = 256
_LONGEST_SHUFFLE = 1_000_000
Order = int | Literal["reversed"]
"""The order in which the iterations of affine loops run; ``shuffle_affine`` of :class:`ExecuteOptions` says what each
form means.
"""


@dataclass(frozen=True, slots=True)
class ExecuteOptions:
    """Options of an execution.

    - ``float64``: compute every float in float64, without rounding to narrow formats.
    - ``uninitialized``: the contents of memory that was never written.
    - ``chance``: a seed for choices that a chip may make in another way. Memory that was never written then
      holds random finite values. If an instruction writes different values to one position, a value other than the last
      one stays.
    - ``held``: with ``chance``, a number that memory which was never written holds in place of random values, in each
      dtype that can represent the number.
    - ``shuffle_affine``: a seed to run affine loops in random order, or "reversed".
    - ``check_onezero``: fail if an operand that should hold only 0 and 1 holds another value.
    - ``check_transposes``: fail, on trn1 too, if a product is marked as a transpose and no operand is an identity or a
      permutation. On later chips this is always checked.
    - ``deadline_s``, ``max_bytes``: limits on time and memory.
    - ``random_seed``: the seed of the program's random numbers.
    - ``turns``: for instructions, by number in program order, which executions are computed, left out or copied
      from others (:mod:`acceld.nki.ir.turns`). Not allowed with ``shuffle_affine``.
    - ``chip_functions``: give the scalar engine's functions errors as large as the published ones.
    - ``keeps_nan``: return, in place of each output, a mask of the elements that depend on memory which was never
      written. Such elements are NaN while the program runs, also in integers, comparisons and choices.
    - ``follows_order``: return, in place of each output, a mask of the elements that depend on the order of affine
      iterations (:mod:`acceld.nki.execute.iterations`). Such elements are NaN while the program runs, as with
      ``keeps_nan``; memory that was never written holds zeros.
    - ``answers``: store the answers of comparisons, or reverse them where the operands differ from an earlier run.
    - ``checks_ranges``: fail if a function of the scalar engine gets a number outside its documented range.
    """

    float64: bool = False
    uninitialized: Literal["nan", "zero"] = "nan"
    chance: int | None = None
    held: float | None = None
    shuffle_affine: Order | None = None
    check_onezero: bool = True
    check_transposes: bool = False
    deadline_s: float | None = None
    max_bytes: int = 8 * 1024**3
    random_seed: int = 0
    turns: Mapping[int, Sequence[int]] = field(default_factory=dict)
    chip_functions: bool = False
    keeps_nan: bool = False
    follows_order: bool = False
    answers: Answers | None = None
    checks_ranges: bool = False


DEFAULT_OPTIONS = ExecuteOptions()

Run = Callable[[Env], None]


def execute(
    program: Program,
    inputs: Sequence[Array],
    options: ExecuteOptions = DEFAULT_OPTIONS,
    *,
    member: Member | None = None,
) -> list[Array]:
    """Run a program on ``inputs``, and return its outputs.

    ``inputs`` are arrays with the shapes of the input buffers, in the order of ``program.inputs``. Their values
    are rounded to the buffers' dtypes, and the arrays are never written to. ``member`` is the rank that runs,
    if there are several (:mod:`acceld.nki.execute.ranks`).

    Raise KernelCrash or LimitExceeded if the program fails, UnsupportedCall for an operation that the simulator
    can not run, UsageError for inputs that do not fit.
    """
    return _Execution(program, options, member).run(inputs)


def is_settled(program: Program) -> bool:
    """Tell whether it is proved that the program's results do not depend on anything a chip leaves to chance
    (``ExecuteOptions.chance``).
    """
    return _Execution(program, DEFAULT_OPTIONS).settled


class _Execution:
    """A program compiled for one run, and the state of that run."""

    def __init__(self, program: Program, options: ExecuteOptions, member: Member | None = None) -> None:
        self.program, self.options = program, options
        self.loops = program.loops
        self.views = views_of(program)
        self.trips = {number: loop.trips for number, loop in self.loops.items()}
        self.skipped: set[int] = set()
        self.filled: set[int] = set()
        """Ids of the output buffers of which the program writes every element."""
        self.live = 0
        self.timed = KeptResults(options.turns, self._take)
        self.places = (
            {id(node): (at, loops) for at, (node, loops) in enumerate(program.walk())} if options.turns else {}
        )
        self.lockstep = frozenset(
            number for number, loop in self.loops.items() if loop.kind is LoopKind.SPMD and _has_barrier(loop)
        )
        uses = self._uses()
        layouts = self._layouts(uses)
        check_total(layouts, options.max_bytes)
        poison = options.uninitialized == "nan" and not options.follows_order
        traces = options.keeps_nan or options.follows_order
        chance = None if options.chance is None else Chance(options.chance, options.held)
        adds = {number for number, found in uses.items() if any(adds_or_overwrites(use) for use in found)}
        self.stores = [
            BufferMemory(
                layout,
                poison=poison,
                chance=chance,
                adds=layout.buffer.id in adds,
                traces=traces,
                shared=program.lnc > 1 and layout.buffer.space is Space.HBM and layout.buffer.role is not Role.INPUT,
            )
            for layout in layouts
        ]
        outputs = {number for number in program.outputs if program.buffers[number].role is not Role.INPUT}
        self.settled = not any(
            self._left_to_chance(layout, uses.get(layout.buffer.id, []), layout.buffer.id in outputs)
            for layout in layouts
        ) and not (
            goes_on_from_nothing(program) or any(_may_shift_too_far(node, program) for node, _ in program.walk())
        )
        """True if it is proved that no result depends on memory or accumulators that were never written, on the order of
        writes to run-time positions, or on a shift by more bits than a number has.
        """
        self.first: dict[int, list[BufferMemory]] = {}
        self.last: dict[int, list[BufferMemory]] = {}
        for number, found in uses.items():
            if program.buffers[number].role is Role.SCRATCH and found:
                self.first.setdefault(found[0].position, []).append(self.stores[number])
                self.last.setdefault(found[-1].position, []).append(self.stores[number])
        self.paired: set[int] = set()
        self.written = {number for number, found in uses.items() if any(use.writes for use in found)}
        env: Env = [0] * len(self.loops)
        chip = chip_spec(program.chip)
        shuffled = options.shuffle_affine is not None
        self.env = env
        deadline = math.inf if options.deadline_s is None else time.monotonic() + options.deadline_s
        self.machine = Machine(
            stores=self.stores,
            partitions=chip.partitions,
            slots={number: slot for slot, number in enumerate(self.loops)},
            float64=options.float64,
            check_onezero=options.check_onezero,
            check_transposes=options.check_transposes or chip.generation > 2,
            moves_bits=chip.generation > 2,
            max_elements=max(1, options.max_bytes // 4),
            deadline=deadline,
            registers=[None] * program.registers,
            order=[0] * len(self.loops) if shuffled else env,
            random=np.random.default_rng(options.random_seed),
            chip_functions=options.chip_functions and not options.float64,
            keeps_nan=traces,
            follows_order=options.follows_order,
            answers=options.answers,
            checks_ranges=options.checks_ranges,
            otherwise=options.chance is not None,
            member=member,
        )
        self.races = Races(program, self.stores, self.machine.slots) if program.lnc > 1 else None
        self.unordered = unordered(program)
        self.iterations = (
            Iterations(program, self.machine, undecided(program), self._take) if options.follows_order else None
        )
        self.order_random = np.random.default_rng(
            options.shuffle_affine if isinstance(options.shuffle_affine, int) else 0
        )
        self.keeps = program.lnc > 1 and (
            program.registers > 0 or any(reduce_command(one) == "reduce" for one, _ in program.walk())
        )
        """True if a core keeps values in registers or accumulators from one instruction to another."""
        self.aside: dict[tuple[int, ...], CoreState] = {}
        """Registers and accumulators of each core of a launch, by the core's position in the grid. Only cores that
        :meth:`_in_step` runs instruction by instruction have an entry.
        """
        self.refills: dict[int, list[BufferMemory]] = {}
        for store in self.stores:
            if store.layout.refill is not None and store.layout.refill >= 0:
                self.refills.setdefault(store.layout.refill, []).append(store)

    def _left_to_chance(self, layout: Layout, uses: list[Use], output: bool) -> bool:
        """Tell whether a buffer's contents may depend on chance. That is so if elements may be read before they are
        written, are written at positions known only at run time, or are written several times by one instruction.
        """
        buffer = layout.buffer
        if any(use.writes and repeats(use.access, buffer.strides) for use in uses):
            return True
        if buffer.role in (Role.INPUT, Role.CONSTANT):
            return any(use.writes and use.indirect for use in uses)
        if any(use.writes and use.indirect for use in uses):
            return True
        if buffer.role is Role.SCRATCH and not output:
            return bool(uses) and not layout.defined and layout.fill is None
        return not Coverage(self.trips).complete(uses, 0)

    def _uses(self) -> dict[int, list[Use]]:
        found: dict[int, list[Use]] = {}

        def visit(node: Node, loops: tuple[Loop, ...], position: int) -> None:
            if isinstance(node, Loop):
                for child in node.body:
                    visit(child, (*loops, node), position)
                return
            for use in uses_of(node, loops, position):
                found.setdefault(use.access.buffer, []).append(use)

        for position, node in enumerate(self.program.body):
            visit(node, (), position)
        return found

    def _layouts(self, uses: dict[int, list[Use]]) -> list[Layout]:
        apart = {number for number, loop in self.loops.items() if loop.kind is LoopKind.SPMD and self.program.lnc > 1}
        planner = Planner(self.trips, float64=self.options.float64, kept_loops=self.lockstep | apart)
        orders = self._orders(uses)
        layouts = []
        for buffer in self.program.buffers:
            found = uses.get(buffer.id, [])
            fill = self._fill(buffer.id, found)
            layouts.append(planner.layout(buffer, found, order=orders.get(buffer.id), fill=fill))
        for number in self.program.outputs if not self.options.turns else ():
            if planner.coverage.fills(uses.get(number, []), self.program.buffers[number].shape):
                self.filled.add(number)
        return layouts

    def _fill(self, number: int, found: list[Use]) -> float | int | None:
        """Return the number to which a memset sets all of a buffer right where the buffer is declared; None if there
        is no such memset.

        The storage then starts with that number, and the memset itself is skipped.
        """
        if not found:
            return None
        buffer, use = self.program.buffers[number], found[0]
        instruction = use.instruction
        value = instruction.srcs[0] if instruction.op == "memset" and instruction.srcs else None
        if (
            buffer.role is not Role.SCRATCH
            or not isinstance(value, int | float)
            or (is_integer(buffer.dtype) and value != 0)
            or instruction.mask
            or use.access.dtype not in ("", buffer.dtype)
            or tuple(loop.id for loop in use.loops) != buffer.scope
            or len(instruction.dsts) != 1
            or not is_whole(buffer, use.access)
            or self._is_timed(instruction)
            or sum(other.instruction is instruction for other in found) != 1
            or any(loop.id in self.lockstep for loop in use.loops)
        ):
            return None
        self.skipped.add(id(instruction))
        del found[0]
        return value

    def _orders(self, uses: dict[int, list[Use]]) -> dict[int, tuple[int, ...]]:
        orders: dict[int, tuple[int, ...]] = {}
        for loop in self.loops.values():
            fused = fused_loops(loop)
            if fused is None:
                continue
            loops, instruction = fused
            for operand in instruction.srcs:
                assert isinstance(operand, Access)
                buffer = self.program.buffers[operand.buffer]
                order = layout_order(operand, loops, buffer.partition_axis)
                if order is not None:
                    orders.setdefault(operand.buffer, order)
        return orders

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        program = self.program
        if len(inputs) != len(program.inputs):
            raise UsageError(
                f"the program takes {len(program.inputs)} inputs, but {len(inputs)} were given",
                hint="give one array for each of the kernel's arguments, in order",
            )
        with np.errstate(all="ignore"), one_thread():
            self._place_inputs(inputs)
            for number, buffer in enumerate(program.buffers):
                if buffer.data is not None:
                    values = np.frombuffer(buffer.data, NUMPY_DTYPES[buffer.dtype])
                    self.stores[number].array = copy_in(buffer, self.stores[number].layout, values)
                    self.stores[number].mark_defined()
                elif buffer.role is Role.OUTPUT or (number in program.outputs and number not in program.inputs):
                    self._allocate(self.stores[number])
                    if number not in self.filled:
                        self.stores[number].fill()
            for position, node in enumerate(program.body):
                if position % _CHECK_EVERY == 0:
                    self.machine.check_deadline()
                if _is_lone_core(node):
                    self._run_cores(position)
                    continue
                self._acquire(position)
                self._compile(node)(self.env)
                self._release(position)
        return [self._output(number) for number in program.outputs]

    def _acquire(self, position: int) -> None:
        for store in self.first.get(position, ()):
            self._allocate(store)

    def _release(self, position: int) -> None:
        for store in self.last.get(position, ()):
            self.live -= store.held_bytes
            store.release()

    def _run_cores(self, position: int) -> None:
        """Run two cores with different programs that wait for each other. This is called at the loop of
        the first core, number ``position`` of the program's body.

        Raise KernelCrash if a core waits for the other core at a point that the other core does not reach.
        """
        body = self.program.body
        if position and position - 1 in self.paired:
            return  # the first core's iteration has already run both cores
        other = body[position + 1] if position + 1 < len(body) else None
        if other is None or not _is_lone_core(other):
            crash(
                "a core waits forever: it waits at a barrier or sends a tile, and the other core does not",
                "exchange_cores",
                _line_of_meeting(body[position]),
                "give both cores the same barriers and exchanges, in the same order",
            )
        self.paired.add(position)
        self._acquire(position)
        self._acquire(position + 1)
        self.machine.pair = pair = Pair(self.machine.set_aside, self.machine.resume)
        first, second = self._compile(body[position]), self._compile(other)
        pair.run(lambda: first(self.env), lambda: second(self.env))
        self.machine.pair = None
        self._release(position)
        self._release(position + 1)

    def _place_inputs(self, inputs: Sequence[Array]) -> None:
        for number, values in zip(self.program.inputs, inputs, strict=True):
            buffer, store = self.program.buffers[number], self.stores[number]
            values = np.asarray(values)
            if values.size != buffer.elements or (values.shape != buffer.outer_shape and values.ndim):
                raise UsageError(
                    f"input {buffer.name} has shape {values.shape}, but the program expects {buffer.outer_shape}",
                    hint="give arrays of the shapes that the kernel was traced with",
                )
            self.live += store.layout.nbytes
            kept = (
                number not in self.written
                and values.dtype == store.layout.dtype
                and values.flags.c_contiguous
                and buffer.dtype != "tfloat32"
                and values.size > 0
            )
            if kept:
                store.array = values.reshape(-1).view(np.uint8)
                store.array.flags.writeable = False
            else:
                store.array = copy_in(buffer, store.layout, values)
                store.mark_defined()

    def _take(self, size: int, line: int = 0) -> None:
        self.live += size
        if self.live > self.options.max_bytes:
            raise LimitExceeded(
                f"the program needs more than {self.options.max_bytes} bytes to execute",
                rule="memory_limit",
                line=line,
                hint="use smaller tensors, or raise [evaluate] memory_gib",
            )

    def _allocate(self, store: BufferMemory) -> None:
        self._take(store.held_bytes, store.layout.buffer.line)
        try:
            store.allocate()
        except (MemoryError, ValueError) as error:
            raise LimitExceeded(
                placed(
                    f"this machine has no memory for a buffer of {store.layout.nbytes} bytes", store.layout.buffer.place
                ),
                rule="memory_limit",
                line=store.layout.buffer.line,
            ) from error

    def _output(self, number: int) -> Array:
        buffer, store = self.program.buffers[number], self.stores[number]
        dtype = store.layout.dtype
        if store.traces:
            marks = np.zeros(store.layout.nbytes, np.uint8) if store.marks is None else store.marks
            return np.asarray(marks.view(f"u{dtype.itemsize}").reshape(buffer.outer_shape) != 0)
        values: Array = store.array.view(dtype).reshape(buffer.outer_shape)
        return values if number in self.written and number not in self.program.inputs else values.copy()

    def _compile(self, node: Node) -> Run:
        return self._loop(node) if isinstance(node, Loop) else self._instruction(node)

    def _instruction(self, instruction: Instruction) -> Run:
        if id(instruction) in self.skipped:
            return _nothing
        self.machine.check_deadline()
        try:
            context = Context(self.machine, instruction, self.trips)
            step = checked(context, build(context), self.views)
            if self.races is not None:
                step = self.races.checked(context, step)
            if self.iterations is not None:
                step = self.iterations.checked(context, step)
            if self._is_timed(instruction):
                step = self.timed.step(*self.places[id(instruction)], context, step)
        except KernelFailure as failure:
            raise _placed(instruction, failure) from failure.__cause__
        except _NUMPY_ERRORS as error:
            raise _translated(instruction, error) from error
        return self._guarded(instruction, step, context)

    def _is_timed(self, instruction: Instruction) -> bool:
        place = self.places.get(id(instruction))
        return place is not None and place[0] in self.timed

    def _guarded(self, instruction: Instruction, step: Step, context: Context) -> Run:
        if not instruction.mask:

            def plain(env: Env) -> None:
                try:
                    step(env, None)
                except KernelFailure as failure:
                    raise _placed(instruction, failure) from failure.__cause__
                except _NUMPY_ERRORS as error:
                    raise _translated(instruction, error) from error

            return plain
        window = window_function(self.machine, instruction.mask, context.space.shape, general=context.general)

        def masked(env: Env) -> None:
            try:
                found: Window | Nothing = window(env)
                if not isinstance(found, Nothing):
                    step(env, found)
            except KernelFailure as failure:
                raise _placed(instruction, failure) from failure.__cause__
            except _NUMPY_ERRORS as error:
                raise _translated(instruction, error) from error

        return masked

    def _loop(self, loop: Loop) -> Run:
        fused = None if self.iterations is not None else self._fused(loop)
        if fused is not None:
            return fused
        if loop.id in self.lockstep and not _is_lone_core(loop):
            return self._in_step([loop], list(loop.body))
        children = [self._compile(node) for node in loop.body]
        return self._iterate(loop, children)

    def _iterate(self, loop: Loop, children: list[Run]) -> Run:
        machine = self.machine
        slot, count = machine.slots[loop.id], loop.trips
        refills = self.refills.get(loop.id, ())
        check = machine.check_deadline
        order = machine.order
        if loop.kind is LoopKind.SPMD and self.program.lnc > 1:

            def apart(env: Env) -> None:
                for i in range(count):
                    check()
                    machine.set_aside()
                    env[slot] = order[slot] = i
                    for store in refills:
                        store.fill()
                    for child in children:
                        child(env)

            return apart
        iterations = self.iterations
        if iterations is not None and iterations.watches(loop.id):

            def watched(env: Env) -> None:
                iterations.begin(loop.id)
                for position, i in enumerate(self._permutation(loop)):
                    check()
                    iterations.next(loop.id)
                    env[slot], order[slot] = i, position
                    for store in refills:
                        store.fill()
                    for child in children:
                        child(env)
                iterations.end(loop.id)

            return watched
        if self.options.shuffle_affine is not None:
            affine = loop.id in self.unordered

            def shuffled(env: Env) -> None:
                for position, i in enumerate(self._permutation(loop) if affine else self._iterations(loop)):
                    check()
                    env[slot], order[slot] = i, position
                    for store in refills:
                        store.fill()
                    for child in children:
                        child(env)

            return shuffled
        if loop.trips_register is not None or refills or self.options.deadline_s is not None:

            def general(env: Env) -> None:
                for i in self._iterations(loop):
                    check()
                    env[slot] = i
                    for store in refills:
                        store.fill()
                    for child in children:
                        child(env)

            return general

        def plain(env: Env) -> None:
            for i in range(count):
                env[slot] = i
                for child in children:
                    child(env)

        return plain

    def _in_step(self, cores: list[Loop], body: list[Node]) -> Run:
        """Return a function that runs the cores of a launch grid side by side: every core runs one node of ``body``
        before any core runs the next node.

        So what a core writes before a barrier is visible to the other cores after the barrier.
        """
        slots = [self.machine.slots[core.id] for core in cores]
        counts = [range(core.trips) for core in cores]
        runs: list[Run] = []
        for node in body:
            if isinstance(node, Loop) and _has_barrier(node):
                if node.id in self.lockstep:
                    runs.append(self._in_step([*cores, node], list(node.body)))
                else:
                    runs.append(self._iterate(node, [self._in_step(cores, list(node.body))]))
                continue
            if isinstance(node, Instruction) and node.op == "exchange":
                runs.append(self._exchanged(node, slots, counts))
                continue
            one = self._compile(node)

            def each(env: Env, one: Run = one) -> None:
                for position in itertools.product(*counts):
                    for slot, i in zip(slots, position, strict=True):
                        env[slot] = i
                        self.machine.order[slot] = i
                    if position in self.aside:
                        self.machine.resume(self.aside[position])
                    one(env)
                    if self.keeps:
                        self.aside[position] = self.machine.set_aside()

            runs.append(each)

        def run(env: Env) -> None:
            self.machine.check_deadline()
            for one in runs:
                one(env)

        return run

    def _exchanged(self, instruction: Instruction, slots: list[int], counts: list[range]) -> Run:
        """Return a function that exchanges a tile between two cores: each core gets the other core's tile."""
        context = Context(self.machine, instruction, self.trips)
        src, dst = context.src(0, arranged=False), context.dst(0, arranged=False)
        check = checked(context, lambda env, window: None, self.views)
        cores = list(itertools.product(*counts))
        if len(cores) != 2:
            crash(f"{len(cores)} cores exchange tiles, but a logical core has 2", "exchange_cores", instruction.line)

        def at(env: Env, core: tuple[int, ...]) -> None:
            for slot, i in zip(slots, core, strict=True):
                env[slot] = i
                self.machine.order[slot] = i

        def run(env: Env) -> None:
            try:
                held = []
                for core in cores:
                    at(env, core)
                    check(env, None)
                    held.append(np.array(src.load(env, None)))
                for core, values in zip(cores, reversed(held), strict=True):
                    at(env, core)
                    dst.put(env, None, values)
                if self.races is not None:
                    self.races.meet([core[0] for core in cores])
            except KernelFailure as failure:
                raise _placed(instruction, failure) from failure.__cause__
            except _NUMPY_ERRORS as error:
                raise _translated(instruction, error) from error

        return run

    def _fused(self, loop: Loop) -> Run | None:
        found = fused_loops(loop)
        if found is None or any(inner.id in self.refills for inner in found[0]):
            return None
        loops, instruction = found
        if self._is_timed(instruction):
            return None
        context = Context(self.machine, instruction, self.trips)
        rows = instruction.srcs[0].dims[0].count if isinstance(instruction.srcs[0], Access) else 0
        if context.general or rows * math.prod(inner.trips for inner in loops) > self.machine.max_elements // 1024:
            return None
        if (
            not all(context.src(number, arranged=False).proved for number in (0, 1))
            or not context.dst(0, arranged=False).proved
        ):
            return None
        return self._guarded(instruction, fused_matmul(self.machine, context, loops), context)

    def _iterations(self, loop: Loop) -> Iterable[int]:
        if loop.trips_register is None:
            return range(loop.trips)
        if self.iterations is not None:
            self.iterations.read_register(loop.trips_register, loop.line)
        if loop.kind is LoopKind.WHILE:
            return self._while(loop, loop.trips_register)
        count = self.machine.register(loop.trips_register, loop.line)
        if count > loop.trips:
            crash(
                f"the loop runs {count} times at run time; at most {loop.trips} were declared",
                "dynamic_trips",
                loop.line,
            )
        return range(max(0, count))

    def _while(self, loop: Loop, register: int) -> Iterator[int]:
        for i in range(loop.trips):
            if not self.machine.register(register, loop.line):
                return
            yield i
        if self.machine.register(register, loop.line):
            crash(f"the loop runs more than {loop.trips} times", "dynamic_trips", loop.line)

    def _permutation(self, loop: Loop) -> Sequence[int]:
        order = self.options.shuffle_affine
        if order is None:
            return range(loop.trips)
        if order == "reversed":
            return range(loop.trips - 1, -1, -1)
        return random_order(loop.trips, self.order_random)


def random_order(trips: int, random: np.random.Generator) -> Sequence[int]:
    """Return the iterations of a loop in a random order. Its first and last iterations differ from those of the
    reversed order.

    A result that depends on the first, the last or the preceding iteration then differs between this order and the
    reversed order. Loops of at most two iterations, and of more than _LONGEST_SHUFFLE, keep their order.
    """
    if not 2 < trips <= _LONGEST_SHUFFLE:
        return range(trips)
    order = [int(i) for i in random.permutation(trips)]
    if order[0] == trips - 1:
        order[:2] = order[1], order[0]
    if order[-1] == 0:
        order[-2:] = order[-1], order[-2]
    return order


_NUMPY_ERRORS = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    OverflowError,
    ZeroDivisionError,
    ArithmeticError,
    MemoryError,
    AttributeError,
)


def _placed(instruction: Instruction, failure: KernelFailure) -> KernelFailure:
    """Return ``failure``. If the instruction comes from a file other than the kernel's own, the position in that file
    is first added to the message.
    """
    failure.message = placed(failure.message, instruction.place)
    return failure


def _translated(instruction: Instruction, error: Exception) -> KernelFailure:
    if isinstance(error, KernelFailure):
        return error
    if isinstance(error, MemoryError):
        return LimitExceeded(f"{instruction.op}: out of memory", rule="memory_limit", line=instruction.line)
    return KernelCrash(
        f"{instruction.op}: {type(error).__name__}: {str(error)[:200]}",
        rule="execution",
        line=instruction.line,
        hint="the operands do not fit the operation",
    )


def _nothing(env: Env) -> None:
    """Do nothing. This replaces a memset whose value is already the buffer's initial value."""


def _is_lone_core(node: Node) -> bool:
    """Tell whether a node is the program of one core, in a launch whose two cores run different programs and wait for
    each other.
    """
    return isinstance(node, Loop) and node.kind is LoopKind.SPMD and node.trips == 1 and _has_barrier(node)


def _may_shift_too_far(node: Instruction, program: Program) -> bool:
    """Tell whether an instruction may shift a number by less than 0 bits, or by all bits of the number or more."""
    if node.op not in ("tensor_tensor", "tensor_scalar"):
        return False
    for stage, name in enumerate(("op", "op0", "op1")):
        if node.attr(name) not in SHIFTS:
            continue
        data, by = node.srcs[0], node.srcs[max(1, stage)]
        if not isinstance(data, Access) or not isinstance(by, int | float) or node.attr(f"reverse{stage - 1}"):
            return True
        if not 0 <= by < 8 * DTYPE_BYTES[data.dtype or program.buffers[data.buffer].dtype]:
            return True
    return False


def _has_barrier(node: Node) -> bool:
    return _has(node, ("barrier", "exchange"))


def _line_of_meeting(node: Node) -> int:
    """Return the source line of the first barrier or exchange in a node; 0 if there is no barrier or exchange."""
    if isinstance(node, Loop):
        return next((line for child in node.body if (line := _line_of_meeting(child))), 0)
    return node.line if _has_barrier(node) else 0


def _has(node: Node, ops: tuple[str, ...]) -> bool:
    return any(_has(child, ops) for child in node.body) if isinstance(node, Loop) else node.op in ops


__all__ = ["DEFAULT_OPTIONS", "ExecuteOptions", "execute", "is_settled"]
