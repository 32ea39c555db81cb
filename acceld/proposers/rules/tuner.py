"""Find fast sequences of rewrites by simulated latency alone, without running kernels on data.

A tuner goes from kernel to kernel by moves: each move is one rewrite. It times thousands of kernels, but each program
once, and returns the fastest sequences. The kernels' results are checked later, when they are candidates like any
other. The tuner looks ahead: a step that makes a kernel slower is kept, because a later step may pay for it. A
step that writes a loop out, such as software pipelining, hides places from later moves. So a kernel also gets moves of
the earlier kernels of its sequence; such a move is made on the earlier kernel, and the later steps are made again
after it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from math import sqrt

from acceld.model import LEAST_STEP_PERCENT, Profile

_FRONT = 16
"""Number of kernels whose moves are compared in each round."""
_ROUND = 8
"""Number of moves that are tried before the remaining moves are compared again."""
_OF_ONE = 2
"""Greatest number of moves of one kernel in half a round. Fitted: of 1, 2 and no limit, 2 was the best on public
kernels together. Without a limit, the tuner may extend only one kernel that no move improves much further.
"""
_AGAIN = 0.8
"""Factor on a rule's expected saving for each further move by the same rule on a kernel. Fitted: 0.8 is better than 1.
"""
_TRUST = 2
"""Number of timed moves of a rule that together count as much as the benefit that the rule states. Chosen, not fitted.
"""
_WORST = 0.1
"""Greatest loss, as a share of the latency, that a timed move counts against its rule. Of 0, 0.1, 0.25 and 0.5, 0.1 was
the best on ten searches from public kernels: with a greater limit the tuner gives up on a rule whose rewrite pays only
after another rewrite.
"""
_TIE = 1e-4
"""Difference of two latencies, as a share, up to which a kernel and the kernel that it was made from are a tie. Chosen,
not fitted.
"""
_AS_FAST = 1e-3
"""Greatest loss, as a share of the latency, for which a sequence without one of its steps is kept instead of the whole
sequence. Chosen, not fitted.
"""
_REMEMBERED = 1024
"""Number of rewrites made again whose results are remembered: a few kilobytes each."""
_LINE = re.compile(r", line (\d+)")
"""Matches the line number in a move's name."""


@dataclass(frozen=True, slots=True)
class Move:
    """One change that can be applied to a kernel: a rule's variant at one place, or a rule at all places that it
    finds.
    """

    step: str
    """Name of the move; equal for the same move on another kernel."""
    rule: str
    benefit: float
    """Expected saving as a share of the latency, for ranking."""
    apply: Callable[[], str | None]
    """Returns the new kernel; None if the rule refuses when it is applied."""
    on: Tuned | None = field(default=None, repr=False)
    """The earlier kernel that the move changes, if the later steps of the sequence are made again after the move."""


@dataclass(frozen=True, slots=True)
class Made:
    """The kernel that a move makes, and the steps that lead to it from the kernel with which the tuner began."""

    text: str
    steps: tuple[str, ...]
    rules: tuple[str, ...]
    on: Tuned
    """The kernel that the move changed, before later steps were made again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of trying one move on a kernel."""

    new: Tuned | None = None
    """The new kernel; None if it can not be timed, or if its program was timed before."""
    saved: float | None = None
    """Share of the latency that the move saves, negative for a loss, and 0 if the kernel can not be timed; None if the
    new kernel was known before, so that nothing was learned about the move's rule.
    """


@dataclass(frozen=True, slots=True)
class TimedProgram:
    """The simulated latency of a kernel's program."""

    latency_us: float
    program_sha256: str
    profile: Profile | None = field(default=None, compare=False, repr=False)


