"""Replace names in a kernel's source by their values, so that rules see which buffers are used.

For example ::

    for j in nl.affine_range(8):
        part = keys[0:128, nl.ds(512 * j, 512)]
        scores = nisa.nc_matmul(query, part)

becomes ::

    for j in nl.affine_range(8):
        # part = keys[0:128, nl.ds(512 * j, 512)]
        scores = nisa.nc_matmul(query, keys[0:128, nl.ds(512 * j, 512)])

Names of views of tensors and tiles, of dtypes, of ranges (``nl.ds``) and (inside loops) of indices are replaced.
All of these are values without side effects. Two conditions must hold: every use of the name follows its
definition in the same block, and no name in the value is bound again before the end of that block. Every line
keeps its number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from acceld.editing import Edits, SourceText
from acceld.nki.entry import kernel_functions
from acceld.nki.source.spans import is_alone, parsed
from acceld.nki.source.syntax import DECLARATIONS, LOOPS, below, called, known_functions, numbers, walked

_SCOPES: tuple[type[ast.AST], ...] = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.GeneratorExp, ast.JoinedStr, ast.Global, ast.Nonlocal, ast.Match),
)
_DTYPES = frozenset("dtype float32 bfloat16 float16 tfloat32 int32 uint8 int8 float8_e4m3 float8_e5m2".split())
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
PLAIN_PLACES = (ast.Subscript, ast.Slice, ast.Tuple, ast.Call, ast.keyword, ast.Assign)
"""Nodes around a value in which the value needs no parentheses."""
_CHANGES_LIST = frozenset("append clear extend insert pop remove reverse sort update".split())
_ROUNDS = 8

Place = tuple[int, int]


def spelled_out(source: str) -> str:
    """Return ``source`` with names of views, dtypes and indices replaced by their values."""
    for _ in range(_ROUNDS):  # a round replaces only names whose values contain no other replaceable name
        tree, text, edits = parsed(source), SourceText(source), Edits(source)
        known, kernels = numbers(tree), kernel_functions(tree)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        found = [_spell(text, node, edits, known, is_kernel=node.name in kernels) for node in functions]
        if not any(found):
            return source
        source = edits.apply()
    return source


def with_shapes_written_out(source: str) -> str:
    """Return ``source`` in which declarations write out their extents, in place of ``tile.shape`` or the name of a tuple.

    The declaration of ``tile``, or the assignment to the name, has to write the extents as a tuple, and to come before in
    the same block. So a rule that moves or changes one of two tiles need not know of the other.
    """
    for _ in range(_ROUNDS):  # a tile whose shape is that of another tile waits for the next round
        tree, text, edits = parsed(source), SourceText(source), Edits(source)
        found = [_write_shapes(text, node, edits) for node in tree.body if isinstance(node, ast.FunctionDef)]
        if not any(found):
            return source
        source = edits.apply()
    return source


def _write_shapes(text: SourceText, function: ast.FunctionDef, edits: Edits) -> bool:
    """Write out the shapes in one function's declarations, and return True if there was one to write out."""
    names, done = _names(function), False
    known: dict[str, tuple[_Definition, ast.Tuple]] = {}
    wanted: list[ast.expr] = []
    for one, _ in _definitions(function.body, False, text):
        shape = _declared_shape(one.value)
        if isinstance(shape, ast.Name | ast.Attribute):
            wanted.append(shape)
        name, extents = (one.name, one.value) if shape is None else (f"{one.name}.shape", shape)
        plain = isinstance(extents, ast.Tuple) and not any(isinstance(node, ast.Call) for node in walked(extents))
        if isinstance(extents, ast.Tuple) and plain and len(names.bound[one.name]) == 1:
            known[name] = one, extents
    for shape in wanted:
        if (name := ast.unparse(shape)) in known:
            definition, extents = known[name]
            inside = {node.id for node in walked(extents) if isinstance(node, ast.Name)}
            again = any(definition.covers(place) for other in inside for place, _ in names.bound.get(other, []))
            if definition.covers(_start(shape)) and not again and not (inside | {definition.name}) & names.elsewhere:
                edits.replace(*text.span(shape), ast.unparse(extents))
                done = True
    return done


def _declared_shape(value: ast.expr) -> ast.expr | None:
    """Return the shape in the declaration of a tile or tensor; None if ``value`` declares neither."""
    if not isinstance(value, ast.Call) or called(value.func) not in DECLARATIONS:
        return None
    return next((one.value for one in value.keywords if one.arg == "shape"), value.args[0] if value.args else None)


@dataclass(slots=True)
class _Definition:
    """One assignment ``name = value`` whose name may be replaced by the value.

    ``ends`` is the end of the block with the statement. Uses of the name up to that end may be replaced.
    """

    node: ast.Assign
    name: str
    value: ast.expr
    ends: Place

    @property
    def begins(self) -> Place:
        return _end(self.node)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(one.id for one in walked(self.value) if isinstance(one, ast.Name))

    def covers(self, place: Place) -> bool:
        return self.begins <= place < self.ends


