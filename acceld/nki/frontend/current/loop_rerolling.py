"""Turn loops that Python unrolled while tracing back into loops.

While tracing, each iteration is wrapped in a loop of one trip, whose name is marked. Neighboring marked loops become
one loop if they differ only in the constants of affine expressions, and these constants grow by the same step from each
iteration to the next. Any other marked loop is replaced by its body. The resulting program performs the same operations
in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from acceld.nki.frontend.session import Site
from acceld.nki.ir.program import (
    Access,
    Affine,
    Buffer,
    Indirect,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Operand,
    Pattern,
    Program,
)

MARK = "*"
"""First character of the name of a marked loop, which holds one iteration."""


def mark(name: str) -> str:
    """Return the name of a marked loop over the variable ``name``."""
    return MARK + name


@dataclass(frozen=True, slots=True)
class Sample:
    """Describe a traced iteration that stands for others: iteration ``position`` of ``count`` of the loop at ``site``.

    ``group`` differs between two runs of the same loop.
    """

    group: int
    position: int
    count: int
    site: Site


class SamplesDiffer(Exception):
    """Stop the rerolling, because the samples of the loop at ``site`` are not one iteration advanced by equal steps."""

    def __init__(self, site: Site) -> None:
        super().__init__("samples differ")
        self.site = site


def reroll(program: Program, samples: Mapping[int, Sample] | None = None) -> Program:
    """Return the same program with its marked loops turned into loops or replaced by their bodies.

    ``samples`` has, by loop id, the marked loops that stand for further iterations. Ids are numbered from 0 again.
    SamplesDiffer if the samples of a loop do not determine its other iterations.
    """
    scopes = _narrowed_scopes(program)
    buffers = [replace(b, scope=scopes[b.id]) for b in program.buffers]
    body = _Roller(buffers, samples or {}, program.lnc).body(program.body)
    return _renumbered(replace(program, buffers=tuple(buffers), body=body))


def _is_mark(node: Node) -> bool:
    """Return True if ``node`` is a marked loop."""
    return isinstance(node, Loop) and node.name.startswith(MARK) and node.trips == 1


def _used(access: Access) -> Iterator[int]:
    """Yield the buffers that an access uses, including those of its index tiles."""
    yield access.buffer
    for indirect in access.indirect:
        if indirect.index is not None:
            yield from _used(indirect.index)


def _narrowed_scopes(program: Program) -> list[tuple[int, ...]]:
    """Return, for each buffer, the loops that contain its declaration and all of its uses."""
    scopes = [buffer.scope for buffer in program.buffers]
    for instruction, loops in program.walk():
        path = tuple(loop.id for loop in loops)
        for access in instruction.accesses:
            for buffer in _used(access):
                scope = scopes[buffer]
                if path[: len(scope)] != scope:
                    same = next((i for i, (a, b) in enumerate(zip(scope, path, strict=False)) if a != b), len(path))
                    scopes[buffer] = scope[: min(same, len(scope))]
    return scopes


class _Roller:
    """Turn marked loops into loops, from the innermost ones outwards."""

    def __init__(self, buffers: list[Buffer], samples: Mapping[int, Sample], lnc: int = 1) -> None:
        self.buffers = buffers
        self.lnc = lnc
        self.samples = samples
        self.local: dict[int, list[int]] = {}
        for buffer in buffers:
            for loop in buffer.scope:
                self.local.setdefault(loop, []).append(buffer.id)

    def body(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return a body whose marked loops, at all depths, are turned into loops or replaced by their bodies."""
        inner = [replace(node, body=self.body(node.body)) if isinstance(node, Loop) else node for node in nodes]
        out: list[Node] = []
        at = 0
        while at < len(inner):
            node = inner[at]
            if not (isinstance(node, Loop) and _is_mark(node)):
                out.append(node)
                at += 1
                continue
            run = [node]
            while at + len(run) < len(inner):
                following = inner[at + len(run)]
                if not (isinstance(following, Loop) and _is_mark(following)):
                    break
                if (following.name, following.line) != (node.name, node.line) or self._group(following) != self._group(
                    node
                ):
                    break
                run.append(following)
            at += len(run)
            out.extend(self.rolled(run) if node.id not in self.samples else self.completed(run))
        return tuple(out)

    def _group(self, loop: Loop) -> object:
        """Return a key that is equal for two sampled iterations of the same run of a loop; None for an iteration
        without a sample.
        """
        sample = self.samples.get(loop.id)
        return None if sample is None else (sample.group, sample.site)

    def completed(self, run: list[Loop]) -> Iterator[Node]:
        """Yield the loop that the sampled iterations in ``run`` stand for. SamplesDiffer if they do not determine it."""
        samples = [self.samples[loop.id] for loop in run]
        first, forms = samples[0], [_Form(self, loop) for loop in run]
        starts = forms[0].constants
        same = [form for form in forms if form.structure == forms[0].structure]
        if len(same) < len(forms) or [s.position for s in samples[:2]] != [0, 1]:
            raise SamplesDiffer(first.site)
        steps = [b - a for a, b in zip(starts, forms[1].constants, strict=True)]
        for sample, form in zip(samples, forms, strict=True):
            if form.constants != [start + step * sample.position for start, step in zip(starts, steps, strict=True)]:
                raise SamplesDiffer(first.site)
        if samples[-1].position != first.count - 1:
            raise SamplesDiffer(first.site)
        advance = iter(steps)
        body = tuple(_advanced(node, run[0].id, advance) for node in run[0].body)
        yield replace(run[0], name=run[0].name.removeprefix(MARK), trips=first.count, body=body)

    def rolled(self, run: list[Loop]) -> Iterator[Node]:
        """Yield a loop for each longest stretch of iterations that advance evenly, and the bodies of single iterations."""
        forms = [_Form(self, loop) for loop in run]
        at = 0
        while at < len(run):
            length, steps = _stretch(forms[at:])
            if length == 1 and run[at].kind is LoopKind.SPMD and (self.lnc > 1 or _exchanges(run[at])):
                # one program of a launch on several cores, which exchange data
                yield replace(run[at], name=run[at].name.removeprefix(MARK))
            elif length == 1:
                yield from run[at].body
            else:
                advance = iter(steps)
                loop = run[at]
                body = tuple(_advanced(node, loop.id, advance) for node in loop.body)
                yield replace(loop, name=loop.name.removeprefix(MARK), trips=length, kind=loop.kind, body=body)
            at += length


