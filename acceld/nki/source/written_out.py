"""Write a traced program out as the source of a kernel of ``nki``, without helpers, classes and branches.

Rules read tiles, loops and calls. A kernel that people run in production computes much of that in Python: it asks
configurations, branches, keeps tiles in objects, and calls helpers of other files. A trace has all of this decided for
one set of arguments. For example, the trace of ::

    for tile in TiledRange(rows, 128):
        block = load_rows(source, tile)
        ...

is written out as ::

    for tile in nl.affine_range(4):
        block = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=block, src=x[nl.ds(128 * tile, 128), 0:512])
        ...
"""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import isfinite, prod

from acceld.errors import RuleRefused
from acceld.model import WRITTEN_OUT
from acceld.nki.frontend.current.loop_rerolling import mark, reroll
from acceld.nki.ir.mapping import mapped
from acceld.nki.ir.program import (
    Access,
    Affine,
    Attr,
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Operand,
    Pattern,
    Program,
    Role,
    Space,
)
from acceld.nki.source.launches import Launch
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spans import parsed

_STEP = "    "
_WIDTH = 120
_MOST_LINES = 300
"""Greatest number of instructions that are written out. A longer kernel helps no reader, and slows every rule down."""
_MOST_TRACED = 1000
"""Greatest number of instructions in which loops are sought: the time of the search grows faster than their number."""
_LONGEST = 64
"""Greatest number of statements in an iteration that is found in straight-line code."""
_LEAST_SAVED = 3
"""Least number of statements by which a loop that is found in straight-line code shortens the kernel."""
_ACCUMULATES = {"yes": "True", "no": "False"}
"""The argument ``accumulate`` of ``nisa.nc_matmul``, by the attribute of a matrix product. A number as the attribute stands
for the loop whose first iteration overwrites, and whose later iterations add.
"""
_RESERVED = {"nki", "nl", "nisa", *keyword.kwlist}

_Arguments = dict[str, str]
"""The arguments of a call as source text, by name."""


def written_out(program: Program, source: str, values: Sequence[float | None] = ()) -> str:
    """Return the source of a kernel of ``nki`` that does what ``program`` does, for the arguments of the trace only.

    ``source`` is the text of the traced kernel's file, from which the parameters and their order come. ``values`` has each
    argument's number, or None if the argument is an array. The new kernel asserts shapes, dtypes and numbers. Raise
    RuleRefused if the program has an instruction, an operand or a buffer that has no plain spelling.
    """
    if program.api != "nki":
        raise RuleRefused(f"{program.entry} is written for {program.api}: only kernels of nki can be written out")
    if "." in program.entry:
        raise RuleRefused(
            f"{program.entry} is no function at the file's top level: only such a function can be written out"
        )
    program = _short(_looped(_short(program, _MOST_TRACED)), _MOST_LINES)
    writer = _Writer(program, _function(source, program.entry), values)
    buffers = [program.buffers[number] for number in program.inputs]
    arrays = dict(zip((writer.names[one.id] for one in buffers), buffers, strict=True))
    given = [arrays.get(name) for name in writer.parameters]
    launch = Launch(
        program.api,
        tuple(value if one is None else one.outer_shape for one, value in _paired(given, values)),
        tuple("" if one is None else one.dtype for one in given),
        program.entry,
    )
    # the trace knows the order in which iterations ran, and the reader which of them do not depend on each other
    read = KernelModule(writer.text(), launch)
    writer.parallel = {one.variable for one in read.loops if one.kind == "affine_range"}
    return writer.text()


def _short(program: Program, most: int) -> Program:
    """Return ``program``. Raise RuleRefused if the program has more than ``most`` instructions."""
    if sum(1 for _ in program.walk()) > most:
        raise RuleRefused(f"the trace has more than {most} instructions, each loop's body counted once")
    return program


def _function(source: str, entry: str) -> ast.FunctionDef:
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef) and node.name == entry.rpartition(".")[2]:
            return node
    raise RuleRefused(f"the file defines no function {entry}")