@dataclass(slots=True)
class _Function:
    """The names that occur in one function, with the positions where they are bound and used."""

    parameters: frozenset[str]
    is_kernel: bool = False
    """True for a kernel, whose arguments are tensors and numbers. Any other function may also get lists."""
    bound: dict[str, list[tuple[Place, ast.stmt | None]]] = field(default_factory=dict)
    """For each name, the places where the name is bound, each with the assignment or loop that binds it; None for any
    other statement.
    """
    used: dict[str, list[tuple[ast.Name, ast.AST]]] = field(default_factory=dict)
    """For each name, its uses, each with the node around the use."""
    elsewhere: set[str] = field(default_factory=set)
    """Names that occur in an inner scope or in a formatted string."""
    changed: set[str] = field(default_factory=set)
    """Names of objects that the function modifies, by an assignment to an element or a method such as ``append``."""


def _spell(text: SourceText, function: ast.FunctionDef, edits: Edits, known: set[str], *, is_kernel: bool) -> bool:
    """Replace names in one function by their values, and return True if there was a name to replace. ``known`` are names
    of integers in the function's file.

    A name whose value contains another name that can be replaced has to wait for the next round.
    """
    names = replace(_names(function), is_kernel=is_kernel)
    fixed = (known - names.parameters) | _sizes(function)
    indices = _indices(names, fixed - names.bound.keys() - names.elsewhere)
    candidates = [
        one for one in _definitions(function.body, False, text) if _stands_for_value(one[0], one[1], names, indices)
    ]
    defined: dict[str, list[_Definition]] = {}
    for one, _ in candidates:
        defined.setdefault(one.name, []).append(one)
    good = {name: found for name, found in defined.items() if _is_replaceable(name, found, names)}
    done = False
    for name, found in good.items():
        if any(one.names & good.keys() for one in found):
            continue
        done = True
        for definition in found:
            _comment_out(text, definition.node, edits)
        for use, around in names.used.get(name, ()):
            definition = next(one for one in found if one.covers(_start(use)))
            written = ast.unparse(definition.value)
            plain = isinstance(around, PLAIN_PLACES) or not isinstance(definition.value, ast.BinOp | ast.UnaryOp)
            edits.replace(*text.span(use), written if plain else f"({written})")
    return done


def _sizes(function: ast.FunctionDef) -> set[str]:
    """Return the parameters of a function that can only be integers, because the range of a loop or the shape of a tile
    uses them.
    """
    calls = (node for node in walked(function) if isinstance(node, ast.Call) and node.args)
    sizes: set[str] = set()
    for call in calls:
        name = called(call.func)
        given = call.args if name in LOOPS else call.args[:1] if name in DECLARATIONS else []
        shapes = [one for each in given for one in (each.elts if isinstance(each, ast.Tuple | ast.List) else [each])]
        sizes |= {one.id for one in shapes if isinstance(one, ast.Name)}
    return sizes & {one.arg for one in function.args.args}


@lru_cache(maxsize=4)
def _names(function: ast.FunctionDef) -> _Function:
    """Return the names that occur in a function. The last results are kept, because several steps of normalization read
    the same tree. Callers must not change them.
    """
    given = function.args
    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    found = _Function(frozenset(one.arg for one in listed if one is not None))

    def walk(node: ast.AST, around: ast.AST, statement: ast.stmt | None) -> None:
        if node.__class__ is ast.Constant:  # a fast exit, because many nodes are numbers
            return
        if isinstance(node, _SCOPES):
            found.elsewhere |= {one.id for one in walked(node) if isinstance(one, ast.Name)}
            # a ``global`` statement has its names as strings, not as nodes
            found.elsewhere |= {getattr(node, "name", ""), *getattr(node, "names", ())}
            return
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                found.used.setdefault(node.id, []).append((node, around))
            else:
                by = statement if isinstance(statement, ast.Assign | ast.For) else None
                found.bound.setdefault(node.id, []).append((_start(node), by))
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name):
            if isinstance(node.ctx, ast.Store) or getattr(node, "attr", "") in _CHANGES_LIST:
                found.changed.add(node.value.id)
        elif isinstance(node, ast.alias):
            found.bound.setdefault((node.asname or node.name).partition(".")[0], []).append((_start(node), None))
        elif isinstance(node, ast.ExceptHandler):
            found.elsewhere.add(node.name or "")
        for child in below(node):
            walk(child, node, node if isinstance(node, ast.stmt) else statement)

    for statement in function.body:
        walk(statement, function, None)
    return found


def _indices(names: _Function, known: set[str]) -> frozenset[str]:
    """Return the names that can stand only for integers or index ranges, the names ``known`` of integers included."""
    found = {name for name in names.bound if name not in names.parameters and name not in names.elsewhere}
    changed = True
    while changed:
        good = found | known
        wrong = {name for name in found if not all(_binds_index(name, by, good) for _, by in names.bound[name])}
        found -= wrong
        changed = bool(wrong)
    return frozenset(found | known)


