"""A kernel's source as loops, tile operations and buffers, for rules to reason about.

Parsed with libcst, so that every record knows the exact span of text behind it. What is not understood is kept as an
opaque statement, and rules refuse where one is in the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from acceld.proposers.rules.affine import Affine, Symbol
from acceld.proposers.rules.records import RuleRefused

LOOPS = ("affine_range", "sequential_range", "static_range", "range")
DECLARATIONS = ("ndarray", "zeros", "full", "ones", "shared_constant")
BINARY = "add subtract multiply divide maximum minimum power".split()
UNARY = "exp log sqrt rsqrt square tanh sigmoid silu gelu relu erf sin cos reciprocal negative abs".split()

_LEGACY: dict[str, tuple[str, ...]] = {
    "load": ("src",),
    "store": ("dst", "value"),
    "copy": ("src",),
    "tensor_copy": ("src",),
    "activation": ("op", "data"),
    "activation_reduce": ("op", "data"),
    "tensor_scalar": ("data", "op0", "operand0", "reverse0", "op1", "operand1", "reverse1"),
    "tensor_tensor": ("data1", "data2", "op"),
    "tensor_reduce": ("op", "data", "axis"),
    "reciprocal": ("data",),
    "nc_matmul": ("stationary", "moving"),
    "nc_transpose": ("data",),
    "matmul": ("x", "y", "transpose_x"),
    "loop_reduce": ("x", "op", "loop_indices"),
    "tensor_tensor_scan": ("data0", "data1", "initial", "op0", "op1"),
    "memset": ("shape", "value", "dtype"),
    "sum": ("x", "axis"),
    "max": ("x", "axis"),
    "scalar_tensor_tensor": ("data", "op0", "operand0", "op1", "operand1"),
    **dict.fromkeys(BINARY, ("x", "y")),
    **{name: ("x",) for name in UNARY if name != "reciprocal"},
}
"""Names of positional parameters."""
_CURRENT: dict[str, tuple[str, ...]] = {
    "dma_copy": ("dst", "src"),
    "memset": ("dst", "value"),
    "activation": ("dst", "op", "data"),
    "tensor_reduce": ("dst", "op", "data", "axis"),
    **{
        name: ("dst", *_LEGACY[name])
        for name in (
            "tensor_copy tensor_scalar tensor_tensor reciprocal nc_matmul nc_transpose tensor_tensor_scan "
            "scalar_tensor_tensor activation_reduce"
        ).split()
    },
}
_NO_TILES = frozenset("None True False np numpy nl nisa nki nt math".split())
_TILE_SIZES = {"pmax": 128, "gemm_stationary_fmax": 128, "gemm_moving_fmax": 512, "psum_fmax": 512}


@dataclass(frozen=True, slots=True)
class Dim:
    """One index of an access: an affine form; ``extent`` is set where it is a slice rather than a grid index."""

    form: Affine | None
    extent: int | None = None
    text: str = ""
    full: bool = False
    """``:``; ``extent`` may be unknown then."""

    @property
    def width(self) -> int | None:
        """Elements it covers: the product of its ranges' extents, 1 for a point, None if unknown."""
        if self.extent is not None:
            return self.extent
        if self.form is None:
            return None
        width = 1
        for symbol in self.form.ranges:
            width *= symbol.extent
        return width


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer or tile as it stands in an expression; ``dims`` None means all of it."""

    name: str
    dims: tuple[Dim, ...] | None
    node: cst.BaseExpression

    @property
    def variables(self) -> frozenset[str] | None:
        """Loop variables in the indices; None where an index is not understood."""
        found: set[str] = set()
        for dim in self.dims or ():
            if dim.form is None:
                return None
            found |= dim.form.variables
        return frozenset(found)

    def same_as(self, other: Access) -> bool:
        """Whether both name the same elements of the same buffer, provably."""
        if self.name != other.name or (self.dims is None) != (other.dims is None):
            return False
        if self.dims is None or other.dims is None:
            return True
        if len(self.dims) != len(other.dims):
            return False
        pairs = zip(self.dims, other.dims, strict=True)
        return all(a.form is not None and a.form == b.form and a.extent == b.extent for a, b in pairs)


@dataclass(slots=True, eq=False)
class Loop:
    """A ``for`` over a range."""

    node: cst.For
    variable: str
    kind: str
    trips: int | None
    line: int
    start: int
    end: int
    indent: str
    parent: Loop | None
    items: list[Item] = field(default_factory=list)

    def statements(self) -> Iterator[Statement]:
        """Every statement inside, in order."""
        yield from flatten(self.items)

    def loops(self) -> Iterator[Loop]:
        """Every loop inside, outermost first."""
        for item in self.items:
            if isinstance(item, Loop):
                yield item
                yield from item.loops()


@dataclass(slots=True, eq=False)
class Statement:
    """One simple statement. ``kind``: op, declaration, alias, marker (a string), or other."""

    node: cst.SimpleStatementLine
    kind: str
    line: int
    start: int
    end: int
    indent: str
    parent: Loop | None
    op: str = ""
    namespace: str = ""
    target: Access | None = None
    augmented: bool = False
    args: dict[str, cst.BaseExpression] = field(default_factory=dict)
    reads: dict[str, Access] = field(default_factory=dict)
    """Accesses by argument, where the whole argument is one access."""
    mentions: list[Access] = field(default_factory=list)
    """Every access the statement reads, also inside expressions."""


Item = Loop | Statement


@dataclass(frozen=True, slots=True)
class Buffer:
    """A declared tensor. ``shape`` holds None for extents that are not known here."""

    name: str
    shape: tuple[int | None, ...]
    space: str
    partition_axis: int
    declaration: Statement


def flatten(items: Sequence[Item]) -> Iterator[Statement]:
    """Every statement in ``items``, in order."""
    for item in items:
        if isinstance(item, Loop):
            yield from flatten(item.items)
        else:
            yield item


class KernelModule:
    """A kernel's source, read. Raises RuleRefused where there is no kernel function or the source does not parse.

    ``shapes`` gives shapes of tensor arguments by parameter position, so that ``x.shape`` can be understood.
    """

    def __init__(self, source: str, api: str, shapes: Sequence[tuple[int, ...] | None] = (), entry: str = "") -> None:
        self.source, self.api = source, api
        try:
            wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        except cst.ParserSyntaxError as error:
            raise RuleRefused(f"the source does not parse: {error}") from error
        self.module = wrapper.module
        self._positions = wrapper.resolve(PositionProvider)
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self.function = self._find(entry)
        self.parameters = [p.name.value for p in self.function.params.params]
        self.shapes = dict(zip(self.parameters, shapes, strict=False))
        self.aliases: dict[str, cst.BaseExpression] = {}
        self.constants: dict[str, int] = {}
        self.buffers: dict[str, Buffer] = {}
        self._ambiguous: set[str] = set()
        self.loop_variables: set[str] = set()
        self.items: list[Item] = self._body(self.function.body, None)

    # reading

    def _find(self, entry: str) -> cst.FunctionDef:
        functions = [node for node in self.module.body if isinstance(node, cst.FunctionDef)]
        jitted = [f for f in functions if any("jit" in self.text(d.decorator) for d in f.decorators)]
        for wanted in (entry, "kernel", "optimized_kernel"):
            for function in functions:
                if wanted and function.name.value == wanted:
                    return function
        if len(jitted) == 1:
            return jitted[0]
        raise RuleRefused("there is no kernel function")

    def text(self, node: cst.CSTNode) -> str:
        """The source of ``node``."""
        return self.module.code_for_node(node)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Offsets of the text behind ``node``."""
        where = self._positions[node]
        return (
            self._line_starts[where.start.line - 1] + where.start.column,
            self._line_starts[where.end.line - 1] + where.end.column,
        )

    def line(self, node: cst.CSTNode) -> int:
        """Line ``node`` starts on, from 1."""
        return int(self._positions[node].start.line)

    def _body(self, body: cst.BaseSuite, parent: Loop | None) -> list[Item]:
        items: list[Item] = []
        for node in body.body:
            if isinstance(node, cst.For) and (loop := self._loop(node, parent)) is not None:
                items.append(loop)
            elif isinstance(node, cst.SimpleStatementLine):
                items.append(self._statement(node, parent))
            else:
                start, end = self.span(node)
                items.append(
                    Statement(node, "other", self.line(node), start, end, self._indent(start), parent)  # type: ignore[arg-type]
                )
        return items

    def _indent(self, start: int) -> str:
        return self.source[self.source.rfind("\n", 0, start) + 1 : start]

    def _loop(self, node: cst.For, parent: Loop | None) -> Loop | None:
        if not isinstance(node.target, cst.Name) or not isinstance(node.iter, cst.Call) or node.orelse:
            return None
        kind = self.text(node.iter.func).rsplit(".", 1)[-1]
        if kind not in LOOPS:
            return None
        arguments = node.iter.args
        trips = self.constant(arguments[0].value) if len(arguments) == 1 else None
        start, end = self.span(node)
        name = node.target.value
        loop = Loop(node, name, kind, trips, self.line(node), start, end, self._indent(start), parent)
        self.loop_variables.add(name)
        loop.items = self._body(node.body, loop)
        return loop

    def _statement(self, node: cst.SimpleStatementLine, parent: Loop | None) -> Statement:
        start, end = self.span(node)
        statement = Statement(node, "other", self.line(node), start, end, self._indent(start), parent)
        if len(node.body) != 1:
            return statement
        small = node.body[0]
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString | cst.ConcatenatedString):
            statement.kind = "marker"
        elif isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            self._operation(statement, None, small.value)
        elif isinstance(small, cst.Assign) and len(small.targets) == 1:
            self._assignment(statement, small.targets[0].target, small.value)
        elif isinstance(small, cst.AugAssign) and isinstance(small.operator, cst.AddAssign):
            statement.augmented = True
            statement.target = self.access(small.target)
            if isinstance(small.value, cst.Call):
                self._operation(statement, small.target, small.value)
            elif statement.target is not None:
                statement.kind, statement.op, statement.args = "op", "accumulate", {"x": small.value}
                self._reads(statement)
        elif isinstance(small, cst.Import | cst.ImportFrom | cst.Pass | cst.Assert):
            statement.kind = "marker"
        if statement.kind == "other":
            statement.mentions = self._mentioned(node)
        return statement

    def _assignment(self, statement: Statement, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, cst.Tuple):
            self._shape(target, value)
            statement.kind = "alias"
            return
        if isinstance(target, cst.Name):
            name = target.value
            if isinstance(value, cst.Call) and self._callee(value) in DECLARATIONS:
                self._declare(statement, name, value)
                return
            if self.affine(value) is not None or self.constant(value) is not None:
                statement.kind = "alias"
                if name in self.aliases or name in self.buffers:
                    self._ambiguous.add(name)
                self.aliases[name] = value
                return
        if isinstance(value, cst.Call):
            self._operation(statement, target, value)
        elif isinstance(value, cst.BinaryOperation) and isinstance(target, cst.Name):
            statement.kind, statement.op, statement.target = "op", "expression", self.access(target)
            statement.args = {"x": value}
            self._reads(statement)

    def _shape(self, target: cst.Tuple, value: cst.BaseExpression) -> None:
        shape = self._known_shape(value)
        for position, element in enumerate(target.elements):
            if isinstance(element.value, cst.Name) and shape and position < len(shape) and shape[position] is not None:
                self.constants[element.value.value] = int(shape[position] or 0)

    def _known_shape(self, value: cst.BaseExpression) -> tuple[int | None, ...] | None:
        if isinstance(value, cst.Tuple | cst.List):
            return tuple(self.constant(element.value) for element in value.elements)
        if isinstance(value, cst.Attribute) and value.attr.value == "shape" and isinstance(value.value, cst.Name):
            name = value.value.value
            if name in self.buffers:
                return self.buffers[name].shape
            return self.shapes.get(name)
        return None

    def _callee(self, call: cst.Call) -> str:
        return self.text(call.func).rsplit(".", 1)[-1]

    def _declare(self, statement: Statement, name: str, call: cst.Call) -> None:
        statement.kind, statement.op = "declaration", self._callee(call)
        statement.args = self._arguments(call, {statement.op: ("shape", "dtype")})
        statement.target = Access(name, None, call)
        if name in self.buffers:
            self._ambiguous.add(name)
        shape: list[int | None] = []
        axis = 0
        given = statement.args.get("shape")
        if isinstance(given, cst.Tuple | cst.List):
            for position, element in enumerate(given.elements):
                value = element.value
                if isinstance(value, cst.Call) and self._callee(value) == "par_dim" and value.args:
                    axis, value = position, value.args[0].value
                shape.append(self.constant(value))
        elif given is not None:
            shape = list(self._known_shape(given) or ())
        space = self.text(statement.args["buffer"]).rsplit(".", 1)[-1] if "buffer" in statement.args else "sbuf"
        if statement.op == "shared_constant":
            space = "hbm"
        self.buffers[name] = Buffer(name, tuple(shape), space, axis, statement)

    def _arguments(self, call: cst.Call, names: Mapping[str, tuple[str, ...]]) -> dict[str, cst.BaseExpression]:
        positional = names.get(self._callee(call), ())
        found: dict[str, cst.BaseExpression] = {}
        for position, argument in enumerate(call.args):
            if argument.keyword is not None:
                found[argument.keyword.value] = argument.value
            elif position < len(positional):
                found[positional[position]] = argument.value
            else:
                found[f"argument{position}"] = argument.value
        return found

    def _operation(self, statement: Statement, target: cst.BaseExpression | None, call: cst.Call) -> None:
        op = self._callee(call)
        names = _CURRENT if self.api == "nki" else _LEGACY
        if op == "broadcast_to" and isinstance(call.func, cst.Attribute) and target is not None:
            statement.kind, statement.op, statement.target = "op", op, self.access(target)
            statement.args = {"x": call.func.value}
            self._reads(statement)
            return
        statement.kind, statement.op = "op", op
        statement.namespace = self.text(call.func).rsplit(".", 1)[0] if "." in self.text(call.func) else ""
        statement.args = self._arguments(call, names)
        destination = target if target is not None else statement.args.pop("dst", None)
        statement.target = self.access(destination) if destination is not None else None
        if statement.target is None or op not in names:
            statement.kind = "other"
        self._reads(statement)

    def _reads(self, statement: Statement) -> None:
        for name, value in statement.args.items():
            access = self.access(value)
            if access is not None:
                statement.reads[name] = access
            statement.mentions += self._mentioned(value)
        if statement.augmented and statement.target is not None:
            statement.mentions.append(statement.target)

    def _mentioned(self, node: cst.CSTNode) -> list[Access]:
        found: list[Access] = []

        def walk(one: cst.CSTNode) -> None:
            if isinstance(one, cst.Attribute):
                walk(one.value)
                return
            if isinstance(one, cst.Subscript | cst.Name):
                access = self.access(one)
                if access is not None:
                    found.append(access)
                    return
            for child in one.children:
                walk(child)

        walk(node)
        return found

    # expressions

    def constant(self, node: cst.BaseExpression) -> int | None:
        """The whole number ``node`` is, if it is one here."""
        form = self.affine(node)
        return form.constant if form is not None and not form.terms else None

    def number(self, node: cst.BaseExpression | None) -> float | None:
        """The number ``node`` is, also through arithmetic and ``np.float32``-like casts; None otherwise."""
        if node is None:
            return None
        if isinstance(node, cst.Integer | cst.Float):
            return float(node.value)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.number(node.expression)
            return None if inner is None else -inner
        if isinstance(node, cst.Name):
            if node.value in self.constants:
                return float(self.constants[node.value])
            if node.value in self.aliases and node.value not in self._ambiguous:
                return self.number(self.aliases[node.value])
        if isinstance(node, cst.BinaryOperation):
            left, right = self.number(node.left), self.number(node.right)
            if left is None or right is None:
                return None
            if isinstance(node.operator, cst.Divide) and right:
                return left / right
            if isinstance(node.operator, cst.Multiply):
                return left * right
        if isinstance(node, cst.Call) and len(node.args) == 1:
            callee = self.text(node.func)
            if (callee.endswith(".type") and "dtype" in callee) or callee.startswith("np.float"):
                return self.number(node.args[0].value)
        return None

    def affine(self, node: cst.BaseExpression) -> Affine | None:
        """``node`` as an affine form over loop variables and index ranges, or None."""
        if isinstance(node, cst.Integer):
            return Affine(int(node.value.replace("_", ""), 0))
        if isinstance(node, cst.Name):
            return self._named(node.value)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.affine(node.expression)
            return None if inner is None else inner.times(-1)
        if isinstance(node, cst.Subscript):
            return self._range(node)
        if isinstance(node, cst.Attribute) and self.text(node.value).endswith("tile_size"):
            limit = _TILE_SIZES.get(node.attr.value)
            return None if limit is None else Affine(limit)
        if not isinstance(node, cst.BinaryOperation):
            return None
        left, right = self.affine(node.left), self.affine(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.operator, cst.Add):
            return left + right
        if isinstance(node.operator, cst.Subtract):
            return left + right.times(-1)
        if isinstance(node.operator, cst.Multiply) and not right.terms:
            return left.times(right.constant)
        if isinstance(node.operator, cst.Multiply) and not left.terms:
            return right.times(left.constant)
        if isinstance(node.operator, cst.FloorDivide | cst.Modulo) and not right.terms and right.constant > 0:
            return self._quotient(node, left, right.constant)
        return None

    def _named(self, name: str) -> Affine | None:
        if name in self.loop_variables:
            return Affine.of(Symbol(name, name))
        if name in self.constants:
            return Affine(self.constants[name])
        if name in self.aliases and name not in self._ambiguous:
            return self.affine(self.aliases[name])
        return None

    def _quotient(self, node: cst.BinaryOperation, left: Affine, divisor: int) -> Affine | None:
        whole = isinstance(node.operator, cst.FloorDivide)
        if not left.terms:
            return Affine(left.constant // divisor if whole else left.constant % divisor)
        if len(left.variables) != 1 or left.ranges:
            return None
        (variable,) = left.variables
        sign = "//" if whole else "%"
        return Affine.of(Symbol(f"({left.constant}+{left.terms}){sign}{divisor}", variable))

    def _range(self, node: cst.Subscript) -> Affine | None:
        if not isinstance(node.value, cst.Call) or self._callee(node.value) != "arange" or len(node.value.args) != 1:
            return None
        extent = self.constant(node.value.args[0].value)
        axes = len(node.slice)
        places = [i for i, element in enumerate(node.slice) if isinstance(element.slice, cst.Slice)]
        if extent is None or len(places) != 1:
            return None
        return Affine.of(Symbol(f"arange{extent}.{places[0]}.{axes}", "", extent, places[0], axes))

    def access(self, node: cst.BaseExpression) -> Access | None:
        """``node`` as a name or a subscripted name that is a tile or a tensor; None for numbers and indices."""
        if isinstance(node, cst.Name):
            name = node.value
            known = name in self.aliases or name in self.constants or name in self.loop_variables
            return None if known or name in _NO_TILES else Access(name, None, node)
        if not isinstance(node, cst.Subscript) or not isinstance(node.value, cst.Name):
            return None
        name = node.value.value
        if name in self.aliases or name in _NO_TILES:
            return None
        elements = node.slice
        only = elements[0].slice
        if len(elements) == 1 and isinstance(only, cst.Index) and isinstance(only.value, cst.Ellipsis):
            return Access(name, None, node)
        dims = tuple(self._dim(element.slice) for element in elements)
        return Access(name, dims, node)

    def _dim(self, element: cst.BaseSlice) -> Dim:
        if isinstance(element, cst.Index):
            value = element.value
            text = self.text(value)
            if isinstance(value, cst.Call) and self._callee(value) == "ds" and len(value.args) == 2:
                return Dim(self.affine(value.args[0].value), self.constant(value.args[1].value), text)
            return Dim(self.affine(value), None, text)
        assert isinstance(element, cst.Slice)
        text = self.text(element)
        if element.step is not None:
            return Dim(None, None, text)
        if element.lower is None and element.upper is None:
            return Dim(Affine(), None, text, True)
        lower = self.affine(element.lower) if element.lower is not None else Affine()
        upper = self.affine(element.upper) if element.upper is not None else None
        if lower is None or upper is None:
            return Dim(None, None, text)
        extent = upper + lower.times(-1)
        return Dim(lower, extent.constant, text) if not extent.terms else Dim(None, None, text)

    # questions

    @cached_property
    def statements(self) -> list[Statement]:
        """Every statement of the kernel, in order."""
        return list(flatten(self.items))

    @cached_property
    def loops(self) -> list[Loop]:
        """Every loop of the kernel, in order, outer before inner."""
        found: list[Loop] = []
        for item in self.items:
            if isinstance(item, Loop):
                found += [item, *item.loops()]
        return found

    @cached_property
    def _writers(self) -> dict[str, list[Statement]]:
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            if statement.target is not None and statement.kind in ("op", "other"):
                found.setdefault(statement.target.name, []).append(statement)
        return found

    @cached_property
    def _readers(self) -> dict[str, list[Statement]]:
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in {access.name for access in statement.mentions}:
                found.setdefault(name, []).append(statement)
        return found

    def writers(self, name: str) -> list[Statement]:
        """Statements that write ``name``, declarations aside."""
        return self._writers.get(name, [])

    def readers(self, name: str) -> list[Statement]:
        """Statements that read ``name``."""
        return self._readers.get(name, [])

    def producer(self, reader: Statement, access: Access) -> Statement | None:
        """The one statement that made exactly the elements ``access`` reads, in the same loop body and before it."""
        if access.name in self._ambiguous:
            return None
        writers = self.writers(access.name)
        if len(writers) != 1:
            return None
        writer = writers[0]
        if writer.kind != "op" or writer.augmented or writer.parent is not reader.parent or writer.start > reader.start:
            return None
        if writer.target is None or not writer.target.same_as(access):
            return None
        return writer

    def only_reader(self, writer: Statement, reader: Statement) -> bool:
        """Whether ``reader`` is the one statement that reads what ``writer`` writes."""
        return writer.target is not None and self.readers(writer.target.name) == [reader]

    def space_of(self, name: str) -> str:
        """Memory of a buffer or tile: hbm, sbuf, psum, or empty where it is not known."""
        if name in self.parameters:
            return "hbm"
        if name in self.buffers:
            space = self.buffers[name].space
            return "hbm" if space.endswith("hbm") else space
        spaces = {
            "psum" if writer.op in ("nc_matmul", "matmul", "nc_transpose") else "sbuf" for writer in self.writers(name)
        }
        return spaces.pop() if len(spaces) == 1 else ""

    def is_zero(self, node: cst.BaseExpression | None) -> bool:
        """Whether an operand is nothing, a zero, or a tile filled with zeros."""
        if node is None or (isinstance(node, cst.Name) and node.value == "None") or self.number(node) == 0:
            return True
        access = self.access(node)
        if access is None:
            return False
        writers = self.writers(access.name)
        return len(writers) == 1 and writers[0].op == "memset" and self.number(writers[0].args.get("value")) == 0

    def text_of(self, statement: Statement, argument: str) -> str:
        """Text of an argument; empty where it is not given."""
        node = statement.args.get(argument)
        return "" if node is None else self.text(node)

    def extents(self, access: Access) -> tuple[int, ...] | None:
        """Shape of the tile an access covers, partitions first; None where it is not known."""
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
            return (*kept, 1) if len(kept) == 1 else tuple(kept)
        if access.name in self.buffers:
            buffer = self.buffers[access.name]
            known = [extent for extent in buffer.shape[buffer.partition_axis :] if extent is not None]
            return tuple(known) if len(known) == len(buffer.shape) - buffer.partition_axis else None
        whole = self._whole(access.name)
        return None if whole is None or None in whole else tuple(extent for extent in whole if extent is not None)

    def _whole(self, name: str) -> tuple[int | None, ...] | None:
        """Shape of everything called ``name``."""
        if name in self.parameters:
            return self.shapes.get(name)
        if name in self.buffers:
            return self.buffers[name].shape
        writers = self.writers(name)
        return self.tile_shape(writers[0]) if writers and writers[0].target is not None else None

    def tile_shape(self, statement: Statement) -> tuple[int, ...] | None:
        """Shape of the tile a statement makes; None where it is not known."""
        target = statement.target
        if target is not None and (target.dims is not None or target.name in self.buffers):
            return self.extents(target)
        if statement.op == "load":
            return self.extents(statement.reads["src"]) if "src" in statement.reads else None
        if statement.op in ("tensor_reduce", "sum", "max", "matmul", "nc_matmul", "nc_transpose", "loop_reduce"):
            return self._made(statement)
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
        if statement.op in ("tensor_reduce", "sum", "max"):
            return (first[0], 1)
        if statement.op == "nc_transpose":
            return (first[1], first[0])
        if statement.op == "loop_reduce":
            return first
        rows = first[0] if statement.op == "matmul" and self.text_of(statement, "transpose_x") != "True" else first[1]
        return (rows, rest[0][1]) if rest else None

    def mask(self, statement: Statement) -> str:
        """Text of a statement's mask; empty where there is none."""
        node = statement.args.get("mask")
        return "" if node is None or self.text(node) == "None" else self.text(node)

    def opname(self, node: cst.BaseExpression | None) -> str:
        """``multiply`` for ``nl.multiply`` or ``np.multiply``; empty where there is none."""
        return "" if node is None else self.text(node).rsplit(".", 1)[-1]
