"""Parse a kernel's source into loops, statements and buffers.

Every record has its exact span in the source. For example ::

    for c in nl.affine_range(2):
        y[p, 512 * c + f] = nl.exp(x[p, 512 * c + f], mask=p < rows)

gives a :class:`Loop` over ``c`` with two trips. The loop holds a :class:`Statement` of kind ``op`` with ``op`` =
``exp``, ``target`` = the access of ``y``, ``reads`` = ``{"x": the access of x}`` and ``args`` with ``x`` and ``mask``.
A statement that is not understood has the kind ``other``; rules refuse to change code that such a statement could
affect.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from acceld.errors import RuleRefused, UsageError
from acceld.nki.entry import entry_in, launched_function
from acceld.nki.source.expressions import ExpressionReader
from acceld.nki.source.launches import ON_CHIP, Launch
from acceld.nki.source.own_functions import own_functions
from acceld.nki.source.signatures import of_call, positional
from acceld.nki.source.syntax import (
    DECLARATIONS,
    LEAVES,
    LOOPS,
    NO_TILES,
    REDUCING,
    Access,
    Buffer,
    Item,
    Loop,
    Returned,
    Statement,
    below,
    bindings,
    known_functions,
    names_in,
    root,
    walked,
)
from acceld.parsing import functions_of


class SourceReader(ExpressionReader):
    """A parsed kernel. Raises RuleRefused if the source does not parse or has no kernel function.

    The shapes and values in ``launch`` give expressions such as ``x.shape`` a value.
    """

    def __init__(self, source: str, launch: Launch) -> None:
        self.launch, self.api, self.programs = launch, launch.api, launch.programs
        try:
            super().__init__(source)
        except (SyntaxError, ValueError) as error:
            raise RuleRefused(f"the source is not valid Python: {error}") from error
        self.function = self._find(launch.entry)
        given = self.function.args
        positional = [one.arg for one in (*given.posonlyargs, *given.args)]
        self.parameters = [*positional, *(one.arg for one in given.kwonlyargs)]
        facts = dict(zip(self.parameters, launch.shapes, strict=False))
        self.shapes = {name: None if isinstance(one, int) else one for name, one in facts.items()}
        self.dtypes = dict(zip(self.parameters, launch.dtypes, strict=False))
        memories = zip(self.parameters, launch.memories, strict=False)
        self.tiles = {name: memory for name, memory in memories if memory in ON_CHIP}
        bound, counted, looped = _bound_names(self.function.body)
        self._bound, self._counted = Counter(bound), frozenset(counted)
        self._constants((name, ast.Constant(one)) for name, one in facts.items() if isinstance(one, int))
        self._varying = {name for name, one in facts.items() if not isinstance(one, tuple)} & {*bound, *counted}
        numbers = {name for name, one in facts.items() if one is None and name not in self._varying}
        self.loop_variables |= numbers  # numbers of which only the name is known, as of a loop's variable
        self._looped = Counter(looped)
        # ``shapes`` has an entry for each argument that is passed, so the other parameters have their defaults
        if launch.shapes:
            defaults = dict(zip(positional[::-1], given.defaults[::-1], strict=False))
            named = zip(self.parameters[len(positional) :], given.kw_defaults, strict=True)
            defaults |= {name: value for name, value in named if value is not None}
            self._constants(
                (name, defaults[name]) for name in self.parameters[len(launch.shapes) :] if name in defaults
            )
        self._bound.update(one.arg for one in ast.walk(given) if isinstance(one, ast.arg))
        self._constants(_module_names(self.module, self.function, bound))
        once = bindings(self.module)
        own = own_functions(self.module, self.api)
        local = {one.arg for one in walked(self.function) if isinstance(one, ast.arg)} if own else set[str]()
        self._own = {name: one for name, one in own.items() if once[name] == 1 and name not in local}
        imports = (one for one in self.module.body if isinstance(one, ast.Import | ast.ImportFrom))
        imported = {(one.asname or one.name).partition(".")[0] for each in imports for one in each.names}
        self._imported = {name for name in imported if once[name] == 1} - set(self.parameters)
        self.left_behind = _used_outside(self.function)
        """Names of numbers that loops bind, and whose last value the function uses behind these loops."""
        self.ambiguous |= self.left_behind
        self.returned: dict[str, Returned] = {}
        """The tiles that functions of the file return, by name."""
        self._summed: frozenset[str] = frozenset()
        """Tiles to which a product was written in the statements read so far."""
        self.items: list[Item] = self._body(self.function.body, None)

    def _find(self, entry: str) -> ast.FunctionDef:
        """Return the kernel function: ``entry``, or the function of the file that a person would launch.

        A name to which the file assigns a launcher, as in ``kernel = nki.jit(body)``, stands for the function ``body``.
        """
        try:
            name = entry_in(self.module, entry or None)
        except UsageError as error:
            raise RuleRefused(f"rules find no kernel in the source: {error.message}; {error.hint}") from error
        functions = functions_of(self.module.body)
        launched = functions.get(name) or functions.get(launched_function(self.module, name))
        if launched is None or "." in name:
            raise RuleRefused(
                f"rules only read a kernel that is a top-level function of the file, and {name} is not: "
                "define the kernel there, under @nki.jit"
            )
        return launched

    def _constants(self, given: Iterable[tuple[str, ast.expr]]) -> None:
        """Record those of the names in ``given`` that have the same value (a number or a setting) throughout the
        function.
        """
        for name, value in given:
            if name in self._bound or name in self._counted:
                continue
            if any(one.id in self._bound or one.id in self.parameters for one in names_in(value)):
                continue  # the function binds the same name to another value
            match value:
                case ast.Constant(value=bool() | None as setting):
                    self.settings[name] = setting
                case _ if self.affine(value) is not None or self.number(value) is not None:
                    self.aliases[name] = value

    def comments_above(self, item: Item) -> list[str | None]:
        """Return the lines right above an item: the text of each comment, and None for each blank line.

        A comment that is indented deeper than the item belongs to the block before. The search ends there.
        """
        found: list[str | None] = []
        start = self.line_start(item.start)
        if self.source[start : item.start].strip():
            return []  # the comments belong to the first statement of the line
        while start > 0:
            above = self.line_start(start - 1)
            line = self.source[above:start].strip()
            indent = len(self.indentation(above + len(self.source[above:start].rstrip())))
            if line and (not line.startswith("#") or indent > len(item.indent)):
                break
            found.insert(0, line or None)
            start = above
        return found

    def _body(self, body: Sequence[ast.stmt], parent: Loop | None) -> list[Item]:
        items: list[Item] = []
        for group in _by_lines(body):
            node = group[0]
            if len(group) > 1 and all(self._declares(one) for one in group):
                items += [self._statement(one, parent) for one in group]
            elif len(group) > 1:
                items.append(self._opaque(ast.Module(list(group), []), parent))
            elif isinstance(node, ast.For) and (loop := self._loop(node, parent)) is not None:
                items.append(loop)
            elif isinstance(node, _COMPOUND):
                items.append(self._opaque(node, parent))
            else:
                items.append(self._statement(node, parent))
        return items

    def _declares(self, node: ast.stmt) -> bool:
        """Tell whether a statement declares a tile or a tensor."""
        match node:
            case ast.Assign(targets=[ast.Name()], value=ast.Call() as call):
                return self.callee(call) in DECLARATIONS
        return False

    def _opaque(self, node: ast.AST, parent: Loop | None) -> Statement:
        """Return ``node`` as a statement that is not understood. The statement counts as one that may bind, alias or
        change every name in it.
        """
        statement = self._record(node, parent)
        statement.mentions = self._mentioned(node)
        self._doubt(statement, statement.mentions)
        return statement

    def _doubt(self, statement: Statement, accesses: Iterable[Access]) -> None:
        """Mark the names of ``accesses`` as ambiguous, because ``statement`` may bind, alias or change them."""
        for access in accesses:
            self.ambiguous.add(access.name)
            self.doubts.setdefault(access.name, statement.line)

    def _record(self, node: ast.AST, parent: Loop | None) -> Statement:
        start, end = self.span(node)
        return Statement(node, "other", self.line(start), start, end, self.indentation(start), parent)

    def _loop(self, node: ast.For, parent: Loop | None) -> Loop | None:
        call = node.iter
        if not isinstance(node.target, ast.Name) or not isinstance(call, ast.Call) or node.orelse:
            return None
        kind = self.callee(call)
        if kind not in LOOPS:
            return None
        trips = self.constant(call.args[0]) if len(call.args) == 1 and not call.keywords else None
        start, end = self.span(node)
        name = node.target.id
        loop = Loop(node, name, kind, trips, node.lineno, start, end, self.indentation(start), parent)
        self.loop_variables.add(name)
        if self._bound[name] != self._looped[name] or name in self._counted or _is_inside(name, parent):
            self.ambiguous.add(name)
        self.trips[name] = trips if self.trips.get(name, trips) == trips else None
        loop.items = self._body(node.body, loop)
        return loop

    def _statement(self, node: ast.stmt, parent: Loop | None) -> Statement:
        statement = self._record(node, parent)
        match node:
            case ast.Expr(value=ast.Constant(value=str()) | ast.JoinedStr()):
                statement.kind = "marker"
            case ast.Expr(value=ast.Call(func=ast.Name()) as call) if self._takes_numbers(call):
                # a call without a tile as an argument, such as a function that asserts, changes no tile
                statement.kind = "marker"
            case ast.Expr(value=ast.Call() as call):
                self._operation(statement, None, call)
            case ast.Assign(targets=[target], value=value):
                self._assignment(statement, target, value)
            case ast.AugAssign(op=ast.Add(), target=target, value=value):
                self._addition(statement, target, value)
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                statement.kind = "marker"
            case ast.Assert() if not self._may_change_tiles(node):
                statement.kind = "marker"
            case ast.Return():
                statement.kind, statement.mentions = "return", self._mentioned(node)
        if statement.kind == "other":
            statement.mentions = self._mentioned(node)
            if statement.target is None:
                self._doubt(statement, statement.mentions)
        return statement

    def _assignment(self, statement: Statement, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            sizes = isinstance(value, ast.Attribute) and value.attr == "shape"
            numbers = isinstance(value, ast.Tuple) and all(self.is_number(one) for one in value.elts)
            if (sizes or numbers) and all(isinstance(one, ast.Name) for one in target.elts):
                self._shape(target, value)
                statement.kind = "alias"
            if isinstance(value, ast.Tuple) and numbers and len(value.elts) == len(target.elts):
                for one, number in zip(target.elts, value.elts, strict=True):
                    if isinstance(one, ast.Name) and self.program_axis(number) is not None:
                        self._alias(one.id, number)
            return
        if isinstance(target, ast.Name):
            name = target.id
            if isinstance(value, ast.Call) and self.callee(value) in DECLARATIONS:
                self._declare(statement, name, value)
                return
            if self.affine(value) is not None or self.number(value) is not None or self.is_number(value):
                statement.kind = "alias"
                self._alias(name, value)
                return
            if isinstance(value, ast.Call) and self._is_other_shape(name, value):
                statement.kind = "alias"
                return
        if isinstance(value, ast.Call):
            self._operation(statement, target, value)
        elif self._varies(target, value):
            return
        elif isinstance(value, ast.BinOp) if isinstance(target, ast.Name) else self._copies(target, value):
            statement.kind, statement.op, statement.target = "op", "expression", self.access(target)
            statement.args = {"x": value}
            self._reads(statement)

    def _alias(self, name: str, value: ast.expr) -> None:
        """Record that ``name`` stands for the number ``value``."""
        if self._bound[name] > 1 or name in self._counted:
            self.ambiguous.add(name)
        self.aliases[name] = value
        axis = self.program_axis(value)
        if axis is not None and name not in self.ambiguous:
            self.loop_variables.add(name)  # the program's number is fixed, like a number among the arguments
            self.trips[name] = self.programs_along(axis)

    def _varies(self, target: ast.expr, value: ast.expr) -> bool:
        """Tell whether a name gets a number that depends on an argument that the function binds again, such as ``r0`` in
        ``r0 = r0 + 128``. Such a name stands for no tile, and for another number elsewhere.
        """
        if not isinstance(target, ast.Name) or not isinstance(value, ast.BinOp | ast.Name | ast.Constant):
            return False
        varies = any(one.id in self._varying for one in (target, *names_in(value)))
        self._varying |= {target.id} if varies else set()
        return varies

    def _copies(self, target: ast.expr, value: ast.expr) -> bool:
        """Tell whether the assignment ``target = value`` copies or computes the values of tiles into a declared tile."""
        into = self.access(target)
        if into is None or into.name not in self.buffers:
            return False
        return isinstance(value, ast.BinOp) or self.access(value) is not None

    def _addition(self, statement: Statement, target: ast.expr, value: ast.expr) -> None:
        """Fill in ``statement`` from the parts of ``target += value``."""
        if self._varies(target, value):
            return
        statement.augmented = True
        statement.target = self.access(target)
        if isinstance(value, ast.Call):
            self._operation(statement, target, value)
        elif statement.target is not None:
            statement.kind, statement.op, statement.args = "op", "accumulate", {"x": value}
            self._reads(statement)

    def _shape(self, target: ast.Tuple, value: ast.expr) -> None:
        shape = self.known_shape(value)
        for position, element in enumerate(target.elts):
            if isinstance(element, ast.Name) and shape and position < len(shape) and shape[position] is not None:
                name = element.id
                if self._bound[name] > 1 or name in self._counted:
                    self.ambiguous.add(name)
                self.constants[name] = int(shape[position] or 0)

    def _is_other_shape(self, name: str, call: ast.Call) -> bool:
        """Tell whether ``name = call`` gives an argument, or a tensor in HBM, another shape, such as ``x.reshape((128,
        8, 64))``. If so, the shape is recorded.

        All other uses of the tensor may only read its shape or dtype, or return it.
        """
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=tensor), attr="reshape"), args=[given], keywords=[]):
                shape = self.known_shape(given)
            case _:
                return False
        if shape is None or None in shape or self._bound[name] > 1 or self._bound[tensor] > 1:
            return False
        declared = self.buffers.get(tensor)
        if not self.is_tensor(tensor) and (declared is None or not declared.space.endswith("hbm")):
            return False
        if sum(_uses(one, tensor) for one in self.function.body) != 1:
            return False
        self.shapes[name] = tuple(extent for extent in shape if extent is not None)
        self.dtypes[name] = self.dtypes.get(tensor, "")
        self.other_shapes.add(name)
        return True

    def _declare(self, statement: Statement, name: str, call: ast.Call) -> None:
        statement.kind, statement.op = "declaration", self.callee(call)
        statement.args = self._arguments(call, positional(self.api, "language").get(statement.op, ()))
        statement.target = Access(name, None, call)
        if self._bound[name] > 1:
            self.ambiguous.add(name)
        shape: list[int | None] = []
        axis = 0
        given = statement.args.get("shape")
        if isinstance(given, ast.Tuple | ast.List):
            for position, value in enumerate(given.elts):
                if isinstance(value, ast.Call) and self.callee(value) == "par_dim" and value.args:
                    axis, value = position, value.args[0]
                shape.append(self.constant(value))
        elif given is not None:
            shape = list(self.known_shape(given) or (None,))
        space = self.text(statement.args["buffer"]).rsplit(".", 1)[-1] if "buffer" in statement.args else "sbuf"
        if statement.op == "shared_constant":
            space = "hbm"
        self.buffers[name] = Buffer(name, tuple(shape), space, axis, statement)

    @staticmethod
    def _arguments(call: ast.Call, names: Sequence[str]) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        for position, argument in enumerate(call.args):
            found[names[position] if position < len(names) else f"argument{position}"] = argument
        for one in call.keywords:
            found[one.arg or f"argument{len(found)}"] = one.value
        return found

    def _operation(self, statement: Statement, target: ast.expr | None, call: ast.Call) -> None:
        if isinstance(call.func, ast.Name) and self._own_call(statement, call.func.id, call, target):
            return
        op = self.callee(call)
        if op == "core_barrier" and call.args and root(call.func) in NO_TILES:
            # no statement may move across the barrier, behind which a core reads what the other one wrote before
            statement.op, statement.target = op, self.access(call.args[0])
            return
        tile = self.access(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if op == "broadcast_to" and isinstance(call.func, ast.Attribute) and tile is not None and target is not None:
            statement.kind, statement.op, statement.target = "op", op, self.access(target)
            statement.args = {"x": call.func.value}
            self._reads(statement)
            return
        statement.kind, statement.op = "op", op
        statement.namespace = self.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        statement.args = self._arguments(call, of_call(self.api, op))
        if self.api == "nki" and op == "store" and statement.args.keys() == {"dst", "value"}:
            statement.op = op = "dma_copy"  # nl.store is another name for this transfer
            statement.args = {"dst": statement.args["dst"], "src": statement.args["value"]}
        destination = target if target is not None else statement.args.pop("dst", None)
        statement.target = self.access(destination) if destination is not None else None
        if (
            statement.target is None
            or op not in known_functions(self.api)
            or any(name.startswith("argument") for name in statement.args)
        ):
            statement.kind = "other"
        if self.api == "nki" and op == "nc_matmul" and statement.target is not None:
            statement.augmented = self._accumulates(statement, statement.target)
        if "reduce_op" in statement.args or "reduce_cmd" in statement.args:
            self._second_result(statement)
        self._reads(statement)
        if destination is not None and statement.target is not None:
            statement.mentions += self._positions(destination)
        if op == "nc_stream_shuffle" and not _is_whole_shuffle(statement.args.get("shuffle_mask")):
            statement.augmented = True  # a lane of 255 leaves the old values in a partition
        if destination is not None and statement.target is None:
            self._doubt(statement, self._mentioned(destination))
        if any(self._may_change_tiles(one) for one in statement.args.values()):
            statement.kind = "other"
            self._doubt(statement, (*statement.mentions, *statement.results))
        elif not isinstance(call.func, ast.Attribute) or (
            statement.kind == "other" and root(call.func) not in NO_TILES
        ):
            # a function of the file may change its arguments, or return one of them; a method may give a second name
            self._doubt(statement, (*statement.mentions, *statement.results, *self._mentioned(call.func)))

    def _takes_numbers(self, call: ast.Call) -> bool:
        """Tell whether a call of an imported function has arguments, but no tile or tensor among them."""
        given = [*call.args, *call.keywords]
        imported = isinstance(call.func, ast.Name) and call.func.id in self._imported
        return imported and bool(given) and not any(self._mentioned(one) for one in given)

    def _may_change_tiles(self, node: ast.AST) -> bool:
        """Tell whether an expression assigns a name, or calls a function that may have an effect."""
        return any(
            isinstance(one, ast.NamedExpr)
            or (isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id not in _PURE)
            for one in walked(node)
        )

    def _own_call(self, statement: Statement, name: str, call: ast.Call, result: ast.expr | None) -> bool:
        """Fill in ``statement`` from a call of a function of the kernel's own file, whose result, a new tile, gets the name
        ``result``, if that is given.

        Return False, without a change, unless the function is understood, writes or returns one tile on the chip or two,
        and reads only such tiles and arguments of the kernel. The operation is called ``name()``.
        """
        own = self._own.get(name)
        if own is None or len(call.args) > len(own.parameters) or any(one.arg is None for one in call.keywords):
            return False
        given = self._arguments(call, own.parameters)
        written = [one for one in given if one in own.writes]
        if not all(self._is_readable(access.name) for access in self._accessed(given)):
            return False
        if result is not None and (not own.result or not isinstance(result, ast.Name) or result.id in self.buffers):
            return False
        if bool(own.result) != (result is not None):
            return False
        nodes = [*([] if result is None else [result]), *(given.pop(one) for one in written)]
        targets = [
            access for access in map(self.access, nodes) if access is not None and not self.is_tensor(access.name)
        ]
        names = {access.name for access in targets}
        if len(names) != len(nodes) or len(nodes) not in (1, 2):
            return False
        target = targets[0]
        if result is not None:
            self.returned[target.name] = Returned(own.result)
            self.ambiguous |= {target.name} if self._bound[target.name] > 1 else set()
        statement.kind, statement.op, statement.target, statement.args = "op", f"{name}()", target, given
        statement.second = targets[1] if targets[1:] else None
        statement.augmented = bool(own.reads & {*written} or names & {one.name for one in self._accessed(given)})
        self._summed |= names  # the function may have written products
        self._reads(statement)
        statement.mentions += targets[1:] if statement.augmented else []
        return True

    def _accessed(self, arguments: Mapping[str, ast.expr]) -> list[Access]:
        return [access for value in arguments.values() for access in self._mentioned(value)]

    def _is_readable(self, name: str) -> bool:
        """Tell whether a name is a tile on the chip or an argument of the kernel."""
        on_chip = name in self.buffers and not self.buffers[name].space.endswith("hbm")
        return on_chip or name in self.parameters or name in self.returned

    def _accumulates(self, statement: Statement, target: Access) -> bool:
        """Tell whether a matrix product of the current API may add to the values that its destination holds.

        Without ``accumulate`` the first product into a tile overwrites, and later products add.
        """
        given = statement.args.get("accumulate")
        fresh = self.buffers.get(target.name)
        first, self._summed = target.name not in self._summed, self._summed | {target.name}
        if isinstance(given, ast.Constant) and given.value is not None:
            return bool(given.value)
        return given is not None or not first or fresh is None or fresh.declaration.parent is not statement.parent

    def _second_result(self, statement: Statement) -> None:
        """Record in ``statement`` its second result, the tile that an instruction writes as ``reduce_res``.

        The statement counts as not understood if the engine's registers keep a sum from one instruction to the next.
        """
        given = {
            name: self.text(statement.args[name]) for name in ("reduce_op", "reduce_cmd") if name in statement.args
        }
        command = given.get("reduce_cmd", "reset_reduce" if statement.op in REDUCING else "")
        result = statement.args.get("reduce_res")
        if command.endswith("reset_reduce") and result is not None:
            statement.second = self.access(result)
        if statement.second is None and set(given.values()) - {"None"} and not command.endswith("idle"):
            statement.kind = "other"
            self._doubt(statement, self._mentioned(result) if result is not None else ())

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

    def _mentioned(self, node: ast.AST) -> list[Access]:
        found: list[Access] = []

        self._walk(node, found)
        return found

    def _walk(self, node: ast.AST, found: list[Access]) -> None:
        if isinstance(node, ast.Attribute):
            if node.attr not in ("shape", "dtype") or not isinstance(node.value, ast.Name):
                self._walk(node.value, found)
            return
        if isinstance(node, ast.Subscript | ast.Name):
            access = self.access(node)
            if access is not None:
                found += [access, *self._positions(node)]
                return
        for child in below(node):
            self._walk(child, found)

    def _positions(self, node: ast.expr) -> list[Access]:
        """Return the tiles in which an access finds its positions, such as ``rows`` in ``x[rows[p, 0], f]`` and in
        ``x.ap(..., vector_offset=rows)``.
        """
        match node:
            case ast.Call(args=args, keywords=named):
                given = [access for one in (*args, *(each.value for each in named)) for access in self._mentioned(one)]
                return [access for access in given if access.name in self.buffers]
            case ast.Subscript(slice=index):
                inside = [one for one in walked(index) if isinstance(one, ast.Subscript)]
                return [access for one in inside if (access := self.access(one)) is not None]
        return []


def _is_inside(variable: str, loop: Loop | None) -> bool:
    """Tell whether ``loop`` or a loop around it has the variable ``variable``, so that the variable has two meanings there."""
    return loop is not None and (loop.variable == variable or _is_inside(variable, loop.parent))


_PURE = frozenset({"abs", "float", "int", "isinstance", "len", "max", "min", "range"})
"""Python's builtin functions without side effects."""
_COMPOUND = (
    *(ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Match),
    *(ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef, ast.TryStar),
)


