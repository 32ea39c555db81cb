"""Turn loop iterations that Python ran one by one during a trace back into loops.

While tracing, each iteration is wrapped in a loop of one trip with a marked name. Neighboring marked loops become one
loop if their bodies differ only in the constants of affine expressions, and if each constant grows by the same step
from one iteration to the next. Any other marked loop is replaced by its body. The resulting program performs the same
operations in the same order.

Iterations may alternate between a few forms: for example, even iterations use one buffer and odd iterations another.
Such iterations do not become a loop, and most of them were not traced. They are written out last: until then a *group*
stands for them, a loop node that holds the traced iterations. So an iteration of the loop around them is compared by
its traced iterations alone.

Iterations may stand for others that were not traced: :mod:`acceld.nki.frontend.current.sampling` defines
samples and pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from acceld.nki.frontend.current.sampling import SampledLoop
from acceld.nki.frontend.session import Site
from acceld.nki.ir.mapping import mapped
from acceld.nki.ir.program import (
    Access,
    Affine,
    Buffer,
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
    """Return the marked name of a loop over the variable ``name``."""
    return MARK + name


@dataclass(frozen=True, slots=True)
class Sample:
    """One traced iteration, which may stand for others: iteration ``position`` in a run of the loop ``loop``."""

    loop: SampledLoop
    position: int

    @property
    def site(self) -> Site:
        """Return the position of the loop in the source."""
        return self.loop.site

    @property
    def piece(self) -> range:
        """Return the piece of the loop that contains the iteration, as a range of iterations."""
        pieces = self.loop.pieces
        return pieces[bisect_right(pieces, self.position, key=lambda piece: piece.start) - 1]


class SamplesDiffer(Exception):
    """Raised if the traced iterations of the loop at ``site`` do not advance by equal steps, so that the other
    iterations can not be derived from them.
    """

    def __init__(self, site: Site) -> None:
        super().__init__("samples differ")
        self.site = site


def reroll(program: Program, samples: Mapping[int, Sample] | None = None) -> Program:
    """Return the program with its marked loops joined into loops or replaced by their bodies.

    ``samples`` has, by loop id, the marked loops that may stand for further iterations. Loops and buffers are
    numbered from 0 again. Raise SamplesDiffer if the samples of a loop do not determine its other iterations.
    """
    scopes = _narrowed_scopes(program)
    buffers = [b if b.scope == scopes[b.id] else replace(b, scope=scopes[b.id]) for b in program.buffers]
    roller = _Roller(buffers, samples or {}, program)
    body = roller.written_out(roller.body(program.body))
    return _renumbered(replace(program, buffers=tuple(buffers), body=body), roller.order)


def _is_mark(node: Node) -> bool:
    """Tell whether ``node`` is a marked loop."""
    return isinstance(node, Loop) and node.name.startswith(MARK) and node.trips == 1


def _with_body(loop: Loop, body: tuple[Node, ...]) -> Loop:
    """Return the loop with another body."""
    return Loop(loop.id, loop.name, loop.trips, loop.kind, body, loop.line, loop.trips_register)


def _used(access: Access) -> Iterator[int]:
    """Yield the ids of the buffers that an access uses: the accessed buffer, and the buffers of its tiles of
    indices.
    """
    yield access.buffer
    for indirect in access.indirect:
        if indirect.index is not None:
            yield from _used(indirect.index)


def _narrowed_scopes(program: Program) -> list[tuple[int, ...]]:
    """Return, for each buffer, the ids of the loops that contain both its declaration and all of its uses."""
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
    """Joins marked loops into loops, from the innermost ones outwards."""

    def __init__(self, buffers: list[Buffer], samples: Mapping[int, Sample], program: Program) -> None:
        self.buffers = buffers
        self.lnc = program.lnc
        self.samples = samples
        self.order: dict[int, tuple[int, ...]] = {}
        """The sort keys by which buffers are ordered, by buffer id. Only buffers of iterations that were not traced are
        listed; the sort key of any other buffer is (id,).
        """
        self.turns: dict[int, _Turns] = {}
        """The iterations that a group stands for, by the id of the group's node."""
        self._advances: dict[tuple[SampledLoop, range], list[int]] = {}
        """For each piece of a loop traced by samples whose iterations take no turns, the step of each constant."""
        self._within: dict[int, tuple[int, ...]] = {}
        """The first part of the sort keys of the buffers in a loop, by loop; empty for a loop that is not in a copied
        iteration.
        """
        self._traced = len(buffers)
        self._loops = count(max(program.loops, default=0) + 1)
        self.local: dict[int, list[int]] = {}
        for buffer in buffers:
            for loop in buffer.scope:
                self.local.setdefault(loop, []).append(buffer.id)

    def body(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return ``nodes`` with the marked loops at all depths joined into loops or replaced by their bodies."""
        inner = [_with_body(node, self.body(node.body)) if isinstance(node, Loop) else node for node in nodes]
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
                if (following.name, following.line) != (node.name, node.line):
                    break
                run.append(following)
            at += len(run)
            out.extend(self.rolled(run))
        return tuple(out)

    def rolled(self, run: list[Loop]) -> Iterator[Node]:
        """Yield a loop for each longest series of iterations in ``run`` that advance evenly. For any other iteration,
        yield its body.
        """
        pieces = list(self.pieces(run))
        stretches = list(_stretches(pieces))
        number = 0
        while number < len(stretches):
            first = stretches[number]
            lengths = _lengths(pieces, stretches, number)
            if lengths:
                yield self._group(pieces[first.at], lengths)
                number += len(lengths)
                continue
            number += 1
            loop = self._loop(pieces[first.at], first.offset)
            if first.length == 1 and loop.kind is LoopKind.SPMD and (self.lnc > 1 or _exchanges(loop)):
                # keep the loop: it is the program of one core of a launch whose cores exchange data
                yield replace(loop, name=loop.name.removeprefix(MARK))
            else:
                yield from _joined(loop, first.length, first.steps)

    def pieces(self, run: list[Loop]) -> Iterator[_Piece]:
        """Yield all iterations of the loop in ``run``, also those that were not traced, as pieces of one or more
        iterations.
        """
        at = 0
        while at < len(run):
            sample = self.samples.get(run[at].id)
            positions = [] if sample is None else self._positions(run[at:], sample)
            if sample is None or positions == list(sample.piece[: len(positions)]):
                taken = max(1, len(positions))
                for loop in run[at : at + taken]:
                    form = _Form(self, loop)
                    yield _Piece((loop, None), 1, form.structure, form.constants, [])
            else:
                taken = len(positions)
                made = self._completed if sample.loop.period == 1 else self._by_turns
                yield from made(run[at : at + taken], positions, sample)
            at += taken

    def _positions(self, run: list[Loop], first: Sample) -> list[int]:
        """Return the positions of the traced iterations at the start of ``run`` that belong to the same piece as
        ``first``.
        """
        piece, found = first.piece, list[int]()
        for loop in run:
            sample = self.samples.get(loop.id)
            if sample is None or sample.loop is not first.loop or sample.position not in piece:
                break
            found.append(sample.position)
        return found

    def _completed(self, run: list[Loop], positions: list[int], first: Sample) -> Iterator[_Piece]:
        """Yield, as one piece, the iterations that the traced iterations in ``run`` stand for. Raise SamplesDiffer if
        the traced iterations do not advance evenly.
        """
        forms, piece = [_Form(self, loop) for loop in run], first.piece
        if positions == [piece[-1]]:
            yield self._repeated(run[0], forms[0], first)
            return
        if positions[0] != piece[0] or positions[-1] != piece[-1]:
            raise SamplesDiffer(first.site)
        steps = _steps(forms, positions, 1, first.site)
        self._advances[first.loop, piece] = steps
        second = run[1] if positions[1] == piece[1] else _Untraced(run[0], steps, piece[1], self._place(run[1]))
        yield _Piece((run[0], second), len(piece), forms[0].structure, forms[0].constants, steps)

    def _advances_of(self, sample: Sample, constants: int) -> list[int]:
        """Return the steps of the ``constants`` constants in the earlier run that a run of a loop repeats. Raise
        SamplesDiffer if they are not known.

        An iteration of a loop around both runs was traced for each of the runs, and these iterations are compared. So
        wrong steps would be noticed.
        """
        loop = sample.loop.earlier
        while loop is not None and (loop, sample.piece) not in self._advances:
            loop = loop.earlier
        if loop is None or len(self._advances[loop, sample.piece]) != constants:
            raise SamplesDiffer(sample.site)
        return self._advances[loop, sample.piece]

    def _repeated(self, last: Loop, form: _Form, sample: Sample) -> _Piece:
        """Return, as one piece, the iterations of a loop of which only the last iteration was traced."""
        piece = sample.piece
        steps = self._advances_of(sample, len(form.constants))
        back = [-step * (len(piece) - 1) for step in steps]
        by = iter(back)
        body = tuple([mapped(node, lambda value: Affine(value.const + next(by), value.terms)) for node in last.body])
        begun = _with_body(last, body)
        constants = [value + step for value, step in zip(form.constants, back, strict=True)]
        second = _Untraced(begun, steps, piece[1], self._place(last))
        return _Piece((begun, second), len(piece), form.structure, constants, steps)

    def _by_turns(self, run: list[Loop], positions: list[int], first: Sample) -> Iterator[_Piece]:
        """Yield each iteration that the traced iterations in ``run`` stand for, in a loop whose iterations take
        turns.

        Iterations that are ``period`` apart are alike. Raise SamplesDiffer if such iterations do not advance evenly.
        """
        piece, period = first.piece, first.loop.period
        forms = {position: _Form(self, loop) for position, loop in zip(positions, run, strict=True)}
        loops = dict(zip(positions, run, strict=True))
        if positions[:period] != list(piece[:period]) or positions[-period:] != list(piece[-period:]):
            raise SamplesDiffer(first.site)
        turns = [
            positions[k : k + 1] + [p for p in positions[k + 1 :] if (p - positions[k]) % period == 0]
            for k in range(period)
        ]
        steps = [_steps([forms[p] for p in turn], turn, period, first.site) for turn in turns]
        places = {position: self._place(loops[next(p for p in positions if p >= position)]) for position in piece}
        kept = (*piece[:period], *piece[-period:])
        group = _Turns(piece, period, tuple([loops[position] for position in kept]), places, first.site)
        for position in piece:
            known = group if position == piece.start else None
            if position in forms:
                form = forms[position]
                yield _Piece((loops[position], None), 1, form.structure, form.constants, [], turns=known)
                continue
            turn = (position - piece.start) % period
            begin, times = turns[turn][0], (position - turns[turn][0]) // period
            moved = [step * times for step in steps[turn]]
            untraced = _Untraced(loops[begin], moved, position, places[position])
            yield _Piece((untraced, None), 1, forms[begin].structure, forms[begin].constants, [])

    def _place(self, loop: Loop) -> int:
        """Return the id of a buffer: new buffers that belong just before the traced iteration ``loop`` are ordered
        behind this buffer.
        """
        return min((one for one in self.local.get(loop.id, ()) if one < self._traced), default=0) - 1

    def _group(self, piece: _Piece, lengths: tuple[int, ...]) -> Loop:
        """Return a node that stands for the alternating iterations from ``piece`` on, until :meth:`written_out`
        replaces the node.

        ``lengths`` has the numbers of iterations of the loops that will be made of these iterations; 1 stands for an
        iteration that stays alone.
        """
        assert piece.turns is not None
        number = next(self._loops)
        self.turns[number] = replace(piece.turns, lengths=lengths)
        return Loop(number, "", 1, LoopKind.SEQUENTIAL, piece.turns.loops)

    def written_out(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return ``nodes`` with each group replaced by all its iterations."""
        if not self.turns:
            return nodes
        out: list[Node] = []
        for node in nodes:
            if not isinstance(node, Loop):
                out.append(node)
            elif node.id in self.turns:
                out.extend(self.written_out(tuple(self._all_turns(node, self.turns[node.id]))))
            else:
                out.append(_with_body(node, self.written_out(node.body)))
        return tuple(out)

    def _all_turns(self, group: Loop, turns: _Turns) -> Iterator[Node]:
        """Yield the iterations of a group, joined into loops as ``turns`` says. Raise SamplesDiffer if the iterations
        do not advance by equal steps.
        """
        loops = {
            position: loop for position, loop in zip(turns.kept, group.body, strict=True) if isinstance(loop, Loop)
        }
        traced = {position: _affines(loop) for position, loop in loops.items()}
        start, period, growth = turns.piece.start, turns.period, dict[int, list[Affine]]()
        for begin in range(start, start + period):
            end = max(p for p in turns.kept if (p - begin) % period == 0)
            apart = [_less(one, other) for one, other in zip(traced[end], traced[begin], strict=True)]
            growth[begin] = [_divided(one, (end - begin) // period, turns.site) for one in apart]

        def moved(position: int) -> list[Affine]:
            """Return the differences between the index expressions of an iteration that was not traced and those of
            the first iteration of its turn.
            """
            times, turn = divmod(position - start, period)
            return [one.scale(times) for one in growth[start + turn]]

        def affines(position: int) -> list[Affine]:
            if position in traced:
                return traced[position]
            begin = start + (position - start) % period
            return [one + by for one, by in zip(traced[begin], moved(position), strict=True)]

        position = start
        for length in turns.lengths:
            loop = loops.get(position)
            if loop is None:
                begin = start + (position - start) % period
                loop = self._copied(_Untraced(loops[begin], moved(position), position, turns.places[position]))
            steps: list[int] = []
            if length > 1:
                both = zip(affines(position + 1), affines(position), strict=True)
                steps = [_divided(_less(one, other), 1, turns.site, alone=True).const for one, other in both]
            yield from _joined(loop, length, steps)
            position += length

    def _loop(self, piece: _Piece, offset: int) -> Loop:
        """Return the marked loop of the first (``offset`` 0) or second iteration of a piece."""
        found = piece.loops[offset]
        assert found is not None
        return found if isinstance(found, Loop) else self._copied(found)

    def _copied(self, untraced: _Untraced) -> Loop:
        """Return the marked loop of an iteration that was not traced: a copy of a traced one, with new loops and
        buffers.
        """
        like, steps = untraced.like, iter(untraced.steps)
        local = set(self.local.get(like.id, ()))
        outer = self._within.get(like.id, ())
        within = (*outer, untraced.place, untraced.position)
        loops = {number: next(self._loops) for number in (like.id, *_inner(like))}
        for number, made in loops.items():
            self._within[made] = (*within, *self._within.get(number, ())[len(outer) :])
            if number in self.turns:
                self.turns[made] = self.turns[number]
        buffers: dict[int, int] = {}

        def affine(value: Affine) -> Affine:
            value = value + next(steps)
            if not value.terms:
                return value
            return Affine(value.const, tuple(sorted([(loops.get(loop, loop), coef) for loop, coef in value.terms])))

        def buffer(number: int) -> int:
            if number not in local:
                return number
            if number not in buffers:
                made = buffers[number] = len(self.buffers)
                scope = tuple(loops.get(loop, loop) for loop in self.buffers[number].scope)
                self.buffers.append(replace(self.buffers[number], id=made, scope=scope))
                self.order[made] = (*within, *self.order.get(number, (number,))[len(outer) :])
                for loop in scope:
                    self.local.setdefault(loop, []).append(made)
            return buffers[number]

        body = tuple(
            [mapped(node, affine, loop=lambda number: loops.get(number, number), buffer=buffer) for node in like.body]
        )
        return replace(like, id=loops[like.id], body=body)


def _less(one: Affine, other: Affine) -> Affine:
    """Return the affine expression ``one`` minus ``other``."""
    if one.terms == other.terms:
        return Affine(one.const - other.const)
    return one + other.scale(-1)


def _divided(value: Affine, by: int, site: Site, *, alone: bool = False) -> Affine:
    """Return ``value`` divided by ``by``. Raise SamplesDiffer if the division leaves a rest, or, with ``alone``, if
    loop variables are in the value.
    """
    if value.const % by or any(alone or coef % by for _, coef in value.terms):
        raise SamplesDiffer(site)
    return Affine(value.const // by, tuple([(loop, coef // by) for loop, coef in value.terms]))


def _affines(loop: Loop) -> list[Affine]:
    """Return the index expressions in the body of ``loop``, in the order in which
    :func:`acceld.nki.ir.mapping.mapped` visits them.

    The ids of inner loops in these expressions become -1, -2, ..., so that the expressions of two iterations can be
    compared.
    """
    found: list[Affine] = []
    numbers = {number: -1 - place for place, number in enumerate(_inner(loop))}

    def noted(value: Affine) -> Affine:
        terms = value.terms
        if terms:
            found.append(Affine(value.const, tuple(sorted([(numbers.get(loop, loop), coef) for loop, coef in terms]))))
        else:
            found.append(value)
        return value

    for node in loop.body:
        mapped(node, noted)
    return found


def _joined(loop: Loop, length: int, steps: Sequence[int]) -> Iterator[Node]:
    """Yield a loop of ``length`` iterations whose first iteration is ``loop``; if ``length`` is 1, yield the body of
    ``loop`` instead.

    Each constant grows by its entry of ``steps`` from one iteration to the next.
    """
    if length == 1:
        yield from loop.body
    else:
        advance = iter(steps)
        body = tuple([_advanced(node, loop.id, advance) for node in loop.body])
        yield replace(loop, name=loop.name.removeprefix(MARK), trips=length, body=body)


def _steps(forms: list[_Form], positions: list[int], period: int, site: Site) -> list[int]:
    """Return, for each constant, the step from one iteration to the iteration ``period`` later. Raise SamplesDiffer if
    the iterations in ``forms`` do not advance evenly.
    """
    starts, ends = forms[0].constants, forms[-1].constants
    if any(form.structure != forms[0].structure for form in forms):
        raise SamplesDiffer(site)
    far = (positions[-1] - positions[0]) // period
    steps = [(b - a) // far for a, b in zip(starts, ends, strict=True)]
    for position, form in zip(positions, forms, strict=True):
        far = (position - positions[0]) // period
        if form.constants != [start + step * far for start, step in zip(starts, steps, strict=True)]:
            raise SamplesDiffer(site)
    return steps


def _inner(loop: Loop) -> Iterator[int]:
    """Yield the ids of the loops inside of ``loop``, each outer loop before its inner loops."""
    for node in loop.body:
        if isinstance(node, Loop):
            yield node.id
            yield from _inner(node)


def _exchanges(node: Node) -> bool:
    """Tell whether an instruction in ``node`` exchanges data between cores."""
    return any(map(_exchanges, node.body)) if isinstance(node, Loop) else node.op == "exchange"


class _Form:
    """One iteration, split into the constants of its affine expressions, in order, and all else (``structure``)."""

    def __init__(self, roller: _Roller, loop: Loop) -> None:
        self.constants: list[int] = []
        self._loops: dict[int, int] = {loop.id: 0}
        self._buffers: dict[int, int] = {}
        self._roller = roller
        self._local = set(roller.local.get(loop.id, ()))
        self.structure = tuple([self.node(node) for node in loop.body])

    def node(self, node: Node) -> tuple[object, ...]:
        if isinstance(node, Loop):
            self._loops[node.id] = len(self._loops)
            body = tuple([self.node(child) for child in node.body])
            turns = self._roller.turns.get(node.id)
            if turns is not None:
                return ("turns", turns.period, turns.count, turns.lengths, body)
            return ("loop", node.trips, node.kind, node.trips_register, body)
        return (
            node.op,
            node.engine,
            tuple([self.access(dst) for dst in node.dsts]),
            tuple([self.operand(src) for src in node.srcs]),
            self.attrs(node) if node.attrs else (),
            tuple([self.pattern(p) for p in node.mask]) if node.mask else (),
            None if node.pattern is None else self.pattern(node.pattern),
            node.line,
        )

    def attrs(self, node: Instruction) -> tuple[object, ...]:
        return tuple([(key, type(value), value) for key, value in node.attrs])

    def operand(self, value: Operand) -> object:
        if isinstance(value, Access):
            return self.access(value)
        if isinstance(value, Pattern):
            return self.pattern(value)
        return (type(value), value)

    def affine(self, value: Affine) -> object:
        self.constants.append(value.const)
        terms = value.terms
        return tuple([(self._loops.get(loop, ("outer", loop)), coef) for loop, coef in terms]) if terms else ()

    def pattern(self, value: Pattern) -> object:
        return (self.affine(value.base), value.coefs)

    def access(self, value: Access) -> object:
        buffer: object = value.buffer
        if value.buffer in self._local:
            place = self._buffers.setdefault(value.buffer, len(self._buffers))
            b = self._roller.buffers[value.buffer]
            buffer = ("local", place, b.space, b.dtype, b.shape, b.partition_axis, b.role, b.address)
        indirect: tuple[object, ...] = ()
        if value.indirect:
            indirect = tuple(
                (i.dim, i.scale, i.register, None if i.index is None else self.access(i.index), i.axis)
                for i in value.indirect
            )
        return (buffer, tuple([self.affine(start) for start in value.start]), value.dims, indirect, value.dtype)


@dataclass(frozen=True, slots=True)
class _Untraced:
    """An iteration that was not traced, at position ``position`` of its loop.

    It equals the traced iteration ``like``, except that each index expression is larger by its entry of ``steps``.
    New buffers of the iteration are ordered behind the buffer with the id ``place``.
    """

    like: Loop
    steps: Sequence[Any]
    position: int
    place: int


@dataclass(frozen=True, slots=True)
class _Turns:
    """The iterations of ``piece``, which take turns: iterations that are ``period`` apart are alike, such as all even
    iterations for a period of 2.

    ``loops`` are the traced iterations; :attr:`kept` has their positions. ``places`` has, for each of these
    positions, the id of the buffer behind which the buffers of that iteration are ordered.
    """

    piece: range
    period: int
    loops: tuple[Loop, ...]
    places: Mapping[int, int]
    site: Site
    lengths: tuple[int, ...] = ()
    """The number of iterations of each loop that will be made of these iterations; 1 for an iteration that stays alone.
    """

    @property
    def count(self) -> int:
        """Return the number of iterations."""
        return len(self.piece)

    @property
    def kept(self) -> tuple[int, ...]:
        """Return the positions of the traced iterations: the first ``period`` and the last ``period`` iterations of
        the piece, from which all other iterations are derived.
        """
        return (*self.piece[: self.period], *self.piece[-self.period :])


@dataclass(frozen=True, slots=True)
class _Piece:
    """One iteration of a loop, or ``length`` consecutive iterations. From one iteration to the next, each constant
    grows by its entry of ``steps``.
    """

    loops: tuple[Loop | _Untraced, Loop | _Untraced | None]
    """The marked loops of the first two iterations. The second is None if there is a single iteration."""
    length: int
    structure: tuple[object, ...]
    traced: list[int]
    """The constants of the first iteration. If that was not traced, they are those of the traced iteration that it
    resembles.
    """
    steps: list[int]
    turns: _Turns | None = None
    """The alternating iterations, if this piece is the first of them; else None."""

    @property
    def constants(self) -> list[int]:
        """Return the constants of the first iteration."""
        first = self.loops[0]
        if isinstance(first, Loop):
            return self.traced
        return [start + step for start, step in zip(self.traced, first.steps, strict=True)]

    @property
    def last(self) -> list[int]:
        """Return the constants of the last iteration."""
        if self.length == 1:
            return self.constants
        return [start + step * (self.length - 1) for start, step in zip(self.constants, self.steps, strict=True)]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A series of ``length`` iterations that advance evenly by ``steps``. The first one is in piece ``at``, at position
    ``offset``.
    """

    at: int
    offset: int
    length: int
    steps: list[int]


def _stretches(pieces: list[_Piece]) -> Iterator[_Stretch]:
    """Yield the iterations of ``pieces`` in order, as the longest series that advance evenly."""
    at, offset = 0, 0
    while at < len(pieces):
        begin = at, offset
        length, steps, at, offset = _stretch(pieces, at, offset)
        yield _Stretch(*begin, length, steps)


def _lengths(pieces: list[_Piece], stretches: list[_Stretch], number: int) -> tuple[int, ...]:
    """Return the lengths of the series, from ``stretches[number]`` on, that the iterations of one :class:`_Turns` make
    up. The lengths add up to the number of these iterations.

    The result is empty if no :class:`_Turns` begins at ``stretches[number]``, or if a series goes on behind the end of
    the :class:`_Turns`.
    """
    first = stretches[number]
    turns = pieces[first.at].turns
    if turns is None:
        return ()
    found, left = [], turns.count
    for one in stretches[number:]:
        if left <= 0:
            break
        found.append(one.length)
        left -= one.length
    return tuple(found) if left == 0 else ()


def _stretch(pieces: list[_Piece], at: int, offset: int) -> tuple[int, list[int], int, int]:
    """Return the longest series of iterations, from a given one on, in which each constant grows by the same step from
    iteration to iteration.

    The result is (length of the series, step of each constant, piece and position of the iteration after the series).
    The position of an iteration is the number of its piece (``at``) and its position in that piece (``offset``).
    """
    first = pieces[at]
    length, steps = first.length - offset, first.steps if first.length - offset > 1 else None
    last, at = first.last, at + 1
    while at < len(pieces) and pieces[at].structure == first.structure:
        piece = pieces[at]
        apart = [b - a for a, b in zip(last, piece.constants, strict=True)]
        if steps is None:
            steps = apart
        elif apart != steps:
            break
        length += 1
        if piece.length > 1 and piece.steps != steps:
            return length, steps, at, 1
        length += piece.length - 1
        last, at = piece.last, at + 1
    return length, steps or [], at, 0


def _advanced(node: Node, loop: int, steps: Iterator[int]) -> Node:
    """Return ``node`` with each of its affine constants turned into ``constant + step * loop``.

    ``steps`` has the step of each constant, in the order in which _Form lists the constants.
    """

    def affine(value: Affine) -> Affine:
        step = next(steps)
        return value + Affine(0, ((loop, step),)) if step else value

    return mapped(node, affine)


def _renumbered(program: Program, order: Mapping[int, tuple[int, ...]]) -> Program:
    """Return the program with loops and buffers numbered from 0 in order of appearance, and without unused buffers.

    ``order`` has sort keys for buffers that appear in another order than their ids.
    """
    loops = {number: place for place, number in enumerate(program.loops)}
    kept = {*program.inputs, *program.outputs}
    for instruction, _ in program.walk():
        for tile in instruction.accesses:
            kept.update(_used(tile))
    buffers = {number: place for place, number in enumerate(sorted(kept, key=lambda one: order.get(one, (one,))))}

    def affine(value: Affine) -> Affine:
        if not value.terms:
            return value
        return Affine(value.const, tuple(sorted([(loops[loop], coef) for loop, coef in value.terms])))

    body = tuple(mapped(node, affine, loop=loops.__getitem__, buffer=buffers.__getitem__) for node in program.body)
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
        body=body,
        inputs=tuple(buffers[number] for number in program.inputs),
        outputs=tuple(buffers[number] for number in program.outputs),
    )
