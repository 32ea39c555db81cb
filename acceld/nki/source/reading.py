"""Compute facts about a kernel's source for rules: writers and readers of each tile, positions and shapes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.carried import carried_names
from acceld.nki.source.launches import Launch
from acceld.nki.source.parsing import SourceReader
from acceld.nki.source.syntax import (
    BINARY,
    COPIES,
    LOADS,
    NO_TILES,
    PRODUCTS,
    Access,
    Binary,
    Dim,
    Item,
    Loop,
    Statement,
    accesses,
    bindings,
    flatten,
    known_functions,
    names_in,
    value_of,
    walked,
)

_PER_ROW = {"tensor_reduce": 1, "sum": 1, "max": 1, "bn_stats": 6, "bn_aggr": 2}
"""The number of columns of the result, by operation that reduces all columns of a partition."""
_SHAPED = frozenset({*_PER_ROW, *PRODUCTS, "nc_transpose", "loop_reduce"})
"""Operations whose result has a different shape from their operands."""

_SIZES = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.BinOp, ast.operator, ast.expr_context,
)  # fmt: skip
"""Kinds of nodes of which an expression of sizes consists, such as ``x.shape[1] // 512``."""


class KernelModule(SourceReader):
    """A parsed kernel with facts about it. Raises RuleRefused if the source does not parse or has no kernel
    function.
    """

    def __init__(self, source: str, launch: Launch) -> None:
        super().__init__(source, launch)
        self.ambiguous |= {name for name in self.tiles if self.writers(name)}  # the caller reads what is in them
        for loop in self.loops:
            if loop.kind == "affine_range" and carried_names(loop):
                loop.kind = "sequential_range"
            if loop.kind == "range" and loop.trips is not None and self._is_parallel(loop):
                loop.kind = "affine_range"

    def _is_parallel(self, loop: Loop) -> bool:
        """Tell whether it is proved that the iterations of ``loop`` are independent.

        Each iteration may write only tiles that it declares itself, and elements of other buffers that no other
        iteration writes or reads.
        """
        statements = loop.statements()
        if any(one.kind in ("other", "return") for one in statements) or carried_names(loop):
            return False
        if self.left_behind and any(
            one.id in self.left_behind for one in names_in(loop.node) if isinstance(one.ctx, ast.Store)
        ):
            return False
        written = {access.name for one in statements if one.kind == "op" for access in one.results}
        return not written & self.ambiguous and all(self._is_apart(name, loop, statements) for name in written)

    def _is_apart(self, name: str, loop: Loop, statements: Sequence[Statement]) -> bool:
        """Tell whether no two iterations of ``loop`` use the same element of the tile or tensor ``name``."""
        uses = self.uses[name]
        if all(statement in statements for statement, _ in uses):
            if name in self.buffers:
                if self.buffers[name].declaration in statements:
                    return True
            elif name not in self.parameters:
                first = uses[0][0]
                return (
                    first.target is not None
                    and first.target.name == name
                    and not first.augmented
                    and not first.target.dims
                )
        inside = [access for statement, access in uses if statement in statements]
        patterns = [one for access in inside if (one := self._by_addresses(access)) is not None]
        if len(patterns) == len(inside):
            inside = patterns
        axes = min((len(access.dims or ()) for access in inside), default=0)
        moving = frozenset({loop.variable, *(one.variable for one in loop.loops())})
        return any(_is_apart_along(axis, loop.variable, inside, self.trips, moving) for axis in range(axes))

    def given_pattern(self, access: Access) -> tuple[list[tuple[ast.expr, ast.expr]], ast.expr | None] | None:
        """Return the pairs (step, count) and the offset of an access by a pattern, such as ``x.ap(pattern=[[512, 128], [1,
        512]], offset=n)``. Return None for another access, or if the pattern is not written out or has other arguments.
        """
        match access.node:
            case ast.Call(func=ast.Attribute(attr="ap")) as call:
                given = self._arguments(call, ("pattern", "offset"))
            case _:
                return None
        pattern, offset = given.pop("pattern", None), given.pop("offset", None)
        if given or not isinstance(pattern, ast.List | ast.Tuple) or not pattern.elts:
            return None
        pairs = [one.elts for one in pattern.elts if isinstance(one, ast.List | ast.Tuple) and len(one.elts) == 2]
        return ([(one[0], one[1]) for one in pairs], offset) if len(pairs) == len(pattern.elts) else None

    def _by_addresses(self, access: Access) -> Access | None:
        """Return an access by a pattern as an access of a contiguous range of memory that has all of the pattern's
        elements.

        Return None for an access without a pattern, or if a number is not known.
        """
        given = self.given_pattern(access)
        if given is None:
            return None
        pairs, offset = given
        begin, size = Affine() if offset is None else self.affine(offset), 1
        if begin is None or begin.ranges:
            return None
        for step, count in ((self.constant(one), self.constant(other)) for one, other in pairs):
            if step is None or count is None or step < 0 or count < 1:
                return None
            size += step * (count - 1)
        return Access(access.name, (Dim(begin, size),), access.node)

    def reread(self, source: str) -> KernelModule:
        """Return the source ``source`` of the same kernel, parsed for the same launch."""
        return kernel_module(source, replace(self.launch, entry=self.function.name))

    @cached_property
    def _asked(self) -> set[str]:
        """Return the names whose shapes are being computed now.

        :meth:`_whole` gives None for a name in this set, because the shape of a tile that is made from itself could not
        be computed.
        """
        return set()

    @cached_property
    def statements(self) -> list[Statement]:
        """Return all statements of the kernel, in source order."""
        return list(flatten(self.items))

    @cached_property
    def loops(self) -> list[Loop]:
        """Return all loops of the kernel, in order, outer loops before inner ones."""
        found: list[Loop] = []
        for item in self.items:
            if isinstance(item, Loop):
                found += [item, *item.loops()]
        return found

    @property
    def bodies(self) -> list[list[Item]]:
        """Return the lists of items in the function's body and in the body of each loop."""
        return [self.items, *(loop.items for loop in self.loops)]

    def beside(self, item: Item) -> list[Item]:
        """Return all items of the body that contains ``item``, with ``item`` among them."""
        return self.items if item.parent is None else item.parent.items

    @cached_property
    def _writers(self) -> dict[str, list[Statement]]:
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in {access.name for access in statement.results} if statement.kind in ("op", "other") else ():
                found.setdefault(name, []).append(statement)
        return found

    @cached_property
    def _readers(self) -> dict[str, list[Statement]]:
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in {access.name for access in statement.mentions}:
                found.setdefault(name, []).append(statement)
        return found

    @cached_property
    def uses(self) -> dict[str, list[tuple[Statement, Access]]]:
        """Return all accesses of each tile and tensor by name, in order, each with its statement."""
        found: dict[str, dict[int, tuple[Statement, Access]]] = {}
        for statement in self.statements:
            for access in accesses(statement):
                found.setdefault(access.name, {})[id(access.node)] = (statement, access)
        return {name: list(each.values()) for name, each in found.items()}

    @cached_property
    def named(self) -> Counter[str]:
        """Return the number of times that each name occurs in the kernel."""
        return Counter(node.id for node in names_in(self.function))

    def writers(self, name: str) -> list[Statement]:
        """Return the statements that write the tile or tensor ``name``. Its declaration does not count."""
        return self._writers.get(name, [])

    def readers(self, name: str) -> list[Statement]:
        """Return the statements that read the tile or tensor ``name``."""
        return self._readers.get(name, [])

    def variables_of(self, access: Access) -> frozenset[str] | None:
        """Return the loop variables in the indices of an access, or in the numbers of its pattern (``x.ap(...)``); None
        if a number is not understood.
        """
        match access.node:
            case ast.Call(func=ast.Attribute(attr="ap"), args=args, keywords=named):
                numbers = [*args, *(one.value for one in named)]
            case _:
                return access.variables
        found: set[str] = set()
        for name in (one for number in numbers for one in names_in(number) if one.id not in NO_TILES):
            form = self.affine(name)
            if form is None:
                return None
            found |= form.variables
        return frozenset(found)

    def space_of(self, name: str) -> str:
        """Return the memory of a tile or tensor: ``hbm``, ``sbuf`` or ``psum``; empty if it is not known."""
        if self.is_tensor(name):
            return "hbm"
        if name in self.buffers:
            space = self.buffers[name].space
            return "hbm" if space.endswith("hbm") else space
        if name in self.tiles or name in self.returned:
            return self.tiles.get(name) or self.returned[name].memory
        writers = self.writers(name)
        if any(writer.kind == "other" for writer in writers):
            return ""  # for example a tile that a function of another file returns
        doubtful = self.api == "nki" and name in self.doubts and "psum" in self.source
        other = "" if doubtful else "sbuf"  # a branch may declare the tile in PSUM
        spaces = {"psum" if writer.op in (*PRODUCTS, "nc_transpose") else other for writer in writers}
        return spaces.pop() if len(spaces) == 1 else ""

    def stored(self, statement: Statement) -> Access | None:
        """Return the access whose values a statement stores to HBM; None if the statement stores nothing."""
        if (
            statement.op == "dma_copy"
            and statement.target is not None
            and self.space_of(statement.target.name) == "hbm"
        ):
            return statement.reads.get("src")
        return statement.reads.get("value") if statement.op == "store" else None

    def is_zero(self, node: ast.expr | None) -> bool:
        """Tell whether an operand is missing, is the number zero, or is a tile that is filled with zeros."""
        if node is None or (isinstance(node, ast.Constant) and node.value is None) or self.number(node) == 0:
            return True
        access = self.access(node)
        if access is None:
            return False
        writers = self.writers(access.name)
        return len(writers) == 1 and writers[0].op == "memset" and self.number(writers[0].args.get("value")) == 0

    def text_of(self, statement: Statement, argument: str) -> str:
        """Return the source text of the argument ``argument``; empty if the statement does not give it."""
        node = statement.args.get(argument)
        return "" if node is None else self.text(node)

    def declaration(self, name: str) -> Statement | None:
        """Return the statement that declares the tile or tensor ``name``; None if no statement does."""
        return self.buffers[name].declaration if name in self.buffers else None

    def declared_dtype(self, name: str) -> str:
        """Return the dtype in the declaration of the tile or tensor ``name`` as source text; empty if the declaration
        gives no dtype.
        """
        declaration = self.declaration(name)
        return "" if declaration is None else self._dtype_text(declaration)

    def _dtype_text(self, statement: Statement) -> str:
        """Return the dtype that a statement gives, as source text. A name that the file gives to a dtype stands for it."""
        text = self.text_of(statement, "dtype")
        if isinstance(statement.args.get("dtype"), ast.IfExp):
            return f"({text})"  # one dtype or another one
        return self._named_dtypes.get(text, text)

    @cached_property
    def _named_dtypes(self) -> dict[str, str]:
        """Return the text of the dtype for each name that the file binds once, to a dtype, as ``F32, I32 = nl.float32, nl.int32``."""
        found: dict[str, str] = {}
        for node in walked(self.module):
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(
                    values
                ):
                    pairs = zip(names, values, strict=True)
                case ast.Assign(targets=[ast.Name() as one], value=value):
                    pairs = zip([one], [value], strict=True)
                case _:
                    continue
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.Attribute) and value.attr in DTYPE_BYTES:
                    found[name.id] = self.text(value)
        once = bindings(self.module) if found else {}
        return {name: text for name, text in found.items() if once[name] == 1 and name not in self.parameters}

    def dtype_of(self, name: str) -> str:
        """Return the dtype of a tile or tensor without its module, such as ``float32``; empty if it is not known.

        The dtype comes from the kernel's arguments, from the declaration, or from the single load or copy that writes
        the tile.
        """
        seen = set[str]()
        while name not in seen and name not in self.ambiguous:
            seen.add(name)
            if name in self.dtypes:
                return self.dtypes[name]
            makers = [one] if (one := self.declaration(name)) is not None else self.writers(name)
            if len(makers) != 1 or makers[0].kind == "other" or makers[0].augmented or makers[0].made.name != name:
                return ""
            if name in self.returned:
                return self.returned[name].dtype
            given, source = self._dtype_text(makers[0]), makers[0].reads.get("src")
            if given and not given.endswith(".dtype"):
                return given.rpartition(".")[2]
            if not given and (source is None or makers[0].op not in (*LOADS, *COPIES)):
                return ""
            name = given.removesuffix(".dtype") if given or source is None else source.name
        return ""

    def folds_columns(self, statement: Statement) -> bool:
        """Tell whether a reduction reduces the columns alone, as its argument ``axis`` says."""
        return self.text_of(statement, "axis").strip("[](), ") in ("1", "-1")

    def is_column(self, access: Access) -> bool:
        """Tell whether an operand is known to have one element in each partition."""
        match access.dims:
            case (Dim(span=(_, _)), last):  # some partitions of a tile
                return last.extent == 1
            case (_, Dim(extent=1)) if access.name in self.returned and self.returned[access.name].shape is None:
                return True
        shape = self.extents(access)
        return shape is not None and shape[-1] == 1

    def extents(self, access: Access) -> tuple[int, ...] | None:
        """Return the shape of the tile that an access covers, partitions first; None if it is not known."""
        if access.dims is not None:
            widths = [dim.width for dim in access.dims]
            if any(dim.full for dim in access.dims):
                whole = self._whole(access.name)
                if whole is None or len(whole) != len(widths):
                    return None
                widths = [w if dim.full else width for w, width, dim in zip(whole, widths, access.dims, strict=True)]
            if any(width is None for width in widths):
                return None
            kept = [
                w
                for w, dim in zip(widths, access.dims, strict=True)
                if w is not None and (dim.full or dim.extent is not None or (dim.form is not None and dim.form.ranges))
            ]
            return (*kept, 1) if len(kept) == 1 else tuple(kept) or None
        if access.name in self.buffers:
            buffer = self.buffers[access.name]
            known = [extent for extent in buffer.shape[buffer.partition_axis :] if extent is not None]
            return tuple(known) if len(known) == len(buffer.shape) - buffer.partition_axis else None
        whole = self._whole(access.name)
        return None if whole is None or None in whole else tuple(extent for extent in whole if extent is not None)

    def forms(self, access: Access) -> tuple[Affine | None, ...]:
        """Return the indices of an access as affine forms. A slice, or an axis of a whole tile, becomes an index range.

        An index that is not understood is None in the tuple. For a whole tile of unknown shape the tuple is empty.
        """
        if access.dims is None:
            dims = [Dim(Affine(), extent) for extent in self.extents(access) or ()]
        else:
            whole = dict(enumerate(self._whole(access.name) or ()))
            axes = [Dim(Affine() if whole.get(i) else None, whole.get(i)) for i in range(len(access.dims))]
            dims = [axis if dim.full else dim for dim, axis in zip(access.dims, axes, strict=True)]
            dims = [Dim(None) if dim.unsized else dim for dim in dims]
        is_axis = [dim.extent is not None or bool(dim.form and dim.form.ranges) for dim in dims]
        return tuple(
            dim.form + Affine.of(Symbol.over(dim.extent, sum(is_axis[:i]), sum(is_axis)))
            if dim.form is not None and dim.extent is not None
            else dim.form
            for i, dim in enumerate(dims)
        )

    def _whole(self, name: str) -> tuple[int | None, ...] | None:
        """Return the full shape of the buffer or tile ``name``, with None for unknown extents; None if its rank
        is not known.
        """
        if name in self.parameters or name in self.other_shapes:
            return self.shapes.get(name)
        if name in self.buffers:
            return self.buffers[name].shape
        if name in self.returned:
            return self.returned[name].shape
        writers = self.writers(name)
        if not writers or writers[0].target is None or writers[0].target.name != name or name in self._asked:
            return None
        self._asked.add(name)  # this ends the recursion for a tile that is made from itself
        try:
            return self.tile_shape(writers[0])
        finally:
            self._asked.remove(name)

    def tile_shape(self, statement: Statement) -> tuple[int, ...] | None:
        """Return the shape of the tile that a statement writes; None if it is not known."""
        target = statement.target
        if target is not None and (target.dims is not None or target.name in self.buffers):
            return self.extents(target)
        if statement.op in ("load", "load_transpose2d"):
            shape = self.extents(statement.reads["src"]) if "src" in statement.reads else None
            return shape[::-1] if shape is not None and statement.op == "load_transpose2d" else shape
        if statement.op == "broadcast_to":
            call = value_of(statement)
            found = self.known_shape(call.args[0]) if isinstance(call, ast.Call) and len(call.args) == 1 else None
            return None if found is None or None in found else tuple(extent for extent in found if extent is not None)
        if statement.op in _SHAPED:
            return self._made(statement)
        if statement.op not in known_functions(self.api) and statement.op not in ("expression", "accumulate"):
            return None
        operands = [
            access
            for name, access in statement.reads.items()
            if name in ("x", "y", "data", "data1", "data2", "data0", "src")
        ]
        shapes = [self.extents(access) for access in (statement.mentions if statement.op == "expression" else operands)]
        known = [shape for shape in shapes if shape is not None]
        return max(known, key=lambda shape: (shape[1:], shape[0])) if known and len(known) == len(shapes) else None

    def _made(self, statement: Statement) -> tuple[int, ...] | None:
        operands = [self.extents(access) for access in statement.reads.values()]
        if not operands or any(shape is None or len(shape) != 2 for shape in operands):
            return None
        first, *rest = [shape for shape in operands if shape is not None]
        if statement.op in _PER_ROW:
            return (first[0], _PER_ROW[statement.op])
        if statement.op == "nc_transpose":
            return (first[1], first[0])
        if statement.op == "loop_reduce":
            return first
        rows = first[0] if statement.op == "matmul" and self.text_of(statement, "transpose_x") != "True" else first[1]
        return (rows, rest[0][1]) if rest else None

    def binary(self, statement: Statement) -> Binary | None:
        """Return the operator and the operands of an element-wise operation, such as ``nl.multiply(x, y)`` or
        ``nisa.tensor_tensor(data1, data2, op)``; None for other statements.
        """
        if statement.op == "tensor_tensor":
            return Binary(self.opname(statement.args.get("op")), "data1", "data2")
        return Binary(statement.op, "x", "y") if statement.op in BINARY else None

    def factors(self, statement: Statement) -> tuple[Access, Access] | None:
        """Return the two tiles that a statement multiplies element by element; None for other statements."""
        pair = self.binary(statement)
        if pair is None or pair.op != "multiply":
            return None
        left, right = statement.reads.get(pair.left), statement.reads.get(pair.right)
        return None if left is None or right is None else (left, right)

    def size(self, node: ast.expr, number: int) -> str:
        """Return ``number`` as source text that is valid anywhere from the kernel's first loop on.

        The text is the expression ``node``, such as ``width // 512``, so that a rewritten kernel fits other shapes as
        well. If a name in ``node`` may have another value elsewhere, the text is the digits of ``number``.
        """
        plain = all(isinstance(one, _SIZES) for one in ast.walk(node))
        return self.text(node) if plain and all(one.id in self._steady for one in names_in(node)) else str(number)

    def count(self, loop: Loop) -> str:
        """Return a loop's number of iterations as source text: an expression where :meth:`size` allows one, else
        digits.
        """
        assert isinstance(loop.node.iter, ast.Call) and loop.trips is not None
        return self.size(loop.node.iter.args[0], loop.trips)

    def multiple(self, loop: Loop, size: int) -> str:
        """Return ``size`` times a loop's number of iterations as source text."""
        count = self.count(loop)
        return str(size * int(count)) if count.isdecimal() else f"{size} * ({count})"

    def share(self, loop: Loop, divisor: int) -> str:
        """Return a loop's number of iterations divided by ``divisor`` as source text. The division must leave no
        remainder.
        """
        count = self.count(loop)
        return str(int(count) // divisor) if count.isdecimal() else f"({count}) // {divisor}"

    @cached_property
    def _steady(self) -> set[str]:
        """Return the names whose value does not change from the kernel's first loop on."""
        bound = Counter(node.id for node in names_in(self.function) if isinstance(node.ctx, ast.Store))
        first = next((at for at, one in enumerate(self.function.body) if isinstance(one, ast.For)), None)
        before = [one for one in self.function.body[:first] if isinstance(one, ast.Assign)]
        early = {node.id for one in before for target in one.targets for node in names_in(target)}
        outside = {*self.constants, *self.aliases, *self.parameters}
        return {name for name in early if bound[name] == 1} | {name for name in outside if not bound[name]}

    def mask(self, statement: Statement) -> str:
        """Return the source text of a statement's mask; empty if it has none."""
        node = statement.args.get("mask")
        return "" if node is None or self.text(node) == "None" else self.text(node)

    def opname(self, node: ast.expr | None) -> str:
        """Return an operator's name without its module: ``multiply`` for ``nl.multiply``; empty if ``node`` is None."""
        return "" if node is None else self.text(node).rsplit(".", 1)[-1]


def _is_apart_along(
    axis: int,
    variable: str,
    accesses: Sequence[Access],
    trips: Mapping[str, int | None],
    moving: frozenset[str],
) -> bool:
    """Tell whether the iterations of the loop ``variable`` use separate ranges of axis ``axis``: from one iteration
    to the next, the range that all ``accesses`` cover moves on by at least its own width.

    ``moving`` has the variables of the loop and of the loops inside it. Any other number, such as an outer loop's
    variable, is the same in all iterations, and may shift all accesses by the same distance.
    """
    steps, least, most = set[int](), set[int](), set[int]()
    begins = [access.dims[axis].begin for access in accesses if access.dims is not None]
    shifts = {None if begin is None else begin.without(moving) for begin in begins}
    shift = shifts.pop() if len(shifts) == 1 else None
    for access in accesses:
        assert access.dims is not None
        dim = access.dims[axis]
        known = dim.begin is not None and not dim.full and (dim.span is not None or not dim.unsized)
        step = dim.begin.coefficient(variable) if dim.begin is not None and known else None
        reached = dim.reach(trips, variable) if step else None
        if step is None or reached is None or reached[0] < 0:
            return False
        if shift is not None:
            reached = dim.reach(trips, variable, shift) or reached
        steps.add(step)
        least.add(reached[0])
        most.add(reached[1])
    return len(steps) == 1 and max(most) - min(least) < abs(steps.pop())


@lru_cache(maxsize=64)
def kernel_module(source: str, launch: Launch) -> KernelModule:
    """Return ``source``, parsed. Results are cached, because rewrites in several steps read the same text again and
    again.
    """
    return KernelModule(source, launch)
