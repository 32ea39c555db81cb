"""Translate the expressions of a legacy kernel.

Index grids become slices, masks limit these slices, and each computed tile gets a name.
"""

from __future__ import annotations

import ast
import copy
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from acceld.nki.port.blocks import BlockTensor
from acceld.nki.port.calls import COMPARISONS
from acceld.nki.port.facts import Fact, Facts
from acceld.nki.port.forms import Atom, Grid, Linear
from acceld.nki.port.names import Names
from acceld.nki.source.syntax import elements
from acceld.parsing import parse_expression

_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
"""The comparison that gives the same result when its two operands are swapped."""


@dataclass(frozen=True, slots=True)
class Unportable(Exception):
    """Raised for a construct that can not be rewritten, with advice on what to write instead."""

    line: int
    message: str
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Clip:
    """The part of a tile that a mask keeps: by axis, the first kept position (``starts``) and the end (``stops``,
    exclusive).

    ``guards`` are the mask's conditions on loop variables alone. Axes are counted from the last axis, which is 1.
    """

    stops: Mapping[int, ast.expr] = field(default_factory=dict)
    starts: Mapping[int, ast.expr] = field(default_factory=dict)
    guards: tuple[ast.expr, ...] = ()

    @property
    def axes(self) -> frozenset[int]:
        """Return the axes that the mask limits."""
        return frozenset((*self.stops, *self.starts))


def name(text: str) -> ast.Name:
    """Return an expression that reads the variable ``text``."""
    return ast.Name(text, ast.Load())


def shape_node(shape: Iterable[int]) -> ast.Tuple:
    """Return a tuple expression for a shape."""
    return ast.Tuple([ast.Constant(size) for size in shape], ast.Load())


def call(function: str, *args: ast.expr, **kwargs: ast.expr | None) -> ast.Call:
    """Return a call of ``function`` as an expression. Keyword arguments that are None are left out."""
    keywords = [ast.keyword(key, value) for key, value in kwargs.items() if value is not None]
    return ast.Call(parse_expression(function), list(args), keywords)


@dataclass(frozen=True, slots=True)
class Op:
    """An instruction of the new kernel that is not emitted yet.

    ``emit(dst, clip)`` emits the instruction with the destination ``dst``. ``uses`` are the expressions that the
    instruction reads.
    """

    node: ast.expr
    emit: Callable[[ast.expr, Clip], None]
    uses: Sequence[ast.expr]
    mask: ast.expr | None = None
    dtype: ast.expr | None = None
    like: ast.expr | None = None
    """An operand that has the shape of the result."""
    dma: bool = False
    data: ast.expr | None = None
    """The operand whose axes the mask limits, if the result has other axes than that operand. Then only the partitions
    of the result are cropped.
    """


