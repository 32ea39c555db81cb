"""Read a file of Triton kernels for rules: device functions, their launches, and which names depend on which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from acceld.editing import SourceText
from acceld.errors import RuleRefused
from acceld.nki.source.launches import Shapes
from acceld.parsing import parse

FunctionNode = ast.FunctionDef


@dataclass(frozen=True)
class Launch:
    """One launch, ``kernel[grid](...)``, in the host code."""

    kernel: str
    host: FunctionNode
    statement: ast.stmt
    call: ast.Call
    grid: tuple[ast.expr, ...]
    """One expression for each axis of the grid; empty if the axes can not be read from the source."""

    def keyword(self, name: str) -> ast.keyword | None:
        """Return the launch's keyword argument ``name``; None if the launch has no such argument."""
        return next((one for one in self.call.keywords if one.arg == name), None)


@dataclass(frozen=True)
class Setting:
    """A literal whole number that a launch passes for a constant parameter.

    ``places`` are the expressions that have to change when the number changes.
    """

    name: str
    value: int
    places: tuple[ast.expr, ...]
    line: int


class TritonModule(SourceText):
    """A parsed source. Raise RuleRefused if the source is not Python or launches no device function.

    ``shapes`` are the shapes of the entry function's arguments in order; None for a scalar.
    """

    def __init__(self, source: str, api: str = "triton", shapes: Shapes = ()) -> None:
        super().__init__(source)
        self.api, self.shapes = api, shapes
        try:
            self.tree = parse(source)
        except (SyntaxError, ValueError) as error:
            raise RuleRefused(f"the source is not Python: {error}") from error
        if not self.launches:
            raise RuleRefused(
                "the source launches no function decorated with triton.jit: launch one in the host code, as kernel[grid](...)"
            )

    @cached_property
    def words(self) -> frozenset[str]:
        """Return every name in the source."""
        kinds = {ast.Name: "id", ast.arg: "arg", ast.FunctionDef: "name", ast.ClassDef: "name"}
        return frozenset(getattr(node, kinds[type(node)]) for node in ast.walk(self.tree) if type(node) in kinds)

    @cached_property
    def kernels(self) -> dict[str, FunctionNode]:
        """Return the device functions by name."""
        return {
            node.name: node
            for node in self.tree.body
            if isinstance(node, FunctionNode) and any(called(one).endswith("jit") for one in node.decorator_list)
        }

    @cached_property
    def launches(self) -> list[Launch]:
        """Return every launch of a device function, in the order of the source."""
        found = []
        for host in self.tree.body:
            if not isinstance(host, FunctionNode) or host.name in self.kernels:
                continue
            for statement in walk(host.body):
                if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
                    continue
                call = statement.value
                target = call.func
                if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
                    continue
                if target.value.id in self.kernels:
                    grid = self._grid(target.slice, host)
                    found.append(Launch(target.value.id, host, statement, call, grid))
        return found

    def single_launch(self, kernel: str) -> Launch | None:
        """Return the only launch of ``kernel``; None if ``kernel`` has several launches or none."""
        found = [one for one in self.launches if one.kernel == kernel]
        return found[0] if len(found) == 1 else None

    def text(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        start, end = self.span(node)
        return self.source[start:end]

    def indent(self, node: ast.stmt) -> str:
        """Return the white space at the start of a statement's line."""
        return self.indentation(self.span(node)[0])

    def block(self, body: list[ast.stmt]) -> str:
        """Return the source of consecutive statements as whole lines, with the comments between them."""
        start, end = self.lines_span(body)
        return self.source[start:end]

    def lines_span(self, body: list[ast.stmt]) -> tuple[int, int]:
        """Return the start and end, in characters, of the lines of consecutive statements."""
        last = body[-1].end_lineno
        assert last is not None
        return self.line_starts[body[0].lineno - 1], self.line_starts[last]

    def whole_span(self, function: FunctionNode) -> tuple[int, int]:
        """Return the character offsets at which the lines of a device function, decorators included, start and end."""
        start, _ = self.span(function.decorator_list[0])
        return self.line_start(start), self.lines_span([function])[1]

    def arguments_end(self, call: ast.Call) -> int:
        """Return the position, in characters, after the last argument of a call."""
        return max(self.span(one)[1] for one in [*call.args, *call.keywords])

    def settings(self, launch: Launch) -> list[Setting]:
        """Return the literal whole numbers that a launch passes for constant parameters, if a rule may change them."""
        found = []
        for name in constants(self.kernels[launch.kernel]):
            given = launch.keyword(name)
            if given is None:
                continue
            setting = self._setting(name, given.value, launch)
            if setting is not None:
                found.append(setting)
        return found

    def _setting(self, name: str, given: ast.expr, launch: Launch) -> Setting | None:
        if isinstance(given, ast.Name):
            bindings = self._bindings(given.id, launch.host)
            if len(bindings) != 1 or whole(bindings[0]) is None:
                return None
            value = whole(bindings[0])
            assert value is not None
            return Setting(name, value, (bindings[0],), bindings[0].lineno)
        value = whole(given)
        if value is None:
            return None
        axes = self._axes_tied_to(name, launch.kernel)
        if not axes:
            return Setting(name, value, (given,), given.lineno)
        if self._shares_grid(launch):
            return None
        places: list[ast.expr] = [given]
        for axis in axes:
            if axis >= len(launch.grid):
                return None
            same = [
                node.args[1]
                for node in ast.walk(launch.grid[axis])
                if isinstance(node, ast.Call) and called(node).endswith("cdiv") and len(node.args) == 2
                if whole(node.args[1]) == value
            ]
            if len(same) != 1:
                return None
            places += same
        return Setting(name, value, tuple(places), given.lineno)

    @staticmethod
    def _shares_grid(launch: Launch) -> bool:
        """Tell whether the launch's grid is a variable that the host code also uses elsewhere."""
        target = launch.call.func
        name = target.slice.id if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name) else ""
        uses = [one for one in ast.walk(launch.host) if isinstance(one, ast.Name) and one.id == name]
        return sum(isinstance(one.ctx, ast.Load) for one in uses) > 1

    def _axes_tied_to(self, name: str, kernel: str) -> set[int]:
        """Return the axes of the grid whose size has to change if the constant ``name`` changes.

        On such an axis, the kernel multiplies or adds the program number and the constant, or passes both to one device
        function.
        """
        function = self.kernels[kernel]
        numbers: dict[str, set[int]] = {}
        for statement in walk(function.body):
            if isinstance(statement, ast.Assign):
                axes = _program_axes(statement.value)
                for target in statement.targets:
                    if axes and isinstance(target, ast.Name):
                        numbers[target.id] = axes
        tied: set[int] = set()
        for node in ast.walk(function):
            pair: list[ast.expr] = []
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
                pair = [node.left, node.right]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.kernels:
                pair = list(node.args)
            mentioned = {one.id for part in pair for one in ast.walk(part) if isinstance(one, ast.Name)}
            if name in mentioned:
                for part in pair:
                    tied |= _program_axes(part)
                for other in mentioned:
                    tied |= numbers.get(other, set())
        return tied

    def _bindings(self, name: str, host: FunctionNode) -> list[ast.expr]:
        found = []
        for statement in [*self.tree.body, *walk(host.body)]:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        found.append(statement.value)
                    elif any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(target)):
                        found += [statement.value, statement.value]
            elif isinstance(statement, ast.AugAssign) and getattr(statement.target, "id", "") == name:
                found += [statement.value, statement.value]
        return found

    def _grid(self, node: ast.expr, host: FunctionNode) -> tuple[ast.expr, ...]:
        if isinstance(node, ast.Name):
            bindings = self._bindings(node.id, host)
            if len(bindings) != 1:
                return ()
            node = bindings[0]
        return tuple(node.elts) if isinstance(node, ast.Tuple) else ()


