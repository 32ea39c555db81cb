"""Compute with affine forms: integer linear combinations of loop variables and index ranges.

The indices of tiles and arrays in a kernel's source are such forms.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """One symbol of an affine form: a loop variable, or an index range ``nl.arange(extent)`` along axis ``axis`` of a
    tile with ``axes`` axes.

    A quotient or a remainder of a loop variable is a symbol too; its ``variable`` is that loop variable.
    """

    name: str
    variable: str = ""
    """The loop variable that the symbol depends on; empty for an index range."""
    extent: int = 0
    axis: int = 0
    axes: int = 0
    most: int | None = field(default=None, compare=False)
    """Greatest value, if it is known."""

    @staticmethod
    def over(extent: int, axis: int, axes: int) -> Symbol:
        """Return the symbol of the index range ``nl.arange(extent)`` along axis ``axis`` of a tile with
        ``axes`` axes.
        """
        return Symbol(f"arange{extent}.{axis}.{axes}", "", extent, axis, axes)

    @property
    def in_columns(self) -> bool:
        """Tell whether the symbol is an index range along the tile's last axis."""
        return self.is_range and self.axis == self.axes - 1

    @property
    def is_range(self) -> bool:
        """Tell whether the symbol is an index range, which runs over an axis of a tile."""
        return not self.variable


@dataclass(frozen=True, slots=True)
class Affine:
    """The form ``constant + sum(coefficient * symbol)``. Symbols with the coefficient 0 are left out."""

    constant: int = 0
    terms: tuple[tuple[Symbol, int], ...] = field(default=())

    @staticmethod
    def of(symbol: Symbol) -> Affine:
        """Return the form that consists of ``symbol`` alone."""
        return Affine(0, ((symbol, 1),))

    @staticmethod
    def of_variable(name: str) -> Affine:
        """Return the form that consists of the loop variable ``name`` alone."""
        return Affine.of(Symbol(name, name))

    def __add__(self, other: Affine) -> Affine:
        sums = dict(self.terms)
        for symbol, coefficient in other.terms:
            sums[symbol] = sums.get(symbol, 0) + coefficient
        return Affine(self.constant + other.constant, tuple(sorted((s, c) for s, c in sums.items() if c)))

    def __sub__(self, other: Affine) -> Affine:
        return self + other.times(-1)

    def times(self, factor: int) -> Affine:
        """Return the form multiplied by ``factor``."""
        return Affine(self.constant * factor, tuple((s, c * factor) for s, c in self.terms) if factor else ())

    def product(self, other: Affine) -> Affine | None:
        """Return the product of two forms; None if neither form is a constant."""
        if other.terms:
            return None if self.terms else other.times(self.constant)
        return self.times(other.constant)

    @property
    def variables(self) -> frozenset[str]:
        """Return the names of the loop variables that the form depends on."""
        return frozenset(symbol.variable for symbol, _ in self.terms if symbol.variable)

    @property
    def ranges(self) -> tuple[Symbol, ...]:
        """Return the index ranges in the form."""
        return tuple(symbol for symbol, _ in self.terms if symbol.is_range)

    @property
    def start(self) -> Affine:
        """Return the form without its index ranges, which is the position where an access begins."""
        return Affine(self.constant, tuple((symbol, factor) for symbol, factor in self.terms if not symbol.is_range))

    def without(self, variables: Collection[str]) -> Affine:
        """Return the terms of the form that contain neither an index range nor one of the loop variables
        ``variables``. The constant is left out.
        """
        kept = ((one, factor) for one, factor in self.terms if one.variable not in variables and not one.is_range)
        return Affine(0, tuple(kept))

    def substituted(self, values: Mapping[str, Affine]) -> Affine:
        """Return the form with each loop variable replaced by its value in ``values``.

        ``values`` must have every loop variable of the form.
        """
        result = Affine(self.constant)
        for symbol, factor in self.terms:
            value = values[symbol.variable] if symbol.variable == symbol.name else Affine.of(symbol)
            result = result + value.times(factor)
        return result

    def coefficient(self, variable: str) -> int | None:
        """Return the coefficient of a loop variable; 0 if the form does not contain the variable.

        The result is None if the variable occurs in a quotient or a remainder.
        """
        found = 0
        for symbol, coefficient in self.terms:
            if symbol.variable == variable:
                if symbol.name != variable:
                    return None
                found = coefficient
        return found
