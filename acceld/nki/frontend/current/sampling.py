"""Trace only some iterations of a long loop.

A range of this API returns plain integers, so Python runs every iteration. A kernel of more than a few hundred
instructions is therefore traced with *samples*. Then :mod:`acceld.nki.frontend.current.loop_rerolling` makes one loop of
the samples, but only if each sample equals the first one advanced by equal steps.

Which iterations are samples depends on the Python values that iterations hand on to each other. A loop *carries* values
if a value that its iterations may read differs after an iteration from what it was before the loop. Variables that each
iteration assigns first do not count (:mod:`acceld.nki.frontend.current.live_names`).

- A loop that carries no values runs its first and its last iteration. All its iterations begin alike, so from the second
  traced iteration on they *repeat* the first one.
- A loop that carries values runs its first two iterations and the last one. From the third iteration on they repeat
  earlier ones, if the values stay the same or grow evenly.

A loop inside of an iteration that repeats an earlier one repeats the run of that loop in the earlier iteration. If it
carries no values and its iterations do not take turns, only its last iteration is traced, and the steps are those of the
earlier run. Otherwise its first and last iteration are traced. The strict gate asks for more samples, and compares all
variables (:class:`acceld.nki.frontend.session.TraceOptions`, ``sample_closely``).

A kernel may add, subtract and multiply the index of a sampled iteration. Where the kernel compares or divides the
index, the loop is cut into *pieces*. Within a piece a comparison always has the same answer, and a quotient and a
remainder advance evenly. Each piece has its own samples. If the kernel takes a remainder by 2, 3 or 4, iterations *take
turns*: every second, third or fourth iteration is alike. Then the traced iterations are one of each turn and the last of
each turn, and one more if the loop carries values (it begins with the Python values of the first turn again). Where
Python needs the number itself (a list index, a size, text), every iteration runs.

The kernel is traced again, with one loop in full, in three cases: a cut is found too late, after iterations were left
out; the samples of the loop differ; or Python values around the loop change during it
(:mod:`acceld.nki.frontend.current.snapshots`). After any other error the whole kernel is traced in full.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

import numpy as np

from acceld.nki.frontend.core.context import Retrace
from acceld.nki.frontend.core.index import Expr
from acceld.nki.frontend.session import Site
from acceld.nki.ir.program import Affine

LEAST = 4
"""Number of iterations below which a loop, or a piece of a loop, is traced in full."""
MOST_TURNS = 4
"""Longest period after which iterations of a loop may be alike again. For example, ``tiles[i % 2]`` gives iterations a
period of 2.
"""
Term = tuple["SampledLoop", int, int]
"""A loop, the iteration of it from which an index comes, and the growth of the index from one iteration to the next."""


def least(period: int) -> int:
    """Return the number of iterations below which a piece is traced in full, if every ``period``-th iteration is alike."""
    return LEAST if period == 1 else 4 * period


def _last(count: int, period: int) -> int:
    """Return the position from which on iterations are traced again, up to the last of ``count`` iterations.

    At least ``period`` iterations follow, and the position is a multiple of ``period``.
    """
    return count // period * period - period


@dataclass(frozen=True, slots=True)
class Samples:
    """Decides how many iterations of one run of a loop are traced.

    - ``closely``: trace more iterations than are needed to find the step of each address.
    - ``inner``: the loop is inside of a sampled loop.
    - ``repeated``: the loop is inside of the third or a later iteration of a sampled loop.
    """

    closely: bool = False
    inner: bool = False
    repeated: bool = False

    @property
    def lone(self) -> bool:
        """Tell whether only one period of iterations is traced at the start of a piece, before the iterations at its
        end, or none there.

        A period is one iteration, unless iterations alternate between several forms. With a single period, the Python
        values after an iteration can not be compared with the values after an earlier iteration of the same form.
        """
        return self.repeated and not self.closely

    def positions(self, count: int, period: int = 1, *, carries: bool = True) -> tuple[int, ...]:
        """Return the positions of the iterations to trace out of ``count``, if every ``period``-th iteration is alike.

        If ``carries`` is False, no iteration uses Python values of the iteration before, so that one period at the start
        is enough.
        """
        last, once = count - 1, not self.closely and (self.repeated or not carries)
        if count < least(period):
            return tuple(range(count))
        if period > 1:
            begun = 3 * period if self.closely else period if once else period + 1
            return (*range(begun), *range(max(begun, _last(count, period)), count))
        if self.closely:
            return (0, 1, 2, last) if self.inner else tuple(sorted({0, 1, 2, count // 2, last}))
        return (0, last) if once else (0, 1, last)


class SampledLoop:
    """Choose which iterations of one run of a loop are traced.

    ``pieces`` are the pieces so far, in order. The last piece contains the running iteration.
    """

    def __init__(
        self, count: int, site: Site, depth: int, samples: Samples, earlier: SampledLoop | None = None
    ) -> None:
        self.count = count
        self.site = site
        self.depth = depth
        """Number of loops around this loop."""
        self.samples = samples
        self.earlier = earlier
        """The run of this loop, in an earlier iteration of a loop around it, that this run repeats; None if none is known."""
        self.only_last = earlier is not None and earlier.advances_evenly and earlier.period == 1
        """True if only the last iteration of each piece is traced. If iterations take turns, this is False: the tiles that
        a turn declares would get other numbers than in a trace of all iterations.
        """
        self.carries = True
        """False if each iteration so far began with the Python values with which the loop began, those apart that the
        iteration does not use.
        """
        self.inner: dict[int, list[SampledLoop]] = {}
        """The runs of sampled loops directly inside of each traced iteration, by position."""
        self.now: int | None = None
        """The running iteration; None before the first iteration and after the last one."""
        self.pieces = [range(count)]
        self.period: int = 1
        """Distance between iterations that are alike because the index has the same remainders there; 1 if all
        iterations are alike.
        """
        self._cuts: list[int] = []
        """The iterations before which further pieces of the loop begin, in order."""
        self._in_full = False
        self._skipped = False
        """True if an iteration of the running piece was not traced."""
        if self.only_last and earlier is not None:
            self.carries = earlier.carries
            self._cuts = [piece.start for piece in earlier.pieces[1:]]
            self.pieces = [range(self._end_of(0))]

    @property
    def advances_evenly(self) -> bool:
        """Tell whether this run shows how index expressions advance in a run that repeats it."""
        return not (self.carries or self._in_full)

    def repeated(self, count: int, site: Site) -> SampledLoop | None:
        """Return the run that a loop of ``count`` iterations at ``site``, which begins in the running iteration, repeats;
        None if no earlier run is known.
        """
        now, begin = self._running, self.piece.start + (self._running - self.piece.start) % self.period
        earlier = self.inner.get(begin) if self.is_repeated and begin != now else None
        loop = self.earlier
        while earlier is None and loop is not None:
            earlier, loop = loop.inner.get(now), loop.earlier
        number = len(self.inner.get(now, ()))
        if earlier is None or number >= len(earlier) or (earlier[number].count, earlier[number].site) != (count, site):
            return None
        return earlier[number]

    @property
    def piece(self) -> range:
        """Return the piece of the loop that contains the running iteration, as a range of iterations."""
        return self.pieces[-1]

    @property
    def is_sampled(self) -> bool:
        """Tell whether traced iterations of the running piece stand for iterations that are not traced. A short piece
        is traced in full.
        """
        return len(self.piece) >= least(self.period)

    @property
    def is_repeated(self) -> bool:
        """Tell whether an earlier iteration of the running piece began with the same Python values as this iteration.

        The loops inside then repeat what they did in the earlier iteration. The answer is True from the third
        iteration on; if iterations alternate with a period of ``p``, after the first ``p + 1`` iterations. If the
        iterations carry no values, it is True one iteration earlier.
        """
        return self.now is not None and self.is_sampled and self.now >= self.piece.start + self.period + self.carries

    @property
    def is_last(self) -> bool:
        """Tell whether the running iteration is one of the last iterations of its piece, from which on no iteration is
        left out.
        """
        return self._running >= self.piece.start + _last(len(self.piece), self.period)

    def following(self) -> int | None:
        """Return the next iteration to run; None after the last."""
        before, piece = self.now, self.piece
        if before is None or before == piece[-1]:
            if before is not None:
                if piece.stop == self.count:
                    return None
                piece = range(piece.stop, self._end_of(piece.stop))
                self.pieces.append(piece)
            self._skipped, before = False, piece.start - 1
        positions = self.samples.positions(len(piece), self.period, carries=self.carries)
        if self.only_last and self.is_sampled:
            positions = positions[-1:]
        after = next(p for p in positions if piece.start + p > before) + piece.start
        self._skipped = self._skipped or after > before + 1
        return after

    def _end_of(self, begin: int) -> int:
        at = bisect_right(self._cuts, begin)
        return begin + 1 if self._in_full else self._cuts[at] if at < len(self._cuts) else self.count

    def cut(self, before: set[int]) -> None:
        """Cut the running piece before each iteration in ``before``. Raise Retrace if iterations of the piece
        were already left out.
        """
        if before:
            self._refuse_late()
            self._cuts = sorted({*self._cuts, *before})
            self._divide(max((cut for cut in before if cut <= self._running), default=self.piece.start))

    def takes_turns(self, period: int) -> bool:
        """Tell whether traced iterations can stand for the others if every ``period``-th iteration is alike. If they
        can, the iterations to trace are chosen for that period.
        """
        every = lcm(self.period, period)
        if every != self.period:
            if every > MOST_TURNS or len(self.piece) < least(every) or self._in_full or self._skipped:
                return False
            self.period = every
        return True

    def run_in_full(self) -> None:
        """Trace every iteration from the running one on. Raise Retrace if iterations of the piece were already
        left out.
        """
        if not self._in_full:
            self._refuse_late()
            self._in_full = True
            self._divide(self._running)

    def _divide(self, begin: int) -> None:
        before = self.pieces.pop()
        if begin > before.start:
            self.pieces.append(range(before.start, begin))
        self.pieces.append(range(begin, min(before.stop, self._end_of(self._running))))

    def _refuse_late(self) -> None:
        """Raise Retrace if iterations of the running piece were already left out, because it is then too late
        to change the piece.
        """
        if self._skipped:
            raise Retrace(unroll=frozenset({self.site}))

    @property
    def _running(self) -> int:
        assert self.now is not None
        return self.now


def _bounds(const: int, terms: list[Term]) -> tuple[int, int]:
    """Return the least and the greatest value of an index. Each loop of the index runs over its piece: the
    iterations that are sampled now.
    """
    low = high = const
    for loop, _, factor in terms:
        ends = factor * loop.piece.start, factor * loop.piece[-1]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _settled(value: int, terms: tuple[Term, ...], decided: Callable[[int, int], object]) -> None:
    """Cut loops, outermost first, until ``decided`` gives the same answer for all values that an index has in the
    present pieces.

    ``decided`` gets the least and the greatest value of the index. It returns the answer, or None if the answer is not
    the same for all values between the two.
    """
    _check_running(terms)
    left = sorted(terms, key=lambda term: term[0].depth)
    const = value - sum(factor * now for _, now, factor in terms)
    while left and decided(*_bounds(const, left)) is None:
        loop, now, factor = left.pop(0)
        piece, cuts, before = loop.piece, set[int](), object()
        for place in piece:
            answer = decided(*_bounds(const + factor * place, left))
            if place > piece.start and (answer is None or answer != before):
                cuts.add(place)
            before = answer
        loop.cut(cuts)
        const += factor * now


def _check_running(terms: tuple[Term, ...]) -> None:
    """Raise Retrace to unroll each loop whose index is used after the iteration that it comes from has ended."""
    late = frozenset(loop.site for loop, now, _ in terms if loop.now != now)
    if late:
        raise Retrace(unroll=late)


def _made(value: int, terms: tuple[Term, ...]) -> SampledIndex | int:
    return SampledIndex(value, terms) if terms else value


def _number(value: object) -> Any:
    return value.__index__() if isinstance(value, SampledIndex) else value


def _plain(function: Callable[..., object]) -> Any:
    """Return a method that applies ``function`` to the index as a plain number. Using this method makes the loops of
    the index run all their iterations.
    """

    def operated(self: SampledIndex, *others: object) -> object:
        return function(self.__index__(), *map(_number, others))

    return operated


def _turned(function: Callable[..., object]) -> Any:
    """Return a reflected method such as ``__radd__``, which applies ``function`` with the index as the right operand.
    :func:`_plain` returns the method for the left operand.
    """

    def operated(self: SampledIndex, other: object) -> object:
        return function(_number(other), self.__index__())

    return operated


def _comparison(function: Callable[[Any, Any], bool]) -> Any:
    """Return a method that compares an index by ``function``. It cuts the loops of the index where the answer changes."""
    equality = function in (operator.eq, operator.ne)

    def decided(low: int, high: int) -> bool | None:
        if equality and low <= 0 <= high and low < high:
            return None
        first, last = function(low, 0), function(high, 0)
        return first if first == last else None

    def compared(self: SampledIndex, other: object) -> bool:
        if not isinstance(other, int | SampledIndex):
            return function(self.__index__(), other)
        difference = self - other
        if isinstance(difference, SampledIndex):
            _settled(difference.base.const, difference.terms, decided)
            return function(difference.base.const, 0)
        return function(difference, 0)

    return compared


class SampledIndex(Expr):
    """The index of a sampled iteration, or a sum or product of such indices and numbers."""

    __slots__ = ("terms",)

    terms: tuple[Term, ...]

    def __init__(self, value: int, terms: tuple[Term, ...]) -> None:
        super().__init__(Affine(value))
        object.__setattr__(self, "terms", terms)

    def __copy__(self) -> SampledIndex:
        return self

    def __deepcopy__(self, memo: object) -> SampledIndex:
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return the index as an array of one number. This makes the loops of the index run all their iterations."""
        return np.array(self.__index__(), dtype=dtype)

    def _sum(self, other: object, sign: int) -> Any:
        """Return the index plus ``sign`` times ``other``."""
        if isinstance(other, SampledIndex):
            factors = {(loop, now): factor for loop, now, factor in self.terms}
            for loop, now, factor in other.terms:
                factors[loop, now] = factors.get((loop, now), 0) + sign * factor
            terms = tuple((*key, factor) for key, factor in factors.items() if factor)
            return _made(self.base.const + sign * other.base.const, terms)
        if isinstance(other, int):
            return SampledIndex(self.base.const + sign * other, self.terms)
        return None

    def __add__(self, other: object) -> Any:
        found = self._sum(other, 1)
        return self.__index__() + _number(other) if found is None else found

    def __radd__(self, other: object) -> Any:
        found = self._sum(other, 1)
        return _number(other) + self.__index__() if found is None else found

    def __sub__(self, other: object) -> Any:
        found = self._sum(other, -1)
        return self.__index__() - _number(other) if found is None else found

    def __rsub__(self, other: object) -> Any:
        return (-self)._sum(other, 1) if isinstance(other, int) else _number(other) - self.__index__()

    def __mul__(self, other: object) -> Any:
        return self.scale(other) if isinstance(other, int) else self.__index__() * _number(other)

    def __rmul__(self, other: object) -> Any:
        return self.scale(other) if isinstance(other, int) else _number(other) * self.__index__()

    def __neg__(self) -> Any:
        return self.scale(-1)

    def scale(self, factor: int) -> Any:
        """Return the index times ``factor``."""
        return _made(
            self.base.const * factor, tuple((loop, now, one * factor) for loop, now, one in self.terms if factor)
        )

    def __divmod__(self, other: object) -> Any:
        """Return the quotient and the remainder of a division by ``other``. Each loop of the index is divided
        into pieces at the iterations where the quotient does not advance by an equal step.
        """
        if not isinstance(other, int) or other <= 0:
            return divmod(self.__index__(), _number(other))
        by = int(other)
        whole = tuple((loop, now, _whole(factor, by)) for loop, now, factor in self.terms)
        left = tuple(
            (loop, now, factor - by * times)
            for (loop, now, factor), (_, _, times) in zip(self.terms, whole, strict=True)
        )
        left = tuple(term for term in left if term[2])
        advanced = sum(times * now for _, now, times in whole)
        _settled(
            self.base.const - by * advanced, left, lambda low, high: low // by if low // by == high // by else None
        )
        quotient, remainder = divmod(self.base.const, by)
        return _made(quotient, tuple(term for term in whole if term[2])), _made(remainder, left)

    def __floordiv__(self, other: object) -> Any:
        if isinstance(other, int) and other > 0:
            return self.__divmod__(other)[0]
        return self.__index__() // _number(other)

    def __mod__(self, other: object) -> Any:
        if isinstance(other, int) and other > 0:
            left = [(loop, now, factor % other) for loop, now, factor in self.terms if factor % other]
            if len(left) == 1:
                (loop, now, factor) = left[0]
                if loop.now == now and loop.takes_turns(other // gcd(factor, other)):
                    return self.base.const % int(other)
            return self.__divmod__(other)[1]
        return self.__index__() % _number(other)

    def __index__(self) -> int:
        """Return the index as a number. This makes the loops of the index run all their iterations."""
        _check_running(self.terms)
        for loop, _, _ in self.terms:
            loop.run_in_full()
        return self.base.const

    __int__ = __index__
    __trunc__ = __index__

    def __bool__(self) -> bool:
        return bool(self != 0)

    __lt__: Any = _comparison(operator.lt)
    __le__: Any = _comparison(operator.le)
    __gt__: Any = _comparison(operator.gt)
    __ge__: Any = _comparison(operator.ge)
    __eq__: Any = _comparison(operator.eq)
    __ne__: Any = _comparison(operator.ne)
    __truediv__: Any = _plain(operator.truediv)
    __rtruediv__: Any = _turned(operator.truediv)
    __rfloordiv__: Any = _turned(operator.floordiv)
    __rmod__: Any = _turned(operator.mod)
    __rdivmod__: Any = _turned(divmod)
    __pow__: Any = _plain(pow)
    __rpow__: Any = _turned(pow)
    __and__: Any = _plain(operator.and_)
    __rand__: Any = _turned(operator.and_)
    __or__: Any = _plain(operator.or_)
    __ror__: Any = _turned(operator.or_)
    __xor__: Any = _plain(operator.xor)
    __rxor__: Any = _turned(operator.xor)
    __lshift__: Any = _plain(operator.lshift)
    __rlshift__: Any = _turned(operator.lshift)
    __rshift__: Any = _plain(operator.rshift)
    __rrshift__: Any = _turned(operator.rshift)
    __invert__: Any = _plain(operator.invert)
    __float__: Any = _plain(float)
    __round__: Any = _plain(round)
    __abs__: Any = _plain(abs)
    __hash__: Any = _plain(hash)
    __getitem__: Any = _plain(operator.getitem)
    __str__: Any = _plain(str)
    __repr__: Any = _plain(repr)
    __format__: Any = _plain(format)


def as_python(value: object, number: bool = False) -> object:
    """Return the plain integer that ``isinstance`` and similar functions of Python get in place of a loop's index.

    With ``number`` the integer is the index itself, which makes the loops of the index run all their iterations.
    Otherwise the integer is 0. Any other value is returned unchanged.
    """
    if isinstance(value, SampledIndex):
        return value.__index__() if number else 0
    return value


def _whole(factor: int, by: int) -> int:
    """Return ``factor / by`` as an integer, rounded towards zero."""
    return factor // by if factor >= 0 else -(-factor // by)