def _exchanges(node: Node) -> bool:
    """Return True if an instruction of ``node`` exchanges data between cores."""
    return any(map(_exchanges, node.body)) if isinstance(node, Loop) else node.op == "exchange"


class _Form:
    """Hold an iteration as a structure without the constants of affine expressions, and these constants in order."""

    def __init__(self, roller: _Roller, loop: Loop) -> None:
        self.constants: list[int] = []
        self._loops: dict[int, int] = {loop.id: 0}
        self._buffers: dict[int, int] = {}
        self._roller = roller
        self._local = set(roller.local.get(loop.id, ()))
        self.structure = tuple(self.node(node) for node in loop.body)

    def node(self, node: Node) -> tuple[object, ...]:
        if isinstance(node, Loop):
            self._loops[node.id] = len(self._loops)
            return ("loop", node.trips, node.kind, node.trips_register, tuple(self.node(child) for child in node.body))
        return (
            node.op,
            node.engine,
            tuple(self.access(dst) for dst in node.dsts),
            tuple(self.operand(src) for src in node.srcs),
            self.attrs(node),
            tuple(self.pattern(p) for p in node.mask),
            None if node.pattern is None else self.pattern(node.pattern),
            node.line,
        )

    def attrs(self, node: Instruction) -> tuple[object, ...]:
        return tuple((key, type(value), value) for key, value in node.attrs)

    def operand(self, value: Operand) -> object:
        if isinstance(value, Access):
            return self.access(value)
        if isinstance(value, Pattern):
            return self.pattern(value)
        return (type(value), value)

    def affine(self, value: Affine) -> object:
        self.constants.append(value.const)
        return tuple((self._loops.get(loop, ("outer", loop)), coef) for loop, coef in value.terms)

    def pattern(self, value: Pattern) -> object:
        return (self.affine(value.base), value.coefs)

    def access(self, value: Access) -> object:
        buffer: object = value.buffer
        if value.buffer in self._local:
            place = self._buffers.setdefault(value.buffer, len(self._buffers))
            b = self._roller.buffers[value.buffer]
            buffer = ("local", place, b.space, b.dtype, b.shape, b.partition_axis, b.role, b.address)
        indirect = tuple(
            (i.dim, i.scale, i.register, None if i.index is None else self.access(i.index), i.axis)
            for i in value.indirect
        )
        return (buffer, tuple(self.affine(start) for start in value.start), value.dims, indirect, value.dtype)