@dataclass(eq=False)
class Tuned:
    """A timed kernel, and the steps that lead to it from the kernel with which the tuner began (the root)."""

    text: str
    steps: tuple[str, ...]
    rules: tuple[str, ...]
    timed: TimedProgram
    parent: Tuned | None = field(default=None, repr=False)
    """The earlier kernel of the sequence from which this kernel was made; None for the root. It lacks the last step of
    this kernel, or several steps if a move was made before later steps.
    """
    tie: Tuned | None = field(default=None, repr=False)
    """A kernel that one more move made of this kernel, and that is equally fast. Further moves extend that kernel
    instead of this one.
    """
    moves: Sequence[Move] | None = field(default=None, repr=False)
    """The kernel's moves, best first; None until they are asked for."""
    made: dict[int, Made | None] = field(default_factory=dict, repr=False)
    """For each position in ``moves``, the kernel that the move makes; None for a move that is refused."""
    tried: set[int] = field(default_factory=set, repr=False)
    """Positions in ``moves`` of the moves that were tried."""

    @property
    def latency_us(self) -> float:
        """Return the simulated latency of the kernel's program in microseconds."""
        return self.timed.latency_us

    @property
    def is_open(self) -> bool:
        """Return True if the kernel may have moves that were not tried yet."""
        return self.moves is None or len(self.tried) < len(self.moves)

    @property
    def waits(self) -> bool:
        """Return True while this kernel gets no further moves, because a kernel of the same latency that was made
        from it gets them instead.
        """
        return self.tie is not None and (self.tie.is_open or self.tie.waits)

    @property
    def reachable_us(self) -> float:
        """Return the latency in microseconds that later moves may reach: the geometric mean of the kernel's latency and
        the busy time of its busiest engine.
        """
        profile = self.timed.profile
        busiest = max(profile.engines_us.values(), default=0.0) if profile is not None else 0.0
        return sqrt(self.latency_us * busiest) if busiest else self.latency_us


Clock = Callable[[str], Awaitable[TimedProgram | None]]
"""Returns the simulated latency of a kernel; None if it can not be traced or breaks a rule of the chip."""
Moves = Callable[[str, Profile | None], Sequence[Move]]
"""Returns the moves of a kernel with its profile, best first. The function is called in a thread."""
Again = Callable[[str, str], Sequence[Move]]
"""Returns the moves of a kernel that may repeat the step with a given name, perhaps at another line. The function is
called in a thread.
"""