def _paired(
    given: Sequence[Buffer | None], values: Sequence[float | None]
) -> Iterator[tuple[Buffer | None, int | None]]:
    """Yield each argument with its value, if it is a whole number."""
    for one, value in zip_longest(given, values):
        yield one, value if isinstance(value, int) else None


class _Writer:
    """Write one program as source text."""

    def __init__(self, program: Program, function: ast.FunctionDef, values: Sequence[float | None]) -> None:
        self.program, self.function, self.values = program, function, values
        self.lines: list[str] = []
        self.parallel: set[str] | None = None
        """The variables of loops whose iterations are proved to be independent; None before the proof, when loops are
        written as ``range``.
        """
        given = function.args
        self.parameters = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        if given.vararg or given.kwarg:
            raise RuleRefused(f"{function.name} takes any number of arguments: give each argument a name")
        taken = _RESERVED | set(self.parameters) | {function.name}
        self.names: dict[int, str] = {}
        for number in program.inputs:
            name = program.buffers[number].name
            if name not in self.parameters:
                raise RuleRefused(f"the input {name} is no parameter of {function.name}")
            self.names[number] = name
        for buffer in program.buffers:
            if buffer.id not in self.names:
                self.names[buffer.id] = _fresh(buffer.name or "tile", taken)
        self.loops = {loop.id: _fresh(loop.name or "i", taken) for loop in program.loops.values()}
        self.declared: set[int] = set()
        self.body = _rejoined(program.body, (), _Counted.of(program))
        self.uses = {id(node): _used(node) for node in _nodes(self.body)}

    def text(self) -> str:
        """Return the source of the whole file."""
        arguments = ", ".join(_parameters(self.function))
        self.lines, self.declared = [], set(self.program.inputs)
        self._inputs()
        self._body(self.body, (), 1)
        results = [self.names[number] for number in self.program.outputs]
        self._put(1, f"return {', '.join(results)}")
        head = [
            f'"""{self.function.name}, {WRITTEN_OUT}.',
            "",
            "Its loops, tiles and calls are those of one set of arguments:",
            *(f"{self.names[number]}: {self._kind(number)}" for number in self.program.inputs),
            '"""',
            "",
            "import nki",
            "import nki.isa as nisa",
            "import nki.language as nl",
            "",
            "",
            "@nki.jit",
            f"def {self.function.name}({arguments}):",
        ]
        return "\n".join([*head, *self.lines]) + "\n"

    def _kind(self, number: int) -> str:
        """Return dtype and shape of an argument as text."""
        buffer = self.program.buffers[number]
        return f"{buffer.dtype} {buffer.outer_shape}"

    def _put(self, depth: int, text: str) -> None:
        self.lines.append(_STEP * depth + text)

    def _inputs(self) -> None:
        """Write assertions: the value of each plain argument, the shape and dtype of each input.

        Write a reshape after the assertions of each input whose shape in the program is not the caller's shape.
        """
        for name, value in zip(self.parameters, self.values, strict=False):
            if value is not None:
                self._put(1, f'assert {name} == {value!r}, "this kernel was written for {name} = {value!r}"')
        for number in self.program.inputs:
            buffer, name = self.program.buffers[number], self.names[number]
            wanted = buffer.outer_shape
            self._put(1, f'assert {name}.shape == {wanted}, "this kernel was written for {name} of shape {wanted}"')
            self._put(
                1, f'assert {name}.dtype == nl.{buffer.dtype}, "this kernel was written for {name} of {buffer.dtype}"'
            )
            if buffer.argument_shape is not None:
                self._put(1, f"{name} = {name}.reshape({buffer.shape})")

    def _body(self, body: Sequence[Node], scope: tuple[int, ...], depth: int) -> None:
        if not body:
            self._put(depth, "pass")
        for node in body:
            for number in self.uses[id(node)]:
                buffer = self.program.buffers[number]
                if number not in self.declared and buffer.scope == scope:
                    self.declared.add(number)
                    self._put(depth, self._declaration(buffer))
            if isinstance(node, Instruction):
                self._put(depth, self._call(node))
                continue
            if node.kind is LoopKind.SPMD:
                raise RuleRefused("the kernel is launched on several programs, which are not written out")
            if node.at_run_time:
                raise RuleRefused(f"line {node.line}: the loop's number of iterations is known only at run time")
            variable = self.loops[node.id]
            kind = "nl.sequential_range"
            if self.parallel is None or variable in self.parallel:
                kind = "range" if self.parallel is None else "nl.affine_range"
            self._put(depth, f"for {variable} in {kind}({node.trips}):")
            self._body(node.body, (*scope, node.id), depth + 1)

    def _declaration(self, buffer: Buffer) -> str:
        """Return the statement that declares a tensor in HBM or a tile on the chip."""
        if buffer.role is Role.CONSTANT:
            raise RuleRefused(f"line {buffer.line}: {buffer.name} is a constant tensor, which is not written out")
        if buffer.space is not Space.HBM and buffer.partition_axis != 0:
            raise RuleRefused(f"line {buffer.line}: {buffer.name} has axes before the partitions")
        memory = buffer.space.value
        if buffer.space is Space.HBM:
            memory = "shared_hbm" if buffer.role is Role.OUTPUT else "private_hbm"
        name = self.names[buffer.id]
        return f"{name} = nl.ndarray({buffer.shape}, dtype=nl.{buffer.dtype}, buffer=nl.{memory})"

    def _call(self, one: Instruction) -> str:
        """Return the statement for an instruction."""
        if one.mask:
            raise RuleRefused(f"line {one.line}: {one.op} has a mask")
        spelling = _CALLS.get(one.op)
        if spelling is None:
            raise RuleRefused(f"line {one.line}: {one.op} is not written out")
        name, arguments = spelling(self, one)
        return f"nisa.{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})"

    def operand(self, value: Operand) -> str:
        """Return an operand of an instruction as source text."""
        match value:
            case Access():
                return self.access(value)
            case Pattern(base, coefficients) if not any(coefficients):
                return self.affine(base)
            case Pattern():
                raise RuleRefused("an operand that differs from element to element is not written out")
        return repr(value) if isfinite(value) else f'float("{value}")'

    def affine(self, value: Affine) -> str:
        """Return an affine expression of loop variables as source text."""
        parts = [
            self.loops[loop] if coefficient == 1 else f"{coefficient} * {self.loops[loop]}"
            for loop, coefficient in value.terms
        ]
        if value.const or not parts:
            parts.append(str(value.const))
        return " + ".join(parts).replace("+ -", "- ")

    def access(self, value: Access) -> str:
        """Return a tile of a buffer as source text: slices where they can express the tile, else an access pattern."""
        if value.indirect:
            raise RuleRefused("an access with run-time indices is not written out")
        buffer = self.program.buffers[value.buffer]
        if value.dtype and value.dtype != buffer.dtype:
            raise RuleRefused(f"{buffer.name} is read as {value.dtype}, which is not written out")
        sliced = self._sliced(buffer, value)
        if sliced is None:
            return self._pattern(buffer, value)
        whole = [f"0:{size}" for size in buffer.shape]
        name = self.names[buffer.id]
        return name if sliced == whole else f"{name}[{', '.join(sliced)}]"

    def _sliced(self, buffer: Buffer, value: Access) -> list[str] | None:
        """Return an index for each axis of ``buffer``; None if an axis of the tile is no slice of one axis, or if the axes
        are in another order.
        """
        axes: list[int | None] = []
        for dim in value.dims:
            moved = [axis for axis, step in enumerate(dim.steps) if step and dim.count > 1]
            if len(moved) > 1 or (dim.count > 1 and (not moved or dim.steps[moved[0]] < 0)):
                return None
            axes.append(moved[0] if moved else None)
        placed: dict[int, int] = {}
        free = iter(range(len(buffer.shape)))
        for number, axis in enumerate(axes):
            wanted = next(
                (one for one in free if (one == axis if axis is not None else self._may_be_one(axes, number, one))),
                None,
            )
            if wanted is None:
                return None
            placed[wanted] = number
        if buffer.space is not Space.HBM and 0 not in placed:
            return None
        texts = []
        for axis, start in enumerate(value.start):
            if axis not in placed:
                texts.append(self.affine(start))
                continue
            dim = value.dims[placed[axis]]
            texts.append(self._slice(start, dim.count, dim.steps[axis] if dim.count > 1 else 1))
        return texts

    def _slice(self, start: Affine, count: int, step: int) -> str:
        """Return a range of ``count`` indices, ``step`` apart, as source text."""
        if step == 1 and start.terms:
            return f"nl.ds({self.affine(start)}, {count})"
        stop = start + ((count - 1) * step + 1)
        if start.terms:
            return f"{self.affine(start)} : {self.affine(stop)} : {step}"
        return f"{start.const}:{stop.const}" + (f":{step}" if step > 1 else "")

    @staticmethod
    def _may_be_one(axes: Sequence[int | None], number: int, axis: int) -> bool:
        """Tell whether tile axis ``number``, which has one element, may stand for ``axis`` of the buffer, which it may if
        the tile's axes stay in the order of the buffer's axes.
        """
        later = [one for one in axes[number + 1 :] if one is not None]
        return not later or axis < min(later)

    def _pattern(self, buffer: Buffer, value: Access) -> str:
        """Return an access as ``.ap(...)``, by strides over the buffer's elements."""
        strides = buffer.strides
        offset = Affine()
        for start, stride in zip(value.start, strides, strict=True):
            offset = offset + start.scale(stride)
        pairs = [
            [sum(step * stride for step, stride in zip(dim.steps, strides, strict=True)), dim.count]
            for dim in value.dims
        ]
        if buffer.space is not Space.HBM:
            pairs[0][0] = prod(buffer.shape[1:])
        name = self.names[buffer.id]
        return f"{name}.ap(pattern={pairs}, offset={self.affine(offset)})"