def _stretch(forms: list[_Form]) -> tuple[int, list[int]]:
    """Return how many of the iterations, from the first on, advance evenly, and the step of each constant."""
    first = forms[0]
    if len(forms) == 1 or forms[1].structure != first.structure:
        return 1, []
    steps = [b - a for a, b in zip(first.constants, forms[1].constants, strict=True)]
    length = 2
    while length < len(forms) and forms[length].structure == first.structure:
        previous, here = forms[length - 1].constants, forms[length].constants
        if any(b - a != step for a, b, step in zip(previous, here, steps, strict=True)):
            break
        length += 1
    return length, steps


def _advanced(node: Node, loop: int, steps: Iterator[int]) -> Node:
    """Return the node with each affine constant growing by its step in each iteration of ``loop``.

    ``steps`` come in the order in which _Form lists the constants.
    """

    def affine(value: Affine) -> Affine:
        step = next(steps)
        return value + Affine(0, ((loop, step),)) if step else value

    def pattern(value: Pattern) -> Pattern:
        return Pattern(affine(value.base), value.coefs)

    def access(value: Access) -> Access:
        indirect = tuple(
            Indirect(i.dim, i.scale, i.register, None if i.index is None else access(i.index), i.axis)
            for i in value.indirect
        )
        return replace(value, indirect=indirect, start=tuple(affine(start) for start in value.start))

    def operand(value: Operand) -> Operand:
        if isinstance(value, Access):
            return access(value)
        return pattern(value) if isinstance(value, Pattern) else value

    if isinstance(node, Loop):
        return replace(node, body=tuple(_advanced(child, loop, steps) for child in node.body))
    return replace(
        node,
        dsts=tuple(access(dst) for dst in node.dsts),
        srcs=tuple(operand(src) for src in node.srcs),
        mask=tuple(pattern(p) for p in node.mask),
        pattern=None if node.pattern is None else pattern(node.pattern),
    )


def _renumbered(program: Program) -> Program:
    """Return the program with loops and buffers numbered from 0 in order of appearance, and without unused buffers."""
    loops = {number: place for place, number in enumerate(program.loops)}
    kept = {*program.inputs, *program.outputs}
    for instruction, _ in program.walk():
        for tile in instruction.accesses:
            kept.update(_used(tile))
    buffers = {number: place for place, number in enumerate(sorted(kept))}

    def affine(value: Affine) -> Affine:
        return Affine(value.const, tuple(sorted((loops[loop], coef) for loop, coef in value.terms)))

    def pattern(value: Pattern) -> Pattern:
        return Pattern(affine(value.base), value.coefs)

    def access(value: Access) -> Access:
        indirect = tuple(replace(i, index=None if i.index is None else access(i.index)) for i in value.indirect)
        return replace(
            value, buffer=buffers[value.buffer], start=tuple(affine(start) for start in value.start), indirect=indirect
        )

    def operand(value: Operand) -> Operand:
        if isinstance(value, Access):
            return access(value)
        return pattern(value) if isinstance(value, Pattern) else value

    def node(value: Node) -> Node:
        if isinstance(value, Loop):
            return replace(value, id=loops[value.id], body=tuple(node(child) for child in value.body))
        return replace(
            value,
            dsts=tuple(access(dst) for dst in value.dsts),
            srcs=tuple(operand(src) for src in value.srcs),
            attrs=tuple((k, _loops_of(v, loops) if k == "loops" else v) for k, v in value.attrs),
            mask=tuple(pattern(p) for p in value.mask),
            pattern=None if value.pattern is None else pattern(value.pattern),
        )

    return replace(
        program,
        buffers=tuple(
            replace(
                program.buffers[number],
                id=place,
                scope=tuple(loops[loop] for loop in program.buffers[number].scope if loop in loops),
            )
            for number, place in buffers.items()
        ),
        body=tuple(node(child) for child in program.body),
        inputs=tuple(buffers[number] for number in program.inputs),
        outputs=tuple(buffers[number] for number in program.outputs),
    )


def _loops_of(value: object, loops: dict[int, int]) -> tuple[int, ...]:
    """Return the new numbers of the loops in an attribute."""
    assert isinstance(value, tuple)
    return tuple(loops[loop] for loop in value)