class Tuner:
    """Make kernels by sequences of moves, and time up to a given number of them."""

    def __init__(
        self,
        clock: Clock,
        moves: Moves,
        *,
        limit: int,
        is_over: Callable[[], bool] = lambda: False,
        again: Again | None = None,
    ) -> None:
        """Prepare the tuner.

        ``limit`` is the number of kernels to time. A kernel or program that was timed before does not count. Nothing
        more is timed once ``is_over`` returns True. ``again`` finds a step in another kernel; without ``again``, all
        moves of that kernel are searched.
        """
        self._clock, self._moves, self.is_over = clock, moves, is_over
        self._again = again or (lambda text, step: moves(text, None))
        self.left = limit
        """Number of kernels that may still be timed."""
        self.timed = 0
        """Number of kernels timed so far, without the root."""
        self.seen: dict[str, Tuned] = {}
        """The first kernel that was timed of each program, by the program's hash."""
        self._texts: set[str] = set()

    async def root(self, text: str) -> Tuned | None:
        """Time the kernel with which all sequences begin, and return it; None if this kernel can not be timed."""
        self._texts.add(text)
        timed = await self._clock(text)
        return self._keep(Tuned(text, (), (), timed)) if timed is not None else None

    async def moves(self, one: Tuned) -> Sequence[Move]:
        """Return the moves of a kernel, the most promising first. They are computed once.

        They are the kernel's own moves, and moves that an earlier kernel of its sequence offered and a later step hides.
        """
        if one.moves is None:
            found = await asyncio.to_thread(self._moves, one.text, one.timed.profile)
            # the result of a move is cached, because a later kernel that hides the move repeats it on this kernel
            own = [replace(move, apply=cache(move.apply)) for move in found]
            one.moves = sorted([*own, *_hidden(one, own)], key=lambda move: -move.benefit)
        return one.moves

    async def made(self, one: Tuned, place: int) -> Made | None:
        """Return the kernel that the move at position ``place`` makes.

        Return None if a rule refuses the move or a later step, or if this kernel was made before. The move then
        counts as tried.
        """
        move = (await self.moves(one))[place]
        if place not in one.made:
            one.made[place] = await asyncio.to_thread(self._make, one, move)
        made = one.made[place]
        if made is None or made.text in self._texts:
            one.tried.add(place)
            return None
        return made

    def _make(self, one: Tuned, move: Move) -> Made | None:
        text, on = move.apply(), move.on or one
        if text is None:
            return None
        wanted = one.steps[len(on.steps) :]
        text, again = repeated(text, wanted, self._again)
        if len(again) < len(wanted):
            return None
        follow = [move, *again]
        steps = (*on.steps, *(one.step for one in follow))
        return Made(text, steps, (*on.rules, *(one.rule for one in follow)), on)

    async def time(self, tries: Sequence[tuple[Tuned, int]]) -> list[Outcome]:
        """Make and time new kernels, as far as the limit allows, and return the outcome of each try.

        A try is (kernel, position of the move among its moves).
        """
        begun = []
        found = [Outcome()] * len(tries)
        for number, (one, place) in enumerate(tries):
            if self.is_over():
                self.left = 0
            if self.left <= 0:
                break
            made = await self.made(one, place)
            one.tried.add(place)
            if made is None:
                found[number] = Outcome(saved=0.0 if one.made[place] is None else None)
                continue
            self._texts.add(made.text)
            self.left -= 1
            self.timed += 1
            begun.append((number, one, made, asyncio.ensure_future(self._clock(made.text))))
            await asyncio.sleep(0)  # runs the timing up to its first wait, so that is_over sees this time
        for number, one, made, timing in begun:
            timed = await timing
            if timed is None:
                found[number] = Outcome(saved=0.0)
            elif timed.program_sha256 not in self.seen:
                new = self._keep(Tuned(made.text, made.steps, made.rules, timed, made.on))
                saved = 1.0 - new.latency_us / one.latency_us
                if abs(saved) <= _TIE:
                    one.tie = new
                found[number] = Outcome(new, saved)
        return found

    async def join(self, one: Tuned, wanted: Sequence[str]) -> Tuned | None:
        """Make the rewrites ``wanted`` on a kernel, in order, as far as they apply, and time the result.

        If more of them apply before the kernel's last step than after it, they are made before that step, and the
        step is repeated after them. Return None if the limit is reached, if fewer than two rewrites apply, or if the
        new kernel can not be timed or was timed before.
        """
        if self.left <= 0 or self.is_over():
            return None
        on, text, made = await asyncio.to_thread(self._joined, one, wanted)
        if len(made) < 2 + len(one.steps) - len(on.steps) or text in self._texts:
            return None
        self._texts.add(text)
        self.left -= 1
        self.timed += 1
        timed = await self._clock(text)
        if timed is None or timed.program_sha256 in self.seen:
            return None
        steps, rules = (move.step for move in made), (move.rule for move in made)
        return self._keep(Tuned(text, (*on.steps, *steps), (*on.rules, *rules), timed, on))

    async def free(self, root: Tuned) -> None:
        """Remove the steps of the fastest kernel that gain nothing.

        The kernel is timed without each of its steps, one at a time. A shorter sequence that is as fast is kept. A
        step may gain nothing because it paid only until a later step was made, or because :meth:`join` made it
        together with others. ``root`` is the kernel with which the sequence began. At most one kernel for each step
        is timed, beyond the tuner's limit.
        """
        (best,) = self.fastest(1)
        enough_us, place = best.latency_us * (1 + _AS_FAST), len(best.steps)
        while best is not root and len(best.steps) > 1 and (place := place - 1) >= 0:
            fewer = (*best.steps[:place], *best.steps[place + 1 :])
            text, made = await asyncio.to_thread(repeated, root.text, fewer, self._again)
            known = next((one.timed for one in self.seen.values() if one.text == text), None)
            if known is None and text in self._texts:  # can not be timed, or has a known program
                continue
            self.timed += known is None
            self._texts.add(text)
            timed = known or await self._clock(text)
            if timed is not None and timed.latency_us <= enough_us:
                steps, rules = tuple(move.step for move in made), tuple(move.rule for move in made)
                best = self.seen[timed.program_sha256] = Tuned(text, steps, rules, timed, root)
                place = min(place, len(steps))

    def _joined(self, one: Tuned, wanted: Sequence[str]) -> tuple[Tuned, str, list[Move]]:
        """Return what :meth:`join` makes: the kernel to change, the changed kernel, and the moves that lead from one
        to the other.
        """
        text, made = repeated(one.text, wanted, self._again)
        if len(made) == len(wanted) or one.parent is None:
            return one, text, made
        later = one.steps[len(one.parent.steps) :]
        before, moves = repeated(one.parent.text, wanted, self._again)
        after, again = repeated(before, later, self._again)
        if len(again) == len(later) and len(moves) > len(made):
            return one.parent, after, [*moves, *again]
        return one, text, made

    def _keep(self, one: Tuned) -> Tuned:
        return self.seen.setdefault(one.timed.program_sha256, one)

    def fastest(self, count: int | None = None) -> list[Tuned]:
        """Return at most ``count`` kernels with different programs, fastest first. Of equally fast kernels, the kernel
        with fewer steps comes first.
        """
        return sorted(self.seen.values(), key=_rank)[:count]


