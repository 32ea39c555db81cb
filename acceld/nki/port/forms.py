"""Represent integer expressions of a kernel's source as linear sums, and index grids as a linear sum plus strided
positions along the tile's axes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from acceld.parsing import parse_expression


@dataclass(frozen=True)
class Linear:
    """The sum ``const + sum(coefficient * expression)``. Two expressions count as equal if their texts are
    equal.
    """

    const: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, node: ast.expr) -> Linear:
        """Return an integer expression as a linear sum. A part that is not a sum becomes a single term."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return cls(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return cls.of(node.operand).scaled(-1)
        if isinstance(node, ast.BinOp):
            left, right = cls.of(node.left), cls.of(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult) and (left.number is not None or right.number is not None):
                return right.scaled(left.const) if left.number is not None else left.scaled(right.const)
        return cls(0, ((ast.unparse(node), 1),))

    @property
    def number(self) -> int | None:
        """Return the sum's value if the sum is a plain number; None if the sum has terms."""
        return None if self.terms else self.const

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for text, coefficient in other.terms:
            terms[text] = terms.get(text, 0) + coefficient
        return Linear(self.const + other.const, tuple((t, c) for t, c in terms.items() if c))

    def __sub__(self, other: Linear) -> Linear:
        return self + other.scaled(-1)

    def scaled(self, factor: int) -> Linear:
        """Return the sum times the number ``factor``."""
        return Linear(self.const * factor, tuple((t, c * factor) for t, c in self.terms) if factor else ())

    def times(self, other: Linear) -> Linear:
        """Return the product of this sum and ``other``. If neither is a number, the product is one opaque term."""
        if other.number is not None:
            return self.scaled(other.number)
        if self.number is not None:
            return other.scaled(self.number)
        return Linear.of(ast.BinOp(self.node, ast.Mult(), other.node))

    @property
    def node(self) -> ast.expr:
        """Return the sum as an expression of Python: positive terms first, the number last."""
        made: ast.expr | None = None
        for text, coefficient in sorted(self.terms, key=lambda one: one[1] < 0):
            part: ast.expr = parse_expression(text)
            if abs(coefficient) != 1:
                part = ast.BinOp(ast.Constant(abs(coefficient)), ast.Mult(), part)
            if made is None and coefficient < 0 and self.const > 0:
                made = ast.Constant(self.const)
            if made is None:
                made = part if coefficient > 0 else ast.UnaryOp(ast.USub(), part)
            else:
                made = ast.BinOp(made, ast.Add() if coefficient > 0 else ast.Sub(), part)
        first = next(iter(sorted(self.terms, key=lambda one: one[1] < 0)), None)
        if first is not None and first[1] < 0 and self.const > 0:
            return made or ast.Constant(self.const)
        if made is None:
            return ast.Constant(self.const)
        if self.const:
            sign: ast.operator = ast.Add() if self.const > 0 else ast.Sub()
            made = ast.BinOp(made, sign, ast.Constant(abs(self.const)))
        return made


@dataclass(frozen=True)
class Atom:
    """The positions ``0 <= k < size`` along one axis of a tile, where position k adds ``k * stride`` to the index.

    Axes are counted from the tile's last axis, which is number 1.
    """

    axis: int
    size: Linear
    stride: Linear


@dataclass(frozen=True)
class Grid:
    """An index grid: ``base + sum(stride * position)`` over the axes of a tile with ``rank`` axes."""

    base: Linear
    atoms: tuple[Atom, ...] = ()
    rank: int = 0

    def __add__(self, other: Grid) -> Grid:
        atoms = {atom.axis: atom for atom in self.atoms}
        for atom in other.atoms:
            known = atoms.get(atom.axis)
            if known is not None:
                size = known.size if known.size.number != 1 else atom.size
                atom = Atom(atom.axis, size, known.stride + atom.stride)
            atoms[atom.axis] = atom
        return Grid(self.base + other.base, tuple(atoms.values()), max(self.rank, other.rank))

    def __sub__(self, other: Grid) -> Grid:
        return self + other.times(Linear(-1))

    def times(self, factor: Linear) -> Grid:
        """Return the grid multiplied by ``factor``."""
        atoms = tuple(Atom(a.axis, a.size, a.stride.times(factor)) for a in self.atoms)
        return Grid(self.base.times(factor), atoms, self.rank)

    def placed(self, axes: Iterable[int], rank: int) -> Grid:
        """Return the grid with its axes moved to the positions ``axes`` of a tile with ``rank`` axes.

        Positions are counted from the last axis, which is 1.
        """
        order = list(axes)
        atoms = tuple(Atom(order[self.rank - a.axis], a.size, a.stride) for a in self.atoms)
        return Grid(self.base, atoms, rank)
