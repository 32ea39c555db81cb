"""Parse a kernel's source into loops, statements and buffers.

libcst parses the text, so that every record knows its exact span of source. For example ::

    for c in nl.affine_range(2):
        y[p, 512 * c + f] = nl.exp(x[p, 512 * c + f], mask=p < rows)

gives a :class:`Loop` over ``c`` with two trips. It holds a :class:`Statement` of kind ``op`` with ``op`` = ``exp``,
``target`` = the access of ``y``, ``reads`` = ``{"x": the access of x}`` and ``args`` with ``x`` and ``mask``. A statement
that is not understood has kind ``other``; rules refuse to change code that it could affect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import libcst as cst

from acceld.proposers.rules.nki.source.expressions import ExpressionReader
from acceld.proposers.rules.nki.source.pieces import parsed
from acceld.proposers.rules.nki.source.syntax import (
    CURRENT,
    DECLARATIONS,
    LEGACY,
    LOOPS,
    Access,
    Buffer,
    Item,
    Loop,
    Statement,
    below,
)
from acceld.proposers.rules.records import RuleRefused

_SETTINGS: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}


class SourceReader(ExpressionReader):
    """A parsed kernel. Raises RuleRefused if there is no kernel function or the source does not parse.

    ``shapes`` gives shapes of tensor arguments by parameter position, so that ``x.shape`` can be understood; ``dtypes``
    gives their dtypes.
    """

    def __init__(
        self,
        source: str,
        api: str,
        shapes: Sequence[tuple[int, ...] | None] = (),
        dtypes: Sequence[str] = (),
        *,
        entry: str = "",
    ) -> None:
        self.api = api
        try:
            self._parsed = parsed(source)
        except cst.ParserSyntaxError as error:
            raise RuleRefused(f"the source does not parse: {error}") from error
        super().__init__(source, self._parsed.module)
        self.function = self._find(entry)
        parameters = self.function.params.params
        self.parameters = [p.name.value for p in parameters]
        self.shapes = dict(zip(self.parameters, shapes, strict=False))
        self.dtypes = dict(zip(self.parameters, dtypes, strict=False))
        bound, counted = _bound_names(self.function.body)
        self._bound, self._counted = Counter(bound), frozenset(counted)
        if shapes:  # all arguments are known, so that the other parameters have their defaults
            self._constants((p.name.value, p.default) for p in parameters[len(shapes) :] if p.default is not None)
        self._constants(_module_names(self.module, self.function.body, bound))
        self._bound.update(self.parameters)
        self.items: list[Item] = self._body(self.function.body, None)

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

    def _constants(self, given: Iterable[tuple[str, cst.BaseExpression]]) -> None:
        """Keep the numbers and settings that names stand for throughout the function."""
        for name, value in given:
            if name in self._bound or name in self._counted:
                continue
            if isinstance(value, cst.Name) and value.value in _SETTINGS:
                self.settings[name] = _SETTINGS[value.value]
            elif self.affine(value) is not None or self.number(value) is not None:
                self.aliases[name] = value

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return offsets of the text behind ``node``."""
        line, column, end_line, end_column = self._parsed.place(node)
        return self.line_starts[line] + column, self.line_starts[end_line] + end_column

    def line(self, node: cst.CSTNode) -> int:
        """Return the first line of ``node``, from 1."""
        return self._parsed.place(node)[0] + 1

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
                opaque = Statement(node, "other", self.line(node), start, end, self.indentation(start), parent)
                opaque.mentions = self._mentioned(node)
                self.ambiguous |= {access.name for access in opaque.mentions}
                items.append(opaque)
        return items

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
        loop = Loop(node, name, kind, trips, self.line(node), start, end, self.indentation(start), parent)
        self.loop_variables.add(name)
        loop.items = self._body(node.body, loop)
        return loop

    def _statement(self, node: cst.SimpleStatementLine, parent: Loop | None) -> Statement:
        start, end = self.span(node)
        statement = Statement(node, "other", self.line(node), start, end, self.indentation(start), parent)
        if len(node.body) != 1:
            return statement
        match node.body[0]:
            case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                statement.kind = "marker"
            case cst.Expr(value=cst.Call() as call):
                self._operation(statement, None, call)
            case cst.Assign(targets=[target], value=value):
                self._assignment(statement, target.target, value)
            case cst.AugAssign(operator=cst.AddAssign(), target=target, value=value):
                self._addition(statement, target, value)
            case cst.Import() | cst.ImportFrom() | cst.Pass() | cst.Assert():
                statement.kind = "marker"
            case cst.Return() as given:
                statement.kind, statement.mentions = "return", self._mentioned(given)
        if statement.kind == "other":
            statement.mentions = self._mentioned(node)
            if statement.target is None:
                # The statement may bind, alias or change any of these names, so nothing is proven about them.
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
            if isinstance(value, cst.Call) and self.callee(value) in DECLARATIONS:
                self._declare(statement, name, value)
                return
            if self.affine(value) is not None or self.number(value) is not None:
                statement.kind = "alias"
                if self._bound[name] > 1 or name in self._counted:
                    self.ambiguous.add(name)
                self.aliases[name] = value
                return
            if isinstance(value, cst.Call) and self._is_other_shape(name, value):
                statement.kind = "alias"
                return
        if isinstance(value, cst.Call):
            self._operation(statement, target, value)
        elif isinstance(value, cst.BinaryOperation) if isinstance(target, cst.Name) else self._copies(target, value):
            statement.kind, statement.op, statement.target = "op", "expression", self.access(target)
            statement.args = {"x": value}
            self._reads(statement)

    def _copies(self, target: cst.BaseExpression, value: cst.BaseExpression) -> bool:
        """Return True if ``target = value`` writes into a declared tile the value of tiles."""
        into = self.access(target)
        if into is None or into.name not in self.buffers:
            return False
        return isinstance(value, cst.BinaryOperation) or self.access(value) is not None

    def _addition(self, statement: Statement, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        """Read ``target += value``."""
        statement.augmented = True
        statement.target = self.access(target)
        if isinstance(value, cst.Call):
            self._operation(statement, target, value)
        elif statement.target is not None:
            statement.kind, statement.op, statement.args = "op", "accumulate", {"x": value}
            self._reads(statement)

    def _shape(self, target: cst.Tuple, value: cst.BaseExpression) -> None:
        shape = self.known_shape(value)
        for position, element in enumerate(target.elements):
            if isinstance(element.value, cst.Name) and shape and position < len(shape) and shape[position] is not None:
                name = element.value.value
                if self._bound[name] > 1 or name in self._counted:
                    self.ambiguous.add(name)
                self.constants[name] = int(shape[position] or 0)

    def _is_other_shape(self, name: str, call: cst.Call) -> bool:
        """Return True if ``name`` is an argument or a tensor in HBM in another shape, such as ``x.reshape((128, 8, 64))``.

        The tensor must have no other name: apart from its shape, it is only returned.
        """
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "reshape" or len(call.args) != 1:
            return False
        tensor, shape = call.func.value, self.known_shape(call.args[0].value)
        if not isinstance(tensor, cst.Name) or shape is None or None in shape or self._bound[name] > 1:
            return False
        if tensor.value not in self.parameters and not self._is_in_hbm(tensor.value):
            return False
        if self._bound[tensor.value] > 1:
            return False
        if _uses(self.function.body, tensor.value) != 1:
            return False
        self.shapes[name] = tuple(extent for extent in shape if extent is not None)
        self.dtypes[name] = self.dtypes.get(tensor.value, "")
        self.other_shapes.add(name)
        return True

    def _is_in_hbm(self, name: str) -> bool:
        return name in self.buffers and self.buffers[name].space.endswith("hbm")

    def _declare(self, statement: Statement, name: str, call: cst.Call) -> None:
        statement.kind, statement.op = "declaration", self.callee(call)
        positional = ("shape", "fill_value", "dtype") if statement.op == "full" else ("shape", "dtype")
        statement.args = self._arguments(call, {statement.op: positional})
        statement.target = Access(name, None, call)
        if self._bound[name] > 1:
            self.ambiguous.add(name)
        shape: list[int | None] = []
        axis = 0
        given = statement.args.get("shape")
        if isinstance(given, cst.Tuple | cst.List):
            for position, element in enumerate(given.elements):
                value = element.value
                if isinstance(value, cst.Call) and self.callee(value) == "par_dim" and value.args:
                    axis, value = position, value.args[0].value
                shape.append(self.constant(value))
        elif given is not None:
            shape = list(self.known_shape(given) or ())
        space = self.text(statement.args["buffer"]).rsplit(".", 1)[-1] if "buffer" in statement.args else "sbuf"
        if statement.op == "shared_constant":
            space = "hbm"
        self.buffers[name] = Buffer(name, tuple(shape), space, axis, statement)

    def _arguments(self, call: cst.Call, names: Mapping[str, tuple[str, ...]]) -> dict[str, cst.BaseExpression]:
        positional = names.get(self.callee(call), ())
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
        op = self.callee(call)
        names = CURRENT if self.api == "nki" else LEGACY
        tile = self.access(call.func.value) if isinstance(call.func, cst.Attribute) else None
        if op == "broadcast_to" and isinstance(call.func, cst.Attribute) and tile is not None and target is not None:
            statement.kind, statement.op, statement.target = "op", op, self.access(target)
            statement.args = {"x": call.func.value}
            self._reads(statement)
            return
        statement.kind, statement.op = "op", op
        statement.namespace = self.text(call.func).rsplit(".", 1)[0] if "." in self.text(call.func) else ""
        statement.args = self._arguments(call, names)
        destination = target if target is not None else statement.args.pop("dst", None)
        statement.target = self.access(destination) if destination is not None else None
        if statement.target is None or op not in names or any(name.startswith("argument") for name in statement.args):
            statement.kind = "other"
        if "reduce_op" in statement.args or "reduce_cmd" in statement.args:
            self._second_result(statement)
        self._reads(statement)
        if not isinstance(call.func, cst.Attribute):
            # A function of the kernel's own may change its arguments, or return one of them.
            self.ambiguous |= {access.name for access in (*statement.mentions, *statement.results)}

    def _second_result(self, statement: Statement) -> None:
        """Read ``reduce_res``, which an instruction writes besides its target.

        The statement is opaque if the engine's registers keep a sum from one instruction to the next.
        """
        given = {
            name: self.text(statement.args[name]) for name in ("reduce_op", "reduce_cmd") if name in statement.args
        }
        command = given.get("reduce_cmd", "reset_reduce" if statement.op == "activation_reduce" else "")
        result = statement.args.get("reduce_res")
        if command.endswith("reset_reduce") and result is not None:
            statement.second = self.access(result)
        if statement.second is None and set(given.values()) - {"None"} and not command.endswith("idle"):
            statement.kind = "other"
            self.ambiguous |= {access.name for access in self._mentioned(result)} if result is not None else set()

    def _reads(self, statement: Statement) -> None:
        for name, value in statement.args.items():
            if name == "reduce_res" and statement.second is not None:
                continue
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
            for child in below(one):
                walk(child)

        walk(node)
        return found


def _bound_names(node: cst.CSTNode, without: cst.CSTNode | None = None) -> tuple[list[str], list[str]]:
    """Return the names that statements bind, each time they do, and those of augmented assignments such as ``n += 1``.

    ``tile += x`` binds nothing new. Nothing below the node ``without`` counts.
    """
    bound: list[str] = []
    counted: list[str] = []

    def walk(one: cst.CSTNode) -> None:
        match one:
            case cst.AssignTarget() | cst.AnnAssign() | cst.For() | cst.NamedExpr() | cst.CompFor():
                bound.extend(_plain_names(one.target))
            case cst.AsName():
                bound.extend(_plain_names(one.name))
            case cst.FunctionDef() | cst.ClassDef():
                bound.append(one.name.value)
            case cst.AugAssign():
                counted.extend(_plain_names(one.target))
        for child in below(one):
            if isinstance(child, cst.SimpleStatementLine):
                more_bound, more_counted = _names_of_line(child)
                bound.extend(more_bound)
                counted.extend(more_counted)
            elif type(child) not in _LEAVES and child is not without:
                walk(child)

    walk(node)
    return bound, counted


@lru_cache(maxsize=4096)
def _names_of_line(line: cst.SimpleStatementLine) -> tuple[list[str], list[str]]:
    return _bound_names(line)


_LEAVES = frozenset({cst.Name, cst.Integer, cst.Float, cst.SimpleString, cst.Add, cst.Multiply, cst.AssignEqual})
"""Frequent nodes that bind nothing."""


def _plain_names(target: cst.CSTNode) -> Iterator[str]:
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, cst.Tuple | cst.List | cst.Element | cst.StarredElement):
        for child in below(target):
            yield from _plain_names(child)


def _module_names(module: cst.Module, body: cst.CSTNode, bound: Sequence[str]) -> list[tuple[str, cst.BaseExpression]]:
    """Return the names that a module's own statements bind once, with their values. ``bound`` are those of the function
    with this ``body``.
    """
    count = Counter([*bound, *_bound_names(module, without=body)[0]])
    found = []
    for line in module.body:
        if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
            match line.body[0]:
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value) if (
                    count[name] == 1
                ):
                    found.append((name, value))
    return found


def _uses(node: cst.CSTNode, name: str) -> int:
    """Return how often a name is used for anything but its ``shape`` or ``dtype``, or to be returned."""
    if isinstance(node, cst.Name):
        return node.value == name
    if isinstance(node, cst.Attribute):
        return (
            0 if node.attr.value in ("shape", "dtype") and isinstance(node.value, cst.Name) else _uses(node.value, name)
        )
    if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Name):
        return 0
    if isinstance(node, cst.Return) and isinstance(node.value, cst.Name | cst.Tuple):
        return 0
    if isinstance(node, cst.Arg):
        return _uses(node.value, name)
    return sum(_uses(child, name) for child in below(node))
