"""Stack the rows of several iterations of a legacy loop, where a tile may also hold two halves that are used apart.

Before, and after. Each half of ``x_tile`` gets a tile of its own::

    for s in range(0, 4096, 512):                    for s in range(0, 4096, 2 * 512):
        x_tile[p, f] = nl.load(x[p, f + s])              x_tile_rows_0[0:64] = nl.load(x[0:64, f + s])
        ...                                              x_tile_rows_1[0:64] = nl.load(x[64:128, f + s])
        ...                                              x_tile_rows_0[64:128] = nl.load(x[0:64, f + (s + 512)])
        ...                                              x_tile_rows_1[64:128] = nl.load(x[64:128, f + (s + 512)])
        o[h, f] = nl.multiply(x_tile[h, f], 2.0)         o_rows_0 = nl.multiply(x_tile_rows_0, 2.0)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.building import comments
from acceld.nki.source.nests import inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
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

_PARTITIONS = 128
_ROWS = (32, 64)
_BY_ELEMENT = frozenset(("tensor_tensor", "copy", "tensor_copy", "tensor_scalar", "activation", *BINARY, *UNARY))


@dataclass(frozen=True)
class _Tile:
    """A tile of the old loop, or the part of one that a name stands for."""

    name: str
    columns: int
    dtype: str
    parts: int
    """Number of new tiles that hold its rows."""
    first: int = 0
    """The first of the new tiles that hold rows of this part."""
    made: bool = False
    """True if a statement makes it under its own name, so that no new tile is declared."""


@dataclass
class Stacking:
    """The new loop, written statement by statement. Raises RuleRefused where a statement can not be stacked."""

    kernel: KernelModule
    loop: Loop
    rows: int
    """Rows of an iteration in a new tile."""
    _variables: list[str] = field(default_factory=list)
    """The old loop's variable in each stacked iteration."""
    _known: dict[str, _Tile] = field(default_factory=dict)
    _declared: dict[tuple[str, int], str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _lines: list[str] = field(default_factory=list)

    @property
    def factor(self) -> int:
        """Number of iterations in one."""
        return _PARTITIONS // self.rows

    def source(self) -> str:
        """Return the kernel with the new loop."""
        loop, kernel = self.loop, self.kernel
        header, self._variables = self._iterations()
        self._check_sharing()
        for item in loop.items:
            if not isinstance(item, Statement):
                raise _refused(item.line, "there is another loop inside")
            self._lines.append(comments(kernel, item, item.indent))
            self._statement(item)
        start, end = kernel.line_start(loop.start), kernel.after_line(loop.end)
        return kernel.source[:start] + header + "".join(self._lines) + kernel.source[end:]

    def _iterations(self) -> tuple[str, list[str]]:
        """Return the new loop's first line, and the old loop's variable in each stacked iteration."""
        loop, kernel = self.loop, self.kernel
        assert isinstance(loop.node.iter, ast.Call)
        given = loop.node.iter.args
        variable, call = loop.variable, kernel.text(loop.node.iter.func)
        if loop.kind == "range" and len(given) == 3:
            first, end, step = (kernel.constant(one) for one in given)
            if first is None or end is None or step is None or step <= 0:
                raise _refused(loop.line, "the range is not known")
            trips, by = -(-(end - first) // step), kernel.text(given[2])
            by = by if isinstance(given[2], ast.Name | ast.Constant) else f"({by})"
            header = f"{call}({kernel.text(given[0])}, {kernel.text(given[1])}, {self.factor} * {by})"
            at = [variable, f"({variable} + {by})"]
            at += [f"({variable} + {number} * {by})" for number in range(2, self.factor)]
        elif loop.kind in ("range", "affine_range") and len(given) == 1 and loop.trips is not None:
            trips = loop.trips
            header = f"{call}({trips // self.factor})"
            at = [f"({self.factor} * {variable} + {number})" for number in range(self.factor)]
        else:
            raise _refused(loop.line, "it is neither a parallel loop nor a plain range")
        if trips % self.factor:
            raise _refused(loop.line, f"{trips} iterations are no multiple of {self.factor}")
        return f"{loop.indent}for {variable} in {header}:\n", at

    def _check_sharing(self) -> None:
        """Refuse iterations that share anything: only then does their order not matter."""
        kernel, loop = self.kernel, self.loop
        statements = list(loop.statements())
        stored = [one.target.name for one in statements if one.op == "store" and one.target is not None]
        if len(set(stored)) < len(stored):
            raise _refused(loop.line, "two statements store to one tensor")
        if any(access.name in stored for one in statements for access in one.mentions):
            raise _refused(loop.line, "it loads from what it stores to")
        bound = {name for one in statements if (name := _bound(one))}
        for one in kernel.statements:
            if not inside(one, loop) and bound & {name.id for name in names_in(one.node)}:
                raise _refused(one.line, "a tile of the loop is used elsewhere")

    def _statement(self, one: Statement) -> None:
        if one.kind == "marker":
            self._lines.append(f"{one.indent}{self.kernel.source[one.start : one.end]}\n")
        elif one.kind == "declaration":
            self._declare(one)
        elif one.kind == "op" and one.op in ("load", "store"):
            self._transfer(one)
        elif one.kind == "op" and one.op in _BY_ELEMENT:
            self._element_wise(one)
        else:
            self._view(one)

    def _declare(self, one: Statement) -> None:
        """Note a tile. Its new tiles are declared where they are first written."""
        kernel = self.kernel
        assert one.target is not None
        name, buffer = one.target.name, kernel.buffers.get(one.target.name)
        if buffer is None or buffer.declaration is not one or one.op != "ndarray" or buffer.space != "sbuf":
            raise _refused(one.line, f"{name} is not a plain tile in SBUF")
        rows, columns = buffer.shape if len(buffer.shape) == 2 else (None, None)
        if rows is None or columns is None or rows % self.rows or rows > _PARTITIONS:
            raise _refused(one.line, f"the shape of {name} is not {self.rows} or {2 * self.rows} rows of columns")
        dtype = kernel.text_of(one, "dtype")
        of = self._known.get(dtype.removesuffix(".dtype"))
        self._known[name] = _Tile(name, columns, of.dtype if of is not None else dtype, rows // self.rows)

    def _view(self, one: Statement) -> None:
        """Note a name for a part of a tile."""
        name = _bound(one)
        value = value_of(one)
        access = self.kernel.access(value) if value is not None else None
        if name is None or access is None or access.name not in self._known:
            raise _refused(one.line, "this statement is not understood")
        self._known[name] = self._part(one, access)

    def _part(self, one: Statement, access: Access) -> _Tile:
        """Return the part of a tile that an access covers: all columns of some new tiles."""
        tile = self._known.get(access.name)
        if tile is None:
            raise _refused(one.line, f"{access.name} is not a tile of the loop")
        if access.dims is None:
            return tile
        if len(access.dims) != 2 or tile.made or tile.first or tile.parts == 0:
            raise _refused(one.line, f"an index of {access.name} is not understood")
        first, count = self._covered(one, access.dims[0].form)
        if access.dims[1].form != Affine.of(Symbol.over(tile.columns, 1, 2)):
            raise _refused(one.line, f"it does not use all columns of {access.name}")
        if first + count > tile.parts:
            raise _refused(one.line, f"it uses rows beyond {access.name}")
        return _Tile(tile.name, tile.columns, tile.dtype, count, first)

    def _covered(self, one: Statement, form: Affine | None) -> tuple[int, int]:
        """Return the first new tile and the number of new tiles that an index over rows covers."""
        ranges = form.ranges if form is not None else ()
        if form is None or len(ranges) != 1 or form != Affine(form.constant) + Affine.of(ranges[0]):
            raise _refused(one.line, "an index over partitions is not understood")
        if (ranges[0].axis, ranges[0].axes) != (0, 2) or ranges[0].extent % self.rows or form.constant % self.rows:
            raise _refused(one.line, f"its partitions are no multiple of {self.rows}")
        return form.constant // self.rows, ranges[0].extent // self.rows

    def _transfer(self, one: Statement) -> None:
        """Write the transfers of each iteration and each new tile, in the old order."""
        kernel = self.kernel
        assert one.target is not None
        source = one.reads.get("src" if one.op == "load" else "value")
        if source is None or len(one.mentions) != 1 or kernel.mask(one) or one.augmented:
            raise _refused(one.line, "this transfer is not understood")
        there = source if one.op == "load" else one.target
        if kernel.space_of(there.name) != "hbm":
            raise _refused(one.line, f"{there.name} is not a tensor in HBM")
        if there.dims is None or not isinstance(there.node, ast.Subscript):
            raise _refused(one.line, f"an index of {there.name} is not understood")
        base, count = self._hbm_rows(one, there)
        if one.op == "load" and one.target.dims is None:
            extents = kernel.extents(source)
            if extents is None or len(extents) != 2 or count != 1 or "dtype" in one.args:
                raise _refused(one.line, f"the shape of {one.target.name} is not known")
            tile = _Tile(one.target.name, extents[1], f"{there.name}.dtype", 1, made=True)
            self._known[one.target.name] = tile
            self._lines.append(self._declaration(one, one.target.name, tile))
        else:
            tile = self._part(one, one.target if one.op == "load" else source)
        if tile.parts != count:
            raise _refused(one.line, f"it moves other rows than {tile.name} has")
        names = [self._place(one, tile, part, writes=one.op == "load") for part in range(count)]
        for number, variable in enumerate(self._variables):
            for part, name in enumerate(names):
                here = f"{name}[{self._rows(self.rows * number)}, {self._columns(tile.columns)}]"
                at = self._there(there, base + self.rows * part, variable)
                kept = [f", {key}={kernel.text(value)}" for key, value in one.args.items() if key == "dtype"]
                language = prefix(kernel, "language")
                moved = f"{here} = {language}.load({at}{''.join(kept)})"
                self._lines.append(
                    f"{one.indent}{moved if one.op == 'load' else f'{language}.store({at}, value={here})'}\n"
                )

    def _hbm_rows(self, one: Statement, there: Access) -> tuple[int, int]:
        """Return the first row in HBM, and how many new tiles the rows fill. The first index is over rows."""
        assert there.dims is not None
        form = there.dims[0].form
        symbols = [symbol for dim in there.dims[1:] if dim.form is not None for symbol in dim.form.ranges]
        if any(dim.form is None for dim in there.dims) or any((s.axis, s.axes) != (1, 2) for s in symbols):
            raise _refused(one.line, f"an index of {there.name} is not understood")
        first, count = self._covered(one, form)
        return first * self.rows, count

    def _there(self, there: Access, row: int, variable: str) -> str:
        """Return the place in HBM of one iteration's rows."""
        places = [self._rows(row)]
        for index in elements(there.node)[1:]:
            edits, (start, end) = Edits(self.kernel.source), self.kernel.span(index)
            for name in names_in(index):
                if name.id == self.loop.variable:
                    edits.replace(*self.kernel.span(name), variable)
            places.append(edits.apply_around(start, end)[1])
        return f"{there.name}[{', '.join(places)}]"

    def _element_wise(self, one: Statement) -> None:
        """Write one statement for the rows of all iterations."""
        kernel = self.kernel
        assert one.target is not None
        variable = self.loop.variable
        if one.second is not None:
            raise _refused(one.line, "it adds up its columns")
        if one.augmented or kernel.mask(one) or any(name.id == variable for name in names_in(one.node)):
            raise _refused(one.line, "it depends on the iteration, or has a mask")
        if len(one.mentions) != len(one.reads) or not one.reads:
            raise _refused(one.line, "this statement is not understood")
        operands = {id(access.node): self._part(one, access) for access in one.reads.values()}
        tiles = list(operands.values())
        if any(tile.parts != 1 for tile in tiles):
            raise _refused(one.line, "it works on more rows than an iteration's")
        edits = Edits(kernel.source)
        for access in one.reads.values():
            tile = operands[id(access.node)]
            edits.replace(*kernel.span(access.node), self._whole(self._place(one, tile, 0, writes=False), tile.columns))
        if one.target.dims is None:
            columns = {tile.columns for tile in tiles}
            if len(columns) != 1:
                raise _refused(one.line, f"the shape of {one.target.name} is not known")
            made = _Tile(one.target.name, tiles[0].columns, f"{one.target.name}.dtype", 1, made=True)
            self._known[one.target.name] = made
        else:
            tile = self._part(one, one.target)
            if tile.parts != 1:
                raise _refused(one.line, "it works on more rows than an iteration's")
            name = self._place(one, tile, 0, writes=True)
            edits.replace(*kernel.span(one.target.node), self._whole(name, tile.columns))
        tail = kernel.source[one.end : kernel.after_line(one.end)]
        self._lines.append(f"{one.indent}{edits.apply_around(one.start, one.end)[1]}{tail}")

    def _place(self, one: Statement, tile: _Tile, part: int, *, writes: bool) -> str:
        """Return the new tile that holds one part of a tile. It is declared where it is first written."""
        if tile.made:
            return tile.name
        key = (tile.name, tile.first + part)
        if key not in self._declared:
            if not writes:
                raise _refused(one.line, f"{tile.name} is read before it is written")
            self._declared[key] = self.kernel.fresh(f"{tile.name}_rows_{tile.first + part}", self._taken)
            self._taken.add(self._declared[key])
            self._lines.append(self._declaration(one, self._declared[key], tile))
        return self._declared[key]

    def _declaration(self, one: Statement, name: str, tile: _Tile) -> str:
        language = prefix(self.kernel, "language")
        shape = f"({language}.par_dim({_PARTITIONS}), {tile.columns})"
        return f"{one.indent}{name} = {language}.ndarray({shape}, dtype={tile.dtype}, buffer={language}.sbuf)\n"

    def _rows(self, first: int) -> str:
        return f"{f'{first} + ' if first else ''}{prefix(self.kernel, 'language')}.arange({self.rows})[:, None]"

    def _columns(self, columns: int) -> str:
        return f"{prefix(self.kernel, 'language')}.arange({columns})[None, :]"

    def _whole(self, name: str, columns: int) -> str:
        language = prefix(self.kernel, "language")
        return f"{name}[{language}.arange({_PARTITIONS})[:, None], {self._columns(columns)}]"


def fewest_rows(kernel: KernelModule, loop: Loop) -> int | None:
    """Return the rows of the lowest tiles that instructions in a loop use, if these can be stacked; None if not."""
    found: set[int] = set()
    for one in loop.statements():
        for access in accesses(one) if one.kind == "op" else ():
            rows = [dim.form for dim in (access.dims or ())[:1]]
            found |= {symbol.extent for form in rows if form is not None for symbol in form.ranges if symbol.axis == 0}
    return min(found) if found and min(found) in _ROWS else None


def _refused(line: int, reason: str) -> RuleRefused:
    return RuleRefused(f"line {line}: {reason}")


def _bound(one: Statement) -> str | None:
    """Return the name that a statement binds."""
    found = assigned(one)
    return found[0] if found is not None else None