def without_idle_steps(found: Sequence[Tuned]) -> list[Tuned]:
    """Return the kernels without those that have an idle step, in the same order.

    A kernel has an idle step if a kernel that only some of its steps made is as fast. A difference of up to
    :data:`acceld.model.LEAST_STEP_PERCENT` is noise.
    """
    kept: list[tuple[Counter[str], Tuned]] = []
    for one in sorted(found, key=lambda one: (len(one.steps), one.latency_us)):
        names = Counter(map(anywhere, one.steps))
        enough_us = one.latency_us * (1 + LEAST_STEP_PERCENT / 100)
        if not any(fewer < names and other.latency_us <= enough_us for fewer, other in kept):
            kept.append((names, one))
    lasting = {id(one) for _, one in kept}
    return [one for one in found if id(one) in lasting]


def repeated(text: str, wanted: Sequence[str], find: Again) -> tuple[str, list[Move]]:
    """Repeat the rewrites ``wanted`` on another kernel, in order, as far as they apply; return the new kernel and the
    moves that were made.

    A rewrite is found again by its name; of several places, the place at the nearest line is taken.
    """
    made: list[Move] = []
    for name in wanted:
        move, text = _made_again(text, name, find)
        if move is not None:
            made.append(move)
    return text, made


@lru_cache(maxsize=_REMEMBERED)
def _made_again(text: str, name: str, find: Again) -> tuple[Move | None, str]:
    """Return the move that makes the rewrite ``name`` on a kernel, and the new kernel. If the rewrite does not apply,
    return None and the unchanged ``text``.

    Results are cached, because many sequences have a part in common.
    """
    same = [move for move in find(text, name) if anywhere(move.step) == anywhere(name)]
    for move in sorted(same, key=lambda move: abs(_line_of(move.step) - _line_of(name))):
        changed = move.apply()
        if changed is not None and changed != text:
            return replace(move, apply=partial(str, changed)), changed  # frees the parsed kernel, which is large
    return None, text


def anywhere(step: str) -> str:
    """Return a move's name without its line."""
    return _LINE.sub("", step)


def _line_of(step: str) -> int:
    found = _LINE.search(step)
    return int(found[1]) if found else 0


def _hidden(one: Tuned, own: Sequence[Move]) -> list[Move]:
    """Return moves of earlier kernels of a sequence that the kernel itself lacks, because a later step hides the place
    of the move or writes that place out several times.
    """
    found: list[Move] = []
    later, after = own, one
    while (on := after.parent) is not None:
        moves = [move for move in on.moves or () if move.on is None]
        made = after.steps[len(on.steps) :]
        expected = Counter(anywhere(move.step) for move in moves)
        expected.subtract(map(anywhere, made))
        offered = Counter(anywhere(move.step) for move in later)
        for move in moves:
            name = anywhere(move.step)
            if offered[name] != expected[name] and move.step not in made:
                found.append(replace(move, on=on))
        later, after = moves, on
    return found


def _rank(one: Tuned) -> tuple[float, int, str]:
    return one.latency_us, len(one.steps), one.timed.program_sha256


def _reach(one: Tuned) -> tuple[float, int, str]:
    return one.reachable_us, len(one.steps), one.timed.program_sha256