class Values(ABC):
    """Translate the expressions of one function. Statements that must run before an expression are appended to
    ``out``.
    """

    def __init__(self, node: ast.FunctionDef, names: Names, facts: Facts, blocks: Mapping[str, BlockTensor]) -> None:
        self.node, self.names, self.facts, self.blocks = node, names, facts, blocks
        self.grids: dict[str, Grid | tuple[Grid, ...]] = {}
        self.masks: dict[str, ast.expr] = {}
        self.taken = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        self.out: list[ast.stmt] = []
        self.sizes: list[dict[str, str]] = [{}]
        self.made: set[str] = set()
        """Names of the tiles that the translation has declared."""
        self.notes: list[tuple[int, str]] = []
        self.widths: dict[str, int | None] = {}
        """The size of an axis without its mask, by the variable that holds the size under the mask; None if it is not a
        plain number.
        """

    @abstractmethod
    def op(self, node: ast.expr) -> Op | None:
        """Return the instruction that computes an expression; None if the expression computes no tile."""

    @abstractmethod
    def _temporary(self, op: Op) -> ast.expr:
        """Emit the instruction with a new tile as destination, and return the tile."""

    @abstractmethod
    def declaration(self, node: ast.Call, word: str) -> ast.expr:
        """Translate a call that declares a tensor to the current API.

        ``word`` is the name of the called function in ``nl``, such as ``ndarray`` or ``zeros``.
        """

    @abstractmethod
    def _filled(self, node: ast.Call, word: str) -> None:
        """Raise Unportable if a call fills a tensor in a way that can not be translated."""

    def _fresh(self, base: str) -> str:
        number, made = 1, base
        while made in self.taken:
            made, number = f"{base}_{number}", number + 1
        self.taken.add(made)
        return made

    def _hoisted(self, value: ast.expr) -> ast.expr:
        variable = self._fresh("tile")
        self.out.append(ast.Assign([ast.Name(variable, ast.Store())], value))
        return name(variable)

    def _variable(self, node: ast.expr) -> Fact | None:
        """Return the facts about the variable ``node`` at the place where the source reads or assigns the variable.

        Return None if the trace found no facts.
        """
        if not isinstance(node, ast.Name):
            return self.facts.of(node)
        for one in ast.walk(self.node):
            if isinstance(one, ast.Name) and one.id == node.id and isinstance(one.ctx, ast.Load):
                fact = self.facts.of(one)
                if fact is not None and fact.kind == "tile":
                    return fact
        for one in ast.walk(self.node):
            if isinstance(one, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in one.targets):
                return self.facts.of(one.value)
        return None

    def _is_tile(self, node: ast.expr) -> bool:
        fact = self.facts.of(node) or self._variable(node)
        return fact is not None and fact.kind == "tile"

    def _tile_fact(self, target: ast.expr) -> Fact | None:
        """Return the facts about the target of an assignment; None if the facts are unknown.

        The facts are computed from the target's parts, because the trace records only values that are read.
        """
        if isinstance(target, ast.Subscript):
            base = self.facts.of(target.value)
            shape = self._shape_of(target)
            return None if base is None else Fact("tile", shape or (), base.dtype, base.space)
        return self.facts.of(target)

    def _shape_of(self, target: ast.Subscript) -> tuple[int, ...] | None:
        """Return the shape of the part that the subscript ``target`` selects, if all sizes in its index are numbers;
        else None.
        """
        base = self.facts.of(target.value)
        items = elements(target)
        grids = [self.grid(one) for one in items]
        rank = max((grid.rank for grid in grids if grid is not None), default=0)
        if rank:
            sizes = [1] * rank
            for grid in grids:
                for atom in grid.atoms if grid is not None else ():
                    number = atom.size.number
                    if number is None:
                        return None
                    sizes[rank - atom.axis] = max(number, sizes[rank - atom.axis])
            return tuple(sizes)
        if base is None or not base.shape:
            return None
        shape: list[int] = []
        dims = list(base.shape)
        if any(isinstance(one, ast.Constant) and one.value is Ellipsis for one in items):
            return base.shape if len(items) == 1 else None
        for size, one in zip(dims, items, strict=False):
            if isinstance(one, ast.Slice):
                if one.lower is None and one.upper is None:
                    shape.append(size)
                    continue
                low = Linear.of(one.lower) if one.lower is not None else Linear()
                high = Linear.of(one.upper) if one.upper is not None else Linear(size)
                width = (high - low).number
                if width is None:
                    return None
                shape.append(width)
            elif isinstance(one, ast.Call):
                if len(one.args) < 2 or Linear.of(one.args[1]).number is None:
                    return None
                shape.append(Linear.of(one.args[1]).const)
        return (*shape, *dims[len(items) :])

    def _column(self, column: Fact, other: Fact) -> bool:
        """Tell whether ``column`` has one element in each partition and ``other`` has the same partitions with more
        elements. An operation then combines that one element with the whole row.
        """
        if not column.shape or not other.shape:
            return False
        return math.prod(column.shape[1:]) == 1 < math.prod(other.shape[1:]) and column.shape[0] == other.shape[0]

    # values

    def value(self, node: ast.expr, clip: Clip | None = None) -> ast.expr:
        """Translate an expression to the current API. Statements that it needs first, such as instructions that compute
        its tiles, are appended to ``out``.
        """
        clip = clip or Clip()
        fact = self.facts.of(node)
        if fact is not None and fact.kind == "tile":
            if isinstance(node, ast.Subscript) and not self._object(node.value):
                return self.subscript(node, clip)
            op = self.op(node)
            found = self._temporary(op) if op is not None else self._generic(node)
            return self.part(found, fact, clip)
        of_type = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "type"
        if of_type and fact is not None and fact.value is not None and "dtype" in ast.unparse(node):
            return ast.Constant(fact.value)
        return self._generic(node)

    def _object(self, node: ast.expr) -> bool:
        """Tell whether a subscript selects from a list or dict, and not from a tile."""
        fact = self.facts.of(node)
        return fact is None or fact.kind != "tile"

    def _generic(self, node: ast.expr) -> ast.expr:
        """Translate the parts of an expression that no instruction computes, and return the expression."""
        word = self.names.of(node)
        if word:
            return self._named(node, word)
        if isinstance(node, ast.Call):
            found = self._replaced_call(node)
            if found is not None:
                return found
            node = self._without_legacy_options(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr == "shape":
            block = self.blocks.get(node.value.id)
            if block is not None and (block.psum or block.dropped):
                raise Unportable(
                    node.lineno,
                    f"{block.name} has no single shape, because the port makes separate tensors of its blocks",
                    "write the sizes out",
                )
            if block is not None:
                return block.shape
        if isinstance(node, ast.Name) and (node.id in self.grids or node.id in self.masks):
            raise Unportable(
                node.lineno, f"the index grid or mask {node.id} is used outside of an index", "use slices and min()"
            )
        return node if isinstance(node, ast.Constant | ast.Name) else self._with_parts(node)

    def _replaced_call(self, node: ast.Call) -> ast.expr | None:
        """Return the expression that replaces a call whose form differs in the current API; None if the call stays."""
        word = self.names.of(node.func)
        if word in ("nl.par_dim", "nl.nc"):
            return self.value(node.args[0])
        function = word.partition(".")[2]
        if word.startswith("nl.") and function in ("ndarray", "zeros", "full", "ones", "empty_like", "zeros_like"):
            if word in ("nl.zeros", "nl.full", "nl.ones"):
                self._filled(node, function)
            return self.declaration(node, function)
        if word in ("nl.arange", "nl.mgrid"):
            raise Unportable(node.lineno, "an index grid is used outside of an index", "index with slices or nl.ds")
        if not isinstance(node.func, ast.Attribute) or not self._is_tile(node.func.value):
            return None
        tile, method = node.func.value, node.func.attr
        if method == "expand_dims":
            return call(f"{ast.unparse(self.value(tile))}.expand_dim", *map(self.value, node.args))
        if method == "broadcast_to":
            shape = node.args[0] if len(node.args) == 1 else ast.Tuple(list(node.args), ast.Load())
            shape = next((k.value for k in node.keywords if k.arg == "shape"), shape)
            return call("nl.broadcast_to", self.value(tile), shape=self.value(shape))
        return None

    def _without_legacy_options(self, node: ast.Call) -> ast.Call:
        """Return a call without keyword arguments that the current API lacks.

        A call of ``nl.mean`` whose result has one element a partition gets ``keepdims=True``.
        """
        word, kept = self.names.of(node.func), node.keywords
        if word.endswith("_range"):
            kept = [k for k in kept if k.arg in ("start", "stop", "step")]
        mean = self.facts.of(node)
        if word == "nl.mean" and mean is not None and prod(mean.shape[1:]) == 1:
            kept = [*(k for k in kept if k.arg != "keepdims"), ast.keyword("keepdims", ast.Constant(True))]
        kept = [k for k in kept if k.arg != "mask" or ast.unparse(k.value) != "None"]
        return node if kept == node.keywords else ast.Call(node.func, node.args, kept)

    def _with_parts(self, node: ast.expr) -> ast.expr:
        """Return a copy of an expression whose parts are translated.

        Raise Unportable if a tile is computed in a part of a conditional expression or of a comprehension.
        """
        deferred = isinstance(
            node, ast.BoolOp | ast.IfExp | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp | ast.Lambda
        )
        before = len(self.out)
        made = copy.copy(node)
        for key, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(made, key, self.value(value))
            elif isinstance(value, list):
                setattr(made, key, [self._part(one) for one in value])
        if deferred and len(self.out) > before:
            raise Unportable(
                node.lineno,
                "a tile is computed inside a conditional expression or comprehension",
                "compute the tile in a statement",
            )
        return made

    def _part(self, one: object) -> object:
        if isinstance(one, ast.expr):
            return self.value(one)
        if isinstance(one, ast.keyword):
            return ast.keyword(one.arg, self.value(one.value))
        if isinstance(one, ast.comprehension):
            return ast.comprehension(
                one.target, self.value(one.iter), [self.value(test) for test in one.ifs], one.is_async
            )
        return one

    def _named(self, node: ast.expr, word: str) -> ast.expr:
        space, _, rest = word.partition(".")
        if space == "nisa" and rest.endswith("_engine"):
            return parse_expression(f"nisa.engine.{rest[:-7]}")
        if word == "nl.tile_size.psum_fmax":
            return parse_expression("nl.tile_size.psum_bank_fmax")
        if space in ("nl", "nisa", "nki"):
            return parse_expression(word)
        return node

    def part(self, tile: ast.expr, fact: Fact | None, clip: Clip) -> ast.expr:
        """Return the part of the whole tile ``tile`` that ``clip`` keeps."""
        if not clip.axes:
            return tile
        rank = len(fact.shape) if fact is not None and fact.shape else max(clip.axes)
        items: list[ast.expr] = []
        for at in range(rank):
            axis = rank - at
            single = fact is not None and bool(fact.shape) and fact.shape[at] == 1
            inside = axis in clip.axes and not single
            items.append(
                ast.Slice(clip.starts.get(axis, ast.Constant(0)), clip.stops.get(axis)) if inside else ast.Slice()
            )
        if not any(isinstance(one, ast.Slice) and (one.lower or one.upper) for one in items):
            return tile
        return ast.Subscript(tile, ast.Tuple(items, ast.Load()), ast.Load())

    def subscript(self, node: ast.Subscript, clip: Clip) -> ast.expr:
        """Translate the subscript of a tensor to the current API.

        Index grids become slices that ``clip`` limits. Block dimensions move to their new positions.
        """
        items = elements(node)
        grids = [self.grid(one) for one in items]
        rank = max((grid.rank for grid in grids if grid is not None), default=0)
        block = self.blocks.get(node.value.id) if isinstance(node.value, ast.Name) else None
        base: ast.expr = self.value(node.value) if block is None else node.value
        if not rank:
            if block is not None:
                base, items = block.indexed(
                    [self.value(one) if not isinstance(one, ast.Slice) else one for one in items]
                )
                if not items:
                    return base
            plain = [self.value(one) for one in items]
            shortened = self._shortened(items, plain, node, clip)
            if shortened is not None:
                plain, clip = shortened, Clip()
            index: ast.expr = plain[0] if len(plain) == 1 else ast.Tuple(plain, ast.Load())
            made = ast.Subscript(base, index, ast.Load())
            return self.part(made, self.facts.of(node) or self._tile_fact(node), clip)
        if any(isinstance(one, ast.Slice) for one in items):
            raise Unportable(node.lineno, "an index mixes index grids with slices", "use slices alone")
        if block is not None:
            base, kept = block.indexed(items)
            grids = [self.grid(one) for one in kept]
        if any(grid is None for grid in grids):
            raise Unportable(
                node.lineno,
                f"the index {ast.unparse(node.slice)[:60]} is not a sum of nl.arange and numbers",
                "write the index as such a sum",
            )
        return self._sliced(node, base, [grid for grid in grids if grid is not None], rank, clip)

    def _shortened(
        self, items: Sequence[ast.expr], plain: Sequence[ast.expr], node: ast.Subscript, clip: Clip
    ) -> list[ast.expr] | None:
        """Return the index ``items`` with its slices limited by ``clip``; None if a slice has a step or can not be
        limited.
        """
        fact = self.facts.of(node) or self._tile_fact(node)
        ranged = [at for at, one in enumerate(items) if isinstance(one, ast.Slice) or self._is_ds(one)]
        if not clip.axes or fact is None or not fact.shape or len(ranged) != len(fact.shape):
            return None
        made = list(plain)
        for place, at in enumerate(ranged):
            axis = len(fact.shape) - place
            if axis not in clip.axes or fact.shape[place] == 1:
                continue
            one = plain[at]
            if isinstance(one, ast.Slice):
                if one.step is not None:
                    return None
                low = Linear.of(one.lower) if one.lower is not None else Linear()
            else:
                assert isinstance(one, ast.Call)
                low = Linear.of(one.args[0])
            start = low + Linear.of(clip.starts[axis]) if axis in clip.starts else low
            stop = low + Linear.of(clip.stops[axis])
            made[at] = ast.Slice(start.node, stop.node)
        return made

    def _is_ds(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.names.of(node.func) == "nl.ds" and len(node.args) == 2

    def _sliced(self, node: ast.Subscript, base: ast.expr, grids: list[Grid], rank: int, clip: Clip) -> ast.expr:
        """Translate an index of index grids to slices; or to an access pattern, if two index grids share an axis of the
        tile or positions along several axes do not nest.
        """
        seen: set[int] = set()
        for grid in grids:
            wide = {atom.axis for atom in grid.atoms if atom.size.number != 1}
            if wide & seen:
                return self._pattern(node, base, grids, rank, clip)
            seen |= wide
        items: list[ast.expr] = []
        order: list[int] = []
        splits: list[tuple[int, list[Atom]]] = []
        for at, grid in enumerate(grids):
            atoms = sorted((a for a in grid.atoms if a.size.number != 1), key=lambda a: -a.axis)
            if not atoms:
                axis = _axis_of_single(grid, grids[at + 1 :], order, [a for a in range(1, rank + 1) if a not in seen])
                seen |= {axis} - {0}
                order += [axis] if axis else []
                items.append(self._range(grid.base, Linear(1), Linear(1)) if axis else grid.base.node)
            elif len(atoms) == 1:
                order.append(atoms[0].axis)
                items.append(self._limited(node, grid.base, atoms[0], clip))
            else:
                ordered = sorted(atoms, key=lambda a: -(a.stride.number or 0))
                nested = all(one.stride == inner.stride.times(inner.size) for one, inner in itertools.pairwise(ordered))
                if not nested or any(a.axis in clip.axes for a in atoms):
                    return self._pattern(node, base, grids, rank, clip)
                total = Linear(1)
                for atom in ordered:
                    total = total.times(atom.size)
                splits.append((len(order), ordered))
                order.extend(a.axis for a in ordered)
                items.append(self._range(grid.base, total, ordered[-1].stride))
        index: ast.expr = items[0] if len(items) == 1 else ast.Tuple(items, ast.Load())
        return _with_axes(ast.Subscript(base, index, ast.Load()), order, splits, rank)

    def _limited(self, node: ast.Subscript, start: Linear, atom: Atom, clip: Clip) -> ast.expr:
        """Return the slice of those positions in ``atom`` that ``clip`` keeps. Raise Unportable for a stride below 1."""
        size = atom.size
        if atom.axis in clip.starts:
            low = Linear.of(clip.starts[atom.axis])
            start = start + atom.stride.times(low)
            high = Linear.of(clip.stops[atom.axis]) if atom.axis in clip.stops else atom.size
            size = high - low
        elif atom.axis in clip.stops:
            size = Linear.of(clip.stops[atom.axis])
        if atom.stride.number is not None and atom.stride.number < 1:
            raise Unportable(
                node.lineno, "an index runs backwards (its stride is below 1)", "reverse the index with .ap()"
            )
        return self._range(start, size, atom.stride)

    def _range(self, start: Linear, size: Linear, stride: Linear) -> ast.expr:
        """Return a slice of ``size`` elements from ``start`` on, with ``stride`` from one element to the next."""
        if stride.number == 1 or size.number == 1:
            if start.number is not None and size.number is not None:
                return ast.Slice(ast.Constant(start.number), ast.Constant(start.number + size.number))
            if start.number == 0:
                return ast.Slice(ast.Constant(0), size.node)
            if len(start.terms) == 0 or size.number == 1:
                return ast.Slice(start.node, (start + size).node)
            return call("nl.ds", start.node, size.node)
        end = start + stride.times(size - Linear(1)) + Linear(1)
        return ast.Slice(start.node, end.node, stride.node)

    def _pattern(self, node: ast.Subscript, base: ast.expr, grids: list[Grid], rank: int, clip: Clip) -> ast.expr:
        """Return an index with an access pattern (``.ap()``) of the whole tensor.

        An access pattern is needed for positions that slices can not express: positions that overlap, or two index
        grids that share an axis.
        """
        fact = self.facts.of(node.value) or self._variable(node.value)
        sizes = self._dimensions(node, base, fact)
        if fact is None or sizes is None or len(sizes) != len(grids) or clip.starts:
            raise Unportable(
                node.lineno,
                f"the index {ast.unparse(node.slice)[:60]} of a part of a tensor reaches elements twice, or uses an axis twice",
                "use .ap() of the whole tensor",
            )
        strides = [Linear(1)]
        for size in reversed(sizes[1:]):
            strides.insert(0, strides[0].times(size))
        offset = Linear()
        pairs: dict[int, tuple[Linear, Linear]] = {}
        for grid, stride in zip(grids, strides, strict=True):
            offset = offset + grid.base.times(stride)
            for atom in grid.atoms:
                size = Linear.of(clip.stops[atom.axis]) if atom.axis in clip.stops else atom.size
                step = atom.stride.times(stride)
                known = pairs.get(atom.axis)
                pairs[atom.axis] = (step if known is None else known[0] + step, size)
        pattern: list[ast.expr] = []
        for axis in range(rank, 0, -1):
            step, size = pairs.get(axis, (strides[0] if axis == rank else Linear(1), Linear(1)))
            pattern.append(ast.List([step.node, size.node], ast.Load()))
        made = ast.Call(ast.Attribute(base, "ap", ast.Load()), [], [])
        made.keywords = [ast.keyword("pattern", ast.List(pattern, ast.Load())), ast.keyword("offset", offset.node)]
        return made

    def _dimensions(self, node: ast.Subscript, base: ast.expr, fact: Fact | None) -> list[Linear] | None:
        """Return the sizes of a whole tensor as the new kernel declares it; None if ``base`` is not a whole
        tensor.
        """
        if fact is None or not isinstance(base, ast.Name):
            return None
        block = self.blocks.get(base.id)
        if block is not None:
            kept = [] if block.psum else [block.blocks[at] for at in block.kept]
            return [Linear.of(self.value(one)) for one in (block.partitions, *kept, *block.free)]
        if not fact.whole and base.id not in self.made:
            return None
        if fact.shape:
            return [Linear(n) for n in fact.shape]
        ranks = {len(one.shape) for one in self.facts.visits(node.value)}
        return (
            [Linear.of(parse_expression(f"{base.id}.shape[{at}]")) for at in range(ranks.pop())]
            if len(ranks) == 1
            else None
        )

    # index grids and masks

    def grid(self, node: ast.expr) -> Grid | None:
        """Return an index expression as an index grid, of rank 0 for a number; None for any other expression."""
        if isinstance(node, ast.Slice) or (isinstance(node, ast.Constant) and not isinstance(node.value, int)):
            return None
        if isinstance(node, ast.Name) and node.id in self.grids:
            found = self.grids[node.id]
            return found if isinstance(found, Grid) else None
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in ("p", "x", "y", "z", "w")
        ):
            mesh = self.grids.get(node.value.id)
            if isinstance(mesh, tuple):
                return mesh["pxyzw".index(node.attr)]
        if isinstance(node, ast.Call) and self.names.of(node.func) == "nl.arange":
            return self._arange(node)
        if isinstance(node, ast.Subscript):
            inner = self.grid(node.value)
            return self._spread(inner, node) if inner is not None and inner.rank else self._term(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.grid(node.operand)
            return None if inner is None else inner.times(Linear(-1))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            left, right = self.grid(node.left), self.grid(node.right)
            if left is None or right is None:
                return None
            if isinstance(node.op, ast.Mult):
                if left.atoms and right.atoms:
                    return None
                return left.times(right.base) if left.atoms or left.rank else right.times(left.base)
            return left + right if isinstance(node.op, ast.Add) else left - right
        return self._term(node)

    def _term(self, node: ast.expr) -> Grid | None:
        fact = self.facts.of(node)
        if fact is not None and fact.kind in ("tile", "grid", "predicate"):
            return None
        if fact is not None and fact.kind == "other":
            return None
        return Grid(Linear.of(self._generic(node)))

    def _arange(self, node: ast.Call) -> Grid:
        bounds = [Linear.of(self.value(one)) for one in node.args]
        if len(bounds) == 3:
            raise Unportable(node.lineno, "nl.arange has a step", "slice with a step")
        start, stop = (Linear(), bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        size = stop - start
        return Grid(start, (Atom(1, size, Linear(1)),), 1)

    def _spread(self, grid: Grid, node: ast.Subscript) -> Grid:
        """Return the grid with its axes at the positions that an index such as ``nl.arange(n)[:, None]`` gives them."""
        items = elements(node)
        kept = [at for at, one in enumerate(items) if not (isinstance(one, ast.Constant) and one.value is None)]
        if len(kept) != grid.rank or not all(isinstance(items[at], ast.Slice) for at in kept):
            raise Unportable(
                node.lineno, f"the index grid {ast.unparse(node)} can not become slices", "slice the tensor"
            )
        return grid.placed([len(items) - at for at in kept], len(items))

    def _mesh(self, node: ast.expr) -> tuple[Grid, ...] | None:
        if isinstance(node, ast.Call) and self.names.of(node.func) in ("nl.gemm_grid", "nl.gemm_stationary_grid"):
            node = parse_expression(
                "nl.mgrid[0:128, 0:512]" if "stationary" not in ast.unparse(node.func) else "nl.mgrid[0:128, 0:128]"
            )
        if not isinstance(node, ast.Subscript) or self.names.of(node.value) != "nl.mgrid":
            return None
        items = elements(node)
        made = []
        for at, one in enumerate(items):
            if not isinstance(one, ast.Slice) or one.upper is None or one.step is not None:
                raise Unportable(
                    node.lineno, f"the index grid {ast.unparse(node)} can not become slices", "slice the tensor"
                )
            start = Linear.of(self.value(one.lower)) if one.lower is not None else Linear()
            size = Linear.of(self.value(one.upper)) - start
            made.append(Grid(start, (Atom(len(items) - at, size, Linear(1)),), len(items)))
        return tuple(made)

    def clip(self, mask: ast.expr | None) -> Clip:
        """Return the part of a tile that a mask keeps. Raise Unportable for a mask that limits two axes jointly."""
        if mask is None or ast.unparse(mask) == "None":
            return Clip()
        known = self._known_mask(mask)
        if known is not None:
            return known
        stops: dict[int, list[ast.expr]] = {}
        starts: dict[int, list[ast.expr]] = {}
        guards: list[ast.expr] = []
        sizes: dict[int, Linear] = {}
        for one in self._comparisons(mask):
            left, right = self.grid(one.left), self.grid(one.comparators[0])
            if left is None or right is None:
                raise Unportable(
                    mask.lineno,
                    f"the mask {ast.unparse(one)[:60]} compares more than sums of nl.arange",
                    "leave the mask out, and slice up to a bound, such as x[0:min(128, n)]",
                )
            grid = left - right
            wide = [a for a in grid.atoms if a.size.number != 1 and a.stride.number != 0]
            if not wide:
                guards.append(ast.Compare(left.base.node, one.ops, [right.base.node]))
            elif len(wide) > 1 or wide[0].stride.number is None:
                self._note_mask_of_two_axes(mask, one)
            else:
                sizes[wide[0].axis] = wide[0].size
                is_stop, limit = self._limit(mask, one, wide[0], grid.base)
                (stops if is_stop else starts).setdefault(wide[0].axis, []).append(limit)
        ends = {axis: self._size(axis, "min", [sizes[axis].node, *found], mask) for axis, found in stops.items()}
        for axis, end in ends.items():
            self.widths[ast.unparse(end)] = sizes[axis].number
        begins = {axis: self._size(axis, "max", [ast.Constant(0), *found], mask) for axis, found in starts.items()}
        for axis in begins:
            ends.setdefault(axis, sizes[axis].node)
        return Clip(ends, begins, tuple(guards))

    def _note_mask_of_two_axes(self, mask: ast.expr, comparison: ast.Compare) -> None:
        """Check that a comparison between two axes holds for every element, and record that its mask can be left out.

        Raise Unportable if the comparison does not hold for every element.
        """
        fact, shown = self.facts.of(comparison) or self.facts.of(mask), f"the mask {ast.unparse(comparison)[:60]}"
        if fact is None or fact.value is not True:
            raise Unportable(mask.lineno, f"{shown} bounds two axes together", "loop over one axis and slice the other")
        self.notes.append((mask.lineno, f"{shown} holds everywhere for these arguments and is left out"))

    def _limit(self, mask: ast.expr, comparison: ast.Compare, atom: Atom, base: Linear) -> tuple[bool, ast.expr]:
        """Return (True if a comparison limits the end of an axis, False if it limits the start; the position of the
        limit).

        The comparison is between zero and ``base`` plus the positions in ``atom``. Raise Unportable for a test of
        equality.
        """
        word, stride, bound = COMPARISONS.get(type(comparison.ops[0]).__name__, ""), atom.stride.number, base.scaled(-1)
        assert stride is not None
        if stride < 0:
            stride, bound, word = -stride, bound.scaled(-1), _TURNED.get(word, word)
        if word not in _TURNED:
            raise Unportable(
                mask.lineno,
                f"the mask {ast.unparse(comparison)[:60]} selects by equality",
                "slice the row or column that the mask selects",
            )
        beyond = word in ("less_equal", "greater")
        return word.startswith("less"), self._divided(bound + Linear(1) if beyond else bound, stride)

    def _known_mask(self, mask: ast.expr) -> Clip | None:
        """Return the part of a tile that a mask keeps; None unless the mask is a variable or a conditional expression
        that depends on loop variables alone.
        """
        if not isinstance(mask, ast.Name | ast.IfExp) or (isinstance(mask, ast.Name) and mask.id in self.masks):
            return None
        visits = self.facts.visits(mask)
        if visits and all(one.kind == "none" for one in visits):
            return Clip()
        if visits and all(
            one.kind in ("none", "number") or (one.kind == "predicate" and not one.shape) for one in visits
        ):
            test: ast.expr = self.value(mask)
            if any(one.kind == "none" for one in visits):
                test = ast.BoolOp(ast.Or(), [ast.Compare(test, [ast.Is()], [ast.Constant(None)]), test])
            return Clip(guards=(test,))
        return None

    def _divided(self, limit: Linear, stride: int) -> ast.expr:
        if stride == 1:
            return limit.node
        if limit.number is not None:
            return ast.Constant(-(-limit.number // stride))
        return ast.BinOp((limit + Linear(stride - 1)).node, ast.FloorDiv(), ast.Constant(stride))

    def _size(self, axis: int, function: str, values: list[ast.expr], mask: ast.expr) -> ast.expr:
        """Return the bound of ``axis`` in a mask, the ``function`` (min or max) of ``values``: a number, or a variable
        that is assigned once in each block of statements.
        """
        numbers = [one.value for one in values if isinstance(one, ast.Constant)]
        if len(numbers) == len(values):
            return ast.Constant((min if function == "min" else max)(numbers))  # type: ignore[type-var]  # numbers, as tested above
        made = call(function, *values)
        text = ast.unparse(made)
        for known in reversed(self.sizes):
            if text in known:
                return name(known[text])
        wish = {1: "columns", 2: "rows"}.get(axis, f"size_{axis}") if function == "min" else f"first_{axis}"
        variable = self._fresh(wish)
        self.sizes[-1][text] = variable
        self.out.append(ast.Assign([ast.Name(variable, ast.Store())], made))
        return name(variable)

    def _comparisons(self, mask: ast.expr) -> list[ast.Compare]:
        if isinstance(mask, ast.Name) and mask.id in self.masks:
            return self._comparisons(self.masks[mask.id])
        if isinstance(mask, ast.BoolOp) and isinstance(mask.op, ast.And):
            return [one for value in mask.values for one in self._comparisons(value)]
        if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd | ast.Mult):
            return [*self._comparisons(mask.left), *self._comparisons(mask.right)]
        if isinstance(mask, ast.Compare):
            sides = [mask.left, *mask.comparators]
            return [
                ast.copy_location(ast.Compare(sides[k], [op], [sides[k + 1]]), mask) for k, op in enumerate(mask.ops)
            ]
        raise Unportable(
            mask.lineno,
            f"the mask {ast.unparse(mask)[:60]} is not a comparison",
            "leave the mask out, and slice up to a bound, such as x[0:min(128, n)]",
        )


def _axis_of_single(grid: Grid, later: Sequence[Grid], order: Sequence[int], free: Sequence[int]) -> int:
    """Return the axis of the tile to which an index of a single position belongs; 0 if no axis belongs to the index.

    The axis is one of ``free``. ``order`` has the axes of the indices before this index, and ``later`` has the
    indices after this index.
    """
    single = next((a.axis for a in grid.atoms), 0)
    if single:
        return single if single in free else 0
    after = [a.axis for g in later for a in g.atoms]
    between = (a for a in free if (not order or a < min(order)) and (not after or a > max(after)))
    return next(between, 0)


def _with_axes(tile: ast.expr, order: Sequence[int], splits: Sequence[tuple[int, list[Atom]]], rank: int) -> ast.expr:
    """Return a view of ``tile`` with ``rank`` axes in the order of the tile.

    ``order`` has the axes in their present order. ``splits`` says where one axis of the tile has to be divided into
    several nested axes.
    """
    for place, atoms in splits:
        sizes = ast.Tuple([a.size.node for a in atoms], ast.Load())
        tile = ast.Call(ast.Attribute(tile, "reshape_dim", ast.Load()), [ast.Constant(place), sizes], [])
    wanted = sorted(order, reverse=True)
    if order != wanted:
        places = ast.Tuple([ast.Constant(order.index(axis)) for axis in wanted], ast.Load())
        tile = ast.Call(ast.Attribute(tile, "permute", ast.Load()), [places], [])
    for axis in range(rank, 0, -1):
        if axis not in wanted:
            tile = ast.Call(ast.Attribute(tile, "expand_dim", ast.Load()), [ast.Constant(rank - axis)], [])
    return tile


def dtype_word(dtype: str) -> str:
    """Return the name of a dtype in ``nl``."""
    return "bool_" if dtype == "bool" else dtype
