"""Reads a kernel's source into loops, statements and buffers.

Parsed with libcst, so that every record knows the exact span of text behind it. What is not understood is kept as an
opaque statement, and rules refuse where one is in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from acceld.proposers.rules.affine import Affine, Symbol
from acceld.proposers.rules.records import RuleRefused
from acceld.proposers.rules.syntax import (
    CURRENT,
    DECLARATIONS,
    LEGACY,
    LOOPS,
    NO_TILES,
    TILE_SIZES,
    Access,
    Buffer,
    Dim,
    Item,
    Loop,
    Statement,
)


class SourceReader:
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
        self.ambiguous: set[str] = set()
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
                assert isinstance(node, cst.BaseStatement)
                start, end = self.span(node)
                opaque = Statement(node, "other", self.line(node), start, end, self._indent(start), parent)
                opaque.mentions = self._mentioned(node)
                self.ambiguous |= {access.name for access in opaque.mentions}
                items.append(opaque)
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
        elif isinstance(small, cst.Return):
            statement.kind, statement.mentions = "return", self._mentioned(small)
        if statement.kind == "other":
            statement.mentions = self._mentioned(node)
            if statement.target is None:
                # It may bind, alias or change any of these: nothing is proven about them.
                self.ambiguous |= {access.name for access in statement.mentions}
        return statement

    def _assignment(self, statement: Statement, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, cst.Tuple):
            if isinstance(value, cst.Attribute | cst.Tuple):
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
                    self.ambiguous.add(name)
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
            self.ambiguous.add(name)
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
        names = CURRENT if self.api == "nki" else LEGACY
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
            if node.value in self.aliases and node.value not in self.ambiguous:
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
            return self._extent(node) or self._range(node)
        if isinstance(node, cst.Attribute) and self.text(node.value).endswith("tile_size"):
            limit = TILE_SIZES.get(node.attr.value)
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
        if name in self.aliases and name not in self.ambiguous:
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

    def _extent(self, node: cst.Subscript) -> Affine | None:
        """``x.shape[1]`` of a tensor whose shape is known."""
        shape = self._known_shape(node.value)
        if shape is None or len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
            return None
        place = self.constant(node.slice[0].slice.value)
        extent = shape[place] if place is not None and -len(shape) <= place < len(shape) else None
        return None if extent is None else Affine(extent)

    def _range(self, node: cst.Subscript) -> Affine | None:
        if not isinstance(node.value, cst.Call) or self._callee(node.value) != "arange" or len(node.value.args) != 1:
            return None
        extent = self.constant(node.value.args[0].value)
        places = [i for i, element in enumerate(node.slice) if isinstance(element.slice, cst.Slice)]
        if extent is None or len(places) != 1:
            return None
        return Affine.of(Symbol.over(extent, places[0], len(node.slice)))

    def access(self, node: cst.BaseExpression) -> Access | None:
        """``node`` as a name or a subscripted name that is a tile or a tensor; None for numbers and indices."""
        if isinstance(node, cst.Name):
            name = node.value
            known = name in self.aliases or name in self.constants or name in self.loop_variables
            return None if known or name in NO_TILES else Access(name, None, node)
        if not isinstance(node, cst.Subscript) or not isinstance(node.value, cst.Name):
            return None
        name = node.value.value
        if name in self.aliases or name in NO_TILES:
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