async def tune(tuner: Tuner, root: Tuned) -> None:
    """Try each rule once on the root. Then repeatedly try the moves with the least promised latency on the fastest
    kernels.

    The promised latency of a move is its kernel's latency less the share that the rule is expected to save. At first
    this share is the rule's stated benefit. The more moves of the rule are timed, the more the share is what these
    moves saved or lost. So a slower kernel with a promising move is preferred to a kernel with weak moves only. A move
    that was timed on one kernel promises, on another kernel, the mean of that share and of what the move saved before.
    So a step without effect is not timed on one kernel after another. Each further move of one rule on the same kernel
    promises less, because a rule's moves tend to save the same time. Among the kernels that were made by the same set
    of rules, only one at a time gets further moves.

    Every other move is chosen by another rank: a kernel counts as faster, the less its busiest engine has to do. Such
    a kernel may be slow only because its engines wait for each other, and a later step can change that.

    After each round, all moves that made some kernel faster, and that the fastest kernel lacks, are made on the
    fastest kernel together. A kernel that needs many steps is then found in a few rounds.
    """
    saved: defaultdict[str, list[float]] = defaultdict(list)
    gains: dict[str, tuple[float, str]] = {}
    firsts: dict[str, int] = {}
    for place, move in enumerate(await tuner.moves(root)):
        firsts.setdefault(move.rule, place)
    tries = [(root, place) for place in firsts.values()]
    while tries:
        for (one, place), outcome in zip(tries, await tuner.time(tries), strict=True):
            if outcome.saved is not None:
                move = (await tuner.moves(one))[place]
                for name in (move.rule, move.step):
                    saved[name].append(max(-_WORST, outcome.saved))
                gains[anywhere(move.step)] = max(
                    (outcome.saved, move.step), gains.get(anywhere(move.step), (LEAST_STEP_PERCENT / 100, ""))
                )
        for best in tuner.fastest(1):
            await tuner.join(best, _lacking(best, gains))
        tries = []
        for rank in (_rank, _reach):
            if tuner.left > 0:
                tries += await _promising(tuner, saved, rank, tries)


def _lacking(one: Tuned, gains: Mapping[str, tuple[float, str]]) -> list[str]:
    """Return the steps that a kernel lacks and that made some other kernel faster. The steps that saved most come first.

    ``gains`` has, for each step without its line, the greatest share that it saved, and the step's name; the name is empty
    if the step saved nothing.
    """
    has = set(map(anywhere, one.steps))
    found = sorted(gain for name, gain in gains.items() if name not in has and gain[1])
    return [step for _, step in reversed(found)]


async def _promising(
    tuner: Tuner,
    saved: Mapping[str, Sequence[float]],
    rank: Callable[[Tuned], tuple[float, int, str]],
    taken: Sequence[tuple[Tuned, int]],
) -> list[tuple[Tuned, int]]:
    """Return the untried moves with the least promised latency (see :func:`tune`), at most a few for each kernel. A
    move is left out if the tuner already knows the kernel that it makes, for example because the move exchanges two
    loops back.

    ``saved`` has, for each rule and for each step, the shares of the latency that its moves have saved or lost so far.
    """
    texts = {made.text for one, place in taken if (made := await tuner.made(one, place)) is not None}
    chosen: list[tuple[Tuned, int]] = []
    while not chosen and not tuner.is_over():
        front = _front(tuner, rank)
        found: list[tuple[float, int, int]] = []
        for number, one in enumerate(front):
            earlier = Counter[str]()
            for place, move in enumerate(await tuner.moves(one)):
                if place not in one.tried and (one, place) not in taken:
                    seen, same = saved.get(move.rule, ()), saved.get(move.step, ())
                    share = (_TRUST * move.benefit + sum(seen)) / (_TRUST + len(seen))
                    share = (share + sum(same)) / (1 + len(same)) * _AGAIN ** earlier[move.rule]
                    found.append((rank(one)[0] * (1.0 - share), number, place))
                earlier[move.rule] += 1
        refused = False
        of_one = Counter[int]()
        for _, number, place in sorted(found):
            made = await tuner.made(front[number], place) if of_one[number] < _OF_ONE else None
            refused = refused or place in front[number].tried
            if made is not None and made.text not in texts:
                texts.add(made.text)
                of_one[number] += 1
                chosen.append((front[number], place))
                if len(chosen) == _ROUND // 2:
                    break
        if not refused:
            break
    return chosen


def _front(tuner: Tuner, rank: Callable[[Tuned], tuple[float, int, str]]) -> list[Tuned]:
    """Return the fastest kernels with untried moves, one for each set of rules.

    The same rules at other places or in another order give nearly equal kernels. One kernel for each set leaves room
    for a kernel that is slower now, but one step from a large gain. A kernel is left out if one more move gave an
    equally fast kernel: that kernel is extended instead, because its extra step costs nothing and may allow a later
    gain.
    """
    found: dict[frozenset[str], Tuned] = {}
    for one in sorted(tuner.seen.values(), key=rank):
        if one.is_open and not one.waits:
            found.setdefault(frozenset(one.rules), one)
    return list(found.values())[:_FRONT]
