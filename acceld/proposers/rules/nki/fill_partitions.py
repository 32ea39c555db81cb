"""Stack the tiles of several iterations into one tile that uses all 128 partitions.

Before, and after::

    for t in nl.affine_range(8):                   for t in nl.affine_range(4):
        a = nl.ndarray((64, 512), ...)                 a = nl.ndarray((128, 512), ...)
        nisa.dma_copy(dst=a, src=x[t])                 nisa.dma_copy(dst=a[0:64, 0:512], src=x[(2 * t)])
                                                       nisa.dma_copy(dst=a[64:128, 0:512], src=x[(2 * t + 1)])
        nisa.reciprocal(dst=b, data=a)                 nisa.reciprocal(dst=b, data=a)

If a legacy kernel uses the two halves of a larger tile separately, each half becomes a tile of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.building import changed, comments
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix, span
from acceld.nki.source.syntax import (
    BINARY,
    UNARY,
    Access,
    Loop,
    Statement,
    accesses,
    assigned,
    elements,
    names_in,
    value_of,
)
from acceld.proposers.rules.records import Place, Rule, Variant

_PARTITIONS = 128
_ROWS = (32, 64)
"""Heights of tiles that can be stacked, because an instruction starts at a partition that is a multiple of 32."""
_BY_PARTITION = {
    "nki": frozenset(
        "activation activation_reduce memset reciprocal scalar_tensor_tensor tensor_copy tensor_reduce tensor_scalar "
        "tensor_scalar_reduce "
        "tensor_tensor tensor_tensor_scan".split()
    ),
    "nki_legacy": frozenset(("tensor_tensor", "copy", "tensor_copy", "tensor_scalar", "activation", *BINARY, *UNARY)),
}
"""Operations, by API, that treat each partition separately. In the legacy API their results also have the shape of an
operand.
"""


class FillPartitions(Rule):
    """Stack the tiles of two or four iterations along the partitions."""

    name = "fill_partitions"
    reason = (
        "An instruction takes as long on 64 partitions as on 128, and each DMA engine serves eight partitions of SBUF: "
        "tiles of 64 leave half the lanes of every engine and half the DMA engines idle."
    )
    source = "AWS NKI performance guide: partition utilization; Trainium DMA overview"
    apis = frozenset({"nki", "nki_legacy"})
    change_class = "tile_width"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every loop whose tiles fill only 32 or 64 partitions. In the legacy API, also yield every loop that
        uses halves of larger tiles.

        The place has the reason if the tiles can not be stacked.
        """
        for loop in kernel.loops:
            rows = _fewest_rows(kernel, loop)
            if rows is None:
                continue
            factors = [factor for factor in (_PARTITIONS // rows, _PARTITIONS // rows // 2) if factor > 1]
            factors = [factor for factor in factors if (loop.trips or 0) % factor == 0] or factors[:1]
            try:
                _Stacking(kernel, loop, rows, factors[0]).source()
            except RuleRefused as refusal:
                yield self.refused(loop.line, refusal.message, f"Fill {_PARTITIONS} partitions in loop {loop.variable}")
                continue
            yield self.found(
                loop.line,
                partial(_stacked, kernel, loop, rows),
                *(Variant(f"{factor} iterations", {"factor": factor}) for factor in factors),
                precondition=f"iterations of {loop.variable} share nothing, and every operation works on each partition alone",
                plan=f"Instructions of loop {loop.variable} use {rows} of {_PARTITIONS} partitions. Let {factors[0]} iterations "
                "lie one below the other in one tile, so that each instruction does their work at once.",
                benefit=1.0 - rows / _PARTITIONS,
                gain_percent=(10.0, 50.0),
                key=loop.variable,
            )


def _stacked(kernel: KernelModule, loop: Loop, rows: int, variant: Variant) -> str:
    return _Stacking(kernel, loop, rows, int(variant.parameters["factor"])).source()


def _fewest_rows(kernel: KernelModule, loop: Loop) -> int | None:
    """Return the number of rows (32 or 64) of the tiles that a loop could stack; None if its tiles have other numbers
    of rows.
    """
    found: set[int] = set()
    if kernel.api == "nki":
        declared = [one.made.name for one in loop.items if isinstance(one, Statement) and one.kind == "declaration"]
        found |= {kernel.buffers[name].shape[0] or 0 for name in declared if kernel.buffers[name].shape}
        found = found if len(found) == 1 else set()
    for one in loop.statements() if kernel.api != "nki" else ():
        for access in accesses(one) if one.kind == "op" else ():
            rows = [dim.form for dim in (access.dims or ())[:1]]
            found |= {symbol.extent for form in rows if form is not None for symbol in form.ranges if symbol.axis == 0}
    return min(found) if found and min(found) in _ROWS else None


@dataclass(frozen=True)
class _Tile:
    """A tile of the loop before the rewrite, or the part of a tile that a name stands for."""

    name: str
    columns: int
    dtype: str
    parts: int
    """Number of new tiles that hold the rows of this tile."""
    first: int = 0
    """Number of the first new tile that holds rows of this part."""
    made: bool = False
    """True if the tile keeps its name, so that no new tile is declared for it."""


@dataclass
class _Stacking:
    """Write the new loop, statement by statement. A statement that can not be stacked raises RuleRefused."""

    kernel: KernelModule
    loop: Loop
    rows: int
    """Rows that one original iteration takes in a new tile."""
    factor: int
    """Number of original iterations in one new iteration."""
    _variables: list[str] = field(default_factory=list)
    """For each stacked iteration, the value of the original loop's variable as text."""
    _known: dict[str, _Tile] = field(default_factory=dict)
    _declared: dict[tuple[str, int], str] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)

    @property
    def _height(self) -> int:
        return self.rows * self.factor

    def source(self) -> str:
        """Return the kernel's source with the new loop."""
        loop, kernel = self.loop, self.kernel
        header, self._variables = self._iterations()
        self._check_sharing()
        for item in loop.items:
            if not isinstance(item, Statement):
                raise _refused(item.line, "there is another loop inside: write its iterations out, or move it out")
            self._lines.append(comments(kernel, item, item.indent))
            self._statement(item)
        start, end = kernel.line_start(loop.start), kernel.after_line(loop.end)
        return kernel.source[:start] + header + "".join(self._lines) + kernel.source[end:]

    def _iterations(self) -> tuple[str, list[str]]:
        """Return (header line of the new loop, value of the old loop variable in each of the stacked iterations, as
        text).
        """
        loop, kernel = self.loop, self.kernel
        variable, trips = loop.variable, loop.trips
        if loop.kind not in ("range", "affine_range") or trips is None:
            raise _refused(
                loop.line, f"{variable} is a {loop.kind}: if its iterations are independent, use affine_range"
            )
        if trips % self.factor:
            raise _refused(
                loop.line,
                f"the number of iterations, {trips}, is not a multiple of {self.factor}: write the last iterations outside of the loop",
            )
        call = kernel.text(loop.node.iter).partition("(")[0]
        at = [f"({self.factor} * {variable}{f' + {number}' if number else ''})" for number in range(self.factor)]
        return f"{loop.indent}for {variable} in {call}({trips // self.factor}):\n", at

    def _check_sharing(self) -> None:
        """Raise RuleRefused if iterations share data, because then their order may matter."""
        kernel, loop = self.kernel, self.loop
        stored = [one.made.name for one in loop.statements() if one.target and kernel.space_of(one.made.name) == "hbm"]
        if loop.kind == "range" and len(set(stored)) < len(stored):
            raise _refused(
                loop.line, "two statements store to one tensor: use affine_range if iterations are independent"
            )
        if any(access.name in stored for one in loop.statements() for access in one.mentions):
            raise _refused(loop.line, "a tensor is both loaded from and stored to: use two tensors")
        bound = {found[0] for one in loop.statements() if (found := assigned(one))}
        problem = one_name(kernel, bound) if kernel.api == "nki" else ""
        if problem:
            raise RuleRefused(problem)
        for one in kernel.statements:
            if not inside(one, loop) and (used := bound & {name.id for name in names_in(one.node)}):
                raise _refused(one.line, f"{min(used)}, a tile of the loop, is used here too: give it another name")

    def _statement(self, one: Statement) -> None:
        depends = any(name.id == self.loop.variable for name in names_in(one.node))
        if one.kind == "marker" or (one.kind == "alias" and not depends):
            self._lines.append(f"{one.indent}{self.kernel.source[one.start : one.end]}\n")
        elif one.kind == "declaration":
            if depends:
                raise _refused(
                    one.line, f"the shape of {one.made.name} depends on {self.loop.variable}: give it one shape"
                )
            self._declare(one)
        elif one.kind == "op" and one.op in ("load", "store", "dma_copy"):
            self._transfer(one)
        elif one.kind == "op" and one.op in _BY_PARTITION[self.kernel.api]:
            self._by_partition(one, depends)
        else:
            self._view(one)

    def _declare(self, one: Statement) -> None:
        """Record the tile that a statement declares.

        In the current API, write its declaration with the rows of all stacked iterations. In the legacy API, new tiles
        replace the tile, and :meth:`_place` declares each new tile where it is first written.
        """
        kernel, name, buffer = self.kernel, one.made.name, self.kernel.buffers[one.made.name]
        shape = buffer.shape
        if buffer.declaration is not one or one.op != "ndarray" or buffer.space != "sbuf" or None in shape:
            raise _refused(
                one.line,
                f"{name} is no plain tile of a known shape in SBUF: declare it by ndarray in SBUF, with numbers as its shape",
            )
        rows, columns = shape[0] or 0, shape[-1] or 0
        if kernel.api == "nki" and len(shape) > 1 and isinstance(one.args["shape"], ast.Tuple):
            self._known[name] = _Tile(name, columns, "", 1, made=True)
            height = {elements(one.args["shape"])[0]: str(self._height)}
            self._lines.append(f"{one.indent}{changed(kernel, one.node, height)}\n")
            return
        if len(shape) != 2 or rows % self.rows or rows > _PARTITIONS or kernel.api == "nki":
            raise _refused(
                one.line,
                f"the shape of {name} is not {self.rows} or {2 * self.rows} rows of columns: declare it in such a shape",
            )
        dtype = kernel.text_of(one, "dtype")
        of = self._known.get(dtype.removesuffix(".dtype"))
        self._known[name] = _Tile(name, columns, of.dtype if of is not None else dtype, rows // self.rows)

    def _view(self, one: Statement) -> None:
        """Record a name that stands for part of a tile."""
        found, value = assigned(one), value_of(one)
        access = self.kernel.access(value) if value is not None else None
        if found is None or access is None or access.name not in self._known or self.kernel.api == "nki":
            raise _refused(
                one.line,
                f"{one.op or 'this statement'} is not known to work on each partition separately: put it in a loop of its own",
            )
        self._known[found[0]] = self._part(one, access)

    def _part(self, one: Statement, access: Access) -> _Tile:
        """Return the part of a tile that an access covers: the whole tile, or all columns of some of the new tiles
        that replace it.
        """
        tile = self._known.get(access.name)
        if tile is None:
            raise _refused(
                one.line, f"{access.name} is made before the loop, and the same in every iteration: make it in the loop"
            )
        if access.dims is None:
            return tile
        if self.kernel.api == "nki":
            first = access.dims[0]
            if not first.covers(self.rows):
                raise _refused(
                    one.line,
                    f"this statement does not use all {self.rows} partitions of {access.name}: use all of them",
                )
            return tile
        if len(access.dims) != 2 or tile.made or tile.first or tile.parts == 0:
            raise _refused(one.line, f"an index of {access.name} is not understood: write loop variables and numbers")
        at, count = self._covered(one, access.dims[0].form)
        if access.dims[1].form != Affine.of(Symbol.over(tile.columns, 1, 2)):
            raise _refused(one.line, f"this statement does not use all columns of {access.name}: use all of them")
        if at + count > tile.parts:
            raise _refused(one.line, f"this statement uses rows beyond {access.name}: use as many rows as it has")
        return _Tile(tile.name, tile.columns, tile.dtype, count, at)

    def _covered(self, one: Statement, form: Affine | None) -> tuple[int, int]:
        """Return (index of the first new tile, number of new tiles) that an index over rows covers."""
        ranges = form.ranges if form is not None else ()
        if form is None or len(ranges) != 1 or form != Affine(form.constant) + Affine.of(ranges[0]):
            raise _refused(one.line, "an index over partitions is not understood: give it as nl.arange(n)[:, None]")
        if (ranges[0].axis, ranges[0].axes) != (0, 2) or ranges[0].extent % self.rows or form.constant % self.rows:
            raise _refused(
                one.line,
                f"the number of partitions of this statement is not a multiple of {self.rows}: use {self.rows} partitions at a time",
            )
        return form.constant // self.rows, ranges[0].extent // self.rows

    def _transfer(self, one: Statement) -> None:
        """Write the transfers of one statement for each stacked iteration and each new tile, in the order of the old
        loop.
        """
        kernel = self.kernel
        source = one.reads.get("value" if one.op == "store" else "src")
        if source is None or len(one.mentions) != 1 or kernel.mask(one) or one.augmented:
            raise _refused(
                one.line, "this transfer has a mask or adds to its target, or is not understood: move all of a tile"
            )
        loads = kernel.space_of(source.name) == "hbm"
        there, mine = (source, one.made) if loads else (one.made, source)
        if kernel.space_of(there.name) != "hbm" or (mine.name not in self._known and mine.dims is not None):
            raise _refused(
                one.line,
                f"this statement moves nothing between HBM and a tile of the loop: declare {mine.name} in the loop",
            )
        if there.variables is None or kernel.ambiguous & {there.name}:
            raise _refused(one.line, f"an index of {there.name} is not understood: write loop variables and numbers")
        base, count = (0, 1) if kernel.api == "nki" else self._hbm_rows(one, there)
        if kernel.api != "nki" and loads and mine.dims is None:
            extents = kernel.extents(source)
            if extents is None or len(extents) != 2 or count != 1 or "dtype" in one.args:
                raise _refused(one.line, f"the shape of {mine.name} is not known: declare it by numbers")
            tile = self._known[mine.name] = _Tile(mine.name, extents[1], f"{there.name}.dtype", 1, made=True)
            self._lines.append(self._declaration(one, mine.name, tile))
        else:
            tile = self._part(one, mine)
        if tile.parts != count:
            raise _refused(one.line, f"this statement does not move all rows of {tile.name}: move all of them")
        names = [self._place(one, tile, part, writes=loads) for part in range(count)]
        for number, variable in enumerate(self._variables):
            for part, name in enumerate(names):
                here = f"{name}[{', '.join((self._rows(self.rows * number), *self._columns(tile, mine)))}]"
                at = self._there(there, base + self.rows * part, variable)
                self._lines.append(f"{one.indent}{changed(kernel, one.node, {mine.node: here, there.node: at})}\n")

    def _hbm_rows(self, one: Statement, there: Access) -> tuple[int, int]:
        """Return (first row in HBM, number of new tiles that the rows fill). Raise RuleRefused unless the first index
        of the access runs over rows.
        """
        dims = there.dims or ()
        symbols = [symbol for dim in dims[1:] if dim.form is not None for symbol in dim.form.ranges]
        if not dims or any(dim.form is None for dim in dims) or any((s.axis, s.axes) != (1, 2) for s in symbols):
            raise _refused(one.line, f"an index of {there.name} is not understood: write loop variables and numbers")
        first, count = self._covered(one, dims[0].form)
        return first * self.rows, count

    def _there(self, there: Access, row: int, variable: str) -> str:
        """Return the text of an access to rows in HBM, for one of the stacked iterations."""
        moved = {name: variable for name in names_in(there.node) if name.id == self.loop.variable}
        if self.kernel.api == "nki":
            return changed(self.kernel, there.node, moved)
        places = [self._rows(row)]
        for index in elements(there.node)[1:]:
            within = {name: text for name, text in moved.items() if name in names_in(index)}
            places.append(changed(self.kernel, index, within))
        return f"{there.name}[{', '.join(places)}]"

    def _by_partition(self, one: Statement, depends: bool) -> None:
        """Write a statement that does the work of ``one`` on the rows of all stacked iterations."""
        kernel = self.kernel
        current = kernel.api == "nki"
        if one.second is not None and not current:
            raise _refused(one.line, "this statement adds up its columns: use nisa.tensor_reduce for the sum")
        if one.augmented or kernel.mask(one) or depends:
            raise _refused(
                one.line,
                f"this statement depends on {self.loop.variable}, or has a mask: put this statement in a loop of its own",
            )
        if len(one.mentions) != len(one.reads) or not (one.reads or current):
            raise _refused(one.line, "an operand is an expression: write its value to a tile first, and use that tile")
        made = not current and one.made.dims is None
        if made:
            columns = {self._part(one, access).columns for access in one.reads.values()}
            if len(columns) != 1:
                raise _refused(one.line, f"the shape of {one.made.name} is not known: declare it by numbers")
            tile = _Tile(one.made.name, columns.pop(), f"{one.made.name}.dtype", 1, made=True)
        texts: dict[ast.AST, str] = {}
        for access in (*one.reads.values(), *(() if made else one.results)):
            part = self._part(one, access)
            if part.parts != 1:
                raise _refused(
                    one.line,
                    "this statement works on other rows than those of the iteration: use only the rows of the iteration",
                )
            if not current:
                name = self._place(one, part, 0, writes=access is one.target)
                language = prefix(kernel, "language")
                texts[access.node] = (
                    f"{name}[{language}.arange({self._height})[:, None], {self._columns(part, access)[0]}]"
                )
            elif access.dims is not None and not access.dims[0].full:
                texts[elements(access.node)[0]] = f"0:{self._height}"
        if made:
            self._known[tile.name] = tile
        tail = kernel.source[one.end : kernel.after_line(one.end)]
        self._lines.append(f"{one.indent}{changed(kernel, one.node, texts)}{tail}")

    def _place(self, one: Statement, tile: _Tile, part: int, *, writes: bool) -> str:
        """Return the name of the new tile that replaces one part of an old tile. A new tile is declared where it is
        first written.
        """
        if tile.made:
            return tile.name
        key = (tile.name, tile.first + part)
        if key not in self._declared:
            if not writes:
                raise _refused(one.line, f"{tile.name} is read before it is written: write it in the same iteration")
            self._declared[key] = self.kernel.fresh(f"{tile.name}_rows_{tile.first + part}", self._declared.values())
            self._lines.append(self._declaration(one, self._declared[key], tile))
        return self._declared[key]

    def _declaration(self, one: Statement, name: str, tile: _Tile) -> str:
        language = prefix(self.kernel, "language")
        shape = f"({language}.par_dim({self._height}), {tile.columns})"
        return f"{one.indent}{name} = {language}.ndarray({shape}, dtype={tile.dtype}, buffer={language}.sbuf)\n"

    def _rows(self, first: int) -> str:
        if self.kernel.api == "nki":
            return f"{first}:{first + self.rows}"
        return span(self.kernel, Affine(), self.rows, 0, 2) if not first else f"{first} + {self._rows(0)}"

    def _columns(self, tile: _Tile, access: Access) -> list[str]:
        """Return the indices of a new tile after its row index: those of the access, or all columns."""
        if self.kernel.api != "nki":
            return [span(self.kernel, Affine(), tile.columns, 1, 2)]
        if access.dims is None:
            return [f"0:{extent}" for extent in self.kernel.buffers[tile.name].shape[1:]]
        return [self.kernel.text(index) for index in elements(access.node)[1:]]


def _refused(line: int, reason: str) -> RuleRefused:
    return RuleRefused(f"line {line}: {reason}")


RULE = FillPartitions()