def _is_whole_shuffle(mask: ast.expr | None) -> bool:
    """Tell whether a shuffle certainly writes all lanes: its mask is written out as numbers, and no lane is 255."""
    if mask is None or any(isinstance(one, ast.Name | ast.Call) for one in ast.walk(mask)):
        return False
    return not any(isinstance(one, ast.Constant) and one.value == 255 for one in ast.walk(mask))


def _by_lines(body: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield ``body`` in groups. Statements that share a line are in one group."""
    group: list[ast.stmt] = []
    for one in body:
        if group and one.lineno > (group[-1].end_lineno or 0):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _bound_names(body: Sequence[ast.AST]) -> tuple[list[str], list[str], list[str]]:
    """Return three lists: the names that statements bind, once for each binding, the targets of augmented assignments
    such as ``n += 1``, and those of the bound names that are variables of ``for`` loops.

    An augmented assignment does not count as a binding.
    """
    bound: list[str] = []
    counted: list[str] = []
    looped: list[str] = []
    stack = list(body)
    while stack:
        one = stack.pop()
        if type(one) in LEAVES:
            continue
        stack += below(one)
        if type(one) not in _BINDING:  # a fast exit, because most nodes are names and calls
            continue
        match one:
            case ast.Assign(targets=targets):
                for target in targets:
                    bound.extend(_plain_names(target))
            case ast.AnnAssign() | ast.For() | ast.NamedExpr() | ast.comprehension():
                bound.extend(_plain_names(one.target))
                if type(one) is ast.For and isinstance(one.target, ast.Name):
                    looped.append(one.target.id)
            case ast.withitem(optional_vars=ast.expr() as target):
                bound.extend(_plain_names(target))
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                bound.append(name)
            case ast.FunctionDef() | ast.ClassDef():
                bound.append(one.name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                bound.append(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                bound.extend(names)
            case ast.AugAssign():
                counted.extend(_plain_names(one.target))
    return bound, counted, looped


_BINDING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr, ast.comprehension, ast.withitem, ast.alias}
    | {ast.ExceptHandler, ast.FunctionDef, ast.ClassDef, ast.MatchAs, ast.MatchStar, ast.MatchMapping}
    | {ast.Global, ast.Nonlocal}
)


def _plain_names(target: ast.AST) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List | ast.Starred):
        for child in below(target):
            yield from _plain_names(child)


def _used_outside(function: ast.FunctionDef) -> set[str]:
    """Return the names that a loop binds (loop variables, numbers and indices) and that the function reads after the
    loop too, where they keep their last value.
    """
    bound: set[tuple[str, ast.AST]] = set()
    read: set[tuple[str, tuple[ast.AST, ...]]] = set()
    groups: list[tuple[tuple[ast.AST, ...], list[ast.AST]]] = [((), list(function.body))]
    while groups:
        around, left = groups.pop()
        names = set[str]()
        while left:
            node = left.pop()
            if isinstance(node, ast.Name):
                if type(node.ctx) is ast.Load:
                    names.add(node.id)
                continue
            if type(node) not in _BINDS_IN_LOOPS:  # a fast exit, because most nodes are parts of calls
                left += below(node)
                continue
            match node:
                case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                    groups.append(((*around, node), below(node)))
                    bound |= {(name, node) for one in node.generators for name in _plain_names(one.target)}
                case ast.For(target=target, iter=over):
                    groups.append(((*around, node), [child for child in below(node) if child is not over]))
                    bound |= {(target.id, node)} if isinstance(target, ast.Name) else set()
                    left.append(over)
                case ast.Assign(targets=targets, value=value):
                    if len(targets) == 1 and isinstance(targets[0], ast.Name) and _may_be_number(value):
                        bound |= {(targets[0].id, loop) for loop in around}
                    left += below(node)
        read |= {(name, around) for name in names}
    everywhere = {name for name, _ in bound}
    return {name for name, around in read if name in everywhere and not any((name, one) in bound for one in around)}


_BINDS_IN_LOOPS = frozenset({ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Assign, ast.For})


def _may_be_number(value: ast.expr) -> bool:
    """Tell whether ``value`` may be a number that differs between iterations of a loop. Calls of ``nl`` or ``nisa``
    make no such number.
    """
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _PURE
    return isinstance(value, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.Constant | ast.Name)


def _module_names(
    module: ast.Module, function: ast.FunctionDef, bound: Sequence[str]
) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that the module's top-level statements bind exactly once, with its value.

    ``bound`` are the names that the function binds. A name that the function binds too is left out, and so is a name
    that ``global`` or an augmented assignment may change.
    """
    others = [one for one in module.body if one is not function]
    once, counted, _ = _bound_names(others)
    count = Counter([*bound, function.name, *once, *counted])
    for one in module.body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if count[name] == 1:
                yield name, value


def _uses(node: ast.AST, name: str) -> int:
    """Return how many times ``node`` uses the tile ``name``.

    Three uses do not count: ``name.shape``, ``name.dtype`` and ``return name``.
    """
    match node:
        case ast.Name(id=found):
            return found == name and not isinstance(node.ctx, ast.Store)
        case ast.Attribute(value=ast.Name(), attr="shape" | "dtype") | ast.Return(value=ast.Name() | ast.Tuple()):
            return 0
    return sum(_uses(child, name) for child in below(node))
