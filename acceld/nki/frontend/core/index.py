"""Compute with index expressions and masks.

An index expression is an integer affine in loop variables and in positions within a tile. For example,
``nl.arange(128)[:, None] * 4 + i`` is one :class:`Expr`. Its base is affine in the loop variables; for each axis of the
tile it has a count and a coefficient.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any, cast

import numpy as np

from acceld.nki.frontend.core.context import Retrace, current, refuse
from acceld.nki.frontend.session import Site
from acceld.nki.ir.program import Affine, Pattern

MAX_CUTS = 16
"""Greatest number of pieces into which a loop is cut. A loop that needs more pieces is unrolled."""
NEGATED = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "eq": operator.eq,
    "ne": operator.ne,
}


def as_int(value: object) -> int | None:
    """Return ``value`` as a Python integer; None if it is not a single known integer, such as a fraction, a tile or an
    expression that varies.
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Expr):
        return value.base.const if value.is_constant else None
    if hasattr(value, "__index__"):
        return operator.index(cast("Any", value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which index expressions of these shapes broadcast, as in numpy. Raise LegalityError
    if they do not broadcast.
    """
    if len(set(shapes)) == 1:
        return shapes[0]
    rank = max((len(shape) for shape in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for axis, count in enumerate(shape, start=rank - len(shape)):
            if count != 1 and out[axis] not in (1, count):
                refuse(
                    "index_shape",
                    f"index expressions of shapes {', '.join(map(str, shapes))} can not be combined",
                    "give each nl.arange an axis of its own: nl.arange(n)[:, None] and nl.arange(m)[None, :]",
                )
            out[axis] = max(out[axis], count) if count else 0
    return tuple(out)


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """The integers ``base + sum(coefs[k] * i_k)`` for all positions ``0 <= i_k < shape[k]``.

    If ``shape`` is empty, the expression is a scalar.
    """

    base: Affine
    shape: tuple[int, ...] = ()
    coefs: tuple[int, ...] = ()

    __array_ufunc__ = None
    __hash__ = object.__hash__

    @property
    def is_constant(self) -> bool:
        """Tell whether the expression is a single number that is known while tracing."""
        return not self.base.terms and not any(self.coefs)

    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest value over all iterations and positions."""
        low, high = self.base.bounds(current().trips) if self.base.terms else (self.base.const, self.base.const)
        for count, coef in zip(self.shape, self.coefs, strict=True):
            reach = coef * (count - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    def over(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the expression's coefficients along the axes of ``shape``. The expression must broadcast to
        that shape.
        """
        return (0,) * (len(shape) - len(self.coefs)) + self.coefs

    def __add__(self, other: object) -> Expr:
        if isinstance(other, Expr):
            shape = broadcast(self.shape, other.shape)
            coefs = tuple(a + b for a, b in zip(self.over(shape), other.over(shape), strict=True))
            return Expr(self.base + other.base, shape, coefs)
        number = as_int(other)
        if number is None:
            return NotImplemented
        return Expr(self.base + number, self.shape, self.coefs)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return self.scale(-1)

    def __pos__(self) -> Expr:
        return self

    def __sub__(self, other: object) -> Expr:
        if isinstance(other, Expr):
            return self + -other
        number = as_int(other)
        return NotImplemented if number is None else self + -number

    def __rsub__(self, other: object) -> Expr:
        return -self + other

    def scale(self, factor: int) -> Expr:
        """Return the expression times ``factor``."""
        return Expr(self.base.scale(factor), self.shape, tuple(coef * factor for coef in self.coefs))

    def __mul__(self, other: object) -> Expr:
        number = as_int(other)
        if number is not None:
            return self.scale(number)
        if isinstance(other, Expr):
            if self.is_constant:
                return other.scale(self.base.const)
            self.refuse_or_unroll(other, "the product of two index expressions is not affine")
        return NotImplemented

    __rmul__ = __mul__

    def refuse_or_unroll(self, other: Expr | None, why: str) -> None:
        """Raise Retrace to unroll loops, after which an operation on this expression and ``other`` gives an affine
        result.

        Raise LegalityError with the message ``why`` if unrolling does not help, because positions of a tile are
        involved.
        """
        loops = {loop for loop, _ in self.base.terms}
        if other is not None and not other.base.terms and any(other.coefs):
            loops = loops if not any(self.coefs) else set()
        elif other is not None and any(self.coefs) and not any(other.coefs):
            loops = {loop for loop, _ in other.base.terms}
        elif any(self.coefs):
            loops = set()
        if not loops:
            refuse("non_affine_index", why, "write the index with sums and constant factors")
        raise Retrace(unroll=frozenset(current().loop_key(loop) for loop in loops))

    def split(self, divisor: int) -> tuple[Expr, Expr] | None:
        """Return the quotient and the remainder of a division by ``divisor``; None unless both are affine."""
        low_terms = {loop: coef % divisor for loop, coef in self.base.terms}
        quotient = Expr(
            Affine(self.base.const // divisor, tuple((i, c // divisor) for i, c in self.base.terms if c // divisor)),
            self.shape,
            tuple(coef // divisor for coef in self.coefs),
        )
        remainder = Expr(
            Affine(self.base.const % divisor, tuple((i, c) for i, c in low_terms.items() if c)),
            self.shape,
            tuple(coef % divisor for coef in self.coefs),
        )
        low, high = remainder.bounds()
        return (quotient, remainder) if low >= 0 and high < divisor else None

    def _split_loop(self, divisor: int) -> None:
        """Raise Retrace to split a loop in two, if that makes quotient and remainder by ``divisor`` affine;
        else do nothing.

        With ``i = f*a + b`` for ``f = divisor / gcd(coef, divisor)``, ``coef*f*a`` is a multiple of the
        divisor.
        """
        trace = current()
        terms = [(loop, coef) for loop, coef in self.base.terms if coef % divisor]
        if trace.splits is None or len(terms) != 1 or divisor <= 0 or any(coef % divisor for coef in self.coefs):
            return
        loop, coef = terms[0]
        inner, trips, site = divisor // gcd(coef, divisor), trace.trips[loop], trace.loop_key(loop)
        fits = 0 <= coef * (inner - 1) + self.base.const % divisor < divisor
        if (
            loop not in trace.spmd_loops
            and site not in trace.splits
            and 1 < inner < trips
            and not trips % inner
            and fits
        ):
            raise Retrace(split=(site, inner))

    def _divide(self, other: object, word: str, part: int) -> Any:
        """Return the quotient (``part`` 0) or the remainder (``part`` 1) of a division by ``other``. ``word``
        names the operation in messages.
        """
        number = as_int(other)
        if number is None:
            return NotImplemented
        if number == 0:
            raise ZeroDivisionError("division by zero in an index expression")
        pieces = self.split(number) if number > 0 else None
        if pieces is None:
            self._split_loop(number)
            self.refuse_or_unroll(None, f"{word} of an index expression over nl.arange is not affine")
        assert pieces is not None
        return pieces[part]

    def __floordiv__(self, other: object) -> Any:
        return self._divide(other, "the quotient", 0)

    def __mod__(self, other: object) -> Any:
        return self._divide(other, "the remainder", 1)

    def __truediv__(self, other: object) -> Any:
        number = as_int(other)
        if number and not any(c % number for c in (self.base.const, *self.coefs, *(c for _, c in self.base.terms))):
            return self._divide(number, "the quotient", 0)
        refuse("non_affine_index", "an index expression can not be divided with /, which gives fractions", "use //")

    def __getitem__(self, key: object) -> Expr:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at, named = keys.index(Ellipsis), sum(k is not None and k is not Ellipsis for k in keys)
            keys[at : at + 1] = [slice(None)] * (len(self.shape) - named)
        base, shape, coefs, axis = self.base, list[int](), list[int](), 0
        for one in keys:
            if one is None:
                shape, coefs = [*shape, 1], [*coefs, 0]
                continue
            if axis >= len(self.shape):
                raise IndexError(
                    f"an index expression has {len(self.shape)} axes and got more indices: give one for each axis"
                )
            count, coef = self.shape[axis], self.coefs[axis]
            axis += 1
            if isinstance(one, slice):
                start, stop, step = one.indices(count)
                size = len(range(start, stop, step))
                base, shape, coefs = base + coef * start, [*shape, size], [*coefs, coef * step]
            else:
                base = base + coef * range(count)[operator.index(cast("Any", one))]
        return Expr(base, (*shape, *self.shape[axis:]), (*coefs, *self.coefs[axis:]))

    def _compare(self, other: object, cmp: str) -> Any:
        """Return the comparison of this expression with ``other``, as a Predicate."""
        difference = self - other if isinstance(other, Expr) or as_int(other) is not None else None
        if difference is None:
            if isinstance(other, float):  # round the bound of an integer comparison: i < 2.5 means i <= 2
                floor = int(other // 1)
                exact = {"lt": ("le", floor), "le": ("le", floor), "gt": ("gt", floor), "ge": ("gt", floor)}
                return self._compare(exact[cmp][1], exact[cmp][0])
            return NotImplemented
        return Predicate(((difference, cmp),))

    def __lt__(self, other: object) -> Any:
        return self._compare(other, "lt")

    def __le__(self, other: object) -> Any:
        return self._compare(other, "le")

    def __gt__(self, other: object) -> Any:
        return self._compare(other, "gt")

    def __ge__(self, other: object) -> Any:
        return self._compare(other, "ge")

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "eq")

    def __ne__(self, other: object) -> Any:
        return self._compare(other, "ne")

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        if self.is_constant and not self.shape:
            return self.base.const
        loops = frozenset(loop for loop, _ in self.base.terms)
        spmd = loops & current().spmd_loops
        if spmd and not self.shape:
            raise Retrace(unroll=frozenset(current().loop_key(loop) for loop in loops))
        names = ", ".join(current().loop_name(loop) for loop in sorted(loops)) or "nl.arange"
        refuse(
            "symbolic_index",
            f"a plain number is needed here, but this depends on {names}, which has no single value while tracing",
            "loop with nl.static_range or range where Python needs the value",
        )

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __repr__(self) -> str:
        parts = [f"{coef}*{current().loop_name(loop)}" for loop, coef in self.base.terms]
        parts += [f"{coef}*arange({n})" for n, coef in zip(self.shape, self.coefs, strict=True) if coef]
        return " + ".join([*parts, str(self.base.const)]) if parts else str(self.base.const)


def value_of(value: object) -> int:
    """Return ``value`` as a number. If ``value`` depends on loop variables, raise Retrace to unroll their loops."""
    if isinstance(value, Expr) and not value.shape and value.base.terms:
        raise Retrace(unroll=frozenset(current().loop_key(loop) for loop, _ in value.base.terms))
    return operator.index(cast("Any", value))


def loop_index(loop: int) -> Expr:
    """Return the variable of a loop as an index expression."""
    return Expr(Affine(0, ((loop, 1),)))


@dataclass(frozen=True, slots=True)
class Predicate:
    """A conjunction of comparisons of index expressions with zero: a mask, or a condition of Python's ``if``."""

    terms: tuple[tuple[Expr, str], ...]

    __array_ufunc__ = None

    def __and__(self, other: object) -> Predicate:
        if isinstance(other, Predicate):
            return Predicate(self.terms + other.terms)
        if other is True or other is None:
            return self
        return NotImplemented

    __rand__ = __and__

    def __or__(self, other: object) -> Predicate:
        refuse(
            "mask_form",
            "masks can not be joined with |, only with &",
            "call the instruction once for each alternative",
        )

    __ror__ = __or__

    def __invert__(self) -> Predicate:
        if len(self.terms) != 1:
            refuse("mask_form", "~ is not defined for several comparisons", "negate each comparison by itself")
        expr, cmp = self.terms[0]
        return Predicate(((expr, NEGATED[cmp]),))

    def __bool__(self) -> bool:
        unknown: set[int] = set()
        for expr, cmp in self.terms:
            known = _decide(expr, cmp)
            if known is False:
                return False
            if known is None:
                if any(expr.coefs):
                    refuse(
                        "control_flow",
                        "control flow depending on nl.arange or nl.mgrid is not supported",
                        "pass the condition as mask= of the instructions",
                    )
                unknown |= {loop for loop, _ in expr.base.terms}
        if unknown:
            self._cut_loops()
            raise Retrace(unroll=frozenset(current().loop_key(loop) for loop in unknown))
        return True

    @property
    def holds_everywhere(self) -> bool:
        """Tell whether the conditions hold in all iterations and at all positions."""
        return all(_decide(expr, cmp) is True for expr, cmp in self.terms)

    def _cut_loops(self) -> None:
        """Raise Retrace to cut loops before the iterations in which an undecided comparison changes its truth
        value.

        Do nothing if a comparison depends on several loops or changes too often.
        """
        trace = current()
        if trace.cuts is None:
            return
        points: dict[Site, frozenset[int]] = {}
        for expr, cmp in self.terms:
            if _decide(expr, cmp) is not None:
                continue
            if len(expr.base.terms) != 1:
                return
            loop, coef = expr.base.terms[0]
            site = trace.loop_key(loop)
            changes = {
                t + trace.offsets.get(loop, 0)
                for t in _changes(coef, expr.base.const, cmp)
                if 0 < t < trace.trips[loop]
            }
            if loop in trace.spmd_loops or site in (trace.splits or {}) or not changes:
                return
            points[site] = points.get(site, frozenset()) | trace.cuts.get(site, frozenset()) | changes
            if len(points[site]) > MAX_CUTS:
                return
        raise Retrace(cut=points)

    def patterns(self, shape: tuple[int, ...], axes: tuple[int, ...] | None = None) -> tuple[Pattern, ...]:
        """Return the mask as patterns over the axes of ``shape``.

        The mask's axes are the last ones of ``shape``, as in broadcasting, or the first ones if only those fit.
        ``axes``, if given, has for each axis of the mask the number of the axis of ``shape``. Raise LegalityError
        if the mask does not fit.
        """
        out = []
        for expr, cmp in self.terms:
            for value in _as_not_negative(expr, cmp):
                if value.bounds()[0] < 0:
                    out += [Pattern(value.base, _align(value, shape, axes))]
        return tuple(out)


def _align(value: Expr, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the coefficients of ``value`` along the axes of ``shape``. Raise LegalityError if the axes of
    ``value`` do not fit.
    """
    lead = len(shape) - len(value.shape)
    used = [k for k, coef in enumerate(value.coefs) if coef]
    choices = [dict(enumerate(axes))] if axes is not None else [{k: k + lead for k in used}, {k: k for k in used}]
    for places in choices:
        if all(0 <= places.get(k, -1) < len(shape) and shape[places[k]] == value.shape[k] for k in used):
            coefs = [0] * len(shape)
            for k in used:
                coefs[places[k]] += value.coefs[k]
            return tuple(coefs)
    refuse(
        "mask_shape",
        f"a mask of shape {value.shape} does not fit a tile of shape {shape}",
        "build the mask from the index expressions of the tile",
    )


def _as_not_negative(expr: Expr, cmp: str) -> list[Expr]:
    """Return expressions that are all >= 0 if and only if ``expr cmp 0`` holds. Raise LegalityError for ``ne``."""
    match cmp:
        case "ge":
            return [expr]
        case "gt":
            return [expr + -1]
        case "le":
            return [-expr]
        case "lt":
            return [-expr + -1]
        case "eq":
            return [expr, -expr]
    refuse("mask_form", "!= can not be used in a mask", "call the instruction twice, with < and with >")


def _changes(coef: int, const: int, cmp: str) -> set[int]:
    """Return the iterations ``t`` at which the comparison ``coef*t + const cmp 0`` has another result than in iteration
    ``t - 1``.
    """
    if cmp in ("eq", "ne"):
        return {-const // coef, -const // coef + 1} if const % coef == 0 else set()
    # for coef > 0: the least t with coef*t + const >= 0, and the least t with coef*t + const > 0
    ceiling, after = -(const // coef), -const // coef + 1
    reached = cmp in ("ge", "lt")
    return {ceiling if reached == (coef > 0) else after}


def _decide(expr: Expr, cmp: str) -> bool | None:
    """Return True if ``expr cmp 0`` holds in all iterations and positions, False if it holds in none, None otherwise."""
    low, high = expr.bounds()
    match cmp:
        case "ge" | "lt":
            answer = True if low >= 0 else False if high < 0 else None
        case "gt" | "le":
            answer = True if low > 0 else False if high <= 0 else None
        case _:
            answer = True if low == high == 0 else False if low > 0 or high < 0 else None
    return answer if answer is None or cmp in ("ge", "gt", "eq") else not answer


@dataclass(frozen=True, slots=True)
class DynamicSlice:
    """The slice ``nl.ds(start, size)``: ``size`` elements from ``start`` on."""

    start: object
    size: int


def ds(start: object, size: object) -> DynamicSlice:
    """Return an index for ``size`` elements from ``start`` on: ``nl.ds``. ``start`` may depend on loop variables."""
    return DynamicSlice(start, operator.index(cast("Any", size)))


def as_number(value: object) -> int | float | None:
    """Return ``value`` as a Python number for an immediate operand; None if it is not a number."""
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else value
    if isinstance(value, np.ndarray | np.generic) and value.size == 1:
        number = value.item()
        return number if isinstance(number, int | float) else None
    if isinstance(value, Expr) and value.is_constant:
        return value.base.const
    if isinstance(value, np.generic):
        return float(value)
    return None