def walk(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement in order, also the statements inside of blocks."""
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            yield from walk(getattr(statement, inner, []))


def constants(function: FunctionNode) -> list[str]:
    """Return the parameters annotated with ``tl.constexpr``."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [one.arg for one in every if one.annotation is not None and called(one.annotation).endswith("constexpr")]


def whole(node: ast.expr) -> int | None:
    """Return the value of a literal whole number; None for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def called(node: ast.AST) -> str:
    """Return the dotted name of the function that a call calls, or the dotted name itself if the node is a name; empty
    for any other node.
    """
    if isinstance(node, ast.Call):
        return called(node.func)
    if isinstance(node, ast.Attribute):
        return f"{called(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def parameters(function: FunctionNode) -> list[str]:
    """Return the names of a function's parameters, in order."""
    return [one.arg for one in function.args.args]


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    """Return every call of the function ``name`` in a node."""
    return [one for one in ast.walk(node) if isinstance(one, ast.Call) and called(one) == name]


def program_number(node: ast.expr) -> int | None:
    """Return the axis if the expression is exactly ``tl.program_id(axis)``; None for any other expression."""
    if isinstance(node, ast.Call) and called(node).endswith("program_id"):
        given = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "axis"), None)
        return whole(given) if given is not None else None
    return None


def _program_axes(node: ast.expr) -> set[int]:
    axes = {program_number(one) for one in ast.walk(node) if isinstance(one, ast.expr)}
    return {axis for axis in axes if axis is not None}


def names(node: ast.AST) -> set[str]:
    """Return every name in a node."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def depending(function: FunctionNode, seeds: set[str]) -> set[str]:
    """Return ``seeds`` and all names of a function that depend on them, directly or through other names."""
    found = set(seeds)
    while True:
        before = len(found)
        for statement in walk(function.body):
            if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if names(statement.value) & found:
                    for target in targets:
                        found |= names(target)
            elif isinstance(statement, ast.For) and names(statement.iter) & found:
                found |= names(statement.target)
        if len(found) == before:
            return found


def accesses(function: FunctionNode) -> Iterator[ast.Call]:
    """Yield every call of ``tl.load`` and ``tl.store`` in a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and called(node) in ("tl.load", "tl.store"):
            yield node


def mask(access: ast.Call) -> ast.expr | None:
    """Return the mask argument of a load or store; None if the access has no mask."""
    place = 1 if called(access) == "tl.load" else 2
    if len(access.args) > place:
        return access.args[place]
    return next((one.value for one in access.keywords if one.arg == "mask"), None)


def returns_early(function: FunctionNode) -> bool:
    """Return True if a function contains a return statement."""
    return any(isinstance(one, ast.Return) for one in walk(function.body))