def _parameters(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the parameters of a function as source text, without annotations. A default that is no constant becomes
    None, because the trace has decided what it means.
    """
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults))
    defaults += given.defaults
    for one, default in zip(plain, defaults, strict=True):
        yield one.arg + _default(default)
    if given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield one.arg + _default(default)


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    try:
        return f"={ast.literal_eval(value)!r}"
    except ValueError:
        return "=None"


def _fresh(name: str, taken: set[str]) -> str:
    """Return a valid name that is not in ``taken``, like ``name``, and add it there."""
    stem = re.sub(r"\W+", "_", name).strip("_") or "tile"
    stem = f"t{stem}" if stem[0].isdigit() else stem
    found, number = stem, 2
    while found in taken:
        found, number = f"{stem}_{number}", number + 1
    taken.add(found)
    return found


def _nodes(body: Sequence[Node]) -> Iterator[Node]:
    for node in body:
        yield node
        if isinstance(node, Loop):
            yield from _nodes(node.body)


def _used(node: Node) -> tuple[int, ...]:
    """Return the numbers of the buffers that a node uses, in the order of their first use."""
    return tuple(dict.fromkeys(_every_use(node)))


# Loops of Python that a trace has unrolled


def _looped(program: Program) -> Program:
    """Return the program with blocks of instructions that repeat, each time further on by equal steps, as loops.

    Short blocks come first, because longer ones may consist of them.
    """
    length = 1
    while length <= _LONGEST:
        marked = _Repeats(program, length).marked()
        found = program if marked is None else reroll(marked)
        shorter = sum(1 for _ in found.walk()) < sum(1 for _ in program.walk())
        program, length = (found, 1) if shorter else (program, length + 1)
    return program


class _Repeats:
    """Mark the blocks of ``length`` statements that may be iterations of one loop. Rerolling decides whether they are."""

    def __init__(self, program: Program, length: int) -> None:
        self.program, self.length = program, length
        self.buffers = list(program.buffers)
        self.counted = _Counted.of(program)
        self.loop = max(program.loops, default=0)

    def marked(self) -> Program | None:
        """Return the program with each block that resembles its neighbor in a loop of one iteration; None if no block
        does.
        """
        last, body = self.loop, self._body(self.program.body, ())
        return None if self.loop == last else replace(self.program, body=body, buffers=tuple(self.buffers))

    def _body(self, body: Sequence[Node], scope: tuple[int, ...]) -> tuple[Node, ...]:
        inner = [
            replace(one, body=self._body(one.body, (*scope, one.id))) if isinstance(one, Loop) else one for one in body
        ]
        forms = [_form(one) for one in inner]
        made: list[Node] = []
        at = 0
        while at < len(inner):
            times = _times(forms, at, self.length)
            if (times - 1) * self.length < _LEAST_SAVED:
                made.append(inner[at])
                at += 1
                continue
            for _ in range(times):
                made.append(self._block(inner[at : at + self.length], scope))
                at += self.length
        return tuple(made)

    def _block(self, nodes: Sequence[Node], scope: tuple[int, ...]) -> Loop:
        """Return a marked loop of one iteration. Buffers that only this iteration uses become its own."""
        self.loop += 1
        inside = Counter(number for one in nodes for number in _every_use(one))
        for number, uses in inside.items():
            buffer = self.buffers[number]
            alone = uses == self.counted.accesses[number] and buffer.role is Role.SCRATCH
            if buffer.scope[: len(scope)] == scope and (alone or buffer.scope != scope):
                self.buffers[number] = replace(buffer, scope=(*scope, self.loop, *buffer.scope[len(scope) :]))
        return Loop(self.loop, mark("i"), 1, LoopKind.SEQUENTIAL, tuple(nodes))


def _form(node: Node) -> Hashable:
    """Return what two nodes have in common if they can be the same statement in two iterations."""
    if isinstance(node, Loop):
        return node.kind, node.trips, tuple(map(_form, node.body))
    shapes = tuple(access.dims for access in node.accesses)
    return node.op, node.engine, node.attrs, node.line, node.place, shapes


def _times(forms: Sequence[Hashable], at: int, length: int) -> int:
    """Return how many times in a row the block of ``length`` statements stands there that begins at ``at``."""
    block, times = forms[at : at + length], 1
    while len(block) == length and forms[at + times * length : at + (times + 1) * length] == block:
        times += 1
    return times


def _every_use(node: Node) -> Iterator[int]:
    """Yield the number of the buffer of each access in a node."""
    for one in _nodes([node]):
        if isinstance(one, Instruction):
            yield from (access.buffer for access in one.accesses)


# First iterations that a trace keeps apart, because their products overwrite what later products add to


@dataclass(frozen=True, slots=True)
class _Counted:
    """The buffers of a program, and the number of accesses to each buffer."""

    buffers: Sequence[Buffer]
    accesses: Mapping[int, int]

    @classmethod
    def of(cls, program: Program) -> _Counted:
        """Count the accesses of a program."""
        return cls(program.buffers, Counter(access.buffer for one, _ in program.walk() for access in one.accesses))


def _rejoined(body: Sequence[Node], scope: tuple[int, ...], counted: _Counted) -> tuple[Node, ...]:
    """Return the nodes of a body, in which each loop also stands for the iteration that was written out before it."""
    found: list[Node] = []
    for node in body:
        if isinstance(node, Loop):
            node = replace(node, body=_rejoined(node.body, (*scope, node.id), counted))
            first = found[-len(node.body) :]
            if (joined := _joined(first, node, scope, counted)) is not None:
                found[-len(node.body) :] = [joined]
                continue
        found.append(node)
    return tuple(found)


def _joined(first: Sequence[Node], loop: Loop, scope: tuple[int, ...], counted: _Counted) -> Loop | None:
    """Return ``loop`` with one more iteration before its others, which does what the nodes ``first`` do; None if ``first``
    does something else. A matrix product may overwrite in ``first`` and add in ``loop``.
    """
    if not first or len(first) != len(loop.body) or loop.kind is not LoopKind.SEQUENTIAL:
        return None
    before = [mapped(node, lambda one: _shifted(one, loop.id, -1, alone=True)) for node in loop.body]
    pairs = list(zip(_nodes(first), _nodes(before), strict=False))
    loops = {one.id: other.id for one, other in pairs if isinstance(one, Loop) and isinstance(other, Loop)}
    buffers: dict[int, int] = {}
    for one, other in pairs:
        if isinstance(one, Instruction) and isinstance(other, Instruction):
            buffers |= {a.buffer: b.buffer for a, b in zip(one.accesses, other.accesses, strict=False)}
    used = Counter(access.buffer for one in _nodes(first) if isinstance(one, Instruction) for access in one.accesses)
    for early, late in buffers.items():
        left, right = counted.buffers[early], counted.buffers[late]
        apart = counted.accesses[early] == used[early] and (*scope, loop.id) == right.scope[: len(scope) + 1]
        alike = (left.space, left.dtype, left.shape, left.role) == (right.space, right.dtype, right.shape, right.role)
        if early != late and not (apart and alike):
            return None

    def renamed(one: Affine) -> Affine:
        return Affine(one.const, tuple(sorted((loops.get(number, number), by) for number, by in one.terms)))

    again = [
        mapped(node, renamed, loop=lambda one: loops.get(one, one), buffer=lambda one: buffers.get(one, one))
        for node in first
    ]
    if [_unplaced(one) for one in again] != [_unplaced(one) for one in before]:
        return None
    starts = [one.attr("accumulate") for one in _nodes(first) if isinstance(one, Instruction)]
    body = [mapped(node, lambda one: _shifted(one, loop.id, -1)) for node in loop.body]
    made = _with_starts(body, iter(starts), loop.id)
    return None if made is None else replace(loop, trips=loop.trips + 1, body=made)


def _shifted(value: Affine, loop: int, by: int, *, alone: bool = False) -> Affine:
    """Return an expression with the loop's variable replaced by the variable plus ``by``; with ``alone``, by ``by``."""
    factor = dict(value.terms).get(loop, 0)
    kept = tuple(one for one in value.terms if one[0] != loop) if alone else value.terms
    return Affine(value.const + factor * by, kept)


def _unplaced(node: Node) -> Node:
    """Return a node to compare with others: without source line, place and loop name, and without ``accumulate``, which
    tells whether a product adds to its destination.
    """
    if isinstance(node, Loop):
        return replace(node, line=0, name="", body=tuple(map(_unplaced, node.body)))
    attributes = tuple(one for one in node.attrs if one[0] != "accumulate")
    return replace(node, line=0, place="", attrs=attributes)


def _with_starts(body: Sequence[Node], starts: Iterator[Attr], loop: int) -> tuple[Node, ...] | None:
    """Return the nodes of a body whose products overwrite in the first iteration of ``loop`` where ``starts`` says so.

    ``starts`` gives the attribute ``accumulate`` of each instruction in the first iteration. Return None if a product adds
    there in another way than in later iterations.
    """
    made: list[Node] = []
    for node in body:
        if isinstance(node, Loop):
            inside = _with_starts(node.body, starts, loop)
            if inside is None:
                return None
            made.append(replace(node, body=inside))
            continue
        start, later = next(starts), node.attr("accumulate")
        if start != later and (start, later) != ("no", "yes"):
            return None
        attributes = tuple((name, loop if name == "accumulate" and start != later else one) for name, one in node.attrs)
        made.append(replace(node, attrs=attributes))
    return tuple(made)


# Calls, by operation


_Spelling = Callable[[_Writer, Instruction], tuple[str, _Arguments]]


def _plain(name: str, dsts: str = "dst", srcs: str = "", **attributes: str) -> _Spelling:
    """Return the spelling of an operation as the call ``name``, whose destinations and sources are passed as the
    arguments ``dsts`` and ``srcs``. ``attributes`` names the argument for each attribute.
    """

    def spelled(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
        arguments = dict(zip(dsts.split(), map(writer.access, one.dsts), strict=False))
        arguments |= dict(zip(srcs.split(), map(writer.operand, one.srcs), strict=False))
        for attribute, argument in attributes.items():
            value = one.attr(attribute)
            if value not in (None, False, ()):
                arguments[argument] = _value(argument, value)
        return name, arguments

    return spelled


def _value(argument: str, value: object) -> str:
    """Return the value of an attribute as the text of an argument: an operation of ``nl``, or a constant."""
    if isinstance(value, str):
        if argument in ("reduce_cmd", "oob_mode", "perf_mode"):
            owner = "matmul_perf_mode" if argument == "perf_mode" else argument
            return f"nisa.{owner}.{value}"
        return f"nl.{value}"
    return repr(list(value)) if isinstance(value, tuple) and argument == "shuffle_mask" else repr(value)


def _with_engine(spelling: _Spelling, default: Engine) -> _Spelling:
    """Return ``spelling`` with the argument ``engine`` for an instruction whose engine is not ``default``."""

    def spelled(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
        name, arguments = spelling(writer, one)
        if one.engine not in (default, Engine.UNKNOWN):
            arguments["engine"] = f"nisa.engine.{one.engine.value}"
        return name, arguments

    return spelled


def _matmul(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
    if one.attr("perf_mode") or one.attr("hidden"):
        raise RuleRefused(f"line {one.line}: a product in performance mode is not written out")
    arguments = {
        "dst": writer.access(one.dsts[0]),
        "stationary": writer.operand(one.srcs[0]),
        "moving": writer.operand(one.srcs[1]),
    }
    if one.attr("transpose"):
        arguments["is_transpose"] = "True"
    else:
        accumulate = one.attr("accumulate", "auto")
        if isinstance(accumulate, int):
            arguments["accumulate"] = f"{writer.loops[accumulate]} > 0"
        elif accumulate in _ACCUMULATES:
            arguments["accumulate"] = _ACCUMULATES[str(accumulate)]
    for attribute in ("stationary_onezero", "moving_onezero"):
        if one.attr(attribute):
            arguments[f"is_{attribute}"] = "True"
    for attribute in ("tile_position", "tile_size"):
        if one.attr(attribute):
            arguments[attribute] = repr(one.attr(attribute))
    return "nc_matmul", arguments


def _transpose(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
    in_psum = writer.program.buffers[one.dsts[0].buffer].space is Space.PSUM
    default = Engine.TENSOR if in_psum else Engine.VECTOR
    return _with_engine(_plain("nc_transpose", "dst", "data"), default)(writer, one)


def _activation(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
    spelled = _plain(
        "activation", "dst reduce_res", "data bias scale", func="op", reduce_op="reduce_op", reduce_cmd="reduce_cmd"
    )
    name, arguments = _with_engine(spelled, Engine.SCALAR)(writer, one)
    if arguments.get("bias") == "0.0":
        del arguments["bias"]
    if arguments.get("scale") == "1.0":
        del arguments["scale"]
    return name, arguments


def _tensor_scalar(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
    if one.attr("reduce_op"):
        spelled = _plain(
            "tensor_scalar_reduce", "dst reduce_res", "data operand0",
            op0="op0", reduce_op="reduce_op", reduce_cmd="reduce_cmd", reduce_init="reduce_init", negate="reduce_res_negate",
        )  # fmt: skip
        return spelled(writer, one)
    spelled = _plain(
        "tensor_scalar", "dst", "data operand0 operand1", op0="op0", reverse0="reverse0", op1="op1", reverse1="reverse1"
    )
    name, arguments = _with_engine(spelled, Engine.UNKNOWN)(writer, one)
    return name, arguments


def _tensor_reduce(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
    name, arguments = _plain("tensor_reduce", "dst", "data", op="op", negate="negate")(writer, one)
    axes = one.attr("axes")
    assert isinstance(axes, tuple)
    data = one.srcs[0]
    assert isinstance(data, Access)
    if len(one.dsts[0].dims) == len(data.dims) and axes:
        arguments["keepdims"] = "True"
    return name, {**arguments, "axis": repr([int(axis) for axis in axes])}


def _positions(writer: _Writer, one: Instruction) -> _Arguments:
    """Return the arguments that say which integer an instruction computes at each position."""
    assert one.pattern is not None
    shape = one.dsts[0].shape
    multiplier, *steps = one.pattern.coefs
    pattern = [[step, count] for step, count in zip(steps, shape[1:], strict=True)]
    return {
        "pattern": repr(pattern),
        "offset": writer.affine(one.pattern.base),
        "channel_multiplier": repr(multiplier),
    }


def _iota(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
    return "iota", {"dst": writer.access(one.dsts[0]), **_positions(writer, one)}


def _affine_select(writer: _Writer, one: Instruction) -> tuple[str, _Arguments]:
    arguments = {"dst": writer.access(one.dsts[0]), **_positions(writer, one)}
    arguments |= {"on_true_tile": writer.operand(one.srcs[0]), "on_false_value": writer.operand(one.srcs[1])}
    return "affine_select", {**arguments, "cmp_op": f"nl.{one.attr('cmp')}"}


_CALLS: Mapping[str, _Spelling] = {
    "dma_copy": _plain("dma_copy", "dst", "src"),
    "dma_transpose": _plain("dma_transpose", "dst", "src", axes="axes"),
    "copy": _with_engine(_plain("tensor_copy", "dst", "src"), Engine.UNKNOWN),
    "copy_predicated": _plain("tensor_copy_predicated", "dst", "src predicate", reverse="reverse_pred"),
    "memset": _with_engine(_plain("memset", "dst", "value"), Engine.UNKNOWN),
    "shuffle": _plain("nc_stream_shuffle", "dst", "src", lanes="shuffle_mask"),
    "matmul": _matmul,
    "transpose": _transpose,
    "activation": _activation,
    "tensor_tensor": _with_engine(_plain("tensor_tensor", "dst", "data1 data2", op="op"), Engine.VECTOR),
    "tensor_scalar": _tensor_scalar,
    "scalar_tensor_tensor": _plain(
        "scalar_tensor_tensor", "dst reduce_res", "data operand0 operand1",
        op0="op0", reverse0="reverse0", op1="op1", reverse1="reverse1", reduce_op="reduce_op", reduce_cmd="reduce_cmd",
    ),
    "reciprocal": _plain("reciprocal", "dst", "data"),
    "select": _plain(
        "select_reduce", "dst reduce_res", "predicate on_true on_false",
        reverse="reverse_pred", reduce_op="reduce_op", reduce_cmd="reduce_cmd",
    ),
    "tensor_reduce": _tensor_reduce,
    "partition_reduce": _plain("tensor_partition_reduce", "dst", "data", op="op"),
    "scan": _plain(
        "tensor_tensor_scan", "dst", "data0 data1 initial", op0="op0", op1="op1", reverse0="reverse0", reverse1="reverse1"
    ),
    "bn_stats": _plain("bn_stats", "dst", "data"),
    "bn_aggr": _plain("bn_aggr", "dst", "data"),
    "iota": _iota,
    "affine_select": _affine_select,
    "max8": _plain("max8", "dst", "src"),
    "find_index8": _plain("nc_find_index8", "dst", "data vals"),
    "gather": _plain("nc_n_gather", "dst", "data indices"),
}  # fmt: skip
"""The spelling of each operation that is written out."""