def _binds_index(name: str, statement: ast.stmt | None, indices: set[str]) -> bool:
    if isinstance(statement, ast.For):
        call = statement.iter
        is_range = isinstance(call, ast.Call) and called(call.func) in LOOPS
        return is_range and isinstance(statement.target, ast.Name) and statement.target.id == name
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple):
        return isinstance(value, ast.Attribute) and value.attr == "shape"
    return isinstance(target, ast.Name) and _is_index(value, indices)


def _is_index(node: ast.expr, indices: set[str] | frozenset[str]) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) is int
        case ast.Name(id=name):
            return name in indices
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_index(operand, indices)
        case ast.BinOp(left=left, op=op, right=right):
            return isinstance(op, _ARITHMETIC) and _is_index(left, indices) and _is_index(right, indices)
        case ast.Attribute(value=ast.Attribute(attr="tile_size")):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant()):
            return True
        case ast.Subscript(value=ast.Call(func=function, args=[extent], keywords=[])):
            return called(function) == "arange" and _is_index(extent, indices)
    return False


def _definitions(body: Sequence[ast.stmt], in_loop: bool, text: SourceText) -> Iterator[tuple[_Definition, bool]]:
    """Yield each assignment ``name = value`` that shares its lines with no other statement, with True if the assignment
    is inside a loop.
    """
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_alone(text, statement):
                yield _Definition(statement, name, value, _end(body[-1])), in_loop
            case ast.For() | ast.While():
                yield from _definitions(statement.body, True, text)
            case ast.If():
                yield from _definitions(statement.body, in_loop, text)
                yield from _definitions(statement.orelse, in_loop, text)


def _stands_for_value(one: _Definition, in_loop: bool, names: _Function, indices: frozenset[str]) -> bool:
    value = one.value
    if isinstance(value, ast.Attribute) and value.attr in _DTYPES:
        return isinstance(value.value, ast.Name)
    if in_loop and _is_index(value, indices):
        return not isinstance(value, ast.Constant | ast.Name)
    if isinstance(value, ast.Call):
        return _is_part(value, indices)  # nl.ds, a range along an axis
    return isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and _is_view(value, names, indices)


def _is_view(value: ast.Subscript, names: _Function, indices: frozenset[str]) -> bool:
    """Tell whether ``value`` is a view: a part of a tensor or tile that shares its elements."""
    assert isinstance(value.value, ast.Name)
    base = value.value.id
    tensors = names.parameters - names.changed if names.is_kernel else frozenset()  # another function may get lists
    if base in names.elsewhere or not (base in names.bound or base in tensors):
        return False
    if not all(isinstance(by, ast.Assign) and _makes_tile(by.value) for _, by in names.bound.get(base, [])):
        return False
    parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
    return all(_is_part(part, indices) for part in parts)


def _makes_tile(value: ast.expr) -> bool:
    """Tell whether ``value`` is a call that makes a tile or tensor, such as ``nl.load(...)``."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    name = value.func.attr
    return (
        name in DECLARATIONS
        or name == "reshape"
        or name in known_functions("nki")
        or name in known_functions("nki_legacy")
    )


def _is_part(part: ast.expr, indices: frozenset[str]) -> bool:
    match part:
        case ast.Slice(lower=lower, upper=upper, step=None):
            return all(one is None or _is_index(one, indices) for one in (lower, upper))
        case ast.Call(func=function, args=[start, size], keywords=[]) if called(function) == "ds":
            return _is_index(start, indices) and _is_index(size, indices)
    return _is_index(part, indices)


def _is_replaceable(name: str, found: Sequence[_Definition], names: _Function) -> bool:
    """Tell whether every use of a name can be replaced by its value. ``found`` has all assignments to the name.

    A name without a use can be replaced too: its assignment does nothing.
    """
    uses = names.used.get(name, [])
    if name in names.elsewhere or name in names.parameters or len(names.bound[name]) != len(found):
        return False
    if not all(sum(one.covers(_start(use)) for one in found) == 1 for use, _ in uses):
        return False
    if isinstance(found[0].value, ast.Subscript) and any(
        isinstance(around, ast.Attribute) or (isinstance(around, ast.Subscript) and around.value is use)
        for use, around in uses
    ):
        return False  # replacing such a use would write an index of an index
    for one in found:
        for other in {*one.names, name}:
            if other in names.elsewhere or any(one.covers(place) for place, _ in names.bound.get(other, [])):
                return False
    return True


def _comment_out(text: SourceText, node: ast.Assign, edits: Edits) -> None:
    for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        start = text.line_starts[line - 1]
        written = text.source[start : text.line_starts[line]]
        if written.strip():
            at = start + len(written) - len(written.lstrip())
            edits.insert(at, "# ")


def _start(node: ast.expr | ast.stmt | ast.alias) -> Place:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> Place:
    return node.end_lineno or node.lineno, node.end_col_offset or 0
